"""The smallest module: the mean of the field `value` over the rows of the validation set.

Written to be copied: docs/validation.md walks through it."""

from __future__ import annotations

import json
import math
from typing import Any

from automate.validation.modules.base import (
    BaseConfig,
    BaseInputData,
    BaseMetrics,
    BaseValidationModule,
    Job,
    RecoverableException,
)


class ExampleConfig(BaseConfig):
    """`scale` multiplies the mean."""

    scale: float = 1.0


class ExampleInput(BaseInputData):
    """All that this module asks of an assignment."""

    validation_set_url: str


class ExampleMetrics(BaseMetrics):
    """One number."""

    score: float


class ExampleModule(BaseValidationModule):
    """The mean of a column."""

    config_schema = ExampleConfig
    input_data_schema = ExampleInput
    metrics_schema = ExampleMetrics
    task_type = "example"

    def __init__(self, config: ExampleConfig, **kwargs: Any) -> None:
        self.config = config

    def validate(self, data: ExampleInput, **kwargs: Any) -> ExampleMetrics:
        """The mean of `value`. A broken row is the validator's trouble: the set is not the submission's."""
        job: Job = kwargs["job"]
        lines = job.need("data").read_bytes().splitlines()
        if not lines:
            raise RecoverableException("the validation set has no rows", cause="data")
        values = [_value(number, line) for number, line in enumerate(lines, 1)]
        return ExampleMetrics(score=self.config.scale * sum(values) / len(values))

    def cleanup(self) -> None:
        """Nothing to clean up."""


def _value(number: int, line: bytes) -> float:
    try:
        value = float(json.loads(line)["value"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise RecoverableException(f"the validation set's row {number} is broken: {error}", cause="data") from error
    if not math.isfinite(value):
        raise RecoverableException(f"the validation set's row {number} is not finite", cause="data")
    return value


MODULE = ExampleModule
