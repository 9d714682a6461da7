"""An audit in words: each cause with its count, as tables, lists and plans say it.

Pure; the same words stand everywhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from automate.arena.audit import CHANGED, NOT_JUDGED, TO_RETRY, GamesAudit
from automate.arena.audit_answers import AnswersAudit
from automate.arena.audit_rows import ONE_GAME, OTHER
from automate.errors import visible

ROWS = {  # of files, one and more
    "null": ("null", "nulls"), "wrong label": ("wrong label", "wrong labels"),
    "one-game row": ("one-game row", "one-game rows"), "duplicate uid": ("duplicate uid", "duplicate uids"),
    "other baseline": ("row against another baseline", "rows against another baseline"),
    "unknown uid": ("row of an unknown uid", "rows of unknown uids"),
    "other model or judge": ("row of another model or judge", "rows of another model or judge"),
    "bad line": ("bad line", "bad lines"), "torn line": ("torn line", "torn lines"),
    "unwritten": ("answer not in the file yet", "answers not in the file yet"),
    "not in the file": ("question not in the file", "questions not in the file"),
}
_GAMES = {
    NOT_JUDGED: ("game not judged", "games not judged"), TO_RETRY: ("game to ask again", "games to ask again"),
    CHANGED: ("game judged before answers, judge or prompt changed", "games judged before answers, judge or prompt "
              "changed"),
    OTHER: ("game judged against another baseline only", "games judged against another baseline only"),
    ONE_GAME: ("game missing in its row", "games missing in their rows"),
}


def counted(many: int, cause: str, words: Mapping[str, tuple[str, str]] = ROWS) -> str:
    """A cause with its count: `1 null`, `3 wrong labels`."""
    one, more = words.get(cause) or ROWS.get(cause, (cause, cause))
    return f"{many:,} {one if many == 1 else more}".replace("_", " ")


def plain(one: str, more: str, many: int) -> str:
    """`1 answer`, `2 answers`."""
    return f"{many:,} {one if many == 1 else more}"


def answers_due(found: AnswersAudit) -> list[str]:
    """Why questions are to be asked, a piece each."""
    if found.problem:
        return [visible(found.problem)]
    out = ["no answers"] if found.missing == found.wanted else [plain("answer missing", "answers missing",
                                                                     found.missing)] * bool(found.missing)
    return out + [f"{plain('stale answer', 'stale answers', count)} ({why})" for why, count in found.stale.items()]


def answers_in_file(found: AnswersAudit) -> list[str]:
    """What is to be mended in a model's answer file."""
    parts = {"duplicate uid": found.duplicates, "bad line": found.bad - found.torn, "torn line": found.torn,
             "unwritten": found.unwritten}
    return [counted(count, cause) for cause, count in parts.items() if count]


def answers_faults(found: AnswersAudit) -> list[str]:
    """What is wrong with a model's answers, a piece each."""
    out = answers_due(found)
    out += [f"{plain('answer', 'answers', count)} given up ({why.replace('_', ' ')})"
            for why, count in found.failed.items()]
    return out + answers_in_file(found)


def answers_remarks(found: AnswersAudit) -> list[str]:
    """What a reader should know of a model's answers that is not wrong with them."""
    out = [plain("empty answer", "empty answers", found.empty)] * bool(found.empty)
    out += [f"{found.rehearsed:,} of a rehearsal"] * bool(found.rehearsed)
    out += [f"answers to {plain('uid', 'uids', found.unknown)} that are no question"] * bool(found.unknown)
    return out


def games_due(found: GamesAudit) -> list[str]:
    """Why games are to be judged, a piece each."""
    if found.state == "missing":
        return ["no judgments"]
    out = [counted(count, cause, _GAMES) for cause, count in found.causes.items()]
    return out + [plain("game without an answer", "games without an answer", found.unanswered)] * bool(
        found.unanswered)


def games_in_file(found: GamesAudit) -> list[str]:
    """What is to be mended in a model's judgment file."""
    return [counted(count, cause) + (_labels(found.labels) if cause == "wrong label" else "")
            for cause, count in found.file.items()]


def games_faults(found: GamesAudit) -> list[str]:
    """What is wrong with a model's judgments, a piece each: games that are due first; nothing is said twice."""
    both = {cause for cause in found.causes if cause in found.file}
    return games_due(replace(found, causes={why: count for why, count in found.causes.items() if why not in both}) if
                     found.state != "missing" else found) + games_in_file(found)


def _labels(labels: Mapping[str, int]) -> str:
    some = sorted(labels.items(), key=lambda item: -item[1])[:3]
    return f" ({', '.join(f'{visible(label)} {count:,}' for label, count in some)})" if some else ""


def nulls(reasons: Mapping[str, int]) -> str:
    """Games that ended without a label: `3 unparsed, 1 too long`."""
    return ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(reasons.items()))


def joined(pieces: Iterable[str]) -> str:
    """Pieces as one line."""
    return "; ".join(pieces)
