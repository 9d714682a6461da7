"""One line of a judgment, answer or battles file, of any version of Arena-Hard, to a few small values.

Never keeps a text: prompts, judgments and answers are skipped by the decoder. Reads no files."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Literal

import msgspec

from automate.arena.verdict import ACCEPTED
from automate.results.battles import NO_VERDICT

AS_MODEL_A = {"A>>B": 2, "A>B": 1, "A=B": 0, "B=A": 0, "B>A": -1, "B>>A": -2,
              "B<<A": 2, "B<A": 1, "A<B": -1, "A<<B": -2}
"""The verdict on the model where it is answer A (game 2); where it is B (game 1) it is the negative of this."""

assert AS_MODEL_A.keys() == ACCEPTED

CAUSES = ("too_long", "refused", "unparsed", "null", "bad_label", "missing_game")
"""Why a game has no verdict, as they are counted."""

_SAID = ("too_long", "refused", "unparsed")


class _Game(msgspec.Struct, gc=False):
    score: str | None = None


class _Row(msgspec.Struct, gc=False):
    uid: str | int | None = None
    question_id: str | int | None = None
    model: str | None = None
    category: str | None = None
    baseline: str | None = None
    games: list[_Game | None] | None = None


class _Battle(msgspec.Struct):
    model_a: str
    model_b: str
    winner: str
    question_id: str | int | None = None
    uid: str | int | None = None


_ROW = msgspec.json.Decoder(_Row)
_BATTLE = msgspec.json.Decoder(_Battle)


class FoundRow(msgspec.Struct, frozen=True, gc=False):
    """What a row says: both verdicts from the model's standpoint (or NO_VERDICT), and why one is missing.

    `causes` has an entry of CAUSES for each game without a verdict; `bad_labels` the labels that none knows.
    """

    uid: str
    model: str | None
    category: str | None
    baseline: str | None
    first: int
    second: int
    causes: tuple[str, ...] = ()
    bad_labels: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        return self.first != NO_VERDICT and self.second != NO_VERDICT


class BadLine(Exception):
    """A line that can't be used, and why."""


def _uid(uid: object, question_id: object) -> str:
    found = uid if uid is not None else question_id
    if isinstance(found, bool) or not isinstance(found, (str, int)) or found == "":
        raise BadLine("no uid (or question_id)")
    return str(found)


def read_row(line: bytes) -> FoundRow:
    """A judgment row: v2, v0.1, or v2 around v0.1 games. Raises BadLine."""
    try:
        row = _ROW.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return _read_loosely(line)
    games = row.games
    if games is not None and len(games) == 2 and games[0] is not None and games[1] is not None:
        first, second = AS_MODEL_A.get(games[0].score or ""), AS_MODEL_A.get(games[1].score or "")
        if first is not None and second is not None:
            uid = row.uid if row.uid.__class__ is str and row.uid else _uid(row.uid, row.question_id)
            return FoundRow(uid, row.model, row.category, row.baseline, -first, second)
    return _read_loosely(line)


def _parse(line: bytes) -> dict[str, object]:
    """A line that the quick decoder won't take: Python's own takes lone surrogates and NaN, as its writer does."""
    try:
        row = json.loads(line.decode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise BadLine(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    except RecursionError as error:
        raise BadLine("not a judgment row: nested too deeply") from error
    except ValueError as error:
        raise BadLine(f"not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadLine("not a JSON object")
    return row


def _text(value: object) -> str | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None


def _read_loosely(line: bytes) -> FoundRow:
    """Any row at all: nulls with their causes, labels that none knows, one game, fields of other types."""
    row = _parse(line)
    uid = _text(_uid(row.get("uid"), row.get("question_id"))) or ""
    games = row.get("games")
    if "games" not in row or not (games is None or isinstance(games, list)):
        raise BadLine("no games: not a judgment row")
    verdicts, causes, labels = [], [], []
    for position in range(2):
        verdict, cause, label = _game(games[position]) if games and position < len(games) else (0, "missing_game", None)
        verdicts.append(NO_VERDICT if cause else (-verdict if position == 0 else verdict))
        causes += [cause] if cause else []
        labels += [label] if label is not None else []
    return FoundRow(uid, _text(row.get("model")), _text(row.get("category")), _text(row.get("baseline")),
                    verdicts[0], verdicts[1], tuple(causes), tuple(labels))


def _game(game: object) -> tuple[int, str | None, str | None]:
    """(verdict where the model is A, cause where there is none, the label where none knows it)."""
    if game is None:
        return 0, "null", None
    if not isinstance(game, dict):
        return 0, "bad_label", f"({type(game).__name__} in place of a game)"
    label = game.get("score")
    if label is None:
        return 0, _said_cause(game.get("judgment")), None
    if isinstance(label, str) and label in AS_MODEL_A:
        return AS_MODEL_A[label], None, None
    shown = _text(label) if isinstance(label, (str, int)) else None
    return 0, "bad_label", (shown or f"({type(label).__name__})")[:40]


def _said_cause(judgment: object) -> str:
    """Why a score is null: flock-hpc writes it into `judgment.reason`; other programs only had no label."""
    reason = judgment.get("reason") if isinstance(judgment, dict) else None
    if isinstance(reason, str):
        return next((cause for cause in _SAID if reason.startswith(cause)), "unparsed")
    return "unparsed"


Outcome = Literal["model_a", "model_b", "tie"]
OUTCOMES = {"model_b": 1.0, "tie": 0.5, "tie (bothbad)": 0.5, "model_a": 0.0}
"""What a v0.1 battle is worth to model_b."""


def read_battle(line: bytes) -> tuple[str, str, str, float]:
    """A line of a v0.1 battles file: (question, model_a, model_b, what it is worth to model_b). Raises BadLine."""
    try:
        battle = _BATTLE.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(f"not a battle: {error}") from error
    worth = OUTCOMES.get(battle.winner)
    if worth is None:
        raise BadLine(f"winner is {battle.winner[:40]!r}, not model_a, model_b or tie")
    return _uid(battle.uid, battle.question_id), battle.model_a, battle.model_b, worth


class _Turn(msgspec.Struct):
    token_len: float | None = None


class _Choice(msgspec.Struct):
    turns: list[_Turn] | None = None


_Count = float | dict[str, float | None] | None


class _Metadata(msgspec.Struct):
    token_len: float | None = None
    header_count: _Count = None
    list_count: _Count = None
    bold_count: _Count = None


class _Counter(msgspec.Struct):
    tokenizer: str | None = None


class _Answer(msgspec.Struct):
    uid: str | int | None = None
    question_id: str | int | None = None
    metadata: _Metadata | None = None
    conv_metadata: _Metadata | None = None
    choices: list[_Choice] | None = None
    flock_hpc: _Counter | None = None


_ANSWER = msgspec.json.Decoder(_Answer)


@dataclass(frozen=True, slots=True)
class AnswerCounts:
    """An answer's tokens, headers, list items and bold texts, NaN where unknown; and which tokenizer counted."""

    uid: str
    counts: tuple[float, float, float, float]
    tokenizer: str | None


def read_answer_counts(line: bytes) -> AnswerCounts:
    """The style metadata of an answer row, v2 or v0.1. Raises BadLine."""
    try:
        row = _ANSWER.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        row = _answer_loosely(line)
    found = row.metadata or row.conv_metadata or _Metadata(token_len=_turn_tokens(row.choices))
    counts = (_total(found.token_len), _total(found.header_count), _total(found.list_count), _total(found.bold_count))
    return AnswerCounts(_uid(row.uid, row.question_id), counts, row.flock_hpc.tokenizer if row.flock_hpc else None)


def _answer_loosely(line: bytes) -> _Answer:
    """A row with fields of other types: what can be read of it."""
    row = _parse(line)
    kept: dict[str, object] = {name: row.get(name) for name in ("uid", "question_id")}
    for name, kind in (("metadata", _Metadata), ("conv_metadata", _Metadata), ("choices", list[_Choice]),
                       ("flock_hpc", _Counter)):
        try:
            kept[name] = msgspec.convert(row.get(name), kind)
        except (msgspec.ValidationError, TypeError):
            kept[name] = None
    return _Answer(**kept)  # type: ignore[arg-type]


def _turn_tokens(choices: list[_Choice] | None) -> float | None:
    turns = choices[0].turns if choices else None
    return turns[0].token_len if turns else None


def _total(count: _Count) -> float:
    """A count, or the sum of its kinds (h1..h6, ordered and unordered, ** and __); NaN where there is none."""
    if isinstance(count, dict):
        known = [value for value in count.values() if value is not None]
        count = sum(known) if known else None
    return math.nan if count is None or not 0 <= count < math.inf else float(count)
