"""The router's front: asks for the fleet's key, finds the model's vllm-router, and lets a request wait for a worker.

Never passes on a path that is not listed, and never hands a key to anybody but a process of this user."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from automate.claims import JobAlive
from automate.errors import ConfigError, FlockError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.keys import Secrets, client_context, read_secrets, server_context
from automate.serving.fleet.records import FleetSpec
from automate.serving.fleet.registry import Watch, read_spec, use
from automate.serving.relay.relay import Answer, Asked, Relay, Target
from automate.serving.router import answers
from automate.serving.router.bridge import NOBODY, Bridge
from automate.serving.router.keeper import Keeper
from automate.serving.router.process import RouterLaunch, check_installed
from automate.serving.router.roster import Present, Roster
from automate.serving.router.routes import POSTED, ROUTED, Sessions, bare
from automate.serving.router.word import Word
from automate.settings_fleet import Router as RouterSettings

Say = Callable[[str], None]
Outlook = Callable[[str], str]
"""Asked for a model without a worker: what its jobs do, and where to look. May be slow."""
LOOK_EVERY = 1.0
DRAIN = 30.0
AGAIN = 0.5
NO_WORKER = (b"No available workers", NOBODY)
"""How vllm-router, and the way beside it, say that they found none."""
EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - only where a user asks for it


@dataclass(frozen=True)
class FrontConfig:
    """How the front is run. `tls`: it serves TLS by the fleet's authority."""

    settings: RouterSettings
    version: str
    job_alive: JobAlive
    outlook: Outlook
    tls: bool = False


class Front:
    """One fleet's router. `run(stop)` until `stop` is set, or the fleet is made anew."""

    def __init__(self, places: FleetPlaces, spec: FleetSpec, config: FrontConfig, say: Say) -> None:
        self._places = places
        self._spec = spec
        self._config = config
        self._say = say
        self._secrets: Secrets = read_secrets(places)
        self._bases = {name: group.model for group in reversed(spec.groups) for name in group.names}
        self._present = Present()
        self._turn = itertools.count()
        self._bridges: dict[str, str] = {}
        self._ending = False
        self._outlooks: dict[str, tuple[float, str]] = {}
        self._keepers = {model: Keeper(self._launch(model), say) for model in dict.fromkeys(
            group.model for group in spec.groups)}
        self._sessions = {model: Sessions() for model in self._keepers}
        self.relay = Relay(self._secrets.key, self.pick, tls=self._tls(), quick=self.quick, mend=self.mend)
        self.port = 0

    def _tls(self) -> ssl.SSLContext | None:
        return server_context(self._places, self._host) if self._config.tls else None

    @property
    def _host(self) -> str:
        """By which others find it: this machine's name where it listens at every address."""
        host = self._config.settings.host
        return socket.gethostname() if host in EVERYWHERE else host

    def _launch(self, model: str) -> RouterLaunch:
        groups = [group for group in self._spec.groups if group.model == model]
        number = min(group.number for group in groups)
        return RouterLaunch(model, self._config.settings.policy, self._places.authority,
                            self._places.logs / f"vllm-router-{number}.log",
                            max(group.request_timeout for group in groups))

    # --- requests -------------------------------------------------------------------------------
    def quick(self, asked: Asked) -> Target | Answer | None:
        """Where a request goes, or its answer; None where it has to wait for a worker."""
        path = bare(asked.path)
        if asked.method in ("GET", "HEAD"):
            return self._tell(path) or answers.no_path(asked.method, path, POSTED)
        if asked.method != "POST" or path not in POSTED:
            return answers.no_path(asked.method, path, POSTED)
        if asked.model is None:
            return answers.no_model_named()
        base = self._bases.get(asked.model)
        if base is None:
            return answers.no_model(asked.model, list(self._bases))
        port = self._keepers[base].port
        return None if port is None else self._target(base, path, port, asked)

    async def pick(self, asked: Asked) -> Target | Answer:
        """Where a request goes; waits for a worker as long as the settings say."""
        chosen = self.quick(asked)
        if chosen is not None:
            return chosen
        model, wait = self._bases[asked.model or ""], self._config.settings.wait
        port = await self._keepers[model].ready(wait)
        if self._ending:
            return answers.ending()
        if port is None:
            return answers.no_worker(asked.model or "", wait, await self._why(model))
        return self._target(model, bare(asked.path), port, asked)

    def _target(self, model: str, path: str, port: int, asked: Asked) -> Target:
        own = (("Authorization", f"Bearer {self._secrets.key}"), ("Content-Type", "application/json"))
        if path not in ROUTED:
            return self._beside(model)
        if self._config.settings.policy == "consistent_hash":
            session = self._sessions[model].name(asked.body, len(self._keepers[model].wanted))
            return Target(port=port, own=True, headers=(*own, ("x-session-id", session)), mend=True)
        return Target(port=port, own=True, headers=own, mend=True)

    def _beside(self, model: str) -> Target:
        return Target(uds=self._bridges[model], mend=True, headers=(
            ("Authorization", f"Bearer {self._secrets.key}"), ("Content-Type", "application/json")))

    async def mend(self, asked: Asked, status: int, text: bytes, waited: float) -> Target | Answer:
        """What becomes of a plain-text error: again where no worker was found, else the same in OpenAI's shape.

        Somebody else may have taken the workers out of vllm-router, or they can't be reached just now: they are put
        back at once; where the first try after that finds none, the next goes beside vllm-router, and so on by turns.
        """
        if status != 503 or not text.startswith(NO_WORKER):
            return answers.plain(status, text)
        model, wait = self._bases[asked.model or ""], self._config.settings.wait
        left = wait - waited
        if left <= 0 or self._ending:
            return answers.ending() if self._ending else answers.no_worker(asked.model or "", wait,
                                                                           await self._why(model))
        keeper = self._keepers[model]
        if waited > 0 and not text.startswith(NOBODY) and keeper.wanted:
            return self._beside(model)
        await keeper.put_right(min(left, LOOK_EVERY))
        if text.startswith(NOBODY):
            await asyncio.sleep(min(left, AGAIN))
        return await self.pick(asked)

    def _tell(self, path: str) -> Answer | None:
        if path == "/health":
            return Answer(200, b'{"status":"ok"}')
        if path == "/v1/models":
            return answers.listing(self._rows())
        name = path.removeprefix("/v1/models/")
        return answers.single(self._rows(), unquote(name)) if name != path and name else None

    def _rows(self) -> list[Mapping[str, object]]:
        return [answers.model_row(name, group.model, self._spec.created, self._present.context.get(group.model))
                for group in self._spec.groups for name in group.names if self._bases[name] == group.model]

    async def _why(self, model: str) -> str:
        keeper = self._keepers[model]
        if keeper.wanted:
            return f"There are {len(keeper.wanted)}, but their vllm-router does not run; its log: {keeper.launch.log}"
        at, text = self._outlooks.get(model, (float("-inf"), ""))
        if time.monotonic() - at > 10:
            try:
                text = await asyncio.to_thread(self._config.outlook, model)
            except FlockError as error:
                text = f"What its jobs do can't be told: {error.what}"
            self._outlooks[model] = (time.monotonic(), text)
        return text

    def _next_worker(self, model: str) -> str | None:
        """The workers of a model by turns, for what goes beside vllm-router."""
        urls = sorted(self._keepers[model].wanted)
        return urls[next(self._turn) % len(urls)] if urls else None

    # --- its life -------------------------------------------------------------------------------
    async def start(self) -> str:
        """Listen; the base URL without /v1. Raises ConfigError where the port is taken."""
        check_installed()
        settings = self._config.settings
        try:
            self.port = await self.relay.start(settings.host, settings.port)
        except ConfigError as error:
            raise ConfigError(error.what, where=error.where,
                              todo="name another (--host, --port N; --port 0 for any free port)") from error
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._config.tls else 'http'}://{host}:{self.port}"

    async def run(self, url: str, stop: asyncio.Event) -> bool:
        """Until `stop` is set (False), or the fleet was made anew (True). Leaves nothing behind."""
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self.relay.close)
            for model in self._keepers:
                await self._open_bridge(stack, model)
            roster = await stack.enter_async_context(Roster(
                Watch(self._places, self._spec, self._config.job_alive, version=self._config.version),
                self._secrets, self._say))
            word = stack.enter_context(Word(self._places, self._spec, url))
            user = stack.enter_context(use(self._places, "router"))
            keepers = [asyncio.create_task(keeper.run()) for keeper in self._keepers.values()]
            stack.push_async_callback(_cancelled, keepers)
            anew = await self._watch(roster, user.beat, word.write, stop)
            await self._drain()
            return anew

    async def _open_bridge(self, stack: contextlib.AsyncExitStack, model: str) -> None:
        bridge = Bridge(client_context(self._secrets), lambda: self._next_worker(model))
        self._bridges[model] = await bridge.start()
        stack.push_async_callback(bridge.close)

    async def _watch(self, roster: Roster, beat: Callable[[], None], write: Callable[[], None],
                     stop: asyncio.Event) -> bool:
        beaten = time.monotonic()
        while not stop.is_set():
            self._present = await roster.look()
            for model, keeper in self._keepers.items():
                keeper.want(self._present.by_model.get(model, {}))
            if time.monotonic() - beaten >= self._spec.heartbeat:
                beaten = time.monotonic()
                await asyncio.to_thread(self._beat, beat, write)
            if await asyncio.to_thread(self._anew):
                return True
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), LOOK_EVERY)
        return False

    def _beat(self, *beats: Callable[[], None]) -> None:
        with contextlib.suppress(StorageError):  # the roster says that the folder is lost
            for beat in beats:
                beat()

    def _anew(self) -> bool:
        try:
            spec = read_spec(self._places)
        except FlockError:
            return False
        return spec is not None and spec.id != self._spec.id

    async def _drain(self) -> None:
        self._ending = True
        for keeper in self._keepers.values():
            keeper.close()
        if self.relay.in_flight:
            self._say(f"ending: {self.relay.in_flight} requests in flight have {DRAIN:.0f} s (again to end at once)")
        await self.relay.drain(DRAIN)


async def _cancelled(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
