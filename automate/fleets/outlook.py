"""Why there will be no server of a model, or what is known of those that may still come.

Only looks. What nobody can say is no reason to give up."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from automate.cluster.base import Cluster
from automate.cluster.limits import limit_words
from automate.errors import FlockError, StorageError
from automate.fleet_places import FleetPlaces
from automate.fleets.account import read_worker_runs
from automate.fleets.aside import aside
from automate.fleets.jobs import WorkerJob, jobs_of, submissions_of
from automate.fleets.looking import failed_starts, trouble
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec, read_wish

EVERY = 15.0
Say = Callable[[str], None]


Barred = Callable[[Group], str | None]
"""Why no server of a group may be asked for, by limits that the cluster knows nothing of; None: one may."""


def outlook(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, model: str, *, say: Say | None = None,
            barred: Barred | None = None) -> str | None:
    """Why there will be no server of this model; None while one waits, runs, or may still be asked for.

    `say`: told what the cluster says of the jobs that wait. Asks the cluster once.
    """
    group = spec.group_of(model)
    if group is None:
        return f"the fleet '{spec.name}' serves no model '{model}', only " + ", ".join(
            name for one in spec.groups for name in one.names)
    try:
        now = read_spec(places)
        if now is None or now.id != spec.id:
            return f"the fleet '{spec.name}' with id {spec.id} is no more"
        if read_wish(places).stop:
            return f"the fleet '{spec.name}' was stopped"
        jobs = jobs_of(places, cluster, spec)
    except StorageError as error:
        if not places.home.parent.is_dir():
            return f"the fleet's folder is lost: {error.what}"
        return None
    except FlockError:
        return None
    why = _of_group(places, spec, group, jobs, say)
    acting = any(one.group == group.number and one.status.may_act for one in jobs)
    return why if why is not None or acting or barred is None else barred(group)


def _of_group(places: FleetPlaces, spec: FleetSpec, group: Group, jobs: Sequence[WorkerJob],
              say: Say | None) -> str | None:
    mine = [one for one in jobs if one.group == group.number]
    acting = [one for one in mine if one.status.may_act]
    if acting:
        if say is not None:
            say(waiting_words(acting))
        return None
    runs = read_worker_runs(places)
    hopeless = trouble(jobs, runs, group)
    if hopeless is not None:
        return hopeless
    last = next((one for one in reversed(submissions_of(places, spec)) if group.number in one.tasks.values()), None)
    if last is not None and last.refused is not None and limit_words(last.refused) is None:
        return f"no server of '{model_of(group)}' was accepted: {last.refused}"
    if mine and read_wish(places).wanted_of(group) <= 0:
        failed = failed_starts(jobs, runs, group)
        why = f"; last: {failed[-1].why} (job {failed[-1].job})" if failed else ""
        return f"all servers of '{model_of(group)}' have ended, and no more are wanted{why}"
    return None


def model_of(group: Group) -> str:
    """A group in words: its model, and how many more names its servers answer to."""
    return group.model + (f" and {len(group.also)} more" if group.also else "")


def waiting_words(jobs: Sequence[WorkerJob]) -> str:
    """What the cluster says of jobs that act, in one line."""
    waiting = [one for one in jobs if one.status.state.queued]
    if not waiting:
        return f"{len(jobs)} server(s) start"
    reasons = sorted({one.status.reason for one in waiting if one.status.reason})
    begins = min((one.status.begins for one in waiting if one.status.begins), default="")
    words = f"{len(waiting)} server(s) wait in the queue"
    words += f" ({', '.join(reasons)})" if reasons else ""
    words += f", the first is to start at {begins}" if begins else ""
    rest = len(jobs) - len(waiting)
    return words + (f"; {rest} start" if rest else "")


def outlook_of(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, model: str, *, say: Say | None = None,
               clock: Callable[[], float] = time.monotonic, every: float | None = None,
               barred: Barred | None = None) -> Callable[[], Awaitable[str | None]]:
    """`outlook` for one who asks often: asks the cluster at most every 15 s, in a thread, and says nothing twice."""
    pause = every if every is not None else (EVERY if cluster.kind == "slurm" else 1.0)
    told: set[str] = set()
    last: tuple[float, str | None] | None = None

    def tell(words: str) -> None:
        if say is not None and words not in told:
            told.add(words)
            say(words)

    async def ask() -> str | None:
        nonlocal last
        if last is None or clock() - last[0] >= pause:
            last = clock(), await aside(lambda: outlook(places, spec, cluster, model, say=tell, barred=barred))
        return last[1]

    return ask
