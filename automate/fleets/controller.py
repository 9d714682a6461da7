"""Keeps a fleet as it is wished: replaces servers that died, asks for more, gives back; one process at a time.

Never acts on an old look, and writes nothing where nothing changes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from automate import claims
from automate.cluster.base import Cluster
from automate.cluster.queue import JobStatus
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError, FlockError
from automate.fleet_places import FleetPlaces
from automate.fleets.acting import Scaled, act, wish_for
from automate.fleets.aside import aside
from automate.fleets.jobs import alive_of, cancel, submissions_of
from automate.fleets.looking import Look, given_up, look, view_of
from automate.fleets.outlook import outlook, outlook_of
from automate.fleets.pace import Pace
from automate.fleets.scaling import Decision, Demand, decide
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import Watch, read_spec, users

__all__ = ["Controller", "outlook", "outlook_of"]

EVERY = 15.0
"""Seconds between two questions to Slurm."""
EVERY_LOCAL = 1.0
STALE = 5.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class _Plan:
    """What is to be done now: a decision for each group that needs one, and jobs whose end lowers what is wanted."""

    decisions: Mapping[int, Decision]
    given_up: Mapping[str, int]
    stop: tuple[str, ...] = ()

    @property
    def acts(self) -> bool:
        return bool(self.stop or self.given_up or any(one.acts for one in self.decisions.values()))


class Controller:
    """The controller of one fleet; call `turn()` as often as you like, it acts every quarter of a minute.

    `demand`: what the engine in whose job it runs has to do; None in a worker. An engine keeps the control claim until
    `close()`, a worker holds it only to act, and only the first of the workers looks at all (`own_job`: its own job).
    `exclude`: nodes to keep clear of. `alone`: whether nobody else uses the fleet (another's work is not known here).
    `room`: how many more servers a limit of the caller's leaves room for; None: as many as there are.
    """

    def __init__(self, places: FleetPlaces, spec: FleetSpec, cluster: Cluster, *,
                 demand: Callable[[], Demand] | None, clock: Callable[[], float] = time.monotonic, say: Say = print,
                 own_job: str | None = None, exclude: Callable[[], str | None] | None = None,
                 alone: Callable[[], bool] | None = None, room: Callable[[], int | None] | None = None,
                 every: float | None = None) -> None:
        self._places, self._spec, self._cluster = places, spec, cluster
        self._demand, self._clock, self._say = demand, clock, say
        self._own_job, self._exclude, self._alone, self._room = own_job, exclude, alone, room
        self._every = every if every is not None else (EVERY if cluster.kind == "slurm" else EVERY_LOCAL)
        self._watch = Watch(places, spec, alive_of(cluster), version=spec.version, clock=clock)
        self._pace = Pace(spec.patience)
        self._last: float | None = None
        self._claim: claims.Claim | None = None
        self._beaten: tuple[str, float, float] | None = None
        self._known: dict[str, JobStatus] = {}
        self._said: set[str] = set()
        self._closed = False

    async def turn(self) -> None:
        """Look, decide, and act if there is anything to do. What goes wrong is said, once, and tried again."""
        await aside(self.step)

    def step(self) -> None:
        """The same in this thread."""
        now = self._clock()
        if self._last is not None and now - self._last < self._every:
            return
        self._last = now
        try:
            if self._may_look():
                self._work()
        except FlockError as error:
            self._say_once(f"the fleet can't be kept up now: {error.what}")

    @property
    def controls(self) -> bool:
        """Whether it holds the control claim between its turns."""
        return self._claim is not None

    def close(self) -> None:
        """Give control up, also before a turn that hangs has come to its end; a second call does nothing."""
        self._closed = True
        if self._claim is not None:
            self._claim.release()
            self._claim = None

    # --- whose turn it is -------------------------------------------------------------------------
    def _may_look(self) -> bool:
        spec = read_spec(self._places)
        if spec is None or spec.id != self._spec.id:
            return False
        if self._demand is not None:
            return self._keep_control()
        return not self._another_controls() and self._is_first()

    def _keep_control(self) -> bool:
        """An engine's: take control, and keep it."""
        if self._claim is not None and self._claim.beat():
            return True
        try:
            self._claim = self._take()
        except ClaimedError:
            self._claim = None
        return self._claim is not None

    def _take(self) -> claims.Claim:
        return claims.take(self._places.control_claim, stale=STALE, job_alive=alive_of(self._cluster))

    def _another_controls(self) -> bool:
        """Whether a claim is held whose heartbeat has risen within two turns, by this process's own clock."""
        latest = max(self._places.control_claim.glob("g*.json"), default=None)
        if latest is None or latest.with_suffix(".released").exists():
            return False
        with contextlib.suppress(OSError):
            name, beat, now = latest.name, latest.stat().st_mtime, self._clock()
            if self._beaten is None or self._beaten[:2] != (name, beat):
                self._beaten = name, beat, now
            return now - self._beaten[2] < 2 * max(EVERY, self._every) + STALE
        return False

    def _is_first(self) -> bool:
        """Whether this worker is the first of those that take requests; any is where none does."""
        if self._own_job is None:
            return True
        usable = [seen.record for seen in self._watch.look().values() if seen.usable]
        first = min(usable, key=lambda record: record.id, default=None)
        return first is None or first.job == self._own_job

    def _is_alone(self) -> bool:
        """Whether no other engine or router uses the fleet."""
        if self._alone is not None:
            return self._alone()
        me = claims.myself()
        own = me.host, me.pid, me.started
        found = users(self._places, job_alive=alive_of(self._cluster), stale=self._spec.stale)
        return all((one.holder.host, one.holder.pid, one.holder.started) == own for one in found)

    # --- a turn -----------------------------------------------------------------------------------
    def _work(self) -> None:
        plan = self._plan(self._look())
        if self._closed:
            return
        for decision in plan.decisions.values():
            if decision.why and not decision.acts:
                self._say_once(decision.why)
        if not plan.acts and not self._is_open():
            return
        with contextlib.ExitStack() as stack:
            if self._claim is None:
                try:
                    claim = self._take()
                except ClaimedError:
                    return  # somebody is at it
                stack.callback(claim.release)
            settle_open(SubmissionBook(self._places.submissions), self._cluster)
            self._do(self._plan(self._look()))

    def _is_open(self) -> bool:
        """Whether a submission is open that a killed process left."""
        return any(one.open for one in submissions_of(self._places, self._spec))

    def _look(self) -> Look:
        now = look(self._places, self._spec, self._cluster, self._watch, self._known)
        return replace(now, quiet=self._pace.quiet(now.seen, self._clock()))

    def _plan(self, now: Look) -> _Plan:
        if now.wish.stop:
            waiting = tuple(one.job for one in now.jobs if one.status.state.queued)
            return _Plan({}, {}, waiting)
        lowered = given_up(now)
        self._pace.watch(now.jobs, self._clock())
        return _Plan({group.number: self._decide(group, now, lowered) for group in self._spec.groups}, lowered)

    def _decide(self, group: Group, now: Look, lowered: Mapping[str, int]) -> Decision:
        demand = self._demand() if self._demand is not None else None
        if demand is not None and demand.model is not None and demand.model not in group.names:
            demand = None
        over = demand is not None and demand.left <= 0
        ends = over and self._spec.campaign is not None and self._is_alone()
        view = view_of(now, group, demand=demand, ends=ends, slow=self._pace.slow(group.number, self._clock()),
                       idle=self._spec.idle)
        fewer = sum(1 for number in lowered.values() if number == group.number)
        decision = decide(replace(view, wanted=max(0, view.wanted - fewer)))
        if not decision.ask:
            return decision
        kept = replace(decision, ask=0, wanted=min(decision.wanted, view.wanted), why="")
        if not self._pace.may_ask(group.number, len(view.failed), self._clock()):
            return kept
        room = self._room() if self._room is not None else None
        if room is None or room >= decision.ask:
            return decision
        self._say_once(f"{decision.ask - max(0, room)} server(s) are not asked for: there is no room for them under "
                       "limits.max_gpu_hours")
        return replace(decision, ask=room, wanted=decision.wanted - decision.ask + room) if room > 0 else kept

    def _do(self, plan: _Plan) -> None:
        if plan.stop:
            self._say(f"the fleet is being stopped: {len(plan.stop)} waiting job(s) cancelled")
            self._tell(Scaled(problems=cancel(self._cluster, plan.stop)))
        if plan.given_up:
            wish_for(self._places, {number: one.wanted for number, one in plan.decisions.items()}, list(plan.given_up))
            self._say_once(f"fewer servers are wanted: {', '.join(plan.given_up)} ended without need, or by hand")
        for group in self._spec.groups:
            decision = plan.decisions.get(group.number)
            if decision is not None and decision.acts:
                self._one(group, decision)

    def _one(self, group: Group, decision: Decision) -> None:
        done = Scaled()
        by = "worker" if self._demand is None else "engine"
        exclude = self._exclude() if decision.ask and self._exclude is not None else None
        if decision.ask:
            self._pace.asked(group.number, self._clock())
        act(self._places, self._spec, self._cluster, group, decision, by=by, done=done, exclude=exclude)
        for one in done.submitted:
            self._say(f"{len(one.tasks)} more server(s) of '{group.model}' asked for, job {one.job}: {decision.why}")
        if done.cancelled or done.retired:
            self._say(f"{len(done.cancelled) + len(done.retired)} server(s) of '{group.model}' given back: "
                      f"{decision.why}")
        if done.refused:
            self._pace.refused(group.number, self._clock())
        self._tell(done)

    def _tell(self, done: Scaled) -> None:
        for _, count, words in done.refused:
            self._say_once(f"{count} server(s) were not accepted, and are asked for again later: {words}")
        for problem in done.problems:
            self._say_once(problem)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._say(text)
