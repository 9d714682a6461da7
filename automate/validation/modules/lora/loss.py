"""The loss of a model over rows: each row's token mean in float32, batched by length, padding left out.

The same figure as one row at a time by the model's own loss; where that isn't sure, it is done that way."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from automate.validation.modules.lora.batching import Split, longest_shared, split, take
from automate.validation.modules.lora.rows import Row

IGNORED = -100
TOLERANCE = 0.01
"""How far the batched figure of a row may lie from the model's own: rounding of float16, not another definition."""
_CHUNK = {"cpu": 2**20, "cuda": 2**27}
"""Logits whose cross entropy is taken at once: what a processor's cache holds, or what a GPU hardly notices."""
_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def budget_for(device: str, vocabulary: int) -> int:
    """Tokens of a batch where the config names none: on a CPU so few that their logits are not paged in anew."""
    return 8192 if device == "cuda" else max(256, min(1024, 2**25 // max(1, vocabulary)))


def out_of_memory(error: BaseException) -> bool:
    """Whether torch says that memory ran out, on a GPU or here."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and any(text in str(error) for text in _MEMORY))


@dataclass(frozen=True)
class Place:
    """Where and how a model runs. `pad`: the token for padding; `autocast`: mixed precision with float16."""

    device: str
    autocast: bool
    pad: int

    def precision(self) -> AbstractContextManager[Any]:
        """What a pass of the model runs under."""
        return torch.autocast(self.device, torch.float16) if self.autocast else nullcontext()


class _OnlyTargets:
    """While open, the model's output layer sees the positions before targets only: [1, positions, hidden]."""

    def __init__(self, model: Any, wanted: Tensor) -> None:
        self.layer = model.get_output_embeddings()
        self.wanted = wanted
        self.calls = 0

    def _pick(self, layer: object, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        self.calls += 1
        hidden = inputs[0] if inputs else None
        if not isinstance(hidden, Tensor) or hidden.shape[:2] != self.wanted.shape:
            return inputs
        return (hidden[self.wanted.to(hidden.device)].unsqueeze(0), *inputs[1:])

    def __enter__(self) -> _OnlyTargets:
        self.hook = None if self.layer is None else self.layer.register_forward_pre_hook(self._pick)
        return self

    def __exit__(self, *_: object) -> None:
        if self.hook is not None:
            self.hook.remove()


def _picked(model: Any, logits: Tensor, wanted: Tensor, calls: int) -> Tensor:
    """Logits [positions, vocabulary] before targets, of a whole output or of one that is picked already."""
    if calls == 1 and logits.shape[:2] == (1, int(wanted.sum())):
        return logits[0]
    if logits.shape[:2] != wanted.shape:
        raise ValueError(f"{type(model).__name__} gives logits of the shape {tuple(logits.shape)}")
    return logits[wanted.to(logits.device)]


def batch_losses(model: Any, rows: Sequence[Row], place: Place) -> list[float]:
    """Each row's mean over its predicted tokens, in nats; all rows in one pass, padded on the right.

    Without a mask: in a causal model no token sees the padding behind it, and the model takes its way for whole rows,
    as it does for a row alone. That a model is causal is seen by `_agrees`.
    """
    longest = max(len(row.ids) for row in rows)
    ids = torch.full((len(rows), longest), place.pad, dtype=torch.long)
    labels = torch.full_like(ids, IGNORED)
    for index, row in enumerate(rows):
        size, tokens = len(row.ids), torch.tensor(row.ids, dtype=torch.long)
        ids[index, :size] = tokens
        labels[index, :size] = torch.where(torch.tensor(row.mask) == 1, tokens, IGNORED)
    following = functional.pad(labels, (0, 1), value=IGNORED)[:, 1:]
    wanted = following != IGNORED
    with place.precision(), _OnlyTargets(model, wanted) as only:
        logits = model(input_ids=ids.to(place.device), use_cache=False).logits
    losses = _token_losses(_picked(model, logits, wanted, only.calls), following[wanted])
    return [float(part.mean()) for part in losses.split([int(count) for count in wanted.sum(1)])]


def _token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Cross entropy of every token in float32; in pieces, so that no second copy of all logits is made."""
    targets = targets.to(logits.device)
    size = max(1, _CHUNK.get(logits.device.type, 2**20) // logits.shape[-1])
    pieces = [functional.cross_entropy(part.float(), wanted, reduction="none")
              for part, wanted in zip(logits.split(size), targets.split(size), strict=True)]
    return torch.cat(pieces).cpu()


def own_loss(model: Any, row: Row, place: Place) -> float:
    """The model's own loss of one row, as the client asks for it (auxiliary losses included)."""
    ids = torch.tensor([row.ids], dtype=torch.long, device=place.device)
    labels = torch.where(torch.tensor([row.mask], device=place.device) == 1, ids, IGNORED)
    with place.precision():
        loss: Tensor = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=labels,
                             use_cache=False).loss
    return float(loss.float())


def _agrees(model: Any, rows: Sequence[Row], place: Place) -> bool:
    """Whether the batched way gives the model's own figures, for two short rows of different lengths."""
    by_length = sorted(rows, key=lambda row: len(row.ids))
    pair = [by_length[0], by_length[len(rows) // 4]]
    try:
        ours = batch_losses(model, pair, place)
    except (ValueError, TypeError, AttributeError):
        return False
    theirs = [own_loss(model, row, place) for row in pair]
    return all(math.isclose(mine, other, rel_tol=TOLERANCE, abs_tol=1e-6)
               or not (math.isfinite(mine) or math.isfinite(other)) for mine, other in zip(ours, theirs, strict=True))


def _planned(model: Any, rows: Sequence[Row], place: Place) -> Split:
    parts = split(rows, longest_shared(model.config.to_dict()))
    if parts.together and not _agrees(model, [rows[index] for index in parts.together], place):
        print(f"{type(model).__name__} has a loss of its own: one row at a time")
        return Split((), tuple(range(len(rows))))
    return parts


def _attempt(model: Any, rows: Sequence[Row], place: Place) -> list[float] | None:
    """A batch's losses; None where memory ran out and fewer rows may fit."""
    try:
        return batch_losses(model, rows, place)
    except Exception as error:
        if len(rows) == 1 or not out_of_memory(error):
            raise
    print(f"memory ran out with {len(rows)} rows of up to {len(rows[0].ids)} tokens: half as many from now on")
    return None


def row_losses(model: Any, rows: Sequence[Row], place: Place, budget: int) -> list[float]:
    """Each row's token mean in nats, in the order of the rows. `budget`: tokens of a batch, padding counted.

    A batch that the memory can't hold is tried again with half of it, down to one row; that error is passed on.
    """
    with torch.inference_mode():
        parts = _planned(model, rows, place)
        losses = {index: own_loss(model, rows[index], place) for index in parts.alone}
        left = list(parts.together)
        while left:
            size = take(left, rows, budget)
            found = _attempt(model, [rows[index] for index in left[:size]], place)
            if found is None:
                budget = size // 2 * len(rows[left[0]].ids)
                torch.cuda.empty_cache()
                continue
            losses.update(zip(left[:size], found, strict=True))
            del left[:size]
    return [losses[index] for index in range(len(rows))]


def mean_loss(model: Any, rows: Sequence[Row], place: Place, budget: int) -> float:
    """The mean over rows of each row's token mean, in nats; NaN where a row has no predicted target.

    That one row spoils the figure of the whole set is the client's way too, and so kept.
    """
    if not all(row.predicted for row in rows):
        return math.nan
    losses = row_losses(model, rows, place, budget)
    return math.fsum(losses) / len(losses) if all(map(math.isfinite, losses)) else math.nan
