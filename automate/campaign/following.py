"""What `--wait` shows: bars over games and answers, and a line for each event.

Never decides anything: the follower does."""

from __future__ import annotations

import time
from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from automate.campaign.follow import Follower
from automate.campaign.late import LateProgress
from automate.campaign.state import CampaignState

LINE_EVERY = 30.0
"""Seconds between two lines on how far it is, where there is no terminal."""
MOST_ROWS = 12

Row = tuple[str, str, int, int, str]
"""A bar: what tells it from others, its name, done, wanted, a note."""


def follow(follower: Follower, console: Console, *, pause: float) -> bool:
    """Show progress until every batch has ended; True when nothing is due any more. Ctrl-C raises on."""
    bars = Bars(TextColumn("[bold]{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(),
                TextColumn("{task.fields[things]}"), TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
                console=console, disable=not console.is_terminal, transient=False)
    follower.say = lambda text: bars.console.print(escape(text), highlight=False)
    tasks: dict[str, TaskID] = {}
    with bars:
        said = time.monotonic()
        while True:
            state, ended = follower.step()
            _draw(bars, tasks, follower, state)
            if not console.is_terminal and time.monotonic() - said >= LINE_EVERY:
                said = time.monotonic()
                follower.say("; ".join(totals(follower)))
            if ended:
                break
            time.sleep(pause)
    for line in totals(follower, "are finished"):
        follower.say(line)
    if isinstance(follower.progress, LateProgress) and follower.progress.why and follower.progress.names:
        follower.say(f"games can't be counted: {follower.progress.why}")
        return False
    return all(counts.finished == counts.wanted for counts in (follower.answers, follower.progress)
               if counts is not None)


def totals(follower: Follower, end: str = "") -> list[str]:
    """How many answers and games there are, of how many."""
    found = [(counts, things) for counts, things in ((follower.answers, "answers"), (follower.progress, "games"))
             if counts is not None]
    return [f"{counts.finished} of {counts.wanted} {things} {end}".rstrip() for counts, things in found]


def _rows(follower: Follower, state: CampaignState) -> Iterator[Row]:
    for counts, things, kind in ((follower.answers, "answers", "generate"), (follower.progress, "games", "judge")):
        if counts is not None:
            views = [view for view in follower.views(state) if view.kind == kind]
            running, queued = (sum(1 for view in views if view.state == which) for which in ("running", "queued"))
            yield (things, "all" if follower.answers is None else things, counts.finished, counts.wanted,
                   f"{running} running, {queued} queued")
    if follower.progress is not None and len(follower.progress.models) <= MOST_ROWS:
        for model, entry in follower.progress.models.items():
            status = entry.status
            yield (f"games of {model}", escape(model[-48:]), status.wanted - status.due, status.wanted,
                   f"{status.final} null" if status.final else "")
    elif follower.progress is None and follower.answers is not None and len(follower.answers.due) <= MOST_ROWS:
        for model, due in follower.answers.due.items():
            yield f"answers of {model}", escape(model[-48:]), follower.answers.questions - due, \
                follower.answers.questions, ""


def _draw(bars: Bars, tasks: dict[str, TaskID], follower: Follower, state: CampaignState) -> None:
    for key, name, done, wanted, note in _rows(follower, state):
        if key not in tasks:
            tasks[key] = bars.add_task(name, total=wanted, note="", things=key.split(" ")[0])
        bars.update(tasks[key], completed=done, total=wanted, note=note)
