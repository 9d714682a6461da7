"""What is seen to be wrong with files of models and adapters, and what isn't there any more. No libraries needed."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from automate.validation.inner import evidence
from automate.validation.modules.base import Job, RecoverableException
from automate.validation.modules.llm_judge.schemas import LLMJudgeInput

ADAPTER = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": ["q_proj"], "lora_dropout": 0.0,
           "bias": "none", "rank_pattern": {}, "modules_to_save": None, "use_dora": False}


def tensors(path: Path, size: int = 12, **header: Any) -> Path:
    """A file of safetensors with one tensor."""
    said = json.dumps({"x": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]}, "__metadata__": {"a": "b"},
                       **header}).encode()
    path.write_bytes(struct.pack("<Q", len(said)) + said + b"\0" * size)
    return path


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    (tmp_path / "adapter_config.json").write_text(json.dumps(ADAPTER))
    tensors(tmp_path / "adapter_model.safetensors")
    return tmp_path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_text('{"vocab_size": 7}')
    tensors(tmp_path / "model.safetensors")
    return tmp_path


def test_nothing_is_seen_in_good_files_and_in_files_that_nobody_reads(adapter: Path) -> None:
    for name in ("trainer_state.json", "tokenizer.json", "training_args.bin", "other.safetensors"):
        (adapter / name).write_text("{")
    assert evidence.of_adapter(adapter) is None


def test_nothing_is_seen_in_a_good_model(model: Path) -> None:
    (model / "training_args.bin").write_text("x")
    assert evidence.of_model(model) is None
    tensors(model / "model-00001-of-00001.safetensors")
    index = {"weight_map": {"x": "model-00001-of-00001.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert evidence.of_model(model) is None


@pytest.mark.parametrize("changes", [
    {"r": "many"}, {"r": 0}, {"r": True}, {"r": 2.5}, {"lora_alpha": "8"}, {"target_modules": [1]},
    {"target_modules": {}}, {"rank_pattern": {"a": "b"}}, {"rank_pattern": []}, {"bias": 3}, {"use_dora": "yes"},
    {"peft_type": None}, {"peft_type": ["LORA"]}, {"peft_type": "PROMPT_TUNING"}])
def test_values_that_no_version_takes(adapter: Path, changes: dict[str, Any]) -> None:
    (adapter / "adapter_config.json").write_text(json.dumps(ADAPTER | changes))
    assert evidence.of_adapter(adapter)


@pytest.mark.parametrize("changes", [
    {"r": None}, {"target_modules": "all-linear"}, {"lora_alpha": 0.5}, {"a_new_key": object.__name__},
    {"init_lora_weights": "of-next-year"}, {"peft_type": "OF_NEXT_YEAR"}, {"rank_pattern": {"a": 3}}])
def test_values_that_some_version_may_take(adapter: Path, changes: dict[str, Any]) -> None:
    (adapter / "adapter_config.json").write_text(json.dumps(ADAPTER | changes))
    assert evidence.of_adapter(adapter) is None


@pytest.mark.parametrize("harm", [
    lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"junk"),
    lambda path: path.write_bytes(b"junk" * 100), lambda path: tensors(path, 11), lambda path: tensors(path, 13),
    lambda path: tensors(path, y=3), lambda path: tensors(path, y={"data_offsets": []}),
    lambda path: path.write_bytes(struct.pack("<Q", 2) + b"[]"),
    lambda path: path.write_bytes(struct.pack("<Q", 2**60)),
    lambda path: path.write_bytes(struct.pack("<Q", 3) + b"\xff\xfe{")])
def test_broken_files_of_tensors(adapter: Path, harm: Callable[[Path], object]) -> None:
    harm(adapter / "adapter_model.safetensors")
    assert "adapter_model.safetensors" in str(evidence.of_adapter(adapter))


def test_a_pickle_counts_where_there_are_no_safetensors(adapter: Path) -> None:
    old = adapter / "adapter_model.bin"
    old.write_bytes(b"junk")
    assert evidence.of_adapter(adapter) is None
    (adapter / "adapter_model.safetensors").unlink()
    assert evidence.of_adapter(adapter)
    with zipfile.ZipFile(old, "w") as file:
        file.writestr("data.pkl", b"x" * 1000)
    assert evidence.of_adapter(adapter) is None
    old.write_bytes(old.read_bytes()[:500])
    assert "cut off" in str(evidence.of_adapter(adapter))
    old.write_bytes(b"\x80\x04N.")
    assert evidence.of_adapter(adapter) is None


@pytest.mark.parametrize("harm", [
    lambda at: (at / "config.json").write_text("{"), lambda at: (at / "config.json").write_text("[]"),
    lambda at: (at / "tokenizer.json").write_text("{"), lambda at: (at / "tokenizer.json").unlink(),
    lambda at: (at / "model.safetensors").unlink(), lambda at: tensors(at / "model.safetensors", 3),
    lambda at: (at / "config.json").write_text('{"hidden_size": "many"}'),
    lambda at: (at / "config.json").write_text('{"vocab_size": -1}'),
    lambda at: (at / "model.safetensors.index.json").write_text('{"weight_map": {"x": "gone.safetensors"}}'),
    lambda at: (at / "config.json").write_text("[" * 100_000)])
def test_broken_models(model: Path, harm: Callable[[Path], object]) -> None:
    harm(model)
    assert evidence.of_model(model)


@pytest.mark.parametrize(("error", "is_one"), [
    (RuntimeError("Error(s) in loading state_dict for X:\n\tsize mismatch for y: ..."), True),
    (ValueError("Target modules {'x'} not found in the base model. Please check"), True),
    (type("UnpicklingError", (Exception,), {})("Weights only load failed"), True),
    (TypeError("__init__() got an unexpected keyword argument 'x'"), False), (KeyError("size mismatch"), False),
    (ValueError("peft requires accelerate>=9"), False), (AttributeError("x"), False)])
def test_complaints_that_are_believed(error: Exception, is_one: bool) -> None:
    assert evidence.misfit(error) is is_one


def gone(job: Job, what: str) -> str:
    with pytest.raises(RecoverableException) as caught:
        job.need(what)
    assert caught.value.cause == "files-gone"
    return str(caught.value)


def test_files_that_are_gone(tmp_path: Path) -> None:
    folder = tmp_path / "commit"
    job = Job(tmp_path, data=tmp_path / "set", model=folder)
    assert str(folder) in gone(job, "model") and "set" in gone(job, "data")
    folder.mkdir()
    assert str(folder) in gone(job, "model")
    (folder / "a").write_text("1234")
    assert job.need("model") == folder
    for broken in ("{", "[]", '{"files": 3}', "{}"):
        (tmp_path / "commit.json").write_text(broken)
        assert job.need("model") == folder
    (tmp_path / "commit.json").write_text(json.dumps({"files": {"a": 4, "b/c": 1}}))
    assert str(folder / "b" / "c") in gone(job, "model")
    (folder / "b").mkdir()
    (folder / "b" / "c").write_text("x")
    assert job.need("model") == folder
    (folder / "a").write_text("123")
    assert str(folder / "a") in gone(job, "model")


def test_a_revision_of_null_is_main() -> None:
    fields = {"hg_repo_id": "a/b", "context_length": 1, "max_params": 1, "validation_set_url": "u", "base_model": "",
              "eval_args": {}}
    assert LLMJudgeInput.model_validate({**fields, "revision": None}).revision == "main"
    assert LLMJudgeInput.model_validate({**fields, "revision": "abc"}).revision == "abc"
