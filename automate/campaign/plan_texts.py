"""The texts of a plan's files, of either kind of work: each batch's YAML and script, and the array's script.

Never writes them."""

from __future__ import annotations

from collections.abc import Sequence

from automate.arena.batches import Batch, Plan, PlanKind, array_script, batch_config, batch_script
from automate.arena.prompts import Prompts
from automate.arena.running.ending import longest_game
from automate.arena.running.runlog import read_runs
from automate.campaign.kinds import runs_of
from automate.workspace import Workspace


def array_text(workspace: Workspace, plan: Plan, part: int, offset: int, indexes: Sequence[str],
               parallel: int | None, longest: float) -> str:
    """The script of an array."""
    if plan.kind == "generate":
        from automate.arena.answering.scripts import answer_array_script

        return answer_array_script(workspace, plan, part, offset, indexes, parallel, longest)
    return array_script(workspace, plan, part, offset, indexes, parallel, longest)


def longest_of(workspace: Workspace, kind: PlanKind) -> float:
    """Seconds of the longest games, or answers, that were measured."""
    runs = read_runs(workspace.runs)
    if kind == "judge":
        return longest_game(runs_of(runs, kind), workspace.settings.judge.name)
    from automate.arena.answering.effective import longest_answer

    return longest_answer(runs)


def batch_texts(workspace: Workspace, plan: Plan, batch: Batch, prompts: Prompts | None, python: str,
                longest: float) -> tuple[str, str]:
    """(YAML, script) of a batch; `prompts` of the judge, which answers don't need."""
    if plan.kind == "generate":
        from automate.arena.answering.scripts import answer_config, answer_script

        config = answer_config(workspace, plan, batch)
        return config, answer_script(workspace, plan, batch, config, python, longest)
    if prompts is None:
        raise ValueError("no prompts of the judge")
    config = batch_config(workspace, plan, batch, prompts)
    return config, batch_script(workspace, plan, batch, config, python, longest)
