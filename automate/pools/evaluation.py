"""Each (question, model) once: pending, started, answered, failed, expired.

Never counts an answer twice, and never takes one that is late, repeated or from elsewhere."""

from __future__ import annotations

from automate.pools.exchange import Context, Handler
from automate.pools.kinds.base import Count
from automate.pools.store import Statements

HANDLERS: dict[str, Handler] = {}
"""Benchmark, Evaluate, Score, Inference-Response, Transfer-Error: part of a data set's handlers."""


def count_of(db: Statements, dataset: str, model: int) -> Count:
    """How far a model is with a data set."""
    raise NotImplementedError


def expire(context: Context) -> int:
    """Started longer ago than pools.inference_timeout: pending again, or failed after pools.attempts; how many."""
    raise NotImplementedError
