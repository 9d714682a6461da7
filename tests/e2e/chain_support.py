"""What the tests of the chain share: workspaces whose models lack answers, and looks at what the chain left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.support import EXAMPLES, bench_file, journal, make_workspace, read_lines, rows_file

RESULTS = {"leaderboard.csv", "leaderboard.md", "leaderboard.txt", "missing.txt", "report.html", "report.json"}
QUESTIONS = 12


def make_bare(root: Path, bare: Sequence[str] = EXAMPLES, **settings: Any) -> Path:
    """The bundled example with rehearsal servers, in which these models have no answers."""
    make_workspace(root, **{"generate": {"kind": "rehearsal"}, "batch_size": 1, **settings})
    for model in bare:
        bench_file(root, "model_answer", f"{model}.jsonl").unlink()
    return root


def spoil(root: Path, model: str) -> None:
    """See to it that every job that would answer for a model fails at that: its records can't be written."""
    place = root / ".flock-hpc" / "answers" / "arena-hard-v2.0" / model
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file where a folder must be\n")


def submissions(root: Path) -> list[dict[str, Any]]:
    """What a workspace knows of its own submissions, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((root / ".flock-hpc" / "submissions").glob("*.json"))]


def of_kind(root: Path, word: str) -> list[dict[str, Any]]:
    """Submissions whose jobs' names begin with a word: answer, judge or arena-report."""
    return [one for one in submissions(root) if one["name"].startswith(word)]


def models_of(root: Path, plan: str, number: int) -> list[str]:
    """The models of a batch of a plan."""
    stored = json.loads((root / ".flock-hpc" / "plans" / f"{plan}.json").read_text())
    return next(batch["models"] for batch in stored["batches"] if batch["number"] == number)


def results(root: Path) -> dict[str, str]:
    """The files of results, by name."""
    return {path.name: path.read_text(encoding="utf-8") for path in (root / "results").iterdir() if path.is_file()}


def assert_judged(root: Path, models: Sequence[str] = EXAMPLES) -> None:
    """These models have an answer to each question and two games of each, each played once."""
    for model in models:
        assert len(read_lines(bench_file(root, "model_answer", f"{model}.jsonl"))) == QUESTIONS
        rows = read_lines(rows_file(root, model))
        assert len(rows) == QUESTIONS
        assert all(len(row["games"]) == 2 for row in rows)
        assert len(journal(root, model)) == 2 * QUESTIONS


def board(root: Path) -> list[str]:
    """The models of leaderboard.csv, sorted."""
    lines = (root / "results" / "leaderboard.csv").read_text(encoding="utf-8").split("\n")
    place = lines[0].split(",").index("model")
    return sorted(line.split(",")[place] for line in lines[1:] if line)
