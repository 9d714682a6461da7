"""Evaluation of pools on the cluster: hands in, asks what is due, makes a round, hands its job and servers over.

Never touches money or rows itself: every change goes through the desk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from orjson import JSONDecodeError, dumps, loads

from automate.campaign.pools import servers
from automate.campaign.pools.jobs import places_of
from automate.campaign.pools.looking import RoundView, look, open_rounds, view_of
from automate.campaign.pools.rounds import Rounds, count, listed
from automate.campaign.state import pick_cluster
from automate.cluster.base import Cluster
from automate.cluster.local.executor import LocalCluster
from automate.errors import FlockError
from automate.fleets.jobs import AT_ONCE
from automate.pools.desk import Desk
from automate.pools.keys import GENESIS, find_key
from automate.pools.round_records import read_spec
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
             limit: int | None, say: Say, sleep: Callable[[float], None] = time.sleep) -> Evaluated:
    """Evaluate what is due of a pool's data set (None: of all that have an open pool).

    Hands in what came; without `submit` it stops there and says what is due. With it, rows are started by Evaluate (at
    most `limit` for each data set; 0: none), a round is made of what waits at the router, and its servers and job are
    handed over; a round of before whose job died is handed over again, at most limits.resubmits times, or given up.
    With `wait` the rounds are followed to their end. Give a desk that opens the database for each call
    (`desks.Opening`): others need it meanwhile. Raises FlockError.
    """
    return _Evaluation(workspace, desk, pool, executor, limit, say, sleep).run(submit=submit, wait=wait)


@dataclass
class _Evaluation:
    workspace: Workspace
    desk: Desk
    pool: str | None
    executor: str | None
    limit: int | None
    say: Say
    sleep: Callable[[float], None]
    answers: int = 0
    strays: int = 0
    notes: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)

    def run(self, *, submit: bool, wait: bool) -> Evaluated:
        self.datasets = self._datasets()
        self._hand_in()
        if not submit:
            return self._result(0, 0, done=False)
        cluster = self._cluster()
        self.rounds = Rounds(self.workspace, cluster, self.desk, self._note)
        self.rounds.care()
        expired = sum(count(self.desk.do("expire", dataset=one)) for one in self.datasets)
        started = sum(self._evaluate(one) for one in self.datasets)
        self._make()
        followed: list[str] = []
        while wait and (left := [one for one in open_rounds(self.workspace) if one not in followed]):
            before = self.answers
            for name in left:
                self._follow(name)
            followed += left
            if self.answers > before:  # what did not fit before; what only goes back and forth waits
                self._make_more()
        if followed and self.answers:
            self._update_leaderboards()
        views = tuple(view_of(self.workspace, name) for name in followed or open_rounds(self.workspace))
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
        return [str(row["id"]) for row in listed(self.desk.ask("datasets")) if row.get("open_pools")]

    def _hand_in(self) -> None:
        for one in listed(self.desk.do("hand_in")):
            self.answers += count(one.get("answers"))
            self.strays += count(one.get("strays"))

    def _evaluate(self, dataset: str) -> int:
        """Start rows of a data set by the owner's Evaluate; how many. One that refuses does not keep the others back.
        """
        if self.limit == 0:
            return 0
        key = find_key(places_of(self.workspace), GENESIS)
        receipt = self.desk.send(key.sign(dataset, "Evaluate", "" if self.limit is None else str(self.limit)))
        if receipt.error is not None:
            self._note(f"data set {dataset}: {receipt.error}")
        return max((_started(reply) for reply in receipt.replies), default=0)

    def _update_leaderboards(self) -> None:
        """Whoever waited sees what came on the leaderboards of open pools, without waiting for the clock."""
        key, target = find_key(places_of(self.workspace), GENESIS), self._pool_process()
        for pool in listed(self.desk.ask("pools")):
            if pool.get("dataset") in self.datasets and pool.get("state") == "open":
                data = dumps({"dataset": pool["id"]}).decode()
                receipt = self.desk.send(key.sign(target, "Update-Leaderboard", data))
                if receipt.error is not None:
                    self._note(f"leaderboard of pool {pool['id']}: {receipt.error}")

    def _pool_process(self) -> str:
        return next(str(one["id"]) for one in listed(self.desk.ask("processes")) if one.get("kind") == "pool")

    def _due(self, dataset: str) -> int:
        rows = listed(self.desk.ask("due", dataset=dataset))
        return sum(count(row.get(state)) for row in rows for state in ("pending", "started", "expired"))

    def _make(self) -> None:
        """A round of what waits at the router, if anything does: of models that can be served, as many as have room."""
        able = self.rounds.able([row for row in listed(self.desk.ask("due")) if row.get("queued")])
        made = None if able == "" else self.desk.do("make_round", limit=None, models=able)
        if isinstance(made, dict):
            self.rounds.hand_over(read_spec(places_of(self.workspace), str(made["name"])))

    def _make_more(self) -> None:
        """Another round; where it can't be handed over now, that is tried again while it is followed."""
        try:
            self._make()
        except FlockError as error:
            self._note(str(error))

    def _follow(self, name: str) -> None:
        """Wait for a round's end; what comes is handed in meanwhile, and its job handed over again where it died."""
        pause = LOCAL_POLL if self.rounds.cluster.kind == "local" else self.workspace.settings.limits.poll
        told, troubles = -1, 0
        while True:
            before = view_of(self.workspace, name)
            self._hand_in()
            view = view_of(self.workspace, name)
            if view.done:
                break
            if view.answers != told:
                told = view.answers
                self.say(f"round {name}: {view.answers} of {view.count} answered, job {view.job} {view.state}")
            if not before.may_act:
                troubles = self._again(view, troubles)
            self.sleep(pause)
        servers.end(self.workspace, name)

    def _again(self, view: RoundView, troubles: int) -> int:
        """Go on with a round whose job is over; how often that failed so far, after which it is given up."""
        try:
            self.rounds.again(view)
        except FlockError as error:
            if troubles >= self.workspace.settings.limits.resubmits:
                self.rounds.give_up(view.name, error.what)
            else:
                self._note(f"round {view.name}: {error}")
            return troubles + 1
        return troubles

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            self.say(text)


def _started(reply: Mapping[str, object]) -> int:
    """How many rows an Evaluate-Response says were started."""
    try:
        said = loads(str(reply.get("Data", "")))
    except JSONDecodeError:
        return 0
    return count(said.get("started")) if isinstance(said, dict) else 0

