"""Which rows of a set may share a batch with the same figure as alone, and how many fit.

Pure but for looking at a model's config; what isn't known to be safe goes one row at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automate.validation.modules.lora.rows import Row

_BY_LENGTH = {"longrope", "su", "dynamic"}
"""Position encodings that depend on how long the batch is."""


@dataclass(frozen=True)
class Split:
    """Indices of rows that may be batched, and of those that go alone, in the set's order."""

    together: tuple[int, ...]
    alone: tuple[int, ...]


def _ropes(config: Any) -> Iterator[Mapping[str, Any]]:
    """Every table of position settings in a config, however deep."""
    if isinstance(config, Mapping):
        if "rope_type" in config or ("type" in config and "factor" in config) or "long_factor" in config:
            yield config
        for value in config.values():
            yield from _ropes(value)


def longest_shared(config: Mapping[str, Any]) -> float:
    """The greatest length of rows that may share a batch: 0 where none may, infinite where all may.

    Long-context encodings switch at the length of training, or rescale by the longest row seen; a mixture-of-experts
    model's auxiliary loss is taken over the whole batch.
    """
    if config.get("output_router_logits"):
        return 0
    kinds = [rope for rope in _ropes(config) if str(rope.get("rope_type", rope.get("type"))) in _BY_LENGTH]
    if not kinds:
        return float("inf")
    limits = [rope.get("original_max_position_embeddings") or config.get("original_max_position_embeddings")
              for rope in kinds]
    if any(rope.get("rope_type", rope.get("type")) == "dynamic" for rope in kinds):
        return 0
    return min((limit for limit in limits if isinstance(limit, int)), default=0) if all(limits) else 0


def split(rows: Sequence[Row], longest: float) -> Split:
    """Longest first in `together`, so that a batch too large for the memory shows at once."""
    fits = [len(row.ids) <= longest for row in rows]
    together = sorted((index for index, fit in enumerate(fits) if fit), key=lambda index: -len(rows[index].ids))
    return Split(tuple(together), tuple(index for index, fit in enumerate(fits) if not fit))


def take(indices: Sequence[int], rows: Sequence[Row], budget: int) -> int:
    """How many of the first indices (longest first) make a batch of at most `budget` tokens, padding counted."""
    if not indices:
        return 0
    return min(len(indices), max(1, budget // max(1, len(rows[indices[0]].ids))))
