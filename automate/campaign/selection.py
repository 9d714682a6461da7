"""Which models a command is about, from its options.

Never drops a name silently: doubles and names that can't be used come back as problems."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automate.arena.benchmark import read_models_file, unique
from automate.arena.context import api_models, baseline_map, load_match
from automate.arena.counting.progress import Progress
from automate.errors import DataError, FlockError
from automate.names import name_problem
from automate.workspace import Workspace


@dataclass(frozen=True)
class Selection:
    """Names in order, each once; problems are lines for the user; `source` says where they came from."""

    models: tuple[str, ...]
    problems: tuple[str, ...]
    source: str


def select(workspace: Workspace, *, models: Sequence[str] = (), models_file: Path | None = None,
           from_api_config: str | None = None, all_models: bool = False) -> Selection:
    """The models that a command names, without the baseline itself. Raises DataError where two ways are named."""
    found = _named(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                   all_models=all_models)
    baseline = workspace.settings.baseline
    if not isinstance(baseline, str) or baseline not in found.models:
        return found
    left = tuple(name for name in found.models if name != baseline)
    why = f"{found.source}: '{baseline}' is the baseline; it is left out"
    return replace(found, models=left, problems=(*found.problems, why))


def select_for_answers(workspace: Workspace, *, models: Sequence[str] = (), models_file: Path | None = None,
                       from_api_config: str | None = None, all_models: bool = False) -> Selection:
    """The models whose answers are generated: those named, and where a whole list is meant the baselines before them.

    Raises DataError where two ways are named.
    """
    found = _named(workspace, models=models, models_file=models_file, from_api_config=from_api_config,
                   all_models=all_models)
    problems = tuple(text.replace("it is judged once", "it counts once") for text in found.problems)
    if models or models_file is not None:
        return replace(found, problems=problems)
    names = tuple(dict.fromkeys([*baseline_map(workspace.settings.baseline).values(), *found.models]))
    return replace(found, models=names, problems=problems)


def names_nothing(selection: Selection, models_file: Path | None) -> bool:
    """Whether a list that the user gave names no model at all: there is nothing to do, and nothing wrong with it."""
    return models_file is not None and not selection.models and not selection.problems


def _named(workspace: Workspace, *, models: Sequence[str] = (), models_file: Path | None = None,
           from_api_config: str | None = None, all_models: bool = False) -> Selection:
    ways = [bool(models), models_file is not None, from_api_config is not None]
    if sum(ways) + (all_models and (bool(models) or models_file is not None)) > 1:
        raise DataError("models are selected in two ways", where="command line",
                        todo="give one of --all, --models, --models-file, --from-api-config")
    if models:
        names, doubles = unique(models)
        problems = [f"--models: '{name}' is named twice; it is judged once" for name in doubles]
        problems += [f"--models: {name!r} can't be used: {why}" for name in names if (why := name_problem(name))]
        return Selection(tuple(n for n in names if name_problem(n) is None), tuple(problems), "--models")
    if from_api_config is not None:
        pattern = from_api_config or workspace.settings.models_pattern
        found = api_models(workspace, pattern)
        good = tuple(name for name in found if name_problem(name) is None)
        bad = [f"{workspace.api_config}: {name!r} can't be used: {name_problem(name)}"
               for name in found if name_problem(name)]
        return Selection(good, tuple(bad), f"{workspace.api_config} ({pattern})")
    path = models_file or workspace.models_file
    listed = read_models_file(path)
    return Selection(listed.names, listed.problems, str(path))


def without_complete(workspace: Workspace, selection: Selection) -> Selection:
    """The selection without models whose games are all finished; models that can't be counted stay in."""
    try:
        progress = Progress(workspace, load_match(workspace), selection.models)
    except FlockError:
        return selection  # preflight says what is wrong
    left = tuple(model for model, entry in progress.models.items() if entry.status.due or not entry.status.wanted)
    return replace(selection, models=left)
