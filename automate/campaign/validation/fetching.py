"""`validation fetch`: turn after turn until enough is outstanding or nothing is to be had.

Waits for rate limits, and says so; never asks earlier than a task allows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from automate.campaign.validation.circle import Circle
from automate.errors import StorageError
from automate.validation import rates
from automate.validation.api_errors import BadKey
from automate.validation.fetching import Fetcher, Turn

LEAST = 1.0
"""Seconds between two turns, at least."""


def fetch_until(circle: Circle, module: str, task_ids: Sequence[str], *, most: int | None, once: bool,
                sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.time) -> int:
    """Fetch for a module; how many assignments came in. Raises FlockError where it can't even begin."""
    circle.ready(module, task_ids)
    fetcher = circle.fetcher(module, task_ids, most)
    came = 0
    while True:
        began = clock()
        turn = fetcher.turn()
        came += len(turn.admitted)
        tell(circle, turn)
        final = next((problem for problem in turn.problems if isinstance(problem, BadKey | StorageError)), None)
        if final is not None:
            raise final
        if turn.full:
            circle.say(f"{fetcher.outstanding()} outstanding: no more are fetched until some are reported")
        hopeful = [] if turn.full or once or not turn.waits else worth_waiting(fetcher, turn, began, clock())
        if not hopeful:
            return came
        wait = max(LEAST, min(turn.waits.get(task, 0.0) for task in hopeful) - clock())
        circle.say(f"next lookup of task {', '.join(hopeful)} in {wait:.0f} s (Ctrl-C leaves; what is fetched stays)")
        sleep(wait)


def worth_waiting(fetcher: Fetcher, turn: Turn, began: float, now: float) -> list[str]:
    """Tasks that a limit keeps back, or that just had a submission; not those that had none, or that can't be asked."""
    known = rates.load(fetcher.places.rates, now)
    gave = {one.task_id for one in turn.admitted}
    found = []
    for task in fetcher.task_ids:
        rate = known.get(task, rates.Rate())
        if task not in turn.closed and (task in gave or (rate.looked < began and not rate.outages)):
            found.append(task)
    return found


def tell(circle: Circle, turn: Turn) -> None:
    """A line for each assignment that came, and for each problem."""
    for one in turn.admitted:
        now = circle.spool.find(one.id) or one
        size = f", {now.data.size:,} bytes of data" if now.data else ""
        model = f", {now.model.repo}@{now.model.commit[:8]}" if now.model else ""
        why = f" ({now.cause or now.problem})" if now.cause or now.problem else ""
        circle.say(f"assignment {now.id} of task {now.task_id}: {now.state}{why}{size}{model}")
    for problem in turn.problems:
        circle.say(str(problem))
