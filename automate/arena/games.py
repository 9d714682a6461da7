"""What a game is, which games are wanted, and which of them are still due.

Pure: records come in, states go out; nothing here reads or writes a file."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import orjson

from automate.arena.benchmark import Answers, Question
from automate.arena.prompts import Message, Prompts
from automate.arena.verdict import ACCEPTED
from automate.errors import ConfigError
from automate.journal import Record

Slot = tuple[str, int]
"""(uid, order): order 1 shows the baseline as A, order 2 shows the model as A."""

FAILURES = ("unparsed", "too_long", "refused")
Outcome = Literal["verdict", "unparsed", "too_long", "refused"]


@dataclass(frozen=True)
class JudgeIdentity:
    """What of the judge decides a verdict: not its address, its path, or how it is loaded."""

    name: str
    weights: str
    temperature: float
    max_tokens: int

    def digest(self) -> bytes:
        return hashlib.sha256(
            orjson.dumps([self.name, self.weights, float(self.temperature), self.max_tokens])
        ).digest()


@dataclass(frozen=True, slots=True)
class Game:
    """One game: a model's answer against the baseline's on one question, in one order."""

    model: str
    uid: str
    order: int
    baseline: str
    category: str
    prompt_sha: str
    texts_sha: str
    key: str

    @property
    def slot(self) -> Slot:
        return self.uid, self.order


@dataclass(frozen=True)
class Match:
    """All that is needed to build the games of one bench against one baseline."""

    questions: Sequence[Question]
    prompts: Prompts
    baselines: Mapping[str, str]
    baseline_answers: Mapping[str, Answers]
    judge: JudgeIdentity

    @property
    def baseline_names(self) -> frozenset[str]:
        """The baselines' names, and what the rows of their answers call them."""
        return frozenset(self.baselines.values()) | {answers.row_model for answers in self.baseline_answers.values()}

    def baseline_of(self, category: str) -> str:
        """The baseline of a category. Raises ConfigError where the setting names none."""
        name = self.baselines.get(category, self.baselines.get("*"))
        if name is None:
            raise ConfigError(f"no baseline for the category '{category}'", where="baseline",
                              todo="give one model for all, or one for each category")
        return name

    def messages(self, answers: Answers, question: Question, order: int) -> list[Message]:
        """The judge's messages of one game (order 1: A is the baseline; order 2: A is the model)."""
        theirs = self.baseline_answers[self.baseline_of(question.category)].texts[question.uid]
        ours = answers.texts[question.uid]
        first, second = (theirs, ours) if order == 1 else (ours, theirs)
        return self.prompts.render(question.category, question.prompt, first, second)

    def texts(self, answers: Answers, question: Question) -> tuple[str, str, str]:
        """Question, baseline's answer and model's answer of a game."""
        theirs = self.baseline_answers[self.baseline_of(question.category)].texts[question.uid]
        return question.prompt, theirs, answers.texts[question.uid]

    def game(self, answers: Answers, question: Question, order: int, digest: bytes) -> Game:
        baseline = self.baseline_of(question.category)
        sha = prompt_sha(self.messages(answers, question, order))
        texts = texts_sha(self.texts(answers, question))
        parts = (answers.model, question.uid, str(order), baseline, sha)
        key = hashlib.sha256(digest + "\0".join(parts).encode()).hexdigest()[:32]
        return Game(answers.model, question.uid, order, baseline, question.category, sha, texts, key)

    def wanted(self, answers: Answers) -> list[Game]:
        """Every game of a model that has both answers, question by question, order 1 then 2."""
        digest = self.judge.digest()
        return [
            self.game(answers, question, order, digest)
            for question in self.questions
            if question.uid in answers.texts
            and question.uid in self.baseline_answers[self.baseline_of(question.category)].texts
            for order in (1, 2)
        ]


def prompt_sha(messages: Iterable[Mapping[str, object]]) -> str:
    """Hash of rendered messages: role and content of each, in order."""
    digest = hashlib.sha256()
    for message in messages:
        digest.update(f"{message['role']}\0{message['content']}\0".encode())
    return digest.hexdigest()[:32]


def texts_sha(texts: Iterable[str]) -> str:
    """Hash of question and answers, whatever prompt stands around them."""
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


def counts_for(row: Record, game: Game) -> bool:
    """Whether a row of another program stands for a game.

    It does without a prompt (unverified), with this very prompt, or with another prompt around the very same texts
    where the settings honour such rows (`texts_sha` is kept only then).
    """
    if row.get("baseline") != game.baseline:
        return False
    return row.get("prompt_sha") in (None, game.prompt_sha) or row.get("texts_sha") == game.texts_sha


@dataclass(frozen=True)
class GameState:
    """Where a game stands: its counting record, or the attempts made so far and why they failed."""

    record: Record | None = None
    attempts: int = 0
    failure: Record | None = None

    @property
    def done(self) -> bool:
        return self.record is not None


@dataclass
class Recorded:
    """A model's records, found by key or, for rows of other programs, by slot."""

    by_key: dict[str, Record] = field(default_factory=dict)
    failures: dict[str, list[Record]] = field(default_factory=dict)
    imported: dict[Slot, list[Record]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Take one record in; a second verdict for a key is dropped."""
        outcome, key = record.get("outcome"), record.get("key")
        if record.get("order") not in (1, 2):
            return  # not a game's record, whoever wrote it
        if record.get("source") == "import":
            self.imported.setdefault((str(record.get("uid")), int(record.get("order", 0))), []).append(record)
        elif not isinstance(key, str):
            return
        elif outcome == "verdict" and record.get("label") in ACCEPTED:
            self.by_key.setdefault(key, record)
        elif outcome in FAILURES:
            self.failures.setdefault(key, []).append(record)

    def state(self, game: Game, attempts: int) -> GameState:
        """A game is done with a verdict, or final after `attempts` failures; else it is due."""
        record = self.by_key.get(game.key)
        if record is not None:
            return GameState(record)
        rows = [row for row in self.imported.get(game.slot, ()) if counts_for(row, game)]
        if rows:  # one that was made with this very prompt, where there is one
            return GameState(next((row for row in rows if row.get("prompt_sha") == game.prompt_sha), rows[0]))
        failed = self.failures.get(game.key, [])
        if len(failed) >= attempts:
            return GameState(failed[-1], len(failed), failed[-1])
        return GameState(None, len(failed), failed[-1] if failed else None)


@dataclass(frozen=True)
class ModelStatus:
    """A model's games counted: wanted, done (with a label), final nulls by reason, due; and why due."""

    model: str
    wanted: int
    done: int
    nulls: Mapping[str, int]
    due: int
    questions_done: int
    unverified: int = 0
    other_prompt: int = 0
    short_labels: int = 0
    stale: int = 0
    retrying: int = 0

    @property
    def final(self) -> int:
        return sum(self.nulls.values())


def due_games(games: Iterable[Game], recorded: Recorded, attempts: int) -> list[Game]:
    """Wanted games minus recorded games."""
    return [game for game in games if not recorded.state(game, attempts).done]


def _has_other(recorded: Recorded, slots: set[Slot]) -> set[Slot]:
    """Slots for which some record exists, whatever prompt or judge setting it was made with."""
    seen = {(str(record.get("uid")), int(record.get("order", 0))) for record in recorded.by_key.values()}
    return (seen | set(recorded.imported)) & slots


def count(model: str, games: Sequence[Game], recorded: Recorded, attempts: int) -> ModelStatus:
    """Count a model's games by state."""
    states = {game: recorded.state(game, attempts) for game in games}
    records = [state.record for state in states.values() if state.record is not None]
    nulls: dict[str, int] = {}
    for record in records:
        if record["outcome"] != "verdict":
            nulls[record["outcome"]] = nulls.get(record["outcome"], 0) + 1
    due = {game.slot for game, state in states.items() if not state.done}
    finished: dict[str, int] = {}
    for game, state in states.items():
        finished[game.uid] = finished.get(game.uid, 0) + state.done
    return ModelStatus(
        model=model, wanted=len(games), done=len(records) - sum(nulls.values()), nulls=nulls, due=len(due),
        questions_done=sum(1 for n in finished.values() if n == 2),
        unverified=sum(1 for r in records if r.get("source") == "import" and r.get("prompt_sha") is None),
        other_prompt=sum(1 for r in records if r.get("source") == "import" and r.get("texts_sha") is not None),
        short_labels=sum(1 for r in records if r.get("short")),
        stale=len(_has_other(recorded, due)),
        retrying=sum(1 for state in states.values() if not state.done and state.attempts),
    )
