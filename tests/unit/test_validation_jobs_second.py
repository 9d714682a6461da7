"""The second step on the login node: with the judge's key and no other, and the first step's result never lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automate.errors import DataError
from automate.validation.assignments import Assignment, State
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result
from automate.validation.jobs import second_step
from automate.validation.jobs.second import FIRST
from automate.validation.spool import Spool
from automate.workspace import Workspace
from tests.unit.validation_jobs_support import make, put, python

JUDGE, FLOCK = "sk-judge-0123456789abcdef", "flk-planted-0123456789abcdef"
Made = tuple[Workspace, Spool, Assignment]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """An assignment whose first step is done."""
    workspace, spool = make(tmp_path / "space")
    one = put(spool, "a1")
    files.write_result(one.folder, Result("a1", Outcome.PARTIAL, "example"))
    files.write_json(one.folder / files.PARTIAL, {"texts": ["x"]})
    return workspace, spool, spool.move(one, State.DONE)


def finish(made: Made, tmp_path: Path, code: str) -> Result:
    environ = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path), "OPENAI_API_KEY": JUDGE, "HF_TOKEN": FLOCK,
               "OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "FLOCK_API_KEY": FLOCK}
    return second_step(made[2], made[1].places, environ, inner=python(code))


def test_what_it_finds_is_the_result(made: Made, tmp_path: Path) -> None:
    code = ("assert sys.argv[2:] == ['--step', '2'] and (FOLDER / 'partial.json').exists()\n"
            "(FOLDER / 'around.json').write_text(json.dumps(dict(os.environ)))\n"
            "print('the key is', os.environ['OPENAI_API_KEY'])\nresult(step=2, payload={'score': 0.5})")
    found = finish(made, tmp_path, code)
    assert found.outcome is Outcome.COMPLETED and found.payload == {"score": 0.5}
    assert files.read_result(made[2].folder) == found and not (made[2].folder / FIRST).exists()
    around = json.loads((made[2].folder / "around.json").read_text())
    assert around["OPENAI_API_KEY"] == JUDGE and around["OPENAI_BASE_URL"].endswith(":9/v1")
    assert FLOCK not in json.dumps(around)
    (log,) = (made[2].folder / "logs").iterdir()
    assert "the key is [removed]" in log.read_text() and JUDGE not in log.read_text()


@pytest.mark.parametrize(("code", "cause"), [
    ("result('recoverable', step=2, cause='network', reason='the judge is down')", "network"),
    ("sys.exit(1)", "crashed"), ("os.kill(os.getpid(), 9)", "killed"),
    ("result('partial', step=1)", "crashed"), ("result(step=1)", "crashed")])
def test_where_it_fails_the_first_steps_result_stands(made: Made, tmp_path: Path, code: str, cause: str) -> None:
    before = (made[2].folder / files.RESULT).read_bytes()
    found = finish(made, tmp_path, code)
    assert found.outcome is Outcome.RECOVERABLE and found.cause == cause
    assert (made[2].folder / files.RESULT).read_bytes() == before and not (made[2].folder / FIRST).exists()
    assert finish(made, tmp_path, "result(step=2)").outcome is Outcome.COMPLETED


def test_a_command_that_died_in_the_middle_is_begun_again(made: Made, tmp_path: Path) -> None:
    folder = made[2].folder
    (folder / files.RESULT).rename(folder / FIRST)
    assert finish(made, tmp_path, "result(step=2)").outcome is Outcome.COMPLETED


def test_without_a_first_step_there_is_nothing_to_finish(made: Made, tmp_path: Path) -> None:
    (made[2].folder / files.PARTIAL).unlink()
    with pytest.raises(DataError, match="no first step"):
        finish(made, tmp_path, "result(step=2)")
    assert (made[2].folder / files.RESULT).exists()
