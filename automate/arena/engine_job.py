"""The job of an engine that plays on a fleet of servers: which fleet, how many servers, and what the job asks for.

Pure; never starts a fleet or asks one anything."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from automate.settings import Settings


@dataclass(frozen=True)
class FleetUse:
    """On which fleet a plan's games are played: its name, and how many servers there are to be at least and at most."""

    name: str
    least: int
    most: int

    @property
    def words(self) -> str:
        """How many servers, as it was asked for: 4, or 2..8."""
        return str(self.least) if self.least == self.most else f"{self.least}..{self.most}"

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, data: object) -> Self | None:
        """From JSON or YAML; None where nothing of the kind stands there."""
        if not isinstance(data, Mapping):
            return None
        name, least, most = data.get("name"), data.get("least"), data.get("most")
        sound = isinstance(name, str) and type(least) is int and type(most) is int and 0 < least <= most
        return cls(str(name), int(least), int(most)) if sound else None  # type: ignore[arg-type]


def engine_settings(settings: Settings) -> Settings:
    """The settings by which an engine's own job runs: `slurm` with `fleet.engine_slurm`, and without a GPU.

    Where the engine runs beside the first server (`fleet.engine: beside`), its job is that server's: they stay as they
    are. The same for settings that were made by this function.
    """
    if settings.fleet.engine == "beside":
        return settings
    asked = settings.fleet.engine_slurm.model_dump(exclude_none=True)
    options = {name: value for name, value in settings.slurm.options.items() if not _of_gpus(name)}
    without = {"gpus": 0, "gres": None, "constraint": None, "options": options}
    return settings.model_copy(update={"slurm": settings.slurm.model_copy(update={**asked, **without})})


def _of_gpus(option: str) -> bool:
    """Whether an option of sbatch asks for GPUs, or depends on them."""
    return option.startswith(("gpu", "cpus-per-gpu", "mem-per-gpu", "ntasks-per-gpu", "tres-per", "exclusive"))
