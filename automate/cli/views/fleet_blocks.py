"""Fleets in the live view: a block for each, as tall as there is room.

Pure; what has no room is counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from automate.cli.views.blocks import Block
from automate.cli.views.cells import cut
from automate.cli.views.fleets import failure_lines, headline, model_words, spent_line, worker_lines
from automate.cli.views.marks import Marks
from automate.cli.views.words import count

if TYPE_CHECKING:
    from automate.fleets.status import FleetStatus


def fleet_blocks(fleets: Sequence[FleetStatus], width: int, marks: Marks, rank: int) -> list[Block]:
    """A block for each fleet: what its servers' time went into, failures, then its workers."""
    return [_block(fleet, width, marks, rank) for fleet in fleets]


def _block(fleet: FleetStatus, width: int, marks: Marks, rank: int) -> Block:
    rows = [spent_line(fleet, width, marks), *failure_lines(fleet, width)]
    if fleet.state != "over":
        rows += [*_models(fleet, width), *worker_lines(fleet, width)]
    living = sum(1 for row in fleet.workers if row.state != "ended")
    return Block(Text(cut(headline(fleet, marks), width), "bold"), rows, rank, min(4, len(rows)),
                 lambda kept: f"and more: {count(living, 'server')} in all; 'flock-hpc serve --status' lists them")


def _models(fleet: FleetStatus, width: int) -> Iterator[Text]:
    """A line for each model, where there are several; one model's numbers stand in the title."""
    for model in fleet.models if len(fleet.models) > 1 else ():
        yield Text(cut(f"  {model_words(model)}", width))
