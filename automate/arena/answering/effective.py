"""The settings of a generation job, in the places where all jobs look for theirs.

Pure; the judge itself is left out: nothing of it is started or asked by such a job."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from automate.settings import Environment, Settings, Staging

ANSWERS = "generate"


def generation_settings(settings: Settings) -> Settings:
    """Settings whose `slurm`, `batch_size` and `judge` (kind, server, environment, how it is asked) are `generate`'s.

    Time limits, directives and GPU-hours then come out right wherever they are computed. The same for settings that
    were made by this function.
    """
    own, judge = settings.generate, settings.judge
    asked = own.slurm.model_dump(exclude_none=True)
    if own.slurm.gpus is not None and own.slurm.gres is None:
        asked["gres"] = None  # the judge's gres would win over it
    around = own.environment if own.environment is not None else judge.environment
    if own.kind == "rehearsal":
        around = Environment()
    served = judge.model_copy(update={
        "kind": own.kind, "server": own.server, "environment": around, "rehearsal": own.rehearsal,
        "temperature": own.temperature, "max_tokens": own.max_tokens, "concurrency": own.concurrency,
        "request_timeout": own.request_timeout, "engine": "builtin", "staging": Staging(), "path": None,
        "base_url": None, "api_key_env": None, "requests_per_minute": None, "max_cost": None,
    })
    return settings.model_copy(update={
        "slurm": settings.slurm.model_copy(update=asked), "judge": served,
        "batch_size": own.batch_size or settings.batch_size,
    })


def longest_answer(runs: Iterable[Mapping[str, Any]]) -> float:
    """Seconds of the longest answers that earlier generation jobs measured: the 95th percentile's worst."""
    found = [run.get("game_seconds") for run in runs if run.get("kind") == ANSWERS]
    return max((float(seconds.get("p95", 0.0)) for seconds in found if isinstance(seconds, dict)), default=0.0)
