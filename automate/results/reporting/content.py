"""What a report page holds: boards, quality, curves, packed games and where the numbers come from. Plain frozen data.

Never computes and never renders; `report.py` fills it, `page.py` shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from automate.results.boards import Agreement, Board, Comparison, Quality


@dataclass(frozen=True)
class Fact:
    """One line of what makes a report reproducible. `value` None: it is not known, and `why` says why."""

    name: str
    value: str | None
    why: str = ""


@dataclass(frozen=True)
class FactGroup:
    """Facts that belong together, under one heading."""

    title: str
    facts: tuple[Fact, ...]


@dataclass(frozen=True)
class FileHash:
    """A file that numbers came from: its name below the bench's folder, size in bytes and sha256 in hex."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Provenance:
    """Where a report's numbers come from, as far as it is known; `notices` are said at the top of the page."""

    groups: tuple[FactGroup, ...] = ()
    notices: tuple[str, ...] = ()


@dataclass(frozen=True)
class ModelGames:
    """A model's games as packed for the page: gzip of JSON lines. `questions` is how many there are in the files."""

    model: str
    data: bytes
    included: int
    questions: int
    disagreements: int
    included_disagreements: int


@dataclass(frozen=True)
class PackedGames:
    """All games that the page holds. `shared`: gzip of JSON lines with the questions and the baseline's answers.

    `texts` False: the data has no texts, only verdicts. `cut`: texts that were too long to be taken whole.
    """

    models: tuple[ModelGames, ...] = ()
    shared: bytes = b""
    judges: tuple[str, ...] = ()
    baselines: tuple[str, ...] = ()
    texts: bool = True
    answers: bool = True
    cut: int = 0
    notes: tuple[str, ...] = ()

    @property
    def included(self) -> int:
        return sum(model.included for model in self.models)

    @property
    def questions(self) -> int:
        return sum(model.questions for model in self.models)


@dataclass(frozen=True)
class Picture:
    """A plot as SVG, what it shows in a few words, and its size in CSS pixels where it says so."""

    title: str
    alt: str
    svg: bytes


@dataclass(frozen=True)
class CurvesPart:
    """Score over training steps: pictures, a table (heads and rows of text), notes."""

    pictures: tuple[Picture, ...]
    heads: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Content:
    """All of a report. `made` is the date shown; `styled_why` says why there is no style-controlled board."""

    bench: str
    made: str
    board: Board
    summary: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    styled: Board | None = None
    styled_why: str = ""
    by_category: Mapping[str, Board] = field(default_factory=dict)
    quality: tuple[Quality, ...] = ()
    agreement: tuple[Agreement, ...] = ()
    comparison: Comparison | None = None
    curves: CurvesPart | None = None
    curves_why: str = ""
    games: PackedGames = PackedGames()
    provenance: Provenance = Provenance()
    files: tuple[FileHash, ...] = ()
    notes: tuple[str, ...] = ()
