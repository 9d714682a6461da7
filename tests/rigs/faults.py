"""What can go wrong on a test cluster, and how an administrator mends it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tests.rigs.slurm import NODES, SlurmRig

GOOD = ("idle", "mixed", "allocated", "completing")


def _wait(what: str, ready: Callable[[], bool], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not ready():
        if time.monotonic() > deadline:
            raise RuntimeError(f"no {what} within {timeout:.0f} s")
        time.sleep(0.2)


def ctld_runs(rig: SlurmRig) -> bool:
    """Whether somebody answers for the cluster."""
    return rig.run("scontrol", "ping", check=False).stdout.find("UP") >= 0


def node_states(rig: SlurmRig) -> dict[str, str]:
    """What slurmctld says of each node, in lower case; a mark behind it means that the node does not answer."""
    lines = rig.run("sinfo", "-N", "-h", "-p", "test", "-o", "%N %T", check=False).stdout.split("\n")[:-1]
    return {line.split()[0]: line.split()[1] for line in lines}


def set_down(rig: SlurmRig, node: str) -> None:
    """Set a node down as an administrator does: Slurm ends its jobs, and takes the node back when it answers."""
    rig.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


def heal(rig: SlurmRig, timeout: float = 120) -> None:
    """Start what does not run, and wait until both nodes take jobs again."""
    if not rig.ctld_started:
        rig.start_ctld(timeout)
    for node in set(NODES) - set(rig.slurmd_pids):
        rig.start_slurmd(node)

    def resumed() -> bool:
        states = node_states(rig)
        for node in [name for name, state in states.items() if state not in GOOD]:
            rig.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        return len(states) == len(NODES) and all(state in GOOD for state in states.values())

    _wait("healthy nodes", resumed, timeout)


def wrapper(folder: Path, command: str, body: str) -> Path:
    """A program in `folder` that stands before a real one on PATH; `body` may name the real one as "$REAL"."""
    folder.mkdir(parents=True, exist_ok=True)
    real = shutil.which(command)
    (folder / command).write_text(f"#!/bin/bash\nREAL={real}\n{body}\n")
    (folder / command).chmod(0o755)
    return folder


def path_without(folder: Path, command: str) -> Path:
    """A folder that alone may be PATH: all programs of this machine's usual folders, without one."""
    folder.mkdir(parents=True, exist_ok=True)
    for place in ("/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin", "/sbin"):
        for program in Path(place).iterdir() if Path(place).is_dir() else ():
            link = folder / program.name
            if program.name != command and not link.is_symlink():
                link.symlink_to(program)
    return folder
