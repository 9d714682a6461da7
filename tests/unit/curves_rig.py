"""Battles made up for curves: models whose chance to win is known, all on the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from automate.results.battles import NO_VERDICT, Battles, Verdicts
from automate.results.boards import Options
from automate.settings_results import CHECKPOINT

OPTIONS = Options(rounds=200)
PATTERN = CHECKPOINT


def battles_of(verdicts: Mapping[str, Verdicts], baseline: str = "base") -> Battles:
    """Each model's verdicts, shape (questions, 2); all models on the same questions, in one category."""
    models = tuple(verdicts)
    sizes = [len(rows) for rows in verdicts.values()]
    questions = tuple(f"q{number:04}" for number in range(max(sizes, default=0)))
    stacked = np.concatenate([*verdicts.values(), np.zeros((0, 2), np.int8)]).astype(np.int8)
    count = len(stacked)
    zeros = np.zeros(count, np.int32)
    return Battles(
        models, questions, ("hard_prompt",), (baseline,), ("judge",),
        np.repeat(np.arange(len(models)), sizes).astype(np.int32),
        np.concatenate([zeros[:0], *(np.arange(size, dtype=np.int32) for size in sizes)]), zeros, zeros, zeros,
        stacked[:, 0], stacked[:, 1])


def drawn(chances: Mapping[str, float], questions: int = 400, seed: int = 7) -> Battles:
    """Models that win each game with their chance; which questions are hard is the same for all of them."""
    generator = np.random.default_rng(seed)
    hard = generator.random((questions, 2))
    own = {name: generator.random((questions, 2)) for name in chances}
    return battles_of({name: np.where((hard + own[name]) / 2 < _cut(chance), 1, -1).astype(np.int8)
                       for name, chance in chances.items()})


def _cut(chance: float) -> float:
    """Where the mean of two uniform numbers lies below with that chance."""
    return float(np.sqrt(chance / 2) if chance <= 0.5 else 1 - np.sqrt((1 - chance) / 2))


def exact(wins: Mapping[str, int], questions: int = 100) -> Battles:
    """Models that win so many questions, the same ones for all, and lose the rest: scores without chance."""
    return battles_of({name: np.repeat(np.where(np.arange(questions) < won, 1, -1)[:, None], 2, axis=1).astype(np.int8)
                       for name, won in wins.items()})


def without_verdicts(questions: int = 100) -> Verdicts:
    """A model all of whose games are null."""
    return np.full((questions, 2), NO_VERDICT, np.int8)


def name(run: str, step: int | str, rank: int = 64, lr: str = "1e5") -> str:
    """A checkpoint's name as the default pattern reads it."""
    return f"{run}-rank{rank}-alpha{lr}-{step if isinstance(step, str) else f'step{step}'}"


def grid(ranks: Sequence[int], rates: Sequence[str], steps: Sequence[int | str], seed: int = 7) -> Battles:
    """A run for each rank and rate that improves with its steps: more with rank, less with later rates."""
    chances = {}
    for place, rank in enumerate(ranks):
        for other, rate in enumerate(rates):
            for at, step in enumerate(steps):
                progress = 1 - 0.65 ** (at + 1)
                chances[name("tulu3-8b", step, rank, rate)] = 0.15 + progress * (0.2 + 0.08 * place - 0.05 * other)
    return drawn(chances, seed=seed)
