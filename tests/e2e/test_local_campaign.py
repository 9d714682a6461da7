"""Whole campaigns on this machine, by the command line, with a rehearsal judge: what is played, kept and said."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.support import (
    BASELINE,
    EXAMPLE_BASELINE,
    EXAMPLES,
    LABELS,
    TULU,
    Key,
    Row,
    assert_complete,
    assert_no_sockets,
    assert_nothing_runs,
    bench_file,
    eventually,
    flock,
    games_of,
    jobs,
    journal,
    judge_now,
    judge_settings,
    make_workspace,
    read_answers,
    read_lines,
    read_questions,
    read_rows,
    repeated,
    rows_file,
    said,
    verdicts_of,
)

FAULTS = ({"status_500": 0.2, "status_429": 0.2, "drop": 0.2}, {"hang": 0.1, "think": 0.5}, {"die_after": 20})
MISLABELLED: tuple[dict[str, Any], ...] = ({"no_label": 0.5}, {"wrong_label": 0.5}, {"short_label": 0.5})


@pytest.fixture(scope="module")
def campaign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete campaign of three real checkpoints; tests that use it leave it complete."""
    root = make_workspace(tmp_path_factory.mktemp("real") / "campaign", real=True)
    judge_now(root, "--all", "--batch-size", "1")
    return root


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """A workspace with the bundled example: 12 questions, three models, 72 games."""
    return make_workspace(tmp_path / "example")


def assert_all_complete(root: Path, models: tuple[str, ...], baseline: str, *, nulls: bool = False) -> None:
    """Every model's rows are complete against the settings' baseline."""
    questions, theirs = read_questions(root), read_answers(root, baseline)
    for model in models:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=theirs, ours=read_answers(root, model),
                        nulls=nulls)


def monitor(root: Path) -> dict[str, Any]:
    """What `monitor --json` says."""
    done = flock("monitor", "--json", cwd=root)
    assert done.returncode == 0, done.stderr
    picture: dict[str, Any] = json.loads(done.stdout)
    return picture


def files_below(folder: Path, pattern: str = "**/*") -> dict[str, bytes]:
    """Every file's bytes, by its path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.glob(pattern) if path.is_file()}


# --- real checkpoints -----------------------------------------------------------------------------
def test_three_real_checkpoints_are_judged_whole(campaign: Path) -> None:
    assert len(read_questions(campaign)) == 750
    assert_all_complete(campaign, TULU, BASELINE)
    for model in TULU:
        assert sum(1 for text in read_answers(campaign, model).values() if not text) >= 169
        assert len(journal(campaign, model)) >= 1500
    assert len(games_of(campaign, TULU)) == 4500
    assert repeated(verdicts_of(campaign, TULU)) == []
    assert_nothing_runs(campaign)
    assert_no_sockets(campaign)


def test_a_second_run_has_nothing_to_do(campaign: Path) -> None:
    before, started = files_below(campaign / "arena-hard-auto"), jobs(campaign)
    assert "Nothing to do" in judge_now(campaign, "--all")
    assert jobs(campaign) == started
    assert files_below(campaign / "arena-hard-auto") == before


def test_another_baseline_has_files_of_its_own(campaign: Path) -> None:
    rival, others = TULU[0], TULU[1:]
    before = {model: rows_file(campaign, model).read_bytes() for model in TULU}
    judge_now(campaign, "--baseline", rival, "--models", *others)
    theirs = read_answers(campaign, rival)
    for model in others:
        rows = read_rows(rows_file(campaign, model, rival))
        assert {row["baseline"] for row in rows} == {rival}
        assert_complete(rows, read_questions(campaign), theirs=theirs, ours=read_answers(campaign, model))
    assert {model: rows_file(campaign, model).read_bytes() for model in TULU} == before
    assert "Nothing to do" in judge_now(campaign, "--all")


def test_a_changed_answer_makes_its_two_games_due(campaign: Path) -> None:
    file = bench_file(campaign, "model_answer", f"{TULU[1]}.jsonl")
    rows, before = read_lines(file), {row["uid"]: row for row in read_rows(rows_file(campaign, TULU[1]))}
    changed, played = rows[17]["uid"], len(journal(campaign, TULU[1]))
    rows[17]["messages"][-1]["content"]["answer"] = "Another answer altogether."
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    text = judge_now(campaign, "--all")
    assert "2 games are due again because prompt, judge or answers changed" in text
    assert "2 model(s) complete" in text
    assert len(journal(campaign, TULU[1])) == played + 2
    assert_all_complete(campaign, TULU, BASELINE)
    after = {row["uid"]: row for row in read_rows(rows_file(campaign, TULU[1]))}
    assert [uid for uid in before if before[uid] != after[uid]] == [changed]


# --- rows of other programs, and parts ------------------------------------------------------------
def _foreign(rows: list[Row]) -> bytes:
    """Ten rows as another program left them: a null game, a label that is none, and a torn last line."""
    ten = [{**row, "games": [dict(game) for game in row["games"]]} for row in rows[:10]]
    ten[2]["games"][0]["score"] = None
    ten[5]["games"][1]["score"] = "A"
    return b"".join(json.dumps(row).encode() + b"\n" for row in ten) + json.dumps(rows[10]).encode()[:200]


def test_rows_that_are_there_are_honoured(example: Path) -> None:
    model, file = EXAMPLES[0], rows_file(example, EXAMPLES[0])
    judge_now(example, "--models", model)
    rows = read_rows(file)
    shutil.rmtree(example / ".flock-hpc")
    file.write_bytes(_foreign(rows))
    text = judge_now(example, "--models", model)
    assert f"{model} 6" in text
    records = journal(example, model)
    assert len([record for record in records if record["source"] == "import"]) == 18
    played = {(record["uid"], record["order"]) for record in records if record["source"] == "engine"}
    uids = [row["uid"] for row in rows]
    assert played == {(uids[2], 1), (uids[5], 2), *((uid, order) for uid in uids[10:] for order in (1, 2))}
    assert_all_complete(example, (model,), EXAMPLE_BASELINE)


def test_only_the_first_questions(example: Path) -> None:
    judge_now(example, "--all", "--limit-questions", "5")
    first = sorted(list(read_questions(example))[:5])
    for model in EXAMPLES:
        assert sorted(row["uid"] for row in read_rows(rows_file(example, model))) == first
        assert len(journal(example, model)) == 10
    judge_now(example, "--all")
    assert_all_complete(example, EXAMPLES, EXAMPLE_BASELINE)
    assert repeated(verdicts_of(example, EXAMPLES)) == []


def test_a_cancelled_campaign_goes_on_where_it_was(example: Path) -> None:
    judge_settings(example, rehearsal={"latency": 1}, concurrency=2)
    assert flock("judge", "--all", "--submit", "--executor", "local", cwd=example).returncode == 0
    eventually(lambda: any(journal(example, model) for model in EXAMPLES), "a first game")
    cancelled = flock("cancel", cwd=example)
    assert "cancelled job local-1" in cancelled.stdout, cancelled.stderr
    eventually(lambda: not (now := monitor(example))["running"] and not now["pending"], "no job any more")
    kept = monitor(example)["totals"]["games"]
    assert 0 < kept < 72
    assert_nothing_runs(example)
    assert "no job of this workspace waits or runs" in flock("cancel", cwd=example).stdout
    judge_settings(example, rehearsal={}, concurrency="auto")
    judge_now(example, "--all")
    assert_all_complete(example, EXAMPLES, EXAMPLE_BASELINE)
    assert repeated(verdicts_of(example, EXAMPLES)) == []


def test_a_judge_that_still_loads_can_be_cancelled(example: Path) -> None:
    judge_settings(example, rehearsal={"load_seconds": 600})
    assert flock("judge", "--all", "--submit", "--executor", "local", cwd=example).returncode == 0
    logs = example / "logs" / "arena-hard" / "judgment_batches"
    eventually(lambda: any("waiting until it is ready" in log.read_text() for log in logs.glob("*.out")), "a start")
    assert flock("cancel", cwd=example).returncode == 0
    assert_nothing_runs(example)
    assert "played 0 of 72 games" in next(logs.glob("*.out")).read_text()


# --- what is refused ------------------------------------------------------------------------------
def test_all_faults_of_a_list_are_named_at_once(example: Path) -> None:
    answers = bench_file(example, "model_answer", f"{EXAMPLES[1]}.jsonl")
    answers.write_bytes(b"".join(line + b"\n" for line in answers.read_bytes().split(b"\n")[:7]))
    names = [*EXAMPLES, EXAMPLES[0], "example-step3000", "../elsewhere", EXAMPLE_BASELINE]
    (example / "arena_hard_models_to_test.txt").write_text("\n".join(names) + "\n")
    checked, refused = (flock(command, cwd=example) for command in ("validate-only", "judge"))
    for done in (checked, refused):
        assert done.returncode == 1
        for code in ("FH101", "FH102", "FH103", "FH104"):
            assert code in done.stdout, f"{code} missing:\n{done.stdout}"
        for text in ("twice", "../elsewhere", "example-step3000", "5 of 12 questions", "is the baseline"):
            assert text in said(done), f"{text} missing:\n{done.stdout}"
    assert "Nothing was planned" in refused.stdout
    assert jobs(example) == []


def test_models_that_are_not_ready_can_be_left_out(example: Path) -> None:
    bench_file(example, "model_answer", f"{EXAMPLES[1]}.jsonl").unlink()
    refused = said(flock("judge", "--all", "--submit", "--wait", "--executor", "local", cwd=example))
    assert "Nothing was planned" in refused
    assert "--skip-missing" in refused
    judge_now(example, "--all", "--skip-missing")
    assert_all_complete(example, (EXAMPLES[0], EXAMPLES[2]), EXAMPLE_BASELINE)
    assert not rows_file(example, EXAMPLES[1]).exists()


def test_dry_runs_write_the_same_bytes(example: Path) -> None:
    written = []
    for _ in range(2):
        done = flock("judge", "--dry-run", "--executor", "local", cwd=example)
        assert done.returncode == 0, done.stderr
        assert "nothing was submitted" in said(done).lower()
        written.append(files_below(example, "generated_judgment_*/*"))
    assert written[0] == written[1]
    assert len(written[0]) == 3
    assert jobs(example) == []


def test_no_workspace_says_how_to_make_one(tmp_path: Path) -> None:
    for command in ("judge", "monitor", "cancel", "validate-only"):
        done = flock(command, cwd=tmp_path)
        assert done.returncode == 1
        assert "flock-hpc init" in done.stderr
        assert "Traceback" not in done.stderr


# --- a judge that misbehaves ----------------------------------------------------------------------
@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    """Every game of the example with a judge without fault."""
    root = make_workspace(tmp_path_factory.mktemp("healthy") / "example")
    judge_now(root, "--all")
    return games_of(root, EXAMPLES)


@pytest.mark.parametrize("faults", FAULTS, ids="+".join)
def test_a_faulty_judge_changes_no_verdict(example: Path, healthy: list[Key], faults: dict[str, Any]) -> None:
    judge_settings(example, rehearsal=faults, concurrency=4, request_timeout=2)
    judge_now(example, "--all", "--batch-size", "10")
    assert_all_complete(example, EXAMPLES, EXAMPLE_BASELINE)
    assert games_of(example, EXAMPLES) == healthy
    assert repeated(verdicts_of(example, EXAMPLES)) == []
    assert_nothing_runs(example)
    assert_no_sockets(example)


@pytest.mark.parametrize("faults", MISLABELLED, ids="+".join)
def test_a_judge_without_clear_labels_gives_labels(example: Path, faults: dict[str, Any]) -> None:
    judge_settings(example, rehearsal=faults)
    judge_now(example, "--all")
    assert_all_complete(example, EXAMPLES, EXAMPLE_BASELINE)
    assert {label for _, _, _, label in games_of(example, EXAMPLES)} <= set(LABELS)
    unusual: Callable[[Row], Any] = lambda record: record.get("asked_twice") or record.get("short")  # noqa: E731
    assert 10 < sum(bool(unusual(record)) for model in EXAMPLES for record in journal(example, model)) < 62


def test_games_that_do_not_fit_become_nulls_with_a_reason(example: Path) -> None:
    judge_settings(example, rehearsal={"context": 1100}, max_tokens=512)
    text = judge_now(example, "--all")
    assert "start 2 of at most" in text
    assert_all_complete(example, EXAMPLES, EXAMPLE_BASELINE, nulls=True)
    games = [game for model in EXAMPLES for row in read_rows(rows_file(example, model)) for game in row["games"]]
    nulls = [game for game in games if game["score"] is None]
    assert 0 < len(nulls) < 72
    assert all(game["judgment"]["reason"].startswith("too_long: ") for game in nulls)
    picture = monitor(example)
    assert sum(model["nulls"].get("too_long", 0) for model in picture["models"]) == len(nulls)
    assert (picture["totals"]["nulls"], picture["totals"]["due"]) == (len(nulls), 0)
    assert "Nothing to do" in judge_now(example, "--all")


def test_a_moved_workspace_goes_on_with_scripts_for_its_new_folder(tmp_path: Path) -> None:
    old, new = make_workspace(tmp_path / "old", questions=2), tmp_path / "new"
    assert flock("judge", "--all", "--dry-run", cwd=old).returncode == 0
    old.rename(new)
    text = judge_now(new, "--all")
    assert f"the workspace was moved from {old}: scripts are written for the folder where it lies now" in text
    assert not any(str(old) in path.read_text() for path in (new / "generated_judgment_scripts").iterdir())
    assert len(games_of(new, EXAMPLES)) == 12
    assert "the workspace was moved" not in judge_now(new, "--all")


def test_a_second_submit_of_some_models_leaves_the_waiting_batches_of_others_waiting(tmp_path: Path) -> None:
    limits = {"claim_stale": 1, "poll": 0.5, "max_submitted": 1}
    root = make_workspace(tmp_path / "w", questions=2, batch_size=1, limits=limits)
    first = flock("judge", "--all", "--submit", "--executor", "local", cwd=root)
    assert "2 batches wait for room" in said(first)
    last = json.loads(sorted((root / ".flock-hpc/plans").glob("*.json"))[0].read_text())["batches"][-1]["models"][0]
    again = flock("judge", "--models", last, "--submit", "--executor", "local", cwd=root,
                  env={"FLOCK_HPC_LIMITS__MAX_SUBMITTED": "5"})
    assert "submitted" in said(again)
    assert (root / "generated_judgment_scripts" / "run_arena_hard_judgment_batch_2.sh").is_file()  # it waits for room
    assert [batch["batch"] for batch in monitor(root)["batches"] if batch["state"] == "planned"] == [2]
    judge_now(root, "--all")
    assert len(games_of(root, EXAMPLES)) == 12
    assert not repeated(games_of(root, EXAMPLES))


def test_no_more_batches_than_allowed_are_in_the_queue(tmp_path: Path) -> None:
    limits = {"claim_stale": 1, "poll": 0.5, "max_submitted": 1}
    root = make_workspace(tmp_path / "w", questions=2, batch_size=1, limits=limits)
    text = judge_now(root, "--all")
    assert "2 batches wait for room: limits.max_submitted=1; 1 is in the queue" in text
    assert text.count("handed in as job") == 2
    assert len(games_of(root, EXAMPLES)) == 12
