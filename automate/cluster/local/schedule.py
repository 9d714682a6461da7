"""Which waiting jobs of the local queue may start, where, and why the others wait. Pure.

Never starts anything; times are epoch seconds."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automate.durations import seconds_of

Job = dict[str, Any]
DEFAULT_WARNING = 60.0
_SIGNAL = re.compile(r"(?:(?P<how>[BR]):)?(?P<name>[A-Za-z0-9]+)(?:@(?P<lead>\d+))?")


@dataclass(frozen=True)
class Node:
    """A place for jobs: how many at a time, and whether it is up."""

    name: str
    slots: float = float("inf")
    up: bool = True


@dataclass(frozen=True)
class Notice:
    """A signal that a job's own process gets some seconds before its time limit."""

    number: int
    lead: float


def time_limit(options: Mapping[str, str]) -> float:
    """A script's time limit in seconds; infinity where it has none."""
    return seconds_of(options["time"]) if options.get("time") else float("inf")


def warning(options: Mapping[str, str]) -> Notice | None:
    """What `--signal=B:NAME@SECONDS` asks for. Without `B:` only job steps get the signal, and here are none."""
    match = _SIGNAL.fullmatch(options.get("signal", ""))
    if match is None or match["how"] != "B":
        return None
    name = match["name"].upper().removeprefix("SIG")
    number = int(name) if name.isdigit() else getattr(signal, f"SIG{name}", 0)
    return Notice(int(number), float(match["lead"] or DEFAULT_WARNING)) if number else None


def may_requeue(options: Mapping[str, str]) -> bool:
    """Whether a job may be put into the queue again when its node fails or it is preempted: unless it says no."""
    return "no-requeue" not in options


def _why_not(job: Job, fit: Sequence[Node], free: Mapping[str, float], full: bool, active: Collection[str],
             now: float, queue_wait: float) -> str | None:
    """Slurm's word for why a job waits, or None where it may start. `fit`: nodes that it doesn't exclude."""
    if job.get("begin", 0) > now:
        return "BeginTime"
    after = [other in active for other in job.get("after") or ()]
    if after and (any(after) if job.get("after_all") else all(after)):
        return "Dependency"
    if not job.get("restart") and job["created"] + queue_wait > now:
        return "Priority"
    if full:
        return "JobArrayTaskLimit"
    if not fit:
        return "BadConstraints"
    if not any(free[node.name] >= 1 for node in fit):
        return "Resources" if any(node.up for node in fit) else "ReqNodeNotAvail"
    return None


def schedule(waiting: Sequence[Job], running: Sequence[Job], nodes: Sequence[Node], *, now: float,
             queue_wait: float = 0.0, own_machine: bool = True) -> tuple[list[tuple[Job, str]], dict[str, str]]:
    """(jobs to start, each with its node; Slurm's reason for each job that waits).

    `own_machine`: a submission's limit counts all running jobs, and its `exclude` means nothing; else the limit counts
    the jobs of its own array, as Slurm does. A job waits for any one of the jobs that `after` names, and with
    `after_all` for all of them.
    """
    free = {node.name: (node.slots if node.up else 0.0) for node in nodes}
    for job in running:
        if job["host"] in free:
            free[job["host"]] -= 1
    active = {name for job in (*waiting, *running) for name in (job["job"], job["job"].partition("_")[0])}
    together = list(running)
    starts: list[tuple[Job, str]] = []
    reasons: dict[str, str] = {}
    for job in waiting:
        fit = nodes if own_machine else [node for node in nodes if node.name not in (job.get("exclude") or ())]
        full = _is_full(job, together, own_machine)
        why = _why_not(job, fit, free, full, active, now, queue_wait)
        if why is not None:
            reasons[job["job"]] = why
            continue
        node = max((node for node in fit if free[node.name] >= 1), key=lambda node: free[node.name])
        free[node.name] -= 1
        together.append(job)
        starts.append((job, node.name))
    return starts, reasons


def _is_full(job: Job, together: Sequence[Job], own_machine: bool) -> bool:
    """Whether as many jobs run as the submission allows at once."""
    limit = job.get("parallel" if own_machine else "at_once")
    at_once = len(together) if own_machine else sum(1 for other in together if other["number"] == job["number"])
    return bool(limit) and at_once >= int(limit or 0)
