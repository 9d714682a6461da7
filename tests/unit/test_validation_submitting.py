"""Reporting: each result once, whatever is lost on the way, and nothing that is not whole."""

from __future__ import annotations

import errno
import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from automate.claims import take
from automate.errors import ApiError, ClaimedError, DataError, StorageError
from automate.settings_validation import Validation
from automate.validation import posts
from automate.validation.api import FlockApi
from automate.validation.api_errors import ApiRefused, ApiUnavailable, BadKey, NotValidating, RateLimited
from automate.validation.assignments import Assignment, State
from automate.validation.audit import Audit
from automate.validation.fetching import Fetcher
from automate.validation.inner import files
from automate.validation.inner.files import Outcome, Result, read_result, write_result
from automate.validation.payloads import payload_problem, shipped_fields, unfit
from automate.validation.posts import MARK, Attempt, Posts
from automate.validation.room import RESERVE, keep_reserve
from automate.validation.spool import Spool
from automate.validation.standin.plan import Fault, Plan, TaskPlan
from automate.validation.standin.server import StandIn
from automate.validation.submitting import Submitted, submit_all
from automate.validation_places import ValidationPlaces
from tests.unit.validation_support import NOW, Clock, FakeApi, admit, finished, make_places, nothing_needed, spoil

GONE = NotValidating("Validation assignment is not in validating status")
UNSURE = ApiUnavailable("the connection ended", unsure=True)
AWAY = ApiUnavailable("nobody listens")


@pytest.fixture
def places(tmp_path: Path) -> ValidationPlaces:
    return make_places(tmp_path)


@pytest.fixture
def spool(places: ValidationPlaces) -> Spool:
    return Spool(places, stale=0.0, clock=Clock())


def submit(spool: Spool, api: FakeApi, **values: object) -> Submitted:
    given = {"finish": None, "clock": Clock(), **values}
    return submit_all(spool.places, spool, api, **given)  # type: ignore[arg-type]


def state(spool: Spool, number: str = "1") -> State:
    found = spool.find(number)
    assert found is not None
    return found.state


# What is sent


def test_metrics_and_failures_go_out_once(spool: Spool) -> None:
    finished(spool, "1")
    finished(spool, "2", Outcome.FAILED)
    api = FakeApi()
    done = submit(spool, api)
    assert [one.id for one in done.sent] == ["1"]
    assert [one.id for one in done.reported_failed] == ["2"]
    assert api.calls == [("complete", "1", {"score": 1.0}), ("fail", "2", None)]
    assert (state(spool, "1"), state(spool, "2")) == (State.SUBMITTED, State.FAILED)
    assert submit(spool, api) == Submitted()
    assert len(api.calls) == 2


def test_the_nearest_deadline_goes_first(spool: Spool) -> None:
    finished(spool, "1", fetched_at=NOW)
    finished(spool, "2", fetched_at=NOW + 1, deadline=NOW + 500)
    finished(spool, "3", fetched_at=NOW + 2, deadline=NOW + 100)
    api = FakeApi()
    submit(spool, api)
    assert [which for _, which, _ in api.calls] == ["3", "2", "1"]


@pytest.mark.parametrize("outcome", [Outcome.RECOVERABLE, Outcome.UNUSABLE])
def test_the_clusters_faults_are_never_reported(spool: Spool, outcome: Outcome) -> None:
    finished(spool, "1", outcome)
    api = FakeApi()
    done = submit(spool, api)
    assert not api.calls
    assert [reason for _, reason in done.kept] == ["reason"]


# Replies that do not come


def test_not_validating_after_a_lost_reply_is_accepted(spool: Spool) -> None:
    finished(spool)
    first = submit(spool, FakeApi(UNSURE))
    assert (state(spool), first.down) == (State.DONE, True)
    assert [reason for _, reason in first.kept] == ["the connection ended"]
    done = submit(spool, FakeApi(GONE))
    assert [one.id for one in done.unconfirmed] == ["1"]
    found = spool.find("1")
    assert found is not None
    assert (found.state, found.unconfirmed, found.problem) == (State.SUBMITTED, True, None)


def test_not_validating_without_a_lost_reply_is_a_lost_lease(spool: Spool) -> None:
    finished(spool, "1")
    finished(spool, "2", Outcome.FAILED)
    assert submit(spool, FakeApi(AWAY, AWAY)).down
    done = submit(spool, FakeApi(GONE, GONE))
    assert sorted(one.id for one in done.lost) == ["1", "2"]
    assert state(spool, "1") is state(spool, "2") is State.GIVEN_UP
    assert done.lost[0].cause == "lost-lease"


def test_a_lost_lease_that_is_given_out_again_is_reported(spool: Spool) -> None:
    finished(spool, "1")
    submit(spool, FakeApi(GONE))
    assert admit(spool, "1").state is State.DONE
    assert submit(spool, FakeApi()).sent
    assert admit(spool, "1").state is State.SUBMITTED


def test_a_lost_reply_of_a_failure_ends_in_failed(spool: Spool) -> None:
    finished(spool, "1", Outcome.FAILED)
    submit(spool, FakeApi(UNSURE))
    submit(spool, FakeApi(GONE))
    found = spool.find("1")
    assert found is not None
    assert (found.state, found.unconfirmed, found.cause) == (State.FAILED, True, "cause")


def test_an_error_that_says_itself_that_it_was_unsure_before(spool: Spool) -> None:
    finished(spool)
    gone = NotValidating("gone")
    gone.unsure = True  # type: ignore[attr-defined]
    assert submit(spool, FakeApi(gone)).unconfirmed


@pytest.mark.parametrize("stage", ["before", "after", "accepted"])
def test_a_crash_at_each_moment_of_a_report(spool: Spool, stage: str) -> None:
    class Crash(BaseException):
        pass

    made = finished(spool)
    api = FakeApi(Crash())
    with pytest.raises(Crash):
        submit(spool, api)
    assert posts.read(made.folder) == Posts(unsure=True, tries=1, last=NOW)
    if stage == "before":  # it was never sent: the API takes it now
        assert submit(spool, FakeApi()).sent
    elif stage == "after":  # it was taken, and nobody wrote it down
        assert submit(spool, FakeApi(GONE)).unconfirmed
    else:  # it was written down, and the folder was not renamed
        Attempt(made.folder).end(NOW, posts.ACCEPTED)
        again = FakeApi()
        assert submit(spool, again).sent
        assert not again.calls
    assert state(spool) is State.SUBMITTED


def test_a_torn_line_of_the_posts_is_mended(spool: Spool) -> None:
    made = finished(spool)
    (made.folder / files.POSTS).write_bytes(b'{"event":"intent","n":"x","wh')
    assert posts.read(made.folder) == Posts()
    submit(spool, FakeApi(UNSURE))
    assert posts.read(made.folder).unsure
    assert (made.folder / files.POSTS).read_text().startswith('{"event":"intent"')


def test_broken_lines_leave_doubt(spool: Spool) -> None:
    made = finished(spool)
    (made.folder / files.POSTS).write_bytes(b"\x00\xff broken\n")
    assert posts.read(made.folder).unsure
    assert submit(spool, FakeApi(GONE)).unconfirmed


def test_whatever_else_a_call_raises_leaves_doubt(spool: Spool) -> None:
    made = finished(spool)
    done = submit(spool, FakeApi(OSError(5, "the audit can't be written")))
    assert "not known whether it was sent" in done.kept[0][1]
    assert posts.read(made.folder).unsure


# One bad, the others go on


def test_one_that_is_refused_bars_no_other_and_is_given_up_in_the_end(spool: Spool) -> None:
    clock = Clock()
    finished(spool, "1", fetched_at=NOW - 9)
    finished(spool, "2")
    refused = ApiRefused("unknown field", status=422)
    done = submit(spool, FakeApi(refused), clock=clock)
    assert [one.id for one in done.sent] == ["2"]
    early = FakeApi()
    assert "tried again in 60 s" in submit(spool, early, clock=clock).kept[0][1]
    assert not early.calls
    clock.sleep(61)
    submit(spool, FakeApi(refused), clock=clock)
    submit(spool, FakeApi(refused), clock=clock, hurry=True)
    last = submit(spool, FakeApi(), clock=clock)
    assert "refused it 3 times" in last.kept[0][1]
    assert state(spool) is State.GIVEN_UP
    spool.move(last.kept[0][0], State.DONE)
    assert submit(spool, FakeApi(), clock=clock, hurry=True).sent


def test_a_refusal_that_a_wrong_clock_noted_is_not_waited_for(spool: Spool) -> None:
    finished(spool)
    refused = ApiRefused("unknown field", status=422)
    submit(spool, FakeApi(refused), clock=Clock(NOW + 400 * 86400))
    api = FakeApi(refused)
    submit(spool, api)
    assert len(api.calls) == 1
    early = FakeApi()
    assert "tried again in 120 s" in submit(spool, early).kept[0][1]
    assert not early.calls
    assert submit(spool, FakeApi(), clock=Clock(NOW + 121)).sent


def test_a_second_step_that_a_wrong_clock_noted_is_not_waited_for(spool: Spool) -> None:
    finished(spool, outcome=Outcome.PARTIAL)
    tried = list[str]()

    def finish(assignment: Assignment) -> Result:
        tried.append(assignment.id)
        raise ApiError("the judge is away")

    for clock, times in ((Clock(NOW + 400 * 86400), 1), (Clock(), 2), (Clock(), 2), (Clock(NOW + 121), 3)):
        submit(spool, FakeApi(), finish=finish, clock=clock)
        assert len(tried) == times


@pytest.mark.parametrize(("fault", "doubt"), [(Fault.ERROR, False), (Fault.GATEWAY, True), (Fault.DROP_BEFORE, True)])
def test_a_failure_in_the_apis_own_words_leaves_no_doubt(places: ValidationPlaces, spool: Spool, tmp_path: Path,
                                                         fault: Fault, doubt: bool) -> None:
    """It was not taken, and the lease is over when it is reported again: only a lost reply makes it submitted."""
    with StandIn(Plan((TaskPlan(7, submissions=1),), key="k" * 20)) as server:
        api = FlockApi(Validation(base_url=server.base_url), "k" * 20, Audit(tmp_path / "audit"))
        Fetcher(places, spool, api, "example", ["7"], acquire=nothing_needed, most=2).turn()
        one, = spool.listed()
        write_result(one.folder, Result(one.id, Outcome.COMPLETED, "example", {"score": 1.0}, {"score": 1.0}))
        spool.move(one, State.DONE)
        server.inject("update", fault, Fault.LOST_LEASE)
        assert submit_all(places, spool, api, finish=None).down
        done = submit_all(places, spool, api, finish=None)
        assert (len(done.lost), len(done.unconfirmed)) == (not doubt, doubt)
        api.close()


@pytest.mark.parametrize("error", [BadKey("no"), RateLimited("slowly", seconds=9.0)])
def test_what_concerns_all_stops_the_turn(spool: Spool, error: ApiError) -> None:
    finished(spool, "1", fetched_at=NOW - 9)
    finished(spool, "2")
    api = FakeApi(error)
    done = submit(spool, api)
    assert (done.stopped, len(api.calls)) == (error, 1)
    assert len(submit(spool, FakeApi()).sent) == 2


def test_an_outage_stops_the_turn_and_tried_ones_wait_behind(spool: Spool) -> None:
    for number in range(5):
        finished(spool, str(number), fetched_at=NOW + number)
    api = FakeApi(AWAY, AWAY, AWAY)
    assert submit(spool, api).stopped is AWAY
    assert [which for _, which, _ in api.calls] == ["0", "1", "2"]
    again = FakeApi()
    submit(spool, again)
    assert [which for _, which, _ in again.calls] == ["3", "4", "0", "1", "2"]


def test_one_without_a_result_or_with_that_of_another(spool: Spool) -> None:
    none = finished(spool, "1")
    none.result_file.write_text("{")
    spoil(finished(spool, "2"), assignment_id="3")
    finished(spool, "4")
    done = submit(spool, FakeApi())
    assert [one.id for one in done.sent] == ["4"]
    assert [reason for _, reason in done.kept] == ["it has no result that can be read"] * 2


def test_one_that_somebody_works_on_waits(spool: Spool, places: ValidationPlaces) -> None:
    finished(spool, "1")
    finished(spool, "2")
    with spool.held("1"):
        done = submit(spool, FakeApi())
    assert ([one.id for one in done.sent], len(done.kept)) == (["2"], 1)
    claim = take(places.claim("submit"), stale=90)
    with pytest.raises(ClaimedError):
        submit(spool, FakeApi())
    assert submit(spool, FakeApi(), claim=claim).sent


def test_stopping_between_two(spool: Spool) -> None:
    finished(spool, "1")
    finished(spool, "2")
    api = FakeApi()
    submit(spool, api, stop=lambda: bool(api.calls))
    assert len(api.calls) == 1


# What never goes out


@pytest.mark.parametrize(("change", "why"), [
    ({"payload": {"score": float("nan")}}, "payload.score is nan"),
    ({"payload": {"score": 1.0, "deep": [{"x": float("-inf")}]}}, "payload.deep[0].x is -inf"),
    ({"payload": {}}, "it has no payload"),
    ({"payload": [1]}, "it has no payload"),
    ({"payload": {"other": 1.0}}, "its payload misses score"),
    ({"metrics": {"other": 1.0}}, "its metrics miss score"),
    ({"metrics": None}, "it has no metrics"),
])
def test_a_payload_that_is_not_whole_is_kept_and_shown(spool: Spool, change: dict[str, object], why: str) -> None:
    spoil(finished(spool, "1"), **change)
    finished(spool, "2")
    api = FakeApi()
    done = submit(spool, api)
    assert [which for _, which, _ in api.calls] == ["2"]
    assert why in done.kept[0][1]
    found = spool.find("1")
    assert found is not None
    assert (found.state, found.cause) == (State.GIVEN_UP, "payload")


def test_what_the_client_refuses_to_send_was_not_sent(spool: Spool) -> None:
    made = finished(spool)
    done = submit(spool, FakeApi(DataError("no JSON")))
    assert done.kept[0][0].state is State.GIVEN_UP
    assert not posts.read(done.kept[0][0].folder).unsure
    assert not made.folder.exists()


def test_old_names_need_no_field_of_the_metrics() -> None:
    old = Result("1", Outcome.COMPLETED, "lora", {"loss": 1.0, "gpu_type": "A100"}, {"loss": 1.0, "bpc": 2.0})
    assert payload_problem(old, "old", None) is None
    assert payload_problem(old, "current", None) == "its payload misses bpc"
    assert shipped_fields("example") == frozenset({"score"})
    assert shipped_fields("somebody_elses") is shipped_fields("../x") is shipped_fields("base") is None
    assert unfit({1: 2}, "x") == "x holds a name that is no text"
    assert unfit(float("inf"), "x") == "x is inf, which can't be sent"
    deep: list[object] = []
    for _ in range(30):
        deep = [deep]
    assert "nested" in str(unfit(deep, "x"))


# Second steps


def test_the_second_step_is_made_here(spool: Spool) -> None:
    made = finished(spool, "1", Outcome.PARTIAL)

    def finish(assignment: Assignment) -> Result:
        return Result(assignment.id, Outcome.COMPLETED, "example", {"score": 2.0}, {"score": 2.0}, step=2)

    assert "second step" in submit(spool, FakeApi()).kept[0][1]
    api = FakeApi(AWAY)
    submit(spool, api, finish=finish)
    assert api.calls == [("complete", "1", {"score": 2.0})]
    kept = read_result(made.folder)
    assert kept is not None and kept.step == 2
    assert submit(spool, FakeApi(), finish=None).sent


def test_a_second_step_that_does_not_come_off_waits_and_is_never_reported(spool: Spool) -> None:
    clock = Clock()
    made = finished(spool, "1", Outcome.PARTIAL)
    tries: list[str] = []

    def finish(assignment: Assignment) -> Result:
        tries.append(assignment.id)
        result = Result(assignment.id, Outcome.RECOVERABLE, "example", cause="judge", reason="the judge is away",
                        step=2)
        write_result(made.folder, result)  # as the inner layer does
        return result

    for wait in (0, 61, 121):
        clock.sleep(wait + 0.1)
        done = submit(spool, FakeApi(), finish=finish, clock=clock)
        assert done.kept[0][1] == "the judge is away"
        assert "tried again in" in submit(spool, FakeApi(), finish=finish, clock=clock).kept[0][1]
    assert len(tries) == 3
    assert submit(spool, FakeApi(), finish=finish, clock=clock, hurry=True).kept
    assert len(tries) == 4
    assert state(spool) is State.DONE


def test_a_second_step_that_was_cut_off_is_made_again(spool: Spool) -> None:
    made = finished(spool, "1", Outcome.PARTIAL)
    (made.folder / files.PARTIAL).write_text("{}")
    made.result_file.rename(made.folder / "aside.json")

    def finish(assignment: Assignment) -> Result:
        return Result(assignment.id, Outcome.FAILED, "example", step=2)

    assert submit(spool, FakeApi(), finish=finish).reported_failed


def test_second_steps_that_break_or_need_a_person(spool: Spool) -> None:
    for number in "123":
        finished(spool, number, Outcome.PARTIAL, fetched_at=NOW + int(number))

    def finish(assignment: Assignment) -> Result:
        if assignment.id == "1":
            raise RuntimeError("broken")
        outcome = Outcome.UNUSABLE if assignment.id == "2" else Outcome.FAILED
        return Result(assignment.id, outcome, "example", cause="config", reason="mend it", step=2)

    api = FakeApi()
    done = submit(spool, api, finish=finish)
    assert api.calls == [("fail", "3", None)]
    assert "RuntimeError: broken" in done.kept[0][1]
    assert [state(spool, number) for number in "123"] == [State.DONE, State.GIVEN_UP, State.FAILED]


# A full disk


def full(*args: object, **kwargs: object) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    raise StorageError.of(error, "disk", "write") from error


@pytest.mark.parametrize("replies", [(), (UNSURE, GONE), (AWAY, None)])
def test_on_a_full_disk_results_go_out_once(spool: Spool, places: ValidationPlaces, monkeypatch: pytest.MonkeyPatch,
                                            replies: tuple[Exception | None, ...]) -> None:
    made = finished(spool)
    claim = take(places.claim("submit"), stale=90)
    places.state(State.SUBMITTED).mkdir()
    monkeypatch.setattr("automate.validation.posts.RecordWriter", full)
    monkeypatch.setattr("automate.validation.assignments.write_json", full)
    monkeypatch.setattr("automate.validation.spool.take", full)
    api = FakeApi(*replies)
    for _ in range(2):
        submit(spool, api, claim=claim)
    assert not (made.folder / files.POSTS).exists()
    assert len(api.calls) == max(1, len(replies))
    assert [path.name for path in places.state(State.SUBMITTED).iterdir()] == ["1"]


@pytest.mark.parametrize("fault", [None, Fault.DROP_AFTER, Fault.ERROR_AFTER, Fault.GATEWAY])
def test_where_no_file_can_grow_results_go_out_once(spool: Spool, places: ValidationPlaces,
                                                    fault: Fault | None) -> None:
    with StandIn(Plan((TaskPlan(7, submissions=1),))) as server:
        settings = make_places(places.root, base_url=server.base_url, retries=0).settings
        api = FlockApi(settings, server.key, Audit(places.audit))
        [number] = [json.loads(api.request_assignment("7"))["id"]]
        finished(spool, str(number))
        claim = take(places.claim("submit"), stale=90)
        keep_reserve(places.reserve)
        places.state(State.SUBMITTED).mkdir()
        api.close()
        if fault is not None:
            server.inject("update", fault)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
        try:
            turn = Fetcher(places, spool, api, "example", ["7"], acquire=nothing_needed, most=9).turn()
            assert len(turn.problems) == 1 and len(server.calls) == 1
            for _ in range(3):
                submit_all(places, spool, api, finish=None, claim=claim)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        [record] = server.assignments.values()
        assert (record.accepted, state(spool, record.id)) == (1, State.SUBMITTED)
        assert len(record.posts) == (2 if fault in (Fault.DROP_AFTER, Fault.ERROR_AFTER) else 1)
        assert server.violations == []


def test_a_full_disk_and_a_crash_leave_a_mark(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(spool)
    with monkeypatch.context() as patch:
        patch.setattr("automate.validation.posts.RecordWriter", full)
        with pytest.raises(KeyboardInterrupt):
            submit(spool, FakeApi(KeyboardInterrupt()))
    assert (made.folder / MARK).exists()
    assert submit(spool, FakeApi(GONE)).unconfirmed


def test_what_was_taken_on_a_full_disk_stays_marked_until_it_is_moved(spool: Spool,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(spool)
    with monkeypatch.context() as patch:
        patch.setattr("automate.validation.posts.RecordWriter", full)
        for outcome, marked in ((posts.AWAY, False), (posts.ACCEPTED, True)):
            attempt = Attempt(made.folder)
            attempt.begin(NOW, "completed", "")
            attempt.end(NOW, outcome)
            assert (made.folder / MARK).exists() is marked
    assert submit(spool, FakeApi(GONE)).unconfirmed


def test_without_any_note_nothing_is_sent(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    finished(spool)
    monkeypatch.setattr("automate.validation.posts.RecordWriter", full)
    touch = Path.touch

    def scarce(path: Path, *args: object, **kwargs: object) -> None:
        if path.name == MARK:
            raise OSError(errno.ENOSPC, "full")
        touch(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("pathlib.Path.touch", scarce)
    api = FakeApi()
    with pytest.raises(StorageError):
        Attempt(spool.places.spool).begin(NOW, "completed", "")
    done = submit(spool, api)
    assert not api.calls and done.kept


def test_the_reserve_makes_room_for_reports(spool: Spool, places: ValidationPlaces,
                                            monkeypatch: pytest.MonkeyPatch) -> None:
    finished(spool)
    keep_reserve(places.reserve)
    keep_reserve(places.reserve)
    assert places.reserve.stat().st_size == RESERVE

    def scarce(*args: object, **kwargs: object) -> object:
        if places.reserve.exists():
            full()
        return take(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr("automate.validation.submitting.take", scarce)
    assert submit(spool, FakeApi()).sent
    assert not places.reserve.exists()


def test_one_that_moved_on_meanwhile_is_left_alone(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    made = finished(spool)
    listed = [replace(made)]
    spool.move(made, State.FETCHED)
    monkeypatch.setattr(spool, "listed", lambda *_: listed)
    api = FakeApi()
    assert submit(spool, api) == Submitted()
    assert not api.calls
