"""Arena-Hard's style fit in its own way: limited-memory BFGS that stops after 50 steps of 0.1, in float32.

Never runs to convergence (`scoring/style_fit.py` does). All rounds of a bootstrap take their steps side by side, each
with its own history; equal rows are added up with their counts, which changes the sums by rounding only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]

RATE = np.float32(0.1)
LIMIT = 50
TOLERANCE = 1e-9
START = 0.5
CURVATURE = 1e-10
"""The least product of step and change of gradient for which the pair is remembered."""


@dataclass(frozen=True)
class Sums:
    """What was drawn in each round: `won` and `weight` of shape (groups, rounds, questions), `features` of shape
    (groups, questions, F), and `design` (groups, models): which coefficients add up to a group's logit."""

    won: Singles
    weight: Singles
    features: Singles
    design: Singles


@dataclass
class _History:
    """Steps and changes of gradient, newest last, each (rounds, n), and the inverse of their product, (rounds,)."""

    steps: list[Singles]
    changes: list[Singles]
    inverse: list[Singles]
    scale: Singles


def fitted(sums: Sums) -> Singles:
    """Coefficients of all rounds, shape (rounds, models + F): of the models, then of the features.

    The published algorithm (Nocedal, 1980; two-loop recursion) with a fixed step length. A round ends where gradient,
    step or change of the loss falls below 1e-9, or after 50 steps. The loss is computed only from where its
    float32 digits could stand still.
    """
    size = sums.design.shape[1] + sums.features.shape[2]
    at = np.full((sums.won.shape[1], size), START, np.float32)
    gradient, _ = _gradient(sums, at, False)
    going = np.abs(gradient).max(axis=1) > TOLERANCE
    history = _History([], [], [], np.ones((len(at), 1), np.float32))
    direction, length = -gradient, RATE * np.minimum(1, 1 / np.maximum(np.abs(gradient).sum(axis=1), 1e-30))
    loss = np.full(len(at), np.nan, np.float32)
    for step in range(1, LIMIT + 1):
        slope = np.einsum("rn,rn->r", gradient, direction)
        going = going & (slope <= -TOLERANCE)
        if not going.any():
            break
        moved = np.where(going[:, None], direction * length[:, None], 0).astype(np.float32)
        at = at + moved
        if step == LIMIT:
            break
        flat = bool(((-slope * length)[going] < _grain(sums)).any())
        after, now = _gradient(sums, at, flat)
        going = going & (np.abs(after).max(axis=1) > TOLERANCE) & (np.abs(moved).max(axis=1) > TOLERANCE)
        going = going & ~(np.abs(now - loss) < TOLERANCE)
        _remember(history, moved, after - gradient)
        gradient, loss = after, now
        direction, length = _direction(history, gradient), np.full(len(at), RATE)
    return at


def _grain(sums: Sums) -> float:
    """A change of the loss that float32 surely shows: the loss is at most about ln 2 a game."""
    return float(np.spacing(np.float32(sums.weight.sum() / max(sums.weight.shape[1], 1))) * 64)


def _gradient(sums: Sums, at: Singles, with_loss: bool) -> tuple[Singles, Singles]:
    """Gradient of the negative log-likelihood, (rounds, n), and the loss, (rounds,): NaN unless it is asked for."""
    models = sums.design.shape[1]
    intercepts, shared = at[:, :models] @ sums.design.T, np.ascontiguousarray(at[:, models:])
    group = np.zeros((len(at), len(sums.design)), np.float32)
    slope = np.zeros_like(shared)
    loss = np.full(len(at), 0.0 if with_loss else np.nan)
    for index in range(len(sums.design)):
        logits = shared @ sums.features[index].T
        logits += intercepts[:, index, None]
        if with_loss:
            loss += (sums.weight[index] * np.logaddexp(0, logits) - sums.won[index] * logits).sum(axis=1)
        rest = sums.weight[index] * _logistic(logits)
        rest -= sums.won[index]
        group[:, index] = rest.sum(axis=1)
        slope += rest @ sums.features[index]
    return np.concatenate([group @ sums.design, slope], axis=1), loss.astype(np.float32)


def _logistic(values: Singles) -> Singles:
    """1 / (1 + exp(-x)), in place."""
    np.clip(values, -80, 80, out=values)
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += np.float32(1)
    np.reciprocal(values, out=values)
    return values


def _remember(history: _History, step: Singles, change: Singles) -> None:
    """Add a pair; where its curvature is too small it gets no weight, which is as if it were not there."""
    product = np.einsum("rn,rn->r", step, change)
    kept = product > CURVATURE
    inverse = np.divide(1, product, out=np.zeros_like(product), where=kept)
    length = np.einsum("rn,rn->r", change, change)
    scale = np.divide(product, length, out=np.ones_like(product), where=kept & (length > 0))
    history.scale = np.where(kept[:, None], scale[:, None], history.scale)
    history.steps.append(step)
    history.changes.append(change)
    history.inverse.append(inverse)


def _direction(history: _History, gradient: Singles) -> Singles:
    """Minus the gradient times the remembered approximation of the inverse Hessian."""
    found = -gradient
    shares = []
    for step, change, inverse in zip(*_newest_first(history), strict=True):
        share = np.einsum("rn,rn->r", step, found) * inverse
        shares.append(share)
        found = found - share[:, None] * change
    found = found * history.scale
    for step, change, inverse, share in zip(history.steps, history.changes, history.inverse, reversed(shares),
                                            strict=True):
        found = found + step * (share - np.einsum("rn,rn->r", change, found) * inverse)[:, None]
    return found


def _newest_first(history: _History) -> tuple[list[Singles], list[Singles], list[Singles]]:
    return history.steps[::-1], history.changes[::-1], history.inverse[::-1]
