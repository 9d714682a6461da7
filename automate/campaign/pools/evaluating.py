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
    whether all of them are, and none was given up with questions open; `due`: rows without an answer, of the pool's
    models or of all data sets with an open pool; `notes`: for the user."""

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
    """Evaluate what is due of a pool's models (None: of all data sets that have an open pool).

    Hands in what came; without `submit` it stops there and says what is due. With it, rows are started by Evaluate (at
    most `limit` for a pool, or for each data set; 0: none), a round is made of what waits at the router, and its
    servers and job are handed over; a round of before whose job died is handed over again, at most limits.resubmits
    times, or given up.
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
    models: frozenset[str] | None = None
    """Processes of the pool's models; None: all."""

    def run(self, *, submit: bool, wait: bool) -> Evaluated:
        self.datasets = self._datasets()
        self._hand_in()
        if not submit:
            return self._result(0, 0, done=False)
        cluster = self._cluster()
        self.rounds = Rounds(self.workspace, cluster, self.desk, self._note)
        self.rounds.care()
        before_us = set(self.rounds.given_up)
        told = [self._evaluate(one) for one in self.datasets]
        expired, started = sum(one[0] for one in told), sum(one[1] for one in told)
        self._make()
        followed: list[str] = []
        while wait and (left := [one for one in open_rounds(self.workspace) if one not in followed]):
            before = self.answers
            for name in left:
                self._follow(name)
            followed += left
            if self.answers > before:  # what did not fit before; what only goes back and forth waits
                self._make_more()
        if wait and (followed or self.answers or self.rounds.unserved):
            self._update_leaderboards()
        names = dict.fromkeys([*(followed or open_rounds(self.workspace)), *self.rounds.given_up])
        views = tuple(view_of(self.workspace, name) for name in names)
        left = [*self.rounds.unserved, *(self.rounds.given_up.keys() - before_us)]
        return self._result(expired, started, done=wait and not left and all(one.done for one in views), views=views)

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
            if not isinstance(found, dict):
                return []
            self.models = frozenset(str(one["process"]) for one in listed(found.get("models")))
            return [str(found["dataset"])]
        return [str(row["id"]) for row in listed(self.desk.ask("datasets")) if row.get("open_pools")]

    def _hand_in(self) -> None:
        for one in listed(self.desk.do("hand_in")):
            self.answers += count(one.get("answers"))
            self.strays += count(one.get("strays"))

    def _evaluate(self, dataset: str) -> tuple[int, int]:
        """Start rows of a data set by the owner's Evaluate, of a pool's models only where one is meant; how many were
        taken back before, and how many started. One that refuses does not keep the others back."""
        if self.limit == 0:
            return 0, 0
        if self.models is None:
            return self._start(dataset, self.limit, {})
        limit = self.workspace.settings.pools.evaluate_limit if self.limit is None else self.limit
        rows = self._rows(dataset)
        pending = {str(row["process"]): count(row["pending"]) for row in rows if row["pending"]}
        told = [self._start(dataset, most, {"Model": model}) for model, most in shares(
            pending or {str(row["process"]): count(row["started"]) for row in rows}, limit).items()]
        return sum(one[0] for one in told), sum(one[1] for one in told)

    def _start(self, dataset: str, limit: int | None, tags: Mapping[str, str]) -> tuple[int, int]:
        """One Evaluate; how many rows were taken back, and how many started."""
        key = find_key(places_of(self.workspace), GENESIS)
        receipt = self.desk.send(key.sign(dataset, "Evaluate", "" if limit is None else str(limit), tags))
        if receipt.error is not None:
            self._note(f"data set {dataset}: {receipt.error}")
        said = next((found for reply in receipt.replies if (found := _said(reply))), {})
        if count(said.get("lacking")):
            self._note(self._lacks(dataset, count(said["lacking"])))
        return count(said.get("expired")), count(said.get("started"))

    def _lacks(self, dataset: str, price: int) -> str:
        """What a data set that can't pay has, and how it gets more."""
        found = self.desk.ask("dataset", id=dataset)
        name, has = (found["name"], count(found["balance"])) if isinstance(found, dict) else (dataset, 0)
        return (f"data set {name} has {has:,}, and its next question costs {price:,}: the rest waits. Send it tokens: "
                f"flock-hpc pool mint {name} QUANTITY (the workspace's owner), or from your own: flock-hpc pool send "
                f"--action Transfer --tag Recipient={dataset} --tag Quantity=QUANTITY")

    def _rows(self, dataset: str) -> list[Mapping[str, object]]:
        """What is due of a data set, of the models that are meant."""
        rows = listed(self.desk.ask("due", dataset=dataset))
        return [row for row in rows if self.models is None or row.get("process") in self.models]

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
        return sum(count(row.get(state)) for row in self._rows(dataset) for state in ("pending", "started"))

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


def shares(waits: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many rows of each model: as equal as may be; what some don't need goes to those that have more to do."""
    out: dict[str, int] = {}
    left = limit
    for place, model in enumerate(sorted(waits, key=lambda model: (waits[model], model))):
        out[model] = min(waits[model], -(-left // (len(waits) - place)))
        left -= out[model]
    return {model: most for model, most in out.items() if most}


def _said(reply: Mapping[str, object]) -> Mapping[str, object]:
    """The Data of an Evaluate-Response."""
    try:
        said = loads(str(reply.get("Data", "")))
    except JSONDecodeError:
        return {}
    return said if isinstance(said, dict) else {}
