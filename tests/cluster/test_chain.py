"""The chain on a real Slurm: dependent jobs from models without answers to a report, with rehearsal servers."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support import ASKED, in_queue
from tests.e2e.chain_support import (
    RESULTS,
    assert_judged,
    board,
    make_bare,
    models_of,
    of_kind,
    results,
    spoil,
    submissions,
)
from tests.e2e.support import (
    EXAMPLE_BASELINE,
    EXAMPLES,
    assert_nothing_runs,
    bench_file,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    journal,
    rows_file,
    said,
)
from tests.rigs.slurm import SlurmRig

FIRST, SECOND, LAST = EXAMPLES
SLURM = {**ASKED, "time": "00:10:00"}
LIMITS = {"claim_stale": 1, "poll": 0.5, "resubmits": 1}
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


@pytest.fixture
def bare(slurm: SlurmRig, tmp_path: Path) -> Iterator[Path]:
    """A workspace for Slurm in which neither the models nor the baseline have answers; no job is left of it."""
    root = make_bare(tmp_path / "a workspace", (*EXAMPLES, EXAMPLE_BASELINE), cluster="generic", slurm=SLURM,
                     limits=LIMITS)
    yield root
    flock("cancel", cwd=root)
    assert_nothing_runs(root)


def run(root: Path, *args: str, status: int = 0) -> str:
    """`run --all --submit`; what it said. Fails where the exit status is another."""
    done = flock("run", "--all", "--submit", "--executor", "slurm", *args, cwd=root)
    assert done.returncode == status, f"exit {done.returncode} instead of {status}:\n{done.stdout}\n{done.stderr}"
    return said(done)


def job_of(root: Path, word: str, model: str) -> str:
    """The newest job of a kind of work that has a model."""
    return next(f"{one['job']}_{index}" if one["array"] else str(one["job"]) for one in reversed(of_kind(root, word))
                for index, number in one["tasks"].items() if model in models_of(root, one["plan"], number))


def moments(rig: SlurmRig, job: str) -> tuple[str, str, str]:
    """State, start and end of a job by accounting."""
    line = rig.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State,Start,End").stdout.split("\n")[0]
    state, start, end = line.split("|")
    return state.split()[0], start, end


def state_of(rig: SlurmRig, job: str) -> str:
    """A job's state by accounting, empty where it doesn't know it yet."""
    return rig.run("sacct", "-X", "-n", "-P", "-j", job, "-o", "State").stdout.split("\n")[0].partition(" ")[0]


def test_from_no_answers_to_a_report(slurm: SlurmRig, bare: Path) -> None:
    text = run(bare, "--wait")
    assert_judged(bare)
    assert set(results(bare)) == RESULTS
    assert board(bare) == sorted([*EXAMPLES, EXAMPLE_BASELINE])
    assert f"against {EXAMPLE_BASELINE}" in text
    (report,) = of_kind(bare, "arena-report")
    for model in EXAMPLES:
        made, baseline, judged = (moments(slurm, job) for job in (
            job_of(bare, "answer", model), job_of(bare, "answer", EXAMPLE_BASELINE), job_of(bare, "judge", model)))
        assert {made[0], baseline[0], judged[0]} == {"COMPLETED"}
        assert judged[1] >= max(made[2], baseline[2])
        assert moments(slurm, str(report["job"]))[1] >= judged[2]
    count = len(submissions(bare))
    assert "Nothing to generate or to judge." in run(bare)
    assert len(submissions(bare)) == count


def test_judging_waits_for_its_own_answers_and_for_no_others(slurm: SlurmRig, bare: Path) -> None:
    """While one model's generation is held, the others are judged whole; nothing is submitted twice meanwhile."""
    slurm.run("scontrol", "update", "partitionname=test", "state=down")
    try:
        run(bare)
        held = job_of(bare, "answer", LAST)
        slurm.run("scontrol", "hold", held)
    finally:
        slurm.run("scontrol", "update", "partitionname=test", "state=up")
    others = [job_of(bare, "judge", model) for model in (FIRST, SECOND)]
    eventually(lambda: all(state_of(slurm, job) == "COMPLETED" for job in others), "the others are judged")
    assert_judged(bare, (FIRST, SECOND))
    assert not rows_file(bare, LAST).exists()
    left = in_queue(slurm, bare)
    assert left == {held: "PENDING", job_of(bare, "judge", LAST): "PENDING"}
    count = len(submissions(bare))
    assert "in work" in run(bare)
    assert len(submissions(bare)) == count
    assert in_queue(slurm, bare) == left
    slurm.run("scontrol", "release", held)
    run(bare, "--wait")
    assert_judged(bare)
    assert len(of_kind(bare, "answer")) == 1


def test_a_model_that_gets_no_answers_holds_nobody_back(slurm: SlurmRig, bare: Path) -> None:
    spoil(bare, SECOND)
    text = run(bare, "--wait", status=1)
    assert_judged(bare, (FIRST, LAST))
    assert not rows_file(bare, SECOND).exists()
    missing = f"{SECOND}: no answers, so it was not judged"
    assert f"missing: {missing}" in text
    assert missing in results(bare)["report.html"]
    assert board(bare) == sorted([FIRST, LAST, EXAMPLE_BASELINE])


def test_a_job_that_starts_before_its_answers_plays_nothing_and_marks_nothing(slurm: SlurmRig, bare: Path) -> None:
    """A generation job that is cut off ends for Slurm: its judging job starts, and the next run goes on."""
    slurm.run("scontrol", "update", "partitionname=test", "state=down")
    try:
        run(bare)
        slurm.run("scancel", job_of(bare, "answer", FIRST))
        early = job_of(bare, "judge", FIRST)
    finally:
        slurm.run("scontrol", "update", "partitionname=test", "state=up")
    eventually(lambda: state_of(slurm, early) in ENDED, "the early job has ended")
    assert state_of(slurm, early) == "COMPLETED"
    assert journal(bare, FIRST) == []
    assert not rows_file(bare, FIRST).exists()
    run(bare, "--wait")
    assert_judged(bare)
    assert results(bare)["missing.txt"].startswith("Nothing:")


def test_a_baseline_without_answers_fails_its_judging_with_a_clear_word(slurm: SlurmRig, bare: Path) -> None:
    spoil(bare, EXAMPLE_BASELINE)
    text = run(bare, "--wait", status=1)
    assert not any(journal(bare, model) for model in EXAMPLES)
    assert f"no answers of the baseline '{EXAMPLE_BASELINE}'" in text
    assert all(bench_file(bare, "model_answer", f"{model}.jsonl").is_file() for model in EXAMPLES)


def test_cancel_ends_all_of_it(slurm: SlurmRig, bare: Path) -> None:
    slurm.run("scontrol", "update", "partitionname=test", "state=down")
    try:
        run(bare)
        (report,) = of_kind(bare, "arena-report")
        jobs = [*in_queue(slurm, bare), str(report["job"])]
        assert len(jobs) == 4 + 3 + 1
        text = said(flock("cancel", cwd=bare))
        assert all(f"cancelled job {job}" in text for job in jobs)
        eventually(lambda: state_of(slurm, str(report["job"])) == "CANCELLED", "the report job is cancelled")
        assert in_queue(slurm, bare) == {}
        assert "no job of this workspace waits or runs" in said(flock("cancel", cwd=bare))
    finally:
        slurm.run("scontrol", "update", "partitionname=test", "state=up")
    run(bare, "--wait")
    assert_judged(bare)


def test_a_killed_command_leaves_the_chain_going(slurm: SlurmRig, bare: Path) -> None:
    arguments = command("run", "--all", "--submit", "--wait", "--executor", "slurm")
    with subprocess.Popen(arguments, cwd=bare, env=environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL) as running:
        eventually(lambda: of_kind(bare, "arena-report") and of_kind(bare, "arena-report")[0]["job"], "a report job")
        running.kill()
    (report,) = of_kind(bare, "arena-report")
    eventually(lambda: state_of(slurm, str(report["job"])) in ENDED, "the report job has ended")
    assert state_of(slurm, str(report["job"])) == "COMPLETED"
    assert_judged(bare)
    assert set(results(bare)) == RESULTS


def test_without_wait_a_small_job_carries_the_chain_to_its_report(slurm: SlurmRig, bare: Path) -> None:
    """Two jobs at a time, and nobody who waits: answers, games and the report all come, each once."""
    change_settings(bare, limits={**LIMITS, "max_submitted": 2, "refill": "job"})
    text = run(bare)
    assert "(small, no GPU) hands them in when the first batch ends, and then the report" in text
    assert not of_kind(bare, "arena-report")
    eventually((bare / "results" / "report.json").is_file, "the results", timeout=400, pause=0.5)
    eventually(lambda: not slurm.run("squeue", "-h").stdout, "an empty queue")
    assert_judged(bare)
    assert board(bare) == sorted([*EXAMPLES, EXAMPLE_BASELINE])
    assert len(of_kind(bare, "arena-report")) == 1
    for word, models in (("answer", (*EXAMPLES, EXAMPLE_BASELINE)), ("judge", EXAMPLES)):
        found = [model for one in of_kind(bare, word) for number in one["tasks"].values()
                 for model in models_of(bare, one["plan"], number)]
        assert sorted(found) == sorted(models)
    assert (bare / "results" / "missing.txt").read_text().startswith("Nothing")
    count = len(submissions(bare))
    assert "Nothing to generate or to judge." in run(bare)
    assert len(submissions(bare)) == count
