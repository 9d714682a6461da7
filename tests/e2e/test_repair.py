"""Damaged answers and judgments: counted exactly by `status`, mended by `repair`, and every old file kept."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from automate.arena.audit import audit
from automate.workspace import open_workspace
from tests.e2e.support import (
    BASELINE,
    BENCH,
    EXAMPLE_BASELINE,
    EXAMPLES,
    TULU,
    assert_complete,
    assert_nothing_runs,
    change_settings,
    flock,
    journal,
    judge_now,
    judge_settings,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    rows_file,
    said,
)
from tests.unit.audit_support import Damage

STEP, OTHER, FINAL = TULU


def status(root: Path, *args: str, exit_status: int = 0) -> dict[str, Any]:
    """What `status --json` says."""
    done = flock("status", "--json", *args, cwd=root)
    assert done.returncode == exit_status, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def judgments(root: Path, model: str) -> dict[str, Any]:
    """What it says of a model's judgments."""
    return next(one["judgments"] for one in status(root)["models"] if one["model"] == model)


def answers(root: Path, model: str) -> dict[str, Any]:
    return next(one["answers"] for one in status(root)["models"] if one["model"] == model)


def answer_file(root: Path, model: str) -> Path:
    return root / "arena-hard-auto" / "data" / BENCH / "model_answer" / f"{model}.jsonl"


def repair(root: Path, *args: str, exit_status: int = 0) -> str:
    """`repair` with these options; what it said."""
    done = flock("repair", *args, cwd=root)
    assert done.returncode == exit_status, f"{done.returncode}:\n{done.stdout}\n{done.stderr}"
    return said(done)


def repaired(root: Path, *args: str) -> str:
    return repair(root, "--submit", "--wait", "--executor", "local", *args)


def kept(root: Path) -> set[bytes]:
    """The contents of all files that were superseded."""
    return {path.read_bytes() for path in (root / ".flock-hpc" / "superseded").rglob("*.jsonl")}


def forget_journal(root: Path) -> None:
    """Leave what upstream's program leaves: judgment files only."""
    shutil.rmtree(root / ".flock-hpc")


def all_complete(root: Path) -> None:
    """Everything is complete, by the command and by the files."""
    assert status(root, "--check")["complete"]
    questions = read_questions(root)
    real = (root / "arena_hard_models_to_test.txt").read_text().split()
    base = BASELINE if real[0] in TULU else EXAMPLE_BASELINE
    for model in real:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=read_answers(root, base),
                        ours=read_answers(root, model))
    assert_nothing_runs(root)


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A complete campaign of three real checkpoints over 120 questions; tests work on copies of it."""
    root = make_workspace(tmp_path_factory.mktemp("real") / "campaign", real=True, questions=120)
    judge_now(root, "--all")
    return root


@pytest.fixture
def campaign(judged: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(judged, tmp_path / "campaign"))


def test_a_damaged_file_of_another_program_is_counted_exactly_and_judged_again_where_it_must(campaign: Path) -> None:
    forget_journal(campaign)
    damage = Damage(rows_file(campaign, STEP), seed=4)
    damage.drop(11)
    damage.null(7)
    damage.unparsed(5)
    damage.label(6)
    damage.one_game(4)
    damage.double(3)
    damage.rebase(2, "gpt-4")
    damage.strange(8)
    damage.tear()
    old = damage.write()
    found = judgments(campaign, STEP)
    assert found["file"] == {"null": 7, "unparsed": 5, "wrong label": 6, "one-game row": 4, "duplicate uid": 3,
                             "other baseline": 2, "unknown uid": 8, "torn line": 1}
    assert found["causes"] == {"not judged": 2 * (11 + 1), "null": 7, "unparsed": 5, "wrong label": 6,
                               "one-game row": 4, "other baseline": 2 * 2}
    assert found["labels"] == {"A": 6}
    due = 24 + 7 + 5 + 6 + 4 + 4
    assert (found["state"], found["due"], found["done"]) == ("invalid", due, 240 - due)
    assert {model: judgments(campaign, model)["state"] for model in (OTHER, FINAL)} == {
        OTHER: "complete", FINAL: "complete"}
    dry = repair(campaign, "--dry-run")
    assert f"{STEP}: {due} games: 24 games not judged;" in dry
    assert "8 rows of unknown uids" in dry
    assert f"{OTHER}:" not in dry
    assert rows_file(campaign, STEP).read_bytes() == old
    assert not (campaign / ".flock-hpc" / "superseded").exists()
    repaired(campaign)
    all_complete(campaign)
    assert old in kept(campaign)
    played = [record for record in journal(campaign, STEP) if record["source"] == "engine"]
    assert len(played) == due
    assert [row["baseline"] for row in read_rows(rows_file(campaign, STEP, "gpt-4"))] == ["gpt-4"] * 2


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_exact_whatever_is_damaged(campaign: Path, seed: int) -> None:
    if seed % 2:
        forget_journal(campaign)
    damage, source = Damage(rows_file(campaign, STEP), seed), random.Random(seed)
    drop, null, unparsed, label, one, double, base = (source.randrange(9) for _ in range(7))
    damage.drop(drop)
    damage.null(null)
    damage.unparsed(unparsed)
    damage.label(label, source.choice(["A", "B", "C>D", "", "A>>>B"]))
    damage.one_game(one)
    damage.double(double)
    damage.rebase(base, "gpt-4")
    if seed % 3:
        damage.tear()
    damage.write()
    torn = int(bool(seed % 3))
    found = audit(open_workspace(campaign), TULU).models[0].games
    in_file = {"null": null, "unparsed": unparsed, "wrong label": label, "one-game row": one, "duplicate uid": double,
               "other baseline": base, "torn line": torn}
    due = {"not judged": 2 * (drop + torn), "null": null, "unparsed": unparsed, "wrong label": label,
           "one-game row": one, "other baseline": 2 * base}
    if not seed % 2:  # the journal has every game: only the file is to be mended
        in_file, due = {**in_file, "not in the file": drop + torn + base}, {}
    assert found.file == {why: count for why, count in in_file.items() if count}
    assert found.causes == {why: count for why, count in due.items() if count}
    assert (found.due, found.done) == (sum(due.values()), 240 - sum(due.values()))


def test_a_damaged_file_of_our_own_is_mended_without_a_judge(campaign: Path) -> None:
    damage = Damage(rows_file(campaign, STEP), seed=5)
    damage.drop(9)
    damage.null(3)
    damage.double(2)
    damage.tear()
    old = damage.write()
    found = judgments(campaign, STEP)
    assert (found["state"], found["due"], found["causes"]) == ("invalid", 0, {})
    assert found["file"] == {"null": 3, "duplicate uid": 2, "torn line": 1, "not in the file": 10}
    words = repair(campaign)
    assert "Mend judgment files, without any model: 1 model" in words
    assert "submitted" not in words
    all_complete(campaign)
    assert old in kept(campaign)


def test_a_change_of_answers_makes_judgments_stale_until_they_are_judged_again(campaign: Path) -> None:
    damage = Damage(answer_file(campaign, FINAL), seed=6)
    questions = read_questions(campaign)
    changed = [row for row in damage.rows if row["uid"] in questions][:5]
    for row in changed:
        row["messages"][-1]["content"]["answer"] += " (changed)"
    damage.write()
    found = judgments(campaign, FINAL)
    assert (found["state"], found["due"], found["causes"]) == ("stale", 10, {"changed since": 10})
    repaired(campaign)
    all_complete(campaign)


def test_damaged_answers_are_counted_exactly_and_mended(campaign: Path) -> None:
    damage = Damage(answer_file(campaign, OTHER), seed=7)
    asked = read_questions(campaign)
    damage.left = [place for place in damage.left if damage.rows[place]["uid"] in asked]
    damage.drop(13)
    damage.double(4)
    damage.ask(6)
    damage.tear()
    old = damage.write()
    found = answers(campaign, OTHER)
    assert (found["state"], found["done"], found["missing"], found["due"]) == ("invalid", 100, 14, 20)
    assert (found["duplicates"], found["bad"], found["torn"]) == (4, 1, 1)
    assert found["stale"] == {"another question text": 6}
    assert found["unknown"] == 750 - 120
    games = judgments(campaign, OTHER)
    assert (games["unanswered"], games["done"]) == (28, 240 - 28)
    assert f"{OTHER}: 20 questions: 14 answers missing; 6 stale answers" in repair(campaign, "--dry-run")
    assert answer_file(campaign, OTHER).read_bytes() == old
    # without a way to generate its answers the file is mended all the same
    repair(campaign, "--models", OTHER, exit_status=1)
    found = answers(campaign, OTHER)
    assert (found["state"], found["duplicates"], found["bad"], found["due"]) == ("incomplete", 0, 0, 20)
    assert old in kept(campaign)


def test_answers_are_generated_and_judged_in_one_go(campaign: Path) -> None:
    change_settings(campaign, generate={"kind": "rehearsal"})
    damage = Damage(answer_file(campaign, OTHER), seed=8)
    asked = read_questions(campaign)
    damage.left = [place for place in damage.left if damage.rows[place]["uid"] in asked]
    damage.drop(9)
    damage.ask(3)
    damage.double(2)
    damage.tear()
    old_answers = damage.write()
    rows = Damage(rows_file(campaign, STEP), seed=8)
    rows.label(4, "[[A]]")
    old_rows = rows.write()
    answer_file(campaign, FINAL).unlink()
    old_final = rows_file(campaign, FINAL).read_bytes()
    words = repair(campaign, "--dry-run", "--executor", "local")
    assert f"{OTHER}: 13 questions: 10 answers missing; 3 stale answers" in words
    assert f"{FINAL}: 120 questions: no answers" in words
    repaired(campaign)
    assert answers(campaign, OTHER)["rehearsed"] == 13
    all_complete(campaign)
    assert {old_answers, old_rows, old_final} <= kept(campaign)


@pytest.fixture
def example(tmp_path: Path) -> Path:
    """The bundled example with answers by a rehearsal: 12 questions, three models, 72 games."""
    return make_workspace(tmp_path / "example", generate={"kind": "rehearsal"})


def test_final_nulls_are_asked_again_on_request(example: Path) -> None:
    judge_settings(example, rehearsal={"no_label": 1.0, "ignore_structured": True})
    judge_now(example, "--models", EXAMPLES[0])
    found = judgments(example, EXAMPLES[0])
    assert (found["state"], found["nulls"]) == ("complete", {"unparsed": 24})
    judge_settings(example, rehearsal={})
    one = ("--models", EXAMPLES[0])
    assert "Nothing to do" in repair(example, *one, "--dry-run")
    assert "24 games: 24 asked again that ended without a label" in repair(example, *one, "--nulls", "--dry-run")
    repaired(example, *one, "--nulls")
    found = judgments(example, EXAMPLES[0])
    assert (found["state"], found["nulls"], found["done"]) == ("complete", {}, 24)
    assert "Nothing to do" in repair(example, *one, "--nulls", "--dry-run")


def test_lists_are_taken_by_judge_and_generate(example: Path) -> None:
    judge_now(example, "--models", EXAMPLES[0])
    answer_file(example, EXAMPLES[1]).unlink()
    done = flock("status", "--lists", "lists", cwd=example)
    assert done.returncode == 0
    lists = sorted(path.name for path in (example / "lists").iterdir())
    assert lists == ["incomplete_judgments_list.txt", "incomplete_models_list.txt", "invalid_judgments_list.txt",
                     "missing_judgments_list.txt", "missing_models_list.txt"]
    assert "lists/missing_models_list.txt: 1" in done.stdout
    empty = "lists/incomplete_models_list.txt"
    for command in ("judge", "generate"):
        nothing = flock(command, "--models-file", empty, "--dry-run", cwd=example)
        assert nothing.returncode == 0
        assert "Nothing to do" in said(nothing)
    judge_now(example, "--models-file", "lists/missing_judgments_list.txt")
    made = flock("generate", "--submit", "--wait", "--executor", "local", "--models-file",
                 "lists/missing_models_list.txt", cwd=example)
    assert made.returncode == 0, made.stdout + made.stderr
    found = {one["model"]: one for one in status(example)["models"]}
    assert [found[name]["answers"]["state"] for name in EXAMPLES] == ["complete"] * 3
    assert [found[name]["judgments"]["state"] for name in EXAMPLES] == ["complete", "missing", "complete"]


def test_status_is_plain_when_piped_and_fails_only_when_asked_to(example: Path) -> None:
    (example / "arena_hard_models_to_test.txt").write_text(f"{EXAMPLES[0]}\n[bold]x\nbad/name\n{EXAMPLES[0]}\n")
    done = flock("status", cwd=example)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert "[bold]x" in done.stdout
    assert "'bad/name' can't be used" in done.stdout
    assert "flock-hpc repair --submit" in done.stdout
    assert max(map(len, done.stdout.split("\n"))) < 400
    assert not (example / ".flock-hpc" / "plans").exists()
    found = status(example, "--check", exit_status=1)
    assert (found["schema"], found["complete"], found["totals"]["games_due"]) == (1, False, 24)
    assert found["totals"]["judgments"] == {"missing": 2}
    judge_now(example, "--models", EXAMPLES[0])
    assert status(example, "--check", "--models", EXAMPLES[0])["complete"]


def test_what_is_in_work_is_left_alone_and_told(example: Path) -> None:
    judge_settings(example, rehearsal={"latency": 0.5}, concurrency=1)
    assert flock("judge", "--submit", "--executor", "local", cwd=example).returncode == 0
    try:
        done = flock("status", cwd=example)
        assert "batch is waiting or running: these numbers may move" in said(done)
        assert "is at work on its games" in said(done)
        assert "left alone, batch 1" in repair(example, "--dry-run", "--executor", "local")
    finally:
        flock("cancel", cwd=example)
    assert_nothing_runs(example)


def test_without_the_baseline_it_is_generated_first(example: Path) -> None:
    answer_file(example, EXAMPLE_BASELINE).unlink()
    done = flock("status", cwd=example)
    assert done.returncode == 0
    assert f"baseline {EXAMPLE_BASELINE}: no answers" in done.stdout
    assert "complete 12" in done.stdout
    assert f"no answers of the baseline '{EXAMPLE_BASELINE}'" in said(done)
    repaired(example)
    assert status(example, "--check")["complete"]


def test_a_plain_repair_says_how_it_is_submitted(campaign: Path) -> None:
    forget_journal(campaign)
    rows_file(campaign, STEP).unlink()
    words = repair(campaign, "--executor", "local")
    assert "Submit with: flock-hpc repair --submit" in words
    assert "sbatch" not in words
    table = flock("status", cwd=campaign, env={"COLUMNS": "100"}).stdout.partition("\n\n")[0]
    assert max(len(line) for line in table.split("\n")) <= 100
