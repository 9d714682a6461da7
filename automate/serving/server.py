"""A judge server's life inside a job: start, readiness, death, restart, clean end.

Never sleeps a fixed time, and never takes a neighbour's server for its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from automate.errors import FlockError, ServerError
from automate.processes import descendants
from automate.serving import causes
from automate.serving.client import Address, JudgeClient
from automate.serving.launch import Death as Death
from automate.serving.launch import Launch as Launch
from automate.serving.places import free_port, socket_folder

Say = Callable[[str], None]
PROBE = [{"role": "user", "content": "Reply with one word."}]
HURRY = 4.0
"""Seconds that a server has to end when its job may be killed at any moment."""
MARK = "FLOCK_HPC_SERVER"


def sweep(mark: str) -> int:
    """Kill what is left below this process of a server that carries `mark`; returns how many there were."""
    left = 0
    for pid in descendants(os.getpid()):
        with contextlib.suppress(OSError):
            if f"{MARK}={mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGKILL)
                left += 1
    return left


class JudgeServer:
    """Runs a server and keeps it running. `client()` waits for a ready one; async context manager."""

    def __init__(self, launch: Launch, say: Say) -> None:
        self.launch = launch
        self.say = say
        self.starts = 0
        self.loads: list[float] = []
        self.deaths: list[Death] = []
        self.context: int | None = None
        self._mark = secrets.token_hex(12)
        self._key = secrets.token_urlsafe(32) if launch.transport == "tcp" else None
        self._ready = asyncio.Event()
        self._doubt = asyncio.Event()
        self._error: ServerError | None = None
        self._stopping = False
        self._patience = launch.stop_timeout + 10
        self._client: JudgeClient | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self._task: asyncio.Task[None] | None = None
        self._folder: Path | None = None

    @property
    def key(self) -> str | None:
        """The key that the server asks for (TCP only)."""
        return self._key

    @property
    def up(self) -> bool:
        """Whether the server is ready, as far as is known."""
        return self._ready.is_set() and self._error is None

    async def __aenter__(self) -> JudgeServer:
        self._task = asyncio.create_task(self._supervise())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        await self._end()

    async def client(self) -> JudgeClient:
        """The client of a ready server; waits while it loads or restarts. Raises ServerError when given up."""
        await self._ready.wait()
        if self._error is not None:
            raise self._error
        if self._client is None:
            raise ServerError("no client")
        return self._client

    def suspect(self) -> None:
        """A connection failed: nobody gets the client before the server has shown that it lives."""
        if self._error is None:
            self._ready.clear()
            self._doubt.set()

    def stop_restarting(self, *, hurry: bool = False) -> None:
        """The job is ending: a server that dies from now on is not started again.

        `hurry`: the job may be killed soon, so the server gets few seconds to end.
        """
        self._stopping = True
        self._patience = HURRY if hurry else self._patience

    async def _supervise(self) -> None:
        failures = 0
        while True:
            try:
                await self._start()
                raise await self._watch()
            except FlockError as error:
                self._ready.clear()
                cause = await self._report(error)
                failures += 1
                if self._stopping or not self._helps(cause) or failures > self.launch.restarts:
                    self._give_up(cause, error)
                    return
                self.say(f"{self.launch.who} server: restart {failures} of {self.launch.restarts}")

    def _helps(self, cause: causes.Cause) -> bool:
        """Whether a restart can help; on a node whose own faults have killed enough servers it can't."""
        faults = sum(death.node_fault for death in self.deaths)
        return cause.restart_helps and not (cause.node_fault and faults >= self.launch.node_faults)

    def _give_up(self, cause: causes.Cause, error: FlockError) -> None:
        own = error.todo if cause is causes.UNKNOWN else None
        again = "" if self._helps(cause) else "; starting it again would not help"
        self._error = ServerError(f"the {self.launch.who}'s server failed: {cause.name} ({error.what}){again}",
                                  where=str(self.launch.log),
                                  todo=self.launch.advice(own or cause.todo))
        self._error.hopeless = not cause.restart_helps
        self._error.node_fault = cause.node_fault
        self._ready.set()

    async def _report(self, error: FlockError) -> causes.Cause:
        process = self._process
        status = process.returncode if process else None
        await self._end()
        log = causes.tail(self.launch.log)
        cause = causes.classify(log.rpartition("=== start ")[2], status)
        if self._stopping:
            self.say(f"{self.launch.who} server: it ended with the job ({error.what})")
            return cause
        self.deaths.append(Death(time.time(), cause.name, error.what, cause.node_fault))
        self.say(f"{self.launch.who} server: {error.what}; cause: {cause.name}; last lines of {self.launch.log}:")
        for line in log.split("\n"):
            self.say(f"  | {line}")
        return cause

    def _address(self) -> tuple[Address, list[str]]:
        if self.launch.transport == "uds":
            self._folder = socket_folder()
            path = str(self._folder / "judge.sock")
            return Address("http://localhost", path), ["--uds", path]
        port = free_port()
        return Address(f"http://127.0.0.1:{port}"), ["--host", "127.0.0.1", "--port", str(port)]

    async def _start(self) -> None:
        address, arguments = self._address()
        self.starts += 1
        began = time.monotonic()
        self.launch.log.parent.mkdir(parents=True, exist_ok=True)
        await self._spawn([*self.launch.command, *arguments])
        self._client = JudgeClient(address, self.launch.model, key=self._key, timeout=self.launch.request_timeout)
        await self._client.__aenter__()
        self.say(f"{self.launch.who} server: started, waiting until it is ready "
                 f"(at most {self.launch.load_timeout:g} s)")
        await self._wait_ready(self._client, began)
        self.loads.append(time.monotonic() - began)
        self.say(f"{self.launch.who} server: ready after {self.loads[-1]:.1f} s at {address}")
        self._ready.set()

    async def _spawn(self, command: Sequence[str]) -> None:
        read, write = os.pipe()
        self._pipe = write
        environment = {**os.environ, **(self.launch.environment or {}), MARK: self._mark}
        if self._key:
            environment["VLLM_API_KEY"] = self._key
        folder = str(self._folder) if self._folder else "-"
        guard = [sys.executable, "-m", "automate.serving.guard", str(read), str(self.launch.stop_timeout), folder]
        try:
            with self.launch.log.open("ab") as log:
                log.write(f"=== start {self.starts} at {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
                log.flush()
                self._process = await asyncio.create_subprocess_exec(
                    *guard, *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
                    pass_fds=(read,), start_new_session=True, env=environment)
        except OSError as error:
            raise ServerError(f"can't start the {self.launch.who}'s server: {error}",
                              where=str(self.launch.log)) from error
        finally:
            os.close(read)

    async def _wait_ready(self, client: JudgeClient, began: float) -> None:
        pause, last = 0.05, "nothing answered yet"
        while time.monotonic() - began < self.launch.load_timeout:
            if self._process is None or self._process.returncode is not None:
                status = self._process.returncode if self._process else None
                raise ServerError(f"the model server ended with status {status} before it was ready")
            try:
                await client.healthy()
                await self._check_model(client)
                await client.chat(PROBE, max_tokens=1, temperature=0.0, timeout=300)
                return
            except ServerError:
                raise
            except (FlockError, ValueError, KeyError) as error:
                last = str(error)
            await asyncio.sleep(pause)
            pause = min(pause * 1.3, 2.0)
        raise ServerError(f"not ready after {self.launch.load_timeout:g} s (last: {last})", where=str(self.launch.log),
                          todo="raise judge.server.load_timeout, or see in the log what it is waiting for")

    async def _check_model(self, client: JudgeClient) -> None:
        served = await client.models()
        if self.launch.model not in served:
            raise ServerError(f"the server has {', '.join(served) or 'no model'} instead of {self.launch.model}",
                              todo="another program answers at this address")
        self.context = served[self.launch.model]

    async def _watch(self) -> ServerError:
        """Return why the server is of no use any more: it ended, or doesn't answer /health for long."""
        process, client, misses = self._process, self._client, 0
        if process is None or client is None:
            return ServerError("the model server was stopped")
        waiter = asyncio.create_task(process.wait())
        try:
            while process.returncode is None:
                if not self._doubt.is_set():
                    await self._pause(waiter, 15.0)
                self._doubt.clear()
                try:
                    await client.healthy(timeout=30)
                    misses = 0
                    self._ready.set()
                except FlockError as error:
                    misses += 1
                    if misses >= 4 and process.returncode is None and not waiter.done():
                        return ServerError(f"the model server lives but does not answer /health: {error}")
                    self._ready.clear()
                    await asyncio.wait({waiter}, timeout=5)
                    self._doubt.set()
            return ServerError(f"the model server ended with status {process.returncode}")
        finally:
            waiter.cancel()

    async def _pause(self, waiter: asyncio.Task[int], seconds: float) -> None:
        """Wait until the process ends, somebody doubts it, or some seconds have passed."""
        doubt = asyncio.create_task(self._doubt.wait())
        await asyncio.wait({waiter, doubt}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        doubt.cancel()

    async def _end(self) -> None:
        """Stop the server and everything below it; harmless where there is none."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)
        process, self._process = self._process, None
        if process is not None:
            try:
                await asyncio.wait_for(process.wait(), self._patience)
            except TimeoutError:
                process.kill()
        sweep(self._mark)
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
