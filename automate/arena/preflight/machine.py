"""The machine before a run: commands, write access, disk, and Slurm's word on a job.

Never submits a job."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from automate.arena.batches import Batch, Plan, batch_script
from automate.arena.preflight.findings import Finding, Run, error, from_error, passed, warning
from automate.arena.preflight.time_limit import time_findings
from automate.arena.running.runlog import read_runs
from automate.cluster.base import Cluster
from automate.cluster.commands import have
from automate.cluster.limits import limit_words
from automate.cluster.slurm import advice
from automate.errors import FlockError
from automate.names import baseline_tag
from automate.workspace import Workspace

BYTES_A_GAME = 25_000
"""Journal and rows of a game with a verdict of some 700 tokens."""


def machine_findings(workspace: Workspace, models: Sequence[str], games: int, cluster: Cluster | None, executor: str,
                     run: Run) -> list[Finding]:
    """What is to be said of commands, folders, disk and cluster before `games` games of `models`."""
    found = [*_commands(workspace, executor), *_folders(workspace)]
    if executor == "slurm" and "\\" in str(workspace.root):
        found.append(error("FH504", str(workspace.root), "Slurm can't write logs below a path with a backslash",
                           "give the folder another name"))
    status, out = run([sys.executable, "-c", "import automate"])
    if status != 0:
        last = out.strip().rpartition("\n")[2] or f"exit status {status}"
        found.append(error("FH502", sys.executable, f"a job can't import flock-hpc with it: {last}",
                           "install flock-hpc into that environment; a folder to run it from is not enough"))
    found += _disk(workspace, models, games)
    if executor == "slurm":
        found += time_findings(workspace.settings, workspace.root, read_runs(workspace.runs))
    if cluster and not {"sbatch", "bash"} & {finding.subject for finding in found}:
        found.append(_accepted(workspace, models[0] if models else "preflight", games, cluster))
    return found


def _commands(workspace: Workspace, executor: str) -> Iterator[Finding]:
    judge, around = workspace.settings.judge, workspace.settings.judge.environment
    for command in ("sbatch", "squeue") if executor == "slurm" else ("bash",):
        if not have(command):
            yield error("FH501", command, "no such command on this machine",
                        "run this on the login node, or use --executor local" if executor == "slurm" else "install it")
    if judge.kind != "vllm":
        return
    variables = {**workspace.settings.environment, **around.variables}
    first, set_up = (judge.server.command or [""])[0], bool(around.modules or around.setup)
    needed = "apptainer" if around.container else "conda" if around.conda else first
    there = shutil.which(needed, path=variables.get("PATH"))
    venv = workspace.root / around.venv if around.venv else None
    if venv and not os.access(venv / "bin" / "activate", os.R_OK):
        yield error("FH501", "judge.environment.venv", f"no bin/activate in {around.venv}", "write the full path of a "
                    "virtual environment, without ~")
    elif venv and not there and not os.access(venv / "bin" / first, os.X_OK):
        yield error("FH501", "judge.server.command", f"no '{first}' in {venv / 'bin'}", "install vLLM there")
    elif not venv and not there and not set_up:
        yield (error if executor == "local" else warning)(
            "FH501", "judge.environment", f"no command '{needed}' on PATH, which jobs get as it is here",
            "give judge.environment: modules, venv, conda or container")
    if around.container and "://" not in around.container and not os.access(workspace.root / around.container, os.R_OK):
        yield error("FH501", "judge.environment.container", f"no image {around.container}", "write its full path")


def nearest(folder: Path) -> Path:
    """A folder, or its nearest parent that is there."""
    return next(path for path in (folder, *folder.parents) if os.path.lexists(path))


def _folders(workspace: Workspace) -> Iterator[Finding]:
    folders = (workspace.scripts, workspace.configs, workspace.logs, workspace.judgments, workspace.state)
    for place in dict.fromkeys(nearest(folder) for folder in folders):
        try:
            with tempfile.NamedTemporaryFile(prefix=".flock-hpc-", dir=place) as file:
                file.write(b"written")
        except OSError as problem:
            yield error("FH504", str(place), f"can't be written: {problem.strerror or problem}",
                        "check its rights and your quota (df, quota)")


def _disk(workspace: Workspace, models: Iterable[str], games: int) -> Iterator[Finding]:
    tag, kept = baseline_tag(workspace.settings.baseline), 0
    with suppress(OSError):  # a folder that can't be read is FH504's
        for model in models:
            rows = workspace.rows_file(model, tag, workspace.default_baseline)
            files = (rows, *workspace.journal(model, tag).glob("*"))
            kept += sum(file.stat().st_size for file in files if file.is_file())
        places = {nearest(folder) for folder in (workspace.state, workspace.judgments)}
        yield from disk_findings(games, kept, {str(place): shutil.disk_usage(place).free for place in sorted(places)})


def disk_findings(games: int, kept: int, free: Mapping[str, int]) -> Iterator[Finding]:
    """Whether `free` bytes by folder are enough for games of which `kept` bytes are there already."""
    needed = max(0, games * BYTES_A_GAME - kept)
    for place, size in free.items():
        if size < 3 * needed:
            yield (error if size < needed else warning)(
                "FH505", place, f"{size / 1e6:,.0f} MB are free; {games} games take about {needed / 1e6:,.0f} MB more",
                "make room, or judge fewer models at a time")


def _accepted(workspace: Workspace, model: str, games: int, cluster: Cluster) -> Finding:
    plan = Plan("preflight", "preflight", baseline_tag(workspace.settings.baseline), (Batch(1, (model,), games),))
    try:
        with tempfile.TemporaryDirectory(prefix="flock-hpc-") as folder:
            script = Path(folder) / "preflight.sh"
            script.write_text(batch_script(workspace, plan, plan.batches[0], "", sys.executable), encoding="utf-8")
            words = cluster.check(script)
    except (FlockError, OSError) as problem:
        return from_error("FH503", cluster.kind, problem)
    if words is None:
        return passed("FH503", cluster.kind, "a job like these would be accepted")
    if cluster.kind == "slurm" and (limit := limit_words(words)):
        return passed("FH503", cluster.kind, f"a job like these would be accepted when there is room for it ({limit})")
    todo = advice(words) if cluster.kind == "slurm" else "mend the job's template"
    return error("FH503", cluster.kind, f"a job would be refused: {words}", todo)
