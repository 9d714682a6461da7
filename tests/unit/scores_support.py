"""Small battles for the tests of scores, and the real ones of the test data.

Verdicts are written from the judged model's standpoint: 2 a strong win, -2 a strong loss, None none."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from automate.results.battles import NO_VERDICT, Battles, Style
from automate.results.boards import Board, Score
from automate.results.reading.folder import of_data
from automate.results.reading.judgments import read_judgments
from automate.results.reading.style import read_style
from tests.unit.support import real_data

Row = tuple[str, str, int | None, int | None]
"""Model, question, verdict of game 1, verdict of game 2."""


def battles(rows: Iterable[Row], *, category: Mapping[str, str] | None = None,
            baseline: Mapping[str, str] | None = None, judge: str = "judge") -> Battles:
    """Battles of rows. `category` by question ("c" where not named), `baseline` by category ("base")."""
    table = list(rows)
    kinds = [(category or {}).get(row[1], "c") for row in table]
    against = [(baseline or {}).get(name, "base") for name in kinds]
    models, model = _index([row[0] for row in table])
    questions, question = _index([row[1] for row in table])
    categories, kind = _index(kinds)
    baselines, base = _index(against)
    return Battles(models, questions, categories, baselines, (judge,), model, question, kind, base,
                   np.zeros(len(table), np.int32), _verdicts(row[2] for row in table),
                   _verdicts(row[3] for row in table))


def _index(values: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    names = tuple(dict.fromkeys(values))
    return names, np.array([names.index(value) for value in values], np.int32)


def _verdicts(values: Iterable[int | None]) -> np.ndarray:
    return np.array([NO_VERDICT if value is None else value for value in values], np.int8)


def random_battles(models: Mapping[str, float], questions: int, seed: int = 0) -> Battles:
    """Games whose outcome follows a quality by model and an effect by question, from a seeded generator."""
    generator = np.random.default_rng(seed)
    effects = generator.normal(0, 1, questions)
    rows: list[Row] = []
    for model, quality in models.items():
        for number, effect in enumerate(effects):
            first, second = np.clip(np.round(quality + effect + generator.normal(0, 1, 2)), -2, 2).astype(int).tolist()
            rows.append((model, f"q{number}", first, second))
    return battles(rows)


def random_style(found: Battles, seed: int = 1) -> Style:
    """Counts for all models and baselines."""
    generator = np.random.default_rng(seed)
    names = (*found.models, *found.baselines)
    return Style(found.questions, {name: generator.integers([50, 0, 0, 0], [900, 9, 20, 30],
                                                            (len(found.questions), 4)).astype(np.float64)
                                   for name in names})


def real_battles() -> tuple[Battles, Style]:
    """The 24 real models and the style of their answers; skips without them."""
    folder = of_data(real_data("leaderboard-dev"), "ko")
    found = read_judgments(folder, ["ens"]).battles
    return found, read_style(folder, [*found.models, *found.baselines], found.questions)


def real_column(name: str, column: str) -> dict[str, float]:
    """A column of one of the expected tables, by the first column."""
    with expected(name).open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {next(iter(row.values())): float(row[column]) for row in rows}


def expected(name: str) -> Path:
    """A file of what was computed elsewhere from the same data; skips without it."""
    return real_data("leaderboard-dev", "expected", name)


def row_of(board: Board, model: str) -> Score:
    """A model's row, which must be there."""
    found = board.score_of(model)
    assert found is not None, model
    return found
