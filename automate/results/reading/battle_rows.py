"""v0.1 battles files: who won which row, in the file's order.

Changes no file; lines that are no battles are named."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from automate.errors import DataError
from automate.results.battles import Floats, Ints
from automate.results.reading.columns import Names
from automate.results.reading.dialects import BadLine, read_battle
from automate.results.reading.lines import BadLines, lines_of


@dataclass(frozen=True)
class BattleRows:
    """Rows of a v0.1 battles file in its order; a strong verdict is three rows. `outcome`: 1 model_b, 0.5 tie, 0.

    `model` and `question` are indexes into the names. `baselines`: all names of model_a; `problems`: unusable lines.
    """

    models: tuple[str, ...]
    questions: tuple[str, ...]
    model: Ints
    question: Ints
    outcome: Floats
    baselines: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


def read_battles(path: Path) -> BattleRows:
    """A v0.1 battles file. Raises DataError where no line of it is a battle, StorageError where it can't be read."""
    models, questions, baselines = Names(), Names(), Names()
    model, question, outcome = array("i"), array("i"), array("d")
    bad = BadLines()
    for number, line, whole in lines_of(path):
        try:
            uid, first, second, worth = read_battle(line)
        except BadLine as error:
            bad.add(path, number, str(error), whole)
            continue
        baselines(first)
        model.append(models(second))
        question.append(questions(uid))
        outcome.append(worth)
    problems = bad.said
    if not model:
        raise DataError("no battles in it", where=str(path), todo="it should hold lines with model_a, model_b and "
                        "winner" + (f"; the first that can't be used: {problems[0]}" if problems else ""))
    return BattleRows(models.names, questions.names, np.array(model, np.int32), np.array(question, np.int32),
                      np.array(outcome, np.float64), baselines.names, problems)
