"""A leaderboard as rows of plain values: ranks, brackets of groups, pictures of intervals. Pure.

Knows nothing of files; texts are cleaned of what a terminal would obey."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from automate.cli.views.cells import clean, writable
from automate.results.battles import Tally
from automate.results.boards import Board, Quality, Score

LEVEL = 50.0
"""The baseline's score."""


@dataclass(frozen=True)
class Signs:
    """Characters of brackets and intervals."""

    top: str = "┌"
    side: str = "│"
    bottom: str = "└"
    line: str = "─"
    dot: str = "●"
    level: str = "┊"
    mark: str = "◂"
    to: str = "–"
    none: str = "–"


UNICODE = Signs()
ASCII = Signs(top="/", side="|", bottom="\\", line="-", dot="o", level=":", mark="<", to="-", none="-")


def signs_for(encoding: str) -> Signs:
    """The characters that an encoding can write."""
    return writable(UNICODE, ASCII, encoding)


@dataclass(frozen=True)
class Row:
    """One model: its score, and what is known of its games. `group`: top, side, bottom of a bracket, or empty."""

    place: int
    score: Score
    group: str
    nulls: int | None
    flips: float | None
    comparable: bool = True

    @property
    def model(self) -> str:
        return clean(self.score.model)

    def ranks(self, to: str) -> str:
        """The ranks that the model may hold, or its place where they weren't computed; none across baselines."""
        if not self.comparable:
            return ""
        low, high = self.score.rank_low, self.score.rank_high
        if not low:
            return str(self.place)
        return str(low) if low == high else f"{low}{to}{high}"

    @property
    def bounds(self) -> tuple[int | str, int | str]:
        """Both ranks for other programs; empty across baselines."""
        if not self.comparable:
            return "", ""
        return self.score.rank_low or self.place, self.score.rank_high or self.place

    @property
    def interval(self) -> str:
        return "" if self.score.is_baseline else f"{self.score.low:.1f} {self.score.high:.1f}"


def rows_of(board: Board, quality: Sequence[Quality], tallies: Sequence[Tally]) -> list[Row]:
    """The board's rows, with games without a verdict and flips of all its judges together."""
    found = []
    for place, (score, group) in enumerate(zip(board.scores, brackets(board.scores), strict=True), 1):
        known = [one for one in quality if one.model == score.model and one.judge in board.judges]
        questions = sum(one.questions for one in known)
        flips = sum(one.flips * one.questions for one in known if one.questions) / questions if questions else None
        nulls = [sum(one.nulls.values()) for one in tallies if one.model == score.model and one.judge in board.judges]
        found.append(Row(place, score, group, sum(nulls) if nulls else None, flips, board.comparable))
    return found


def brackets(scores: Sequence[Score]) -> list[str]:
    """For each row its part of a bracket around rows whose ranks hang together; empty for one that stands alone."""
    if not all(score.rank_low for score in scores):
        return [""] * len(scores)
    out: list[str] = []
    start = 0
    for end in range(1, len(scores) + 1):
        above, below = scores[start:end], scores[end:]
        apart = all(score.rank_high <= end for score in above) and all(score.rank_low > end for score in below)
        if apart or end == len(scores):
            count = end - start
            out += [""] if count == 1 else ["top", *["side"] * (count - 2), "bottom"]
            start = end
    return out


def axis(scores: Sequence[Score]) -> tuple[float, float]:
    """The range that pictures show: all intervals and the baseline's 50."""
    return (min([LEVEL, *(score.low for score in scores)]), max([LEVEL, *(score.high for score in scores)]))


def picture(score: Score, bounds: tuple[float, float], width: int, signs: Signs) -> str:
    """A score as a dot on its interval, with the baseline's place."""
    low, high = bounds

    def place(value: float) -> int:
        return 0 if high <= low else min(width - 1, max(0, round((value - low) / (high - low) * (width - 1))))

    cells = [" "] * width
    cells[place(LEVEL)] = signs.level
    if not score.is_baseline:
        for number in range(place(score.low), place(score.high) + 1):
            cells[number] = signs.line
        cells[place(score.score)] = signs.dot
    return "".join(cells)
