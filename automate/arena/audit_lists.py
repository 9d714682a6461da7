"""Five lists of models that lack something, which `judge` and `generate` take with --models-file.

Never holds a name that a models file can't; each name stands below a comment that says what it lacks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from automate.arena.audit import Audit, ModelAudit
from automate.arena.audit_words import answers_faults, games_faults, joined
from automate.errors import visible
from automate.journal import replace_file
from automate.names import name_problem

Test = Callable[[ModelAudit], bool]
Words = Callable[[ModelAudit], list[str]]


def _answers(model: ModelAudit) -> list[str]:
    return answers_faults(model.answers)


def _games(model: ModelAudit) -> list[str]:
    return games_faults(model.games)


def _partly(model: ModelAudit) -> bool:
    games = model.games
    return bool(games.state != "missing" and (games.due or games.unanswered))


LISTS: dict[str, tuple[str, Test, Words]] = {
    "missing_models_list.txt": ("without any answer", lambda m: m.answers.state == "missing", _answers),
    "incomplete_models_list.txt": (
        "with answers missing, stale or to mend",
        lambda m: m.answers.state not in ("missing", "complete"), _answers),
    "missing_judgments_list.txt": (
        "with answers but without any judgment",
        lambda m: m.games.state == "missing" and m.answers.state != "missing", _games),
    "incomplete_judgments_list.txt": ("with judgments missing", _partly, _games),
    "invalid_judgments_list.txt": (
        "with lines in their judgment files that must be mended", lambda m: m.games.state == "invalid", _games),
}
"""File name -> what its models are, which they are, and what is said of each."""


def list_text(title: str, bench: str, models: Sequence[tuple[str, list[str]]]) -> str:
    """The text of one list: a comment with the count, then for each model a comment with its cause, and its name."""
    lines = [f"# {bench}: {len(models)} {'model' if len(models) == 1 else 'models'} {title}"]
    for name, causes in models:
        good = name_problem(name) is None and not name.startswith("#") and not re.search(r"\s#", name)
        lines.append(f"# {_line(joined(causes))}")
        lines.append(name if good else f"# the next one's name can't stand in a list: {_line(name)}")
    return "\n".join(lines) + "\n"


def _line(text: str) -> str:
    return " ".join(visible(text).split())


def write_lists(folder: Path, audit: Audit, bench: str) -> dict[Path, int]:
    """Write all five lists, empty ones too; each list's path and number of models. Raises StorageError."""
    done: dict[Path, int] = {}
    for file, (title, belongs, words) in LISTS.items():
        models = [(model.model, words(model)) for model in audit.models if belongs(model)]
        replace_file(folder / file, list_text(title, bench, models).encode())
        done[folder / file] = len(models)
    return done
