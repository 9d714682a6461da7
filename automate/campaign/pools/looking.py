"""Rounds as they stand: which are open, what their jobs do, how many answers they have so far.

Never changes anything, and needs no database."""

from __future__ import annotations

from dataclasses import dataclass

from automate.campaign.pools import jobs
from automate.campaign.state import cluster_of_kind
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClusterError, DataError
from automate.journal import read_json
from automate.pool_places import PoolPlaces
from automate.pools.answering.job import fleet_of
from automate.pools.answering.journal import recorded
from automate.pools.round_records import read_spec
from automate.workspace import Workspace


@dataclass(frozen=True)
class RoundView:
    """One round. `answers`: records so far, errors included, handed in or not; `job`: the one at work, else its last;
    `state`: that job's, in Slurm's words; `may_act`: whether it may still answer; `made`: ms; `problem`: what is wrong
    with the round's files; `given_up`: why, where questions were left open."""

    name: str
    made: int
    count: int
    models: tuple[str, ...]
    answers: int
    done: bool
    fleet: str
    job: str | None = None
    executor: str | None = None
    state: str = "not handed over"
    may_act: bool = False
    problem: str | None = None
    given_up: str | None = None

    @property
    def left(self) -> int:
        return max(0, self.count - self.answers)


def open_rounds(workspace: Workspace) -> list[str]:
    """Names of the rounds that are not done, oldest first."""
    places = jobs.places_of(workspace)
    if not places.rounds.is_dir():
        return []
    return sorted(path.name for path in places.rounds.iterdir()
                  if not path.name.startswith(".") and places.round_spec(path.name).is_file()
                  and not places.done(path.name).exists())


def look(workspace: Workspace) -> list[RoundView]:
    """Every open round, oldest first. Raises StorageError."""
    return [view_of(workspace, name) for name in open_rounds(workspace)]


def view_of(workspace: Workspace, name: str) -> RoundView:
    """One round, whether open or not. Raises StorageError."""
    places = jobs.places_of(workspace)
    answers, done = len(recorded(places, name)), places.done(name).exists()
    try:
        spec = read_spec(places, name)
    except DataError as error:
        return RoundView(name, 0, 0, (), answers, done, fleet_of(name), problem=error.what,
                         given_up=_given_up(places, name))
    handed = jobs.submissions_of(workspace, name)
    known = [(one, _status(workspace, one.executor, one.job)) for one in handed]
    acting = [pair for pair in known if pair[1].may_act]
    job, executor, state = None, None, "not handed over"
    if known:
        last, status = (acting or known)[-1]
        job, executor, state = last.job, last.executor, str(status.state)
    return RoundView(name, spec.made, spec.count, tuple(spec.models), answers, done, fleet_of(name), job, executor,
                     state, bool(acting), given_up=_given_up(places, name))


def _given_up(places: PoolPlaces, name: str) -> str | None:
    """Why a round was given up with questions open; None for others."""
    said = read_json(places.done(name)) or {}
    return str(said.get("why") or "its questions were left open") if said.get("state") == "given up" else None


def _status(workspace: Workspace, executor: str, job: str | None) -> JobStatus:
    """What a job does; unknown where its cluster can't be asked from here."""
    cluster = cluster_of_kind(workspace, executor)
    try:
        if job is not None and cluster is not None:
            return cluster.look([job])[job]
    except ClusterError as error:
        return JobStatus(job or "", JobState.UNKNOWN, error.what)
    return JobStatus(job or "", JobState.UNKNOWN, "nobody can say")
