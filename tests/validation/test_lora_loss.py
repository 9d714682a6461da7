"""The loss of the tiny model with its adapter, next to an independent computation in float64, row by row."""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from automate.validation.modules.lora import loading, loss, templates
from automate.validation.modules.lora.loss import Place
from automate.validation.modules.lora.rows import Row, read_rows
from tests.validation.lora_rig import BASE, run, tiny

SAME = 1e-4


def sources() -> tuple[loading.Source, loading.Source]:
    root = tiny()
    return (loading.Source(root / "base", BASE, submitted=False),
            loading.Source(root / "adapter", "someone/adapter", submitted=True))


def merged(dtype: str = "float32") -> Any:
    model = loading.load_merged(*sources(), dtype, False)
    loading.prepare(model)
    return model


def conversations(length: int = 4096) -> tuple[list[Row], Any]:
    tokenizer = loading.load_tokenizer(sources()[0])
    rows = read_rows(tiny() / "rows.jsonl", templates.find("yi"), tokenizer, length, lambda: "")
    return rows, tokenizer


def by_hand() -> list[list[float]]:
    """Each row's negative log-likelihoods in float64, from weights read and merged here, one row at a time."""
    from safetensors.torch import load_file
    from transformers import LlamaForCausalLM

    root = tiny()
    model = LlamaForCausalLM.from_pretrained(root / "base", torch_dtype=torch.float64)
    tensors = load_file(root / "adapter" / "adapter_model.safetensors")
    weights = {name: value.double() for name, value in tensors.items()}
    config = json.loads((root / "adapter" / "adapter_config.json").read_text())
    for name, down in weights.items():
        if name.endswith("lora_A.weight"):
            up = weights[name.replace("lora_A", "lora_B")]
            layer = model.get_submodule(name.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
            layer.weight.data += config["lora_alpha"] / config["r"] * up @ down
    found = []
    for row in conversations()[0]:
        with torch.no_grad():
            odds = model(torch.tensor([row.ids])).logits[0].log_softmax(-1)
        found.append([-float(odds[place - 1, row.ids[place]]) for place in range(1, len(row.ids)) if row.mask[place]])
    return found


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def test_the_metrics_are_the_protocol_s_and_not_the_global_mean(tmp_path: Path) -> None:
    rows, tokenizer = conversations()
    assert len(max(rows, key=lambda row: len(row.ids)).ids) > 10 * len(min(rows, key=lambda row: len(row.ids)).ids)
    hand = by_hand()
    expected = mean([mean(row) for row in hand])
    counted = sum(sum(row.mask) for row in rows)
    size = sum(len(tokenizer.decode(list(row.targets), skip_special_tokens=True).encode()) for row in rows)
    found = run(tmp_path)
    assert found.loss == pytest.approx(expected, rel=SAME)
    assert found.nll_token_nats_total == pytest.approx(expected * counted, rel=SAME)
    assert found.nll_token_bits_total == pytest.approx(expected * counted / math.log(2), rel=SAME)
    assert found.bpc == pytest.approx(expected * counted / math.log(2) / size, rel=SAME)
    assert found.bppl == pytest.approx(2**found.bpc, rel=SAME)
    everything = [value for row in hand for value in row]
    assert abs(mean(everything) / expected - 1) > 50 * SAME
    assert found.loss != pytest.approx(mean(everything), rel=50 * SAME)


def test_the_adapter_is_what_is_scored(tmp_path: Path) -> None:
    with_adapter = run(tmp_path).loss
    whole: dict[str, Any] = {"model": tiny() / "full", "base": None}
    assert run(tmp_path, {"lora_only": False}, **whole).loss == pytest.approx(with_adapter, rel=SAME)
    whole = {"model": tiny() / "base", "base": None}
    assert abs(run(tmp_path, {"lora_only": False}, **whole).loss - with_adapter) > 100 * SAME


@pytest.mark.parametrize("budget", [1, 100, 700, 100_000])
def test_every_row_has_the_same_figure_in_any_batch(budget: int, capsys: pytest.CaptureFixture[str]) -> None:
    rows, tokenizer = conversations()
    found = loss.row_losses(merged(), rows, Place("cpu", False, tokenizer.pad_token_id), budget)
    assert found == pytest.approx([mean(row) for row in by_hand()], rel=SAME)
    assert "one row at a time" not in capsys.readouterr().out


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 5e-4), ("float16", 5e-4)])
def test_half_precision_has_the_model_s_own_figure(dtype: str, near: float) -> None:
    model, (rows, tokenizer) = merged(dtype), conversations()
    place = Place("cpu", False, tokenizer.pad_token_id)
    with torch.inference_mode():
        alone = mean([loss.own_loss(model, row, place) for row in rows])
    assert loss.mean_loss(model, rows, place, 1024) == pytest.approx(alone, rel=near)


def test_a_row_without_a_predicted_target_spoils_the_set(tmp_path: Path) -> None:
    rows, _ = conversations()
    for spoiled in (Row((5, 6, 7), (0, 0, 0)), Row((5, 6), (1, 0)), Row((), ())):
        assert math.isnan(loss.mean_loss(merged(), [*rows, spoiled], Place("cpu", False, 0), 1024))
    assert run(tmp_path, fields={"context_length": 30}).loss == 999.0


def test_a_model_whose_figures_are_no_numbers_is_999() -> None:
    model, (rows, _) = merged(), conversations()
    with torch.no_grad():
        model.lm_head.weight.fill_(math.nan)
    assert math.isnan(loss.mean_loss(model, rows, Place("cpu", False, 0), 1024))


class Crowded:
    """A model that has memory for so many tokens."""

    def __init__(self, model: Any, room: int) -> None:
        self.model, self.room = model, room
        self.sizes: list[tuple[int, ...]] = []
        self.config = model.config

    def get_output_embeddings(self) -> Any:
        return self.model.get_output_embeddings()

    def __call__(self, input_ids: Any, **rest: object) -> Any:
        self.sizes.append(tuple(input_ids.shape))
        if input_ids.numel() > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.model(input_ids=input_ids, **rest)


def test_too_large_a_batch_is_halved_and_too_large_a_row_is_passed_on() -> None:
    model, (rows, _) = merged(), conversations()
    longest = max(len(row.ids) for row in rows)
    expected = loss.row_losses(model, rows, Place("cpu", False, 0), 1)
    crowded = Crowded(model, 2 * longest)
    found = loss.row_losses(crowded, rows, Place("cpu", False, 0), 50 * longest)
    assert found == pytest.approx(expected, rel=SAME)
    assert sum(height * width > 2 * longest for height, width in crowded.sizes) in range(1, 8)
    with pytest.raises(torch.OutOfMemoryError):
        loss.row_losses(Crowded(model, longest - 1), rows, Place("cpu", False, 0), 50 * longest)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    for error in (RuntimeError("CUDA error: device-side assert triggered"), ValueError("out of memory"), KeyError("x")):
        assert not loss.out_of_memory(error)
    for lack in (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), MemoryError(),
                  RuntimeError("CUDA out of memory. Tried to allocate")):
        assert loss.out_of_memory(lack)


def test_a_mixture_of_experts_has_its_auxiliary_loss_row_by_row() -> None:
    from transformers import MixtralConfig, MixtralForCausalLM

    torch.manual_seed(3)
    model = MixtralForCausalLM(MixtralConfig(
        vocab_size=700, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, num_local_experts=4, router_aux_loss_coef=0.5))
    rows, _ = conversations()
    rows, place = rows[:6], Place("cpu", False, 0)
    with torch.inference_mode():
        bare = mean([loss.own_loss(model.eval(), row, place) for row in rows])
    loading.prepare(model)
    assert model.config.output_router_logits is True
    with torch.inference_mode():
        expected = [float(model(torch.tensor([row.ids]), labels=torch.where(
            torch.tensor([row.mask]) == 1, torch.tensor([row.ids]), -100)).loss) for row in rows]
    assert loss.mean_loss(model, rows, place, 1024) == pytest.approx(mean(expected), rel=SAME)
    assert mean(expected) > bare + 0.1


def test_a_model_with_another_loss_goes_one_row_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    model, (rows, _) = merged(), conversations()
    model.loss_function = lambda logits, labels, **_: logits.float().pow(2).mean()
    place = Place("cpu", False, 0)
    with torch.inference_mode():
        expected = [loss.own_loss(model, row, place) for row in rows]
    assert loss.row_losses(model, rows, place, 1024) == pytest.approx(expected, rel=SAME)
    assert "one row at a time" in capsys.readouterr().out


@pytest.mark.parametrize("family", ["gemma2", "phi3", "gpt2"])
def test_other_families_have_their_own_figures(family: str, capsys: pytest.CaptureFixture[str]) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(3)
    sizes: dict[str, Any] = {"vocab_size": 700, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
             "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0,
             "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 2048, "initializer_range": 0.3}
    if family == "gemma2":
        sizes |= {"sliding_window": 32, "final_logit_softcapping": 3.0}
    if family == "phi3":
        sizes |= {"max_position_embeddings": 4096, "original_max_position_embeddings": 64, "rope_scaling": {
            "type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8}}
    if family == "gpt2":
        sizes = {"vocab_size": 700, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 2048}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **sizes)).eval()
    rows, _ = conversations()
    place = Place("cpu", False, 0)
    with torch.inference_mode():
        expected = [loss.own_loss(model, row, place) for row in rows]
    assert loss.row_losses(model, rows, place, 2048) == pytest.approx(expected, rel=SAME)
    assert "one row at a time" not in capsys.readouterr().out


def test_a_model_that_sees_what_comes_after_goes_one_row_at_a_time(capsys: pytest.CaptureFixture[str]) -> None:
    model, (rows, _) = merged(), conversations()
    place = Place("cpu", False, 0)

    def both_ways(**given: Any) -> Any:
        ids = given["input_ids"]
        return real(**{**given, "attention_mask": torch.zeros(len(ids), 1, ids.shape[1], ids.shape[1])})
    real, model.forward = model.forward, both_ways
    with torch.inference_mode():
        expected = [loss.own_loss(model, row, place) for row in rows]
    assert loss.row_losses(model, rows, place, 1024) == pytest.approx(expected, rel=SAME)
    assert "one row at a time" in capsys.readouterr().out
