"""Judged games as columns of small numbers: what every score is computed from.

Holds no texts; reading files into it is the work of `reading/`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]
Verdicts = NDArray[np.int8]
Floats = NDArray[np.float64]

NO_VERDICT = -128
"""In place of a verdict where a game has none: a null game, a null score, an unknown label, a missing game."""

FEATURES = ("token_len", "header_count", "list_count", "bold_count")
"""The style features, in the order of upstream's coefficients."""


@dataclass(frozen=True)
class Battles:
    """Rows of judgment files, one a question of a model: both games' verdicts from the judged model's standpoint.

    Arrays have one entry a row, in order of reading (files by name, lines as they stand). `model`, `question`,
    `category`, `baseline`, `judge` are indexes into the tuples of names. `first` and `second` are the verdicts of game
    1 and game 2: 2 a strong win of the model, 1 a win, 0 a tie, -1 a loss, -2 a strong loss, or NO_VERDICT.
    """

    models: tuple[str, ...]
    questions: tuple[str, ...]
    categories: tuple[str, ...]
    baselines: tuple[str, ...]
    judges: tuple[str, ...]
    model: Ints
    question: Ints
    category: Ints
    baseline: Ints
    judge: Ints
    first: Verdicts
    second: Verdicts

    def __len__(self) -> int:
        return len(self.model)

    @property
    def complete(self) -> NDArray[np.bool_]:
        """Rows both of whose games have a verdict; scores are computed from these alone."""
        both: NDArray[np.bool_] = (self.first != NO_VERDICT) & (self.second != NO_VERDICT)
        return both

    def take(self, rows: NDArray[np.bool_] | Ints) -> Battles:
        """The same names with some rows only."""
        return Battles(self.models, self.questions, self.categories, self.baselines, self.judges, self.model[rows],
                       self.question[rows], self.category[rows], self.baseline[rows], self.judge[rows],
                       self.first[rows], self.second[rows])


@dataclass(frozen=True)
class Style:
    """Style metadata of answers: `counts[model]` is an array of shape (questions, 4), by FEATURES, NaN where unknown.

    Rows are in the order of `questions`. `counted_by`: which tokenizer counted a model's `token_len`, where known.
    """

    questions: tuple[str, ...]
    counts: Mapping[str, Floats]
    counted_by: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Tally:
    """What was found of one model under one judge while reading, beside its verdicts: for messages and for `quality`.

    `nulls`: games without a verdict by cause (unparsed, too_long, refused, null, bad_label, missing_game);
    `problems`: lines that could not be used, each with file and line.
    """

    model: str
    judge: str
    file: str
    rows: int = 0
    duplicates: int = 0
    nulls: Mapping[str, int] = field(default_factory=dict)
    bad_labels: Mapping[str, int] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Judgments:
    """All that was read of a bench for some judges."""

    battles: Battles
    tallies: tuple[Tally, ...]
    notes: tuple[str, ...] = ()
