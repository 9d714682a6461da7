"""`--wait`: follows a plan's jobs to their end, shows it, and hands batches over again that died.

Never cancels: when the view ends, the jobs go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

from automate.arena.progress import Progress
from automate.campaign.judging import Request, resubmit
from automate.campaign.state import BatchView, CampaignState, look
from automate.cluster.base import Cluster
from automate.errors import ClaimedError, FlockError
from automate.workspace import Workspace

LINE_EVERY = 30.0
NEVER = frozenset({"PartitionTimeLimit", "PartitionNodeLimit", "PartitionInactive", "PartitionDown", "JobHeldAdmin",
                   "JobHeldUser", "DependencyNeverSatisfied", "BadConstraints", "InvalidAccount", "InvalidQOS"})
"""Slurm's reasons for a wait that does not end by itself."""


@dataclass
class Follower:
    """Follows the batches of some plans. `say` prints an event above the bars."""

    workspace: Workspace
    cluster: Cluster
    progress: Progress
    plans: frozenset[str]
    request: Request
    say: Callable[[str], None] = print
    told: dict[tuple[str, int], str] = field(default_factory=dict)
    given_up: set[tuple[str, int]] = field(default_factory=set)
    waiting: set[tuple[str, int]] = field(default_factory=set)

    def step(self) -> tuple[CampaignState, bool]:
        """One look; True when nothing is left to wait for."""
        state = look(self.workspace)
        self.progress.refresh()
        busy = False
        for view in self._views(state):
            self._tell(view)
            again = not view.may_act and self._due(view) > 0 and self._again(view)
            busy = busy or view.may_act or again
        return state, not busy

    def _views(self, state: CampaignState) -> list[BatchView]:
        return [view for view in state.batches if view.stored.plan.id in self.plans]

    def _due(self, view: BatchView) -> int:
        due = self.progress.due
        return sum(due.get(model, 0) for model in view.batch.models)

    def _tell(self, view: BatchView) -> None:
        why = view.status.reason if view.status else ""
        key = view.stored.plan.id, view.batch.number
        text = f"{view.state} {view.job or ''} {why if why in NEVER else ''}"
        if self.told.get(key) != text:
            self.told[key] = text
            reason = f" ({why}{': Slurm will not start it as it is' if why in NEVER else ''})" if why else ""
            self.say(f"batch {view.batch.number}: {view.state}{', job ' + view.job if view.job else ''}{reason}")

    def _again(self, view: BatchView) -> bool:
        """Hand a dead batch over again, as often as the settings allow; True when it was, or may be yet."""
        key = (view.stored.plan.id, view.batch.number)
        if key in self.given_up:
            return False
        limit = self.workspace.settings.limits.resubmits
        due = self._due(view)
        if view.submissions > limit:
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: {due} games are still due after {view.submissions} starts; given up. "
                     "See 'flock-hpc logs " + str(view.batch.number) + "', then run 'flock-hpc judge --submit' again")
            return False
        if view.run is not None and view.run.get("hopeless"):
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: {view.run.get('error')}\nIt would fail again like this; given up.")
            return False
        if view.state == "cancelled" and not self._by_us(view):
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: cancelled with {due} games due; left alone")
            return False
        try:
            done = resubmit(self.workspace, self.cluster, view, self.request)
        except ClaimedError as error:  # another command is at work on it: look again
            if key not in self.waiting:
                self.waiting.add(key)
                self.say(f"batch {view.batch.number}: not handed over again yet: {error}")
            return True
        except FlockError as error:
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: can't be handed over again: {error}")
            return False
        self.say(f"batch {view.batch.number}: {view.state} with {due} games due; handed over again as job {done.job} "
                 f"(start {view.submissions + 1} of at most {limit + 1})")
        return True

    @staticmethod
    def _by_us(view: BatchView) -> bool:
        """Whether a 'cancelled' job really fell with its runner or node, and nobody cancelled it."""
        return view.status is not None and "runner" in view.status.reason


def follow(follower: Follower, console: Console, *, pause: float) -> bool:
    """Show progress until every batch has ended; True when every game is finished. Ctrl-C raises on."""
    bars = Bars(TextColumn("[bold]{task.description}"), BarColumn(bar_width=None), MofNCompleteColumn(),
                TextColumn("games"), TextColumn("{task.fields[note]}"), TimeElapsedColumn(),
                console=console, disable=not console.is_terminal, transient=False)
    follower.say = lambda text: bars.console.print(escape(text), highlight=False)
    progress = follower.progress
    with bars:
        total = bars.add_task("all", total=progress.wanted, completed=progress.finished, note="")
        rows = {model: bars.add_task(escape(model[-48:]), total=entry.status.wanted, note="")
                for model, entry in progress.models.items()} if len(progress.models) <= 12 else {}
        said = time.monotonic()
        while True:
            state, ended = follower.step()
            _draw(bars, total, rows, follower, state)
            if not console.is_terminal and time.monotonic() - said >= LINE_EVERY:
                said = time.monotonic()
                follower.say(f"{progress.finished} of {progress.wanted} games")
            if ended:
                break
            time.sleep(pause)
    follower.say(f"{progress.finished} of {progress.wanted} games are finished")
    return progress.finished == progress.wanted


def _draw(bars: Bars, total: TaskID, rows: dict[str, TaskID], follower: Follower, state: CampaignState) -> None:
    progress = follower.progress
    views = follower._views(state)
    running = sum(1 for view in views if view.state == "running")
    queued = sum(1 for view in views if view.state == "queued")
    bars.update(total, completed=progress.finished, note=f"{running} running, {queued} queued")
    for model, task in rows.items():
        status = progress.models[model].status
        note = f"{status.final} null" if status.final else ""
        bars.update(task, completed=status.wanted - status.due, note=note)
