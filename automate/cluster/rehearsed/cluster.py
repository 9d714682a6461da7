"""The files by which a rehearsed cluster is known: its scenario, and what its runner says of nodes and limits.

Only the runner writes the second; submission, queue and judges read it. Times are epoch seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from automate.cluster.rehearsed.scenario import Scenario
from automate.errors import ConfigError
from automate.journal import read_json, write_json
from automate.processes import process_start

REFUSED = ("sbatch: error: QOSMaxSubmitJobPerUserLimit sbatch: error: Batch job submission failed: Job violates "
           "accounting/QOS policy (job submit limit, user's size and/or time limits)")
SILENT = "squeue: slurm_load_jobs error: Unable to contact slurm controller (connect failure)"
ECC = ("RuntimeError: CUDA error: uncorrectable ECC error encountered\n"
       "CUDA kernel errors might be asynchronously reported at some other API call (rehearsed: bad_node)")


@dataclass(frozen=True)
class Rehearsal:
    """What a rehearsal tells the runner: the scenario, all games, the journal's folder, and whose it is."""

    scenario: Scenario
    games: int
    journal: Path
    owner: int
    owner_start: str | None

    @property
    def watched(self) -> bool:
        """Whether the command that rehearses is still there."""
        return process_start(self.owner) == self.owner_start

    def save(self, path: Path) -> None:
        """Write it for the runner."""
        write_json(path, {**asdict(self), "scenario": self.scenario.model_dump(by_alias=True),
                          "journal": str(self.journal)})


def read_rehearsal(path: Path) -> Rehearsal | None:
    """The rehearsal of a queue, or None where it is an ordinary one. Raises ConfigError."""
    data = read_json(path)
    if data is None:
        return None
    try:
        return Rehearsal(Scenario.model_validate(data["scenario"]), data["games"], Path(data["journal"]),
                         data["owner"], data["owner_start"])
    except (KeyError, ValueError, TypeError) as error:
        raise ConfigError(f"not a rehearsal of flock-hpc ({error!r})", where=str(path)) from error


@dataclass
class State:
    """A rehearsed cluster at a moment. `fired`: how often each event's time has come, `struck`: how often it
    found something to strike; `log`: what happened, in words."""

    began: float = 0.0
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    fired: dict[str, int] = field(default_factory=dict)
    struck: dict[str, int] = field(default_factory=dict)
    refuse_until: float = 0.0
    silent_until: float = 0.0
    submit_limit: int | None = None
    limit_until: float = 0.0
    slow: float = 1.0
    slow_until: float = 0.0
    log: list[list[Any]] = field(default_factory=list)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> State:
        """The state that was written as JSON."""
        return cls(**{name: value for name, value in data.items() if name in cls.__dataclass_fields__})

    def refusal(self, active: int, more: int, now: float | None = None) -> str | None:
        """Slurm's words against `more` jobs beside `active` ones, or None."""
        moment = time.time() if now is None else now
        if moment < self.refuse_until:
            return REFUSED
        if self.submit_limit is not None and moment < self.limit_until and active + more > self.submit_limit:
            return REFUSED
        return None

    def silent(self, now: float | None = None) -> bool:
        """Whether the queue gives no answer now."""
        return (time.time() if now is None else now) < self.silent_until


def read_state(path: Path) -> State | None:
    """What the runner of a rehearsed cluster has said last; None elsewhere."""
    data = read_json(path)
    return None if data is None else State.of(data)
