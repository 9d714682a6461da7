"""What a job leaves of the files that upstream reads when it got nothing: no file, instead of an empty one."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.arena.context import load_answers, load_match
from automate.arena.counting.progress import Progress
from automate.arena.ledger import ModelLedger, rows_are_current
from automate.arena.records import load
from automate.workspace import Workspace
from tests.unit.support import CATEGORIES, make_workspace, record_of, write_lines

UIDS = ("q0", "q1")
BASE = "llama3.1-8b-instruct"


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Two questions, a baseline and a model."""
    made = make_workspace(tmp_path, judge={"kind": "rehearsal", "name": "j"})
    write_lines(made.questions, [{"uid": uid, "category": CATEGORIES[place], "prompt": f"prompt {uid}"}
                                 for place, uid in enumerate(UIDS)])
    for model in (BASE, "m"):
        write_lines(made.answer_file(model), [
            {"uid": uid, "model": model, "messages": [{"role": "user", "content": f"prompt {uid}"},
             {"role": "assistant", "content": {"answer": f"{model} says"}}]} for uid in UIDS])
    return made


def ledger(workspace: Workspace, name: str) -> ModelLedger:
    answers = load_answers(workspace, "m")
    assert answers is not None
    made = ModelLedger(workspace, "m", load_match(workspace), answers, 2)
    made.open(name)
    return made


@pytest.mark.parametrize("played", [0, 1])
def test_a_judging_job_that_finished_no_row_leaves_no_empty_file(workspace: Workspace, played: int) -> None:
    own = ledger(workspace, "w1")
    for game in own.games[:played]:
        own.add(game, record_of(game))
    assert own.rows_path.read_bytes() == b""
    own.close()
    assert not own.rows_path.exists()
    recorded = load(workspace, own.answers, own.match, own.tag).recorded
    assert rows_are_current(workspace, "m", own.games, recorded)
    assert Progress(workspace, load_match(workspace), ["m"]).due == {"m": 4 - played}
    again = ledger(workspace, "w2")
    for game in again.due():
        again.add(game, record_of(game))
    again.close()
    assert again.rows_path.read_bytes().count(b"\n") == 2
    again.rows_path.write_bytes(b"")
    assert not rows_are_current(workspace, "m", again.games, again.recorded)
