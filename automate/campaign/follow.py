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

from automate.arena.counting.progress import Progress
from automate.arena.running.gpu_hours import number
from automate.campaign.handing import Request, Submitted, asked_of, hand_in_more, resubmit
from automate.campaign.plans import read_plans
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import count_of, taken_over
from automate.cluster.asking import ask
from automate.cluster.base import Cluster
from automate.cluster.limits import SubmitLimits
from automate.errors import ClaimedError, FlockError
from automate.workspace import Workspace

LINE_EVERY = 30.0
ROOM_EVERY = 60.0
"""Seconds between questions for room when nothing of ours has ended meanwhile."""
LIMITS_EVERY = 600.0
SUCCESSOR_GRACE = 180.0
"""Seconds in which a job that goes on by itself may be in nobody's list: between its end and its next start."""
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
    room_asked: tuple[float, int] = (float("-inf"), 0)
    limits: tuple[float, SubmitLimits] | None = None
    no_room: str = ""

    def step(self) -> tuple[CampaignState, bool]:
        """One look; True when nothing is left to wait for."""
        state = look(self.workspace)
        self.progress.refresh()
        busy, planned = False, list[BatchView]()
        for view in self._views(state):
            self._tell(view)
            if view.state == "planned":
                planned += [view] if self._due(view) > 0 else []
                continue
            again = not view.may_act and self._due(view) > 0 and (goes_on_itself(view, time.time())
                                                                   or self._again(view))
            busy = busy or view.may_act or again
        busy = (bool(planned) and self._more(state, planned)) or busy
        return state, not busy

    # --- batches that nobody has handed in yet --------------------------------------------------
    def _more(self, state: CampaignState, planned: list[BatchView]) -> bool:
        """Hand in what fits of batches that were never handed in; True while some may still be."""
        planned = [view for view in planned if not self._lost(state, view)]
        active, now = len(state.active), time.monotonic()
        last, count = self.room_asked
        if not planned or (active >= count > 0 and now - last < ROOM_EVERY):
            return bool(planned)
        waits = False
        for plan in sorted({view.stored.plan.id for view in planned}):
            numbers = [view.batch.number for view in planned if view.stored.plan.id == plan]
            try:
                done = hand_in_more(self.workspace, self.cluster, plan, self.request, by="wait", only=numbers,
                                    limits=self._limits(now))
            except ClaimedError:
                return True  # another command is at it: look again
            except FlockError as error:
                done = Submitted(notes=[f"can't hand in more now: {error}"], waiting=numbers, why=error.what)
            self._tell_more(plan, done)
            active += sum(len(submission.tasks) for submission in done.accepted)
            waits = waits or bool(done.waiting or done.accepted)
        self.room_asked = now, active
        return waits and self._hope(active)

    def _limits(self, now: float) -> SubmitLimits | None:
        if self.cluster.kind != "slurm":
            return None
        if self.limits is None or now - self.limits[0] > LIMITS_EVERY:
            self.limits = now, ask(asked_of(self.workspace))
        return self.limits[1]

    def _lost(self, state: CampaignState, view: BatchView) -> bool:
        key = (view.stored.plan.id, view.batch.number)
        if key in self.given_up:
            return True
        if self.workspace.stopped(key[0]).exists():
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: not handed in any more: the campaign was cancelled")
            return True
        newer = taken_over(self.workspace, state, view, read_plans(self.workspace))
        if newer is not None:
            self.given_up.add(key)
            self.plans |= {newer.plan.id}
            self.say(f"batch {view.batch.number} of plan {view.stored.plan.id} was taken over by plan {newer.plan.id}, "
                     "which is followed too")
        return newer is not None

    def _tell_more(self, plan: str, done: Submitted) -> None:
        for note in done.notes:
            if self.no_room != note:
                self.say(note)
        left = f"; {len(done.waiting)} still to come" if done.waiting else ""
        for submission in done.accepted:
            self.say(f"{count_of(submission.tasks)} handed in as job {submission.job}{left}")
        for submission, error in done.refused:
            self.given_up |= {(plan, number) for number in submission.tasks.values()}
            self.say(f"{count_of(submission.tasks)} can't be handed in: {error}")
        if done.waiting and done.why.partition(";")[0] != self.no_room.partition(";")[0]:
            self.say(f"to be handed in when there is room: {count_of(done.waiting)} ({done.why})")
        self.no_room = done.why

    def _hope(self, active: int) -> bool:
        """Whether room may appear: not where the GPU-hours are spent and nothing runs that could leave some."""
        if active or not self.no_room.startswith("limits.max_gpu_hours"):
            return True
        self.say("no batch that is left fits under limits.max_gpu_hours, and no job of ours is in the queue: given up. "
                 "Raise it (--max-gpu-hours) and run 'flock-hpc judge --submit' again")
        return False

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
        if view.submissions > limit:  # starts by a job of its own (requeue, successor) don't count
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: {due} games are still due after {view.submissions} "
                     + ("start" if view.submissions == 1 else "starts") +
                     f"{cause_of(view)}; given up. See 'flock-hpc logs {view.batch.number}', then run "
                     "'flock-hpc judge --submit' again")
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
        return self._told_again(view, done, due)

    def _told_again(self, view: BatchView, done: Submitted, due: int) -> bool:
        """Say what came of handing a batch over again; True when it was, or may be yet."""
        key = (view.stored.plan.id, view.batch.number)
        what = f"batch {view.batch.number}: {view.state} with {due} games due{cause_of(view)}"
        for note in done.notes:
            self.say(note)
        if done.accepted:
            self.waiting.discard(key)
            self.say(f"{what}; handed over again as job {done.accepted[0].job} (start {view.submissions + 1} of at "
                     f"most {self.workspace.settings.limits.resubmits + 1})")
            return True
        if done.refused:
            self.given_up.add(key)
            self.say(f"batch {view.batch.number}: can't be handed over again: {done.refused[0][1]}")
            return False
        if key not in self.waiting:
            self.waiting.add(key)
            self.say(f"{what}; waits for room: {done.why}")
        self.no_room = done.why
        return self._hope(len(look(self.workspace).active))

    @staticmethod
    def _by_us(view: BatchView) -> bool:
        """Whether a 'cancelled' job really fell with its runner or node, and nobody cancelled it."""
        return view.status is not None and "runner" in view.status.reason


def cause_of(view: BatchView) -> str:
    """The first line of what a batch's job said went wrong, in brackets; empty where it said nothing."""
    said = str((view.run or {}).get("error") or "").partition("\n")[0]
    return f" ({said})" if said else ""


def goes_on_itself(view: BatchView, now: float) -> bool:
    """Whether a batch's job said a moment ago that it goes on: requeued, by a successor, or by Slurm.

    A job that was cancelled since does not, whatever it said.
    """
    after = (view.run or {}).get("next")
    if view.state == "cancelled":
        return False
    if not isinstance(after, dict) or after.get("kind") not in ("requeue", "successor", "slurm"):
        return False
    said = number(view.run or {}, "updated") or 0.0
    return abs(now - said) < SUCCESSOR_GRACE


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
