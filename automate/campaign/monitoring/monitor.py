"""The monitor: looks at a campaign again and again, and keeps what makes the next look cheap.

Only looks: no submission, no change. What can't be known is shown as unknown, with its reason."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from automate.arena.benchmark import read_models_file
from automate.arena.context import baseline_map, load_answers, load_match
from automate.arena.counting.progress import Progress
from automate.campaign.monitoring import outlook
from automate.campaign.monitoring.failures import Failure, failure
from automate.campaign.monitoring.lines import bare_line, batch_lines, job_line, latest_views, model_line
from automate.campaign.monitoring.picture import ICONS, SCHEMA, BatchLine, JobLine, ModelLine, Queue, Snapshot
from automate.campaign.monitoring.vitals import Rates, RunFiles, Vitals, rates, usual_load, vitals
from automate.campaign.state import BatchView, CampaignState, look
from automate.errors import FlockError, StorageError
from automate.names import baseline_tag
from automate.workspace import Workspace

__all__ = ["ICONS", "SCHEMA", "BatchLine", "Failure", "JobLine", "ModelLine", "Snapshot", "Watch", "snapshot"]

ASK_EVERY = 10.0
"""Seconds between two questions to Slurm, however often the view is drawn."""
Mark = tuple[object, ...]


class Watch:
    """Looks at a campaign whenever `look` is called. `reopen` gives the workspace with its settings as they are now.

    A strict watch raises what keeps it from seeing the jobs; another shows it as a problem and goes on with what it
    saw last. Holds one entry a model, a run record and a failed batch: nothing that grows with time alone.
    """

    def __init__(self, reopen: Callable[[], Workspace], *, strict: bool = False,
                 clock: Callable[[], float] = time.time) -> None:
        self._reopen = reopen
        self._strict = strict
        self._clock = clock
        self._workspace = reopen()
        self._opened = _stamp(self._workspace.settings_file)
        self._state = CampaignState((), ())
        self._runs = RunFiles(self._workspace.runs)
        self._counted: Mark | None = None
        self._progress: Progress | None = None
        self._broken: tuple[Mark, Mark] | None = None
        self._why_not: list[str] = []
        self._bare: list[ModelLine] = []
        self._baseline: dict[str, int | None] = {}
        self._failures: dict[Mark, Failure] = {}

    def look(self) -> Snapshot:
        """One look at everything."""
        problems: list[str] = []
        now = self._clock()
        workspace = self._open(problems)
        queue = self._ask(workspace, problems)
        runs = self._runs.read()
        state = self._state
        names = _names(workspace, state, problems)
        models = self._count(workspace, names, problems)
        due = {model.model: model.due for model in models}
        counted = {model.model for model in models if model.wanted}
        load = usual_load(runs, workspace.settings.judge.name)
        lines = [job_line(view, now, runs, load, workspace.settings.limits.requeues) for view in state.active]
        running = tuple(line for line in lines if line.state == "running")
        speed, (used, reserved) = _speed(state, now), outlook.gpu_hours(workspace, state, runs)
        return Snapshot(
            time=now, judge=workspace.settings.judge.name, judge_kind=workspace.settings.judge.kind,
            bench=workspace.settings.bench, notices=self._told(workspace), problems=tuple(problems),
            baseline=baseline_tag(workspace.settings.baseline), baseline_answers=self._answers(),
            running=running, pending=tuple(line for line in lines if line.state == "queued"),
            unknown=tuple(line for line in lines if line.state not in ("running", "queued")),
            models=tuple(models), failures=self._failed(workspace, state, due, counted, runs),
            logs=_logs(workspace.logs),
            batches=batch_lines(workspace, state, models), rates=speed, queue=queue,
            finish=outlook.finish(workspace, state, due, runs, now), bad_nodes=outlook.bad_nodes(workspace, runs),
            gpu_hours=used, gpu_hours_set_aside=reserved, max_gpu_hours=workspace.settings.limits.max_gpu_hours)

    def _open(self, problems: list[str]) -> Workspace:
        """The workspace, opened anew where its settings file was written since."""
        stamp = _stamp(self._workspace.settings_file)
        if stamp != self._opened:
            try:
                self._workspace, self._opened = self._reopen(), stamp
            except FlockError as error:
                if self._strict:
                    raise
                problems.append(f"the settings as they were before are shown: {error}")
        return self._workspace

    def _ask(self, workspace: Workspace, problems: list[str]) -> Queue:
        """Take in plans, submissions and jobs; what was known before stays where that can't be done."""
        try:
            state = look(workspace, max_age=ASK_EVERY)
        except (FlockError, OSError) as error:
            if self._strict:
                raise
            problems.append(f"the jobs are shown as they were before: {error}")
            return Queue()
        self._state = _of_this(workspace, state)
        problem = state.queue_problem if _needs_slurm(workspace, state) else None
        return Queue(self._clock() - state.asked, problem or "")

    def _count(self, workspace: Workspace, names: list[str], problems: list[str]) -> list[ModelLine]:
        """Every model's games: made anew where names or settings changed, else what was written since."""
        mark = (*names, workspace.settings.model_dump_json())
        if self._progress is None and (mark, _inputs(workspace, names)) == self._broken:
            problems += self._why_not
            return self._bare
        try:
            if self._progress is None or mark != self._counted:
                self._load(workspace, names)
                self._counted = mark
            else:
                self._progress.refresh(inputs=True)
        except (FlockError, OSError) as error:
            return self._bare_lines(workspace, names, mark, error, problems)
        batch_of = {model: view.batch.number for view in self._state.batches if view.status
                    for model in view.batch.models}
        entries = self._progress.models if self._progress else {}
        return [model_line(model, entry, batch_of.get(model)) for model, entry in entries.items()]

    def _load(self, workspace: Workspace, names: list[str]) -> None:
        self._progress = None
        self._baseline = _baseline_answers(workspace)
        self._progress = Progress(workspace, load_match(workspace), names)

    def _bare_lines(self, workspace: Workspace, names: list[str], mark: Mark, error: Exception,
                    problems: list[str]) -> list[ModelLine]:
        """What is known without counting games. Tried again when a file changes, or at once where it could not be
        read."""
        self._progress = None
        with contextlib.suppress(FlockError):
            self._baseline = _baseline_answers(workspace)
        self._why_not = [str(error)]
        self._bare = [bare_line(workspace, model) for model in names]
        self._broken = None if isinstance(error, OSError | StorageError) else (mark, _inputs(workspace, names))
        problems += self._why_not
        return self._bare

    def _told(self, workspace: Workspace) -> tuple[str, ...]:
        prompts = self._progress.match.prompts if self._progress else None
        found = [f"{prompts.notice} ({prompts.source})"] if prompts and prompts.notice else []
        rehearsal = workspace.settings.judge.kind == "rehearsal"
        return (*found, *(["rehearsal judge: its verdicts mean nothing"] if rehearsal else []))

    def _answers(self) -> dict[str, int | None]:
        """Answers of each baseline model, as they are now where they can be read."""
        theirs = self._progress.match.baseline_answers if self._progress else {}
        return {model: len(theirs[model].texts) if model in theirs else count
                for model, count in self._baseline.items()}

    def _failed(self, workspace: Workspace, state: CampaignState, due: Mapping[str, int], counted: set[str],
                runs: list[dict[str, Any]]) -> tuple[Failure, ...]:
        """Batches whose newest job ended with games due, or badly where games can't be counted; a log is
        read once for each end of a job."""
        found: dict[Mark, Failure] = {}
        for view in latest_views(state):
            games = sum(due.get(model, 0) for model in view.batch.models)
            unsure = view.state != "completed" and not all(model in counted for model in view.batch.models)
            if not view.may_act and (games or unsure):
                updated = (view.run or {}).get("updated")
                key = (view.stored.plan.id, view.batch.number, view.job, view.state, games, updated)
                found[key] = self._failures.get(key) or failure(workspace, view, games, runs)
        self._failures = found
        return tuple(found.values())


def snapshot(workspace: Workspace) -> Snapshot:
    """Look at everything once. Raises FlockError where plans or submissions can't be read."""
    return Watch(lambda: workspace, strict=True).look()


def _needs_slurm(workspace: Workspace, state: CampaignState) -> bool:
    """Whether it matters that Slurm can't be asked: not where all jobs run on this machine."""
    kinds = {submission.executor for submission in state.submissions}
    executor = workspace.settings.executor
    return "slurm" in kinds or executor == "slurm" or (executor == "auto" and not kinds)


def _speed(state: CampaignState, now: float) -> Rates:
    running: list[Vitals] = [vitals(view.run, now) for view in state.active if view.state == "running"]
    return rates([one for one in running if one.phase != "ended"])


def _stamp(path: Path) -> Mark:
    try:
        stat = path.stat()
    except OSError:
        return ()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def _baseline_answers(workspace: Workspace) -> dict[str, int | None]:
    """Answers of each baseline model; None where it has no answer file."""
    found: dict[str, int | None] = {}
    for model in sorted(set(baseline_map(workspace.settings.baseline).values())):
        answers = load_answers(workspace, model)
        found[model] = len(answers.texts) if answers else None
    return found


def _inputs(workspace: Workspace, names: list[str]) -> Mark:
    """The files without which games can't be counted, as they are now."""
    models = [*names, *sorted(set(baseline_map(workspace.settings.baseline).values()))]
    files = [workspace.questions, workspace.bench_settings, workspace.judge_utils]
    return tuple(_stamp(path) for path in [*files, *map(workspace.answer_file, models)])


def _names(workspace: Workspace, state: CampaignState, problems: list[str]) -> list[str]:
    """The models file's names, and those of batches that are not in it."""
    names: list[str] = []
    try:
        listed = read_models_file(workspace.models_file)
        names = list(listed.names)
        problems += listed.problems
    except FlockError as error:
        problems.append(str(error))
    extra = [model for view in state.batches if view.submissions or view.status for model in view.batch.models]
    return [name for name in dict.fromkeys([*names, *extra]) if name != workspace.settings.baseline]


def _of_this(workspace: Workspace, state: CampaignState) -> CampaignState:
    """Without ended batches of other baselines, judges or benches; whatever may still act is always shown."""
    settings, tag = workspace.settings, baseline_tag(workspace.settings.baseline)

    def mine(view: BatchView) -> bool:
        theirs = view.stored.settings
        return (view.stored.plan.baseline, theirs.get("bench"), theirs.get("judge", {}).get("name")) == (
            tag, settings.bench, settings.judge.name)

    return replace(state, batches=tuple(view for view in state.batches if view.may_act or mine(view)))


def _logs(folder: Path, most: int = 5) -> tuple[tuple[str, int, float], ...]:
    """Path, size and time of the newest logs."""
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
        return ()
    return tuple(sorted(found, key=lambda item: -item[2])[:most])
