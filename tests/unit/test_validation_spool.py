"""The spool: replies are kept first, states change by rename, nothing is taken twice or lost by a crash."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.errors import ClaimedError, DataError, StorageError
from automate.validation.assignments import Assignment, DataFile, Event, Handed, Snapshot, State
from automate.validation.inner import files
from automate.validation.lookups import FORGET, ROOM, YOUNG, Lookups
from automate.validation.spool import KEPT_REPLIES, MOST_REPORTS, Spool
from automate.validation.status import LOST, REFUSED, UNREADABLE, WAITING, status_table
from automate.validation_places import ValidationPlaces
from tests.unit.validation_support import NOW, Clock, admit, finished, make_places, spoil


@pytest.fixture
def places(tmp_path: Path) -> ValidationPlaces:
    return make_places(tmp_path)


@pytest.fixture
def spool(places: ValidationPlaces) -> Spool:
    return Spool(places, stale=0.0, clock=Clock())


# Replies


@pytest.mark.parametrize(("task", "module"), [("123", "lora"), ("a--b", "my-module"), ("../../x", "m"), ("7.5", "ü")])
def test_a_kept_reply_names_its_task_and_module(spool: Spool, places: ValidationPlaces, task: str, module: str) -> None:
    path = spool.keep(b'{"id": 1}', task, module)
    assert path.parent == places.incoming
    assert spool.incoming() == [(path, task, module)]
    assert path.read_bytes() == b'{"id": 1}'


def test_a_reply_finds_the_room_that_was_made_for_it(tmp_path: Path) -> None:
    lookups = Lookups(tmp_path)
    lookup = lookups.begin("1", "lora", NOW)
    assert lookup.path.stat().st_size == ROOM
    assert lookups.waiting() == []
    kept = lookup.keep(b"{}\n")
    assert (kept.read_bytes(), lookup.path.exists()) == (b"{}\n", False)
    assert len(lookups.waiting()) == 1


def test_lookups_without_reply_are_known_for_a_day(tmp_path: Path) -> None:
    lookups = Lookups(tmp_path)
    lookups.begin("1", "lora", NOW).nothing()
    lookups.begin("2", "lora", NOW).lost()
    [path] = tmp_path.iterdir()
    when = lookups.lost(NOW * 2)[0].when
    assert when == NOW
    assert path.stat().st_size == 0
    assert lookups.lost(when + YOUNG) == []
    assert [one.task_id for one in lookups.lost(when + YOUNG + 1)] == ["2"]
    lookups.mend(when + FORGET)
    assert lookups.lost(when + FORGET)
    lookups.mend(when + FORGET + 1)
    assert not lookups.lost(when + FORGET)


def test_a_crash_between_a_reply_and_its_name_is_mended(tmp_path: Path) -> None:
    lookups = Lookups(tmp_path)
    whole, torn, blank = (lookups.begin(str(task), "lora", NOW) for task in range(3))
    for lookup, text in ((whole, b'{"id": 5}'), (torn, b'{"id": 5, "da')):
        with lookup.path.open("r+b") as file:
            file.write(text)
    lookups.mend(NOW)
    assert [one.task_id for one in lookups.waiting()] == ["0"]
    assert {one.task_id for one in lookups.lost(NOW + 999)} == {"1", "2"}
    assert blank.path.exists()


def test_room_that_can_not_be_made_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StorageError):
        Lookups(tmp_path).begin("1", "lora", NOW)
    assert not list(tmp_path.iterdir())


# Admission


def test_admission_keeps_the_reply_byte_for_byte(spool: Spool, places: ValidationPlaces) -> None:
    raw = b'{"id" :  9}\n\xff'
    made = spool.admit(spool.keep(raw, "7", "example"), Assignment("9", "7", "example", NOW, Path()))
    assert made.folder == places.assignment(State.FETCHED, "9")
    assert (made.folder / files.REPLY).read_bytes() == raw
    assert spool.incoming() == []
    assert spool.find("9") == made


def test_an_id_that_is_there_is_not_taken_twice(spool: Spool, places: ValidationPlaces) -> None:
    old = spool.move(admit(spool, "9", needs_data=True), State.RUNNING)
    again = admit(spool, "9", fetched_at=NOW + 5)
    assert (again.state, again.fetched_at, again.folder) == (State.RUNNING, NOW, old.folder)
    assert len(list(old.folder.glob("reply-*.json"))) == 1
    assert spool.ids(*State) == {"9"}
    assert not places.assignment(State.FETCHED, "9").exists()


def test_a_younger_url_is_noted_while_the_data_is_missing(spool: Spool) -> None:
    admit(spool, "9", needs_data=True, url_expires=NOW + 10)
    assert admit(spool, "9", url_expires=NOW + 99).url_expires == NOW + 99
    found = spool.find("9")
    assert found is not None and found.url_expires == NOW + 99


def test_an_assignment_that_somebody_works_on_is_not_touched(spool: Spool) -> None:
    admit(spool, "9")
    with spool.held("9"), pytest.raises(ClaimedError):
        admit(spool, "9")
    assert len(spool.incoming()) == 1


def again(spool: Spool, status: str | None = "validating", **values: Any) -> Assignment:
    """The API gives assignment 9 out once more."""
    body = {"id": 9, **({} if status is None else {"status": status})}
    return spool.admit(spool.keep(json.dumps(body).encode(), "7", "example"),
                       Assignment("9", "7", "example", NOW + 9, Path(), **values))


def settled(spool: Spool, state: State, *, unconfirmed: bool) -> Assignment:
    return spool.move(replace(admit(spool, "9"), unconfirmed=unconfirmed, problem="p", cause="c"), state)


@pytest.mark.parametrize("state", [State.SUBMITTED, State.FAILED])
def test_a_report_that_was_not_taken_is_made_once_more_and_that_is_bounded(spool: Spool, state: State) -> None:
    settled(spool, state, unconfirmed=True)
    for _ in range(MOST_REPORTS):
        found = again(spool, deadline=NOW + 99)
        assert (found.state, found.unconfirmed, found.problem, found.deadline) == (State.DONE, False, None, NOW + 99)
        assert found.history[-1].cause == "report-not-taken" and found == spool.find("9")
        spool.move(replace(found, unconfirmed=True), state)
    assert again(spool).state is state


@pytest.mark.parametrize("state", [State.SUBMITTED, State.FAILED, State.GIVEN_UP])
def test_what_is_settled_stays_when_it_is_given_out_again(spool: Spool, state: State) -> None:
    settled(spool, state, unconfirmed=False)
    assert again(spool).state is state
    assert not [event for event in again(spool).history if event.cause == "report-not-taken"]


@pytest.mark.parametrize(("status", "values"), [("completed", {}), (None, {}), ("validating", {"cause": "reply"})])
def test_a_report_in_doubt_is_not_made_again_unless_the_api_waits_for_it(spool: Spool, status: str | None,
                                                                         values: dict[str, str]) -> None:
    settled(spool, State.SUBMITTED, unconfirmed=True)
    assert again(spool, status, **values).state is State.SUBMITTED


@pytest.mark.parametrize("state", [State.SUBMITTED, State.FAILED, State.GIVEN_UP, State.FETCHED])
def test_only_a_few_later_replies_are_kept(spool: Spool, state: State) -> None:
    settled(spool, state, unconfirmed=False)
    for number in range(KEPT_REPLIES + 3):
        folder = again(spool, f"turn {number}").folder
    kept = sorted(folder.glob("reply-*.json"))
    assert len(kept) == KEPT_REPLIES and (folder / files.REPLY).exists()
    assert any(f"turn {KEPT_REPLIES + 2}" in path.read_text() for path in kept)


@pytest.mark.parametrize("number", ["", "../1", "a/b", ".x", "-rf", "x\n", "x" * 300])
def test_an_id_that_can_be_no_folder(spool: Spool, number: str) -> None:
    with pytest.raises(DataError):
        admit(spool, number)
    assert len(spool.incoming()) == 1
    assert spool.find(number) is None


def test_half_built_folders_are_swept(spool: Spool, places: ValidationPlaces) -> None:
    half = places.spool / ".new" / "9-x"
    half.mkdir(parents=True)
    (half / "reply.json").write_text("{}")
    spool.tidy()
    assert not half.exists()
    assert admit(spool, "9").folder.is_dir()


# States


def test_all_that_is_known_survives_a_move(spool: Spool) -> None:
    snapshot = Snapshot("a/b", "main", "c" * 40, "/models/x", 5)
    made = replace(admit(spool), data=DataFile("data/x", 3, "ab"), model=snapshot, base=snapshot, attempts=2,
                   handed=Handed("12_3", "name", "slurm", NOW), deadline=NOW + 9, history=(Event(NOW, "x"),))
    moved = spool.move(made, State.DONE, "finished", "cause", "12_3")
    assert spool.find("1") == moved
    assert moved.history == (Event(NOW, "x"), Event(NOW, "finished", "cause", "12_3"))
    assert [one.id for one in spool.listed(State.DONE)] == ["1"]
    assert spool.count(*State) == 1


def test_a_full_disk_costs_the_event_only_where_that_is_allowed(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(spool)

    def refuse(number: int) -> object:
        def write(*_: object) -> None:
            error = OSError(number, "refused")
            raise StorageError.of(error, "x", "write") from error
        return write

    monkeypatch.setattr("automate.validation.assignments.write_json", refuse(errno.EACCES))
    with pytest.raises(StorageError):
        spool.move(made, State.SUBMITTED, "x", must_save=False)
    monkeypatch.setattr("automate.validation.assignments.write_json", refuse(errno.ENOSPC))
    with pytest.raises(StorageError):
        spool.move(made, State.SUBMITTED, "x")
    assert made.folder.is_dir()
    assert spool.move(made, State.SUBMITTED, "x", must_save=False).folder.is_dir()
    assert not made.folder.exists()


def test_what_can_not_be_read_is_named_and_bars_nothing(spool: Spool, places: ValidationPlaces) -> None:
    admit(spool, "1")
    for number, text in (("2", "{"), ("3", '{"id": "3"}'), ("4", "[]")):
        folder = places.assignment(State.DONE, number)
        folder.mkdir(parents=True)
        (folder / files.ASSIGNMENT).write_text(text)
    assert [one.id for one in spool.listed()] == ["1"]
    assert len(spool.unreadable()) == 3
    with pytest.raises(DataError):
        spool.find("2")


# Status


def test_status_shows_a_row_for_everything(spool: Spool, places: ValidationPlaces) -> None:
    clock = Clock(NOW + 1000)
    admit(spool, "1", deadline=NOW + 400)
    waits = spool.move(replace(admit(spool, "2"), attempts=2, problem="no \x1b[31mroom", cause="disk"), State.RUNNING)
    spool.move(finished(spool, "3"), State.SUBMITTED)
    spoil(finished(spool, "4"), metrics={"score": float("nan"), "loss": 2, "gpu": "A\x1b", "x": []})
    finished(spool, "5", files.Outcome.FAILED)
    given = replace(admit(spool, "6"), handed=Handed("77_1", "n", "slurm", NOW))
    spool.move(given, State.GIVEN_UP, "three starts ended by the cluster", "attempts")
    rows = {row.id: row for row in status_table(places, spool, clock)}
    assert [row.state for row in rows.values()] == ["fetched", "running", "done", "done", "submitted", "given_up"]
    assert (rows["1"].age, rows["1"].deadline) == (1000, -600)
    assert (rows["2"].problem, rows["2"].cause, rows["2"].attempts) == ("no ?[31mroom", "disk", waits.attempts)
    assert rows["3"].metrics == {"score": 1.0}
    assert rows["4"].metrics == {"loss": 2, "gpu": "A?"}
    assert (rows["5"].metrics, rows["5"].cause, rows["5"].problem) == ({}, "cause", "reason")
    assert (rows["6"].problem, rows["6"].job) == ("three starts ended by the cluster", "77_1")


def test_status_shows_what_is_no_assignment(spool: Spool, places: ValidationPlaces) -> None:
    spool.keep(b"{}", "7", "example")
    spool.lookups.refuse(spool.keep(b"{}", "8", "example"))
    for _ in range(3):
        spool.lookups.begin("9", "example", NOW).lost()
    places.assignment(State.DONE, "bad").mkdir(parents=True)
    rows = status_table(places, spool, Clock(NOW * 2))
    assert [(row.state, row.task) for row in rows] == [(WAITING, "7"), (REFUSED, "8"), (LOST, "9"), (UNREADABLE, "")]
    assert rows[2].problem.startswith("3 lookups without a reply")
    assert json.dumps([row.problem for row in rows])
