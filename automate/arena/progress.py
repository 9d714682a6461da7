"""How far models are: counts that follow the journals as they grow.

Reads each record once; never writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automate.arena.benchmark import Answers, missing_uids
from automate.arena.context import load_answers
from automate.arena.games import Game, Match, ModelStatus, Recorded, count
from automate.arena.records import load
from automate.journal import Record, parse_object, record_files
from automate.names import baseline_tag
from automate.workspace import Workspace


class JournalTail:
    """Reads what was appended to a journal folder since the last look; whole lines only."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._read: dict[Path, int] = {}

    def skip(self) -> None:
        """Start at the present end of every file, as far as its lines are whole."""
        for path in record_files(self.folder):
            data = path.read_bytes()
            self._read[path] = data.rfind(b"\n") + 1

    def new(self) -> list[Record]:
        """Records appended since the last call."""
        found: list[Record] = []
        for path in record_files(self.folder):
            start = self._read.get(path, 0)
            if path.stat().st_size <= start:
                continue
            with path.open("rb") as file:
                file.seek(start)
                data = file.read()
            end = data.rfind(b"\n") + 1
            self._read[path] = start + end
            for line in data[:end].split(b"\n"):
                try:
                    found.append(parse_object(line))
                except ValueError:
                    continue  # reported by whoever reads the file whole
        return found


@dataclass
class ModelProgress:
    """One model's games and records, and its status as of the last look."""

    model: str
    answers: int
    empty: int
    missing: int
    games: list[Game]
    recorded: Recorded
    tail: JournalTail
    status: ModelStatus
    problems: list[str] = field(default_factory=list)
    nulls_in_rows: int = 0
    bad_labels_in_rows: int = 0


def _slim(recorded: Recorded) -> None:
    """Forget texts: counting needs none of them."""
    groups = [recorded.by_key.values(), *recorded.failures.values(), *recorded.imported.values()]
    for records in groups:
        for record in records:
            record.pop("judgment", None)
            record.pop("game", None)


class Progress:
    """Counts of a set of models against one baseline; `refresh()` follows the journals."""

    def __init__(self, workspace: Workspace, match: Match, models: Sequence[str],
                 limit_questions: int | None = None) -> None:
        self.workspace = workspace
        self.match = match
        self.tag = baseline_tag(workspace.settings.baseline)
        self.attempts = workspace.settings.limits.attempts
        self._uids = {question.uid for question in match.questions[:limit_questions]}
        self.models: dict[str, ModelProgress] = {model: self._load(model) for model in models}

    def _load(self, model: str) -> ModelProgress:
        answers = load_answers(self.workspace, model) or Answers(model, Path(), {}, model)
        tail = JournalTail(self.workspace.journal(model, self.tag))
        tail.skip()
        loaded = load(self.workspace, answers, self.match, self.tag)
        _slim(loaded.recorded)
        games = [game for game in self.match.wanted(answers) if game.uid in self._uids]
        status = count(model, games, loaded.recorded, self.attempts)
        return ModelProgress(
            model, len(answers.texts), answers.empty, len(missing_uids(answers, self.match.questions)), games,
            loaded.recorded, tail, status, loaded.problems + list(answers.problems), loaded.nulls, loaded.bad_labels)

    def refresh(self) -> bool:
        """Take in new records; True when there were any."""
        changed = False
        for entry in self.models.values():
            new = entry.tail.new()
            for record in new:
                record.pop("judgment", None)
                entry.recorded.add(record)
            if new:
                entry.status = count(entry.model, entry.games, entry.recorded, self.attempts)
                changed = True
        return changed

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
