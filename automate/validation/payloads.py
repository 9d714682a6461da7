"""Whether a result may go over the wire: whole, finite, with every field of its module's metrics.

Pure but for one import: shipped modules' schemas, which need pydantic only; never imports a module of somebody else."""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from automate.validation.inner.files import Outcome, Result

JSON = object
_DEEPEST = 20


def shipped_fields(module: str) -> frozenset[str] | None:
    """The metrics' fields of a shipped module; None for any other."""
    name = f"automate.validation.modules.{module}"
    if not module.isidentifier() or module == "base" or find_spec(name) is None:
        return None
    try:
        return frozenset(import_module(name).MODULE.metrics_schema.model_fields)
    except (ImportError, AttributeError):
        return None


def payload_problem(result: Result, metrics: str, fields: frozenset[str] | None) -> str | None:
    """Why a completed result can't be sent, or None. `metrics`: the setting of that name; `fields`: None if unknown."""
    if result.outcome is not Outcome.COMPLETED:
        return f"its outcome is {result.outcome}, not completed"
    if not isinstance(result.payload, dict) or not result.payload:
        return "it has no payload"
    if not isinstance(result.metrics, dict) or not result.metrics:
        return "it has no metrics"
    missing = sorted((fields or frozenset()) - set(result.metrics))
    if missing:
        return f"its metrics miss {', '.join(missing)}"
    missing = sorted(set(result.metrics) - set(result.payload)) if metrics == "current" else []
    if missing:
        return f"its payload misses {', '.join(map(str, missing))}"
    return unfit(result.payload, "payload") or unfit(result.metrics, "metrics")


def payload_fit(result: Result) -> bool:
    """Whether a result can be written as JSON."""
    return unfit(result.payload, "payload") is None and unfit(result.metrics, "metrics") is None


def unfit(value: JSON, where: str, depth: int = 0) -> str | None:
    """The first value in it that JSON has no finite form for, or None."""
    if depth > _DEEPEST:
        return f"{where} is nested too deeply"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{where} is {value}, which can't be sent"
    if isinstance(value, Mapping):
        if not all(isinstance(name, str) for name in value):
            return f"{where} holds a name that is no text"
        parts = [(one, f"{where}.{name}") for name, one in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(one, f"{where}[{number}]") for number, one in enumerate(value)]
    else:
        return None if value is None or isinstance(value, str | int | float) else f"{where} is no JSON value"
    return next((found for one, name in parts if (found := unfit(one, name, depth + 1))), None)
