"""The chain on this machine, by the command line, with rehearsal servers: from models without answers to a report."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

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
    command,
    environment,
    eventually,
    flock,
    jobs,
    journal,
    read_lines,
    rows_file,
    said,
)

FIRST, SECOND, LAST = EXAMPLES


def run(root: Path, *args: str, status: int = 0) -> str:
    """`run --all --submit --wait` here; what it said. Fails where the exit status is another."""
    done = flock("run", "--all", "--submit", "--wait", "--executor", "local", *args, cwd=root)
    assert done.returncode == status, f"exit {done.returncode} instead of {status}:\n{done.stdout}\n{done.stderr}"
    return said(done)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A chain from nothing but questions: no model has answers, nor has the baseline. And what the command said."""
    root = make_bare(tmp_path_factory.mktemp("chain") / "a workspace", (*EXAMPLES, EXAMPLE_BASELINE))
    return root, run(root)


# --- from nothing to a report -----------------------------------------------------------------------------
def test_from_no_answers_to_a_report(finished: tuple[Path, str]) -> None:
    root, text = finished
    assert_judged(root)
    assert set(results(root)) == RESULTS
    assert board(root) == sorted([*EXAMPLES, EXAMPLE_BASELINE])
    page = results(root)["report.html"]
    assert all(model in page for model in EXAMPLES)
    assert json.loads(results(root)["report.json"])["missing"] == []
    assert "72 of 72 games are finished" in text
    assert f"against {EXAMPLE_BASELINE}" in text  # the leaderboard itself
    assert f"The results are in {root}/results/" in text
    assert_nothing_runs(root)


def test_judging_waits_for_its_own_answers_and_the_baselines(finished: tuple[Path, str]) -> None:
    root, _ = finished
    answers, games = of_kind(root, "answer"), of_kind(root, "judge")
    made = {model: f"{one['job']}_{index}" for one in answers for index, number in one["tasks"].items()
            for model in models_of(root, one["plan"], number)}
    assert set(made) == {*EXAMPLES, EXAMPLE_BASELINE}
    waits = {model: set(one["after"].split(",")) for one in games for number in one["tasks"].values()
             for model in models_of(root, one["plan"], number)}
    assert waits == {model: {made[model], made[EXAMPLE_BASELINE]} for model in EXAMPLES}
    (report,) = of_kind(root, "arena-report")
    assert set(report["after"].split(",")) == {one["job"] for one in games}


def test_a_second_run_submits_nothing(finished: tuple[Path, str]) -> None:
    root, _ = finished
    before, started = results(root), jobs(root)
    text = run(root)
    assert "Nothing to generate or to judge." in text
    assert jobs(root) == started
    assert results(root) == before


def test_a_report_older_than_its_games_is_written_again(finished: tuple[Path, str]) -> None:
    root, _ = finished
    began = json.loads(results(root)["report.json"])["began"]
    reports = len(of_kind(root, "arena-report"))
    rows_file(root, FIRST).touch()
    text = run(root)
    assert "submitted the report: job" in text
    assert len(of_kind(root, "arena-report")) == reports + 1
    assert json.loads(results(root)["report.json"])["began"] > began


# --- shown before it is submitted -------------------------------------------------------------------------
def test_a_dry_run_shows_the_chain_and_submits_nothing(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (FIRST, LAST), batch_size=2)
    done = flock("run", "--all", "--executor", "local", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [re.sub(r"\s{2,}", "|", line.strip()) for line in done.stdout.split("\n")]
    assert f"answers 1|{FIRST}, {LAST}|24 answers|at once" in lines
    assert f"games 1|{SECOND}|24 games|at once" in lines
    assert f"games 2|{FIRST}, {LAST}|48 games|after answers 1" in lines
    assert "report|3 models|results/|after games 1-2" in lines
    assert (submissions(root), jobs(root)) == ([], [])
    plans = sorted((root / ".flock-hpc" / "plans").iterdir())
    assert flock("run", "--all", "--executor", "local", "--dry-run", cwd=root).stdout == done.stdout
    assert sorted((root / ".flock-hpc" / "plans").iterdir()) == plans


def test_models_with_answers_are_judged_at_once(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (LAST,), batch_size=10)
    run(root)
    now, then = of_kind(root, "judge")
    assert (now["after"], now["array"]) == (None, True)
    assert then["after"] == f"{of_kind(root, 'answer')[0]['job']}_1"
    assert_judged(root)


# --- what goes wrong --------------------------------------------------------------------------------------
def test_a_model_that_gets_no_answers_holds_nobody_back(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", limits={"claim_stale": 1, "poll": 0.5, "resubmits": 1})
    spoil(root, SECOND)
    text = run(root, status=1)
    assert_judged(root, (FIRST, LAST))
    assert not rows_file(root, SECOND).exists()
    missing = f"{SECOND}: no answers, so it was not judged"
    assert f"missing: {missing}" in text
    assert results(root)["missing.txt"] == f"{missing}\n"
    assert missing in results(root)["report.html"]
    assert board(root) == sorted([FIRST, LAST, EXAMPLE_BASELINE])
    (root / ".flock-hpc" / "answers" / "arena-hard-v2.0" / SECOND).unlink()
    run(root)
    assert_judged(root)
    assert results(root)["missing.txt"].startswith("Nothing:")


def test_a_baseline_that_cannot_be_had_stops_it_at_once(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (FIRST, EXAMPLE_BASELINE), generate={"kind": "vllm"})
    done = flock("run", "--models", SECOND, "--submit", "--executor", "local", cwd=root)
    assert done.returncode == 1
    assert EXAMPLE_BASELINE in said(done)
    assert "nothing says where this model lies" in said(done)
    assert submissions(root) == []


def test_a_model_that_cannot_be_served_is_named_and_may_be_left_out(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (FIRST,), generate={"kind": "vllm"})
    text = said(flock("run", "--all", "--submit", "--executor", "local", cwd=root))
    assert "it can't be generated" in text
    assert "--skip-missing" in text
    assert submissions(root) == []
    text = run(root, "--skip-missing")
    assert_judged(root, (SECOND, LAST))
    assert f"missing: {FIRST}: no answers" in text


def test_incomplete_answers_are_judged_as_far_as_they_go(tmp_path: Path) -> None:
    """Some questions are refused by the model's server at every try: they are given up, the others are judged."""
    root = make_bare(tmp_path / "example", (FIRST,), generate={"kind": "rehearsal", "rehearsal": {"status_400": 0.4}})
    text = run(root)
    answers = len(bench_file(root, "model_answer", f"{FIRST}.jsonl").read_text().split("\n")) - 1
    assert 0 < answers < 12
    assert len(journal(root, FIRST)) == 2 * answers
    assert f"{FIRST}: {answers} of 12 answers; given up: {12 - answers} " in text


# --- another baseline, cancelled --------------------------------------------------------------------------
def test_another_baseline_gets_answers_and_results_of_its_own(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (FIRST, LAST))
    text = flock("run", "--models", FIRST, SECOND, "--baseline", LAST, "--submit", "--wait", "--executor", "local",
                 cwd=root)
    assert text.returncode == 0, text.stdout + text.stderr
    assert f"against {LAST}" in said(text)
    assert board(root) == sorted([FIRST, SECOND, LAST])
    for model in (FIRST, SECOND):
        rows = read_lines(rows_file(root, model, LAST))
        assert {row["baseline"] for row in rows} == {LAST}
        assert len(rows) == 12


def test_cancel_ends_the_report_job_too_and_the_command_that_waits(tmp_path: Path) -> None:
    slow = {"kind": "rehearsal", "rehearsal": {"latency": 5}, "concurrency": 1}
    root = make_bare(tmp_path / "example", generate=slow)
    arguments = command("run", "--all", "--submit", "--wait", "--executor", "local")
    with subprocess.Popen(arguments, cwd=root, env=environment(), stdout=subprocess.PIPE, text=True) as waiting:
        eventually(lambda: of_kind(root, "arena-report") and of_kind(root, "arena-report")[0]["job"], "a report job")
        report = of_kind(root, "arena-report")[0]["job"]
        assert f"would cancel job {report}: it writes the report" in flock("cancel", "--dry-run", cwd=root).stdout
        assert f"cancelled job {report}\n" in flock("cancel", cwd=root).stdout
        text = waiting.communicate(timeout=120)[0]
    assert waiting.returncode == 1
    assert "The chain was cancelled." in text
    assert len(of_kind(root, "arena-report")) == 1
    assert not (root / "results").exists()
    assert_nothing_runs(root)


# --- limits -----------------------------------------------------------------------------------------------
def test_what_does_not_fit_is_handed_in_later_and_then_the_report(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example", (*EXAMPLES, EXAMPLE_BASELINE),
                     limits={"claim_stale": 1, "poll": 0.5, "max_submitted": 2})
    text = run(root)
    assert "judging batch(es) wait for answers that have no job yet: this command hands them in" in text
    assert_judged(root)
    assert len(of_kind(root, "arena-report")) == 1
    assert results(root)["missing.txt"].startswith("Nothing:")
    tasks = [(one["plan"], number) for one in submissions(root) for number in one["tasks"].values()]
    assert len(tasks) == len(set(tasks)) == 4 + 3


# --- bad options ------------------------------------------------------------------------------------------
def test_options_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    root = make_bare(tmp_path / "example")
    for typed in (["--wait"], ["--submit", "--dry-run"], ["--all", "--models", FIRST]):
        assert flock("run", *typed, cwd=root).returncode in (1, 2)
    assert submissions(root) == []
