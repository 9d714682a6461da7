"""What bootstrap rounds say of checkpoints: intervals, how sure a best one is, how alike two rankings are.

Works on arrays of shape (rounds, models), in percent, NaN where a model has no game in a round. Reads no files."""

from __future__ import annotations

import numpy as np
from scipy import stats

from automate.results.battles import Floats

MIN_RUNS = 3
"""Two rankings of fewer runs are alike or opposite by chance alone."""


def around(value: float, draws: Floats, confidence: float) -> tuple[float, float]:
    """The percentile interval of a value's rounds; NaN where the value is, or fewer than half of the rounds have one.

    A correlation drops in most rounds, as drawing questions again adds noise to both rankings; so the interval errs
    downwards, and is widened to hold the value where that lies above it.
    """
    known = draws[~np.isnan(draws)]
    if np.isnan(value) or len(known) * 2 < len(draws) or not len(known):
        return float("nan"), float("nan")
    tail = (100 - confidence) / 2
    low, high = np.percentile(known, [tail, 100 - tail])
    return min(float(low), value), max(float(high), value)


def best_shares(draws: Floats) -> Floats:
    """For each column the share of rounds in which it is highest; a tie counts for each by its part."""
    draws = draws[~np.all(np.isnan(draws), axis=1)]
    if not len(draws):
        return np.full(draws.shape[1], np.nan)
    top = np.nanmax(draws, axis=1, keepdims=True)
    highest = np.isclose(draws, top, rtol=0, atol=1e-9)
    shares: Floats = (highest / highest.sum(axis=1, keepdims=True)).mean(axis=0)
    return shares


def mean_rounds(draws: Floats) -> Floats:
    """The mean over columns in each round, NaN where one of them has no value."""
    means: Floats = draws.mean(axis=1)
    return means


def spearman(first: Floats, second: Floats) -> float:
    """Spearman's rank correlation of two rows of scores; NaN for fewer than MIN_RUNS, or where all of one are equal
    or unknown."""
    if len(first) < MIN_RUNS or np.isnan(first).any() or np.ptp(first) == 0 or np.ptp(second) == 0:
        return float("nan")
    return float(stats.spearmanr(first, second).statistic)


def spearman_rounds(first: Floats, second: Floats) -> Floats:
    """Spearman's correlation in each round of two arrays of shape (rounds, runs); NaN where it is undefined."""
    if first.shape[1] < MIN_RUNS:
        return np.full(len(first), np.nan)
    one = stats.rankdata(first, axis=1, nan_policy="propagate")
    other = stats.rankdata(second, axis=1, nan_policy="propagate")
    one = one - one.mean(axis=1, keepdims=True)
    other = other - other.mean(axis=1, keepdims=True)
    spread = np.sqrt((one ** 2).sum(axis=1) * (other ** 2).sum(axis=1))
    with np.errstate(invalid="ignore", divide="ignore"):
        correlation: Floats = np.where(spread > 0, (one * other).sum(axis=1) / spread, np.nan)
    return correlation
