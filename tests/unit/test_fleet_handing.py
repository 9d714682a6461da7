"""A fleet is made once, handed over once, scaled and stopped; what a limit refuses is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automate import claims
from automate.cluster.queue import JobState
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError, ConfigError, SubmitError
from automate.fleet_places import FleetPlaces
from automate.fleets.handing import control, is_over, jobs_of, make_fleet, scale, stop, submit_workers
from automate.fleets.jobs import AT_ONCE, check_fleet, fleets_of, job_name, submissions_of
from automate.serving.fleet.keys import read_secrets
from automate.serving.fleet.registry import is_retired, read_spec, read_wish
from tests.unit.fleet_control_support import LIMIT, FakeCluster, bring_up, make, make_spec, run_record, worker

SLEEPS: list[float] = []


def no_sleep(seconds: float) -> None:
    SLEEPS.append(seconds)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a b", "a..b", "x" * 65, "ä", "a\nb", "a;b", "$(x)"])
def test_a_name_that_could_mean_something_to_a_shell_or_a_folder_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be a fleet's name"):
        check_fleet(name)
    assert check_fleet("a-1.b_C") == "a-1.b_C"


def test_a_fleet_is_made_for_its_owner_only(tmp_path: Path) -> None:
    places, spec = make(tmp_path, FakeCluster(), least=2)
    assert read_spec(places) == spec
    assert read_wish(places).wanted == {1: 2}
    assert places.home.stat().st_mode & 0o777 == 0o700
    key = read_secrets(places).key
    for path in (places.script(1), places.spec, places.wish, *places.submissions.iterdir()):
        assert key not in path.read_text()
    assert fleets_of(tmp_path) == ["main"]


def test_every_worker_is_a_task_of_one_array_job(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster, least=3, most=3)
    name = job_name(places, spec, spec.groups[0])
    assert cluster.submits == [(name, (0, 1, 2), None)]
    jobs = jobs_of(places, cluster)
    assert [(one.job, one.group) for one in jobs] == [("1_0", 1), ("1_1", 1), ("1_2", 1)]
    assert {one.status.state for one in jobs} == {JobState.PENDING}
    assert submissions_of(places, spec)[0].parallel == AT_ONCE  # this machine's own limit is for batches
    assert cluster.looks == 1


def test_a_fleet_that_is_not_over_is_in_the_way(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    bring_up(places, spec, cluster)
    with pytest.raises(ConfigError) as refused:
        make_fleet(places, make_spec(places, fleet_id="two"), {1: "x"}, cluster=cluster)
    said = str(refused.value)
    assert all(word in said for word in ("id one", "1_0 (RUNNING)", "1_1", "2 workers registered", "--name", "--scale",
                                         "--stop"))
    assert read_spec(places) == spec
    assert places.script(1).read_text() == "#!/bin/bash\n"


def test_one_of_which_nobody_can_tell_is_in_the_way_too(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, _ = make(tmp_path, cluster)
    cluster.silent = True
    assert not is_over(places, cluster)
    with pytest.raises(ConfigError, match="not over"):
        make_fleet(places, make_spec(places, fleet_id="two"), {1: "x"}, cluster=cluster)


def test_a_fleet_that_is_over_is_made_anew_and_its_runs_stay(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    bring_up(places, spec, cluster)
    run_record(places, "1_0")
    old_key = read_secrets(places).key
    stop(places, spec, cluster, sleep=no_sleep)
    cluster.set_all(JobState.COMPLETED)
    assert is_over(places, cluster)
    new = make_spec(places, fleet_id="two", models=("other",))
    make_fleet(places, new, {1: "#!/bin/bash\ntrue\n"}, cluster=cluster)
    assert read_spec(places) == new
    assert not read_wish(places).stop
    assert not list(places.workers.iterdir())
    assert len(list(places.runs.iterdir())) == 1
    assert read_secrets(places).key != old_key
    assert jobs_of(places, cluster) == []  # those of the one before are not its own
    assert job_name(places, new, new.groups[0]) != job_name(places, spec, spec.groups[0])


def test_two_at_once_make_one_fleet(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places = FleetPlaces(tmp_path, "main")
    with control(places, cluster):
        with pytest.raises(ClaimedError, match="another is at work on the fleet"):
            make_fleet(places, make_spec(places), {1: "x"}, cluster=cluster)
        assert read_spec(places) is None
    make_fleet(places, make_spec(places), {1: "x"}, cluster=cluster)


def test_what_a_killed_command_handed_over_is_found_before_anything_is_made(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    book = SubmissionBook(places.submissions)
    [done] = book.all()
    book.save(replace(done, job=None))  # it died between sbatch and writing the id down
    assert not is_over(places, cluster)
    with pytest.raises(ConfigError, match="not over"):
        make_fleet(places, make_spec(places, fleet_id="two"), {1: "x"}, cluster=cluster)
    assert [one.job for one in submissions_of(places, spec)] == ["1"]


def test_an_error_of_sbatch_that_was_none_hands_nothing_over_twice(tmp_path: Path) -> None:
    cluster = FakeCluster(lost=True)
    places, spec = make(tmp_path, cluster)
    assert [one.job for one in submissions_of(places, spec)] == ["1"]
    settle_open(SubmissionBook(places.submissions), cluster)
    assert len(cluster.submits) == 1


def test_as_many_as_a_limit_lets_through_are_handed_over(tmp_path: Path) -> None:
    cluster = FakeCluster(room=3)
    places, spec = make(tmp_path, cluster, submit=False, least=8, most=8)
    done = submit_workers(places, spec, cluster, spec.groups[0], 8, by="user", exclude="n7")
    assert len(done.tasks) == 2  # 8, 4, 2
    assert [(len(tasks), exclude) for _, tasks, exclude in cluster.submits] == [(8, "n7"), (4, "n7"), (2, "n7")]
    assert len(jobs_of(places, cluster)) == 2
    cluster.room = 0
    with pytest.raises(SubmitError, match="QOSMaxSubmit"):
        submit_workers(places, spec, cluster, spec.groups[0], 8, by="user")
    assert len(jobs_of(places, cluster)) == 2


def test_another_refusal_is_not_tried_with_fewer(tmp_path: Path) -> None:
    cluster = FakeCluster(refuses="sbatch: error: invalid partition specified: x")
    places, spec = make(tmp_path, cluster, submit=False)
    with pytest.raises(SubmitError, match="invalid partition"):
        submit_workers(places, spec, cluster, spec.groups[0], 8, by="user")
    assert len(cluster.submits) == 1


def test_nothing_is_handed_over_for_a_fleet_that_was_made_anew(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster, submit=False)
    make_fleet(places, make_spec(places, fleet_id="two"), {1: "x"}, cluster=cluster)
    with pytest.raises(ConfigError, match="is no more"):
        submit_workers(places, spec, cluster, spec.groups[0], 1, by="user")
    assert cluster.submits == []


# --- scaled and stopped -------------------------------------------------------------------------------
def test_more_are_handed_over(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    bring_up(places, spec, cluster)
    done = scale(places, spec, cluster, {1: 5}, exclude="n3", sleep=no_sleep)
    assert [len(one.tasks) for one in done.submitted] == [3]
    assert cluster.submits[-1][2] == "n3"
    assert read_wish(places).wanted == {1: 5}
    assert read_wish(places).bounds == {1: (5, 5)}
    again = scale(places, spec, cluster, {1: 5}, sleep=no_sleep)
    assert not again.submitted
    assert len(jobs_of(places, cluster)) == 5


def test_fewer_take_those_that_wait_first_then_the_least_loaded(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster, least=3)
    bring_up(places, spec, cluster)
    for job, load in (("1_0", 0), ("1_1", 5), ("1_2", 2)):
        worker(places, spec, job, in_flight=load, beat=2)
    scale(places, spec, cluster, {1: 5}, sleep=no_sleep)
    done = scale(places, spec, cluster, {1: 2}, sleep=no_sleep)
    assert (done.cancelled, done.retired) == (["2_1", "2_0"], ["w-1_0"])
    assert is_retired(places, "w-1_0")
    assert cluster.of(JobState.CANCELLED) == ["2_0", "2_1"]
    assert set(read_wish(places).dropped) == {"2_0", "2_1"}
    assert scale(places, spec, cluster, {1: 2}, sleep=no_sleep).retired == []


def test_where_an_engine_is_in_control_it_is_told(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    claim = claims.take(places.control_claim, stale=5)
    done = scale(places, spec, cluster, {1: 4}, bounds={1: (2, 6)}, patience=0, sleep=no_sleep)
    assert done.left_to
    assert not done.submitted
    assert (read_wish(places).wanted, read_wish(places).bounds) == ({1: 4}, {1: (2, 6)})
    claim.release()


def test_a_limit_is_said_and_what_fits_is_kept(tmp_path: Path) -> None:
    cluster = FakeCluster(room=3)
    places, spec = make(tmp_path, cluster)
    done = scale(places, spec, cluster, {1: 6}, sleep=no_sleep)
    assert [len(one.tasks) for one in done.submitted] == [1]
    assert done.refused[0][:2] == (1, 3)
    done = scale(places, spec, cluster, {1: 6}, sleep=no_sleep)
    assert done.submitted == []
    assert LIMIT.partition(": ")[2] in done.refused[0][2]


def test_a_stop_cancels_what_waits_and_lets_the_others_finish(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    bring_up(places, spec, cluster)
    scale(places, spec, cluster, {1: 3}, sleep=no_sleep)
    done = stop(places, spec, cluster, sleep=no_sleep)
    assert (done.cancelled, done.ending) == (("2_0",), ("1_0", "1_1"))
    assert read_wish(places).stop
    with pytest.raises(ConfigError, match="was stopped"):
        scale(places, spec, cluster, {1: 4}, sleep=no_sleep)
    assert stop(places, spec, cluster, now=True, sleep=no_sleep).cancelled == ("1_0", "1_1")
    assert is_over(places, cluster)
    assert stop(places, spec, cluster, sleep=no_sleep).cancelled == ()


def test_a_stop_comes_through_while_another_is_in_control(tmp_path: Path) -> None:
    cluster = FakeCluster()
    places, spec = make(tmp_path, cluster)
    claim = claims.take(places.control_claim, stale=5)
    done = stop(places, spec, cluster, patience=0, sleep=no_sleep)
    assert read_wish(places).stop
    assert done.cancelled == ("1_0", "1_1")
    claim.release()
