"""Reads the texts of games for the report: both verdicts of each question with the judge's words, answers, questions.

Never computes a score; streams files line by line and passes over lines that are no rows (reading.py counts those)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from automate.arena.rows import said_to_judge
from automate.arena.verdict import SHORT
from automate.journal import iter_lines

FROM_A = {"A>>B": 2, "A>B": 1, "A=B": 0, "B>A": -1, "B>>A": -2,
          "B<<A": 2, "B<A": 1, "B=A": 0, "A<B": -1, "A<<B": -2}
"""A label as a verdict on the answer that was shown as A."""

Place = tuple[str, str]
"""(baseline, uid): the games of one question are compared with one baseline."""


@dataclass(frozen=True)
class Told:
    """What one judge said on a question in both orders: labels, words, and verdicts from the model's standpoint."""

    judge: int
    labels: tuple[str | None, str | None]
    words: tuple[str, str]
    verdicts: tuple[int | None, int | None]

    @property
    def complete(self) -> bool:
        return None not in self.verdicts

    @property
    def rank(self) -> int:
        """How much a reader wants to see it: 0 the orders name different winners, 3 they say the same."""
        first, second = self.verdicts
        if first is None or second is None:
            return 2
        if first * second < 0:
            return 0
        return 1 if (first == 0) != (second == 0) else 3


@dataclass(frozen=True)
class Duel:
    """One question of a model against a baseline, by all judges. `given`: what the first judge was given, if kept."""

    uid: str
    baseline: str
    category: str
    told: tuple[Told, ...]
    given: str | None = None

    @property
    def rank(self) -> int:
        return min(one.rank for one in self.told)


def load_row(line: bytes) -> dict[str, object] | None:
    """A JSON object, also where its texts hold what can't be encoded; None where the line is none."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return None
    return value if isinstance(value, dict) else None


def uid_of(row: dict[str, object]) -> str | None:
    """A row's uid as text, v2's or v0.1's; None where it has none."""
    uid = row.get("uid", row.get("question_id"))
    return str(uid) if isinstance(uid, (str, int)) and not isinstance(uid, bool) and str(uid) else None


def verdict_of(label: object, order: int) -> int | None:
    """A label from the model's standpoint (order 1 shows the baseline as A), or None where it is no label."""
    value = FROM_A.get(SHORT.get(label, label)) if isinstance(label, str) else None
    return None if value is None else (-value if order == 1 else value)


def read_duels(files: Sequence[tuple[int, Path]], baseline: str | None = None,
               category: str | None = None, *, keep_given: bool = False) -> list[Duel]:
    """A model's questions from judgment files, each with its judge's number, those a reader wants to see first.

    Rows against another baseline than `baseline` and of another category than `category` are passed over. Of a
    question that a judge's files hold twice the last row with both verdicts counts, else the last, as in scores.
    `keep_given`: keep what a judge was given in the first order, for data without answers.
    """
    told: dict[Place, dict[int, Told]] = {}
    categories: dict[Place, str] = {}
    given: dict[Place, str | None] = {}
    for judge, path in files:
        for uid, row in _rows(path):
            against, kind = str(row.get("baseline") or baseline or ""), str(row.get("category") or "")
            if baseline not in (None, against) or category not in (None, kind):
                continue
            place = (against, uid)
            categories.setdefault(place, kind)
            if keep_given and not given.get(place):
                given[place] = _given(row)
            found, says = _told(row, judge), told.setdefault(place, {})
            if found.complete or judge not in says or not says[judge].complete:
                says[judge] = found
    duels = [Duel(place[1], place[0], categories[place], tuple(says.values()), given.get(place))
             for place, says in told.items()]
    return sorted(duels, key=lambda duel: duel.rank)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, object]]]:
    for _, line, _ in iter_lines(path):
        row = load_row(line)
        uid = uid_of(row) if row else None
        if row is not None and uid is not None and isinstance(row.get("games"), list):
            yield uid, row


def _told(row: dict[str, object], judge: int) -> Told:
    games = row["games"]
    both = [*games, None, None][:2] if isinstance(games, list) else [None, None]
    labels = [_label(game) for game in both]
    verdicts = [verdict_of(label, order) for order, label in enumerate(labels, 1)]
    words = [_words(game) for game in both]
    return Told(judge, (labels[0], labels[1]), (words[0], words[1]), (verdicts[0], verdicts[1]))


def _given(row: dict[str, object]) -> str | None:
    """The user's message that the judge was given in the first order."""
    games = row["games"]
    first = games[0] if isinstance(games, list) and games else None
    return said_to_judge(first) if isinstance(first, dict) else None


def _label(game: object) -> str | None:
    label = game.get("score") if isinstance(game, dict) else None
    return None if label is None else str(label)[:40]


def _words(game: object) -> str:
    """What the judge wrote, or the reason why there is nothing."""
    said = game.get("judgment") if isinstance(game, dict) else None
    if isinstance(said, dict):
        return "\n".join(str(said[key]) for key in ("answer", "reason") if isinstance(said.get(key), str) and said[key])
    return said if isinstance(said, str) else ""


def read_answer_texts(path: Path) -> dict[str, str]:
    """A model's answers by uid, v2 or v0.1 rows; empty where there is no file. Later rows of a uid win."""
    return {uid: text for uid, text in _texts(path, _answer) if text is not None}


def read_question_texts(path: Path) -> dict[str, str]:
    """The questions' texts by uid; empty where there is no file."""
    return {uid: text for uid, text in _texts(path, _prompt) if text is not None}


def _texts(path: Path, text_of: Callable[[dict[str, object]], object]) -> Iterator[tuple[str, str | None]]:
    if not path.is_file():
        return
    for _, line, _ in iter_lines(path):
        row = load_row(line)
        uid = uid_of(row) if row else None
        if row is not None and uid is not None:
            text = text_of(row)
            yield uid, text if isinstance(text, str) else None


def _last(value: object, place: int = -1) -> dict[str, object]:
    found = value[place] if isinstance(value, list) and value else None
    return found if isinstance(found, dict) else {}


def _answer(row: dict[str, object]) -> object:
    if "messages" in row:
        content = _last(row["messages"]).get("content")
        return content.get("answer") if isinstance(content, dict) else content
    return _last(_last(row.get("choices"), 0).get("turns"), 0).get("content")


def _prompt(row: dict[str, object]) -> object:
    prompt = row.get("prompt")
    return prompt if prompt is not None else _last(row.get("turns"), 0).get("content")
