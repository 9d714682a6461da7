"""Small made-up bench folders in Arena-Hard's layout, for tests of reading and of the leaderboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from automate.results.reading.folder import BenchFolder
from tests.unit.support import write_lines

Row = dict[str, Any]

BENCH, JUDGE, AGAINST = "tiny", "judge", "base"


def game(score: str | None, **more: Any) -> Row:
    """A game of the newest shape."""
    return {"score": score, "judgment": {"answer": "said"}, "prompt": [{"role": "user", "content": "q\u2028q"}], **more}


def row(uid: str | int, first: object = "B>A", second: object = "A>B", **more: Any) -> Row:
    """A v2 row; a label stands for its game."""
    games = [game(one) if isinstance(one, str) else one for one in (first, second)]
    return {"uid": uid, "category": "hard", "judge": JUDGE, "model": "m", "baseline": AGAINST, "games": games, **more}


def rows(count: int, labels: Sequence[tuple[str, str]] = (("B>A", "A>B"), ("A>B", "B>A"), ("A=B", "A=B")),
         **more: Any) -> list[Row]:
    """Rows of questions q0, q1, ... with these labels by turns."""
    return [row(f"q{number}", *labels[number % len(labels)], **more) for number in range(count)]


def bench(root: Path, files: Mapping[str, Iterable[Row | bytes]], judge: str = JUDGE) -> BenchFolder:
    """A bench folder with judgment files by model (or `compared_with_x/model`); `model` of rows is the file's."""
    folder = BenchFolder(root / "data" / BENCH)
    for name, found in files.items():
        model = name.rpartition("/")[2]
        lines = [{**one, "model": model} if isinstance(one, dict) and one.get("model") == "m" else one for one in found]
        write_lines(folder.judgments / judge / f"{name}.jsonl", lines)
    return folder


def questions(folder: BenchFolder, uids: Iterable[str], category: str | None = None) -> None:
    """A questions file."""
    extra = {} if category is None else {"category": category}
    write_lines(folder.questions, ({"uid": uid, "prompt": "p", **extra} for uid in uids))


def answers(folder: BenchFolder, model: str, tokens: Mapping[str, int | None], **counts: int) -> None:
    """An answers file; None: an answer without metadata."""
    def one(uid: str, count: int | None) -> Row:
        found: Row = {"uid": uid, "model": model, "messages": [{"role": "user", "content": "x"}]}
        if count is not None:
            found["metadata"] = {"token_len": count, "header_count": {"h1": counts.get("headers", 0), "h2": 0},
                                 "list_count": {"ordered": counts.get("lists", 0), "unordered": 1},
                                 "bold_count": {"**": counts.get("bold", 0), "__": 0}}
        return found

    write_lines(folder.answers / f"{model}.jsonl", (one(uid, count) for uid, count in tokens.items()))
