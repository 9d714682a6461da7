"""The cluster before a run: do partition, account and QOS exist there, and how much of a campaign fits now.

Cheap: a few short questions to Slurm, and none where its commands are missing. Never submits a job."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Iterator

from automate.arena.preflight.findings import Finding, error, note, passed, some, warning
from automate.arena.running.gpu_hours import gpus_of, hours_of_start
from automate.cluster import asking
from automate.cluster.limits import Asked, Room, room
from automate.errors import ClusterError
from automate.settings import Settings


def cluster_findings(settings: Settings, models: int, executor: str) -> Iterator[Finding]:
    """What is to be said of the cluster before `models` models are judged there; also of the cap on GPU-hours."""
    yield from budget_findings(settings)
    if executor != "slurm":
        return
    slurm, user = settings.slurm, asking.me()
    known, own = asking.partitions(), asking.accounts_and_qos(user)
    found = list(name_findings(settings, known, *(own or (None, None))))
    yield from found
    if found:
        return
    limits = asking.ask(Asked(user, slurm.account, slurm.qos, slurm.partition))
    if not limits.limits:
        return
    try:
        free = room(limits, asking.queued(limits, user))
    except ClusterError:
        return
    yield room_finding(free, math.ceil(models / settings.batch_size), settings.limits.refill)


def budget_findings(settings: Settings) -> Iterator[Finding]:
    """Whether a single batch fits under the cap on GPU-hours."""
    cap, each = settings.limits.max_gpu_hours, hours_of_start(settings)
    if cap is not None and each > cap:
        yield error("FH508", "limits.max_gpu_hours", f"{cap:g} GPU-hours are less than one batch may take: "
                    f"{gpus_of(settings)} GPU(s) for {settings.slurm.time} are {each:.3g}",
                    "raise it (--max-gpu-hours), or lower slurm.time")


def room_finding(free: Room, batches: int, refill: str) -> Finding:
    """How many of the batches fit under the limits on submitted jobs now."""
    if free.jobs is None or free.jobs >= batches:
        return passed("FH508", "submit limits", ("the one batch fits now" if batches == 1 else
                                                f"all {batches} batches fit now") + f" ({free.why or 'no limit'})")
    who = "a small job hands in" if refill == "job" else "--wait, or 'judge --submit' run again later, hands in"
    return note("FH508", "submit limits", f"{free.jobs} of up to {batches} batches fit now ({free.why})",
                f"{who} the rest")


def name_findings(settings: Settings, partitions: Collection[str] | None, accounts: Collection[str] | None,
                  qos: Collection[str] | None) -> Iterator[Finding]:
    """Names that this cluster doesn't have: a profile for another one. None: nobody can say which it has."""
    slurm = settings.slurm
    wanted = (slurm.partition or "").split(",")
    asked = [("partition", name, partitions, error) for name in wanted]
    asked += [("account", slurm.account or "", accounts, warning), ("qos", slurm.qos or "", qos, warning)]
    for key, name, there, report in asked:
        if not name or there is None or name in there:
            continue
        near = difflib.get_close_matches(name, there, n=1)
        hint = f"did you mean '{near[0]}'? " if near else ""
        yield report("FH509", f"slurm.{key}", f"'{name}' is not on this cluster: is '{settings.cluster}' the profile "
                     "of another one?", f"{hint}here: {some(sorted(there)) or 'none'}; set slurm.{key} or cluster")
