"""A fleet's server in the engine's own job (`fleet.engine: beside`): a worker as a child that ends with the engine.

Never lets the child take itself for the job: the engine alone puts that into the queue again."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping

from automate.fleet_places import FleetPlaces
from automate.serving.fleet.records import Group

_JOB = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT", "FLOCK_HPC_JOB")
AGAIN = 5.0
"""Seconds before a worker that ended is started again."""


class Beside:
    """One worker of a group, run by its own script below a guard.

    `gave_up`: why it is not started again; `environ`: its environment, which names no job.
    """

    def __init__(self, places: FleetPlaces, group: Group, say: Callable[[str], None],
                 environ: Mapping[str, str]) -> None:
        self.gave_up: str | None = None
        self._script = places.script(group.number)
        self._log = places.logs / f"worker-{group.number}_beside_{os.getpid()}.out"
        self._group = group
        self._say = say
        self.environ = {name: value for name, value in environ.items() if name not in _JOB}
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self._starts = 0
        self._ended = 0.0

    async def start(self) -> None:
        """Start it; its guard ends it when this process goes away, however it goes."""
        read, write = os.pipe()
        self._pipe, self._starts = write, self._starts + 1
        grace = self._group.stop_timeout + 10.0
        guard = [sys.executable, "-m", "automate.serving.guard", str(read), str(grace), "-"]
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            with self._log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    *guard, "bash", str(self._script), stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=(read,), start_new_session=True, env=self.environ)
            self._say(f"a server of the fleet is started beside the engine; its log: {self._log}")
        except OSError as error:
            self._close()
            self.gave_up = f"the server beside the engine can't be started: {error}"
            self._say(self.gave_up)
        finally:
            os.close(read)

    async def look(self) -> None:
        """Start it again where it has ended, as often as judge.server.restarts allows."""
        if self._process is None or self._process.returncode is None or self.gave_up is not None:
            return
        if not self._ended:
            self._ended = time.monotonic()
            self._close()
            self._say(f"the server beside the engine ended with status {self._process.returncode}")
        if self._starts > self._group.restarts:
            self.gave_up = (f"the server beside the engine ended with status {self._process.returncode} at its start "
                            f"{self._starts}; see {self._log}")
            self._say(self.gave_up)
        elif time.monotonic() - self._ended >= AGAIN:
            self._ended = 0.0
            await self.start()

    async def stop(self) -> None:
        """End it and everything below it: the guard sees the pipe closed."""
        self._close()
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), self._group.stop_timeout + 30.0)

    def _close(self) -> None:
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None
