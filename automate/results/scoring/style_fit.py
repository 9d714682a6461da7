"""Bradley-Terry with shared covariates, fitted to convergence: Newton's method on sums by question, in float64.

Never sees a row or a name: arrays in, arrays out. The Hessian is an arrow (one intercept for each group of games, few
shared features), so each step costs one pass over the cells and the solution of a system as small as the features."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from automate.results.battles import Floats

FAR = 30.0
"""The intercept of a group that won or lost everything: its likelihood has no maximum, and this is far enough."""
STEPS = 60
LARGEST_STEP = 4.0
NOTHING = 1e-12
"""Curvature below this is rounding: the group's verdicts are foreseen."""
CHUNK = 1 << 18
"""Multiplications of a matrix product: rounds are worked on in parts of at most this many. So they stay in the
processor's cache, and BLAS starts no threads for them, which cost far more than they gain on a busy machine."""


@dataclass(frozen=True)
class Cells:
    """What was played, by group (a model against one baseline) and question: `won` and `weight` of shape (G, Q).

    `features` of shape (G, Q, F), standardised; anything where weight is 0.
    """

    won: Floats
    weight: Floats
    features: Floats


@dataclass(frozen=True)
class Fit:
    """Intercepts (..., G) on the logit scale at features 0, coefficients (..., F), and whether it converged."""

    intercepts: Floats
    coefficients: Floats
    converged: bool
    rank: int


@dataclass(frozen=True)
class _Terms:
    """Gradient and Hessian: leading axes are rounds. `inner`: (..., F, F); `cross`: (..., G, F)."""

    group: Floats
    shared: Floats
    diagonal: Floats
    cross: Floats
    inner: Floats


def fit(cells: Cells) -> Fit:
    """The maximum-likelihood fit. `converged` is False where features predict every verdict (separation)."""
    ones = np.ones((1, cells.won.shape[1]))
    start = Fit(*_start(cells, ones), True, 0)
    found = _newton(cells, ones, start, 1e-10)
    terms = _terms(cells, ones, found)
    scale = max(float(np.trace(terms.inner[0])), 1e-300)
    rank = int(np.sum(np.linalg.eigvalsh(_schur(terms)[0]) > 1e-9 * scale)) if cells.features.shape[2] else 0
    return Fit(found.intercepts[0], found.coefficients[0], found.converged, rank)


def refit(cells: Cells, counts: Floats, whole: Fit) -> Fit:
    """The fit in each round of a bootstrap, `counts` of shape (rounds, Q): from the fit of all to convergence.

    The first step needs no pass over cells and rounds, as gradient and Hessian at one point are sums by question.
    """
    start = Fit(*_start(cells, counts, whole), True, 0)
    return _newton(cells, counts, _moved(start, _linear(cells, counts, whole), _apart(cells, counts)), 1e-3)


def _apart(cells: Cells, counts: Floats) -> Floats:
    """1 where a group won all of a round, -1 where it lost all, 0 else; shape (rounds, G). Nothing played: 1."""
    won, weight = counts @ cells.won.T, counts @ cells.weight.T
    lost = won <= 1e-12
    return np.where(weight - won <= 1e-12, 1.0, np.where(lost, -1.0, 0.0))


def _start(cells: Cells, counts: Floats, whole: Fit | None = None) -> tuple[Floats, Floats]:
    apart, (rounds, shared) = _apart(cells, counts), (len(counts), cells.features.shape[2])
    if whole is None:
        share = np.clip((counts @ cells.won.T) / np.maximum(counts @ cells.weight.T, 1e-300), 0.01, 0.99)
        intercepts, coefficients = np.log(share / (1 - share)), np.zeros((rounds, shared))
    else:
        intercepts = np.broadcast_to(whole.intercepts, apart.shape)
        coefficients = np.broadcast_to(whole.coefficients, (rounds, shared))
    return np.where(apart == 0, np.clip(intercepts, -10, 10), FAR * apart), np.array(coefficients)


def _newton(cells: Cells, counts: Floats, start: Fit, enough: float) -> Fit:
    """Newton steps until the largest is below `enough`: as they converge quadratically, what remains is its square."""
    apart, current = _apart(cells, counts), start
    for _ in range(STEPS):
        after = _moved(current, _terms(cells, counts, current), apart)
        moved = np.abs(np.where(apart == 0, after.intercepts - current.intercepts, 0.0)).max(initial=0.0)
        moved = max(moved, np.abs(after.coefficients - current.coefficients).max(initial=0.0))
        current = after
        if moved < enough:
            return current
    return Fit(current.intercepts, current.coefficients, False, 0)


def _schur(terms: _Terms) -> Floats:
    """What is left of the shared features' Hessian once the intercepts are free; shape (..., F, F).

    Groups whose verdicts are all foreseen (diagonal 0) say nothing of the features any more and are left out.
    """
    diagonal = terms.diagonal[..., None]
    weighted = np.divide(terms.cross, diagonal, out=np.zeros_like(terms.cross), where=diagonal > NOTHING)
    found: Floats = terms.inner - np.swapaxes(terms.cross, -1, -2) @ weighted
    return found


def _moved(current: Fit, terms: _Terms, apart: Floats) -> Fit:
    """One Newton step, shortened where it is too long to be trusted. Groups that are `apart` stay where they are."""
    free = apart == 0
    diagonal = np.where(free, np.maximum(terms.diagonal, NOTHING), 1.0)
    cross = np.where(free[..., None], terms.cross, 0.0)
    terms = _Terms(np.where(free, terms.group, 0.0), terms.shared, diagonal, cross, terms.inner)
    right = terms.shared - np.einsum("...gf,...g->...f", cross, terms.group / diagonal)
    shared = np.einsum("...fe,...e->...f", np.linalg.pinv(_schur(terms), rcond=1e-11, hermitian=True), right)
    group = (terms.group - np.einsum("...gf,...f->...g", cross, shared)) / diagonal
    longest = np.maximum(np.abs(group).max(axis=-1, initial=0.0), np.abs(shared).max(axis=-1, initial=0.0))
    shrink = np.minimum(1.0, LARGEST_STEP / np.maximum(longest, 1e-300))[..., None]
    return Fit(current.intercepts + shrink * group, current.coefficients + shrink * shared, True, 0)


def _outer(features: Floats) -> Floats:
    """Products of all pairs of features, shape (..., F * F)."""
    return (features[..., :, None] * features[..., None, :]).reshape(*features.shape[:-1], features.shape[-1]**2)


def _linear(cells: Cells, counts: Floats, at: Fit) -> _Terms:
    """Gradient and Hessian of every round at one common point."""
    shared = cells.features.shape[2]
    chance = expit(at.intercepts[:, None] + cells.features @ at.coefficients)
    rest, curve = cells.won - cells.weight * chance, cells.weight * chance * (1 - chance)
    cross = np.einsum("rq,gqf->rgf", counts, curve[..., None] * cells.features, optimize=True)
    slope = np.einsum("gq,gqf->qf", rest, cells.features)
    bend = np.einsum("gq,gqk->qk", curve, _outer(cells.features))
    return _Terms(counts @ rest.T, counts @ slope, counts @ curve.T, cross,
                  (counts @ bend).reshape(len(counts), shared, shared))


def _terms(cells: Cells, counts: Floats, at: Fit) -> _Terms:
    """Gradient and Hessian of every round at its own point."""
    (groups, questions, shared), rounds = cells.features.shape, len(counts)
    if shared == 1:
        return _with_one_feature(cells, counts, at)
    found = _Terms(np.zeros((rounds, groups)), np.zeros((rounds, shared)), np.zeros((rounds, groups)),
                   np.zeros((rounds, groups, shared)), np.zeros((rounds, shared * shared)))
    size = max(1, CHUNK // max(questions * shared**2, 4 * questions, 1))
    for group in range(groups):
        used = np.flatnonzero(cells.weight[group] > 0)
        features = np.ascontiguousarray(cells.features[group, used])
        outer = _outer(features)
        drawn = counts if len(used) == questions else counts[:, used]
        for first in range(0, rounds, size):
            part = slice(first, first + size)
            _add(found, group, part, drawn[part], (cells.won[group, used], cells.weight[group, used]),
                 (features, outer), at)
    return _Terms(found.group, found.shared, found.diagonal, found.cross, found.inner.reshape(rounds, shared, shared))


def _with_one_feature(cells: Cells, counts: Floats, at: Fit) -> _Terms:
    """The same with a second feature of zeros: a product with a single column is one that BLAS starts threads for."""
    wide = Cells(cells.won, cells.weight, np.pad(cells.features, ((0, 0), (0, 0), (0, 1))))
    found = _terms(wide, counts, Fit(at.intercepts, np.pad(at.coefficients, ((0, 0), (0, 1))), True, 0))
    return _Terms(found.group, found.shared[:, :1], found.diagonal, found.cross[:, :, :1], found.inner[:, :1, :1])


def _add(found: _Terms, group: int, part: slice, drawn: Floats, played: tuple[Floats, Floats],
         features: tuple[Floats, Floats], at: Fit) -> None:
    """Add one group's share in some rounds."""
    chance = at.coefficients[part] @ features[0].T
    chance += at.intercepts[part, group, None]
    chance = _logistic(chance)
    weight = drawn * played[1]
    expected = weight * chance
    rest = drawn * played[0] - expected
    curve = expected - expected * chance
    found.group[part, group] = rest.sum(axis=1)
    found.diagonal[part, group] = curve.sum(axis=1)
    found.shared[part] += rest @ features[0]
    found.cross[part, group] = curve @ features[0]
    found.inner[part] += curve @ features[1]


def _logistic(values: Floats) -> NDArray[np.float64]:
    """1 / (1 + exp(-x)) in place; no overflow, as values are kept within some hundreds."""
    np.clip(values, -500, 500, out=values)
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += 1.0
    np.reciprocal(values, out=values)
    return values
