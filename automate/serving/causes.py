"""Why a model server died, read from the end of its log.

Never certain: a cause is the first known message found, else unknown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Cause:
    """A class of failure, what to do about it, and whether starting again can help."""

    name: str
    todo: str
    restart_helps: bool
    node_fault: bool = False


OUT_OF_MEMORY = Cause("out of memory", "use more GPUs (slurm.gpus and judge.server.tensor_parallel_size), a smaller "
                      "judge.server.max_model_len, or a quantised judge; for host memory raise slurm.mem", False)
PORT = Cause("port in use", "use judge.server.transport: uds, which needs no port", True)
CONTEXT = Cause("context too long for the memory", "lower judge.server.max_model_len, or use more GPUs", False)
PATH = Cause("model path", "check judge.path: it must be a model folder that compute nodes can read", False)
CUDA = Cause("CUDA or module", "check judge.environment (modules, venv, conda or container): the judge's command must "
             "start on a compute node", False)
NODE = Cause("the node's fault", "the node's GPU or driver is broken, or somebody else's process holds its memory: "
             "tell your administrators. After two such deaths the campaign avoids the node; see 'flock-hpc nodes'",
             True, node_fault=True)
ARGUMENTS = Cause("server arguments", "check judge.server.args against this version of the server", False)
KILLED = Cause("killed", "somebody or the system's out-of-memory killer ended it; check slurm.mem", True)
UNKNOWN = Cause("unknown", "read the server's log", True)

_PATTERNS: tuple[tuple[str, Cause], ...] = (
    (r"address already in use|errno 98", PORT),
    (r"larger than the maximum number of tokens that can be stored in KV cache|max seq len .* is larger", CONTEXT),
    (r"max_model_len .* (is )?greater than the derived max_model_len", CONTEXT),
    (r"uncorrectable ecc|xid[ :(]|fallen off the bus|gpu is lost|unable to determine the device handle"
     r"|driver/library version mismatch|couldn't communicate with the nvidia driver|devices? (is|are) busy or "
     r"unavailable|no cuda-capable device|cuda driver initialization failed|input/output error|hardware error", NODE),
    (r"free memory on device .* less than desired gpu memory utilization", NODE),
    (r"cuda out of memory|outofmemoryerror|no available memory for the cache blocks|oom-kill|cannot allocate memory"
     r"|less than desired GPU memory utilization", OUT_OF_MEMORY),
    (r"exec: .*not found|bin/\S+: (no such file|cannot execute|not found)|activate: no such file", CUDA),
    (r"repository not found|is not a valid model identifier|not a valid repo id|hfvalidationerror|localentrynotfound"
     r"|does not appear to have a file named|can't load (the )?(configuration|tokenizer)|invalid repository", PATH),
    (r"modulenotfounderror|command not found|no module named|can't start |failed to infer device|no cuda gpus"
     r"|libcuda|cuda driver version|cuda error|unable to locate a modulefile|lmod has detected|nccl error", CUDA),
    (r"unrecognized arguments|invalid choice|expected one argument|error: argument", ARGUMENTS),
    (r"filenotfounderror|no such file or directory", PATH),
)
_COMPILED = tuple((re.compile(pattern, re.IGNORECASE), cause) for pattern, cause in _PATTERNS)


def tail(path: Path, lines: int = 30, limit: int = 65536) -> str:
    """The last lines of a log; an empty text where it can't be read."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - limit))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.rstrip("\n").split("\n")[-lines:])


def classify(log: str, exit_status: int | None = None) -> Cause:
    """The cause of a death from the log's end and the exit status (negative or over 128: a signal)."""
    for pattern, cause in _COMPILED:
        if pattern.search(log):
            return cause
    if exit_status in (126, 127):
        return CUDA
    if exit_status is not None and (exit_status < 0 or exit_status in (137, 143)):
        return KILLED
    return UNKNOWN
