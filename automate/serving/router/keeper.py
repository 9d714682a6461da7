"""Keeps one model's vllm-router: started with its first worker, put right each second, restarted when it dies.

Never knows a key; what workers there are is told to it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping

from automate.errors import FlockError, ServerError
from automate.serving.router.process import RouterLaunch, RouterProcess, changes

Say = Callable[[str], None]
LOOK_EVERY = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0
STEADY = 60.0
"""Seconds after which a process that lives is taken to be well, and the next pause is short again."""
QUIET, FEW = 60.0, 3
"""Seconds in which a disturbance is said once, and of how many kinds."""
MISSES = 5
"""Looks in a row without an answer after which a process that lives is started anew."""


class Disturbances:
    """Says what somebody else did: each kind of it once a minute at most, with how often it came meanwhile."""

    def __init__(self, say: Say, clock: Callable[[], float]) -> None:
        self._say, self._clock = say, clock
        self._said: dict[str, float] = {}
        self._more = 0

    def note(self, text: str) -> None:
        """It came (again)."""
        now = self._clock()
        self._said = {one: at for one, at in self._said.items() if now - at < QUIET}
        if text in self._said or len(self._said) >= FEW:
            self._more += 1
            return
        self._said[text] = now
        self._say(text + (f" ({self._more} more such disturbances before)" if self._more else ""))
        self._more = 0


class Keeper:
    """One model's vllm-router. `want(workers)` says which there are; `port()` waits for a process that serves."""

    def __init__(self, launch: RouterLaunch, say: Say, clock: Callable[[], float] = time.monotonic) -> None:
        self.launch = launch
        self.starts = 0
        self._say = say
        self._clock = clock
        self._wanted: Mapping[str, str] = {}
        self._had: set[str] = set()
        self._process: RouterProcess | None = None
        self._up = asyncio.Event()
        self._wake = asyncio.Event()
        self._closing = False
        self._pause = FIRST_PAUSE
        self._began = 0.0
        self._misses = 0
        self._turns = asyncio.Condition()
        self._turn_number, self._turning = 0, False
        self._disturbed = Disturbances(self._tell, clock)

    @property
    def port(self) -> int | None:
        """The port of a process that serves now; None where there is none."""
        process = self._process
        return process.port if process is not None and self._up.is_set() and process.status is None else None

    @property
    def wanted(self) -> Mapping[str, str]:
        """The workers that are to be used: name by URL."""
        return self._wanted

    def want(self, workers: Mapping[str, str]) -> None:
        """Use these workers (name by URL) from now on."""
        if set(workers) != set(self._wanted):
            self._wake.set()
        self._wanted = dict(workers)

    def close(self) -> None:
        """Nobody waits for a process any more."""
        self._closing = True

    async def ready(self, seconds: float) -> int | None:
        """The port, as soon as there is a process that serves; None after `seconds` without, or once it is closed."""
        deadline = self._clock() + seconds
        while self.port is None:
            left = deadline - self._clock()
            if left <= 0 or self._closing:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._up.wait(), min(left, LOOK_EVERY))
            if self.port is None:
                await asyncio.sleep(min(0.05, left))
        return self.port

    async def put_right(self, seconds: float) -> None:
        """Look at its workers now, not at the next second; back once they are put right, at most `seconds` later."""
        needed = self._turn_number + (2 if self._turning else 1)  # one that begins from now on
        self._wake.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds), self._turns:
                await self._turns.wait_for(lambda: self._turn_number >= needed or self._closing)

    async def run(self) -> None:
        """Until it is cancelled; then the process is ended."""
        try:
            while True:
                try:
                    self._turning = True
                    await self._turn()
                except FlockError as error:
                    self._tell(f"{error.what}")
                await self._turned()
                await self._rest(LOOK_EVERY)
        finally:
            await self._end()

    async def _turned(self) -> None:
        self._turn_number, self._turning = self._turn_number + 1, False
        async with self._turns:
            self._turns.notify_all()

    async def _rest(self, seconds: float) -> None:
        """Wait for a change of the workers, the process's end, or some seconds."""
        waits = {asyncio.ensure_future(self._wake.wait())}
        if self._process is not None:
            waits.add(asyncio.ensure_future(self._process.wait()))  # type: ignore[arg-type]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self._wake.clear()

    async def _turn(self) -> None:
        process = self._process
        if process is not None and process.status is not None:
            await self._died(process.status)
        elif process is not None and not self._wanted:
            self._tell("stopped, no worker is left")
            await self._end()
        elif process is not None:
            await self._put_right(process)
        elif self._wanted:
            await self._start()

    async def _died(self, status: int) -> None:
        if self._clock() - self._began > STEADY:
            self._pause = FIRST_PAUSE
        await self._end()
        self._tell(f"vllm-router ended with status {status}; again in {self._pause:g} s "
                  f"(log: {self.launch.log})")
        await self._back_off()

    async def _back_off(self) -> None:
        await asyncio.sleep(self._pause)
        self._pause = min(self._pause * 2, LONGEST_PAUSE)

    async def _start(self) -> None:
        wanted = dict(self._wanted)
        try:
            self._process = await RouterProcess.start(self.launch, sorted(wanted))
        except ServerError as error:
            self._tell(f"{error.what}; again in {self._pause:g} s (log: {self.launch.log})")
            await self._back_off()
            return
        self.starts += 1
        self._began, self._misses = self._clock(), 0
        again = "started again" if self.starts > 1 else "started"
        self._tell(f"{again} with {', '.join(sorted(wanted.values()))}")
        self._had = set(wanted)
        self._up.set()

    async def _put_right(self, process: RouterProcess) -> None:
        """Make its list of workers what the registry says, and say what somebody else changed in it."""
        wanted = dict(self._wanted)
        try:
            found = await process.workers()
            self._misses = 0
        except ServerError:
            self._misses += 1
            if self._misses >= MISSES and process.status is None:
                self._tell("vllm-router lives but does not answer; it is started anew")
                await self._end()
            return
        add, remove = changes(wanted, found)
        for url in remove:
            await process.remove(url)
            if url in self._had:
                self._had.discard(url)
                self._tell(f"a worker left: {url}")
            else:
                self._disturbed.note(f"removed {url}, which somebody else had added")
        for url in add:
            await self._add(process, url, wanted[url])

    async def _add(self, process: RouterProcess, url: str, name: str) -> None:
        before = url in self._had
        try:
            await process.add(url)
        except ServerError as error:
            if process.status is None:
                self._tell(f"worker {name} can't be added yet: {error.what}")
            return
        self._had.add(url)
        if before:
            self._disturbed.note(f"worker {name} was removed by somebody else, and added again")
        else:
            self._tell(f"worker {name} joined")

    def _tell(self, text: str) -> None:
        self._say(f"router of {self.launch.model}: {text}")

    async def _end(self) -> None:
        self._up.clear()
        process, self._process = self._process, None
        if process is not None:
            await process.end()
