"""Limits on submitted jobs, bad nodes and two commands at once, on a real Slurm that enforces its limits."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.support import (
    BENCH,
    EXAMPLES,
    SLURM,
    assert_nothing_runs,
    change_settings,
    environment,
    eventually,
    flock,
    judge_now,
    make_workspace,
    said,
    verdicts_of,
)
from tests.rigs.required import missing
from tests.rigs.slurm import FOREIGN, SlurmRig, available

MODELS = (*EXAMPLES, "more-1", "more-2")
GAMES = 2 * 4 * len(MODELS)


@pytest.fixture(scope="module")
def strict() -> Iterator[SlurmRig]:
    """A Slurm of its own that enforces limits, with a QOS that lets a user have two jobs in the queue."""
    if reason := available():
        missing(reason)
    with SlurmRig(enforce="associations,limits,qos", requeue_delay=6) as rig, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        for name, value in rig.env.items():
            patch.setenv(name, value)
        rig.run("sacctmgr", "-i", "add", "qos", "small", "set", "MaxSubmitJobsPerUser=2")
        rig.run("sacctmgr", "-i", "modify", "user", rig.run("id", "-un").stdout.strip(), "set", "qos+=small")
        yield rig


@pytest.fixture
def five(strict: SlurmRig, tmp_path: Path) -> Iterator[Path]:
    """A workspace whose models make five batches of eight games, for the QOS that takes two."""
    root = make_workspace(tmp_path / "five", cluster="generic", questions=4, batch_size=1,
                          slurm={**SLURM, "qos": "small"})
    answers = root / "arena-hard-auto" / "data" / BENCH / "model_answer"
    for name in MODELS[len(EXAMPLES):]:
        text = (answers / f"{EXAMPLES[0]}.jsonl").read_text()
        (answers / f"{name}.jsonl").write_text(text.replace(f'"{EXAMPLES[0]}"', f'"{name}"'))
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(MODELS) + "\n")
    api = root / "arena-hard-auto" / "config" / "api_config.yaml"
    if api.is_file():
        api.write_text(api.read_text() + "".join(f"\n{name}:\n  api_type: openai\n" for name in MODELS[-2:]))
    yield root
    flock("cancel", cwd=root)
    assert_nothing_runs(root)


def limits(root: Path, **values: Any) -> None:
    """Replace keys of `limits` in a workspace's settings."""
    given = yaml.safe_load((root / "flock-hpc.yaml").read_text())["limits"]
    change_settings(root, limits={**given, **values})


def handed(root: Path) -> list[dict[str, Any]]:
    """All submissions that were accepted, oldest first."""
    found = [json.loads(path.read_text()) for path in sorted((root / ".flock-hpc" / "submissions").glob("*.json"))]
    return [one for one in found if one["job"]]


def batches(root: Path) -> list[int]:
    """The batches that were handed in, in order, each as often as it was."""
    return [number for one in handed(root) for number in one["tasks"].values()]


def submit(root: Path, *args: str, **env: str) -> str:
    done = flock("judge", "--submit", "--executor", "slurm", *args, cwd=root, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return said(done)


def assert_all_played_once(root: Path) -> None:
    played = verdicts_of(root, MODELS)
    assert len(played) == len({key[:3] for key in played}) == GAMES


def test_wait_hands_in_what_did_not_fit(five: Path) -> None:
    text = judge_now(five, executor="slurm")
    assert "submitted 2 batches" in text
    assert "3 batches wait for room: MaxSubmitJobsPerUser=2 of QOS small; 2 count now" in text
    assert "this command hands them in when there is room" in text
    assert sorted(batches(five)) == [1, 2, 3, 4, 5]
    assert all(len(one["tasks"]) <= 2 for one in handed(five))
    assert {one["by"] for one in handed(five)} == {"user", "wait"}
    assert_all_played_once(five)


def test_a_small_job_hands_in_what_did_not_fit(five: Path) -> None:
    limits(five, refill="job")
    text = submit(five)
    small = next(one for one in handed(five) if not one["tasks"])
    assert f"job {small['job']} (small, no GPU) hands them in when the first batch ends" in text
    eventually(lambda: len(verdicts_of(five, MODELS)) == GAMES, "all games", timeout=240, pause=0.5)
    assert sorted(batches(five)) == [1, 2, 3, 4, 5]
    assert {one["by"] for one in handed(five)} == {"user", "refill"}
    assert_all_played_once(five)
    assert "Nothing to do" in submit(five)


def test_the_next_command_hands_in_what_did_not_fit(strict: SlurmRig, five: Path) -> None:
    assert "run 'flock-hpc judge --submit' again when jobs have ended" in submit(five)
    assert batches(five) == [1, 2]
    eventually(lambda: len(verdicts_of(five, MODELS)) == 16, "the first two batches")
    eventually(lambda: not strict.run("squeue", "-h").stdout, "an empty queue")
    submit(five)
    eventually(lambda: len(verdicts_of(five, MODELS)) == 32, "the next two batches")
    judge_now(five, executor="slurm")
    assert len(batches(five)) == 5
    assert_all_played_once(five)


def test_cancel_ends_the_small_job_too(strict: SlurmRig, five: Path) -> None:
    limits(five, refill="job")
    change_settings(five, slurm={**SLURM, "qos": "small", "options": {"begin": "now+1hour"}})
    submit(five)
    assert len(strict.run("squeue", "-h", "-r").stdout.split("\n")[:-1]) == 2
    done = flock("cancel", cwd=five)
    assert done.stdout.count("cancelled job") == 2, done.stdout + done.stderr
    eventually(lambda: not strict.run("squeue", "-h").stdout, "an empty queue")
    assert "no job of this workspace waits or runs" in flock("cancel", cwd=five).stdout
    assert list((five / ".flock-hpc" / "submissions").glob("*.waiting")) == []


def test_an_answer_that_denies_an_accepted_job_submits_nothing_twice(five: Path, tmp_path: Path) -> None:
    real, folder = shutil.which("sbatch"), tmp_path / "bin"
    folder.mkdir()
    (folder / "sbatch").write_text(
        f'#!/bin/sh\ncase "$*" in *--test-only*) exec {real} "$@";; esac\n{real} "$@" >/dev/null || exit 1\n'
        'echo "sbatch: error: QOSMaxSubmitJobPerUserLimit" >&2\nexit 1\n')
    (folder / "sbatch").chmod(0o755)
    done = flock("judge", "--submit", "--wait", "--executor", "slurm", cwd=five,
                 env={"PATH": f"{folder}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(batches(five)) == [1, 2, 3, 4, 5]
    assert_all_played_once(five)


def deaths(root: Path, *nodes: str) -> None:
    """Records of jobs whose servers died of these nodes' fault."""
    folder = root / ".flock-hpc" / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    for number, node in enumerate(nodes):
        death = {"cause": "gpu lost", "what": "Xid 79", "node": node, "node_fault": True, "time": time.time()}
        record = {"plan": "old", "batch": 1, "job": f"1{number}", "node": node, "phase": "ended", "deaths": [death]}
        (folder / f"2020-{number}.json").write_text(json.dumps(record))


def excluded(rig: SlurmRig, root: Path) -> str:
    """The nodes that the newest submission is kept away from, as Slurm says."""
    text = rig.run("scontrol", "show", "job", "-o", str(handed(root)[-1]["job"])).stdout
    return next((word.partition("=")[2] for word in text.split() if word.startswith("ExcNodeList=")), "")


def test_a_bad_node_gets_no_more_jobs_until_it_is_forgiven(strict: SlurmRig, five: Path) -> None:
    change_settings(five, slurm={**SLURM, "options": {"begin": "now+1hour"}})
    deaths(five, "n1", "n1", "elsewhere", "elsewhere")
    assert "excluded from new jobs: n1 " in submit(five, "--models", MODELS[0])
    assert excluded(strict, five) == "n1"
    table = flock("nodes", cwd=five)
    assert "bad: gets no new jobs (gpu lost)" in said(table), table.stdout + table.stderr
    assert "n1: 2 deaths are forgotten" in flock("nodes", "forgive", "n1", cwd=five).stdout
    assert "excluded" not in submit(five, "--models", MODELS[1])
    assert excluded(strict, five) in ("", "(null)")
    deaths(five, "n1", "n1", "n2", "n2")
    assert "not excluded: n1, n2" in submit(five, "--models", MODELS[2])
    assert excluded(strict, five) in ("", "(null)")
    assert environment()["SLURM_CONF"] == strict.env["SLURM_CONF"]
