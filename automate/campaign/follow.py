"""`--wait`: follows the jobs of some plans to their end, and hands batches over again that died.

Never cancels: when it is left, the jobs go on."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from automate.arena.context import baseline_map
from automate.arena.counting.progress import Progress
from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.follow_words import cause_of, goes_on_itself, logs_command, name_of, things_of
from automate.campaign.handing import Request, Submitted, hand_in_more, resubmit
from automate.campaign.kinds import kind_of, under_plan
from automate.campaign.late import LateProgress
from automate.campaign.plans import read_plans
from automate.campaign.rooms import asked_of
from automate.campaign.state import BatchView, CampaignState, look
from automate.campaign.waiting import count_of, taken_over
from automate.cluster.asking import ask
from automate.cluster.base import Cluster
from automate.cluster.limits import Asked, SubmitLimits
from automate.errors import ClaimedError, FlockError
from automate.workspace import Workspace

__all__ = ["NEVER", "Follower", "goes_on_itself"]
ROOM_EVERY = 60.0
"""Seconds between questions for room when nothing of ours has ended meanwhile."""
LIMITS_EVERY = 600.0
NEVER = frozenset({"PartitionTimeLimit", "PartitionNodeLimit", "PartitionInactive", "PartitionDown", "JobHeldAdmin",
                   "JobHeldUser", "DependencyNeverSatisfied", "BadConstraints", "InvalidAccount", "InvalidQOS"})
"""Slurm's reasons for a wait that does not end by itself."""


@dataclass
class Follower:
    """Follows the batches of some plans, of either kind of work. `say` prints an event above the bars.

    `progress` counts games, `answers` answers; neither is needed where no plan makes any. A judging batch is handed in
    when no batch that is followed makes answers of its models. `command`: what goes on with all, if no kind's.
    """

    workspace: Workspace
    cluster: Cluster
    progress: Progress | LateProgress | None
    plans: frozenset[str]
    request: Request
    answers: AnswerCounts | None = None
    say: Callable[[str], None] = print
    told: dict[tuple[str, int], str] = field(default_factory=dict)
    given_up: set[tuple[str, int]] = field(default_factory=set)
    waiting: set[tuple[str, int]] = field(default_factory=set)
    held_back: dict[tuple[str, int], tuple[str, int]] = field(default_factory=dict)
    room_asked: tuple[float, int] = (float("-inf"), 0)
    limits: dict[Asked, tuple[float, SubmitLimits]] = field(default_factory=dict)
    no_room: str = ""
    command: str = ""

    def step(self) -> tuple[CampaignState, bool]:
        """One look; True when nothing is left to wait for."""
        state = look(self.workspace)
        self._count()
        busy, planned, unanswered, followed = False, list[BatchView](), self._unanswered(state), self.plans
        for view in self.views(state):
            self._tell(view)
            if view.may_act:
                busy = True
            elif self._due(view) <= 0:
                continue
            elif self._waits_for_answers(view, unanswered):
                busy = True
            elif view.state == "planned":
                planned.append(view)
            else:
                busy = goes_on_itself(view, time.time()) or (
                    not self._taken_over(state, view) and self._again(view)) or busy
        busy = (bool(planned) and self._more(state, planned)) or busy
        return state, not busy and self.plans == followed  # a plan that took batches over is looked at first

    def _count(self) -> None:
        """Take in what was written since the last look; games too where answers change, which they rest on."""
        if self.answers is not None:
            self.answers.refresh()
        if isinstance(self.progress, LateProgress):
            self.progress.refresh()
        elif self.progress is not None:
            self.progress.refresh(inputs=self.answers is not None)

    def _unanswered(self, state: CampaignState) -> dict[str, BatchView]:
        """Models whose answers somebody makes now, or is to make when there is room."""
        views = [view for view in state.batches if view.kind == "generate"]
        return {model: view for view in views for model in view.batch.models
                if view.may_act or (view.stored.plan.id in self.plans and self._due(view) > 0
                                    and (view.stored.plan.id, view.batch.number) not in self.given_up)}

    def _waits_for_answers(self, view: BatchView, unanswered: dict[str, BatchView]) -> bool:
        """Whether a judging batch is left alone until answers of its models, and of the baseline, are there."""
        needed = (*view.batch.models, *baseline_map(self.workspace.settings.baseline).values())
        waits = next((unanswered[model] for model in needed if model in unanswered), None)
        if view.kind == "generate" or waits is None:
            return False
        key, theirs = (view.stored.plan.id, view.batch.number), (waits.stored.plan.id, waits.batch.number)
        if self.held_back.get(key) != theirs:
            self.held_back[key] = theirs
            self.say(f"{name_of(view)}: waits for answers that batch {waits.batch.number} of plan "
                     f"{waits.stored.plan.id} makes")
        return True

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
                                    limits=self._limits(now, planned, plan))
            except ClaimedError:
                return True  # another command is at it: look again
            except FlockError as error:
                done = Submitted(notes=[f"can't hand in more now: {error}"], waiting=numbers, why=error.what)
            self._tell_more(plan, done)
            active += sum(len(submission.tasks) for submission in done.accepted)
            waits = waits or bool(done.waiting or done.accepted)
        self.room_asked = now, active
        return waits and self._hope(active)

    def _limits(self, now: float, views: list[BatchView], plan: str) -> SubmitLimits | None:
        """The cluster's limits for the jobs of a plan, asked for now and then; None where it has none."""
        if self.cluster.kind != "slurm":
            return None
        asked = asked_of(under_plan(self.workspace, next(v.stored.plan for v in views if v.stored.plan.id == plan)))
        known = self.limits.get(asked)
        if known is None or now - known[0] > LIMITS_EVERY:
            known = self.limits[asked] = now, ask(asked)
        return known[1]

    def _lost(self, state: CampaignState, view: BatchView) -> bool:
        key = (view.stored.plan.id, view.batch.number)
        if key not in self.given_up and self.workspace.stopped(key[0]).exists():
            self.given_up.add(key)
            self.say(f"{name_of(view)}: not handed in any more: the campaign was cancelled")
            return True
        return self._taken_over(state, view)

    def _taken_over(self, state: CampaignState, view: BatchView) -> bool:
        """Whether newer plans have all models of a batch, or it was given up; the newest plan is followed too."""
        key = (view.stored.plan.id, view.batch.number)
        if key in self.given_up:
            return True
        newer = taken_over(self.workspace, state, view, read_plans(self.workspace))
        if newer is not None:
            self.given_up.add(key)
            self.plans |= {newer.plan.id}
            self.say(f"{name_of(view)} of plan {view.stored.plan.id} was taken over by plan {newer.plan.id}, "
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
                 "Raise it (--max-gpu-hours) and run the same command again")
        return False

    def views(self, state: CampaignState) -> list[BatchView]:
        return [view for view in state.batches if view.stored.plan.id in self.plans]

    def _due(self, view: BatchView) -> int:
        counts = self.answers if view.kind == "generate" else self.progress
        due = counts.due if counts is not None else {}
        return sum(due.get(model, 0) for model in view.batch.models)

    def _tell(self, view: BatchView) -> None:
        why = view.status.reason if view.status else ""
        key = view.stored.plan.id, view.batch.number
        text = f"{view.state} {view.job or ''} {why if why in NEVER else ''}"
        if self.told.get(key) != text:
            self.told[key] = text
            reason = f" ({why}{': Slurm will not start it as it is' if why in NEVER else ''})" if why else ""
            self.say(f"{name_of(view)}: {view.state}{', job ' + view.job if view.job else ''}{reason}")

    def _again(self, view: BatchView) -> bool:
        """Hand a dead batch over again, as often as the settings allow; True when it was, or may be yet."""
        key = (view.stored.plan.id, view.batch.number)
        if key in self.given_up:
            return False
        limit = self.workspace.settings.limits.resubmits
        due = self._due(view)
        if view.submissions > limit:  # starts by a job of its own (requeue, successor) don't count
            self.given_up.add(key)
            self.say(f"{name_of(view)}: {due} {things_of(view)} are still due after {view.submissions} start"
                     + "s" * (view.submissions != 1) + f"{cause_of(view)}; given up. See '{logs_command(view)}', then "
                     f"run '{self.command or kind_of(view.kind).submit}' again")
            return False
        if view.run is not None and view.run.get("hopeless"):
            self.given_up.add(key)
            self.say(f"{name_of(view)}: {view.run.get('error')}\nIt would fail again like this; given up.")
            return False
        if view.state == "cancelled" and not self._by_us(view):
            self.given_up.add(key)
            self.say(f"{name_of(view)}: cancelled with {due} {things_of(view)} due; left alone")
            return False
        try:
            done = resubmit(self.workspace, self.cluster, view, self.request)
        except ClaimedError as error:  # another command is at work on it: look again
            if key not in self.waiting:
                self.waiting.add(key)
                self.say(f"{name_of(view)}: not handed over again yet: {error}")
            return True
        except FlockError as error:
            self.given_up.add(key)
            self.say(f"{name_of(view)}: can't be handed over again: {error}")
            return False
        return self._told_again(view, done, due)

    def _told_again(self, view: BatchView, done: Submitted, due: int) -> bool:
        """Say what came of handing a batch over again; True when it was, or may be yet."""
        key = (view.stored.plan.id, view.batch.number)
        what = f"{name_of(view)}: {view.state} with {due} {things_of(view)} due{cause_of(view)}"
        for note in done.notes:
            self.say(note)
        if done.accepted:
            self.waiting.discard(key)
            self.say(f"{what}; handed over again as job {done.accepted[0].job} (start {view.submissions + 1} of at "
                     f"most {self.workspace.settings.limits.resubmits + 1})")
            return True
        if done.refused:
            self.given_up.add(key)
            self.say(f"{name_of(view)}: can't be handed over again: {done.refused[0][1]}")
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
