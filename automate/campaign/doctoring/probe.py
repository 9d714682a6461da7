"""The doctor inside its job: what a batch would find on this compute node, written down check by check.

Plays nothing; what is still being checked when the job ends is named in its file."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from automate.arena.preflight.findings import Run, run_command
from automate.arena.running.runlog import own_job_id, own_node
from automate.campaign.doctoring.checks import (
    Check,
    Checks,
    Mark,
    attempt,
    clock,
    folders,
    judge_folder,
    ok,
    size,
    sockets,
)
from automate.cluster import own_job
from automate.cluster.slurm import SlurmCluster
from automate.durations import in_words
from automate.errors import ConfigError
from automate.fleets import address
from automate.journal import write_json
from automate.serving.gpus import Gpu, read_gpus
from automate.serving.server import PROBE, JudgeServer, Launch
from automate.settings import Judge, Settings
from automate.workspace import Workspace

READ_BYTES, READ_SECONDS = 256 << 20, 8.0
FIND = 'p=$(command -v "$0") || exit 127; echo "$p"; head -c 300 "$p" | head -n 1'
IMPORT = """
import json, vllm
found = {"vllm": vllm.__version__}
try:
    import torch
    found.update(torch=torch.__version__, cuda=torch.version.cuda, gpus=torch.cuda.device_count())
except Exception as error:
    found["problem"] = str(error)
print(json.dumps(found))
"""


def probe(workspace: Workspace, result: Path, script: Path, run: Run = run_command) -> None:
    """Make every check and keep what was found in `result`, after each of them."""
    kept: dict[str, Any] = {"started": time.time(), "job": own_job_id(), "node": own_node(),
                            "host": socket.gethostname(), "finished": False, "checks": []}
    for name, check in steps(workspace, result, script, run).items():
        write_json(result, {**kept, "now": name})
        kept["checks"] += [line.as_json() for line in attempt(name, check)]
    write_json(result, {**kept, "finished": True, "ended": time.time()})
    cache = os.environ.get("FLOCK_HPC_CACHE", "")
    if Path(cache).name.startswith("flock-hpc-"):
        shutil.rmtree(cache, ignore_errors=True)


def steps(workspace: Workspace, result: Path, script: Path, run: Run) -> dict[str, Callable[[], Checks]]:
    """The checks by name, the slowest last: the job has two minutes."""
    settings = workspace.settings
    return {
        "node": lambda: node(os.environ),
        "folders": lambda: folders(workspace),
        "clock": lambda: clock(workspace),
        "checkout": lambda: checkout(workspace),
        "offline": lambda: offline(os.environ),
        "sockets": sockets,
        "fleet's address": lambda: fleet_address(settings, os.environ),
        "GPUs": lambda: gpus(settings, asyncio.run(read_gpus()), driver(run)),
        "Slurm from the node": lambda: scheduler(os.environ, script),
        "rehearsal judge": lambda: asyncio.run(request(settings.judge, result.with_suffix(".server.log"))),
        "judge's folder": lambda: [*judge_folder(settings.judge, workspace.root),
                                   *disk(settings.judge, workspace.root)],
        "vLLM": lambda: engine(settings, script, run),
    }


def node(environ: Mapping[str, str]) -> Iterator[Check]:
    """Where this runs, and the interpreter that runs it."""
    yield ok("node", f"{own_node(environ)} ({socket.gethostname()}), job {own_job_id(environ) or 'none'}")
    yield ok("jobs' Python", f"{sys.executable} runs there")


def checkout(workspace: Workspace) -> Iterator[Check]:
    """Whether the questions and the answers can be read from here."""
    for subject, path in (("questions", workspace.questions), ("answers", workspace.answers)):
        if os.access(path, os.R_OK):
            yield ok(subject, f"{path} can be read")
        else:
            yield Check(Mark.ERROR, subject, f"{path} can't be read from the node",
                        "put the Arena-Hard checkout where compute nodes see it (arena_hard)")


def offline(environ: Mapping[str, str]) -> Iterator[Check]:
    """Whether the hub's client is told to stay off the network."""
    if environ.get("HF_HUB_OFFLINE") == "1":
        yield ok("offline", "HF_HUB_OFFLINE=1 is set")
    else:
        yield Check(Mark.WARNING, "offline", f"HF_HUB_OFFLINE is {environ.get('HF_HUB_OFFLINE') or 'not set'}",
                    "take it out of the settings' environment and the workspace's templates")


def fleet_address(settings: Settings, environ: Mapping[str, str], machine: address.Machine = address.THIS) -> Checks:
    """At which address of this node a fleet's server would listen, and whether another node could reach it."""
    try:
        place = address.choose(settings.fleet.address, environ, machine)
    except ConfigError as error:
        yield Check(Mark.WARNING, "fleet's address", error.what, error.todo or "")
        return
    if ipaddress.ip_address(place.bind).is_loopback and "SLURM_JOB_ID" in environ:
        yield Check(Mark.WARNING, "fleet's address", f"'{settings.fleet.address}' is {place.bind} on this node: no "
                    "other node reaches a server there", "name the network interface of the nodes in fleet.address")
    else:
        yield ok("fleet's address", f"a fleet's server would listen at {place.host}")


def driver(run: Run) -> str | None:
    """The GPU driver's version, or None where nvidia-smi doesn't answer."""
    status, out = run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"])
    return out.strip().split("\n")[0] if status == 0 and out.strip() else None


def gpus(settings: Settings, found: list[Gpu], version: str | None) -> Iterator[Check]:
    """The job's GPUs against those that the settings ask for."""
    wanted = settings.slurm.gpus if settings.slurm.gres is None else None
    if settings.judge.kind != "vllm":
        yield Check(Mark.NOTE, "GPUs", f"judge.kind is {settings.judge.kind}: no GPU is asked for")
        return
    if not found:
        yield Check(Mark.UNKNOWN, "GPUs", "no nvidia-smi answers on the node", "check slurm.partition, slurm.gpus and "
                    "slurm.gres; on other makes of GPU this can't be looked at")
        return
    shown = "; ".join(f"{gpu.index}: {gpu.name}, {(gpu.memory_total_mb or 0) / 1024:.0f} GiB" for gpu in found)
    what = f"{shown}; driver {version or 'unknown'}"
    used = [gpu for gpu in found if (gpu.memory_used_mb or 0) > 2048]
    if wanted is not None and len(found) < wanted:
        yield Check(Mark.ERROR, "GPUs", f"{len(found)} instead of {wanted}: {what}", "check slurm.gpus and slurm.gres")
    elif used:
        yield Check(Mark.WARNING, "GPUs", f"{what}; {used[0].memory_used_mb} MiB of GPU {used[0].index} are taken by "
                    "somebody else", "tell your administrators, or leave the node out: slurm.exclude")
    else:
        yield ok("GPUs", what)
    memory = min((gpu.memory_total_mb or 0) for gpu in found) / 1024
    if settings.gpu.memory_gb is None and memory:
        yield Check(Mark.NOTE, "gpu.memory_gb", "is not given", f"set gpu.memory_gb: {memory:.0f}, so that preflight "
                    "can say whether the judge fits")


def scheduler(environ: Mapping[str, str], script: Path) -> Iterator[Check]:
    """Whether jobs can hand themselves in again from here: at a time limit, after preemption, as a refill."""
    if environ.get("FLOCK_HPC_JOB") or not environ.get("SLURM_JOB_ID"):
        yield Check(Mark.NOTE, "requeue", "run by the local executor, which requeues by itself")
        return
    missing = [command for command in ("scontrol", "sbatch") if shutil.which(command) is None]
    by_hand = "jobs can't go on by themselves after a time limit: use 'flock-hpc judge --submit --wait'"
    if missing:
        yield Check(Mark.WARNING, "Slurm from the node", f"no {' and no '.join(missing)} there", by_hand)
        return
    words = SlurmCluster().check(script)
    if words is None:
        yield ok("sbatch from the node", "a job may hand in another one")
    else:
        yield Check(Mark.WARNING, "sbatch from the node", f"refused: {words}", by_hand)
    mine = own_job.ask(environ)
    if mine is None or mine.requeue is None:
        yield Check(Mark.UNKNOWN, "requeue", "scontrol doesn't say whether this job may be requeued", by_hand)
    elif mine.requeue:
        yield ok("requeue", "allowed (Requeue=1)")
    else:
        yield Check(Mark.WARNING, "requeue", "the site forbids it (Requeue=0)",
                    "slurm.options: {requeue: true}, if the site lets you; else a successor job is handed in")


async def request(judge: Judge, log: Path) -> list[Check]:
    """Start the rehearsal judge as a batch starts its own, ask it once, end it."""
    name, said = "doctor-rehearsal", list[str]()
    launch = Launch([sys.executable, "-m", "automate.serving.rehearsal", "--model", name], name,
                    judge.server.transport, log, load_timeout=30, stop_timeout=5, restarts=0, request_timeout=30)
    began = time.monotonic()
    async with JudgeServer(launch, said.append) as server:
        client = await server.client()
        await client.chat(PROBE, max_tokens=16, temperature=0.0, timeout=30)
    return [ok("a request", f"the rehearsal judge answered at {client.address} in {time.monotonic() - began:.1f} s")]


def disk(judge: Judge, root: Path) -> Iterator[Check]:
    """How fast the judge's weights are read from here."""
    path = root / Path(judge.path or "").expanduser()
    if judge.kind != "vllm" or judge.path is None or not path.is_dir():
        return
    weights = [file for file in path.iterdir() if file.is_file()]
    file = max(weights, key=lambda one: one.stat().st_size, default=None)
    if file is None:
        return
    done, seconds = read_some(file)
    total = sum(one.stat().st_size for one in weights)
    rate = done / max(seconds, 1e-6)
    what = f"{size(rate)}/s ({size(done)} read): {size(total)} take about {in_words(total / max(rate, 1))}"
    if done >= 1 << 20 and rate < 200e6:
        yield Check(Mark.WARNING, "disk rate", what, "move the judge to a faster file system, or set "
                    "judge.staging.folder to a disk of the node")
    else:
        yield ok("disk rate", what)


def read_some(file: Path) -> tuple[int, float]:
    """Bytes read from the middle of a file, not from this machine's memory if that can be helped, and seconds."""
    done, began = 0, time.monotonic()
    with file.open("rb", buffering=0) as data:
        os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        data.seek(max(0, file.stat().st_size // 2 - READ_BYTES // 2))
        while done < READ_BYTES and time.monotonic() - began < READ_SECONDS and (part := data.read(4 << 20)):
            done += len(part)
    return done, time.monotonic() - began


def engine(settings: Settings, script: Path, run: Run) -> Iterator[Check]:
    """Whether the server's command is found and vLLM can be imported, in the environment of a batch's server."""
    if settings.judge.kind != "vllm":
        yield Check(Mark.NOTE, "vLLM", f"judge.kind is {settings.judge.kind}: not needed")
        return
    command = (settings.judge.server.command or ["vllm"])[0]
    status, out = run(["bash", str(script), "inside", "sh", "-c", FIND, command])
    lines = out.strip().split("\n")
    if status != 0:
        yield Check(Mark.ERROR, "environment", f"no command '{command}' there: {lines[-1] or f'exit status {status}'}",
                    "see judge.environment: modules, venv, conda or container; and judge.server.command")
        return
    first = lines[-1]
    yield ok("environment", f"'{command}' is {lines[-2] if len(lines) > 1 else first}")
    python = first[2:].strip().split(" ") if first.startswith("#!") and "python" in first else ["python3"]
    yield imported(*run(["bash", str(script), "inside", *python, "-c", IMPORT]), gpus=settings.slurm.gpus)


def imported(status: int, out: str, *, gpus: int) -> Check:
    """What importing vLLM came to."""
    last = out.strip().rpartition("\n")[2]
    if status == 124:
        return Check(Mark.UNKNOWN, "vLLM", "its import did not end within 60 s", "a slow file system below the "
                     "environment; a batch waits longer: judge.server.load_timeout")
    try:
        found = json.loads(last)
    except ValueError:
        found = None
    if status != 0 or not isinstance(found, dict):
        return Check(Mark.ERROR, "vLLM", f"can't be imported: {last or f'exit status {status}'}",
                     "mend the environment that judge.environment names")
    torch = f"torch {found['torch']}" if "torch" in found else f"no torch ({found.get('problem', 'unknown')})"
    what = f"vLLM {found.get('vllm')}, {torch}" + (f", CUDA {found['cuda']}" if found.get("cuda") else "")
    if found.get("cuda") and gpus and found.get("gpus") == 0:
        return Check(Mark.ERROR, "vLLM", f"{what}; torch sees no GPU",
                     "the driver is too old for this CUDA, or the job got no GPU")
    return ok("vLLM", what + (f"; torch sees {found['gpus']} GPU(s)" if found.get("cuda") else ""))
