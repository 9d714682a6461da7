"""`validation test`: a module on local files, in a process of its own."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from automate.errors import ConfigError, ModuleEnvironmentError
from automate.settings_validation import Validation
from automate.validation.catalogue import Source, find
from automate.validation.inner.files import Outcome, Result
from automate.validation.trial import trial
from automate.validation_places import ValidationPlaces
from tests.unit.inner_support import module

KEY = "flock-secret-0123456789"


def places(root: Path, **settings: object) -> ValidationPlaces:
    return ValidationPlaces(root, Validation.model_validate({"manager": "current", **settings}))


def mine(root: Path, body: str, more: str = "") -> Source:
    return Source("mine", module(root, body, more), None, None, "folder")


@pytest.fixture
def said() -> list[str]:
    return []


def run(root: Path, source: Source, said: list[str], **given: object) -> Result:
    return trial(source, places(root), fields={"max_params": 4}, show=said.append, **given)  # type: ignore[arg-type]


def test_a_shipped_module_on_a_local_file(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_text('{"value": 3}\n')
    here = places(tmp_path)
    result = trial(find("example", here), here, data=tmp_path / "set.jsonl", show=lambda line: None)
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"score": 3.0})


def test_the_workspaces_config_and_that_of_the_task_are_used(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "configs" / "tasks").mkdir(parents=True)
    (tmp_path / "configs" / "mine.json").write_text(json.dumps({"rows": 10, "name": "module"}))
    (tmp_path / "configs" / "tasks" / "7.json").write_text(json.dumps({"name": "task"}))
    source = mine(tmp_path, "job.note(self.config.name)\nreturn {'score': self.config.rows}")
    with_task = run(tmp_path, source, said, task_id="7")
    assert (with_task.payload, with_task.notes) == ({"score": 10.0}, ("task",))
    assert run(tmp_path, source, said).notes == ("module",)


def test_files_and_fields_reach_the_module(tmp_path: Path, said: list[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "policy.onnx").write_text("x")
    source = mine(tmp_path, "import json\n"
                  "reply = json.loads(pathlib.Path(sys.argv[1], 'reply.json').read_text())\n"
                  "job.note(str(job.model))\njob.note(reply['data']['model_filename'])\n"
                  "job.note(str(data.max_params))\nreturn Metrics(score=1)")
    result = run(tmp_path, source, said, model=tmp_path / "model" / "policy.onnx")
    assert result.notes == (str(tmp_path / "model"), "policy.onnx", "4")


def test_a_field_that_is_missing_is_named(tmp_path: Path, said: list[str]) -> None:
    result = trial(mine(tmp_path, "return Metrics(score=1)"), places(tmp_path), show=said.append)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "input") and "`max_params`" in result.reason


def test_what_the_module_prints_is_shown_line_by_line_without_control_characters(
        tmp_path: Path, said: list[str]) -> None:
    run(tmp_path, mine(tmp_path, "print('\\x1b[2Jhello')\nreturn Metrics(score=1)"), said)
    assert said[0] == "?[2Jhello"


def test_a_module_that_dies_is_not_the_submissions_fault(tmp_path: Path, said: list[str]) -> None:
    died = run(tmp_path, mine(tmp_path, "print('bye', flush=True)\nos.kill(os.getpid(), 9)"), said)
    assert (died.outcome, died.cause) == (Outcome.RECOVERABLE, "crashed")
    assert "signal 9" in died.reason and "bye" in died.reason
    ended = run(tmp_path, mine(tmp_path, "os._exit(4)"), said)
    assert (ended.outcome, ended.reason.startswith("it ended with status 4")) == (Outcome.RECOVERABLE, True)


def test_no_key_reaches_the_module_and_nothing_stays(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch
                                                     ) -> None:
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    environ = {"PATH": "/usr/bin:/bin", "FLOCK_API_KEY": KEY, "HF_TOKEN": KEY, "OPENAI_API_KEY": KEY,
               "COPY": f"x{KEY}", "PLAIN": "kept"}
    run(tmp_path, mine(tmp_path, "print(dict(os.environ))\nreturn Metrics(score=1)"), said, environ=environ)
    assert "'PLAIN': 'kept'" in said[0] and "'HF_HUB_OFFLINE': '1'" in said[0]
    assert KEY not in "".join(said)
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_is_not_there_is_said_before_anything_starts(tmp_path: Path, said: list[str]) -> None:
    source = mine(tmp_path, "return Metrics(score=1)")
    with pytest.raises(ConfigError, match="no such file"):
        run(tmp_path, source, said, data=tmp_path / "none")
    with pytest.raises(ConfigError, match="id of a task"):
        run(tmp_path, source, said, task_id="../7")
    with pytest.raises(ConfigError, match="what JSON can say"):
        trial(source, places(tmp_path), fields={"max_params": float("nan")}, show=said.append)
    with pytest.raises(ModuleEnvironmentError):
        trial(source, places(tmp_path, manager="venv"), show=said.append)
    assert said == []
