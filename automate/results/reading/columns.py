"""Rows as growing columns of small numbers, and names as numbers.

Holds no texts but names; never reads a file."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice, repeat

import numpy as np
from numpy.typing import NDArray

from automate.results.battles import Battles, Ints
from automate.results.reading.dialects import FoundRow

UNNAMED = "(baseline)"
"""The baseline's name where v0.1 rows don't say it."""


class Names:
    """Names in order of their first use, and their numbers."""

    def __init__(self) -> None:
        self.numbers: defaultdict[str, int] = defaultdict()
        self.numbers.default_factory = self.numbers.__len__

    def __call__(self, name: str) -> int:
        return self.numbers[name]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.numbers)


class Columns:
    """Rows of all files as growing columns."""

    def __init__(self) -> None:
        self.names = {name: Names() for name in ("model", "question", "category", "baseline", "judge")}
        self.numbers = {name: array("i") for name in self.names}
        self.first, self.second = array("b"), array("b")

    def extend(self, rows: Sequence[FoundRow], *, models: Iterable[str], categories: Iterable[str],
               baselines: Iterable[str], judge: str) -> None:
        """Add rows of one judge; the others as long as the rows, or longer where they repeat without end."""
        values = {"model": models, "question": [row.uid for row in rows], "category": categories,
                  "baseline": baselines, "judge": repeat(judge)}
        for name, each in values.items():
            self.numbers[name].extend(map(self.names[name].numbers.__getitem__, islice(each, len(rows))))
        self.first.extend([row.first for row in rows])
        self.second.extend([row.second for row in rows])

    def battles(self) -> Battles:
        names = {name: self.names[name].names for name in self.names}
        columns = {name: np.array(numbers, np.int32) for name, numbers in self.numbers.items()}
        return Battles(names["model"], names["question"], names["category"], names["baseline"], names["judge"],
                       columns["model"], columns["question"], columns["category"], columns["baseline"],
                       columns["judge"], np.array(self.first, np.int8), np.array(self.second, np.int8))


def compact(battles: Battles, rows: NDArray[np.bool_]) -> Battles:
    """Some rows, and of models and questions the names that these rows have, in their order."""
    kept = battles.take(rows)
    model, models = _renumbered(kept.model, battles.models)
    question, questions = _renumbered(kept.question, battles.questions)
    return replace(kept, models=models, questions=questions, model=model, question=question)


def _renumbered(numbers: Ints, names: tuple[str, ...]) -> tuple[Ints, tuple[str, ...]]:
    there, places = np.unique(numbers, return_inverse=True)
    return places.astype(np.int32), tuple(names[number] for number in there)
