"""judge.engine upstream: the checkout's own gen_judgment.py plays the batch against the job's own server.

Never writes a judgment itself; it renders the endpoint file and watches both processes."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import yaml

from automate.arena.context import baseline_map
from automate.arena.ledger import ModelLedger
from automate.arena.prompts import read_judge_settings
from automate.arena.records import load
from automate.arena.running.job_config import JobConfig
from automate.arena.running.loading import Prepared
from automate.arena.running.serve import launch_of
from automate.errors import ConfigError, FlockError
from automate.journal import fresh_name
from automate.names import baseline_tag
from automate.serving.server import JudgeServer
from automate.workspace import Workspace

Say = Callable[[str], None]


def upstream_problems(workspace: Workspace, categories: set[str]) -> list[str]:
    """Why upstream's program can't play this campaign; an empty list where it can."""
    settings = workspace.settings
    if not workspace.gen_judgment.is_file():
        return [f"{workspace.gen_judgment}: no gen_judgment.py in the checkout"]
    if not workspace.judge_utils.is_file():
        return [f"{workspace.judge_utils}: not found; upstream's program needs it"]
    theirs = read_judge_settings(workspace.judge_utils)
    wanted = baseline_map(settings.baseline)
    problems = []
    for category in sorted(categories):
        ours, fixed = wanted.get(category, wanted.get("*")), theirs.get(category, {}).get("baseline")
        if ours != fixed:
            problems.append(f"baseline of {category}: '{ours}' is wanted, but upstream's judge_utils.py has '{fixed}'")
    if baseline_tag(settings.baseline) != workspace.default_baseline:
        problems.append("upstream's program writes one file for all baselines; --baseline needs judge.engine: builtin")
    return problems


def endpoint_file(workspace: Workspace, base_url: str, key: str) -> dict[str, object]:
    """Upstream's endpoint entry of the judge, pointing at this job's server."""
    judge = workspace.settings.judge
    parallel = 32 if judge.concurrency == "auto" else judge.concurrency
    return {judge.name: {
        "model": judge.name, "endpoints": [{"api_base": f"{base_url}/v1", "api_key": key}], "api_type": "openai",
        "parallel": parallel, "max_tokens": judge.max_tokens, "temperature": judge.temperature,
    }}


def python_of(workspace: Workspace) -> str:
    """The interpreter for upstream's program: of judge.environment.venv where one is given."""
    venv = workspace.settings.judge.environment.venv
    return str(Path(venv).expanduser() / "bin" / "python") if venv else "python3"


async def play_upstream(config: JobConfig, script: Path, ledgers: Mapping[str, ModelLedger], say: Say,
                        stopped: Callable[[], bool]) -> tuple[int, int]:
    """Run upstream's program on the batch's YAML until it or the job ends; its status, and games still due."""
    workspace = config.workspace
    categories = {game.category for ledger in ledgers.values() for game in ledger.games}
    problems = upstream_problems(workspace, categories)
    if config.limit_questions:
        problems.append("--limit-questions can't be told to upstream's program")
    if problems:
        raise ConfigError("judge.engine upstream can't play this batch: " + "; ".join(problems),
                          where=str(workspace.settings_file), todo="set judge.engine: builtin, or mend the above")
    for ledger in ledgers.values():
        ledger.close()
    async with JudgeServer(launch_of(config, script, Prepared().environment), say) as server:
        client = await server.client()
        entry = endpoint_file(workspace, client.address.base_url, server.key or "none")
        status = await _run(config, entry, server, say, stopped)
    say(f"upstream's gen_judgment.py ended with status {status}")
    return status, _take_over(workspace, ledgers, say)


async def _run(config: JobConfig, entry: Mapping[str, object], server: JudgeServer, say: Say,
               stopped: Callable[[], bool]) -> int:
    workspace = config.workspace
    with tempfile.TemporaryDirectory(prefix="fhpc-endpoint-") as folder:
        endpoints = Path(folder) / "api_config.yaml"
        fd = os.open(endpoints, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(fd, "w") as file:
            yaml.safe_dump(dict(entry), file)
        process = await asyncio.create_subprocess_exec(
            python_of(workspace), str(workspace.gen_judgment), "--setting-file", str(config.path),
            "--endpoint-file", str(endpoints), cwd=workspace.arena_hard, stdin=asyncio.subprocess.DEVNULL)
        waiter = asyncio.create_task(process.wait())
        try:
            while not waiter.done() and not stopped():
                await asyncio.wait({waiter}, timeout=2)
                await server.client()  # raises when the server is given up
        except FlockError as error:
            say(str(error))
        finally:
            if process.returncode is None:
                process.terminate()
            await waiter
    return process.returncode if process.returncode is not None else 1


def _take_over(workspace: Workspace, ledgers: Mapping[str, ModelLedger], say: Say) -> int:
    """Take upstream's new rows into the journal, where they are as safe as our own; how many games are still due."""
    due = 0
    for model, ledger in ledgers.items():
        loaded = load(workspace, ledger.answers, ledger.match, ledger.tag)
        say(f"{model}: {len(loaded.fresh_imports)} games by upstream's program, {loaded.nulls} nulls")
        ledger.open(fresh_name("upstream"))
        due += len(ledger.due())
    if due:
        say(f"{due} games are still due")
    return due
