"""A model's records from disk: the journal first, then rows of other programs.

Never writes; what is odd about a file is returned as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from automate.arena.benchmark import Answers
from automate.arena.games import Match, Recorded, prompt_sha, texts_sha
from automate.arena.rows import FoundRows, read_rows, said_to_judge, unknown_to
from automate.journal import Record, read_journal
from automate.workspace import Workspace


@dataclass
class Loaded:
    """A model's records, and what was odd about the files they came from (`rows_problems`: other programs' rows)."""

    recorded: Recorded
    problems: list[str] = field(default_factory=list)
    fresh_imports: list[Record] = field(default_factory=list)
    nulls: int = 0
    bad_labels: int = 0
    rows_problems: list[str] = field(default_factory=list)


def compared_folders(workspace: Workspace) -> list[Path]:
    """The folders that hold rows against other baselines."""
    folder = workspace.judgments
    return sorted(path for path in folder.glob("compared_with_*") if path.is_dir()) if folder.is_dir() else []


def rows_files(workspace: Workspace, model: str, tag: str, folders: Sequence[Path] | None = None) -> list[Path]:
    """Files that may hold rows of this baseline; each row says its own.

    Its own file, upstream's (the default may have changed), and every compared_with_* folder, whose names the
    incumbent chose in its own way (`folders`, if they were looked up already).
    """
    default = workspace.default_baseline
    own = workspace.rows_file(model, tag, default)
    main = workspace.rows_file(model, default, default)
    apart = compared_folders(workspace) if folders is None else folders
    return list(dict.fromkeys([own, main, *(path / own.name for path in apart)]))


def load(workspace: Workspace, answers: Answers, match: Match, tag: str) -> Loaded:
    """All records of a model against this baseline: journal first, then rows of other programs."""
    model = answers.model
    journal = read_journal(workspace.journal(model, tag))
    recorded = Recorded()
    out = Loaded(recorded, [str(bad) for bad in journal.bad])
    for _, record in journal.records:
        recorded.add(record)
    categories = {question.uid: question.category for question in match.questions}

    def assumed(uid: str) -> str | None:
        category = categories.get(uid)
        return None if category is None else match.baseline_of(category)

    def foreign(uid: str) -> str | None:
        return None

    for path in rows_files(workspace, model, tag):
        mine = path == workspace.rows_file(model, tag, workspace.default_baseline)
        found: FoundRows = read_rows(path, assumed if mine else foreign)
        out.rows_problems += found.problems
        out.nulls += found.nulls
        out.bad_labels += found.bad_labels
        own, lines = _strangers(found.records, answers, match.judge.name)
        out.rows_problems += [f"{path}: {line}" for line in lines]
        ours = [record for record in own if _take_baseline(record, assumed(record["uid"]), match)]
        fresh = unknown_to(recorded, ours)
        _mark_same_texts(fresh, answers, match, workspace.settings.honour_rows == "any-prompt")
        out.fresh_imports += fresh
        for record in fresh:
            recorded.add(record)
    out.problems += out.rows_problems
    return out


def _mark_same_texts(records: list[Record], answers: Answers, match: Match, any_prompt: bool) -> None:
    """Give rows with another prompt around the very same question and answers the hash of those texts.

    v0.1 rows always have another prompt; v2 rows count so only with `any_prompt`.
    """
    questions = {question.uid: question for question in match.questions}
    for record in records:
        question, said = questions.get(record["uid"]), said_to_judge(record["game"])
        if question is None or question.uid not in answers.texts or said is None:
            continue
        if "user_prompt" not in record["game"] and not any_prompt:
            continue
        texts = match.texts(answers, question)
        wanted = prompt_sha(match.messages(answers, question, record["order"]))
        if record["prompt_sha"] != wanted and all(text in said for text in texts):
            record["texts_sha"] = texts_sha(texts)


def _strangers(records: list[Record], answers: Answers, judge: str) -> tuple[list[Record], list[str]]:
    """Rows of this model and judge; and a line about those of others, which don't count."""
    names = {answers.model, answers.row_model, None}
    ours, others = [], set()
    for record in records:
        model, by = record["model"], record["judge"]
        if (model in names or str(model).rpartition("/")[2] in names) and by in (judge, None):
            ours.append(record)
        else:
            others.add(f"model '{model}' by judge '{by}'")
    lines = [f"rows of {what} are not counted for {answers.model} by {judge}" for what in sorted(others)]
    return ours, lines


def _take_baseline(record: Record, wanted: str | None, match: Match) -> bool:
    """Whether a row was judged against the wanted baseline, by its name or by what its answers call it."""
    answers = match.baseline_answers.get(wanted or "")
    if wanted is None or record["baseline"] not in {wanted, answers.row_model if answers else wanted}:
        return False
    record["baseline"] = wanted
    return True
