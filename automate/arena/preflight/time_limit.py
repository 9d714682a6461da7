"""The time limit before a run: is there time for a game between loading the judge and ending in time?

Never asks Slurm; `plan` says what a batch takes."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from automate.arena.batches import drain_lead
from automate.arena.context import judge_path
from automate.arena.preflight.findings import Finding, error, warning
from automate.arena.weights import read_model_folder
from automate.durations import in_words, seconds_of, slurm_time
from automate.settings import Settings

DISK_RATE, ENGINE_START = 1e9, 60.0
"""Bytes a second of a shared disk, and seconds that an engine needs besides, where nobody has measured it."""
TWICE = 2.0
"""A limit that leaves no time for play even if loading took half as long is too short for certain."""


def time_findings(settings: Settings, root: Path, runs: Iterable[Mapping[str, Any]]) -> list[Finding]:
    """FH507 where slurm.time is over before the first game could start; from loads in run records, else assumed."""
    limit = seconds_of(settings.slurm.time)
    load, source, measured = load_seconds(settings, root, runs)
    lead = drain_lead(settings.limits.drain, limit, 0.0, settings.judge.server.stop_timeout) if limit < 1e9 else 0
    if limit > load + lead:
        return []
    what = (f"{settings.slurm.time} is too short: loading the judge takes about {in_words(load)} ({source}), and in "
            f"the last {in_words(lead)} no game is started")
    wanted = slurm_time(load + settings.limits.drain + max(load, 600.0))
    level = error if measured or limit <= load / TWICE + lead else warning
    return [level("FH507", "slurm.time", what, f"give it {wanted} or more; 'flock-hpc plan' proposes a time limit")]


def load_seconds(settings: Settings, root: Path, runs: Iterable[Mapping[str, Any]]) -> tuple[float, str, bool]:
    """(seconds that the judge's server needs to become ready, where that is from, whether it was measured)."""
    judge = settings.judge
    if judge.kind == "openai":
        return 0.0, "nothing to load", False
    seen = list(_seen(judge.name, runs))
    if seen:
        return statistics.median(seen), f"median of {len(seen)} load(s)", True
    if judge.kind == "rehearsal":
        option = judge.rehearsal.get("load_seconds")
        seconds = float(option) if isinstance(option, int | float) else 0.0
        return seconds, "load_seconds of the rehearsal judge", True
    folder = judge_path(settings, root)
    try:
        weights = read_model_folder(folder).weight_bytes if folder else 0
    except (OSError, ValueError):
        weights = 0
    return weights / DISK_RATE + ENGINE_START, f"assumed: {weights / 1e9:.0f} GB at 1 GB/s, and 60 s", False


def _seen(judge: str, runs: Iterable[Mapping[str, Any]]) -> Iterable[float]:
    for run in runs:
        loads = run.get("load")
        for load in loads if run.get("judge") == judge and isinstance(loads, list) else ():
            seconds = load.get("seconds") if isinstance(load, dict) else None
            if isinstance(seconds, int | float) and 0 <= seconds < 1e9:
                yield float(seconds)
