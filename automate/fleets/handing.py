"""What is done with a whole fleet: made, scaled, stopped; by one at a time.

Never makes a fleet over one that may still serve."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from automate import claims
from automate.cluster.base import Cluster
from automate.cluster.submit import SubmissionBook, settle_open
from automate.errors import ClaimedError, ConfigError, StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets.acting import Scaled, act, wish_for
from automate.fleets.jobs import (
    AT_ONCE,
    WorkerJob,
    alive_of,
    cancel,
    check_fleet,
    cluster_of,
    fleets_of,
    is_over,
    job_name,
    jobs_of,
    submissions_of,
    submit_workers,
)
from automate.fleets.looking import given_up, look, view_of
from automate.fleets.scaling import decide
from automate.journal import replace_file, write_json
from automate.serving.fleet.keys import make_secrets
from automate.serving.fleet.records import FleetSpec, Wish
from automate.serving.fleet.registry import Watch, read_spec, read_wish, write_wish

__all__ = ["AT_ONCE", "Scaled", "Stopped", "WorkerJob", "alive_of", "cancel", "check_fleet", "cluster_of", "control",
           "fleets_of", "is_over", "job_name", "jobs_of", "make_fleet", "make_home", "refuse_alive", "scale",
           "stop", "submissions_of", "submit_workers", "wish_stop"]

STALE = 5.0
"""Seconds after its last beat in which the control claim of one who is gone is not broken."""


# --- who may act --------------------------------------------------------------------------------------
@contextlib.contextmanager
def control(places: FleetPlaces, cluster: Cluster, *, patience: float = 10.0,
            clock: Callable[[], float] = time.monotonic,
            sleep: Callable[[float], None] = time.sleep) -> Iterator[claims.Claim]:
    """Hold the fleet's control claim. Raises ClaimedError where another keeps it for longer than `patience` seconds."""
    make_home(places)
    until = clock() + patience
    while True:
        try:
            claim = claims.take(places.control_claim, stale=STALE, job_alive=alive_of(cluster))
            break
        except ClaimedError as error:
            if clock() > until:
                raise ClaimedError(f"another is at work on the fleet '{places.name}': {error.what}",
                                   where=str(places.home), todo="run the same command again when it is done") from error
        sleep(0.2)
    try:
        yield claim
    finally:
        claim.release()


def make_home(places: FleetPlaces) -> None:
    """The fleet's folder, for its owner only. Raises StorageError."""
    try:
        places.home.parent.mkdir(parents=True, exist_ok=True)
        places.home.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, places.home, "make the fleet's folder") from error


# --- a fleet is made ----------------------------------------------------------------------------------
def make_fleet(places: FleetPlaces, spec: FleetSpec, scripts: Mapping[int, str], *, cluster: Cluster | None = None,
               claim: claims.Claim | None = None) -> None:
    """Make the fleet: folder, secrets, scripts (by group), wish, spec. One that is over is made anew; its runs stay.

    `claim`: the control claim, where the caller holds it (and submits under it); else it is taken meanwhile. Raises
    ConfigError where a fleet of this name is not over, ClaimedError where somebody else is making it.
    """
    check_fleet(places.name)
    asked = cluster or cluster_of(places.root, spec.executor)
    with contextlib.nullcontext(claim) if claim else control(places, asked, patience=0.0):
        refuse_alive(places, asked)
        _clear(places)
        make_secrets(places)
        for number, text in scripts.items():
            replace_file(places.script(number), text.encode(), 0o755)
        places.logs.mkdir(parents=True, exist_ok=True)
        write_wish(places, Wish({group.number: group.least for group in spec.groups}, changed=spec.created))
        write_json(places.spec, spec.as_json())


def refuse_alive(places: FleetPlaces, cluster: Cluster) -> None:
    """Raises ConfigError where the fleet of this name is not over. Hold the control claim.

    `cluster`: asked of its jobs, where they are on it.
    """
    old = read_spec(places)
    if old is None:
        return
    if cluster.kind != old.executor:
        cluster = cluster_of(places.root, old.executor)
    settle_open(SubmissionBook(places.submissions), cluster)
    acting = [one for one in jobs_of(places, cluster, old) if one.status.may_act]
    if not acting:
        return
    words = ", ".join(f"{one.job} ({one.status.state})" for one in acting[:4])
    words += f" and {len(acting) - 4} more" if len(acting) > 4 else ""
    count = len(list(places.workers.glob("*.json")))
    raise ConfigError(
        f"there is a fleet '{old.name}' already, and it is not over: id {old.id}, made by {old.user}, "
        f"jobs {words}, {count} worker{'s' * (count != 1)} registered", where=str(places.home),
        todo=f"give another --name, or change that one: 'flock-hpc serve --name {old.name} --scale N' or '--stop'")


def _clear(places: FleetPlaces) -> None:
    """What belongs to the workers of the fleet as it was; what they wrote down of their starts stays."""
    try:
        for folder in (places.workers, places.retired("x").parent, places.users):
            for path in folder.glob("*") if folder.is_dir() else ():
                path.unlink(missing_ok=True)
        for path in places.home.glob("worker_*.sh"):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError.of(error, places.home, "clear the fleet's folder") from error


# --- a fleet is changed -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Stopped:
    """What a stop came to: jobs that were cancelled, those that end by themselves, and what went wrong."""

    cancelled: tuple[str, ...]
    ending: tuple[str, ...]
    problems: tuple[str, ...]


def scale(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, wanted: Mapping[int, int], *,
          bounds: Mapping[int, tuple[int, int]] | None = None, by: str = "user", exclude: str | None = None,
          patience: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> Scaled:
    """Have `wanted` servers of each group (by number) from now on; `bounds`: between how many that may change.

    More: jobs are handed over; fewer: jobs that wait are cancelled first, then those that load, then the servers with
    least to do are asked to end. Where an engine is in control, it is told, and does it within seconds. Raises
    ConfigError for a fleet that is being stopped.
    """
    limits = {number: (count, count) for number, count in wanted.items()} if bounds is None else dict(bounds)
    done = Scaled()
    _scaled_wish(places, {}, {})  # refused before anything is waited for
    try:
        with control(places, cluster, patience=patience, sleep=sleep):
            settle_open(SubmissionBook(places.submissions), cluster)
            _scaled_wish(places, wanted, limits)
            _match(places, spec, cluster, wanted, done, by, exclude)
    except ClaimedError as error:
        _scaled_wish(places, wanted, limits)
        done.left_to = error.what
    return done


def _scaled_wish(places: FleetPlaces, wanted: Mapping[int, int], bounds: Mapping[int, tuple[int, int]]) -> None:
    old = read_wish(places)
    if old.stop:
        raise ConfigError(f"the fleet '{places.name}' was stopped", where=str(places.home),
                          todo="when it is over ('flock-hpc serve --status'), make it anew with 'flock-hpc serve'")
    if wanted or bounds:
        write_wish(places, replace(old, wanted={**old.wanted, **wanted}, bounds={**old.bounds, **bounds},
                                   changed=time.time()))


def _match(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, wanted: Mapping[int, int], done: Scaled, by: str,
           exclude: str | None) -> None:
    now = look(places, spec, cluster, Watch(places, spec, alive_of(cluster), version=spec.version))
    wish_for(places, {}, list(given_up(now)))  # what is wanted now is so in spite of these
    for group in spec.groups:
        if group.number in wanted:
            count = wanted[group.number]
            view = replace(view_of(now, group), least=count, most=count, wanted=count, hopeless=None)
            act(places, spec, cluster, group, decide(view), by=by, done=done, exclude=exclude)


def stop(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, *, now: bool = False, by: str = "user",
         patience: float = 5.0, sleep: Callable[[float], None] = time.sleep) -> Stopped:
    """End the fleet: jobs that wait are cancelled, servers finish what they have and end; with `now` all are cancelled.

    Also where another is in control: what it hands over meanwhile sees the wish, and ends. `by`: who ends it (user,
    engine); an engine that uses the fleet takes another engine's stop back, but not a user's.
    """
    with contextlib.ExitStack() as stack:
        held = None
        with contextlib.suppress(ClaimedError):
            held = stack.enter_context(control(places, cluster, patience=patience, sleep=sleep))
        wish_stop(places, by)
        if held is not None:
            settle_open(SubmissionBook(places.submissions), cluster)
        acting = [one for one in jobs_of(places, cluster, spec) if one.status.may_act]
        ended = [one.job for one in acting if now or one.status.state.queued]
        wish_stop(places, by, ended)  # again: one who was in control may have written a wish of before
        problems = cancel(cluster, ended)
        wish_stop(places, by, ended)
    return Stopped(tuple(ended), tuple(one.job for one in acting if one.job not in ended), tuple(problems))


def wish_stop(places: FleetPlaces, by: str, cancelled: Sequence[str] = ()) -> None:
    """Write down that the fleet is to end, by whom, and which jobs are cancelled for it; a user's word stands."""
    old = read_wish(places)
    by = old.stopped_by or by if old.stop and by != "user" else by
    dropped = (*old.dropped, *(job for job in cancelled if job not in old.dropped))
    if (old.stop, old.stopped_by, old.dropped) != (True, by, dropped):
        write_wish(places, replace(old, stop=True, stopped_by=by, dropped=dropped, changed=time.time()))
