"""Campaigns on a real Slurm that go on through time limits, cancellations, preemption and broken nodes.

Each ends with every game once, and with nothing left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.support import (
    Campaign,
    accounted,
    campaign,
    copied,
    copy_models,
    in_queue,
    played,
    runs,
    submissions,
)
from tests.e2e.support import Key, assert_nothing_runs, eventually, judge_settings
from tests.rigs.faults import heal, path_without, set_down
from tests.rigs.slurm import SlurmRig


@pytest.fixture(autouse=True)
def in_the_background(forgotten: Campaign, limited: dict[str, Campaign]) -> None:
    """Start what takes long with the first test of this module, whichever it is."""


# --- cancelled ------------------------------------------------------------------------------------
def test_a_cancelled_batch_is_left_alone_until_it_is_submitted_again(
        slurm: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    with campaign(slurm, tmp_path / "ours") as ours, campaign(slurm, tmp_path / "bare") as bare:
        for one in (ours, bare):
            one.follow()
        eventually(lambda: min(played(one.root) for one in (ours, bare)) > 4, "some games of both")
        assert "cancelled job" in ours.flock("cancel").stdout
        slurm.run("scancel", *in_queue(slurm, bare.root))
        for one in (ours, bare):
            assert one.ended() == 1, one.text
            assert "left alone" in one.text
            assert "handed over again" not in one.text
            assert not in_queue(slurm, one.root)
            assert accounted(slurm, submissions(one.root)[0]["job"]) == ["CANCELLED"]
            assert_nothing_runs(one.root)
            assert played(one.root) < len(healthy)
            ended = runs(one.root)[-1]
            assert (ended["stopped_by"], ended["next"]["kind"]) == ("cancelled", "none")
            judge_settings(one.root, rehearsal={})
            one.follow()
        for one in (ours, bare):
            one.finish(healthy)


# --- preempted ------------------------------------------------------------------------------------
def test_a_preempted_batch_comes_back(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    options = {"nodelist": "n2"}
    # slow games, so that Slurm, which may take its time, preempts it in the middle
    with campaign(rough, tmp_path / "low", partition="low", options=options, latency=1.0, concurrency=1) as low:
        low.follow("--batch-size", "3")
        eventually(lambda: played(low.root) > 4, "some games")
        other = rough.run("sbatch", "--parsable", "--partition=high", "--exclusive", "--nodelist=n2", "--mem=100M",
                          "--output=/dev/null", "--wrap=sleep 5").stdout.strip()
        eventually(lambda: runs(low.root)[0].get("ended"), "the end of the first start")
        low.finish(healthy)
        first, second = runs(low.root)
        assert (first["stopped_by"], first["next"]["kind"]) == ("preempted", "slurm")
        assert (first["restart"], second["restart"]) == (0, 1)
        assert second["status"] == 0
        assert "handed over again" not in low.text
        states = accounted(rough, submissions(low.root)[0]["job"])
        assert states == ["PREEMPTED", "COMPLETED"]
        assert accounted(rough, other) == ["COMPLETED"]


# --- broken nodes ---------------------------------------------------------------------------------
def test_batches_of_broken_nodes_go_on(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    """Six batches in arrays of at most four. Their node is set down; it comes back, and then dies with all of them."""
    with campaign(rough, tmp_path / "nodes", latency=0.6, concurrency=1) as one:
        models = copy_models(one.root, 1)
        one.follow("--batch-size", "1")
        eventually(lambda: all(played(one.root, [model]) for model in models), "games of all batches")
        assert sorted(len(entry["tasks"]) for entry in submissions(one.root)) == [3, 3]
        try:
            set_down(rough, "n1")
            eventually(lambda: [run["phase"] for run in runs(one.root)[6:]] == ["playing"] * 6, "all play again")
            first = [run for run in runs(one.root)[:6] if run["phase"] == "ended"]  # the time it needs, it may not have
            assert first
            assert {(run["stopped_by"], run["next"]["kind"], run["status"]) for run in first} == {
                ("node failed", "slurm", 0)}
            assert {run["node"] for run in runs(one.root)} == {"n1"}  # they fit side by side
            rough.kill_slurmd("n1", jobs=True)
            set_down(rough, "n1")  # as slurmctld does itself, later
            one.finish(copied(healthy, models), models)
        finally:
            heal(rough)
        assert {run["node"] for run in runs(one.root)[12:]} == {"n2"}
        assert len(submissions(one.root)) == 2
        assert [run["restart"] for run in runs(one.root)] == [0] * 6 + [1] * 6 + [2] * 6


# --- the time limit: last, as it takes minutes ------------------------------------------------------
def test_a_batch_at_its_time_limit_is_requeued(slurm: SlurmRig, limited: dict[str, Campaign],
                                               healthy: list[Key]) -> None:
    one = limited["requeue"]
    one.finish(healthy)
    *stopped, last = runs(one.root)
    assert [(run["stopped_by"], run["next"]["kind"]) for run in stopped] == [("time limit", "requeue")] * len(stopped)
    assert [run["restart"] for run in (*stopped, last)] == list(range(len(stopped) + 1))
    assert stopped
    assert "stopped_by" not in last
    assert all(run["played"] and run["status"] == 0 for run in (*stopped, last))
    assert all(later["started"] - earlier["ended"] > 5
               for earlier, later in zip(stopped, [*stopped[1:], last], strict=True))
    assert [entry["by"] for entry in submissions(one.root)] == ["user"]
    assert accounted(slurm, submissions(one.root)[0]["job"]) == ["REQUEUED"] * len(stopped) + ["COMPLETED"]


def test_a_successor_goes_on_where_requeue_is_forbidden(slurm: SlurmRig, limited: dict[str, Campaign],
                                                        healthy: list[Key]) -> None:
    one = limited["successor"]
    one.finish(healthy)
    *stopped, last = runs(one.root)
    assert stopped
    assert [(run["stopped_by"], run["next"]["kind"]) for run in stopped] == [("time limit", "successor")] * len(stopped)
    jobs = [entry["job"] for entry in submissions(one.root)]
    assert [run["next"]["job"] for run in stopped] == jobs[1:]
    assert "stopped_by" not in last
    assert last["job"] == jobs[-1]
    assert "handed over again" not in one.text


# --- forgotten: last, as Slurm takes its time ---------------------------------------------------------
def test_forgotten_jobs_are_judged_by_what_is_known(rough: SlurmRig, forgotten: Campaign, tmp_path: Path,
                                                    healthy: list[Key]) -> None:
    one, job = forgotten, submissions(forgotten.root)[0]["job"]
    eventually(lambda: job not in rough.run("squeue", "-h", "-t", "all", "-o", "%A").stdout.split(), "forgotten",
               timeout=150)
    blind = {"PATH": str(path_without(tmp_path / "bin", "sacct"))}
    assert 0 < played(one.root) < len(healthy)
    picture = one.picture(blind)
    assert picture["running"] == picture["pending"] == picture["unknown"] == []
    assert [(failure["state"], "no command 'sacct'" in failure["evidence"]) for failure in picture["failures"]] == [
        ("unknown", True)]
    eventually(lambda: [(failure["state"], failure["evidence"]) for failure in one.picture()["failures"]]
               == [("failed", "sacct")], "accounting's word, as soon as the shared answer is an old one")
    judge_settings(one.root, rehearsal={})
    one.env.update(blind)
    one.follow()
    one.finish(healthy)
    assert sorted(len(entry["tasks"]) for entry in submissions(one.root)) == [1, 3]
