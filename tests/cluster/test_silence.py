"""What a campaign on a real Slurm makes of silence and of half-truths: no controller, no accounting, forgotten jobs, a
partition that is gone, a workspace that was moved. Nothing is submitted on a guess, and nothing is lost."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.support import Campaign, accounted, campaign, in_queue, played, runs, submissions
from tests.e2e.support import (
    Key,
    assert_nothing_runs,
    change_settings,
    eventually,
    judge_settings,
    said,
)
from tests.rigs.faults import ctld_runs, heal, wrapper
from tests.rigs.slurm import SlurmRig


@pytest.fixture(autouse=True)
def in_the_background(forgotten: Campaign, limited: dict[str, Campaign]) -> None:
    """Let Slurm forget while the tests of this module run, and time limits come nearer for another's."""


# --- no controller --------------------------------------------------------------------------------
def test_nothing_is_submitted_while_the_controller_is_silent(rough: SlurmRig, tmp_path: Path,
                                                             healthy: list[Key]) -> None:
    with campaign(rough, tmp_path / "one", latency=1.0) as one:
        one.follow()
        eventually(lambda: played(one.root) > 2, "some games")
        rough.stop_ctld()
        try:
            before = played(one.root)
            eventually(lambda: one.picture()["unknown"], "the monitor's word on it")
            picture = one.picture()
            assert [(job["batch"], job["state"]) for job in picture["unknown"]] == [(1, "unknown")]
            assert "Unable to contact slurm controller" in picture["unknown"][0]["evidence"]
            assert picture["failures"] == picture["running"] == picture["pending"] == []
            done = one.flock("judge", "--all", "--submit", "--executor", "slurm")
            assert done.returncode == 1
            assert "Unable to contact slurm controller" in said(done)
            assert "batch 1: unknown" in one.text
            eventually(lambda: played(one.root) > before, "games without a controller")
        finally:
            heal(rough)
        one.finish(healthy)
        assert "handed over again" not in one.text
        assert len(submissions(one.root)) == 1


def test_a_restarted_controller_is_not_even_noticed(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    with campaign(rough, tmp_path / "one", latency=0.4) as one:
        one.follow("--batch-size", "1", "--max-parallel", "2")
        eventually(lambda: played(one.root) > 4, "some games")
        rough.restart_ctld()
        one.finish(healthy)
        assert len(submissions(one.root)) == 1
        assert len(runs(one.root)) == 3


def test_jobs_that_a_controller_forgot_are_handed_over_again(rough: SlurmRig, tmp_path: Path,
                                                             healthy: list[Key]) -> None:
    """It dies before it has written a job down: nodes end what they run, and accounting never hears of that."""
    rough.restart_ctld()
    heal(rough)
    states = [rough.run_dir / "state" / name for name in ("job_state", "job_state.old")]
    saved = states[0].read_bytes()
    with campaign(rough, tmp_path / "one", latency=0.7) as one:
        one.follow()
        eventually(lambda: played(one.root) > 4, "some games")
        job = submissions(one.root)[0]["job"]
        rough.stop_ctld(crash=True)
        for state in states:
            state.write_bytes(saved)
        heal(rough)
        assert accounted(rough, job) in (["RUNNING"], ["PENDING"])  # it never hears of the end
        one.finish(healthy)
        assert "unknown with" in one.text
        assert "handed over again" in one.text
        assert len(submissions(one.root)) == 2


# --- a partition that goes ------------------------------------------------------------------------
def test_a_partition_that_vanishes_loses_nothing(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    rough.run("scontrol", "create", "partitionname=brief", "nodes=n1,n2", "state=up")
    with campaign(rough, tmp_path / "one", latency=0.4, partition="brief") as one:
        one.follow("--batch-size", "1", "--max-parallel", "1")
        eventually(lambda: played(one.root) > 4, "some games")
        rough.run("scontrol", "update", "partitionname=brief", "state=down")
        rough.restart_ctld()  # it knows only the partitions of its settings
        assert ctld_runs(rough)
        assert one.ended() == 1, one.text
        assert "invalid partition specified: brief" in one.text
        assert not in_queue(rough, one.root)
        assert_nothing_runs(one.root)
        assert 4 < played(one.root) < len(healthy)
        change_settings(one.root, slurm={"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:10:00"})
        judge_settings(one.root, rehearsal={})
        one.follow()
        one.finish(healthy)


# --- several that look ------------------------------------------------------------------------------
def test_monitors_share_one_question(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    calls = tmp_path / "calls"
    folder = wrapper(tmp_path / "bin", "squeue", f'echo x >> {calls}; exec "$REAL" "$@"')
    with campaign(rough, tmp_path / "one", latency=0.8) as one:
        assert one.flock("judge", "--submit", "--executor", "slurm").returncode == 0
        eventually(lambda: played(one.root) > 2, "some games")
        counted = {"PATH": f"{folder}:{os.environ['PATH']}"}
        with ThreadPoolExecutor(4) as pool:
            pictures = list(pool.map(one.picture, [counted] * 4))
        assert all(len(picture["running"]) + len(picture["unknown"]) == 1 for picture in pictures)
        assert any(picture["running"] for picture in pictures)
        assert 1 <= len(calls.read_text().split()) <= 2  # two where the first answer grew old meanwhile
        one.follow()
        one.finish(healthy)


# --- moved ------------------------------------------------------------------------------------------
def test_a_workspace_may_be_moved_in_the_middle(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    with campaign(rough, tmp_path / "old", latency=0.9) as one:
        done = one.flock("judge", "--submit", "--executor", "slurm", "--batch-size", "1", "--max-parallel", "2")
        assert done.returncode == 0, done.stdout + done.stderr
        job = submissions(one.root)[0]["job"]
        rough.run("scontrol", "hold", f"{job}_3")
        eventually(lambda: played(one.root) > 4, "some games")
        one.root = one.root.rename(tmp_path / "new")
        there = one.flock("judge", "--all", "--dry-run", "--executor", "slurm")
        assert f"batch 3 (job {job}_3) was submitted when the workspace lay in {tmp_path / 'old'};" in said(there)
        one.flock("cancel")
        eventually(lambda: not in_queue(rough, one.root), "no job of the old place")
        judge_settings(one.root, rehearsal={})
        one.follow()
        one.finish(healthy)
        assert not (tmp_path / "old" / ".flock-hpc" / "journal").exists()
