"""A fleet's jobs: handed over once each, found again, cancelled; what the cluster says of them.

Never decides how many there are to be."""

from __future__ import annotations

import hashlib
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automate import claims
from automate.cluster import slurm
from automate.cluster.base import Cluster
from automate.cluster.limits import limit_words
from automate.cluster.local.executor import LocalCluster
from automate.cluster.queue import JobStatus, job_alive
from automate.cluster.shared import ENDED
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook, first_tasks, hand_over, new_submission
from automate.errors import ClusterError, ConfigError, SubmitError
from automate.fleet_places import FleetPlaces, fleets_folder
from automate.serving.fleet.records import FleetSpec, Group
from automate.serving.fleet.registry import read_spec
from automate.settings import Settings
from automate.workspace import Workspace

AT_ONCE = 10_000
"""How many workers this machine runs at once: as many as were asked for."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class WorkerJob:
    """One job of a fleet, as the cluster knows it; `job` as squeue prints it (array tasks: 123_4)."""

    job: str
    group: int
    status: JobStatus
    submission: Submission


def check_fleet(name: str) -> str:
    """A fleet's name, as it may stand in names of jobs and folders. Raises ConfigError."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise ConfigError(f"{name!r} can't be a fleet's name", where="--name",
                          todo="letters, digits, '.', '_' and '-', at most 64, beginning with a letter or a digit")
    return name


def fleets_of(root: Path) -> list[str]:
    """Names of the fleets of a workspace that this user can look into, over or not, sorted."""
    return [path.name for path in _folders(root) if _holds_spec(path)]


def fleets_of_others(root: Path) -> dict[str, str]:
    """Fleets that are closed to this user, as those of other users are: whose each one is, by its name."""
    return {path.name: owner_of(path) for path in _folders(root) if _holds_spec(path) is None}


def theirs(name: str, user: str) -> str:
    """What is said of another user's fleet."""
    return f"the fleet '{name}' is {user}'s: only they can see and use it"


def refuse_others(root: Path, name: str | None) -> None:
    """Raises ConfigError where the fleet of this name is another user's; without a name, where all there are so."""
    others = fleets_of_others(root)
    if name is None and others and not fleets_of(root):
        name = next(iter(others))
    if name is not None and name in others:
        raise ConfigError(theirs(name, others[name]), where=str(fleets_folder(root) / name),
                          todo="make one of your own under another name: 'flock-hpc serve MODEL --name NAME --submit'")


def owner_of(path: Path) -> str:
    """The user whose a file is, by name where the system knows it."""
    try:
        uid = path.lstat().st_uid
        return pwd.getpwuid(uid).pw_name
    except OSError:
        return "another user"
    except KeyError:
        return f"the user {uid}"


def _folders(root: Path) -> list[Path]:
    """What may be a fleet's folder, by name; nothing where this user may not see what there is."""
    try:
        return sorted(path for path in fleets_folder(root).iterdir() if _NAME.fullmatch(path.name))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def _holds_spec(folder: Path) -> bool | None:
    """Whether a fleet lies there; None where the folder is closed to this user."""
    try:
        return (folder / "fleet.json").is_file()
    except PermissionError:
        return None


def cluster_of(root: Path, executor: str) -> Cluster:
    """The cluster that the jobs of a fleet are on. Raises ClusterError where this machine has no Slurm."""
    if executor == "local":
        return LocalCluster(Workspace(root, Settings(), "").local_queue, root, AT_ONCE)
    if not slurm.available():
        raise ClusterError("no Slurm on this machine: no sbatch or squeue on PATH", where="executor",
                           todo="run this on the cluster's login node")
    return SlurmCluster()


def alive_of(cluster: Cluster) -> claims.JobAlive:
    """The cluster's word on whether a claim's job lives."""
    return job_alive if cluster.kind == "slurm" else claims.no_jobs



# --- jobs ---------------------------------------------------------------------------------------------
def submit_workers(places: FleetPlaces, spec: FleetSpec, cluster: Cluster, group: Group, count: int, *, by: str,
                   exclude: str | None = None) -> Submission:
    """Hand `count` workers of a group over, as one array job; fewer where a limit of the cluster says so.

    Hold the control claim. `by`: who asks (user, engine, worker); `exclude`: nodes that are to be kept clear of. Look
    at the submission's tasks for how many were accepted. Raises SubmitError with the cluster's words, and ConfigError
    where the fleet has been made anew.
    """
    now = read_spec(places)
    if now is None or now.id != spec.id:
        raise ConfigError(f"the fleet '{spec.name}' with id {spec.id} is no more", where=str(places.home),
                          todo="look at it with 'flock-hpc serve --status'")
    parallel = AT_ONCE if cluster.kind == "local" else None
    wanted = new_submission(spec.id, job_name(places, spec, group), places.script(group.number), cluster.kind,
                            dict.fromkeys(range(count), group.number), array=True, parallel=parallel, by=by)
    part, book = replace(wanted, exclude=exclude), SubmissionBook(places.submissions)
    while True:
        try:
            return hand_over(book, cluster, part)
        except SubmitError as error:
            if error.unsure or len(part.tasks) < 2 or limit_words(error.what) is None:
                raise
        part = first_tasks(part, len(part.tasks) // 2)


def job_name(places: FleetPlaces, spec: FleetSpec, group: Group) -> str:
    """The name of a group's jobs: no other fleet's, also no earlier one's of this name."""
    return f"serve-{spec.name}-{group.number}-{fleet_tag(places.root, spec.id)}"


def fleet_tag(root: Path, fleet_id: str) -> str:
    """Six characters that make the job names of one fleet unlike all others."""
    return hashlib.sha256(f"{root}\0fleet\0{fleet_id}".encode()).hexdigest()[:6]


def submissions_of(places: FleetPlaces, spec: FleetSpec) -> list[Submission]:
    """Every handing over of this very fleet, oldest first."""
    return [one for one in SubmissionBook(places.submissions).all() if one.plan == spec.id]


def job_ids(submission: Submission) -> list[str]:
    """Ids of a submission's array tasks, as squeue prints them."""
    return [] if submission.job is None else [f"{submission.job}_{index}" for index in submission.indexes]


def jobs_of(places: FleetPlaces, cluster: Cluster, spec: FleetSpec | None = None,
            known: dict[str, JobStatus] | None = None) -> list[WorkerJob]:
    """Every job of the fleet, oldest first, by one question to the cluster.

    `known`: what was said of jobs that have ended; they are not asked after again, and new ones are added.
    """
    fleet = spec or read_spec(places)
    if fleet is None:
        return []
    handed = [one for one in submissions_of(places, fleet) if one.executor == cluster.kind]
    before = known or {}
    ids = [job for one in handed for job in job_ids(one) if job not in before]
    found: Mapping[str, JobStatus] = {**before, **(cluster.look(ids) if ids else {})}
    if known is not None:
        known.update({job: found[job] for job in ids if found[job].state in ENDED})
    return [WorkerJob(job, _group(one), found[job], one) for one in handed for job in job_ids(one)]


def _group(submission: Submission) -> int:
    return next(iter(submission.tasks.values()))


def is_over(places: FleetPlaces, cluster: Cluster) -> bool:
    """Whether no job of the fleet waits or runs, or may. True where there is no fleet."""
    spec = read_spec(places)
    if spec is None:
        return True
    if any(one.open for one in submissions_of(places, spec)):
        return False
    return not any(one.status.may_act for one in jobs_of(places, cluster, spec))


def cancel(cluster: Cluster, jobs: Sequence[str]) -> list[str]:
    """Cancel jobs; what went wrong, a line each."""
    return cluster.cancel(list(jobs)) if jobs else []
