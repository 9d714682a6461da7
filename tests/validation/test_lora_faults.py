"""Whose trouble it is when a submission, a base, a set or a setting is not as it should be."""

import json
import math
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from automate.validation.inner.classify import classify
from automate.validation.inner.files import Outcome
from automate.validation.modules.base import InvalidConfigValueException, RecoverableException, SubmissionFault
from automate.validation.modules.lora import LoraConfig, LoraModule, loading
from tests.validation.lora_rig import HERE, change, copied, job, run, tiny, wanted

CONFIG, TENSORS = "adapter_config.json", "adapter_model.safetensors"


def submission(cause: str, call: Callable[[], object]) -> None:
    with pytest.raises(SubmissionFault) as caught:
        call()
    assert caught.value.cause == cause
    assert classify(caught.value, shipped=True).outcome == Outcome.FAILED


def validator(cause: str, call: Callable[[], object],
              kind: type[RecoverableException] = RecoverableException) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert caught.value.cause == cause
    assert classify(caught.value, shipped=True).outcome != Outcome.FAILED


@pytest.mark.parametrize(("values", "cause"), [
    ({"base_model_name_or_path": "nobody/nothing"}, "unsupported-base"),
    ({"base_model_name_or_path": None}, "missing-base"),
    ({"peft_type": "NOTHING"}, "broken-adapter"),
    ({"peft_type": "PROMPT_TUNING", "num_virtual_tokens": 3}, "broken-adapter"),
    ({"target_modules": ["no_such_layer"]}, "broken-adapter"),
    ({"r": "many"}, "broken-adapter"),
    ({"r": 3}, "broken-adapter"),
])
def test_a_bad_adapter_is_the_submission_s(values: dict[str, object], cause: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, "adapter")
    change(folder / CONFIG, **values)
    submission(cause, lambda: run(tmp_path, model=folder))


def test_tensors_that_do_not_fit_are_cut_or_missing_are_the_submission_s(tmp_path: Path) -> None:
    folder = copied(tmp_path, "adapter")
    path = folder / TENSORS
    whole = path.read_bytes()
    save_file({name: torch.zeros(3, 5) for name in load_file(path)}, path)
    submission("broken-adapter", lambda: run(tmp_path, model=folder))
    path.write_bytes(whole[:1000])
    submission("broken-adapter", lambda: run(tmp_path, model=folder))
    path.unlink()
    submission("missing-weights", lambda: run(tmp_path, model=folder))


class Trap:
    """Runs where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str, str]]:
        return (open, (str(self.path), "w"))


def test_a_pickle_is_read_for_its_tensors_only(tmp_path: Path) -> None:
    folder = copied(tmp_path, "adapter")
    torch.save(load_file(folder / TENSORS), folder / "adapter_model.bin")
    (folder / TENSORS).unlink()
    assert run(tmp_path, model=folder).loss == run(tmp_path).loss
    (folder / "adapter_model.bin").write_bytes(pickle.dumps({"x": Trap(tmp_path / "sprung")}))
    submission("broken-adapter", lambda: run(tmp_path, model=folder))
    torch.save({"x": Trap(tmp_path / "sprung")}, folder / "adapter_model.bin")
    submission("broken-adapter", lambda: run(tmp_path, model=folder))
    assert not (tmp_path / "sprung").exists()


def test_safetensors_are_preferred_to_a_pickle(tmp_path: Path) -> None:
    folder = copied(tmp_path, "adapter")
    (folder / "adapter_model.bin").write_bytes(pickle.dumps({"x": Trap(tmp_path / "sprung")}))
    assert math.isfinite(run(tmp_path, model=folder).loss)
    assert not (tmp_path / "sprung").exists()


def test_a_whole_model_counts_only_where_the_config_says_so(tmp_path: Path) -> None:
    submission("missing-adapter", lambda: run(tmp_path, model=tiny() / "full", base=None))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "README.md").write_text("nothing")
    submission("not-a-model", lambda: run(tmp_path, {"lora_only": False}, model=tmp_path / "other", base=None))


@pytest.mark.parametrize("broken", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_broken_whole_model_is_the_submission_s_and_a_broken_base_is_not(broken: str, tmp_path: Path) -> None:
    for name in ("full", "base"):
        (copied(tmp_path, name) / broken).write_text("{")
    with pytest.raises(SubmissionFault):
        run(tmp_path, {"lora_only": False}, model=tmp_path / "full", base=None)
    with pytest.raises(RecoverableException) as caught:
        run(tmp_path, base=tmp_path / "base")
    assert caught.value.cause.startswith("base-")


def test_what_is_not_on_disk_is_the_validator_s(tmp_path: Path) -> None:
    validator("no-base", lambda: run(tmp_path, base=None))
    validator("no-model", lambda: run(tmp_path, model=None))
    validator("no-data", lambda: run(tmp_path, data=None))
    (tmp_path / "empty").mkdir()
    for gone in (tmp_path / "gone", tmp_path / "empty"):
        validator("files-gone", lambda gone=gone: run(tmp_path, model=gone))  # type: ignore[misc]
        validator("files-gone", lambda gone=gone: run(tmp_path, base=gone))  # type: ignore[misc]
    validator("files-gone", lambda: run(tmp_path, data=tmp_path / "gone"))


def test_texts_that_are_not_there_are_a_setting_s(tmp_path: Path) -> None:
    validator("templates", lambda: run(tmp_path, fields={"base_model": "qwen1.5"}), InvalidConfigValueException)
    validator("template", lambda: run(tmp_path, fields={"base_model": "other"}), InvalidConfigValueException)


def test_a_broken_row_is_the_validator_s(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text((tiny() / "rows.jsonl").read_text() + "{}\n")
    validator("data", lambda: run(tmp_path, data=tmp_path / "set.jsonl"))
    empty = json.dumps({"conversations": [{"role": "user", "content": "x"}]})
    for text, number in (("", "no rows"), (f"{empty}\n", "row 1 ")):
        (tmp_path / "set.jsonl").write_text(text)
        with pytest.raises(RecoverableException, match=number) as caught:
            run(tmp_path, data=tmp_path / "set.jsonl")
        assert caught.value.cause == "data"
    (tmp_path / "set.jsonl").write_text("")
    validator("data", lambda: run(tmp_path, data=tmp_path / "set.jsonl"))


def test_a_repository_s_own_code_runs_only_where_the_settings_allow_it(tmp_path: Path) -> None:
    folder = copied(tmp_path, "full")
    change(folder / "config.json", model_type="own", auto_map={
        "AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}, architectures=["OwnModel"])
    (folder / "own.py").write_text(
        f"open({str(tmp_path / 'ran')!r}, 'w')\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n")
    config: dict[str, object] = {"lora_only": False}
    validator("remote-code", lambda: run(tmp_path, config, model=folder, base=None), InvalidConfigValueException)
    assert not (tmp_path / "ran").exists()


def test_too_many_parameters_are_completed_with_999_after_the_merge(tmp_path: Path) -> None:
    module = LoraModule(LoraConfig.model_validate(HERE))
    exact = sum(value.numel() for value in load_file(tiny() / "base" / "model.safetensors").values())
    found = module.validate(wanted(max_params=exact - 1), job=job(tmp_path))
    assert found.loss == found.bpc == 999.0
    json.dumps(module.payload(found, job=job(tmp_path), gpu_type="x"), allow_nan=False)
    assert run(tmp_path, fields={"max_params": exact}).loss < 999.0
    module.cleanup()
    module.cleanup()


def test_a_set_without_target_bytes_is_999(tmp_path: Path) -> None:
    row = {"system": "s", "conversations": [{"role": "user", "content": "x"}]}
    (tmp_path / "set.jsonl").write_text(json.dumps(row) + "\n")
    assert run(tmp_path, data=tmp_path / "set.jsonl").loss == 999.0


def test_memory_and_disk_trouble_go_through_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = loading.Source(tiny() / "full", "a/b", submitted=True)
    import transformers

    for trouble in (torch.OutOfMemoryError("CUDA out of memory"), OSError(28, "No space left on device"),
                    RuntimeError("CUDA error: unspecified launch failure")):
        def fail(*_: object, trouble: Exception = trouble, **__: object) -> None:
            raise trouble

        monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
        with pytest.raises(type(trouble)) as caught:
            loading.load_whole(source, "float32", False)
        assert caught.value is trouble
        assert classify(trouble, shipped=True).outcome == Outcome.RECOVERABLE


def test_a_library_that_is_missing_is_the_environment_s(monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    def fail(*_: object, **__: object) -> None:
        raise ImportError("requires sentencepiece")

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", fail)
    validator("environment", lambda: loading.load_tokenizer(loading.Source(tiny() / "full", "a/b", submitted=True)),
              InvalidConfigValueException)


def test_the_fix_ups_go_by_the_repository_s_name() -> None:
    plain = loading.load_tokenizer(loading.Source(tiny() / "base", "Qwen/Qwen2.5-0.5B", submitted=False))
    gemma = loading.load_tokenizer(loading.Source(tiny() / "base", "google/Gemma-2-2b", submitted=False))
    assert plain.pad_token_id == plain.eos_token_id
    for token in loading.GEMMA_TOKENS:
        assert token in gemma.all_special_tokens
    assert gemma.decode(gemma.encode("a<start_of_turn>b", add_special_tokens=False), skip_special_tokens=True) == "ab"


def test_precision_follows_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert loading.precision(False, True) == loading.Precision("cuda", "float16", True)
    assert loading.precision(False, False) == loading.Precision("cuda", "bfloat16", False)
    assert loading.precision(True, True) == loading.Precision("cpu", "float32", False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert loading.precision(True, True) == loading.Precision("cpu", "float32", False)
    validator("gpu", lambda: loading.precision(False, True))


def test_without_a_gpu_nothing_is_scored_unless_the_config_wants_the_cpu(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RecoverableException, match="use_cpu") as caught:
        run(tmp_path, {"use_cpu": False})
    assert caught.value.cause == "gpu"
    assert classify(caught.value, shipped=True).outcome == Outcome.RECOVERABLE


@pytest.mark.parametrize("error", [
    AttributeError("module 'transformers' has no attribute 'X'"), TypeError("forward() got an unexpected keyword"),
    KeyError("k"), ValueError("peft requires accelerate>=9"), IndexError("list index out of range"),
    RuntimeError("no such operator"), Exception("data did not match any variant of untagged enum ModelWrapper"),
])
def test_what_a_library_raises_over_good_files_is_nobody_s_fault(
        error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import peft
    import transformers

    def fail(*_: object, **__: object) -> None:
        raise error

    cases: tuple[tuple[Any, dict[str, object], dict[str, Any]], ...] = (
        (peft.PeftModel, {}, {}),
        (transformers.AutoModelForCausalLM, {"lora_only": False}, {"model": tiny() / "full", "base": None}),
        (transformers.AutoTokenizer, {"lora_only": False}, {"model": tiny() / "full", "base": None}))
    for place, config, more in cases:
        with monkeypatch.context() as patched:
            patched.setattr(place, "from_pretrained", fail)
            with pytest.raises(type(error)) as caught:
                run(tmp_path, config, **more)
        verdict = classify(caught.value, shipped=True, model=tiny() / "full")
        assert (verdict.outcome, verdict.cause) == (Outcome.RECOVERABLE, "unexpected")


def test_keys_and_kinds_of_a_newer_peft_are_not_the_submission_s_fault(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = copied(tmp_path, "adapter")
    change(folder / CONFIG, a_new_key={"of": "peft 9"}, runtime_config={"ephemeral_gpu_offload": True})
    assert run(tmp_path, model=folder).loss == run(tmp_path).loss
    assert "a_new_key" in capsys.readouterr().out
    change(folder / CONFIG, peft_type="NEXT", peft_version="9.1.0")
    validator("environment", lambda: run(tmp_path, model=folder), InvalidConfigValueException)
    change(folder / CONFIG, peft_version="0.1.0")
    submission("broken-adapter", lambda: run(tmp_path, model=folder))


def test_a_kind_of_model_that_transformers_does_not_know_is_left_to_a_person(tmp_path: Path) -> None:
    folder = copied(tmp_path, "full")
    change(folder / "config.json", model_type="of_next_year")
    validator("environment", lambda: run(tmp_path, {"lora_only": False}, model=folder, base=None),
              InvalidConfigValueException)


def test_a_revision_of_null_is_main() -> None:
    assert wanted(revision=None).revision == "main"
    assert wanted(revision="abc").revision == "abc"
