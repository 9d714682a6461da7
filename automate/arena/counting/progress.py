"""How far models are: counts that follow the journals and judgment files as they grow.

Reads each record once and keeps no texts; writes nothing but what spares the next process the reading."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from automate.arena.benchmark import Answers
from automate.arena.context import load_answers, load_match
from automate.arena.counting.board import Board
from automate.arena.counting.kept import Kept
from automate.arena.counting.keys import Signature, Wanted, match_digest, signature, wanted_by
from automate.arena.counting.slim import TEXTS, slim_record, take_lines
from automate.arena.counting.tails import JournalTail
from automate.arena.counting.watched_rows import WatchedRows
from automate.arena.games import Game, Match, ModelStatus, Recorded
from automate.arena.records import Loaded, compared_folders, load
from automate.journal import Record, iter_lines, record_files
from automate.names import baseline_tag
from automate.workspace import Workspace

REMEMBERED = 900.0
"""How many seconds back `recent` knows what was played."""
BUCKET = 5
"""Seconds that are counted together."""


@dataclass
class Recent:
    """Games that were played of late, with their tokens: of prompts, of replies, and of prompts from the cache."""

    games: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def add(self, games: int, usage: Sequence[int]) -> None:
        prompt, output, cached = [*usage, 0, 0, 0][:3]
        self.games += games
        self.prompt_tokens += prompt
        self.output_tokens += output
        self.cached_tokens += cached


@dataclass
class Played:
    """What was played when, in steps of a few seconds, by the clocks of the jobs."""

    steps: dict[int, Recent] = field(default_factory=dict)

    def take(self, record: Record) -> None:
        """Count a record that says its time."""
        when, usage = record.get("time"), record.get("usage")
        if isinstance(when, (int, float)) and record.get("source") == "engine":
            good = isinstance(usage, list) and all(isinstance(count, int) for count in usage)
            self.steps.setdefault(int(when // BUCKET), Recent()).add(1, usage if good and usage else ())

    def since(self, moment: float) -> Recent:
        """Everything from a moment on (epoch seconds); what is too old to be asked for is forgotten."""
        for step in [step for step in self.steps if step < (moment - REMEMBERED) // BUCKET]:
            del self.steps[step]
        out = Recent()
        for step, more in self.steps.items():
            if step >= moment // BUCKET:
                out.add(more.games, (more.prompt_tokens, more.output_tokens, more.cached_tokens))
        return out


@dataclass
class ModelProgress:
    """One model's games, counted, and its status as of the last look.

    `answers`, `empty` and `missing` count its answers, the empty ones, and the questions that it does not answer.
    """

    progress: Progress
    wanted: Wanted
    answers_file: Signature | None
    board: Board
    tail: JournalTail
    rows: WatchedRows
    kept: Kept
    status: ModelStatus
    followed: bool = False
    imports: bool = False
    bad_lines: list[str] = field(default_factory=list)
    rows_problems: list[str] = field(default_factory=list)

    @property
    def model(self) -> str:
        return self.wanted.model

    @property
    def answers(self) -> int:
        return self.wanted.answers

    @property
    def empty(self) -> int:
        return self.wanted.empty

    @property
    def missing(self) -> int:
        return self.wanted.missing

    @property
    def problems(self) -> list[str]:
        """What is odd about the model's files, a line each."""
        torn = [f"{file.path}:{file.lines + 1}: torn last line: the write was cut off"
                for file in self.tail.files.values() if file.torn]
        return [*self.bad_lines, *torn, *self.rows_problems, *self.wanted.problems]

    @property
    def due_uids(self) -> list[str]:
        """The question of each game that is due; twice where both its games are."""
        return self.board.due

    @cached_property
    def games(self) -> list[Game]:
        """The wanted games; made when they are asked for."""
        return self.wanted.games(self.progress.match, self.progress.limit)

    @cached_property
    def recorded(self) -> Recorded:
        """The records that count, without their texts; read again when they are asked for after a change."""
        if self.imports:
            return _slim(self.progress.load(self.model).recorded)
        found = Recorded()
        for path in record_files(self.tail.folder):
            for _, line, whole in iter_lines(path):
                try:
                    found.add(slim_record(line) if whole else {})
                except ValueError:
                    continue  # among the problems
        return found

    def forget(self) -> None:
        """Make what is kept of the records be read anew when it is asked for."""
        self.__dict__.pop("recorded", None)


def _slim(recorded: Recorded) -> Recorded:
    """Forget texts: counting needs none of them."""
    for records in (recorded.by_key.values(), *recorded.failures.values(), *recorded.imported.values()):
        for record in records:
            for name in TEXTS:
                record.pop(name, None)
    return recorded


class Progress:
    """Counts of a set of models against one baseline; `refresh()` follows what is written meanwhile.

    Raises DataError, ConfigError or StorageError where a file that it needs can't be read.
    """

    def __init__(self, workspace: Workspace, match: Match, models: Sequence[str],
                 limit_questions: int | None = None) -> None:
        self.workspace = workspace
        self.tag = baseline_tag(workspace.settings.baseline)
        self.attempts = workspace.settings.limits.attempts
        self.played = Played()
        self._limit = limit_questions
        self._shared = self._shared_files()
        self._use(match)
        self._look_up()
        self.models: dict[str, ModelProgress] = {model: self._load(model) for model in models}

    def _use(self, match: Match) -> None:
        self.match = match
        self._digest = match_digest(match)
        self._uids = {question.uid: place for place, question in enumerate(match.questions[:self._limit])}
        self.limit = len(self._uids)

    def _look_up(self) -> None:
        self._folders = compared_folders(self.workspace)
        self._baselines = self.workspace.journal_baselines()

    def load(self, model: str) -> Loaded:
        """A model's records read whole, rows of other programs among them."""
        answers = load_answers(self.workspace, model) or Answers(model, Path(), {}, model)
        return load(self.workspace, answers, self.match, self.tag)

    def _load(self, model: str) -> ModelProgress:
        wanted, answers_file = wanted_by(self.workspace, self.match, self._digest, model)
        board = Board(wanted, self.match, self._uids, self.attempts)
        tail = JournalTail(self.workspace.journal(model, self.tag))
        rows = WatchedRows(self.workspace, self.match, wanted, self._uids, self.tag)
        kept = Kept(self.workspace.counts_file(model, self.tag), self._digest, answers_file, self.attempts)
        entry = ModelProgress(self, wanted, answers_file, board, tail, rows, kept, board.status)
        if self._limit is None:
            entry.bad_lines = kept.load(board, tail)
        self._follow(entry)
        return entry

    def _follow(self, entry: ModelProgress) -> bool | None:
        """Take in what is new of a model; whether there was any. None: its files are not those that were read."""
        grown = entry.rows.grown(self._folders, self._baselines)
        files = entry.tail.grown()
        if grown is None or files is None:
            return None
        took = self.played.take if entry.followed else None
        for file in files:
            for data, end in file.blocks():
                lines, bad = take_lines(entry.board, data, end, took)
                entry.bad_lines += [f"{file.path}:{file.lines + number}: {why}" for number, why in bad]
                file.lines += lines
        if entry.rows.may_add(grown, entry.board):
            self._take_over(entry)
        if files and self._limit is None and not entry.imports:
            entry.kept.keep(entry.board, entry.tail, entry.bad_lines)
        if files or grown or not entry.followed:
            entry.status, entry.followed = entry.board.status, True
            entry.forget()
        return bool(files or grown)

    def _take_over(self, entry: ModelProgress) -> None:
        """Count rows of other programs that no journal holds yet."""
        loaded = self.load(entry.model)
        entry.rows_problems = loaded.rows_problems
        entry.imports = entry.imports or bool(loaded.fresh_imports)
        for record in loaded.fresh_imports:
            entry.board.add(record)

    def refresh(self, inputs: bool = False) -> bool:
        """Take in what was written since the last look; True when there was any.

        With `inputs` changed answers, questions and prompts are followed too. Raises what making it raises.
        """
        changed = inputs and self._refresh_inputs()
        self._look_up()
        for model, entry in self.models.items():
            told = self._follow(entry)
            if told is None:
                self.models[model] = self._load(model)
            changed = changed or told is not False
        return changed

    def _shared_files(self) -> tuple[Signature | None, ...]:
        workspace = self.workspace
        baselines = workspace.settings.baseline
        names = [baselines] if isinstance(baselines, str) else sorted(set(baselines.values()))
        paths = [workspace.questions, workspace.bench_settings, workspace.judge_utils,
                 *(workspace.answer_file(name) for name in names)]
        return tuple(signature(path) for path in paths)

    def _refresh_inputs(self) -> bool:
        shared = self._shared_files()
        if shared != self._shared:
            self._use(load_match(self.workspace))
            self._shared = shared
            again = list(self.models)
        else:
            again = [model for model, entry in self.models.items()
                     if signature(self.workspace.answer_file(model)) != entry.answers_file]
        self._look_up()
        for model in again:
            self.models[model] = self._load(model)
        return bool(again)

    def recent(self, seconds: float) -> Recent:
        """Games of the last `seconds` (900 at most) that were seen by `refresh`; verdicts and nulls alike."""
        return self.played.since(time.time() - min(seconds, REMEMBERED))

    @property
    def due(self) -> dict[str, int]:
        """Games due by model, in the order of the models."""
        return {model: entry.status.due for model, entry in self.models.items()}

    @property
    def wanted(self) -> int:
        return sum(entry.status.wanted for entry in self.models.values())

    @property
    def finished(self) -> int:
        return sum(entry.status.wanted - entry.status.due for entry in self.models.values())

    @property
    def nulls(self) -> dict[str, int]:
        """Final games without a verdict, by reason."""
        found: dict[str, int] = {}
        for entry in self.models.values():
            for reason, count in entry.status.nulls.items():
                found[reason] = found.get(reason, 0) + count
        return found
