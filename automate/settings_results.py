"""Settings of results: how scores and intervals are computed, how names of checkpoints are read.

Never reads files or the environment; `settings_loader` does that."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import Field, field_validator

from automate.settings_base import Strict

CHECKPOINT = r"(?P<run>.+?-rank(?P<rank>\d+)-alpha(?P<lr>.+))-(?P<step>(?:step\d+)?(?:final)?)"


class Results(Strict):
    """How scores are computed. `confidence` in percent; `rounds` of the bootstrap; `strong_weight` of >> and <<."""

    confidence: Annotated[float, Field(gt=0, lt=100)] = 95.0
    rounds: Annotated[int, Field(ge=10, le=100_000)] = 1000
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    strong_weight: Annotated[float, Field(gt=0)] = 3.0


class Curves(Strict):
    """How a checkpoint's name is read: a pattern for it whole, with the named groups `run`, `step` and any others.

    The digits of `step` are the step; where it holds `final` it is the run's end, drawn at `final_step` if that is
    given.
    """

    pattern: str = CHECKPOINT
    final_step: Annotated[int, Field(ge=1)] | None = None

    @field_validator("pattern")
    @classmethod
    def _pattern(cls, value: str) -> str:
        try:
            groups = re.compile(value).groupindex
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        if not {"run", "step"} <= set(groups):
            raise ValueError("the pattern needs the groups (?P<run>...) and (?P<step>...)")
        return value
