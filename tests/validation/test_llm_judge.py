"""`llm_judge` with real models on the CPU: generation, merging, what is scored -999, what waits, both steps."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from automate.validation.inner.files import PARTIAL, write_json  # noqa: E402
from automate.validation.modules.base import (  # noqa: E402
    InvalidConfigValueException,
    Job,
    RecoverableException,
)
from automate.validation.modules.llm_judge import MODULE, generation, loading, schemas  # noqa: E402
from automate.validation.modules.llm_judge.dataset import Item  # noqa: E402
from automate.validation.modules.llm_judge.schemas import LLMJudgeConfig, LLMJudgeMetrics, Partial  # noqa: E402
from automate.validation.standin.judge import Judge, failing, scored  # noqa: E402
from tests.unit.llm_judge_support import chat, make_input, make_job, write_set  # noqa: E402
from tests.validation.llm_judge_rig import edit, save_adapter, save_model, save_tokenizer  # noqa: E402


@pytest.fixture(scope="session")
def originals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    save_adapter(root / "adapter", save_model(root / "base"))
    return root


@pytest.fixture
def files(originals: Path, tmp_path: Path) -> Path:
    """`base` and `adapter`, a copy that a test may break."""
    return Path(shutil.copytree(originals, tmp_path / "files"))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    assert schemas.NEW_TOKENS == 2048
    monkeypatch.setattr(generation, "NEW_TOKENS", 6)


def full_job(tmp_path: Path, files: Path, **more: Any) -> Job:
    return make_job(tmp_path, data=rows(tmp_path), model=files / "base", **more)


def lora_job(tmp_path: Path, files: Path, **more: Any) -> Job:
    return make_job(tmp_path, data=rows(tmp_path), **({"model": files / "adapter", "base": files / "base"} | more))


def rows(tmp_path: Path) -> Path:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    return write_set(tmp_path / "set.jsonl", chat("w1 w2", "w3"), chat("w4 " * 30, "w5", "w6", "w12", system="w7"),
                     chat("w8", tools=tools), chat("w9", tools=json.dumps(tools)), chat("w10 w11"))


def validate(job: Job, *, batch: int = 1, most: int = 10**9, **eval_args: Any) -> Any:
    module = MODULE(LLMJudgeConfig(gen_batch_size=batch), job=job)
    try:
        return module.validate(make_input(**eval_args).model_copy(update={"max_params": most}), job=job)
    finally:
        module.cleanup()


# --- answers ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("batch", [1, 3])
def test_an_adapters_answers_are_left_for_the_judges(tmp_path: Path, files: Path, batch: int) -> None:
    job = lora_job(tmp_path, files)
    left = validate(job, batch=batch, gen_require=2)
    write_json(tmp_path / PARTIAL, left)
    partial = Partial.model_validate(json.loads((tmp_path / PARTIAL).read_text()))
    assert [len(texts) for texts in partial.answers] == [5, 5]
    assert partial.references == ["w3", "w12", None, None, None]
    assert partial.conversations[0] == [{"role": "system", "content": None}, {"role": "user", "content": "w1 w2"}]
    assert any(text for texts in partial.answers for text in texts)
    assert job.notes == []


def test_sampling_is_the_protocols(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = full_job(tmp_path, files)
    loaded = loading.load(job, 10**9)
    assert next(loaded.model.parameters()).dtype == torch.float32 and not loaded.model.training
    asked: list[Mapping[str, Any]] = []
    generate = loaded.model.generate

    def watched(**given: Any) -> Any:
        asked.append(given)
        return generate(**given)
    monkeypatch.setattr(loaded.model, "generate", watched)
    writer = generation.Writer(loaded, temperature=0.35, batch=2, say=lambda _: None)
    items = [Item(({"role": "system", "content": None}, {"role": "user", "content": text}), None, None)
             for text in ("w1", "w2 w3 w4", "w5")]
    assert len(writer.answers(items)) == 3
    given = {name: value for name, value in asked[0].items() if name not in ("input_ids", "attention_mask")}
    assert given == {"max_new_tokens": 6, "temperature": 0.35, "do_sample": True, "top_p": 0.8, "top_k": 20,
                     "pad_token_id": 1, "eos_token_id": 1}
    first, last = asked
    prompt = "system <eos> user w1 <eos> assistant quiet"
    assert loaded.tokenizer.decode(first["input_ids"][0][2:]) == prompt
    assert first["attention_mask"][0].tolist() == [0, 0, *[1] * 7] and last["attention_mask"].all()


def test_padding_changes_no_answer(tmp_path: Path, files: Path) -> None:
    """With one candidate at each step, a batch of different lengths gives what one at a time gives."""
    loaded = loading.load(full_job(tmp_path, files), 10**9)
    items = [Item(({"role": "user", "content": "w1 " * length},), None, None) for length in (1, 30, 7, 2)]
    said = []
    for batch in (1, 4):
        writer = generation.Writer(loaded, temperature=1e-4, batch=batch, say=lambda _: None)
        said.append(writer.answers(items))
    assert said[0] == said[1] and len(set(said[0])) > 1


def test_tools_reach_the_template_as_lists(tmp_path: Path, files: Path) -> None:
    loaded = loading.load(full_job(tmp_path, files), 10**9)
    writer = generation.Writer(loaded, temperature=1, batch=1, say=lambda _: None)
    tools = [{"type": "function", "function": {"name": "f"}}]
    for given in (tools, json.dumps(tools)):
        assert writer._prompt(1, Item(({"role": "user", "content": "w1"},), None, given)).startswith("T1 ")


def test_the_adapter_is_merged(tmp_path: Path, files: Path) -> None:
    merged = loading.load(lora_job(tmp_path, files), 10**9).model
    base = loading.load(full_job(tmp_path, files), 10**9).model
    assert type(merged) is type(base)
    name = "model.layers.0.self_attn.q_proj.weight"
    weights = [dict(model.named_parameters())[name] for model in (merged, base)]
    assert not torch.allclose(*weights)
    stored = peft.load_peft_weights(str(files / "adapter"))
    a, b = (stored[f"base_model.model.model.layers.0.self_attn.q_proj.lora_{which}.weight"] for which in "AB")
    assert torch.allclose(weights[0], weights[1] + b @ a * 2, atol=1e-5)  # alpha 8 over r 4


# --- what is scored -999 ------------------------------------------------------------------------------
def lowest(job: Job, **more: Any) -> str:
    found = validate(job, **more)
    assert found == LLMJudgeMetrics(score=-999)
    assert len(job.notes) == 1
    return job.notes[0]


def count(files: Path) -> int:
    model = transformers.AutoModelForCausalLM.from_pretrained(files / "base")
    return int(sum(one.numel() for one in model.parameters()))


def test_too_many_parameters_are_completed_with_the_lowest_score(tmp_path: Path, files: Path) -> None:
    total = count(files)
    assert "answers" in validate(full_job(tmp_path, files), most=total)
    assert str(total) in lowest(full_job(tmp_path, files), most=total - 1)
    assert str(total) in lowest(lora_job(tmp_path, files), most=total - 1)


def test_too_many_parameters_are_told_before_weights_are_read(tmp_path: Path, files: Path) -> None:
    (files / "base" / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(loading.TooManyParameters):
        loading.load(full_job(tmp_path, files), 10)


def test_what_can_not_be_counted_before_is_counted_after_loading(tmp_path: Path, files: Path,
                                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_skeleton", lambda *given: None)
    with pytest.raises(loading.TooManyParameters):
        loading.load(lora_job(tmp_path, files), 10)


@pytest.mark.parametrize("harm", ["not-json", "no-base", "base-number", "unsupported", "weights-gone", "weights-cut",
                                  "weights-junk", "rank", "kind", "list"])
def test_an_adapter_that_can_not_be_loaded(tmp_path: Path, files: Path, harm: str) -> None:
    folder = files / "adapter"
    config, weights = folder / "adapter_config.json", folder / "adapter_model.safetensors"
    match harm:
        case "not-json":
            config.write_text("{")
        case "list":
            config.write_text("[]")
        case "no-base":
            edit(config, base_model_name_or_path=None)
        case "base-number":
            edit(config, base_model_name_or_path=["x"])
        case "unsupported":
            edit(config, base_model_name_or_path="qwen/qwen3.5-0.8b")
        case "weights-gone":
            weights.unlink()
        case "weights-cut":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "weights-junk":
            weights.write_bytes(b"junk" * 100)
        case "rank":
            edit(config, r=8)
        case "kind":
            edit(config, peft_type="NO_SUCH_KIND")
    lowest(lora_job(tmp_path, files))


@pytest.mark.parametrize("harm", ["empty", "no-weights", "cut", "unknown-kind", "no-tokenizer", "bad-config", "shard"])
def test_a_full_model_that_can_not_be_loaded(tmp_path: Path, files: Path, harm: str) -> None:
    folder = files / "base"
    weights = folder / "model.safetensors"
    match harm:
        case "empty":
            shutil.rmtree(folder)
            folder.mkdir()
        case "no-weights":
            weights.unlink()
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "unknown-kind":
            edit(folder / "config.json", model_type="no_such_kind")
        case "no-tokenizer":
            (folder / "tokenizer.json").unlink()
        case "bad-config":
            edit(folder / "config.json", hidden_size="many")
        case "shard":
            weights.unlink()
            index = {"metadata": {}, "weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
            (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    lowest(full_job(tmp_path, files))


# --- what waits, and what a person must mend ----------------------------------------------------------
@pytest.mark.parametrize(("error", "cause"), [
    (torch.OutOfMemoryError("CUDA out of memory"), "out-of-memory"), (MemoryError(), "out-of-memory"),
    (RuntimeError("CUDA error: device-side assert triggered"), "gpu"), (OSError(28, "No space left on device"), "disk"),
    (OSError(5, "Input/output error"), "disk"), (ConnectionError("gone"), "network"),
    (FileNotFoundError(2, "gone", "/elsewhere/file"), "missing-path")])
@pytest.mark.parametrize("which", ["_pretrained", "_merged"])
def test_the_validators_own_trouble_is_never_a_score(tmp_path: Path, files: Path, which: str, error: Exception,
                                                     cause: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise error
    monkeypatch.setattr(loading, which, fail)
    with pytest.raises(RecoverableException) as found:
        validate(lora_job(tmp_path, files))
    assert found.value.cause == cause and not isinstance(found.value, InvalidConfigValueException)


def test_a_broken_base_model_is_not_the_submissions_fault(tmp_path: Path, files: Path) -> None:
    (files / "base" / "model.safetensors").write_bytes(b"junk")
    with pytest.raises(RecoverableException) as found:
        validate(lora_job(tmp_path, files))
    assert found.value.cause == "base-model"


@pytest.mark.parametrize(("lacking", "cause"), [("model", "no-model"), ("base", "no-base"), ("data", "no-data")])
def test_what_is_not_on_disk_waits(tmp_path: Path, files: Path, lacking: str, cause: str) -> None:
    job = lora_job(tmp_path, files)
    with pytest.raises(RecoverableException) as found:
        validate(Job(**{name: getattr(job, name) for name in ("scratch", "data", "model", "base", "judge_prompts")}
                     | {lacking: None}))
    assert found.value.cause == cause


def test_code_of_a_repository_is_not_run_unless_allowed(tmp_path: Path, files: Path) -> None:
    folder = files / "base"
    marker = tmp_path / "ran"
    (folder / "modeling_own.py").write_text(
        f"open({str(marker)!r}, 'w').close()\nfrom transformers import LlamaConfig, LlamaForCausalLM\n"
        "class OwnConfig(LlamaConfig):\n    model_type = 'own'\n"
        "class OwnModel(LlamaForCausalLM):\n    config_class = OwnConfig\n")
    edit(folder / "config.json", model_type="own", auto_map={"AutoConfig": "modeling_own.OwnConfig",
                                                             "AutoModelForCausalLM": "modeling_own.OwnModel"})
    with pytest.raises(InvalidConfigValueException, match="remote_code") as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "remote-code" and not marker.exists()
    assert "answers" in validate(full_job(tmp_path, files, remote_code=True))
    assert marker.exists()


def test_arguments_and_prompts_are_looked_at_before_a_model(tmp_path: Path, files: Path) -> None:
    shutil.rmtree(files)
    with pytest.raises(InvalidConfigValueException, match="eval_model_list"):
        validate(full_job(tmp_path, files), eval_model_list=[])
    with pytest.raises(InvalidConfigValueException, match="judge_prompts"):
        validate(Job(scratch=tmp_path, data=rows(tmp_path), model=files / "base"))


def test_a_model_without_chat_template_is_left_to_a_person(tmp_path: Path, files: Path) -> None:
    save_tokenizer(files / "base", None)
    (files / "base" / "chat_template.jinja").unlink(missing_ok=True)
    with pytest.raises(InvalidConfigValueException) as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "chat-template"


def test_generating_out_of_memory_waits(tmp_path: Path, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
    monkeypatch.setattr(transformers.LlamaForCausalLM, "generate", fail)
    with pytest.raises(RecoverableException) as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "out-of-memory"


# --- the whole circle ---------------------------------------------------------------------------------
def test_both_steps_one_after_the_other(tmp_path: Path, files: Path) -> None:
    job = lora_job(tmp_path, files)
    left = json.loads(json.dumps(validate(job, prompt_id=2)))
    module = MODULE(LLMJudgeConfig(), job=job)
    given: dict[str, Any] = {"job": job, "sleep": lambda seconds: None, "seeds": random.Random(0)}
    down = Judge(lambda number, _: scored(8, 1) if number < 2 else failing(503))
    with down as judge, pytest.raises(RecoverableException):
        module.finish(make_input(prompt_id=2), left, environ=judge.environ, **given)
    with Judge([scored(8, 1)]) as judge:
        score = MODULE(LLMJudgeConfig(), job=job).finish(make_input(prompt_id=2), left, environ=judge.environ, **given)
    # two rows have an answer to be held against: two judges each; three have none and count by default, once
    assert len(judge.calls) == 2
    assert score.score == pytest.approx((4 * 8 + 3 * 2.5) / 7 / 10)
    assert module.payload(score, job=job, gpu_type="none") == {"score": score.score}
