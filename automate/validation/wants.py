"""What the shipped modules take: base models of adapters, adapters only, and how a submission that can't be had counts.

Lists are the modules' own; nothing here is downloaded, and modules of others are asked for nothing."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.validation.inner import configuration
from automate.validation.modules.base import InvalidConfigValueException

SCORED: Mapping[str, Mapping[str, float]] = {"llm_judge": {"score": -999.0}}
"""Modules whose protocol scores a submission that can't be had, where others report it as failed."""


@dataclass(frozen=True)
class Wants:
    """`bases`: names of base models that are taken (None: any); `adapters_only`: whole models are refused.

    `known`: whether the configs could be read; where not, nobody is blamed by them.
    """

    bases: Collection[str] | None = None
    adapters_only: bool = False
    known: bool = True

    def takes(self, base: str) -> bool:
        """Whether an adapter of this base model is taken; names are compared as they are written."""
        return self.bases is None or base in self.bases


def wants(module: str, task_id: str, configs: Path) -> Wants:
    """What a module takes for a task. With a config that can't be read it refuses nothing: its job says what is wrong.
    """
    if module == "llm_judge":
        from automate.validation.modules.llm_judge.schemas import SUPPORTED_BASES

        return Wants(SUPPORTED_BASES)
    if module != "lora":
        return Wants()
    from automate.validation.modules.lora.bases import SUPPORTED_BASE_MODELS

    try:
        config = configuration.read(configs / f"{module}.json") | configuration.read(configs / "tasks"
                                                                                     / f"{task_id}.json")
    except (InvalidConfigValueException, OSError):
        return Wants(known=False)
    bases, only = config.get("supported_base_models", SUPPORTED_BASE_MODELS), config.get("lora_only", True)
    if not isinstance(bases, list | tuple | frozenset) or not isinstance(only, bool):
        return Wants(known=False)
    return Wants(tuple(str(one) for one in bases), only)
