"""Hands assignments in: one array job a module, or workers of this machine; each assignment to one job only.

The intent is written down first. Never submits with a key or token in the environment."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol

from automate import claims
from automate.cluster import asking
from automate.cluster.arrays import Option, submit_array
from automate.cluster.base import Cluster
from automate.cluster.limits import Asked, Room, room
from automate.cluster.queue import JobState, job_alive
from automate.cluster.slurm import SlurmCluster, available, max_array_size
from automate.errors import ClaimedError, ClusterError, FlockError, SubmitError
from automate.validation import catalogue
from automate.validation.assignments import Assignment, Handed, State
from automate.validation.jobs import handed as handing_over
from automate.validation.jobs.handed import LOCAL, SLURM
from automate.validation.jobs.resources import devices, job_environment, sbatch_options, share, slurm_of
from automate.validation.jobs.task import keep_settings, run_task
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from automate.workspace import Workspace

CLAIM = "run"
Usable = Callable[[str], str | None]
"""Why a module's assignments can't be handed in now; None where they can."""


class Submit(Protocol):
    """`cluster.arrays.submit_array`."""

    def __call__(self, functions: Sequence[Callable[[], object]], *, folder: Path, name: str,
                 slurm: Mapping[str, Option], executor: str, environ: Mapping[str, str],
                 parallel: int | None = None) -> tuple[str, ...]:
        """Hand functions over; the ids of their tasks."""


@dataclass(frozen=True)
class Array:
    """One array job, or the workers of one handing in: `jobs` gives each assignment's task."""

    name: str
    module: str
    jobs: Mapping[str, str]


@dataclass
class HandedIn:
    """What was handed in, what was not and why (by id), the cluster's refusals, and the executor."""

    executor: str
    arrays: list[Array] = field(default_factory=list)
    kept: dict[str, str] = field(default_factory=dict)
    refused: list[SubmitError] = field(default_factory=list)

    @property
    def jobs(self) -> dict[str, str]:
        """The job of each assignment that was handed in."""
        return {one: job for array in self.arrays for one, job in array.jobs.items()}


def executor_of(asked: str) -> str:
    """`slurm` or `local`; `auto` is Slurm where this machine has its commands."""
    return asked if asked in (SLURM, LOCAL) else SLURM if available() else LOCAL


def cluster_of(executor: str) -> Cluster | None:
    """The cluster to ask about jobs, for an executor; None without Slurm."""
    return SlurmCluster() if executor == SLURM or available() else None


@contextmanager
def handing_claim(spool: Spool) -> Iterator[None]:
    """Be the one command that hands in. Raises ClaimedError, naming the other."""
    try:
        claim = claims.take(spool.places.claim(CLAIM), stale=min(spool.stale, 1.0), job_alive=job_alive)
    except ClaimedError as error:
        if not error.holder_gone:
            raise ClaimedError(f"another command is handing assignments in: {error.what}",
                               todo="run this again when it is done") from error
        time.sleep(1.0)  # it was killed a moment ago
        claim = claims.take(spool.places.claim(CLAIM), stale=min(spool.stale, 1.0), job_alive=job_alive)
    try:
        yield
    finally:
        claim.release()


def usable_by(places: ValidationPlaces) -> Usable:
    """Whether a module and its environment are there."""
    def usable(module: str) -> str | None:
        from automate.validation import environments

        try:
            environments.inner_call(catalogue.find(module, places), places, [])
        except FlockError as error:
            return f"{error.what}; {error.todo}" if error.todo else error.what
        return None
    return usable


def hand_in(workspace: Workspace, spool: Spool, *, executor: str, most: int | None = None,
            ids: Collection[str] | None = None, cluster: Cluster | None = None, usable: Usable | None = None,
            submit: Submit = submit_array, environ: Mapping[str, str] | None = None) -> HandedIn:
    """Hand ready assignments over (`ids`: these only; `most`: so many), the most urgent first.

    Raises ClaimedError where another command is at it; SubmitError where the cluster takes none of them.
    """
    kind = executor_of(executor)
    hands = Hands(workspace, spool, kind, cluster or cluster_of(kind), usable or usable_by(spool.places), submit,
                  os.environ if environ is None else environ)
    report = HandedIn(kind)
    with handing_claim(spool):
        handing_over.free(spool, hands.cluster, workspace.settings.validation.attempts)
        handing_over.sweep(spool, spool.clock())
        chosen = hands.choose(ids, most, report)
        for module, group in _by_module(chosen).items():
            (hands.local if kind == LOCAL else hands.slurm)(module, group, report)
    if report.refused and not report.arrays:
        raise report.refused[0]
    return report


def _by_module(chosen: Iterable[Assignment]) -> dict[str, list[Assignment]]:
    groups: dict[str, list[Assignment]] = {}
    for one in chosen:
        groups.setdefault(one.module, []).append(one)
    return groups


@dataclass(frozen=True)
class Hands:
    """One handing in: what it works with."""

    workspace: Workspace
    spool: Spool
    executor: str
    cluster: Cluster | None
    usable: Usable
    submit: Submit
    environ: Mapping[str, str]

    def choose(self, ids: Collection[str] | None, most: int | None, report: HandedIn) -> list[Assignment]:
        """What is to be handed in now; the reasons of the others go into the report."""
        found: list[Assignment] = []
        reasons: dict[str, str | None] = {}
        for one in sorted(self.spool.listed(State.FETCHED), key=_urgency):
            if ids is not None and one.id not in ids:
                continue
            why = _not_now(one)
            if why is None:
                if one.module not in reasons:
                    reasons[one.module] = self.usable(one.module)
                why = reasons[one.module]
            if why is None and (most is None or len(found) < most):
                found.append(one)
            elif why is not None:
                report.kept[one.id] = why
        for missing in sorted(set(ids or ()) - {one.id for one in found} - report.kept.keys()):
            there = self.spool.find(missing)
            report.kept[missing] = f"it is {there.state}" if there else "it is not in the spool"
        return found

    # --- Slurm ----------------------------------------------------------------------------------
    def slurm(self, module: str, group: list[Assignment], report: HandedIn) -> None:
        """Array jobs of as many tasks as the cluster takes now."""
        per_task = self.workspace.settings.validation.per_task
        slurm = slurm_of(self.workspace.settings, module)
        fits = self._room(Asked(asking.me(), slurm.account, slurm.qos, slurm.partition))
        tasks = [group[start:start + per_task] for start in range(0, len(group), per_task)]
        taken = len(tasks) if fits.jobs is None else min(len(tasks), fits.jobs)
        for task in tasks[taken:]:
            report.kept |= {one.id: f"no room in the queue: {fits.why}" for one in task}
        size = max(1, max_array_size() - 1)
        for start in range(0, taken, size):
            part = tasks[start:min(start + size, taken)]
            if not self._array(module, part, sbatch_options(slurm), report, [None] * len(part)):
                for task in tasks[start + size:taken]:
                    report.kept |= {one.id: "the cluster refused the array before it" for one in task}
                return

    def _room(self, asked: Asked) -> Room:
        try:
            limits = asking.ask(asked)
            return room(limits, asking.queued(limits, asked.user))
        except ClusterError:
            return Room()  # sbatch will say so itself

    # --- this machine ---------------------------------------------------------------------------
    def local(self, module: str, group: list[Assignment], report: HandedIn) -> None:
        """Workers, each with its share of the assignments, as many as `validation.local_parallel` leaves room for."""
        most = self.workspace.settings.validation.local_parallel
        handed = {one.handed for one in self.spool.listed(State.FETCHED, State.RUNNING) if one.handed}
        busy = {job for job, status in handing_over.statuses(
            [one for one in handed if one.executor == LOCAL], None).items() if status.state is JobState.RUNNING}
        workers = min(most - len(busy), len(group))
        if workers <= 0:
            report.kept |= {one.id: f"validation.local_parallel={most}; so many are at work" for one in group}
            return
        there = devices(self.environ, [path.name for path in Path("/dev").glob("nvidia*")])
        first = len(busy)
        self._array(module, [group[worker::workers] for worker in range(workers)], {}, report,
                    [share(there, first + worker, most) for worker in range(workers)])

    # --- either ---------------------------------------------------------------------------------
    def _array(self, module: str, tasks: Sequence[Sequence[Assignment]], options: Mapping[str, Option],
               report: HandedIn, gpus: Sequence[str | None]) -> bool:
        """Write the intent down, hand over, write the jobs down. False: refused."""
        handed = Handed("", f"flock-validation-{module}-{secrets.token_hex(4)}", self.executor, self.spool.clock())
        ready, kept = handing_over.intend(self.spool, [one for task in tasks for one in task], handed)
        report.kept |= kept
        mine = set(ready)
        left = [([one.id for one in task if one.id in mine], gpu) for task, gpu in zip(tasks, gpus, strict=True)]
        left = [(ids, gpu) for ids, gpu in left if ids]
        if not left:
            return True
        try:
            keep_settings(self.workspace, handed.name)
            jobs = self.submit([self._function(ids, handed.name, gpu) for ids, gpu in left],
                               folder=self.spool.places.jobs / handed.name, name=handed.name, slurm=options,
                               executor=self.executor, environ=job_environment(self.workspace.settings, self.environ),
                               parallel=self.workspace.settings.limits.max_parallel)
        except FlockError as error:
            self._not_taken(ready, handed, error, report)
            return False
        by_id = {one: job for (ids, _), job in zip(left, jobs, strict=True) for one in ids}
        handing_over.write_down(self.spool, by_id, handed)
        report.arrays.append(Array(handed.name, module, by_id))
        return True

    def _function(self, ids: Sequence[str], name: str, gpu: str | None) -> Callable[[], object]:
        return partial(run_task, str(self.workspace.root), tuple(ids), name, self.spool.stale, gpu)

    def _not_taken(self, ids: Sequence[str], handed: Handed, error: FlockError, report: HandedIn) -> None:
        """sbatch said no, or nothing. A job that is there all the same is cancelled: its tasks would find no work."""
        try:
            if self.cluster is not None and handed.executor == SLURM:
                self.cluster.cancel(self.cluster.find(handed.name, handed.when - 1))
        except ClusterError as unsure:
            report.kept |= dict.fromkeys(ids, f"whether a job was accepted can't be found out: {unsure.what}")
        else:
            handing_over.write_down(self.spool, dict.fromkeys(ids, ""), handed)
            report.kept |= dict.fromkeys(ids, error.what)
        if not isinstance(error, SubmitError):
            raise error
        report.refused.append(error)


def _urgency(one: Assignment) -> tuple[float, float, str]:
    return one.deadline if one.deadline is not None else float("inf"), one.fetched_at, one.id


def _not_now(one: Assignment) -> str | None:
    if one.handed is not None:
        return f"handed to job {one.handed.job or one.handed.name} already"
    if not one.ready:
        return one.problem or "its files are not all there yet"
    return None
