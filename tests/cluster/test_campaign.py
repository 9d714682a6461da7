"""Whole campaigns on a real Slurm, by the command line, with a rehearsal judge."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support import assert_played, in_queue, submissions
from tests.e2e.support import (
    BASELINE,
    EXAMPLES,
    TULU,
    Key,
    assert_complete,
    assert_nothing_runs,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    games_of,
    journal,
    judge_now,
    judge_settings,
    kill,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    rows_file,
    said,
    verdicts_of,
    victims,
)
from tests.rigs.slurm import SlurmRig

SLOW = {"latency": 0.5}


@pytest.fixture
def example(slurm: SlurmRig, tmp_path: Path) -> Iterator[Path]:
    """A workspace for Slurm with the bundled example: 12 questions, three models; no job is left of it."""
    root = make_workspace(tmp_path / "example", cluster="generic")
    yield root
    flock("cancel", cwd=root)
    assert_nothing_runs(root)


def submit(root: Path, *args: str) -> str:
    """`judge --submit`, without waiting; what it said."""
    done = flock("judge", "--all", "--submit", "--executor", "slurm", *args, cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    return said(done)


def playing(root: Path) -> bool:
    """Whether games of all models of the example were played."""
    return all(journal(root, model) for model in EXAMPLES)


def out_logs(root: Path) -> list[str]:
    """What the jobs of a workspace printed."""
    return [path.read_text() for path in sorted((root / "logs" / "arena-hard" / "judgment_batches").glob("*.out"))]


# --- campaigns ------------------------------------------------------------------------------------
def test_three_real_checkpoints_are_judged_whole(slurm: SlurmRig, tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "real", real=True, cluster="generic")
    judge_now(root, "--all", "--batch-size", "1", executor="slurm")
    questions, theirs = read_questions(root), read_answers(root, BASELINE)
    for model in TULU:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=theirs, ours=read_answers(root, model))
    assert len(verdicts_of(root, TULU)) == 4500
    assert verdicts_of(root, TULU) == games_of(root, TULU)
    job = submissions(root)[0]["job"]
    states = slurm.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout.split()
    assert states == ["COMPLETED"] * 3
    assert "Nothing to do" in judge_now(root, "--all", executor="slurm")
    assert len(submissions(root)) == 1
    assert_nothing_runs(root)


@pytest.mark.parametrize("transport", ["tcp", "uds"])
def test_jobs_on_one_node_keep_apart(example: Path, healthy: list[Key], transport: str) -> None:
    change_settings(example, slurm={"mem": "100M", "cpus_per_task": 1, "gpus": 0, "options": {"nodelist": "n1"}})
    judge_settings(example, rehearsal=SLOW, concurrency=2, server={"transport": transport})
    submit(example, "--batch-size", "1")
    eventually(lambda: len(victims(example).get("server", [])) == 3, "three servers at once")
    judge_now(example, "--all", executor="slurm")
    assert_played(example, healthy)
    places = [re.findall(r"ready after \S+ s at (\S+)", text) for text in out_logs(example)]
    assert [len(place) for place in places] == [1, 1, 1]
    assert len({place[0] for place in places}) == 3
    assert all(place[0].startswith("http://127.0.0.1:" if transport == "tcp" else "unix:/") for place in places)


def test_one_job_a_batch(slurm: SlurmRig, example: Path, healthy: list[Key]) -> None:
    judge_now(example, "--all", "--batch-size", "2", "--no-array", executor="slurm")
    assert_played(example, healthy)
    found = sorted(submissions(example), key=lambda entry: str(entry["tasks"]))
    assert [entry["tasks"] for entry in found] == [{"0": 1}, {"0": 2}]
    logs = {path.name for path in (example / "logs" / "arena-hard" / "judgment_batches").glob("*.out")}
    assert logs == {f"judge-batch-{n}_{entry['job']}_{entry['plan']}.out" for n, entry in enumerate(found, 1)}


def test_a_path_with_a_space_and_a_percent_sign(slurm: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    for number, array in enumerate(("--array", "--no-array")):
        root = make_workspace(tmp_path / f"my 100%j work's {number}", cluster="generic")
        judge_now(root, "--all", "--batch-size", "2", array, executor="slurm")
        assert_played(root, healthy)
        assert len(out_logs(root)) == 2
        assert_nothing_runs(root)


def kill_after_games(root: Path, part: str, played: int) -> None:
    """SIGKILL one process of a part of a job when a few more games than `played` were played."""
    eventually(lambda: sum(len(journal(root, model)) for model in EXAMPLES) > played + 3, "some games")
    eventually(lambda: any(kill(process) for process in victims(root).get(part, [])[:1]), f"a {part} to kill")


def test_killed_jobs_are_handed_over_again(slurm: SlurmRig, example: Path, healthy: list[Key]) -> None:
    judge_settings(example, rehearsal=SLOW, concurrency=2)
    arguments = command("judge", "--all", "--batch-size", "1", "--submit", "--wait", "--executor", "slurm")
    with subprocess.Popen(arguments, cwd=example, env=environment(), stdout=subprocess.PIPE, text=True) as running:
        for part in ("server", "engine", "engine"):
            kill_after_games(example, part, sum(len(journal(example, model)) for model in EXAMPLES))
        text = running.communicate(timeout=300)[0]
    assert running.returncode == 0, text
    assert text.count("handed over again") == 2, text
    assert_played(example, healthy)


# --- submitted once -------------------------------------------------------------------------------
def test_a_second_submission_leaves_running_batches_alone(slurm: SlurmRig, example: Path, healthy: list[Key]) -> None:
    judge_settings(example, rehearsal=SLOW, concurrency=4)
    submit(example, "--batch-size", "2")
    eventually(lambda: playing(example), "games of all models")
    before = in_queue(slurm, example)
    text = submit(example, "--batch-size", "1")
    assert "Nothing else to do." in text
    job = submissions(example)[0]["job"]
    for model, batch in zip(EXAMPLES, (1, 2, 1), strict=True):
        assert re.search(rf"{model}: left alone, batch {batch} is running \(job {job}_{batch}\)", text), text
    assert len(submissions(example)) == 1
    assert before.keys() >= in_queue(slurm, example).keys()
    judge_now(example, "--all", executor="slurm")
    assert_played(example, healthy)
    assert len(submissions(example)) == 1


def test_a_batch_submitted_by_hand_is_known(slurm: SlurmRig, example: Path, healthy: list[Key]) -> None:
    judge_settings(example, rehearsal=SLOW, concurrency=8)
    assert flock("judge", "--dry-run", "--executor", "slurm", cwd=example).returncode == 0
    script = "generated_judgment_scripts/run_arena_hard_judgment_batch_1.sh"
    job = slurm.run("sh", "-c", f'cd "{example}" && sbatch --parsable {script}').stdout.strip()
    eventually(lambda: playing(example), "games of all models")
    text = submit(example)
    assert f"left alone, batch 1 is running (job {job})" in text
    assert "Nothing else to do." in text
    assert submissions(example) == []
    eventually(lambda: not in_queue(slurm, example), "the job's end")
    assert_played(example, healthy)
    assert "Nothing to do" in submit(example)


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $PPID"], ids=["denied", "killed"])
def test_a_job_that_nobody_wrote_down_is_found_by_its_name(slurm: SlurmRig, example: Path, healthy: list[Key],
                                                           tmp_path: Path, end: str) -> None:
    real, folder = shutil.which("sbatch"), tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(
        f'#!/bin/sh\ncase "$*" in *--test-only*) exec {real} "$@";; esac\n{real} "$@" >/dev/null\n'
        f'echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2\n{end}\n')
    (folder / "sbatch").chmod(0o755)
    judge_settings(example, rehearsal=SLOW, concurrency=4)
    done = flock("judge", "--submit", "--executor", "slurm", "--batch-size", "2", cwd=example,
                 env={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert (done.returncode == 0) == (end == "exit 1"), done.stdout + done.stderr
    assert ("submitted 2 batches" in done.stdout) == (end == "exit 1")
    assert "Nothing else to do." in submit(example)
    assert len(submissions(example)) == 1
    assert set(in_queue(slurm, example)) == {f"{submissions(example)[0]['job']}_{n}" for n in (1, 2)}
    judge_now(example, "--all", executor="slurm")
    assert_played(example, healthy)
    assert len(submissions(example)) == 1


def test_a_refusal_is_shown_in_slurms_words(slurm: SlurmRig, example: Path) -> None:
    change_settings(example, slurm={"partition": "nowhere", "mem": "100M", "cpus_per_task": 1, "gpus": 0})
    done = flock("judge", "--all", "--submit", "--executor", "slurm", cwd=example)
    assert done.returncode == 1
    assert "FH503" in done.stdout
    assert "invalid partition specified: nowhere" in said(done)
    assert "slurm.partition" in said(done)
    assert submissions(example) == []


# --- cancelled ------------------------------------------------------------------------------------
def test_cancel_touches_no_other_job(slurm: SlurmRig, example: Path, healthy: list[Key]) -> None:
    other = slurm.run("sbatch", "--parsable", "--output=/dev/null", "--mem=100M", "--job-name=judge-batch-1",
                      "--wrap=sleep 1000").stdout.strip()
    judge_settings(example, rehearsal=SLOW, concurrency=2)
    submit(example, "--batch-size", "1", "--max-parallel", "2")
    eventually(lambda: sorted(in_queue(slurm, example).values()) == ["PENDING", "RUNNING", "RUNNING"], "two running")
    eventually(lambda: any(journal(example, model) for model in EXAMPLES), "a first game")
    done = flock("cancel", cwd=example)
    assert done.stdout.count("cancelled job") == 3, done.stdout + done.stderr
    eventually(lambda: not in_queue(slurm, example), "no job of the campaign")
    assert_nothing_runs(example)
    eventually(lambda: slurm.run("squeue", "-h", "-j", other, "-o", "%T").stdout == "RUNNING\n", "the other job")
    slurm.run("scancel", other)
    judge_settings(example, rehearsal={})
    judge_now(example, "--all", executor="slurm")
    assert_played(example, healthy)


def test_held_jobs_are_seen_and_cancelled(slurm: SlurmRig, example: Path) -> None:
    options = {"begin": "now+1hour"}
    change_settings(example, slurm={"mem": "100M", "cpus_per_task": 1, "gpus": 0, "options": options})
    submit(example, "--batch-size", "1")
    slurm.run("scontrol", "hold", submissions(example)[0]["job"])
    picture = json.loads(flock("monitor", "--json", cwd=example).stdout)
    reasons = [job["reason"] for job in picture["pending"]]
    assert len(reasons) == 3
    assert set(reasons) <= {"JobHeldUser", "JobHeldAdmin"}
    assert "Nothing else to do." in submit(example)
    assert flock("cancel", cwd=example).stdout.count("cancelled job") == 3
    eventually(lambda: not in_queue(slurm, example), "no job of the campaign")
    assert "no job of this workspace waits or runs" in flock("cancel", cwd=example).stdout
