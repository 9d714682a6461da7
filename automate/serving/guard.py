"""Stands between a job and its model server, so that the server never outlives the job.

It starts the server as its child, adopts every orphan below it, and ends them all when the pipe from the job
closes or the server itself ends; a signal to the whole job is the job's to answer. Standard library only."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import sys
import time

from automate.processes import PR_SET_CHILD_SUBREAPER, PR_SET_PDEATHSIG, descendants, prctl

_LEFT_ALONE = (signal.SIGTERM, signal.SIGINT)


def _signal_all(number: int) -> list[int]:
    below = descendants(os.getpid())
    for pid in below:
        with contextlib.suppress(OSError):
            os.kill(pid, number)
    return below


def _reap(server: int) -> int | None:
    """Collect ended children; the server's exit status once it has ended."""
    status: int | None = None
    while True:
        try:
            pid, raw = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return status
        if pid == 0:
            return status
        if pid == server:
            status = os.waitstatus_to_exitcode(raw)


def end_all(server: int, grace: float) -> int | None:
    """Ask every process below to end; after `grace` seconds, make them. Returns the server's exit status.

    By SIGINT: SIGTERM is blocked in the server, as Slurm sends it to a job's every process when the job is to end, and
    the games in flight need the server a little longer.
    """
    status = None
    _signal_all(signal.SIGINT)
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline:
        found = _reap(server)
        status = found if found is not None else status
        if not descendants(os.getpid()):
            return status
        time.sleep(0.05)
    for _ in range(200):
        if not _signal_all(signal.SIGKILL):
            break
        found = _reap(server)
        status = found if found is not None else status
        time.sleep(0.02)
    found = _reap(server)
    return found if found is not None else status


def _start(command: list[str]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == 1:
            os._exit(1)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT,))  # SIGTERM stays blocked, below it too
        os.execvp(command[0], command)  # noqa: S606 - the guard's very purpose
    except OSError as error:
        print(f"can't start {command[0]}: {error.strerror}", file=sys.stderr, flush=True)
    os._exit(127)


def main(argv: list[str]) -> int:
    """`guard PIPE_FD GRACE FOLDER COMMAND...`: run COMMAND until it ends or the pipe's other end is closed.

    FOLDER, where the server's socket lies, is removed at the end; `-` for none.
    """
    pipe, grace, folder, command = int(argv[0]), float(argv[1]), argv[2], argv[3:]
    try:
        return _guard(pipe, grace, command)
    finally:
        if folder != "-":
            shutil.rmtree(folder, ignore_errors=True)


def _guard(pipe: int, grace: float, command: list[str]) -> int:
    os.set_inheritable(pipe, False)
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    signal.pthread_sigmask(signal.SIG_BLOCK, _LEFT_ALONE)
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write)
    for number in (*_LEFT_ALONE, signal.SIGCHLD):
        signal.signal(number, lambda *_: None)
    server = _start(command)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _LEFT_ALONE)
    closed = False
    while not closed:
        ready, _, _ = select.select([pipe, wake_read], [], [], 1.0)
        if wake_read in ready:
            os.read(wake_read, 64)
        closed = pipe in ready and not os.read(pipe, 64)
        status = _reap(server)
        if status is not None:
            end_all(server, min(grace, 2.0))
            return status if status >= 0 else 128 - status
    status = end_all(server, grace)
    return 0 if status is None or status < 0 else status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
