"""A chain as lines of a table: what each job makes, of which models, and what it waits for. Pure.

Never asks anybody anything; names come out as they are, to be escaped where they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.arena.batches import Batch
from automate.campaign.chain import Links
from automate.campaign.chain_held import Maker
from automate.campaign.generating import GenerationPrepared
from automate.cluster.slurm import compress

MODELS_SHOWN = 4
WIDTH = 44
"""Characters of names that are shown of a batch: one long name, or a few short ones."""


@dataclass(frozen=True)
class Line:
    """One job of a chain."""

    job: str
    models: str
    work: str
    starts: str


def some(names: Sequence[str], most: int = MODELS_SHOWN) -> str:
    """The first names, and how many there are beside."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def few(names: Sequence[str]) -> str:
    """As many of the first names as fit into a line, one at least, and how many there are beside."""
    shown = 1
    while shown < min(len(names), MODELS_SHOWN) and len(", ".join(names[:shown + 1])) <= WIDTH:
        shown += 1
    return some(names, shown)


def chain_lines(answers: GenerationPrepared, links: Links, models: int, results: str) -> list[Line]:
    """Every job of a chain in the order in which they run: those in the queue, and those that are planned."""
    lines = [Line(f"answers {number}", few(names), "in work", f"{state}, job {job}")
             for number, names, state, job in _busy(answers)]
    planned = answers.stored.plan.batches if answers.stored else ()
    lines += [Line(f"answers {batch.number}", few(batch.models), f"{batch.games:,} answers", "at once")
              for batch in planned]
    games = links.stored.plan.batches if links.stored else ()
    in_queue = {view.batch.number: view for view in links.busy.values()}
    lines += [Line(f"games {number}", few(view.batch.models), "in work", f"{view.state}, job {view.job}")
              for number, view in sorted(in_queue.items())]
    lines += [Line(f"games {batch.number}", few(batch.models), f"{batch.games:,} games", starts(batch, links.waits))
              for batch in games]
    if games or in_queue:
        numbers = [*in_queue, *(batch.number for batch in games)]
        lines.append(Line("report", f"{models} model" + "s" * (models != 1), results,
                          f"after games {compress(numbers)}"))
    return lines


def _busy(answers: GenerationPrepared) -> list[tuple[int, tuple[str, ...], str, str]]:
    views = {view.batch.number: view for view in answers.busy.values()}
    return [(number, view.batch.models, view.state, view.job or "?") for number, view in sorted(views.items())]


def starts(batch: Batch, waits: Mapping[int, Sequence[Maker]]) -> str:
    """When a judging batch starts."""
    numbers = sorted({number for _, number in waits.get(batch.number, ())})
    if not numbers:
        return "at once"
    return f"after answers {compress(numbers)}"
