"""Before a job's server starts: measure the weights' disk, and stage them to this node where that pays.

Never starts a server, and never fails a job: the worst is that the original is loaded."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from automate.arena.context import judge_path
from automate.arena.running.job_config import JobConfig
from automate.arena.running.runlog import own_node, read_runs
from automate.arena.weights import fingerprint, read_model_folder
from automate.cluster.queue import job_alive
from automate.errors import FlockError
from automate.journal import read_json
from automate.serving.loading import MEMORY, SHARED, disk_rate, filesystem_of, kind_of, largest_file
from automate.serving.staging import Node, Say, Staged, stage
from automate.serving.staging_folder import NotStaged, check_folder, copy_there, expand, pays
from automate.workspace import Workspace

PATH_VARIABLE = "FLOCK_HPC_JUDGE_PATH"
"""Where a job's script finds the judge in place of judge.path."""
_UNBINDABLE = frozenset(":,\\")


@dataclass(frozen=True)
class Prepared:
    """What the server's start needs: `environment` for it, and `facts` for each entry of the run record's `load`.

    The environment always has the variable, so that one from outside of the job can't choose other weights.

    facts: weights (bytes), filesystem and disk_rate (bytes/s; absent where not measured) of the place that is loaded
    from, staged; where it was staged also source_filesystem, source_rate, copied (bytes) and staging_seconds.
    """

    environment: Mapping[str, str] = field(default_factory=lambda: {PATH_VARIABLE: ""})
    facts: Mapping[str, object] = field(default_factory=dict)


def loads_expected(batches: int, at_once: int | None, loaded_here: int) -> int:
    """How often this node may load the judge: loads that it has seen, and its share of the batches that are left.

    `at_once`: how many batches run side by side, each on a node of its own at worst; None: all of them.
    """
    return loaded_here + max(1, math.ceil(batches / max(1, min(at_once or batches, batches))) if batches else 1)


def prepare_weights(config: JobConfig, say: Say, stop: Callable[[], bool]) -> Prepared:
    """Measure, decide, stage. Blocks for as long as copying takes: call it in a thread. Raises nothing of its own."""
    return prepare_judge(config.workspace, lambda: loads_expected(
        *_plan_size(config), _loaded_here(config, read_runs(config.workspace.runs))), say, stop)


def prepare_judge(workspace: Workspace, loads: Callable[[], int], say: Say, stop: Callable[[], bool]) -> Prepared:
    """As `prepare_weights`, outside of a batch. `loads`: how often this node may load the judge from now on."""
    try:
        folder = judge_path(workspace.settings, workspace.root)
        if workspace.settings.judge.kind != "vllm" or folder is None:
            return Prepared()
        return _prepare(workspace, folder, loads, say, stop)
    except (OSError, FlockError, ValueError, ArithmeticError) as error:
        say(f"weights: not looked at: {error}")
        return Prepared()


def _prepare(workspace: Workspace, source: Path, loads: Callable[[], int], say: Say,
             stop: Callable[[], bool]) -> Prepared:
    rate = disk_rate(source)
    filesystem = filesystem_of(largest_file(source) or source)
    told = f"{rate / 1e9:.2f} GB/s" if rate else "unknown"
    say(f"weights: {source} on {filesystem}, disk rate {told}")
    facts: dict[str, object] = {"weights": _weights(source), "filesystem": filesystem, "staged": False}
    if rate:
        facts["disk_rate"] = round(rate)
    staged = None if stop() else _staged(workspace, source, rate, loads, say, stop)
    if staged is None:
        return Prepared(facts=facts)
    facts |= {"filesystem": filesystem_of(staged.path), "staged": True, "source_filesystem": filesystem,
              "copied": staged.copied_bytes, "staging_seconds": round(staged.seconds, 3)}
    facts["source_rate"] = facts.pop("disk_rate", None)
    return Prepared({PATH_VARIABLE: str(staged.path)}, facts)


def _weights(source: Path) -> int | None:
    try:
        return read_model_folder(source).weight_bytes
    except (OSError, ValueError, ArithmeticError):
        return None


def _staged(workspace: Workspace, source: Path, rate: float | None, loads: Callable[[], int], say: Say,
            stop: Callable[[], bool]) -> Staged | None:
    judge = workspace.settings.judge
    if judge.staging.folder is None or judge.staging.when == "never":
        return None
    try:
        folder = expand(judge.staging.folder, os.environ)
        real = check_folder(folder)
        if judge.environment.container and _UNBINDABLE & set(str(real)):
            raise NotStaged(f"a container can't be given the folder {real}: ':', ',' or '\\' in its name")
    except NotStaged as problem:
        say(f"weights not staged: {problem.what}; the judge is loaded from {source}")
        return None
    print_ = fingerprint(source)
    good, why = pays(judge.staging, rate=rate, loads=loads(), there=copy_there(real, print_),
                     filesystem=_unfit(filesystem_of(real)))
    say(f"weights: {'to be staged' if good else 'not staged'}: {why}")
    if not good:
        return None
    return stage(source, str(real), print_, say, stop, verify=lambda path: fingerprint(path) == print_,
                 node=Node(job_alive=job_alive))


def _unfit(filesystem: str) -> str:
    """Why a staging folder's file system is no node-local disk, or ""."""
    kind = kind_of(filesystem)
    if kind in MEMORY:
        return f"judge.staging.folder is memory ({filesystem}), which counts against slurm.mem"
    return f"judge.staging.folder is on a file system of many nodes ({filesystem})" if kind in SHARED else ""


def _plan_size(config: JobConfig) -> tuple[int, int | None]:
    """Batches of this job's plan, and how many of them run at once."""
    plan = read_json(config.workspace.plans / f"{config.plan}.json") or {}
    batches = plan.get("batches")
    return len(batches) if isinstance(batches, list) else 1, config.settings.limits.max_parallel


def _loaded_here(config: JobConfig, runs: Iterable[Mapping[str, Any]]) -> int:
    """Starts of this judge on this node that got a server ready, by their records."""
    node, judge = own_node(), config.settings.judge.name
    return sum(run.get("node") == node and run.get("judge") == judge and bool(run.get("load")) for run in runs)
