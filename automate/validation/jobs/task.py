"""What a task of the array job does: its assignments, one after the other, until it is told to end.

Never holds a secret: it is handed over as the workspace's path and the assignments' ids."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType

from pydantic import ValidationError

from automate.claims import no_jobs
from automate.cluster import own_job, queue
from automate.cluster.arrays import local_id
from automate.cluster.own_job import OwnJob
from automate.errors import FlockError
from automate.journal import read_json, write_json
from automate.names import check_name
from automate.settings import Settings, Validation
from automate.validation.assignments import Handed
from automate.validation.jobs import outcomes
from automate.validation.jobs.one import Place, Stop, inner_call_of, run_one
from automate.validation.jobs.resources import scratch_root
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from automate.workspace import Workspace, open_workspace

_SIGNALS = {signal.SIGTERM: outcomes.STOPPED, signal.SIGINT: outcomes.STOPPED, signal.SIGHUP: outcomes.STOPPED,
            signal.SIGUSR2: outcomes.TIME_LIMIT}


def run_task(root: str, ids: Sequence[str], name: str, stale: float, devices: str | None = None) -> dict[str, str]:
    """Do these assignments; returns the state in which each was left. Called by submitit, in the job.

    `name` is the job's, under which its settings lie; `devices`: the GPUs that a local worker may use.
    """
    slurm = bool(os.environ.get("SLURM_JOB_ID"))
    if devices is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = devices
    elif not slurm and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        del os.environ["CUDA_VISIBLE_DEVICES"]  # submitit's local executor hides every GPU that it wasn't told of
    stop = Stop(evidence=lambda: evidence(own_job.ask(os.environ)))
    listen(stop)
    settings = settings_of(Path(root), name)
    places = ValidationPlaces(Path(root), settings.validation)
    place = Place(
        settings=settings, environ=dict(os.environ), scratch_root=scratch_root(os.environ),
        job=Handed(own_id(os.environ), name, "slurm" if slurm else "local", time.time()),
        inner=inner_call_of(places), stop=stop, say=say)
    return do_all(ids, Spool(places, stale=stale, job_alive=queue.job_alive if slurm else no_jobs), place)


def keep_settings(workspace: Workspace, name: str) -> None:
    """Write the settings with which a job is handed in beside it; a command's flags count there too."""
    write_json(_settings_file(workspace.validation, name), workspace.settings.model_dump(mode="json"))


def settings_of(root: Path, name: str) -> Settings:
    """The settings with which a job was handed in; the workspace's, where they have gone. Raises ConfigError."""
    kept = read_json(_settings_file(ValidationPlaces(root, Validation()), name))
    if kept is None:
        return open_workspace(root).settings
    try:
        return Settings.model_validate(kept)
    except ValidationError:  # of another version of this program
        return open_workspace(root).settings


def _settings_file(places: ValidationPlaces, name: str) -> Path:
    return places.jobs / check_name(name, "job") / "settings.json"


def do_all(ids: Sequence[str], spool: Spool, place: Place) -> dict[str, str]:
    """One start of each assignment, in turn; none more once told to end. An error of one doesn't keep the others."""
    left: dict[str, str] = {}
    for assignment_id in ids:
        if place.stop.why:
            place.say(f"{assignment_id}: not started: {outcomes.WORDS.get(place.stop.why, place.stop.why)}")
            continue
        try:
            found = spool.find(assignment_id)
            if found is None:
                place.say(f"{assignment_id}: is not in the spool")
                continue
            left[assignment_id] = str(run_one(found, spool, place).state)
        except FlockError as error:
            place.say(f"{assignment_id}: {error}")
    return left


def listen(stop: Stop) -> None:
    """Have the signals that end a job end the start that is under way, instead of what submitit does at them."""
    def told(number: int, frame: FrameType | None) -> None:
        stop.why = stop.why or _SIGNALS[signal.Signals(number)]

    for number in _SIGNALS:
        signal.signal(number, told)
    signal.signal(signal.SIGCONT, signal.SIG_DFL)


def evidence(own: OwnJob | None) -> str:
    """The cause by Slurm's word on this very job; empty where it says nothing of use."""
    if own is None:
        return ""
    if own.preempted or own.notice == "PREEMPTION":
        return outcomes.PREEMPTED
    if own.timed_out:
        return outcomes.TIME_LIMIT
    if own.reason == "NodeDown" or own.state == "NODE_FAIL" or own.notice == "NODE FAILURE":
        return outcomes.NODE_FAILURE
    return outcomes.CANCELLED if own.ending else ""


def own_id(environ: Mapping[str, str]) -> str:
    """This job's id as squeue prints it, or a local job's."""
    array, index = environ.get("SLURM_ARRAY_JOB_ID"), environ.get("SLURM_ARRAY_TASK_ID")
    if array and index:
        return f"{array}_{index}"
    job = environ.get("SLURM_JOB_ID")
    if job:
        return job
    controller = environ.get("SUBMITIT_LOCAL_JOB_ID", "")
    return local_id(int(controller) if controller.isdigit() else os.getpid())


def say(line: str) -> None:
    """A line for the job's log."""
    print(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {socket.gethostname()} {line}", file=sys.stdout, flush=True)
