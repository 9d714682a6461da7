"""What a plan will take, and when what is in the queue will end; with an interval and every assumption by name.

Pure arithmetic over counted games and learned rates; never submits, writes or looks at a clock.

For others:
  `forecast_batches(sizes, rates, limits)`      batches whose tokens are known already -> Forecast
  `forecast(workspace, batches, progress, rates, parallel=...)`   the same, tokens counted from answers -> Forecast
  `expected_end(workspace, state, due, runs, now)`   epoch seconds when what waits or runs will be done -> Interval
  `rates_of(workspace, state=None, runs=None)`  the rates that this workspace's own run records teach -> Rates
All seconds are floats, tokens are counts, and an Interval's low and high hold the truth 8 times of 10.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from automate.arena.batches import Batch, drain_lead, needs_gpu
from automate.arena.context import judge_path
from automate.arena.counting.progress import Progress
from automate.arena.running.runlog import read_runs
from automate.arena.weights import read_model_folder
from automate.campaign.forecasts.estimates import (
    REQUEUE_DELAY,
    Assumption,
    BatchForecast,
    BatchSize,
    Forecast,
    JobLimits,
    doubt,
    forecast_batches,
    room_of,
    schedule,
    work_of_a_start,
)
from automate.campaign.forecasts.history import game_seconds, loads_of_fleets, number, pace, queue_wait, starts_of
from automate.campaign.forecasts.prompt_sizes import PromptSizes, prompt_sizes
from automate.campaign.forecasts.rates import Guess, Interval, Rates, learn
from automate.campaign.kinds import runs_of
from automate.campaign.nodes import fleet_runs
from automate.campaign.plans import read_plans
from automate.campaign.state import BatchView, CampaignState
from automate.cluster.submit import SubmissionBook
from automate.durations import seconds_of
from automate.settings import Settings
from automate.workspace import Workspace

__all__ = ["Assumption", "BatchForecast", "BatchSize", "Forecast", "Interval", "JobLimits", "Rates", "expected_end",
           "forecast", "forecast_batches", "rates_of", "schedule"]
LATEST = 200
"""How many starts `expected_end` learns from, so that a live view stays quick."""


# --- a workspace -------------------------------------------------------------------------------------


def limits_of(settings: Settings, rates: Rates, parallel: int | None,
              requeue_delay: float = REQUEUE_DELAY) -> JobLimits:
    """The limits that settings give to jobs, with the time to drain that such games need."""
    limit = seconds_of(settings.slurm.time)
    lead = drain_lead(settings.limits.drain, limit, rates.last_game_seconds, settings.judge.server.stop_timeout)
    return JobLimits(limit, lead, settings.slurm.gpus if needs_gpu(settings) else 0, parallel, requeue_delay)


def weight_bytes(workspace: Workspace) -> tuple[int | None, str]:
    """Bytes of the judge's weights on disk, where they can be seen; else why they can't."""
    path = workspace.settings.judge.path
    folder = judge_path(workspace.settings, workspace.root) if needs_gpu(workspace.settings) else None
    if folder is None:
        return None, "judge.path is not set" if path is None else f"no folder {path} on this machine"
    try:
        size = read_model_folder(folder).weight_bytes
    except FileNotFoundError:
        return None, f"there is no config.json in {folder}"
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a JSON object"
        return None, f"config.json in {folder} can't be read: {why}"
    return (size, "") if size else (None, f"there are no weights in {folder}")


def rates_of(workspace: Workspace, runs: Sequence[Mapping[str, Any]] | None = None) -> Rates:
    """The rates of the settings' judge, by the workspace's run records (`runs`: only by these). Reads plans."""
    plans = {stored.plan.id: stored.settings for stored in read_plans(workspace)}
    own = read_runs(workspace.runs) if runs is None else runs
    fleets = loads_of_fleets(fleet_runs(workspace)) if runs is None else []
    starts = starts_of([*fleets, *runs_of(own, "judge")], plans)
    wait = queue_wait(SubmissionBook(workspace.submissions).all(), starts)
    size, unseen = weight_bytes(workspace)
    return learn(starts, workspace.settings, weight_bytes=size, unseen=unseen, wait=wait)


def forecast(workspace: Workspace, batches: Sequence[Batch], progress: Progress, rates: Rates, *,
             parallel: int | None, requeue_delay: float = REQUEUE_DELAY) -> Forecast:
    """What these batches of due games will take. Reads the answers of their models to count prompt bytes.

    `parallel`: batches at once, None: all of them.
    """
    models = [model for batch in batches for model in batch.models]
    sizes = prompt_sizes(workspace, progress, models, rates)
    return forecast_of(workspace, batches, sizes, rates, parallel=parallel, requeue_delay=requeue_delay)


def forecast_of(workspace: Workspace, batches: Sequence[Batch], sizes: PromptSizes, rates: Rates, *,
                parallel: int | None, requeue_delay: float = REQUEUE_DELAY) -> Forecast:
    """The same where the prompts' bytes are counted already."""
    counted = [batch_size(batch, sizes, rates) for batch in batches]
    limits = limits_of(workspace.settings, rates, parallel, requeue_delay)
    return forecast_batches(counted, rates, limits, assumptions=assumptions_of(rates, sizes, limits))


def batch_size(batch: Batch, sizes: PromptSizes, rates: Rates) -> BatchSize:
    """A batch with its tokens: counted bytes of due games over bytes a token, and verdicts of the expected length."""
    games = sum(sizes.games.get(model, 0) for model in batch.models)
    tokens = sum(sizes.bytes.get(model, 0) for model in batch.models) / sizes.per_token.value
    return BatchSize(batch.number, len(batch.models), games, tokens, games * rates.output.value)


def assumptions_of(rates: Rates, sizes: PromptSizes, limits: JobLimits) -> tuple[Assumption, ...]:
    """Everything that a forecast rests on, by name."""
    gpu_rates = ", ".join(text for text, value in (
        (f"{1 / rates.per_game:,.0f} games/s" if rates.per_game and rates.per_game < 1 else "", rates.per_game),
        (f"{rates.per_game:.2g} s a game", rates.per_game >= 1),
        (f"{_per_second(rates.per_prompt)} prompt tokens/s", rates.per_prompt),
        (f"{_per_second(rates.per_output)} output tokens/s", rates.per_output)) if value and text)
    return (
        Assumption("bytes a token", f"{sizes.per_token.value:.2f}", sizes.per_token.source),
        Assumption("verdict", f"{rates.output.value:,.0f} tokens", rates.output.source),
        Assumption("rates", gpu_rates, rates.source),
        Assumption("from the prefix cache", f"{rates.cached:.0%} of prompt tokens", "seen" if rates.batches else
                   "none assumed"),
        Assumption("load", f"{rates.load.value:,.0f} s a start", rates.load.source),
        Assumption("before and after", f"{rates.overhead.value:,.0f} s a start", rates.overhead.source),
        Assumption("batches at once", f"{limits.parallel}" if limits.parallel else "all",
                   "--max-parallel, limits.max_parallel, or the local queue's own" if limits.parallel else
                   "nothing limits them here; free GPUs are not known"),
        Assumption("queue", "not counted" if rates.wait is None else f"{rates.wait:,.0f} s a submission",
                   "unknown" if rates.wait is None else "median of this workspace; not counted"),
    )


def _per_second(seconds: float) -> str:
    return f"{1 / seconds:,.0f}" if seconds else "any"


# --- what is in the queue or running -----------------------------------------------------------------


def expected_end(workspace: Workspace, state: CampaignState, due: Mapping[str, int],
                 runs: Sequence[Mapping[str, Any]], now: float) -> Interval | None:
    """Epoch seconds at which all that waits or runs will be done, without waiting in the queue.

    `due`: games due by model; `runs`: all run records. None where nothing is in work, or nothing is known of how
    fast its judge is: neither a start that plays now nor one that has ended.
    """
    active = state.active
    if not active:
        return None
    stored = {view.stored.plan.id: view.stored.settings for view in state.batches}
    starts = starts_of(runs[-LATEST:], stored)
    plans = {view.stored.plan.id: view for view in active}
    settings = {plan: _settings_of(workspace, view) for plan, view in plans.items()}
    learned = {plan: learn(starts, one) for plan, one in settings.items()}
    others = [found[0] for view in active if view.run is not None and (found := pace(view.run))]
    jobs: list[tuple[bool, Interval]] = []
    for view in active:
        games = sum(due.get(model, 0) for model in view.batch.models)
        plan = view.stored.plan.id
        left = _left(view, settings[plan], games, _on_servers(learned[plan], view), now, others)
        if left is None:
            return None
        jobs.append((view.state == "running", left))
    running = [left for runs_now, left in jobs if runs_now]
    queued = [left for runs_now, left in jobs if not runs_now]
    at_once = _at_once(workspace, state, len(running), len(queued))
    ends = [_after(running, queued, at_once, name) for name in ("low", "mid", "high")]
    return Interval(now + ends[0], now + ends[1], now + ends[2])


def _on_servers(rates: Rates, view: BatchView) -> Rates:
    """Rates of all servers that play a batch together: those of one, but for an engine on a fleet."""
    use = view.stored.plan.use
    if use is None:
        return rates
    told = (view.run or {}).get("fleet")
    ready = number(told.get("ready")) if isinstance(told, Mapping) else None
    count = ready or use.least
    return replace(rates, per_game=rates.per_game / count, per_prompt=rates.per_prompt / count,
                   per_output=rates.per_output / count)


def _settings_of(workspace: Workspace, view: BatchView) -> Settings:
    """The settings that a batch was planned with; the workspace's where those can't be read any more."""
    try:
        return Settings.model_validate(view.stored.settings)
    except ValueError:
        return workspace.settings


def _left(view: BatchView, settings: Settings, games: int, rates: Rates, now: float,
          others: Sequence[float]) -> Interval | None:
    """Seconds that a batch still takes: by its own pace, by the learned rates, or by that of others that play."""
    run = view.run or {}
    a_game = _a_game(pace(run) if view.state == "running" else None, rates, others)
    if a_game is None:
        return None
    if view.state == "running" and games == 0:
        return Interval(0.0, 0.0, 0.0)
    game = game_seconds(run, "median")
    known = rates if game is None else replace(rates, game_seconds=game)
    low, mid, high = (_with_restarts(view, settings, first, known.play(games * seconds), rates, now)
                      for first, seconds in zip(_before(view, rates, now).three, a_game.interval().three, strict=True))
    return Interval(low, mid, high)


def _a_game(own: tuple[float, float] | None, rates: Rates, others: Sequence[float]) -> Guess | None:
    """Seconds of a game: its own pace and the learned one, each by how well it is known; else others' pace."""
    if not rates.batches:
        if own is not None:
            return Guess(*own, "its own pace")
        return Guess(len(others) / sum(1 / one for one in others), 0.3, "other batches' pace") if others else None
    learned = rates.seconds_a_game()
    if own is None:
        return Guess(learned, doubt(rates), "learned")
    mine, theirs = 1 / own[1] ** 2, 1 / doubt(rates) ** 2
    middle = (math.log(own[0]) * mine + math.log(learned) * theirs) / (mine + theirs)
    return Guess(math.exp(middle), 1 / math.sqrt(mine + theirs), "its own pace, and learned")


def _before(view: BatchView, rates: Rates, now: float) -> Interval:
    """Seconds until a batch plays: none where it does, what is left of loading, or a whole start."""
    whole = rates.load.interval() + rates.overhead.interval()
    if view.state != "running" or view.run is None:
        return whole
    if view.run.get("phase") not in ("starting", "loading"):
        return Interval(0.0, 0.0, 0.0)
    gone = max(now - (number(view.run.get("started")) or now), 0.0)
    return Interval(*(max(one - gone, 0.0) for one in whole.three))


def _with_restarts(view: BatchView, settings: Settings, before: float, play: float, rates: Rates,
                   now: float) -> float:
    """Seconds with the starts that the time limit makes necessary; where it leaves no time at all, without it."""
    limits = limits_of(settings, rates, None)
    left = limits.time_limit
    if view.state == "running" and view.run is not None:
        left = (number(view.run.get("time_limit")) or left) - (now - (number(view.run.get("started")) or now))
    fixed = rates.load.value + rates.overhead.value
    room = room_of(rates.load.value, limits)
    if before + play <= left or room <= 0:
        return before + play
    first = min(max(left - before - limits.lead, 0.0), play)
    return before + play + math.ceil((play - first) / work_of_a_start(room, rates)) * (fixed + REQUEUE_DELAY)


def _at_once(workspace: Workspace, state: CampaignState, running: int, queued: int) -> int:
    """How many batches go on at once: what was asked for, else as many as run now, else all."""
    plans = {view.stored.plan.id for view in state.active}
    asked = [submission.parallel for submission in state.submissions
             if submission.plan in plans and submission.parallel is not None]
    limit = min(asked) if asked else workspace.settings.limits.max_parallel
    return max(1, limit or running or queued)


def _after(running: Sequence[Interval], queued: Sequence[Interval], at_once: int, name: str) -> float:
    """When the last ends, in seconds from now: those that run hold places, the queued take them in order."""
    held = sorted(getattr(one, name) for one in running)
    places = held + [0.0] * max(at_once - len(held), 0)
    if not places:
        return 0.0
    ends = list(held)
    heapq.heapify(places)
    for one in queued:
        end = places[0] + getattr(one, name)
        heapq.heapreplace(places, end)
        ends.append(end)
    return max(ends, default=0.0)
