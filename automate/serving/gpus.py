"""What nvidia-smi says of this job's GPUs: names, memory, use.

Never fails a job: where there is no nvidia-smi, or it does not answer, there is nothing to say."""

from __future__ import annotations

import asyncio
import contextlib
import csv
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass

FIELDS = "index,uuid,name,memory.used,memory.total,utilization.gpu"
TIMEOUT = 10.0


@dataclass(frozen=True)
class Gpu:
    """One GPU: memory in MiB, use in percent; None where the driver does not say."""

    index: int
    name: str
    memory_used_mb: int | None
    memory_total_mb: int | None
    utilization: int | None


def _number(text: str) -> int | None:
    digits = text.strip()
    return int(digits) if digits.isdigit() else None


def parse_gpus(text: str, visible: str | None = None) -> list[Gpu]:
    """Lines of `nvidia-smi --query-gpu=FIELDS --format=csv,noheader,nounits`.

    `visible` is CUDA_VISIBLE_DEVICES: indexes or UUIDs of the job's own GPUs; what it doesn't name is left out, unless
    it names nothing that is there.
    """
    wanted = {word.strip() for word in (visible or "").split(",") if word.strip()}
    found, mine = [], []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        index = _number(row[0]) if len(row) == 6 else None
        if index is None:
            continue
        gpu = Gpu(index, row[2].strip(), _number(row[3]), _number(row[4]), _number(row[5]))
        found.append(gpu)
        uuid = row[1].strip()
        if row[0].strip() in wanted or any(uuid.startswith(word) for word in wanted if word.startswith("GPU")):
            mine.append(gpu)
    return mine or found


async def read_gpus(environ: Mapping[str, str] | None = None) -> list[Gpu]:
    """Ask nvidia-smi once; an empty list where it can't be asked."""
    env = os.environ if environ is None else environ
    command = shutil.which("nvidia-smi", path=env.get("PATH"))
    if command is None:
        return []
    process = None
    try:
        process = await asyncio.create_subprocess_exec(
            command, f"--query-gpu={FIELDS}", "--format=csv,noheader,nounits", stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL)
        out, _ = await asyncio.wait_for(process.communicate(), TIMEOUT)
    except (OSError, TimeoutError):
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        return []
    if process.returncode != 0:
        return []
    return parse_gpus(out.decode("utf-8", "replace"), env.get("CUDA_VISIBLE_DEVICES"))
