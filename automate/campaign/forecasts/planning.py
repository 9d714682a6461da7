"""A plan and its forecast without any file: what would be handed in now, and what it would take.

Never writes, never claims and never submits; `judging.py` does that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from automate.arena.batches import Batch, balance
from automate.arena.context import load_match
from automate.arena.counting.progress import Progress
from automate.campaign.forecasts.estimates import REQUEUE_DELAY, Forecast
from automate.campaign.forecasts.fleets import Compared, compare, forecast_fleet
from automate.campaign.forecasts.forecast import batch_size, forecast_of, limits_of, rates_of
from automate.campaign.forecasts.prompt_sizes import prompt_sizes
from automate.campaign.forecasts.proposals import Proposal, propose
from automate.campaign.forecasts.rates import Interval
from automate.campaign.handing import Request, parallel_of
from automate.campaign.state import look
from automate.cluster.base import Cluster
from automate.cluster.site import partitions
from automate.errors import ClusterError
from automate.settings import Settings
from automate.workspace import Workspace

SMALL_LOCAL = 2
"""Batches at once under the local executor, where nothing says otherwise."""


@dataclass(frozen=True)
class Outlook:
    """A forecast, what is proposed after it, and money where the judge is paid. `fleet`: where one was asked for."""

    forecast: Forecast
    proposal: Proposal | None
    money: Interval | None = None
    max_cost: float | None = None
    local: bool = False
    notes: list[str] = field(default_factory=list)
    fleet: Compared | None = None


def look_ahead(workspace: Workspace, cluster: Cluster, models: Sequence[str], limit_questions: int | None,
               max_parallel: int | None, fleet: tuple[int, int] | None = None) -> Outlook:
    """The forecast of what is due and not in work. Raises DataError and ConfigError as `judge` does.

    `fleet`: least and most servers of a fleet that is to play them.
    """
    progress = Progress(workspace, load_match(workspace), models, limit_questions)
    busy = look(workspace).busy_models
    todo = {model: due for model, due in progress.due.items() if due and model not in busy}
    notes = [f"{model}: left out, batch {busy[model].batch.number} is {busy[model].state}"
             for model in progress.models if model in busy]
    nothing = [model for model, entry in progress.models.items() if not entry.status.wanted]
    if nothing:
        notes.append(f"without games, as answers are missing: {', '.join(nothing[:5])}"
                     + (f" and {len(nothing) - 5} more" if len(nothing) > 5 else ""))
    request = Request(tuple(models), limit_questions, max_parallel, workspace.settings.array)
    parallel = parallel_of(workspace, request)
    found = outlook_of(workspace, balance(todo, workspace.settings.batch_size), progress, parallel, cluster.kind, fleet)
    found.notes.extend(notes)
    return found


def outlook_of(workspace: Workspace, batches: Sequence[Batch], progress: Progress, parallel: int | None,
               kind: str, fleet: tuple[int, int] | None = None) -> Outlook:
    """The forecast of these batches; `kind` is the cluster's: slurm or local.

    `fleet`: least and most servers of a fleet that plays their games; it is compared with batches of the settings, as
    many at once as it has servers at most.
    """
    settings, local = workspace.settings, kind == "local"
    if fleet is not None:
        return _on_fleet(workspace, batches, progress, kind, fleet)
    if local and parallel is None:
        parallel = 1 if settings.judge.kind == "vllm" else SMALL_LOCAL
    rates = rates_of(workspace)
    delay = 0.0 if local else REQUEUE_DELAY
    models = {model for batch in batches for model in batch.models}
    due = {model: games for model, games in progress.due.items() if model in models}
    prompts = prompt_sizes(workspace, progress, list(due), rates)

    def of(some: Sequence[Batch]) -> Forecast:
        return forecast_of(workspace, some, prompts, rates, parallel=parallel, requeue_delay=delay)

    found = of(batches)
    longest = math.inf if local else partition_limit(settings)
    proposal = propose(found, limits_of(settings, rates, parallel, delay), longest=longest,
                       again=lambda size: of(balance(due, size)))
    money = _money(settings, found, rates.output.interval()) if settings.judge.kind == "openai" else None
    return Outlook(found, proposal, money, settings.judge.max_cost, local)


def _on_fleet(workspace: Workspace, batches: Sequence[Batch], progress: Progress, kind: str,
              fleet: tuple[int, int]) -> Outlook:
    """The forecast of a fleet, and of batches of the settings next to it."""
    settings, rates, (least, most) = workspace.settings, rates_of(workspace), fleet
    models = {model for batch in batches for model in batch.models}
    due = {model: games for model, games in progress.due.items() if model in models}
    prompts = prompt_sizes(workspace, progress, list(due), rates)
    delay = 0.0 if kind == "local" else REQUEUE_DELAY
    limits = limits_of(settings, rates, most, delay)
    sizes = [batch_size(batch, prompts, rates) for batch in batches]
    fleets = [forecast_fleet(sizes, rates, limits, servers) for servers in dict.fromkeys((least, most))]
    found = forecast_of(workspace, balance(due, settings.batch_size), prompts, rates, parallel=most,
                        requeue_delay=delay)
    why = "as many as the fleet has servers at most"
    told = [replace(one, source=why) if one.name == "batches at once" else one for one in found.assumptions]
    found = replace(found, assumptions=tuple(told))
    return Outlook(found, None, None, settings.judge.max_cost, kind == "local",
                   fleet=compare(fleets, found, rates, settings.batch_size))


def _money(settings: Settings, found: Forecast, output: Interval) -> Interval:
    price = settings.judge.price
    low, mid, high = ((found.prompt_tokens * price.input_per_million
                       + found.games * tokens * price.output_per_million) / 1e6 for tokens in output.three)
    return Interval(low, mid, high)


def partition_limit(settings: Settings) -> float:
    """Seconds that the partition allows a job; infinite where there is no limit or Slurm doesn't say."""
    try:
        known = partitions()
    except ClusterError:
        return math.inf
    names = (settings.slurm.partition or "").split(",")
    limits = [one.max_time for name, one in known.items() if name in names or (names == [""] and one.default)]
    return min(limits, default=math.inf)
