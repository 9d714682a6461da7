"""What is wanted and what is recorded, by model: answers and games, with the causes of what lacks.

Never changes a file, and needs the baseline's answers for the games' side only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automate.arena.audit_answers import AnswersAudit, State, audit_answers
from automate.arena.audit_rows import NULLS, OK, OTHER, RowsAudit, Sought, audit_rows
from automate.arena.benchmark import Question, read_questions
from automate.arena.context import baseline_map, load_match
from automate.arena.counting.board import NULL, OWN, RETRYING, UNWANTED
from automate.arena.counting.covered import covered, stamp_file
from automate.arena.counting.progress import ModelProgress, Progress
from automate.arena.games import FAILURES, Match
from automate.arena.records import rows_files
from automate.errors import ConfigError, DataError
from automate.journal import record_files
from automate.names import baseline_tag
from automate.workspace import Workspace

NOT_JUDGED, CHANGED, TO_RETRY = "not judged", "changed since", "to ask again"
"""Why a game is due beside what files say of it: no record; one of other answers, prompt or judge; too few attempts."""


@dataclass(frozen=True)
class GamesAudit:
    """A model's games, counted: done + final nulls + due + unanswered = wanted.

    `unanswered`: games of questions that the model or the baseline doesn't answer. `causes`: of the due games, each
    once. `file`: what in the judgment file must be mended, by cause, in rows (null, unparsed, wrong label: in games).
    `known` is False where nothing can be said but what stands in the file (`in_file`: its rows).
    """

    model: str
    wanted: int
    done: int = 0
    nulls: Mapping[str, int] = field(default_factory=dict)
    due: int = 0
    unanswered: int = 0
    causes: Mapping[str, int] = field(default_factory=dict)
    file: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[str, int] = field(default_factory=dict)
    in_file: int = 0
    known: bool = True
    problems: tuple[str, ...] = ()

    @property
    def final(self) -> int:
        """Games that are finished without a label."""
        return sum(self.nulls.values())

    @property
    def to_mend(self) -> bool:
        return bool(self.file)

    @property
    def state(self) -> State:
        """What the counts amount to."""
        if self.to_mend:
            return "invalid"
        if not self.known:
            return "unknown" if self.in_file else "missing"
        if not self.due and not self.unanswered:
            return "complete"
        if not self.done and not self.final and set(self.causes) <= {NOT_JUDGED}:
            return "missing"
        return "stale" if self.causes.get(CHANGED) else "incomplete"


@dataclass(frozen=True)
class ModelAudit:
    """A model's answers and games."""

    model: str
    answers: AnswersAudit
    games: GamesAudit

    @property
    def complete(self) -> bool:
        return self.answers.state == self.games.state == "complete"


@dataclass(frozen=True)
class Audit:
    """All models in order; the baselines' answers; and why games can't be counted, if they can't."""

    questions: int
    models: tuple[ModelAudit, ...]
    baselines: tuple[AnswersAudit, ...]
    problem: str | None = None
    match: Match | None = None
    progress: Progress | None = None

    @property
    def to_do(self) -> bool:
        """Whether anything is left that can be done: answers that were given up, and their games, can't be had."""
        lost = sum(one.given_up for one in self.baselines)
        return self.problem is not None or any(one.due for one in self.baselines) or any(
            model.answers.problem or model.answers.due or model.answers.to_mend or model.games.due
            or model.games.to_mend or not model.games.known
            or model.games.unanswered > 2 * (model.answers.given_up + lost) for model in self.models)

    @property
    def complete(self) -> bool:
        """Whether nothing lacks of any model."""
        return self.problem is None and all(model.complete for model in self.models)


def audit(workspace: Workspace, models: Sequence[str], limit_questions: int | None = None) -> Audit:
    """Count answers and games of these models. Raises DataError or StorageError where a file can't be read."""
    questions = read_questions(workspace.questions, workspace.settings.bench)
    known = frozenset(question.uid for question in questions)
    names = sorted(set(baseline_map(workspace.settings.baseline).values()))
    answers = {model: audit_answers(workspace, questions, model, limit_questions)
               for model in dict.fromkeys((*models, *names))}
    match, problem = _match(workspace)
    progress = Progress(workspace, match, models, limit_questions) if match is not None else None
    judged = _Judged(workspace, questions[:limit_questions], known, match)
    found = [ModelAudit(model, answers[model], judged.games(model, progress.models[model] if progress else None))
             for model in models]
    return Audit(len(judged.positions), tuple(found), tuple(answers[name] for name in names), problem, match, progress)


def _match(workspace: Workspace) -> tuple[Match | None, str | None]:
    try:
        return load_match(workspace), None
    except (DataError, ConfigError) as error:
        return None, str(error)


class _Judged:
    """Counts the games of one model after the other."""

    def __init__(self, workspace: Workspace, questions: Sequence[Question], known: Collection[str],
                 match: Match | None) -> None:
        self.workspace = workspace
        self.tag = baseline_tag(workspace.settings.baseline)
        self.known = known
        self.match = match
        self.categories = {question.uid: question.category for question in questions}
        self.positions = {question.uid: place for place, question in enumerate(questions)}
        self.tags = workspace.journal_baselines()
        self._names = baseline_map(workspace.settings.baseline)

    def baselines(self, uid: str) -> Collection[str]:
        """The names that a question's baseline has in rows."""
        category = self.categories.get(uid, "")
        name = self._names.get(category, self._names.get("*", ""))
        answers = self.match.baseline_answers.get(name) if self.match else None
        return {name, answers.row_model} if answers else {name}

    def games(self, model: str, entry: ModelProgress | None) -> GamesAudit:
        """Count one model's games; `entry`: what its records say, if that is known."""
        names = {model, entry.wanted.row_model} if entry else {model}
        sought = Sought(self.positions, self.known, self.baselines, names, self.workspace.settings.judge.name)
        own = self.workspace.rows_file(model, self.tag, self.workspace.default_baseline)
        files = {path: audit_rows(path, sought, own=path == own)
                 for path in rows_files(self.workspace, model, self.tag) if not self._covered(path, model)}
        mine = files.get(own)
        if entry is None:
            return _unverified(model, 2 * len(self.positions), mine or RowsAudit(own))
        return _counted(entry, len(self.positions), mine, [one for path, one in files.items() if path != own],
                        bool(record_files(self.workspace.journal(model, self.tag))))

    def _covered(self, path: Path, model: str) -> bool:
        """Whether every row of a file comes from a journal, so that nothing can be wrong with it."""
        workspace, default = self.workspace, self.workspace.default_baseline
        if self.match is None or not path.is_file():
            return False
        size = path.stat().st_size
        for tag in dict.fromkeys((self.tag, *self.tags)):
            if workspace.rows_file(model, tag, default) == path:
                foreign = None if tag == self.tag else self.match.baseline_names
                mark = stamp_file(workspace, model, tag)
                return covered(path, size, workspace.journal(model, tag), mark, foreign) == size > 0
        return False


def _unverified(model: str, wanted: int, mine: RowsAudit) -> GamesAudit:
    """What a file alone says, where the records can't be counted."""
    nulls = {why: count for why, count in mine.nulls.items() if count}
    file = _present({**nulls, **_row_faults(mine), "wrong label": sum(mine.labels.values())})
    return GamesAudit(model, wanted, mine.verdicts, file=file, labels=dict(mine.labels), in_file=mine.rows,
                      known=False, problems=tuple(mine.problems))


def _row_faults(mine: RowsAudit) -> dict[str, int]:
    return {"one-game row": mine.one_game, "duplicate uid": mine.duplicates,
            "other baseline": sum(mine.other_baseline.values()), "unknown uid": mine.unknown,
            "other model or judge": mine.strangers, "bad line": mine.bad - mine.torn, "torn line": mine.torn}


def _counted(entry: ModelProgress, questions: int, mine: RowsAudit | None, others: Sequence[RowsAudit],
             journaled: bool) -> GamesAudit:
    codes, status = entry.board.codes, entry.status
    other = bytes.fromhex(entry.board.state()["other"])
    torn = sum(file.torn for file in entry.tail.files.values())
    file: dict[str, int] = {"torn line": torn}
    if mine is not None:
        faults = _row_faults(mine)
        file = {**_slot_faults(mine, codes), **faults, "torn line": faults["torn line"] + torn}
        file["not in the file"] = _behind(mine, codes) if journaled or any(one.rows for one in others) else 0
    causes = Counter(_cause(slot, code, bool(other[slot]), (mine, *others)) for slot, code in enumerate(codes)
                     if UNWANTED < code < OWN)
    return GamesAudit(
        entry.model, 2 * questions, status.done, status.nulls, status.due, 2 * questions - status.wanted,
        dict(causes.most_common()), _present(file), dict(mine.labels) if mine else {}, mine.rows if mine else 0,
        problems=tuple(entry.bad_lines + entry.rows_problems))


def _present(counts: Mapping[str, int]) -> dict[str, int]:
    return {cause: count for cause, count in counts.items() if count}


def _slot_faults(mine: RowsAudit, codes: bytearray) -> dict[str, int]:
    """Games without a label in the file, but for those that are final so, for the reason that stands there."""
    counts: Counter[str] = Counter()
    for slot, word in mine.slots.items():
        final = codes[slot] >= NULL and word == FAILURES[codes[slot] - NULL]
        if word in (*NULLS, "wrong label") and not final:
            counts[word] += 1
    return dict(counts)


def _behind(mine: RowsAudit, codes: bytearray) -> int:
    """Questions whose games are both finished by the records, but whose row is not in the file."""
    return sum(1 for slot in range(0, len(codes), 2) if min(codes[slot:slot + 2]) >= OWN
               and mine.slots.get(slot, OTHER) == OTHER)


def _cause(slot: int, code: int, other: bool, files: Sequence[RowsAudit | None]) -> str:
    """Why a game is due."""
    if code == RETRYING:
        return TO_RETRY
    words = [word for one in files if one is not None and (word := one.slots.get(slot)) is not None]
    if OK in words or (other and not words):
        return CHANGED
    return words[0] if words else NOT_JUDGED
