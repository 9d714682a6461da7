"""Plans on disk: which batches were planned together, and the files written for them.

Never rewrites a file of a batch that is queued or running."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import orjson
from pydantic import ValidationError

from automate.arena.batches import (
    Batch,
    Plan,
    PlanKind,
    balance,
    plan_tag,
)
from automate.arena.engine_job import FleetUse
from automate.arena.prompts import Prompts, load_prompts
from automate.campaign.kinds import Files, kind_of
from automate.campaign.plan_texts import array_text, batch_texts, longest_of
from automate.cluster.slurm import compress
from automate.errors import ConfigError, DataError
from automate.journal import read_json, replace_file, write_json
from automate.names import baseline_tag
from automate.settings import Settings
from automate.workspace import Workspace


@dataclass(frozen=True)
class ArrayPart:
    """One array job of a plan: task index + offset is the batch's number."""

    part: int
    offset: int
    numbers: tuple[int, ...]

    @property
    def indexes(self) -> list[int]:
        return [number - self.offset for number in self.numbers]


@dataclass(frozen=True)
class StoredPlan:
    """A plan with what else is kept of it. `root`: the workspace's folder when its files were written, if known."""

    plan: Plan
    parts: tuple[ArrayPart, ...]
    settings: dict[str, Any]
    root: str | None = None

    def batch(self, number: int) -> Batch | None:
        return next((batch for batch in self.plan.batches if batch.number == number), None)

    def part_of(self, number: int) -> ArrayPart | None:
        return next((part for part in self.parts if number in part.numbers), None)


def split_array(numbers: Sequence[int], max_array_size: int, first_part: int = 1) -> tuple[ArrayPart, ...]:
    """Array jobs for these batch numbers: indexes from 1 and below MaxArraySize, at most that many tasks each."""
    room = max(1, max_array_size - 1)
    parts = []
    for part in range(math.ceil(len(numbers) / room)):
        chunk = tuple(numbers[part * room:(part + 1) * room])
        offset = 0 if chunk[-1] < max_array_size else chunk[0] - 1
        parts.append(ArrayPart(first_part + part, offset, chunk))
    return tuple(parts)


def save_plan(workspace: Workspace, stored: StoredPlan) -> None:
    """Keep a plan; its file is written once, and again where its files were written for another folder."""
    plan = stored.plan
    fleet = {"fleet": plan.use.as_json()} if plan.use is not None else {}
    write_json(workspace.plans / f"{plan.id}.json", {
        "id": plan.id, "tag": plan.tag, "baseline": plan.baseline, "limit_questions": plan.limit_questions,
        "batches": [asdict(batch) for batch in plan.batches], "parts": [asdict(part) for part in stored.parts],
        "settings": stored.settings, "root": str(workspace.root), "kind": plan.kind,
        **fleet,
    })


def _stored(data: dict[str, Any]) -> StoredPlan:
    batches = tuple(Batch(b["number"], tuple(b["models"]), b["games"]) for b in data["batches"])
    kind = data.get("kind", "judge")  # plans of older versions don't say: they judge
    if kind not in ("judge", "generate"):
        raise KeyError("kind")
    plan = Plan(data["id"], data["tag"], data["baseline"], batches, data.get("limit_questions"), kind,
                FleetUse.of(data.get("fleet")))
    parts = tuple(ArrayPart(p["part"], p["offset"], tuple(p["numbers"])) for p in data["parts"])
    return StoredPlan(plan, parts, data["settings"], data.get("root"))


def read_plans(workspace: Workspace) -> list[StoredPlan]:
    """All plans of a workspace, oldest first."""
    if not workspace.plans.is_dir():
        return []
    found = []
    for path in sorted(workspace.plans.glob("*.json")):
        data = read_json(path)
        try:
            found += [_stored(data)] if data is not None else []
        except (KeyError, TypeError) as error:
            raise DataError(f"not a plan of flock-hpc ({error!r})", where=str(path), todo="move it away") from error
    return found


def new_plan_id(workspace: Workspace, now: float | None = None) -> str:
    """A timestamp that no plan of this workspace has yet."""
    moment = time.time() if now is None else now
    while True:
        name = time.strftime("%Y%m%d_%H%M%S", time.localtime(moment))
        if not (workspace.plans / f"{name}.json").exists():
            return name
        moment += 1


def of_kind(plans: Iterable[StoredPlan], kind: PlanKind) -> list[StoredPlan]:
    """The plans of one kind of work, in their order."""
    return [stored for stored in plans if stored.plan.kind == kind]


def make_plan(workspace: Workspace, due: Mapping[str, int], *, size: int, first: int, max_array_size: int,
              limit_questions: int | None, plan_id: str, first_part: int = 1, kind: PlanKind = "judge",
              batches: tuple[Batch, ...] | None = None, use: FleetUse | None = None) -> StoredPlan:
    """A plan for models with due games (or answers); batch numbers start at `first`. `batches`: spread already."""
    batches = balance(due, size, first) if batches is None else batches
    plan = Plan(plan_id, plan_tag(workspace, plan_id), baseline_tag(workspace.settings.baseline), batches,
                limit_questions, kind, use)
    parts = split_array([batch.number for batch in batches], max_array_size, first_part)
    settings = orjson.loads(orjson.dumps(workspace.settings.model_dump(mode="json")))
    return StoredPlan(plan, parts, settings, str(workspace.root))


def same_work(one: StoredPlan, other: StoredPlan) -> bool:
    """Whether two plans would run the same batches with the same settings."""
    a, b = one.plan, other.plan
    return (a.kind, a.batches, a.limit_questions, a.use, one.settings, one.parts) == (
        b.kind, b.batches, b.limit_questions, b.use, other.settings, other.parts)


def write_files(workspace: Workspace, stored: StoredPlan, prompts: Prompts | None, parallel: int | None,
                python: str = sys.executable, numbers: Collection[int] | None = None) -> None:
    """Write each batch's YAML and script (of `numbers` only, if given), and the array scripts, of a plan.

    The workspace's settings must be those of the plan's kind of work. `prompts`: of the judge, read where not given.
    """
    plan, files = stored.plan, Files(workspace, stored.plan.kind)
    longest = longest_of(workspace, plan.kind)
    if prompts is None and plan.kind == "judge":
        prompts = load_prompts(workspace.bench_settings, workspace.judge_utils)
    for batch in plan.batches:
        if numbers is None or batch.number in numbers:
            config, script = batch_texts(workspace, plan, batch, prompts, python, longest)
            replace_file(files.config(batch.number), config.encode())
            replace_file(files.script(batch.number), script.encode(), 0o775)
    for part in stored.parts:
        text = array_text(workspace, plan, part.part, part.offset, [compress(part.indexes)], parallel, longest)
        replace_file(files.array_script(part.part), text.encode(), 0o775)
    files.logs.mkdir(parents=True, exist_ok=True)


def moved(workspace: Workspace, stored: StoredPlan) -> bool:
    """Whether a plan's files were written when the workspace lay in another folder; False where that is not known."""
    return stored.root is not None and stored.root != str(workspace.root)


def write_anew(workspace: Workspace, stored: StoredPlan, prompts: Prompts | None, parallel: int | None,
               numbers: Collection[int]) -> StoredPlan:
    """Write the files of some batches of a plan for the folder where the workspace lies now, with the plan's settings.

    Raises ConfigError where those settings are not valid any more.
    """
    try:
        settings = Settings.model_validate(stored.settings)
    except ValidationError as error:
        raise ConfigError(f"its settings can't be read by this flock-hpc: {error.error_count()} problems",
                          where=f"plan {stored.plan.id}",
                          todo=f"run '{kind_of(stored.plan.kind).submit}' to plan anew") from error
    write_files(replace(workspace, settings=settings), stored, prompts, parallel, numbers=numbers)
    here = replace(stored, root=str(workspace.root))
    save_plan(workspace, here)
    return here


def foreign_files(workspace: Workspace, stored: StoredPlan, numbers: Collection[int]) -> bool:
    """Whether files of these batches were written for another folder or plan, or are not there any more."""
    place = Files(workspace, stored.plan.kind)
    parts = {part.part for number in numbers if (part := stored.part_of(number))}
    files = [(place.config(number), f"batch {number} of plan {stored.plan.id}.") for number in numbers]
    scripts = [place.script(number) for number in numbers] + [place.array_script(part) for part in parts]
    files += [(script, stored.plan.id) for script in scripts]  # it stands in the logs' names
    for path, mark in files:
        try:
            if mark not in path.read_text(encoding="utf-8"):
                return True
        except (OSError, UnicodeError):
            return True
    return moved(workspace, stored)


def superseded(stored: StoredPlan, batch: Batch, plans: Sequence[StoredPlan],
               submitted: Collection[str]) -> StoredPlan | None:
    """The newest plan of those submitted that has models of a batch, where newer ones have them all; None else."""
    newest, left = None, set(batch.models)
    for other in reversed(plans):
        if other.plan.id <= stored.plan.id:
            break
        if other.plan.id in submitted and same_judge(other, stored):
            theirs = {model for one in other.plan.batches for model in one.models}
            newest = newest or (other if theirs & left else None)
            left -= theirs
    return None if left else newest


def touched(stored: StoredPlan, batch: Batch, plans: Sequence[StoredPlan],
            submitted: Collection[str]) -> StoredPlan | None:
    """The newest plan of those submitted that has a batch's number, and so its files, or any of its models.

    A plan of the other kind of work has neither.
    """
    for other in reversed(of_kind(plans, stored.plan.kind)):
        if other.plan.id > stored.plan.id and other.plan.id in submitted:
            same = same_judge(other, stored)
            if any(one.number == batch.number or (same and set(one.models) & set(batch.models))
                   for one in other.plan.batches):
                return other
    return None


def same_judge(one: StoredPlan, other: StoredPlan | Workspace, kind: PlanKind = "judge") -> bool:
    """Whether a plan is of the same bench, judge and baseline as another, or as the settings now for a kind of work.

    Answers have neither judge nor baseline; a plan of the other kind of work is never the same.
    """
    return _judge_of(one, one.plan.kind) == _judge_of(other, kind if isinstance(other, Workspace) else other.plan.kind)


def _judge_of(of: StoredPlan | Workspace, kind: PlanKind) -> tuple[object, ...]:
    settings = of.settings.model_dump(include={"bench", "judge"}) if isinstance(of, Workspace) else of.settings
    if kind == "generate":
        return kind, settings.get("bench")
    judge = settings.get("judge")
    tag = baseline_tag(of.settings.baseline) if isinstance(of, Workspace) else of.plan.baseline
    return kind, settings.get("bench"), judge.get("name") if isinstance(judge, dict) else None, tag


def remove_leftovers(workspace: Workspace, plans: Sequence[StoredPlan], keep: set[int], parts: set[int],
                     kind: PlanKind = "judge") -> list[int]:
    """Remove scripts and configs of earlier plans' batches that are neither in use nor in the new plan.

    Only those of one kind of work: the numbers of the other are others.
    """
    mine, files = of_kind(plans, kind), Files(workspace, kind)
    old = {batch.number for stored in mine for batch in stored.plan.batches} - keep
    for number in old:
        files.script(number).unlink(missing_ok=True)
        files.config(number).unlink(missing_ok=True)
    for part in {part.part for stored in mine for part in stored.parts} - parts:
        files.array_script(part).unlink(missing_ok=True)
    return sorted(old)
