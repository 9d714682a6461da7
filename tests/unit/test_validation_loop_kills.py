"""Fetching and submitting, with faults, and killed at any operation: nothing is lost, nothing goes out twice."""

from __future__ import annotations

import math
import multiprocessing
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from automate.validation.assignments import State
from automate.validation.fetching import OUTSTANDING
from automate.validation.spool import Spool
from automate.validation.standin.books import Record
from automate.validation.standin.plan import GOOD, Content, Plan, TaskPlan
from automate.validation.standin.server import StandIn
from automate.validation.status import status_table
from tests.unit.validation_kills import KILLED, Start, start
from tests.unit.validation_support import make_places

PERSON = (Content.NO_DATA, Content.NO_SUBMISSION, Content.BAD_URL)
CONTENTS = (*GOOD, Content.OWN_FAULT, *PERSON)
ROUNDS = 400
AHEAD = 500.0
"""Seconds between two starts, by their clocks: all waits are over."""
PATIENCE = 120.0
PARTS = 4


def begin(given: Start) -> bool:
    """One start in a process of its own; whether it was killed."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.validation_kills"])
    child = context.Process(target=start, args=(given,))
    child.start()
    child.join(PATIENCE)
    assert child.exitcode in (0, KILLED), f"{given} ended with {child.exitcode}"
    return child.exitcode == KILLED


def over(spool: Spool, api: StandIn) -> bool:
    """Whether there is nothing left to do."""
    return not any(api.books.left().values()) and not spool.ids(*OUTSTANDING) and not spool.incoming()


def circle(root: Path, api: StandIn, dice: random.Random, *, longest: int) -> Counter[bool]:
    """Start after start until there is nothing left to do; how many were killed, how many came to their end."""
    counts: Counter[bool] = Counter()
    spool = Spool(make_places(root))
    tasks = tuple(str(task.id) for task in api.tasks)
    for number in range(ROUNDS):
        lives = dice.randint(1, longest) if dice.random() < 0.8 else 0
        counts[begin(Start(str(root), api.base_url, api.key, tasks, 6, lives, number * AHEAD))] += 1
        if over(spool, api):
            break
    return counts


def wrongs(spool: Spool, api: StandIn) -> dict[str, str]:
    """What is wrong with how assignments ended, by their ids.

    A start that dies with a reply in its hands loses it, and nobody could prevent that: it must be known of.
    """
    lost = {one.task_id for one in spool.lookups.lost(float("inf"))}
    found = {record.id: check(spool, record) for record in api.assignments.values()
             if not (record.status == "validating" and spool.find(record.id) is None and record.task_id in lost)}
    return {which: what for which, what in found.items() if what is not None}


def check(spool: Spool, record: Record) -> str | None:
    """What is wrong with how an assignment ended, or None."""
    found = spool.find(record.id)
    state = None if found is None else found.state
    unconfirmed = found is not None and found.unconfirmed
    if record.accepted > 1 or record.posts.count("ok") > 1:
        return "accepted twice"
    if record.status == "completed":
        right = state is State.SUBMITTED and record.payloads == [{"score": float(record.id)}]
        return None if right and record.trouble.content in GOOD else "completed, and not so in the spool"
    if record.status == "failed":
        own = record.trouble.content is Content.OWN_FAULT
        return None if state is State.FAILED and own else "failed, and not so in the spool"
    if record.status == "expired":  # a start that died before it sent leaves doubt, which counts as sent
        return None if state is State.GIVEN_UP or unconfirmed else "its lease was lost, and that is not known"
    shown = state is State.GIVEN_UP and record.trouble.content in PERSON
    return None if shown else f"still validating: {state}"


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_at_any_operation_nothing_is_lost_or_reported_twice(tmp_path: Path, seed: int) -> None:
    plan = Plan(tuple(TaskPlan(number, submissions=6, metrics=("score",)) for number in (1, 2, 3)), seed=seed,
                rate=0.35, slow=0.01, contents=CONTENTS)
    with StandIn(plan) as api:
        counts = circle(tmp_path, api, random.Random(seed), longest=250)
        spool = Spool(make_places(tmp_path))
        assert wrongs(spool, api) == {}
        assert api.violations == []
        assert not any(api.books.left().values())
        assert spool.ids(*OUTSTANDING) == set()
        assert spool.ids(*State) <= set(api.assignments)
        assert len({(record.task_id, record.number) for record in api.assignments.values()}) == 18
        assert spool.unreadable() == []
        assert counts[True] >= 5
        assert len(status_table(spool.places, spool, lambda: math.inf)) >= len(spool.ids(*State))


@pytest.mark.parametrize("first", range(1, PARTS + 1))
def test_every_single_operation_of_one_assignment(tmp_path: Path, first: int) -> None:
    """One assignment, and a start that dies at its first operation, one that dies at its second, and so on."""
    seen: Counter[str] = Counter()
    killed, posts = True, 0
    for lives in range(first, 1000, PARTS):
        root = tmp_path / str(lives)
        spool = Spool(make_places(root))
        with StandIn(Plan((TaskPlan(1, submissions=1),))) as api:
            given = Start(str(root), api.base_url, api.key, ("1",), 2, lives, 0.0)
            killed = begin(given)
            for number in (1, 2):
                if not over(spool, api):
                    begin(replace(given, lives=0, ahead=number * AHEAD))
            assert (lives, wrongs(spool, api), api.violations) == (lives, {}, [])
            seen[spool.listed()[0].state.value if spool.ids(*State) else "known to be lost"] += 1
            posts = max(posts, *(len(record.posts) for record in api.assignments.values()))
        if not killed:
            break
    assert not killed
    assert set(seen) <= {"submitted", "known to be lost"}
    assert seen["known to be lost"] <= 1  # between the reply and its place on disk
    assert posts <= 2
    assert lives > 50
