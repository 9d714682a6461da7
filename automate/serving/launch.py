"""How a model server is started, and what its death is: what is told to a server's life, and what it tells.

Pure data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True)
class Launch:
    """How to start a server: `command` is followed by its address arguments.

    `who` is served (the judge, or a model); `settings`: under which key its settings stand.
    """

    command: Sequence[str]
    model: str
    transport: Literal["uds", "tcp"]
    log: Path
    load_timeout: float = 3600.0
    stop_timeout: float = 20.0
    restarts: int = 2
    request_timeout: float = 1800.0
    environment: Mapping[str, str] | None = None
    node_faults: int = 2
    who: str = "judge"
    settings: str = "judge"

    def advice(self, todo: str) -> str:
        """What to do, naming the settings of this server and not the judge's."""
        return todo if self.settings == "judge" else todo.replace("judge.", f"{self.settings}.").replace(
            "the judge's", f"the {self.who}'s").replace("quantised judge", f"quantised {self.who}")


@dataclass(frozen=True)
class Death:
    """A server that ended or never became ready: when (epoch seconds), the class of its cause, and what was seen."""

    time: float
    cause: str
    what: str
    node_fault: bool
