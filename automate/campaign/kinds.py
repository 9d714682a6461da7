"""The two kinds of work of a campaign, games and answers: where the files of each lie, and how it is spoken of.

Never reads or writes the files it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from automate.arena.batches import Plan, PlanKind
from automate.arena.engine_job import engine_settings
from automate.workspace import Workspace

R = TypeVar("R", bound=Mapping[str, Any])


@dataclass(frozen=True)
class Kind:
    """How a kind of work is spoken of: `games`, the command that goes on with it, and what its jobs are called."""

    name: PlanKind
    things: str
    command: str
    title: str

    @property
    def submit(self) -> str:
        """The command that goes on with it, as a user types it."""
        return f"flock-hpc {self.command} --submit"


JUDGE = Kind("judge", "games", "judge", "Judgment")
GENERATE = Kind("generate", "answers", "generate", "Generation")


def kind_of(name: PlanKind) -> Kind:
    """The words of a plan's kind."""
    return GENERATE if name == "generate" else JUDGE


@dataclass(frozen=True)
class Files:
    """The files of one kind of work in a workspace."""

    workspace: Workspace
    kind: PlanKind = "judge"

    @property
    def _answers(self) -> bool:
        return self.kind == "generate"

    @property
    def scripts(self) -> Path:
        return self.workspace.answer_scripts if self._answers else self.workspace.scripts

    @property
    def configs(self) -> Path:
        return self.workspace.answer_configs if self._answers else self.workspace.configs

    @property
    def logs(self) -> Path:
        return self.workspace.answer_logs if self._answers else self.workspace.logs

    def script(self, number: int) -> Path:
        """The script of a batch."""
        return self.workspace.answer_script(number) if self._answers else self.workspace.batch_script(number)

    def config(self, number: int) -> Path:
        """The YAML of a batch."""
        return self.workspace.answer_config(number) if self._answers else self.workspace.batch_config(number)

    def array_script(self, part: int) -> Path:
        """The script of an array."""
        return self.workspace.answer_array_script(part) if self._answers else self.workspace.array_script(part)


def under(workspace: Workspace, kind: PlanKind) -> Workspace:
    """The workspace with the settings by which jobs of a kind run; the same where they are in force already."""
    if kind == "judge":
        return workspace
    from automate.arena.answering.effective import generation_settings

    return replace(workspace, settings=generation_settings(workspace.settings))


def under_plan(workspace: Workspace, plan: Plan) -> Workspace:
    """The workspace with the settings by which the jobs of a plan run: of its kind of work, and of an engine's job."""
    if plan.use is not None:
        return replace(workspace, settings=engine_settings(workspace.settings))
    return under(workspace, plan.kind)


def runs_of(runs: Iterable[R], kind: PlanKind) -> list[R]:
    """The run records of a kind of work."""
    return [run for run in runs if (run.get("kind") == "generate") == (kind == "generate")]
