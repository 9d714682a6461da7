"""Exceptions as torch, onnxruntime, transformers, huggingface_hub and safetensors really raise them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from automate.validation.inner.classify import classify  # noqa: E402
from automate.validation.inner.files import Outcome  # noqa: E402


def told(act: Callable[[], object], **given: object) -> tuple[Outcome, str]:
    with pytest.raises(BaseException) as caught:
        act()
    found = classify(caught.value, shipped=False, **given)  # type: ignore[arg-type]
    return found.outcome, found.cause


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))


def test_memory() -> None:
    assert told(lambda: torch.empty(10**15)) == (Outcome.RECOVERABLE, "out-of-memory")
    assert told(lambda: bytearray(10**16)) == (Outcome.RECOVERABLE, "out-of-memory")


def test_a_gpu_that_is_not_there() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    outcome, cause = told(lambda: torch.zeros(1).cuda())
    assert outcome in (Outcome.RECOVERABLE, Outcome.UNUSABLE) and cause in ("gpu", "environment")


def test_a_model_that_is_not_on_disk_while_offline_is_ours(offline: None) -> None:
    assert told(lambda: transformers.AutoConfig.from_pretrained("nobody/nothing"))[0] is Outcome.RECOVERABLE
    assert told(lambda: transformers.AutoTokenizer.from_pretrained("nobody/nothing"))[0] is Outcome.RECOVERABLE


def test_the_hub_when_nobody_answers() -> None:
    import huggingface_hub

    nobody = huggingface_hub.HfApi(endpoint="http://127.0.0.1:9")
    assert told(lambda: nobody.model_info("a/b")) == (Outcome.RECOVERABLE, "network")


def test_files_of_the_submission_that_are_missing_or_broken_are_its_fault(tmp_path: Path, offline: None) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", "hidden_size": 8, "vocab_size": 9}))
    load = transformers.AutoModelForCausalLM.from_pretrained
    assert told(lambda: load(str(tmp_path)), model=tmp_path) == (Outcome.FAILED, "exception")
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 100)
    assert told(lambda: load(str(tmp_path)), model=tmp_path) == (Outcome.FAILED, "exception")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no_such_type"}))
    assert told(lambda: load(str(tmp_path)), model=tmp_path) == (Outcome.FAILED, "exception")


def test_a_full_disk() -> None:
    def write() -> None:
        with Path("/dev/full").open("wb", buffering=0) as file:
            file.write(b"x")

    if not Path("/dev/full").is_char_device():
        pytest.skip("no /dev/full")
    assert told(write) == (Outcome.RECOVERABLE, "disk")


def test_a_file_without_rights(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may read everything")
    path = tmp_path / "config.json"
    path.write_text("{}")
    path.chmod(0)
    assert told(lambda: transformers.AutoConfig.from_pretrained(str(tmp_path)))[0] is Outcome.RECOVERABLE
