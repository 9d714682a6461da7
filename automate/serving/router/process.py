"""One vllm-router below a guard process: how it is started, asked and ended.

Never gives it a secret, and never lets it reach anything but TLS workers that the fleet's authority vouches for."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import os
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from automate.errors import ConfigError, ServerError, StorageError
from automate.serving.places import free_port
from automate.serving.router.output import BoundedLog

KEPT = ("PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONPATH",
        "PYTHONHOME", "VIRTUAL_ENV")
"""What vllm-router's process gets of this one's environment; all else might hold secrets, or lead it to a proxy."""
NOWHERE = "http://127.0.0.1:0"
READY_WITHIN = 30.0
GRACE = 3.0
TRIES = 5
EVERY, LONGEST = 0.25, 1 << 16
"""Seconds between two writes to its log, and bytes of each."""


@dataclass(frozen=True)
class RouterLaunch:
    """How vllm-router is started for one model. `authority`: the only certificates that it trusts."""

    model: str
    policy: str
    authority: Path
    log: Path
    request_timeout: float = 1800.0

    def command(self, port: int, workers: Sequence[str]) -> list[str]:
        """The command line; workers are in it, and nothing secret."""
        options: dict[str, object] = {
            "host": "127.0.0.1", "port": port, "prometheus-host": "127.0.0.1", "prometheus-port": free_port(),
            "policy": self.policy, "log-level": "warning",
            "worker-startup-timeout-secs": 10, "worker-startup-check-interval": 1,
            "request-timeout-secs": max(1, round(self.request_timeout)), "queue-size": 10000,
            "queue-timeout-secs": 600, "health-check-interval-secs": 5, "health-check-timeout-secs": 5,
            "health-failure-threshold": 2, "health-success-threshold": 1,
            "cb-failure-threshold": 3, "cb-timeout-duration-secs": 5,
        }
        words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        return [sys.executable, "-m", "vllm_router.launch_router", *words, "--worker-urls", *workers]


def environment(authority: Path, environ: Mapping[str, str]) -> dict[str, str]:
    """vllm-router's environment: plain HTTP leads nowhere, TLS only to those whom the authority vouches for."""
    kept = {name: environ[name] for name in KEPT if name in environ}
    return {**kept, "SSL_CERT_FILE": str(authority), "http_proxy": NOWHERE, "HTTP_PROXY": NOWHERE,
            "RUST_LOG": "warn"}


def check_installed() -> None:
    """Raises ConfigError, with the command that installs it, where vllm-router is missing."""
    if importlib.util.find_spec("vllm_router") is None:
        raise ConfigError("vllm-router is not installed here", where=sys.prefix,
                          todo=f"install it: {sys.executable} -m pip install 'flock-hpc[router]' (or: vllm-router)")


class RouterProcess:
    """A running vllm-router. Make it with `start`."""

    def __init__(self, process: asyncio.subprocess.Process, pipe: int, port: int) -> None:
        self.port = port
        self._process = process
        self._pipe: int | None = pipe
        self._session: aiohttp.ClientSession | None = None
        self._keeping: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, launch: RouterLaunch, workers: Sequence[str],
                    environ: Mapping[str, str] | None = None) -> RouterProcess:
        """Start one with its first workers, and wait until it answers. Raises ServerError, StorageError."""
        for left in range(TRIES, 0, -1):
            one = await cls._spawn(launch, workers, os.environ if environ is None else environ)
            try:
                await one._ready()
                return one
            except ServerError as error:
                await one.end()
                if left == 1 or "in use" not in _tail(launch.log):
                    raise ServerError(f"vllm-router for {launch.model} did not start: {error.what}",
                                      where=str(launch.log), todo="see the log's last lines") from error
            except BaseException:
                await one.end()
                raise
        raise ServerError("no free port")

    @classmethod
    async def _spawn(cls, launch: RouterLaunch, workers: Sequence[str], environ: Mapping[str, str]) -> RouterProcess:
        port = free_port()
        guard = [sys.executable, "-m", "automate.serving.guard"]
        read, write = os.pipe()
        try:
            launch.log.parent.mkdir(parents=True, exist_ok=True)
            log = BoundedLog(launch.log)
            log.write(f"=== start at {time.strftime('%Y-%m-%d %H:%M:%S')}, port {port}\n".encode())
            process = await asyncio.create_subprocess_exec(
                *guard, str(read), str(GRACE), "-", *launch.command(port, workers),
                stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
                pass_fds=(read,), start_new_session=True, env=environment(launch.authority, environ))
        except OSError as error:
            os.close(write)
            raise StorageError.of(error, launch.log, "start vllm-router") from error
        finally:
            os.close(read)
        one = cls(process, write, port)
        one._keeping = asyncio.create_task(_keep(process.stdout, log))
        return one

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    async def wait(self) -> int:
        """Wait until it ends; its exit status."""
        return await self._process.wait()

    async def _ready(self) -> None:
        deadline, pause = time.monotonic() + READY_WITHIN, 0.05
        while time.monotonic() < deadline:
            if self.status is not None:
                raise ServerError(f"it ended with status {self.status}")
            with contextlib.suppress(ServerError):
                await self.workers()
                return
            await asyncio.sleep(pause)
        raise ServerError(f"no answer within {READY_WITHIN:g} s")

    async def workers(self) -> frozenset[str]:
        """The URLs that it has now. Raises ServerError."""
        data = await self._ask("GET", "/list_workers")
        found = data.get("urls") if isinstance(data, dict) else None
        if not isinstance(found, list):
            raise ServerError("vllm-router's list of workers can't be read")
        return frozenset(str(url) for url in found)

    async def add(self, url: str) -> None:
        """Add a worker. Raises ServerError where it can't be reached, or is refused."""
        await self._ask("POST", "/add_worker", url)

    async def remove(self, url: str) -> None:
        """Remove a worker; its requests in flight go on. Raises ServerError."""
        await self._ask("POST", "/remove_worker", url)

    async def _ask(self, method: str, path: str, url: str | None = None) -> object:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5))
        params = {} if url is None else {"url": url}
        try:
            async with self._session.request(method, f"http://127.0.0.1:{self.port}{path}", params=params) as reply:
                if reply.status != 200:
                    raise ServerError(f"vllm-router says {reply.status} to {path}: {(await reply.text())[:200]}")
                return await reply.json() if url is None else await reply.text()
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise ServerError(f"vllm-router does not answer: {type(error).__name__}") from error

    async def end(self) -> None:
        """End it and all below it. Idempotent."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            os.close(pipe)
        try:
            await asyncio.wait_for(self._process.wait(), GRACE + 10)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
        if self._keeping is not None:
            await asyncio.wait({self._keeping}, timeout=1)
            self._keeping.cancel()


async def _keep(output: asyncio.StreamReader | None, log: BoundedLog) -> None:
    """Write what vllm-router says a few times a second. What is too much for that is thrown away: it never waits."""
    said, last = bytearray(), 0.0
    while output is not None:
        piece: bytes | None = None
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(EVERY if said else None):
                piece = await output.read(1 << 16)
        said += (piece or b"")[:LONGEST - len(said)]
        if said and (not piece or time.monotonic() - last > EVERY):
            with contextlib.suppress(OSError):  # a full disk
                await asyncio.to_thread(log.write, bytes(said))
            said.clear()
            last = time.monotonic()
        if piece == b"":
            return


def changes(wanted: Collection[str], found: Collection[str]) -> tuple[list[str], list[str]]:
    """What to add and what to remove, so that `found` becomes `wanted`."""
    return sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))


def _tail(log: Path) -> str:
    try:
        return log.read_bytes()[-4000:].decode(errors="replace").rpartition("=== start at")[2]
    except OSError:
        return ""
