"""Runs Slurm's commands; the only file that does.

Never interprets what they print; a missing command and a failing one are told apart."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.errors import ClusterError

TIMEOUT = 60.0
_KEEP = {"SLURM_CONF", "SLURM_JWT", "SLURM_TIME_FORMAT"}


@dataclass(frozen=True)
class Said:
    """A command's exit status and what it printed."""

    status: int
    out: str
    err: str

    @property
    def words(self) -> str:
        """Slurm's own words on one line, for errors."""
        return " ".join((self.err or self.out).split()) or f"exit status {self.status}"


def have(command: str) -> bool:
    """Whether a command is on PATH."""
    return shutil.which(command) is not None


def outside_job(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without what Slurm sets inside a job, which would leak into jobs submitted from one."""
    return {
        name: value for name, value in environ.items()
        if name in _KEEP or not name.startswith(("SLURM_", "SBATCH_", "SLURMD_", "SRUN_"))
    }


def slurm(arguments: Sequence[str], *, environ: Mapping[str, str] | None = None, timeout: float = TIMEOUT) -> Said:
    """Run one Slurm command without a shell. Raises ClusterError where it can't be run or doesn't answer."""
    env = outside_job(os.environ if environ is None else environ)
    try:
        done = subprocess.run(list(arguments), capture_output=True, text=True, errors="replace", timeout=timeout,
                              stdin=subprocess.DEVNULL, env=env, check=False)
    except FileNotFoundError as error:
        raise ClusterError(f"no command '{arguments[0]}' on this machine", where=arguments[0],
                           todo="run this on the login node, or use --executor local") from error
    except subprocess.TimeoutExpired as error:
        raise ClusterError(f"no answer within {timeout:g} s", where=" ".join(arguments[:3]),
                           todo="Slurm's controller is slow or down; nothing is lost, try again later") from error
    except OSError as error:
        raise ClusterError(f"can't be run: {error.strerror}", where=arguments[0]) from error
    return Said(done.returncode, done.stdout, done.stderr)
