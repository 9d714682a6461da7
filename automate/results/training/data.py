"""What curves say: points of runs, means of groups, best checkpoints, how early rankings settle. Plain frozen data.

Computed by `curves.py`; shown by the command line, `plotting/` and the report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from automate.results.boards import Options
from automate.results.training.checkpoints import Checkpoint

FINAL = "final"


@dataclass(frozen=True)
class Point:
    """A checkpoint's score in percent with its interval. `share`: of bootstrap rounds in which it is its run's best, on
    the questions that all of the run share; NaN where these are too few.

    `place`: the step at which it is drawn; `guessed` where that is none that a name or setting gives. `best`: it has
    the highest score of its run, on these questions.
    """

    checkpoint: Checkpoint
    score: float
    low: float
    high: float
    questions: int
    games: int
    place: float
    guessed: bool = False
    share: float = float("nan")
    best: bool = False

    @property
    def column(self) -> str:
        """Which column of a table it belongs into: its step, or `final`."""
        return FINAL if self.checkpoint.final else str(self.checkpoint.step)


@dataclass(frozen=True)
class Run:
    """The points of a run by step, its end last. `end` is the point named `final`, or else that of the last step."""

    name: str
    groups: Mapping[str, str]
    points: tuple[Point, ...]

    @property
    def end(self) -> Point:
        return self.at(self.points[-1].column) or self.points[-1]

    @property
    def has_final(self) -> bool:
        return self.end.checkpoint.final

    @property
    def best(self) -> Point:
        return next(point for point in self.points if point.best)

    def at(self, column: str) -> Point | None:
        """The point of a column; the first by name where several claim it."""
        return next((point for point in self.points if point.column == column), None)


@dataclass(frozen=True)
class Mean:
    """The mean score of the `runs` of a group's `value` that have a step, with its interval by questions.

    `place` and `guessed` as for a point: where it is drawn, and whether no name or setting says so.
    """

    group: str
    value: str
    column: str
    place: float
    score: float
    low: float
    high: float
    runs: int
    guessed: bool = False


@dataclass(frozen=True)
class Best:
    """The best checkpoint of all that have a group's value; `group` is `run`, `rank`, `lr`, ...

    `share`: of bootstrap rounds in which it is, on the questions that all share, or NaN;
    `of`: checkpoints with this value; `runner_up`: the next best.
    """

    group: str
    value: str
    point: Point
    share: float
    of: int
    runner_up: str | None = None


@dataclass(frozen=True)
class Settled:
    """Spearman's correlation of a step's ranking of `runs` runs with the ranking at their ends, with its interval.

    NaN where there are too few runs or shared questions, or one of the rankings has all runs equal.
    `going_on`: runs that have a later point.
    """

    column: str
    place: float
    correlation: float
    low: float
    high: float
    runs: int
    going_on: int


@dataclass(frozen=True)
class Stop:
    """From which step on the ranking of the runs stays like the final one, to `threshold`; None: at no step.

    `by_value` looks at the correlation itself, `by_bound` at the lower end of its interval. `text` says it in words,
    with what speaks against relying on it.
    """

    threshold: float
    by_value: str | None
    by_bound: str | None
    text: str


@dataclass(frozen=True)
class Curves:
    """Score over training steps of all runs. `unmatched`: names that are no checkpoints; `scoreless`: checkpoints
    without a game that counts; `columns`: steps in order, `final` last."""

    runs: tuple[Run, ...]
    columns: tuple[str, ...]
    groups: tuple[str, ...]
    means: tuple[Mean, ...]
    bests: tuple[Best, ...]
    settled: tuple[Settled, ...]
    stop: Stop
    unmatched: tuple[str, ...]
    scoreless: tuple[str, ...]
    options: Options
    pattern: str
    baselines: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default=())

    @property
    def points(self) -> list[Point]:
        return [point for run in self.runs for point in run.points]

    def values(self, group: str) -> list[str]:
        """The values of a group that have means, in natural order; runs' names for `run`."""
        if group == "run":
            return [run.name for run in self.runs]
        return list(dict.fromkeys(mean.value for mean in self.means if mean.group == group))
