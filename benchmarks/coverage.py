"""How often a 95 % interval holds the true score, in simulated campaigns whose games are correlated.

python benchmarks/coverage.py [--campaigns N]; prints one table. Next to the default interval (questions resampled)
stands that of single verdicts resampled as if they were independent, as Arena-Hard's own program resamples them."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from automate.results.battles import Battles, Floats, Style
from automate.results.boards import Options
from automate.results.compatible.result import expanded
from automate.results.scoring.scores import leaderboard
from automate.results.scoring.style import prepare
from automate.results.scoring.style_fit import fit
from benchmarks.support import busy, print_table

LOW, HIGH = 94.0, 96.0
TIE, STRONG = 0.25, 2.0
"""Below this size a game's outcome is a tie, above that a strong verdict; logits."""


@dataclass(frozen=True)
class Setting:
    """One kind of campaign. `quality` of the models against the baseline on the logit scale, `spread` of a question's
    effect, `order` how far the answer shown first is ahead, `style` how much a standard deviation of length gains."""

    name: str
    questions: int
    quality: tuple[float, ...]
    spread: float = 1.5
    order: float = 0.4
    style: float = 0.0


SETTINGS = tuple(Setting(f"near {near}", questions, (quality,))
                 for near, quality in (("50", 0.0), ("10", -2.35), ("97", 3.65)) for questions in (100, 500))
STYLED = Setting("style control, 4 models", 500, (0.0, -1.0, -2.35, 1.5), style=0.8)


def campaign(setting: Setting, generator: np.random.Generator, questions: int = 0) -> tuple[Battles, Style]:
    """One campaign. A question is hard for a model in both its games; the answer shown first is ahead in each."""
    count, models = questions or setting.questions, len(setting.quality)
    tokens = np.exp(generator.normal(6.0, 0.5, (models + 1, count)))
    length = (tokens[:-1] - tokens[-1]) / (tokens[:-1] + tokens[-1])
    ahead = np.array(setting.quality)[:, None] + setting.style * length / 0.33
    ahead = ahead + setting.spread * generator.standard_normal((models, count))
    verdicts = [_verdicts(ahead + sign * setting.order, generator) for sign in (-1, 1)]
    model, question = np.divmod(np.arange(models * count, dtype=np.int32), np.int32(count))
    names, uids = tuple(f"model-{index}" for index in range(models)), tuple(f"q{index}" for index in range(count))
    zero = np.zeros(models * count, np.int32)
    battles = Battles(names, uids, ("all",), ("base",), ("judge",), model, question, zero, zero, zero, *verdicts)
    counts = {name: np.stack([row, *np.zeros((3, count))], axis=1)
              for name, row in zip((*names, "base"), tokens, strict=True)}
    return battles, Style(uids, counts)


def _verdicts(ahead: Floats, generator: np.random.Generator) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    outcome = (ahead + generator.logistic(size=ahead.shape)).ravel()
    size = np.where(np.abs(outcome) < TIE, 0, np.where(np.abs(outcome) > STRONG, 2, 1))
    return (np.sign(outcome) * size).astype(np.int8)


def truth(setting: Setting) -> Floats:
    """The scores that these campaigns estimate, in percent, from a million questions (error below 0.1 points)."""
    generator, total, parts = np.random.default_rng(987), np.zeros(len(setting.quality)), 20
    for _ in range(parts):
        battles, style = campaign(setting, generator, 50_000)
        total += point(battles, style, setting)
    return total / parts


def point(battles: Battles, style: Style, setting: Setting) -> Floats:
    """The default scores without intervals."""
    if setting.style:
        cells = prepare(battles, Options(style=("length",)), style)
        return 100 / (1 + np.exp(-fit(cells.cells).intercepts))
    row, outcome = expanded(battles)
    return 100 * np.bincount(battles.model[row], outcome) / np.bincount(battles.model[row])


def by_row(battles: Battles, generator: np.random.Generator, rounds: int) -> tuple[float, float]:
    """The interval of the first model where its single verdicts, strong ones thrice, are resampled: percentiles."""
    row, outcome = expanded(battles)
    scores = outcome[battles.model[row] == 0]
    drawn = generator.multinomial(len(scores), [np.mean(scores == worth) for worth in (0, 0.5, 1)], size=rounds)
    low, high = np.percentile(100 * (drawn @ np.array([0, 0.5, 1.0])) / len(scores), [2.5, 97.5])
    return float(low), float(high)


@dataclass(frozen=True)
class Covered:
    """Percent of campaigns whose interval holds the truth, mean widths in points, and the true scores."""

    true: Floats
    ours: float
    rows: float
    ours_width: float
    rows_width: float


def coverage(setting: Setting, campaigns: int, seed: int, rounds: int = 1000) -> Covered:
    """Simulate campaigns. With several models ours is the mean over models, that of rows of the first one."""
    generator, true = np.random.default_rng(seed), truth(setting)
    ours, rows = np.zeros((campaigns, 2)), np.zeros((campaigns, 2))
    for number in range(campaigns):
        battles, style = campaign(setting, generator)
        options = Options(style=("length",) if setting.style else (), seed=number, rounds=rounds)
        board = leaderboard(battles, options, style)
        found = [score for score in (board.score_of(name) for name in battles.models) if score is not None]
        ours[number] = np.mean([[score.low <= worth <= score.high, score.high - score.low]
                                for score, worth in zip(found, true, strict=True)], axis=0)
        low, high = by_row(battles, generator, rounds)
        rows[number] = low <= true[0] <= high, high - low
    (our_share, our_width), (row_share, row_width) = ours.mean(axis=0), rows.mean(axis=0)
    return Covered(true, 100 * our_share, 100 * row_share, our_width, row_width)


def main() -> int:
    """Print the table; exit status 1 where a figure is outside of 94 to 96 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--campaigns", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    error = 100 * math.sqrt(0.95 * 0.05 / options.campaigns)
    print(f"{busy()}; {options.campaigns:,} campaigns each, standard error of a share {error:.2f}\n")
    lines, met = [], True
    for setting in (*SETTINGS, STYLED):
        found = coverage(setting, options.campaigns, options.seed)
        met = met and LOW <= found.ours <= HIGH
        rows = ["-", "-"] if setting.style else [f"{found.rows:.1f}", f"{found.rows_width:.1f}"]
        true = ", ".join(f"{worth:.1f}" for worth in found.true)
        ours = [f"{found.ours:.1f}", f"{found.ours_width:.1f}"]
        lines.append([setting.name, true, str(setting.questions), *ours, *rows])
    print_table(["setting", "true score", "questions", "default covers, %", "width", "rows resampled cover, %",
                 "width"], lines)
    print(f"\ngoal ({LOW:g} to {HIGH:g} %): {'met' if met else 'MISSED'}")
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
