"""One model server of a fleet inside its job: start it, put the relay before it, register, drain, end.

Never registers a server that could not be used as others will use it, and never leaves one behind."""

from __future__ import annotations

import asyncio
import os
import secrets as random
import shutil
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from automate import __version__
from automate.cluster import own_job
from automate.durations import in_words
from automate.errors import ConfigError, FlockError, ServerError
from automate.fleets import address
from automate.fleets.address import Place
from automate.fleets.ending import (
    FAILED,
    NO_ROOM,
    SIGNALS,
    TIME_LIMIT,
    UNWANTED,
    Next,
    go_on,
    held_back,
    status_of,
    why_signalled,
)
from automate.fleets.life import Life
from automate.fleets.selfcheck import check_self, identity_of
from automate.processes import PR_SET_CHILD_SUBREAPER, prctl
from automate.serving.client import JudgeClient
from automate.serving.fleet.keys import Secrets, read_secrets, server_context
from automate.serving.fleet.records import WorkerRecord
from automate.serving.relay.relay import Relay
from automate.serving.server import JudgeServer, Launch
from automate.settings import Settings
from automate.workspace import Workspace

T = TypeVar("T")
PATH_VARIABLE = "FLOCK_HPC_JUDGE_PATH"
"""Where a job's script finds a copy of the weights; always set, so that one from outside can't choose others."""
LOOK = 0.2
"""Seconds between two looks at what this very process knows."""
LONGEST = 86400.0


@dataclass
class Worker(Life):
    """One start of one worker. `script` starts its server when called as `bash script serve ADDRESS...`.

    `prepare`: run in a thread before the server starts; the environment for it. `control`: awaited now and then while
    it lives. `age`: seconds that the job had run before this was made. `may_go_on`: asked in a thread whether a limit
    leaves room for one more start, with `next` in the record already; None: there is no limit.
    """

    async def run(self) -> int:
        """Serve until told or asked to end; the exit status. Raises FlockError for what a user must mend."""
        prctl(PR_SET_CHILD_SUBREAPER, 1)
        self._listen()
        failure: BaseException | None = None
        try:
            await self._live()
        except ServerError as error:
            if self.why is None:
                failure = error
            else:
                self.say(f"the server ended with the job: {error.what}")
        except BaseException as error:
            failure = error
        failure = failure or self.fault
        status = await self._finish(failure)
        if failure is not None:
            raise failure
        return status

    async def _live(self) -> None:
        secrets, place = await asyncio.to_thread(self._own)
        tls = await asyncio.to_thread(server_context, self.places, place.host)
        await self.time.ask()
        await self.log.update()
        async with self.background():
            environment = await self._prepared()
            if self.why is not None:
                return
            relay = Relay(secrets.key, self.gate.pick, tls=tls, counting=self.meter, quick=self.gate.choose)
            port = await relay.start(place.bind, setting="fleet.address")
            try:
                async with JudgeServer(self._launch(environment), self.say) as server:
                    self.server = server
                    await self._serve(server, secrets, place.host, port)
                    await self._drain(relay)
            finally:
                await self.presence.leave(self.why or "its server failed")
                await relay.close()

    def _own(self) -> tuple[Secrets, Place]:
        """The fleet's secrets, and where to listen. Raises ConfigError."""
        if self.spec.version != __version__:
            raise ConfigError(f"the fleet {self.spec.name} was made by flock-hpc {self.spec.version}, but "
                              f"{__version__} is installed now", where=str(self.places.spec),
                              todo="stop it ('flock-hpc serve --stop') and make it anew")
        return read_secrets(self.places), address.choose(self.spec.address, self.environ)

    async def _prepared(self) -> dict[str, str]:
        """Measure and stage the weights, which may take long: the record goes on being written."""
        found = await asyncio.to_thread(self.prepare) if self.prepare is not None else {}
        return {PATH_VARIABLE: "", **found}

    def _launch(self, environment: dict[str, str]) -> Launch:
        group, job = self.group, own_job.own_job_id(self.environ) or f"pid{os.getpid()}"
        return Launch(
            command=["bash", str(self.script), "serve"], model=group.model, transport="uds",
            log=self.places.logs / f"worker-{group.number}_{job}.server.log", load_timeout=group.load_timeout,
            stop_timeout=group.stop_timeout, restarts=group.restarts, request_timeout=group.request_timeout,
            environment=environment, who="judge" if group.settings == "judge" else "model", settings=group.settings)

    # --- serving --------------------------------------------------------------------------------
    async def _serve(self, server: JudgeServer, secrets: Secrets, host: str, port: int) -> None:
        """Register each server that becomes ready, and unregister it when it dies, until told to end."""
        while self.why is None:
            client = await self._unless_stopped(server.client())
            if client is None:
                return
            start = server.starts
            await self._unless_stopped(self._join(server, client, secrets, host, port))
            while self.why is None and server.up and server.starts == start:
                await self.pause(LOOK)
            if self.why is None:
                self.gate.close()
                self.meter.serving(False)
                await self.presence.leave("its server died, or does not answer")
                await self.log.update(phase="loading", **self.facts())

    async def _join(self, server: JudgeServer, client: JudgeClient, secrets: Secrets, host: str, port: int) -> None:
        """Check a ready server end to end, and register it under a new id. Raises ServerError."""
        record = self._record(server, host, port)
        self.gate.open(client.address.uds, identity_of(record), lambda: server.up, client.metrics)
        self.client = client
        await check_self(record, secrets)
        if self.why is not None or not server.up:
            return
        self.meter.serving(True)
        await self.presence.register(record)
        self.say(f"registered as {record.id} at {record.url}")
        await self.log.update(id=record.id, phase="ready", **self.facts())

    def _record(self, server: JudgeServer, host: str, port: int) -> WorkerRecord:
        known, now = len(self.presence.known), time.time()
        return WorkerRecord(
            id=self.log.id + (f"-{known + 1}" if known else ""), fleet=self.spec.id, group=self.group.number,
            model=self.group.model, also=self.group.also, host=host, port=port, nonce=random.token_hex(16),
            version=__version__, holder=self.holder, job=own_job.own_job_id(self.environ), node=self.log.node,
            context=server.context, since=now, time=now, until=self.time.until(now), spent=self.meter.spent())

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> T | None:
        """Wait for something, but no longer than until the worker is told to end: None then."""
        task, stopped = asyncio.create_task(work), asyncio.create_task(self.stopped.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else None
        finally:
            task.cancel()
            stopped.cancel()

    # --- the end --------------------------------------------------------------------------------
    async def _drain(self, relay: Relay) -> None:
        """Take no more requests; those in flight have as long as the reason of the end leaves them."""
        draining = asyncio.create_task(relay.drain(LONGEST))
        await asyncio.sleep(0)  # it has begun: a slow file system delays no refusal
        if self.signalled is None:
            await self.presence.beat(state="draining")
            await self.log.update(phase="draining", why=self.why)
        while not draining.done() and time.monotonic() < self.deadline:
            if self.signalled is not None:
                await self.presence.leave(str(self.why))
            await asyncio.wait({draining}, timeout=LOOK)
        if not draining.done():
            self.say(f"requests in flight that are cut off: {relay.in_flight}")
            draining.cancel()
        await self.presence.leave(str(self.why))

    async def _finish(self, failure: BaseException | None) -> int:
        """Write down how it ended, and be put into the queue again where that is due: the very last act."""
        self.over = True
        self.meter.finish()
        self._clear_cache()
        step = await self._next() if self.why is not None and failure is None else None
        status = FAILED if failure is not None else status_of(self.why, step, self.unwanted)
        if failure is not None:
            hopeless = isinstance(failure, ConfigError) or (isinstance(failure, ServerError) and failure.hopeless)
            what = failure.what if isinstance(failure, FlockError) else repr(failure)
            self.log.data.update(error=str(failure) or what, hopeless=hopeless, why=what)
        else:
            self.log.data.update(why=self.why)
        await self.log.update(phase="ended", ended=time.time(), status=status, next=step and step.record,
                              **self.facts())
        if step is not None:
            self.say(f"ended: {step.why}")
        if step is not None and step.kind == "requeue":
            return await self._requeue(step, status)
        return status

    async def _next(self) -> Next:
        """What comes after this start, by Slurm's word on its end."""
        own = await asyncio.to_thread(own_job.ask, self.environ)
        if self.why in SIGNALS:
            self.why = why_signalled(own, self.why)
        asked = await asyncio.to_thread(self.lookout.look, self.presence.known)
        self.unwanted = self.why in UNWANTED or asked is not None
        ready = bool(self.server and self.server.loads)
        step = go_on(str(self.why), own, starts=own_job.own_restart(self.environ) + 1, ever_ready=ready,
                     unwanted=self.unwanted)
        if self.why == TIME_LIMIT and not ready and not self.unwanted:
            self.log.data.update(hopeless=True, error=f"{step.why}\n  -> raise the time limit of its jobs above what "
                                                      "loading the model takes")
        return await self._within_limits(step) if step.kind == "requeue" else step

    async def _within_limits(self, step: Next) -> Next:
        """No more starts where a limit leaves no room; also where that can't be found out, as they may cost a lot."""
        if self.may_go_on is None:
            return step
        await self.log.update(next=step.record, **self.facts())  # others who ask now count it
        try:
            return step if await asyncio.to_thread(self.may_go_on) else held_back(str(self.why), NO_ROOM)
        except Exception as error:
            what = error.what if isinstance(error, FlockError) else repr(error)
            return held_back(str(self.why), f"what limits.max_gpu_hours leaves can't be found out: {what}")

    async def _requeue(self, step: Next, status: int) -> int:
        try:
            queue = Workspace(self.places.root, Settings(), "").local_queue
            await asyncio.to_thread(own_job.requeue, self.environ, queue)
        except FlockError as error:
            self.say(f"not put into the queue again: {error.what}")
            await self.log.update(next=Next("none", f"{step.why}; {error.what}").record)
        return status

    # --- signals --------------------------------------------------------------------------------
    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, signal.Signals(number).name)
        for number in (signal.SIGUSR1, signal.SIGUSR2):
            loop.add_signal_handler(number, self._time_is_near)

    def _time_is_near(self) -> None:
        """Slurm's signal came; where it came early, what is left of the time is still used."""
        early = self.time.early()
        if early > 1.0:
            self.say(f"told of the time limit {in_words(early)} early: requests are taken until then")
        asyncio.get_running_loop().call_later(early if early > 1.0 else 0.0, self.stop, TIME_LIMIT)

    def _clear_cache(self) -> None:
        cache = self.environ.get("FLOCK_HPC_CACHE")
        if cache and Path(cache).name.startswith("flock-hpc-"):
            shutil.rmtree(cache, ignore_errors=True)
