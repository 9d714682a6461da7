"""Reinforcement learning: an ONNX policy on the CPU over a fixed set of orders; the mean reward of its allocations.

The reward is the protocol's. Never uses a GPU, never runs custom operators, never unpickles."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from automate.validation.modules.base import BaseConfig, BaseInputData, BaseMetrics, BaseValidationModule, Job

LOWEST_REWARD = -999.0
"""What is reported, as completed, for a policy with more parameters than the task allows."""


class RlConfig(BaseConfig):
    """Both keys are required. `seed` is part of the protocol's config and changes nothing: there is no chance here."""

    per_device_eval_batch_size: Annotated[int, Field(gt=0)]
    seed: int


class RlInput(BaseInputData):
    """The submission's repository and file in it; `max_params` counts numbers, not bytes."""

    hg_repo_id: str
    model_filename: str
    revision: str | None = "main"
    validation_set_url: str
    max_params: int


class RlMetrics(BaseMetrics):
    """The mean over all samples."""

    average_reward: float


class RlModule(BaseValidationModule):
    """The mean reward of a policy."""

    config_schema = RlConfig
    input_data_schema = RlInput
    metrics_schema = RlMetrics
    task_type = "reinforcement_learning"

    def __init__(self, config: RlConfig, **kwargs: Any) -> None:
        self.config = config

    def validate(self, data: RlInput, **kwargs: Any) -> RlMetrics:
        """Raises SubmissionFault for the policy's faults, RecoverableException for those of the validation set."""
        from automate.validation.modules.rl import market, policy

        job: Job = kwargs["job"]
        file = policy.find(job.need("model"), data.model_filename)
        count = policy.parameters(file)
        if count > data.max_params:
            job.note(f"the policy has {count} parameters, {data.max_params} are allowed")
            return RlMetrics(average_reward=LOWEST_REWARD)
        orders = market.read(job.need("data"))
        actions = policy.Policy(file).act(orders.features, self.config.per_device_eval_batch_size, orders.venues)
        return RlMetrics(average_reward=market.average_reward(actions, orders))

    def cleanup(self) -> None:
        """Nothing is kept: the session ends with the process."""


MODULE = RlModule
