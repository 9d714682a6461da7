"""Where a batch's requests go: the launch of a job's own server, or somebody else's address and its limits.

Never prints or stores a key."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from aiolimiter import AsyncLimiter

from automate.arena.games import Game, Match
from automate.arena.hearing import CONCLUDE, CONCLUDE_TAIL, CONCLUDE_TOKENS, THINKER_TOKENS
from automate.arena.judge import Admit
from automate.arena.ledger import ModelLedger
from automate.arena.running.job_config import JobConfig
from automate.arena.running.runlog import own_job_id, own_node, read_runs
from automate.errors import ConfigError
from automate.journal import Record, read_journal
from automate.serving.client import Address, JudgeClient
from automate.serving.server import Launch
from automate.settings import Judge
from automate.workspace import Workspace


def launch_of(config: JobConfig, script: Path, environment: Mapping[str, str] | None = None,
              model: str | None = None) -> Launch:
    """How this batch's server is started: by the batch's own script, with `environment` besides its own.

    `model` is the name that it serves; none: the judge's.

    A node on which servers died of its own fault before gets fewer tries.
    """
    judge = config.settings.judge
    job = own_job_id() or f"pid{os.getpid()}"
    transport = "tcp" if judge.engine == "upstream" else judge.server.transport
    return Launch(
        command=["bash", str(script), "serve"], model=model or judge.name, transport=transport,
        log=config.server_log(job), who=config.words.server, settings=config.words.command,
        load_timeout=judge.server.load_timeout, stop_timeout=judge.server.stop_timeout,
        restarts=judge.server.restarts, request_timeout=judge.request_timeout, environment=environment,
        node_faults=max(1, config.settings.limits.bad_node_deaths - faults_here(config)),
    )


def faults_here(config: JobConfig) -> int:
    """How many servers of this workspace died of this node's fault in earlier starts."""
    node = own_node()
    return sum(1 for run in read_runs(config.workspace.runs) for death in run.get("deaths") or ()
               if death.get("node_fault") and death.get("node") == node)


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
        own = secrets / str(os.getuid()) / judge.api_key_env
        return (own if own.exists() else secrets / judge.api_key_env).read_text(encoding="utf-8").strip()
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


BYTES_PER_TOKEN = 2.5
"""Fewer bytes than a token of prompt has on average, so that a reservation is no less than what is paid."""


class Budget:
    """Money spent on a paid judge, by the usage in the records, against the cap.

    A game is asked only when its price at most, and that of all games in flight, still fits under the cap.
    """

    def __init__(self, judge: Judge) -> None:
        self.cap = judge.max_cost
        self.spent = 0.0
        self._input = judge.price.input_per_million / 1e6
        self._output = judge.price.output_per_million / 1e6
        self._max_tokens = judge.max_tokens
        self._reserved: dict[str, float] = {}
        self._thinks = False
        self._freed = asyncio.Event()
        self.exhausted = False

    @classmethod
    def of(cls, workspace: Workspace) -> Budget:
        """The budget of a workspace's judge, less what it has cost so far."""
        budget = cls(workspace.settings.judge)
        if budget.cap is not None:
            for baseline in workspace.journal_baselines():
                for folder in workspace.journal("x", baseline).parent.iterdir():
                    for _, record in read_journal(folder).records:
                        budget.spend(record)
        return budget

    def spend(self, record: Record) -> None:
        """Count a record's usage in place of what was reserved for its game."""
        usage = record.get("usage") or (0, 0)
        self._thinks = self._thinks or bool(record.get("reasoning"))
        self.spent += usage[0] * self._input + usage[1] * self._output
        self._reserved.pop(str(record.get("key")), None)
        self._freed.set()

    async def admit(self, key: str, prompt_bytes: int) -> bool:
        """Reserve what a game costs at most; waits for games in flight. False: the cap leaves no room for it."""
        if self.cap is None:
            return True
        again = prompt_bytes + CONCLUDE_TAIL + len(CONCLUDE)  # a game without a label is asked for it once more
        tokens = self._max_tokens + (min(self._max_tokens, THINKER_TOKENS) if self._thinks else CONCLUDE_TOKENS)
        price = (prompt_bytes + again) / BYTES_PER_TOKEN * self._input + tokens * self._output
        while self.spent + sum(self._reserved.values()) + price > self.cap:
            if not self._reserved:
                self.exhausted = True
                return False
            self._freed.clear()
            await self._freed.wait()
        self._reserved[key] = price
        return True


def admission(budget: Budget, match: Match, ledgers: Mapping[str, ModelLedger]) -> Admit | None:
    """The gate that keeps a paid judge under its cap; none where there is no cap."""
    if budget.cap is None:
        return None
    questions = {question.uid: question for question in match.questions}

    async def admit(game: Game) -> bool:
        texts = match.texts(ledgers[game.model].answers, questions[game.uid])
        fixed = len(match.prompts.template) + len(match.prompts.system.get(game.category, ""))
        return await budget.admit(game.key, fixed + sum(len(text.encode()) for text in texts))

    return admit
