"""The keys of a model's wanted games, kept in a cache: computing them hashes every prompt.

Never trusted where anything is in doubt: other texts, another judge or prompt, or a file that was changed while the
cache was written make them be computed again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import string
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import orjson

from automate.arena.benchmark import Answers, Question, missing_uids
from automate.arena.context import load_answers
from automate.arena.games import Game, Match
from automate.errors import StorageError
from automate.journal import replace_file
from automate.names import baseline_tag
from automate.workspace import Workspace

VERSION = 1
WIDTH = 16
"""Bytes of one hash; a question has five: two prompts, its texts, two keys."""
SETTLED = 2_000_000_000
"""How many nanoseconds a file must have been left alone before its cache was written: clocks of file systems tick
in steps, and a change within a step shows in no time stamp."""

Signature = tuple[int, int, int, int]
"""Size, time of the last change of the content and of the file (ns), and inode."""


@dataclass(frozen=True)
class Wanted:
    """The games that a model wants: `positions` are those of their questions, `hashes` five of 16 bytes for each."""

    model: str
    row_model: str
    answers: int
    empty: int
    missing: int
    problems: tuple[str, ...]
    positions: Sequence[int]
    hashes: bytes

    def index(self, limit: int) -> dict[bytes, int]:
        """Key (hex) -> slot, which is twice the question's position and 1 more for order 2; below `limit` questions."""
        text, step = self.hashes.hex().encode(), 10 * WIDTH
        places = [position for position in self.positions if position < limit]
        first = {text[at:at + 2 * WIDTH]: 2 * position
                 for at, position in zip(range(6 * WIDTH, len(text), step), places, strict=False)}
        second = {text[at:at + 2 * WIDTH]: 2 * position + 1
                  for at, position in zip(range(8 * WIDTH, len(text), step), places, strict=False)}
        return first | second

    def shas(self, position: int, order: int) -> tuple[str, str]:
        """Hash of a game's prompt, and of its texts."""
        start = bisect_left(self.positions, position) * 5 * WIDTH
        hashes = [self.hashes[start + n * WIDTH:start + (n + 1) * WIDTH].hex() for n in range(3)]
        return hashes[order - 1], hashes[2]

    def games(self, match: Match, limit: int) -> list[Game]:
        """The games, question by question, order 1 then 2; of the first `limit` questions."""
        text, width, found = self.hashes.hex(), 2 * WIDTH, []
        for number, position in enumerate(self.positions):
            if position < limit:
                question, at = match.questions[position], number * 5 * width
                parts = [text[at + n * width:at + (n + 1) * width] for n in range(5)]
                baseline = match.baseline_of(question.category)
                found += [Game(self.model, question.uid, order, baseline, question.category, parts[order - 1],
                               parts[2], parts[2 + order]) for order in (1, 2)]
        return found


class _Hasher:
    """Hashes games as `Match.game` does, piece by piece, without building their prompts."""

    def __init__(self, match: Match) -> None:
        self.match = match
        self.digest = match.judge.digest()
        self.pieces: list[tuple[bytes, str | None]] = [
            (literal.encode(), name) for literal, name, _, _ in string.Formatter().parse(match.prompts.template)]
        self._heads: dict[str, hashlib._Hash] = {}

    def _head(self, category: str) -> hashlib._Hash:
        if category not in self._heads:
            system = self.match.prompts.render(category, "", "", "")[0]["content"]
            self._heads[category] = hashlib.sha256(f"system\0{system}\0user\0".encode())
        return self._heads[category].copy()

    def _prompt(self, category: str, texts: Mapping[str, bytes]) -> hashlib._Hash:
        digest = self._head(category)
        for literal, name in self.pieces:
            digest.update(literal)
            if name is not None:
                digest.update(texts[name])
        digest.update(b"\0")
        return digest

    def question(self, answers: Answers, question: Question) -> bytes:
        """The five hashes of a question's two games."""
        baseline = self.match.baseline_of(question.category)
        asked, theirs, ours = (text.encode() for text in self.match.texts(answers, question))
        orders = ({"QUESTION": asked, "ANSWER_A": theirs, "ANSWER_B": ours},
                  {"QUESTION": asked, "ANSWER_A": ours, "ANSWER_B": theirs})
        prompts = [self._prompt(question.category, texts).digest()[:WIDTH] for texts in orders]
        keys = []
        for order, sha in enumerate(prompts, 1):
            parts = (answers.model, question.uid, str(order), baseline, sha.hex())
            keys.append(hashlib.sha256(self.digest + "\0".join(parts).encode()).digest()[:WIDTH])
        texts = hashlib.sha256(b"\0".join((asked, theirs, ours))).digest()[:WIDTH]
        return b"".join((*prompts, texts, *keys))


def compute(match: Match, answers: Answers) -> Wanted:
    """A model's wanted games, the same as `match.wanted`, from its answers."""
    hasher = _Hasher(match)
    both = [(position, question) for position, question in enumerate(match.questions) if question.uid in answers.texts
            and question.uid in match.baseline_answers[match.baseline_of(question.category)].texts]
    return Wanted(
        answers.model, answers.row_model, len(answers.texts), answers.empty,
        len(missing_uids(answers, match.questions)), answers.problems, _small([position for position, _ in both]),
        b"".join(hasher.question(answers, question) for _, question in both))


def _small(positions: Sequence[int]) -> Sequence[int]:
    """The same numbers in less memory, where they are the first ones."""
    first = range(len(positions))
    return first if list(first) == positions else tuple(positions)


def match_digest(match: Match) -> bytes:
    """A hash of all that the keys of a match depend on but a model's own answers (32 bytes)."""
    digest = hashlib.sha256(match.judge.digest())
    prompts = match.prompts
    digest.update(orjson.dumps([VERSION, prompts.template, sorted(prompts.system.items()),
                                sorted(match.baselines.items())]))
    for question in match.questions:
        digest.update(orjson.dumps([question.uid, question.category, question.prompt]))
    for model, answers in sorted(match.baseline_answers.items()):
        digest.update(orjson.dumps([model, answers.texts]))
    return digest.digest()


def signature(path: Path) -> Signature | None:
    """What tells a changed file from an unchanged one; None where there is no file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino


def _read(path: Path, model: str, digest: bytes, now: Signature) -> Wanted | None:
    """The kept keys, if they are those of this match and of these very answers."""
    try:
        with path.open("rb") as file:
            written = os.fstat(file.fileno()).st_mtime_ns
            head, hashes = orjson.loads(file.readline()), file.read()
        good = (head["match"], tuple(head["answers_file"])) == (digest.hex(), now)
        if not good or written - max(now[1], now[2]) < SETTLED or hashlib.sha256(hashes).hexdigest() != head["hash"]:
            return None
        return Wanted(model, head["row_model"], head["answers"], head["empty"], head["missing"],
                      tuple(head["problems"]), _small(head["positions"]), hashes)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _keep(path: Path, wanted: Wanted, digest: bytes, now: Signature) -> None:
    head = {"match": digest.hex(), "answers_file": now, "row_model": wanted.row_model, "answers": wanted.answers,
            "empty": wanted.empty, "missing": wanted.missing, "problems": wanted.problems,
            "positions": list(wanted.positions), "hash": hashlib.sha256(wanted.hashes).hexdigest()}
    with contextlib.suppress(StorageError):  # somebody who may only look, or a full disk: computed again then
        replace_file(path, _parts(orjson.dumps(head), wanted.hashes), flush=False)


def _parts(head: bytes, hashes: bytes) -> Iterator[bytes]:
    yield head
    yield b"\n"
    yield hashes


def wanted_by(workspace: Workspace, match: Match, digest: bytes, model: str) -> tuple[Wanted, Signature | None]:
    """A model's wanted games, from the cache or computed and kept there; and the signature of its answers.

    `digest` is `match_digest(match)`. A model without answers wants nothing. Raises DataError or StorageError.
    """
    answers_file = workspace.answer_file(model)
    path = workspace.keys_file(model, baseline_tag(workspace.settings.baseline))
    before = signature(answers_file)
    kept = _read(path, model, digest, before) if before is not None else None
    if kept is not None:
        return kept, before
    answers = load_answers(workspace, model)
    if answers is None or before is None:
        return compute(match, Answers(model, Path(), {}, model)), None
    wanted = compute(match, answers)
    if signature(answers_file) == before:
        _keep(path, wanted, digest, before)
    return wanted, before
