"""The monitor: looks at a campaign again and again, and keeps what makes the next look cheap.

Only looks: no submission, no change. What can't be known is shown as unknown, with its reason."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Any

from automate.arena.batches import PlanKind
from automate.arena.context import baseline_map, load_match
from automate.arena.counting.progress import Progress
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.chain_results import report_words
from automate.campaign.kinds import runs_of
from automate.campaign.monitoring import outlook
from automate.campaign.monitoring.failures import Failure, failure
from automate.campaign.monitoring.fleets import Fleets
from automate.campaign.monitoring.lines import answer_lines, bare_line, batch_lines, job_line, latest_views, model_line
from automate.campaign.monitoring.picture import (
    ICONS,
    SCHEMA,
    AnswerLine,
    BatchLine,
    JobLine,
    ModelLine,
    Queue,
    Snapshot,
)
from automate.campaign.monitoring.sources import Mark, baseline_answers, inputs, logs, needs_slurm, of_this, stamp
from automate.campaign.monitoring.sources import names as names_of
from automate.campaign.monitoring.vitals import Rates, RunFiles, Vitals, rates, usual_load, vitals
from automate.campaign.state import CampaignState, look
from automate.campaign.waiting import asked_for
from automate.errors import FlockError, StorageError
from automate.names import baseline_tag
from automate.workspace import Workspace

__all__ = ["ICONS", "SCHEMA", "BatchLine", "Failure", "JobLine", "ModelLine", "Snapshot", "Watch", "snapshot"]

ASK_EVERY = 10.0
"""Seconds between two questions to Slurm, however often the view is drawn."""
MOST_PROBLEMS = 5
"""Lines about one model's answers, at most."""
KINDS: tuple[PlanKind, ...] = ("judge", "generate")


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
        self._opened = stamp(self._workspace.settings_file)
        self._state = CampaignState((), ())
        self._runs = RunFiles(self._workspace.runs)
        self._counted: Mark | None = None
        self._progress: Progress | None = None
        self._broken: tuple[Mark, Mark] | None = None
        self._why_not: list[str] = []
        self._bare: list[ModelLine] = []
        self._baseline: dict[str, int | None] = {}
        self._bare_of: dict[str, tuple[Mark, ModelLine]] = {}
        self._replied: Mark = ()
        self._replies: AnswerCounts | None = None
        self._failures: dict[Mark, Failure] = {}
        self._fleets = Fleets()

    def look(self) -> Snapshot:
        """One look at everything."""
        problems: list[str] = []
        now = self._clock()
        workspace = self._open(problems)
        queue = self._ask(workspace, problems)
        runs = self._runs.read()
        state = self._state
        names = names_of(workspace, state, problems)
        models = self._count(workspace, names, problems)
        answers = self._count_answers(workspace, models, names, problems)
        due = {model.model: model.due for model in models}
        loads = {kind: usual_load(runs_of(runs, kind), workspace.settings.judge.name) for kind in KINDS}
        lines = [job_line(view, now, runs, loads[view.kind], workspace.settings.limits.requeues)
                 for view in state.active]
        running = tuple(line for line in lines if line.state == "running")
        speed, (used, reserved) = _speed(state, now), outlook.gpu_hours(workspace, state, runs)
        return Snapshot(
            time=now, judge=workspace.settings.judge.name, judge_kind=workspace.settings.judge.kind,
            bench=workspace.settings.bench, notices=self._told(workspace), problems=tuple(problems),
            baseline=baseline_tag(workspace.settings.baseline), baseline_answers=self._answers(),
            running=running, pending=tuple(line for line in lines if line.state == "queued"),
            unknown=tuple(line for line in lines if line.state not in ("running", "queued")),
            models=tuple(models), failures=self._failed(workspace, state, models, answers, runs),
            logs=logs(workspace.logs, workspace.answer_logs), answers=answers, report=report_words(workspace, state),
            batches=batch_lines(workspace, state, models, answers), rates=speed, queue=queue,
            finish=outlook.finish(workspace, state.of_kind("judge"), due, runs_of(runs, "judge"), now),
            bad_nodes=outlook.bad_nodes(workspace, runs),
            gpu_hours=used, gpu_hours_set_aside=reserved, max_gpu_hours=workspace.settings.limits.max_gpu_hours,
            fleets=self._fleets.look(workspace, state.also, now))

    def _open(self, problems: list[str]) -> Workspace:
        """The workspace, opened anew where its settings file was written since."""
        now = stamp(self._workspace.settings_file)
        if now != self._opened:
            try:
                self._workspace, self._opened = self._reopen(), now
            except FlockError as error:
                if self._strict:
                    raise
                problems.append(f"the settings as they were before are shown: {error}")
        return self._workspace

    def _ask(self, workspace: Workspace, problems: list[str]) -> Queue:
        """Take in plans, submissions and jobs; what was known before stays where that can't be done."""
        try:
            state = look(workspace, max_age=ASK_EVERY, also=self._fleets.find(workspace, problems))
        except (FlockError, OSError) as error:
            if self._strict:
                raise
            problems.append(f"the jobs are shown as they were before: {error}")
            return Queue()
        self._state = of_this(workspace, state)
        problem = state.queue_problem if needs_slurm(workspace, state) else None
        return Queue(self._clock() - state.asked, problem or "")

    def _count(self, workspace: Workspace, names: list[str], problems: list[str]) -> list[ModelLine]:
        """Every model's games: made anew where names or settings changed, else what was written since."""
        mark = (*names, workspace.settings.model_dump_json())
        if self._progress is None and (mark, inputs(workspace, names)) == self._broken:
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
        batch_of = {model: view.batch.number for view in self._state.of_kind("judge").batches if view.status
                    for model in view.batch.models}
        entries = self._progress.models if self._progress else {}
        return [model_line(model, entry, batch_of.get(model)) for model, entry in entries.items()]

    def _load(self, workspace: Workspace, names: list[str]) -> None:
        self._progress = None
        self._baseline = baseline_answers(workspace)
        self._progress = Progress(workspace, load_match(workspace), names)

    def _bare_lines(self, workspace: Workspace, names: list[str], mark: Mark, error: Exception,
                    problems: list[str]) -> list[ModelLine]:
        """What is known without counting games. Tried again when a file changes, or at once where it could not be
        read."""
        self._progress = None
        with contextlib.suppress(FlockError):
            self._baseline = baseline_answers(workspace)
        self._why_not = [str(error)]
        self._bare = [self._bare_line(workspace, model) for model in names]
        self._broken = None if isinstance(error, OSError | StorageError) else (mark, inputs(workspace, names))
        problems += self._why_not
        return self._bare

    def _bare_line(self, workspace: Workspace, model: str) -> ModelLine:
        """A model's line without games, made anew where its answer file was written since."""
        mark = stamp(workspace.answer_file(model))
        kept = self._bare_of.get(model)
        if kept is None or kept[0] != mark:
            kept = self._bare_of[model] = (mark, bare_line(workspace, model))
        return kept[1]

    def _count_answers(self, workspace: Workspace, shown: Sequence[ModelLine], names: Sequence[str],
                       problems: list[str]) -> tuple[AnswerLine, ...]:
        """Answers of models of generation plans; files are read where they were written since.

        `shown`: the models' lines, which tell of bad lines themselves. Of plans that nobody handed in, only `names` and
        the baselines count: others may be slips of the pen.
        """
        batches = self._state.of_kind("generate").batches
        asked = asked_for(workspace, self._state, [view.stored for view in batches])
        known = {*names, *baseline_map(workspace.settings.baseline).values()}
        models = list(dict.fromkeys(model for view in batches for model in view.batch.models
                                    if view.stored.plan.id in asked or view.status is not None or model in known))
        mark = (*models, workspace.settings.model_dump_json())
        try:
            if not models:
                self._replies = None
            elif self._replies is None or mark != self._replied:
                self._replies, self._replied = AnswerCounts(workspace, models), mark
            else:
                self._replies.refresh()
        except (FlockError, OSError) as error:
            self._replies = None
            problems += [str(error)] if str(error) not in problems else []
        told = {_place(text) for model in shown for text in model.problems}
        for status in self._replies.statuses.values() if self._replies else ():
            problems += [text for text in (status.problems[:MOST_PROBLEMS] if status else ())
                         if _place(text) not in told]
        return answer_lines(self._replies, self._state)

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

    def _failed(self, workspace: Workspace, state: CampaignState, models: Sequence[ModelLine],
                answers: Sequence[AnswerLine], runs: list[dict[str, Any]]) -> tuple[Failure, ...]:
        """Batches whose newest job ended with games (or answers) due, or badly where they can't be counted; a log is
        read once for each end of a job."""
        found: dict[Mark, Failure] = {}
        counts: dict[str, dict[str, int]] = {
            "judge": {one.model: one.due for one in models if one.wanted},
            "generate": {one.model: one.due for one in answers if not one.problem}}
        for view in latest_views(state):
            counted = counts[view.kind]
            games = sum(counted.get(model, 0) for model in view.batch.models)
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


def _place(problem: str) -> str:
    """The file and line that a problem names first."""
    return problem.partition(": ")[0]


def _speed(state: CampaignState, now: float) -> Rates:
    running: list[Vitals] = [vitals(view.run, now) for view in state.active if view.state == "running"]
    return rates([one for one in running if one.phase != "ended"])
