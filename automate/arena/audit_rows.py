"""Judgment files of any program counted: rows, verdicts, and what is wrong with them, game by game.

Never changes a file; which games count is not decided here but by the records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from automate.arena.games import FAILURES
from automate.arena.verdict import ACCEPTED
from automate.journal import Record, iter_lines, parse_object

OK, NULL, BAD_LABEL, ONE_GAME, OTHER = "ok", "null", "wrong label", "one-game row", "other baseline"
"""What a file says of a game: a verdict; no game; a label that is none; no second game; judged against another."""
NULLS = (NULL, *FAILURES)
_WORSE = {word: place for place, word in enumerate((OK, BAD_LABEL, *FAILURES, NULL, ONE_GAME, OTHER))}


@dataclass(frozen=True)
class Sought:
    """Whose rows are looked for. `positions`: of the questions looked at; `known`: uids of the whole set.

    `baselines(uid)`: names that the question's baseline has in rows. `names`: those of the model; `judge`: its name.
    """

    positions: Mapping[str, int]
    known: Collection[str]
    baselines: Callable[[str], Collection[str]]
    names: Collection[str]
    judge: str


@dataclass
class RowsAudit:
    """One judgment file, counted. `slots`: what it says of each game (twice the question's position, 1 more for the
    second game); `rows` are those that count or would, `verdicts` their good labels."""

    path: Path
    rows: int = 0
    verdicts: int = 0
    nulls: Counter[str] = field(default_factory=Counter)
    labels: Counter[str] = field(default_factory=Counter)
    one_game: int = 0
    duplicates: int = 0
    other_baseline: Counter[str] = field(default_factory=Counter)
    unknown: int = 0
    strangers: int = 0
    bad: int = 0
    torn: int = 0
    problems: list[str] = field(default_factory=list)
    slots: dict[int, str] = field(default_factory=dict)


def audit_rows(path: Path, sought: Sought, *, own: bool) -> RowsAudit:
    """Count a judgment file, v2 or v0.1 rows; `own`: rows that say no baseline are against the sought one.

    Raises StorageError where it can't be read.
    """
    found = RowsAudit(path)
    seen: set[str] = set()
    for number, line, whole in iter_lines(path) if path.is_file() else ():
        try:
            row = parse_object(line)
            uid, games = _parts(row)
        except ValueError as error:
            found.bad, found.torn = found.bad + 1, found.torn + (not whole)
            found.problems.append(f"{path}:{number}: {'torn last line: ' if not whole else ''}{error}")
            continue
        if _counts(found, row, uid, sought, own):
            found.duplicates += uid in seen
            seen.add(uid)
            _take_games(found, games, sought.positions.get(uid))
    return found


def _parts(row: Record) -> tuple[str, list[object]]:
    uid, games = row.get("uid", row.get("question_id")), row.get("games")
    if not isinstance(games, list) or not isinstance(uid, (str, int)):
        raise ValueError("no uid and games: not a judgment row")
    return str(uid), games


def _counts(found: RowsAudit, row: Record, uid: str, sought: Sought, own: bool) -> bool:
    """Whether a row is of this model, judge, baseline and question; else it is counted by why not."""
    model, judge, baseline = row.get("model"), row.get("judge"), row.get("baseline")
    mine = model is None or model in sought.names or str(model).rpartition("/")[2] in sought.names
    if not mine or judge not in (sought.judge, None):
        found.strangers += 1
        return False
    if uid not in sought.known:
        found.unknown += 1
        return False
    against = isinstance(baseline, str) and baseline in sought.baselines(uid)
    if not against and (isinstance(baseline, str) or not own):
        found.other_baseline[str(baseline)] += 1
        position = sought.positions.get(uid) if own else None
        for slot in () if position is None else (2 * position, 2 * position + 1):
            found.slots.setdefault(slot, OTHER)
        return False
    found.rows += 1
    return True


def _take_games(found: RowsAudit, games: list[object], position: int | None) -> None:
    found.one_game += len(games) < 2
    for order in (0, 1):
        word = _word(found, games[order]) if order < len(games) else ONE_GAME
        if position is not None:
            slot = 2 * position + order
            found.slots[slot] = min(word, found.slots.get(slot, word), key=_WORSE.__getitem__)


def _word(found: RowsAudit, game: object) -> str:
    if not isinstance(game, dict):
        found.nulls[NULL] += 1
        return NULL
    score = game.get("score")
    if score is None:
        why = _why_null(game)
        found.nulls[why] += 1
        return why
    if not isinstance(score, str) or score not in ACCEPTED:
        found.labels[str(score)[:20]] += 1
        return BAD_LABEL
    found.verdicts += 1
    return OK


def _why_null(game: Mapping[str, object]) -> str:
    """Why a game has no label: the reason that flock-hpc wrote, unparsed where the judge said something, else null."""
    judgment = game.get("judgment")
    if isinstance(judgment, dict):
        reason = str(judgment.get("reason") or "").partition(":")[0]
        if reason in FAILURES:
            return reason
        judgment = judgment.get("answer")
    return "unparsed" if isinstance(judgment, str) and judgment.strip() else NULL
