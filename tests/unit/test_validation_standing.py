"""A trouble on this side that would use up a task's queue is seen, and one of single assignments is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.validation.assignments import Assignment, Event, State
from automate.validation.standing import DAY, standing

NOW = 1e6


def one(number: int, state: State = State.GIVEN_UP, cause: str | None = "config", task: str = "7",
        module: str = "lora", when: float = NOW - 60) -> Assignment:
    return Assignment(id=str(number), task_id=task, module=module, fetched_at=when + number, folder=Path(),
                      state=state, cause=cause)


def test_three_in_a_row_for_one_cause_stand() -> None:
    found = [one(1), one(2), one(3)]
    assert standing(found, "7", "lora", NOW) == "config"
    assert standing(found, "8", "lora", NOW) == ""
    assert standing(found, "7", "rl", NOW) == ""
    assert standing(found[:2], "7", "lora", NOW) == ""


@pytest.mark.parametrize("last", [one(4, State.SUBMITTED), one(4, State.FETCHED), one(4, cause="gated")])
def test_another_end_since_then_breaks_it(last: Assignment) -> None:
    assert standing([one(1), one(2), one(3), last], "7", "lora", NOW) == ""


def test_troubles_of_single_assignments_and_old_ones_do_not_stand() -> None:
    assert standing([one(n, cause="reply") for n in range(3)], "7", "lora", NOW) == ""
    assert standing([one(n, when=NOW - DAY - 60) for n in range(3)], "7", "lora", NOW) == ""


def test_the_cause_may_stand_in_the_history_only() -> None:
    events = (Event(1.0, "it crashed", "crashed"), Event(2.0, "given up"))
    found = [Assignment(id=str(n), task_id="7", module="lora", fetched_at=NOW - n, folder=Path(),
                        state=State.GIVEN_UP, history=events) for n in range(3)]
    assert standing(found, "7", "lora", NOW) == "crashed"
