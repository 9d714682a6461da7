"""What the monitor looks at: settings, models, logs, and the files without which nothing can be counted.

Only reads, and reads no file whole but the models file and the baseline's answers."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from automate.arena.benchmark import read_models_file
from automate.arena.context import baseline_map, load_answers
from automate.campaign.state import BatchView, CampaignState
from automate.errors import FlockError
from automate.names import baseline_tag
from automate.workspace import Workspace

Mark = tuple[object, ...]


def needs_slurm(workspace: Workspace, state: CampaignState) -> bool:
    """Whether it matters that Slurm can't be asked: not where all jobs run on this machine."""
    kinds = {submission.executor for submission in state.submissions}
    executor = workspace.settings.executor
    return "slurm" in kinds or executor == "slurm" or (executor == "auto" and not kinds)


def stamp(path: Path) -> Mark:
    """What of a file changes when somebody writes it; empty where there is none."""
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def baseline_answers(workspace: Workspace) -> dict[str, int | None]:
    """Answers of each baseline model; None where it has no answer file."""
    found: dict[str, int | None] = {}
    for model in sorted(set(baseline_map(workspace.settings.baseline).values())):
        answers = load_answers(workspace, model)
        found[model] = len(answers.texts) if answers else None
    return found


def inputs(workspace: Workspace, names: list[str]) -> Mark:
    """The files without which games can't be counted, as they are now."""
    models = [*names, *sorted(set(baseline_map(workspace.settings.baseline).values()))]
    files = [workspace.questions, workspace.bench_settings, workspace.judge_utils]
    return tuple(stamp(path) for path in [*files, *map(workspace.answer_file, models)])


def names(workspace: Workspace, state: CampaignState, problems: list[str]) -> list[str]:
    """The models file's names, and those of batches that are not in it."""
    names: list[str] = []
    try:
        listed = read_models_file(workspace.models_file)
        names = list(listed.names)
        problems += listed.problems
    except FlockError as error:
        problems.append(str(error))
    extra = [model for view in state.of_kind("judge").batches if view.submissions or view.status
             for model in view.batch.models]
    return [name for name in dict.fromkeys([*names, *extra]) if name != workspace.settings.baseline]


def of_this(workspace: Workspace, state: CampaignState) -> CampaignState:
    """Without ended batches of other baselines, judges or benches; whatever may still act is always shown.

    Answers have neither baseline nor judge.
    """
    settings, tag = workspace.settings, baseline_tag(workspace.settings.baseline)

    def mine(view: BatchView) -> bool:
        theirs = view.stored.settings
        if view.kind == "generate":
            return theirs.get("bench") == settings.bench
        return (view.stored.plan.baseline, theirs.get("bench"), theirs.get("judge", {}).get("name")) == (
            tag, settings.bench, settings.judge.name)

    return replace(state, batches=tuple(view for view in state.batches if view.may_act or mine(view)))


def logs(*folders: Path, most: int = 5) -> tuple[tuple[str, int, float], ...]:
    """Path, size and time of the newest logs."""
    found = [log for folder in folders for log in _logs_of(folder)]
    return tuple(sorted(found, key=lambda item: -item[2])[:most])


def _logs_of(folder: Path) -> list[tuple[str, int, float]]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                try:
                    stat = entry.stat()
                except OSError:
                    continue  # removed since
                found.append((entry.path, stat.st_size, stat.st_mtime))
    except OSError:
        return []
    return found
