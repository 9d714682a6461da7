"""Evaluation of pools on the cluster: hands in, asks what is due, makes a round, hands its job and servers over.

Never touches money or rows itself: every change goes through the desk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from automate.campaign.pools import jobs, servers
from automate.campaign.pools.looking import RoundView, look, open_rounds, view_of
from automate.campaign.state import pick_cluster
from automate.cluster.base import Cluster
from automate.cluster.local.executor import LocalCluster
from automate.errors import FlockError
from automate.fleets.jobs import AT_ONCE
from automate.pools.desk import Desk
from automate.pools.keys import GENESIS, find_key
from automate.pools.round_records import RoundSpec, read_spec
from automate.workspace import Workspace

__all__ = ["Evaluated", "RoundView", "evaluate", "look"]

Say = Callable[[str], None]
LOCAL_POLL = 0.5


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation came to. `answers`, `strays`: handed in meanwhile; `expired`: rows taken back; `started`: rows
    that Evaluate started; `rounds`: those that are open now, or were followed to their end; `done`: with `wait`,
    whether all of them are; `due`: rows without an answer, of the pool's data set or of all; `notes`: for the user."""

    answers: int = 0
    strays: int = 0
    expired: int = 0
    started: int = 0
    rounds: tuple[RoundView, ...] = ()
    done: bool = False
    due: int = 0
    notes: tuple[str, ...] = ()


def evaluate(workspace: Workspace, desk: Desk, *, pool: str | None, executor: str | None, submit: bool, wait: bool,
             limit: int | None, say: Say, clock: Callable[[], float] = time.monotonic,
             sleep: Callable[[float], None] = time.sleep) -> Evaluated:
    """Evaluate what is due of a pool's data set (None: of all that have an open pool).

    Hands in what came; without `submit` it stops there and says what is due. With it, rows are started by Evaluate (at
    most `limit` for each data set; 0: none, only what waits already), a round is made of what waits at the router, and its servers and job are handed
    over; a round of before whose job died is handed over again, at most limits.resubmits times, or given up. With
    `wait` the rounds are followed to their end. Give a desk that opens the database for each call (`desks.Opening`):
    others need it meanwhile. Raises FlockError.
    """
    return _Evaluation(workspace, desk, pool, executor, limit, say, clock, sleep).run(submit=submit, wait=wait)


@dataclass
class _Evaluation:
    workspace: Workspace
    desk: Desk
    pool: str | None
    executor: str | None
    limit: int | None
    say: Say
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    answers: int = 0
    strays: int = 0

    def run(self, *, submit: bool, wait: bool) -> Evaluated:
        self.notes: list[str] = []
        self.datasets = self._datasets()
        self._hand_in()
        if not submit:
            return self._result(0, 0, done=False)
        cluster = self._cluster()
        self._care(cluster)
        expired = sum(_count(self.desk.do("expire", dataset=one)) for one in self.datasets)
        started = 0 if self.limit == 0 else sum(self._evaluate(one) for one in self.datasets)
        made = self.desk.do("make_round", limit=None, models=None)
        if isinstance(made, dict):
            self._hand_over(cluster, read_spec(jobs.places_of(self.workspace), str(made["name"])))
        followed = open_rounds(self.workspace)
        if wait:
            for name in followed:
                self._follow(cluster, name)
        views = tuple(view_of(self.workspace, name) for name in followed)
        return self._result(expired, started, done=wait and all(one.done for one in views), views=views)

    def _result(self, expired: int, started: int, *, done: bool,
                views: tuple[RoundView, ...] | None = None) -> Evaluated:
        rounds = tuple(look(self.workspace)) if views is None else views
        due = sum(self._due(one) for one in self.datasets)
        return Evaluated(self.answers, self.strays, expired, started, rounds, done, due, tuple(self.notes))

    def _cluster(self) -> Cluster:
        cluster = pick_cluster(self.workspace, self.executor)
        if isinstance(cluster, LocalCluster):  # job and servers run side by side
            return LocalCluster(cluster.queue.folder, cluster.root, AT_ONCE)
        return cluster

    # --- what goes through the desk -------------------------------------------------------------
    def _datasets(self) -> list[str]:
        """Ids of the data sets that are meant. Raises PoolError for an unknown pool."""
        if self.pool is not None:
            found = self.desk.ask("pool", id=self.pool)
            return [str(found["dataset"])] if isinstance(found, dict) else []
        rows = self.desk.ask("datasets")
        return [str(row["id"]) for row in _rows(rows) if row.get("open_pools")]

    def _hand_in(self) -> None:
        for one in _rows(self.desk.do("hand_in")):
            self.answers += _count(one.get("answers"))
            self.strays += _count(one.get("strays"))

    def _evaluate(self, dataset: str) -> int:
        """Start rows of a data set by the owner's Evaluate; how many. One that refuses does not keep the others back.
        """
        key = find_key(jobs.places_of(self.workspace), GENESIS)
        receipt = self.desk.send(key.sign(dataset, "Evaluate", "" if self.limit is None else str(self.limit)))
        if receipt.error is not None:
            self._note(f"data set {dataset}: {receipt.error}")
        return max((_started(reply) for reply in receipt.replies), default=0)

    def _due(self, dataset: str) -> int:
        rows = _rows(self.desk.ask("due", dataset=dataset))
        return sum(_count(row.get(state)) for row in rows for state in ("pending", "started", "expired"))

    def _give_up(self, name: str, why: str) -> None:
        count = _count(self.desk.do("give_up", round=name))
        servers.end(self.workspace, name)
        self._note(f"round {name} is given up, {count} questions go back: {why}")

    # --- rounds ---------------------------------------------------------------------------------
    def _care(self, cluster: Cluster) -> None:
        """See to rounds of before: over, still at work, or dead."""
        for name in open_rounds(self.workspace):
            try:
                self._again(cluster, name)
            except FlockError as error:
                self._note(f"round {name}: {error}")

    def _again(self, cluster: Cluster, name: str) -> None:
        """Hand a round over again whose job died, a bounded number of times; then give it up."""
        view = view_of(self.workspace, name)
        if view.job is not None and view.may_act:
            return
        tries = len(jobs.submissions_of(self.workspace, name))
        if view.executor is not None and view.executor != cluster.kind:
            self._give_up(name, f"its job was on another cluster ({view.executor})")
        elif tries > self.workspace.settings.limits.resubmits:
            self._give_up(name, f"its job ended {tries} times before all was answered ({view.state})")
        else:
            self._hand_over(cluster, read_spec(jobs.places_of(self.workspace), name))

    def _hand_over(self, cluster: Cluster, spec: RoundSpec) -> None:
        able, problems = servers.served_by(self.workspace, spec)
        for problem in problems:
            self._note(f"a model can't be served: {problem}")
        if not able:
            self._give_up(spec.name, "none of its models can be served")
            return
        for note in servers.start(self.workspace, cluster, spec, able):
            self._note(note)
        done = jobs.submit(self.workspace, cluster, spec)
        self._note(f"round {spec.name}: {spec.count} questions, {len(able)} models, job {done.job}")

    def _follow(self, cluster: Cluster, name: str) -> None:
        """Wait for a round's end; what comes is handed in meanwhile, and its job handed over again where it died."""
        pause = LOCAL_POLL if cluster.kind == "local" else self.workspace.settings.limits.poll
        told = -1
        while True:
            self._hand_in()
            view = view_of(self.workspace, name)
            if view.done:
                break
            if view.answers != told:
                told = view.answers
                self.say(f"round {name}: {view.answers} of {view.count} answered, job {view.job} {view.state}")
            if not view.may_act:
                if view.answers >= view.count:
                    self._give_up(name, "every answer is there, but not all were taken")
                    break
                self._again(cluster, name)
            self.sleep(pause)
        servers.end(self.workspace, name)

    def _note(self, text: str) -> None:
        self.notes.append(text)
        self.say(text)


def _rows(found: object) -> list[Mapping[str, object]]:
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _count(found: object) -> int:
    return found if isinstance(found, int) else 0


def _started(reply: Mapping[str, object]) -> int:
    """How many rows an Evaluate-Response says were started."""
    from orjson import JSONDecodeError, loads

    try:
        said = loads(str(reply.get("Data", "")))
    except JSONDecodeError:
        return 0
    return _count(said.get("started")) if isinstance(said, dict) else 0

