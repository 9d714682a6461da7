"""Rounds of evaluation as a person reads them: what is due, what is under way, what a tick did.

Pure but for the console that it prints to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from automate.cli.views.cells import clean
from automate.cli.views.grids import name, number, show, word
from automate.cli.views.pools import money

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.pools.evaluating import Evaluated

Answer = Mapping[str, Any]


def print_due(console: Console, due: Sequence[Answer]) -> None:
    """What has no answer yet, by model."""
    if not due:
        console.print("Nothing is due: every question has its answer, or has failed.")
        return
    show(console, (name("model", 16), number("questions", 1), number("answered"), number("failed"), number("under way"),
                   number("due")),
         [(one["model"], money(one["rows"]), money(one["answered"]), money(one["failed"] + one["expired"]),
           money(one["started"]), money(one["pending"])) for one in due])


def print_evaluated(console: Console, done: Evaluated) -> None:
    """What came in, what was started, and the rounds."""
    told = list(sums(done))
    if told:
        console.print(", ".join(told), markup=False)
    if done.rounds:
        show(console, (word("round"), number("questions"), number("answers"), word("job", 1), word("state"),
                       name("models")),
             [(one.name, money(one.count), money(one.answers), one.job or "",
               "given up" if one.given_up else "done" if one.done else one.problem or one.state, ", ".join(one.models))
              for one in done.rounds])
    for one in done.rounds:
        if one.given_up:
            console.print(f"round {one.name} was given up: {clean(one.given_up)}", markup=False, soft_wrap=True)


def sums(done: Evaluated) -> Iterator[str]:
    """Counts that are not 0."""
    for count, words in ((done.answers, "answers handed in"), (done.strays, "answers not taken"),
                         (done.expired, "questions taken back"), (done.started, "questions started")):
        if count:
            yield f"{count:,} {words}"


def ticked(before: Evaluated, done: Answer, after: Evaluated | None) -> Iterator[str]:
    """What a tick did, a line each; nothing where it did nothing."""
    yield from sums(before)
    for action, count in done.items():
        if count:
            yield f"{count:,} {clean(str(action))}"
    if after is not None:
        yield from sums(after)
