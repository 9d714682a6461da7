"""Rehearses a plan: the campaign's own batches, scripts and engine, on a rehearsed cluster, with time scaled down.

Never touches the user's campaign: everything happens in a workspace of its own, which is removed at the end."""

from __future__ import annotations

import contextlib
import io
import math
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.console import Console

from automate.arena.batches import drain_lead
from automate.arena.context import load_match
from automate.arena.counting.progress import Progress
from automate.arena.games import Match
from automate.campaign.following import follow
from automate.campaign.forecasts.forecast import Forecast, JobLimits, assumptions_of, batch_size, forecast_batches
from automate.campaign.forecasts.prompt_sizes import PromptSizes, prompt_sizes
from automate.campaign.forecasts.rates import assumed
from automate.campaign.handing import Request, hand_in, parallel_of, submit_claim
from automate.campaign.judging import prepare
from automate.campaign.plans import StoredPlan
from automate.campaign.rehearsal.outcome import Outcome, outcome_of
from automate.campaign.rehearsal.pace import fit
from automate.campaign.rehearsal.space import keep, make_space, remove, sweep, write_settings
from automate.campaign.rehearsal.stage import Load, Stage, notes, rates_of, scaled, stage_of
from automate.campaign.rehearsal.watch import GaveUp, Watched
from automate.campaign.state import look
from automate.cluster.local.executor import LocalCluster
from automate.cluster.queue import JobState
from automate.cluster.rehearsed.cluster import Rehearsal, State, read_state
from automate.cluster.rehearsed.scenario import Scenario, check_batches
from automate.durations import seconds_of
from automate.errors import ClaimedError, ConfigError, DataError, FlockError
from automate.processes import process_start
from automate.settings import Settings
from automate.workspace import Workspace

Say = Callable[[str], None]
LEAST_TIMEOUT, TIMES_EXPECTED = 120.0, 5.0
"""When a rehearsal is given up: real seconds at least, and so many times what was expected."""
RETRY = 60.0
"""Rehearsed seconds until the rehearsed user gives the command again after a refusal."""


@dataclass
class Rehearsed:
    """A rehearsal's forecast next to what came out; `folder` where it was kept."""

    scenario: Scenario
    stage: Stage
    forecast: Forecast
    outcome: Outcome
    notes: list[str]
    folder: str | None = None


@dataclass
class _Rehearsal:
    """One rehearsal on its way."""

    user: Workspace
    scenario: Scenario
    request: Request
    console: Console
    say: Say
    space: Workspace = field(init=False)
    stage: Stage = field(init=False)
    progress: Progress = field(init=False)
    sizes: PromptSizes = field(init=False)
    match: Match = field(init=False)
    forecast: Forecast | None = None
    rounds: int = 0
    gave_up: str = ""
    began: float = 0.0

    def prepare(self) -> None:
        """Make the workspace, count, and scale. Raises FlockError for what a user must mend."""
        self.space = make_space(self.user, _as_rehearsal(self.user.settings))
        self.match = load_match(self.space)
        models = self.request.models
        self.progress = Progress(self.space, self.match, models, self.request.limit_questions)
        if not self.progress.wanted:
            raise DataError("there is no game to rehearse: no selected model has answers",
                            todo="see 'flock-hpc validate-only'")
        settings = self.user.settings
        self.sizes = prompt_sizes(self.user, self.progress, models, assumed(settings))
        batches = math.ceil(sum(1 for games in self.sizes.games.values() if games) / settings.batch_size)
        games, per_token = self.progress.wanted, self.sizes.per_token.value
        check_batches(self.scenario.events, batches)
        load = Load(games, batches, sum(self.sizes.bytes.values()) / games / per_token,
                    min(settings.judge.expected_output_tokens, settings.judge.max_tokens), per_token)
        self.stage = stage_of(self.scenario, settings, load)
        self.space = write_settings(self.space, scaled(settings, self.scenario, self.stage))
        self.match = load_match(self.space)
        self.progress = Progress(self.space, self.match, models, self.request.limit_questions)

    @property
    def cluster(self) -> LocalCluster:
        return LocalCluster(self.space.local_queue, self.space.root)

    def open(self) -> None:
        """Write the scenario for the runner, and start it."""
        queue = self.cluster.queue
        queue.folder.mkdir(parents=True, exist_ok=True)
        Rehearsal(self.scenario, self.progress.wanted, self.space.state / "journal", os.getpid(),
                  process_start(os.getpid())).save(queue.rehearsal_file)
        self.cluster.open()
        self.began = (read_state(queue.cluster_file) or State()).began

    def foresee(self, stored: StoredPlan) -> Forecast:
        """The plan's forecast, given the scenario's rates and load times, and nothing of its events."""
        stage, settings = self.stage, self.user.settings
        rates = rates_of(settings, stage)
        at_once = len(self.scenario.nodes.all) * self.scenario.nodes.slots
        parallel = min(at_once, parallel_of(self.space, self.request) or at_once)
        limits = JobLimits(stage.time_limit, self._lead(), _gpus(settings), parallel,
                           self.scenario.requeue_delay)
        sizes = [batch_size(batch, self.sizes, rates) for batch in stored.plan.batches]
        return forecast_batches(sizes, rates, limits, assumptions=assumptions_of(rates, self.sizes, limits))

    def _lead(self) -> float:
        """Rehearsed seconds before the limit in which the first starts begin no more games."""
        settings = self.space.settings
        real = seconds_of(settings.slurm.time)
        return drain_lead(settings.limits.drain, real, 0.0, settings.judge.server.stop_timeout) * self.stage.scale

    # --- the play -------------------------------------------------------------------------------
    def play(self) -> None:
        """Hand in and follow, again and again as a user would, until all is played or it is given up."""
        deadline = time.monotonic() + LEAST_TIMEOUT
        while self.rounds < self.scenario.rounds and self.progress.finished < self.progress.wanted:
            accepted, plans = self._hand_in()
            if self.rounds == 0 and self.forecast is not None:
                longest = self.forecast.seconds.high + self.scenario.queue_wait
                deadline = max(deadline, time.monotonic() + TIMES_EXPECTED * longest / self.stage.scale)
            if time.monotonic() > deadline:
                break
            if not accepted:
                time.sleep(RETRY / self.stage.scale)
                continue
            self.rounds += 1
            try:
                self._follow(plans, deadline)
            except GaveUp:
                break
            self.progress.refresh()
        if self.progress.finished < self.progress.wanted:
            self.gave_up = self._why()

    def _hand_in(self) -> tuple[bool, frozenset[str]]:
        """`judge --submit` once: whether anything is in the queue now, and of which plans."""
        cluster = self.cluster
        try:
            claim = submit_claim(self.space)
        except ClaimedError:
            return False, frozenset()
        try:
            prepared = prepare(self.space, cluster, self.match, self.request)
            self.progress = prepared.progress
            plans = {view.stored.plan.id for view in prepared.busy.values()}
            if prepared.stored is None:
                return bool(plans), frozenset(plans)
            if self.forecast is None:
                self.forecast = self.foresee(prepared.stored)
            done = hand_in(self.space, cluster, prepared.stored, self.request, look(self.space))
        finally:
            claim.release()
        for note in done.notes:
            self.say(note)
        for submission, error in done.refused:
            self.say(f"not submitted: {len(submission.tasks)} batch(es): {error.what}")
        if done.waiting:
            self.say(f"{len(done.waiting)} batch(es) wait for room: {done.why}")
        return bool(done.accepted or plans), frozenset({*plans, prepared.stored.plan.id})

    def _follow(self, plans: frozenset[str], deadline: float) -> None:
        follower = Watched(self.space, self.cluster, self.progress, plans, self.request, deadline=deadline)
        follower.shown = self._shown
        try:
            follow(follower, self.console, pause=self.space.settings.limits.poll)
        finally:
            with contextlib.suppress(FlockError):
                follower.show()
            self._shown = follower.shown

    _shown: int = 0

    def _why(self) -> str:
        """What stood in the way when it was given up."""
        waiting = [job for job in self.cluster.queue.jobs() if JobState(job["state"]).active]
        reasons = sorted({str(job.get("reason")) for job in waiting if job.get("reason")})
        left = self.progress.wanted - self.progress.finished
        what = f"{left} games are still due after {self.rounds} round(s)"
        if waiting:
            what += f"; {len(waiting)} job(s) wait or run" + (f" ({', '.join(reasons)})" if reasons else "")
        if "BadConstraints" in reasons:
            what += ": servers have died on every node"
        return f"{what}. See what the scenario does to the last job, or give it more nodes or more time"

    # --- after ----------------------------------------------------------------------------------
    def close(self) -> None:
        """End what still waits or runs, and the runner with it."""
        cluster = self.cluster
        active = [job["job"] for job in cluster.queue.jobs() if JobState(job["state"]).active]
        if active:
            cluster.cancel(active)
        cluster.queue.rehearsal_file.unlink(missing_ok=True)
        deadline = time.monotonic() + 40
        while cluster.queue.runner_alive() and time.monotonic() < deadline:
            time.sleep(0.1)

    def outcome(self) -> Outcome:
        """Count everything."""
        self.progress.refresh()
        load = {name: self.scenario.load_of(name) for name in self.scenario.nodes.all}
        return outcome_of(self.space, self.progress, scale=self.stage.scale, gpus=_gpus(self.user.settings),
                          began=self.began, load=load, rounds=self.rounds, gave_up=self.gave_up,
                          scenario_events=self.scenario.events)


def _as_rehearsal(settings: Settings) -> Settings:
    """Settings for a first look at questions and answers: a rehearsal judge's name, whatever else."""
    judge = settings.judge
    name = judge.name if "rehearsal" in judge.name else f"{judge.name}-rehearsal"
    update = {"kind": "rehearsal", "name": name, "path": None}
    return settings.model_copy(update={"judge": judge.model_copy(update=update)})


def as_rehearsed(workspace: Workspace) -> Workspace:
    """A workspace as a rehearsal sees it, for the checks before one: with a judge that needs no weights and no key."""
    return Workspace(workspace.root, _as_rehearsal(workspace.settings), workspace.default_baseline)


def _gpus(settings: Settings) -> int:
    return 0 if settings.judge.kind == "openai" else settings.slurm.gpus


def rehearse(workspace: Workspace, scenario: Scenario, models: Sequence[str], *, limit_questions: int | None = None,
             max_parallel: int | None = None, array: bool | None = None, keep_folder: bool = False,
             scale: float | None = None, console: Console | None = None, say: Say | None = None) -> Rehearsed:
    """Rehearse a campaign of these models from its beginning; quiet unless a console is given.

    `scale` wins over the scenario's, which is lowered where this machine can't keep up with it. Rehearsed seconds in
    the result. Raises FlockError for what can't be rehearsed; the workspace of the rehearsal is removed, unless it is
    to be kept or games are missing.
    """
    if scale is not None and not 0 < scale < math.inf:
        raise ConfigError(f"a scale must be a number above 0, not {scale:g}", where="scale")
    sweep(workspace)
    wanted = scenario.model_copy(update={"scale": scale}) if scale else scenario
    batches = math.ceil(len(models) / workspace.settings.batch_size)
    fitted, told = fit(wanted, min(batches, len(wanted.nodes.all) * wanted.nodes.slots), asked=scale is not None)
    use_array = workspace.settings.array if array is None else array
    own = console or Console(file=io.StringIO(), width=120)
    run = _Rehearsal(workspace, fitted, Request(tuple(models), limit_questions, max_parallel, use_array), own,
                     say or (lambda _: None))
    kept = keep_folder
    try:
        run.prepare()
        told += notes(fitted, run.stage)
        for note in told:
            run.say(note)
        run.open()
        try:
            run.play()
        finally:
            run.close()
        outcome = run.outcome()
        kept = keep_folder or not outcome.complete
        if run.forecast is None:
            raise DataError("no job was taken: " + (run.gave_up or "nothing was due"),
                            todo="the scenario refuses every submission")
        return Rehearsed(fitted, run.stage, run.forecast, outcome, told, str(run.space.root) if kept else None)
    finally:
        if hasattr(run, "space"):
            if kept:
                keep(run.space)
            else:
                remove(run.space)
