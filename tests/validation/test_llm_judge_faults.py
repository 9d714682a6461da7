"""`llm_judge` with real models on the CPU: what is scored -999, what waits, and what a person must mend."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")
transformers = pytest.importorskip("transformers")

from automate.validation.modules.base import (  # noqa: E402
    InvalidConfigValueException,
    Job,
    RecoverableException,
)
from automate.validation.modules.llm_judge import loading  # noqa: E402
from automate.validation.modules.llm_judge.schemas import LLMJudgeMetrics  # noqa: E402
from tests.validation.llm_judge_rig import (  # noqa: E402
    edit,
    full_job,
    lora_job,
    rows,
    save_tokenizer,
    validate,
)

pytestmark = pytest.mark.usefixtures("short")


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


@pytest.mark.parametrize("harm", ["other", "no-weights", "cut", "no-tokenizer", "bad-config", "shard"])
def test_a_full_model_that_can_not_be_loaded(tmp_path: Path, files: Path, harm: str) -> None:
    folder = files / "base"
    weights = folder / "model.safetensors"
    match harm:
        case "other":
            shutil.rmtree(folder)
            folder.mkdir()
            (folder / "README.md").write_text("nothing")
        case "no-weights":
            weights.unlink()
        case "cut":
            weights.write_bytes(weights.read_bytes()[:-100])
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


@pytest.mark.parametrize("error", [
    AttributeError("module 'transformers' has no attribute 'X'"), TypeError("forward() got an unexpected keyword"),
    KeyError("k"), ValueError("peft requires accelerate>=9"), RuntimeError("no such operator"),
    Exception("data did not match any variant of untagged enum ModelWrapper")])
def test_what_a_library_raises_over_good_files_is_never_a_score(tmp_path: Path, files: Path, error: Exception,
                                                                monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **named: object) -> None:
        raise error
    for place, make in ((peft.PeftModel, lora_job), (transformers.AutoModelForCausalLM, full_job),
                        (transformers.AutoTokenizer, full_job)):
        with monkeypatch.context() as patched:
            patched.setattr(place, "from_pretrained", fail)
            with pytest.raises(RecoverableException) as found:
                validate(make(tmp_path, files))
        assert found.value.cause == "unexpected"


def test_what_only_newer_libraries_know_is_never_a_score(tmp_path: Path, files: Path) -> None:
    edit(files / "adapter" / "adapter_config.json", a_new_key={"of": "peft 9"})
    assert "answers" in validate(lora_job(tmp_path, files))
    edit(files / "adapter" / "adapter_config.json", peft_type="NEXT", peft_version="9.1.0")
    with pytest.raises(InvalidConfigValueException) as found:
        validate(lora_job(tmp_path, files))
    assert found.value.cause == "environment"
    edit(files / "base" / "config.json", model_type="of_next_year")
    with pytest.raises(InvalidConfigValueException) as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "environment"


@pytest.mark.parametrize(("name", "cut"), [("model.safetensors", False), ("config.json", False),
                                           ("model.safetensors", True)])
def test_files_that_went_away_are_never_a_score(tmp_path: Path, files: Path, name: str, cut: bool) -> None:
    folder = files / "base"
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    (files / "base.json").write_text(json.dumps({"files": sizes}))
    assert "answers" in validate(full_job(tmp_path, files))
    (folder / name).write_bytes((folder / name).read_bytes()[:-9]) if cut else (folder / name).unlink()
    with pytest.raises(RecoverableException) as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "files-gone"


def test_files_that_go_away_while_they_are_read_are_never_a_score(tmp_path: Path, files: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    def vanish(*given: object) -> None:
        shutil.rmtree(files / "base")
        raise loading.Unloadable("no weights")
    monkeypatch.setattr(loading, "_pretrained", vanish)
    with pytest.raises(RecoverableException) as found:
        validate(full_job(tmp_path, files))
    assert found.value.cause == "files-gone"


@pytest.mark.parametrize(("device", "visible", "refused"), [
    (True, None, True), (True, "", False), (True, "NoDevFiles", False), (False, None, False), (False, "0", True),
    (False, "-1", False), (True, "0,1", True)])
def test_a_gpu_that_torch_does_not_see_is_waited_for(tmp_path: Path, files: Path, device: bool, visible: str | None,
                                                     refused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidia0").write_text("")
    monkeypatch.setattr(loading, "DEVICE", tmp_path / ("nvidia0" if device else "none"))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    if not refused:
        assert loading.load(full_job(tmp_path, files), 10**9)
        return
    with pytest.raises(RecoverableException) as found:
        loading.load(full_job(tmp_path, files), 10**9)
    assert found.value.cause == "gpu"


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
