"""What preflight says of Flock validation: one thing that was looked at, with a stable code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "note", "warning", "error"]


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `code` is stable; `todo` is empty where nothing is to be done."""

    code: str
    level: Level
    subject: str
    what: str
    todo: str = ""
