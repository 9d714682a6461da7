"""Claims: who alone may work on a thing, on file systems that have no locks to trust.

A claim is a numbered file made by exclusive create and never reused: to take over is to make the next number.
It is never broken while its heartbeat is young or its holder may be alive."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from automate.errors import ClaimedError, StorageError
from automate.journal import read_json
from automate.processes import process_start

JobAlive = Callable[[str], bool | None]


@dataclass(frozen=True)
class Holder:
    """Who holds a claim: a process of a host, and the Slurm job it belongs to."""

    host: str
    boot: str
    pid_space: str
    pid: int
    started: str
    job: str | None
    restart: int
    nonce: str
    since: float

    def __str__(self) -> str:
        job = f"job {self.job}, " if self.job else ""
        return f"{job}process {self.pid} on {self.host}"


def _read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def _pid_space() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def myself(environ: Mapping[str, str] | None = None) -> Holder:
    """This process as a holder."""
    env = os.environ if environ is None else environ
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(), boot=_read_text("/proc/sys/kernel/random/boot_id"), pid_space=_pid_space(),
        pid=pid, started=process_start(pid) or "", job=env.get("SLURM_JOB_ID"),
        restart=int(env.get("SLURM_RESTART_COUNT") or 0), nonce=secrets.token_hex(8), since=time.time(),
    )


def no_jobs(job: str) -> bool | None:
    """For machines without Slurm: nothing can be said of any job."""
    return None


def alive(holder: Holder, me: Holder, job_alive: JobAlive) -> bool | None:
    """Whether a holder lives: True, False, or None where nobody can say."""
    if holder.host == me.host:
        if holder.boot != me.boot:
            return False
        if holder.pid_space == me.pid_space:
            return process_start(holder.pid) == holder.started
    if holder.job is None:
        return None
    if holder.job == me.job:
        return False if holder.restart < me.restart else None
    return job_alive(holder.job)


class Claim:
    """A claim that this process holds; `beat()` it often, `release()` it at the end."""

    def __init__(self, path: Path, holder: Holder) -> None:
        self.path = path
        self.holder = holder

    def beat(self) -> bool:
        """Show that the holder lives. False: somebody else has taken over, so stop at once."""
        try:
            os.utime(self.path)
        except OSError:
            return False
        return _latest(self.path.parent) == self.path

    @property
    def lost(self) -> bool:
        """Whether the claim's folder has gone: the workspace was moved or removed."""
        return not self.path.parent.is_dir()

    def release(self) -> None:
        """Give the claim up, if it is still held."""
        try:
            self.path.with_suffix(".released").touch()
        except OSError:
            return  # an old heartbeat and a dead holder say the same, later


def _number(path: Path) -> int:
    return int(path.stem[1:])


def _latest(folder: Path) -> Path | None:
    found = [path for path in folder.glob("g*.json") if path.stem[1:].isdigit()]
    return max(found, key=_number, default=None)


def _holder(path: Path) -> Holder | None:
    record = read_json(path)
    try:
        return Holder(**record) if record else None
    except TypeError:
        return None


def _age(path: Path) -> float | None:
    """Seconds since the last heartbeat, by the file system's own clock; None where the file has gone meanwhile."""
    probe = path.parent / f".clock-{secrets.token_hex(4)}"
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return None
    finally:
        probe.unlink(missing_ok=True)


def holder_of(folder: Path) -> Holder | None:
    """Who holds the claim at `folder` by its files; None where it was never taken or was given up."""
    latest = _latest(folder) if folder.is_dir() else None
    if latest is None or latest.with_suffix(".released").exists():
        return None
    return _holder(latest)


def _advice(claim: Path, holder: Holder | None, life: bool | None) -> str:
    if life or holder is None or holder.job is not None:
        return "wait for it, or cancel it with 'flock-hpc cancel'"
    return (f"run the same command on {holder.host}, where that can be told; "
            f"where that process is surely gone, give its claim up: touch '{claim.with_suffix('.released')}'")


def _may_take(latest: Path | None, me: Holder, stale: float, job_alive: JobAlive) -> ClaimedError | None:
    if latest is None or latest.with_suffix(".released").exists():
        return None
    holder = _holder(latest)
    life = None if holder is None else alive(holder, me, job_alive)
    who = str(holder) if holder else "a holder whose claim file can't be read"
    if life is not False:
        return ClaimedError(
            f"held by {who}, which {'is alive' if life else 'may be alive: nobody here can tell'}",
            where=str(latest), todo=_advice(latest, holder, life),
        )
    age = _age(latest)
    if age is None:
        return ClaimedError("taken by somebody else at this moment", where=str(latest), todo="try again")
    if age < stale:
        error = ClaimedError(f"held until {age:.0f} s ago by {who}, which is gone; free in {stale - age:.0f} s",
                             where=str(latest), todo="try again then")
        error.holder_gone = True
        return error
    return None


def _create(path: Path, holder: Holder) -> bool:
    """Make the claim file whole and exclusively: a temporary file is linked to its name."""
    temporary = path.with_name(f".{holder.nonce}.tmp")
    try:
        temporary.write_bytes(orjson.dumps(asdict(holder)))
        os.link(temporary, path)
    except FileExistsError:
        return temporary.stat().st_nlink == 2  # NFS may say so of a link that it has just made
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _sweep(folder: Path, mine: Path) -> None:
    for path in folder.glob("g*"):
        stem = path.name.partition(".")[0][1:]
        if stem.isdigit() and int(stem) < _number(mine):
            path.unlink(missing_ok=True)


def take(folder: Path, *, stale: float, job_alive: JobAlive = no_jobs, me: Holder | None = None) -> Claim:
    """Take the claim at `folder`. Raises ClaimedError, naming the holder, where it can't be had now."""
    holder = me or myself()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for _ in range(20):
            latest = _latest(folder)
            refused = _may_take(latest, holder, stale, job_alive)
            if refused:
                raise refused
            path = folder / f"g{(_number(latest) if latest else 0) + 1:06d}.json"
            if _create(path, holder) and _latest(folder) == path:
                _sweep(folder, path)
                return Claim(path, holder)
    except OSError as error:
        raise StorageError.of(error, folder, "claim it") from error
    raise ClaimedError("several processes want it at once", where=str(folder), todo="try again")
