"""Where a batch's requests go: the launch of a job's own server, or somebody else's address and its limits.

Never prints or stores a key."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from aiolimiter import AsyncLimiter

from automate.arena.job_config import JobConfig
from automate.arena.runlog import own_job_id
from automate.errors import ConfigError
from automate.journal import Record, read_journal
from automate.serving.client import Address, JudgeClient
from automate.serving.server import Launch
from automate.settings import Judge
from automate.workspace import Workspace


def launch_of(config: JobConfig, script: Path) -> Launch:
    """How this batch's judge server is started: by the batch's own script."""
    judge = config.settings.judge
    job = own_job_id() or f"pid{os.getpid()}"
    transport = "tcp" if judge.engine == "upstream" else judge.server.transport
    return Launch(
        command=["bash", str(script), "serve"], model=judge.name, transport=transport,
        log=config.workspace.logs / f"judge-batch-{config.batch}_{job}_{config.plan}.server.log",
        load_timeout=judge.server.load_timeout, stop_timeout=judge.server.stop_timeout,
        restarts=judge.server.restarts, request_timeout=judge.request_timeout,
    )


def pace_of(requests_per_minute: float | None) -> Callable[[], Awaitable[None]] | None:
    """A rate limit over all requests of this job, or None."""
    if requests_per_minute is None:
        return None
    limiter = AsyncLimiter(max(1.0, requests_per_minute / 60), 60 * max(1.0, requests_per_minute / 60)
                           / requests_per_minute)

    async def wait() -> None:
        await limiter.acquire()

    return wait


def api_key(judge: Judge, secrets: Path) -> str | None:
    """The key of a paid judge: from the variable that the settings name, else from the file kept at submission."""
    if judge.api_key_env is None:
        return None
    key = os.environ.get(judge.api_key_env)
    if key:
        return key
    try:
        return (secrets / judge.api_key_env).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ConfigError(f"the variable {judge.api_key_env} is not set, and no key was kept at submission",
                          where="judge.api_key_env",
                          todo=f"export {judge.api_key_env} and submit again") from error


class Remote:
    """A judge that somebody else serves. Async context manager; fits the engine's `Serving`."""

    def __init__(self, workspace: Workspace) -> None:
        judge = workspace.settings.judge
        self.context = judge.context
        self._client = JudgeClient(
            Address.of_api(judge.base_url or ""), judge.model or judge.name, timeout=judge.request_timeout,
            key=api_key(judge, workspace.secrets), proxies=True)

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None,
                        trace: TracebackType | None) -> None:
        await self._client.close()

    async def client(self) -> JudgeClient:
        """The client; others' servers are always taken to be there."""
        return self._client

    def suspect(self) -> None:
        """Nothing to look at: the server is not ours."""


@dataclass
class Budget:
    """Money spent on a paid judge, by the usage in the records, against the cap."""

    spent: float
    cap: float | None
    input_price: float
    output_price: float

    @classmethod
    def of(cls, workspace: Workspace) -> Budget:
        """What this judge has cost this workspace so far."""
        judge = workspace.settings.judge
        budget = cls(0.0, judge.max_cost, judge.price.input_per_million / 1e6, judge.price.output_per_million / 1e6)
        if budget.cap is not None:
            for baseline in workspace.journal_baselines():
                for folder in workspace.journal("x", baseline).parent.iterdir():
                    for _, record in read_journal(folder).records:
                        budget.spend(record)
        return budget

    @property
    def exhausted(self) -> bool:
        return self.cap is not None and self.spent >= self.cap

    def spend(self, record: Record) -> bool:
        """Count a record's usage; True when the cap is reached."""
        usage = record.get("usage") or (0, 0)
        self.spent += usage[0] * self.input_price + usage[1] * self.output_price
        return self.exhausted
