"""Array jobs by submitit, on Slurm or on this machine; the only file that uses submitit.

submitit works in a process of its own, whose environment the jobs inherit: no other one ever reaches them."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import automate
from automate.cluster.commands import outside_job
from automate.cluster.slurm import advice, available
from automate.durations import seconds_of
from automate.errors import ConfigError, StorageError, SubmitError
from automate.processes import process_start

SUBMIT_TIMEOUT = 180.0
"""Seconds after which nobody waits for sbatch any more."""
SIGNAL_BEFORE = 60.0
"""At most so many seconds before the time limit jobs are told to end."""
_NEVER = 60 * 24 * 366.0
_SUBMITITS = re.compile("%[jtAa]")

Option = str | int | float | bool | None
Function = Callable[[], object]


@dataclass(frozen=True)
class Request:
    """What the submitting process is told. `slurm`: sbatch's long options, and what they are set to."""

    functions: tuple[Function, ...]
    folder: Path
    name: str
    slurm: Mapping[str, Option]
    executor: str
    parallel: int | None


def submit_array(functions: Sequence[Function], *, folder: Path, name: str, slurm: Mapping[str, Option], executor: str,
                 environ: Mapping[str, str], parallel: int | None = None,
                 timeout: float = SUBMIT_TIMEOUT) -> tuple[str, ...]:
    """Hand functions over, one a task; returns the tasks' ids: `12_0`, or `12` where there is one task only.

    With executor `local` a process is started for each of them at once, which outlives this one; their ids are those
    of `local_id`. The functions must be importable (or partials of such). `environ` is what the jobs get, so it must
    hold no secret. `parallel`: how many tasks of an array run at once. Raises SubmitError with Slurm's words.
    """
    if not functions:
        return ()
    _check(folder, executor)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError.of(error, folder, "make the folder of an array job") from error
    data = pickle.dumps(Request(tuple(functions), folder, name, dict(slurm), executor, parallel))
    try:
        done = subprocess.run([sys.executable, "-m", "automate.cluster.arrays"], input=data, capture_output=True,
                              env=_around(environ), cwd=folder, timeout=timeout,
                              start_new_session=True)
    except subprocess.TimeoutExpired as error:
        raise _refused(name, f"no answer within {timeout:g} s", unsure=True) from error
    except OSError as error:
        raise _refused(name, f"can't be started: {error.strerror}", unsure=False) from error
    return _told(name, done)


def _check(folder: Path, executor: str) -> None:
    if executor not in ("slurm", "local"):
        raise ConfigError(f"no executor '{executor}' for array jobs", todo="give slurm or local")
    if executor == "slurm" and not available():
        raise SubmitError("no command 'sbatch' on this machine",
                          todo="run this on the login node, or use --executor local")
    if found := _SUBMITITS.search(str(folder)):
        raise ConfigError(f"a folder whose path holds '{found[0]}' can't be used for array jobs: submitit and Slurm "
                          "put a job's number there", where=str(folder), todo="move the workspace")


def _around(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the submitting process: nothing of a job that it runs in, and this package where it lies."""
    kept = {name: value for name, value in outside_job(environ).items() if not name.startswith("SUBMITIT_")}
    home = Path(automate.__file__).resolve().parents[1]
    if home.name not in ("site-packages", "dist-packages"):
        kept["PYTHONPATH"] = os.pathsep.join([str(home), *filter(None, [kept.get("PYTHONPATH")])])
    return kept


def _told(name: str, done: subprocess.CompletedProcess[bytes]) -> tuple[str, ...]:
    try:
        said = json.loads(done.stdout)
        if "tasks" in said:
            return tuple(str(task) for task in said["tasks"])
        raise _refused(name, str(said["error"]), unsure=bool(said["unsure"]))
    except (ValueError, KeyError, TypeError) as error:
        words = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        what = f"the process that submits ended with status {done.returncode}: {words or 'it said nothing'}"
        raise _refused(name, what, unsure=True) from error


def _refused(name: str, words: str, unsure: bool) -> SubmitError:
    error = SubmitError(f"sbatch refused {name}: {' '.join(words.split())}", todo=advice(words))
    error.unsure = unsure
    return error


# --- jobs of this machine ----------------------------------------------------------------------------
def local_id(pid: int) -> str:
    """A local job's id: host, process, and when it was started, so that it is never taken for another one."""
    return f"{socket.gethostname()}:{pid}:{process_start(pid) or '0'}"


def local_alive(job: str) -> bool | None:
    """Whether a local job's process runs; None where that can't be told from this host."""
    host, _, rest = job.rpartition(":")[0].rpartition(":")
    started = job.rpartition(":")[2]
    if host != socket.gethostname() or not rest.isdigit():
        return None
    return process_start(int(rest)) == started


# --- in the submitting process -------------------------------------------------------------------------
def options_of(request: Request) -> dict[str, Any]:
    """submitit's parameters of a Slurm job."""
    more: dict[str, object] = {"nodes": 1, "ntasks-per-node": 1}
    if not {"requeue", "no-requeue"} & request.slurm.keys():
        more["no-requeue"] = True  # each start is a job of its own, with an end of its own
    limit = seconds_of(str(request.slurm.get("time") or "0"))
    more["signal"] = f"B:USR2@{int(max(5.0, min(SIGNAL_BEFORE, limit / 5)))}"
    for name, value in request.slurm.items():
        if value is not False:
            more[name] = True if value is None else value
    tail = "%A_%a_0_log" if len(request.functions) > 1 else "%j_0_log"
    folder = str(request.folder).replace("%", "%%")
    more |= {"output": f"{folder}/{tail}.out", "error": f"{folder}/{tail}.err"}
    minutes = int(min(limit, 86400 * 366) / 60) + 1
    return {"job_name": request.name, "time": minutes, "wckey": None, "use_srun": False,
            "array_parallelism": request.parallel or len(request.functions), "additional_parameters": more}


def _submit(request: Request) -> list[str]:
    import submitit

    if request.executor == "slurm":
        # The batch shell becomes the task, so that Slurm's signals reach it.
        slurm = submitit.SlurmExecutor(request.folder, python=f"exec {shlex.quote(sys.executable)}")
        slurm.update_parameters(**options_of(request))
        return [str(job.job_id) for job in slurm.submit_array(list(request.functions))]
    local = submitit.LocalExecutor(request.folder)
    local.update_parameters(timeout_min=_NEVER, gpus_per_node=0)
    return [local_id(int(local.submit(function).job_id)) for function in request.functions]


def _answer(request: Request) -> dict[str, object]:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            return {"tasks": _submit(request)}
    except OSError as error:
        return {"error": f"{error.strerror or error}: {error.filename}", "unsure": False}
    except Exception as error:  # what submitit raises is RuntimeError for everything
        refused = type(error).__name__ == "FailedJobError" and type(error.__cause__).__name__ == "CalledProcessError"
        return {"error": str(error) or type(error).__name__, "unsure": not refused}


def main() -> int:
    """Read a request from standard input, submit, and print one JSON object: `tasks`, or `error` and `unsure`."""
    request = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own parent wrote it
    reply = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # local jobs go on after this process and would keep its pipes open
        os.dup2(nothing, descriptor)
    with reply:
        reply.write(json.dumps(_answer(request)).encode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
