"""What a fleet is to serve: model names to groups of equal servers, and the script of each group's jobs.

Never makes a fleet and never submits; looks at the models' folders only."""

from __future__ import annotations

import hashlib
import re
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from automate import __version__
from automate.arena.answering.candidates import Candidate, ServerGroup, api_entries, candidate_of, path_of
from automate.arena.answering.effective import generation_settings
from automate.arena.answering.scripts import group_command
from automate.arena.batches import needs_gpu, server_command, server_context
from automate.arena.context import judge_identity
from automate.arena.running.gpu_hours import gpus_of
from automate.campaign.fleets.sharing import rehearsed_adapter, shared_groups
from automate.cluster.asking import me
from automate.cluster.script import directives, log_pattern, render
from automate.durations import seconds_of
from automate.errors import ConfigError, FlockError, ManyErrors
from automate.fleet_places import FleetPlaces
from automate.fleets.ending import lead_of
from automate.fleets.jobs import check_fleet, job_name
from automate.journal import fresh_name
from automate.names import name_problem
from automate.serving.fleet.records import Executor, FleetSpec, Group
from automate.settings import Candidate as Given
from automate.settings import Settings
from automate.workspace import Workspace

_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)


@dataclass(frozen=True)
class Served:
    """What one group's servers are: names, command, under whose settings, and what tells their weights from others'."""

    model: str
    also: tuple[str, ...]
    command: tuple[str, ...]
    kind: str
    settings: Settings
    weights: tuple[str, ...]
    server: dict[str, object]


def spec_of(workspace: Workspace, models: Sequence[str], least: int, most: int, *, name: str, executor: str,
            campaign: str | None = None, python: str = sys.executable,
            given: Mapping[str, str] | None = None) -> tuple[FleetSpec, dict[int, str]]:
    """The fleet that serves these models, `least` to `most` servers of each, and the text of each group's script.

    A model is the judge by its name, a candidate that generate.* knows, a folder, or a name on a hub (served under its
    last part). A base and its LoRA adapters are one group. `given`: of models that are served by the names in
    `models`, the folder (absolute) or the hub's name of each. Raises ConfigError, or ManyErrors for several models.
    """
    check_fleet(name)
    places = FleetPlaces(workspace.root, name)
    served = serve_what(workspace, list(dict.fromkeys(models)), python, given)
    own = workspace.settings.fleet
    spec = FleetSpec(
        name, fresh_name(), __version__, time.time(), me(), _executor(executor),
        tuple(_group(places, number, one, least, most) for number, one in enumerate(served, 1)), print_of(served),
        own.heartbeat, own.stale, own.idle, own.patience, own.address, campaign)
    scripts = {group.number: worker_script(workspace, places, spec, group, one, python)
               for group, one in zip(spec.groups, served, strict=True)}
    return spec, scripts


def _executor(text: str) -> Executor:
    if text not in ("slurm", "local"):
        raise ConfigError(f"no executor '{text}' for a fleet", where="executor", todo="give slurm or local")
    return "local" if text == "local" else "slurm"


def _group(places: FleetPlaces, number: int, one: Served, least: int, most: int) -> Group:
    judge, limit = one.settings.judge, seconds_of(one.settings.slurm.time)
    return Group(number, one.model, str(places.script(number)), least, most, one.also,
                 gpus_of(one.settings) if needs_gpu(one.settings) else 0, None if limit == float("inf") else limit,
                 one.kind, judge.server.load_timeout, judge.server.stop_timeout, judge.server.restarts,
                 judge.request_timeout)


def print_of(served: Iterable[Served]) -> str:
    """A hash of all that decides what a fleet's servers serve: names, commands, surroundings and weights."""
    parts = [[one.model, one.also, one.command, one.weights, sorted((key, str(value)) for key, value in
                                                                    one.server.items())] for one in served]
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


# --- which model is what ------------------------------------------------------------------------------
def serve_what(workspace: Workspace, models: Sequence[str], python: str = sys.executable,
               given: Mapping[str, str] | None = None) -> list[Served]:
    """The groups that serve these models, the judge first; `given` as in spec_of. Raises ConfigError or ManyErrors."""
    if not models:
        raise ConfigError("no model to serve", todo="name one: the judge's name, a model of generate.models, a folder")
    found: list[Served] = []
    asked: list[Candidate] = []
    errors: list[FlockError] = []
    for model in models:
        try:
            if given is not None and model in given:
                asked.append(_given(workspace, model, given[model]))
            elif _is_judge(workspace, model):
                found.append(_judge(workspace, python))
            else:
                asked.append(_candidate(workspace, model))
        except FlockError as error:
            errors += error.errors if isinstance(error, ManyErrors) else [error]
    if errors:
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)
    shared = shared_groups(asked, workspace.settings.generate.max_loras, [one.model for one in found])
    found += [_candidates(workspace, group, python) for group in shared]
    _refuse_twice(found)
    return found


def _refuse_twice(found: Sequence[Served]) -> None:
    names = [name for one in found for name in (one.model, *one.also)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"two of these models would be served under one name: {', '.join(twice)}",
                          todo="name one of them in generate.models with a name of its own, and give its folder there")


def _is_judge(workspace: Workspace, model: str) -> bool:
    name = workspace.settings.judge.name
    return model in (name, name.removesuffix("-rehearsal"))


def _judge(workspace: Workspace, python: str) -> Served:
    settings = workspace.settings
    server = server_context(workspace, python)
    if server is None:
        raise ConfigError(f"the judge '{settings.judge.name}' is a service of somebody else's (judge.kind: openai)",
                          where="judge.kind", todo="serve models of your own, or set judge.kind: vllm")
    weights = judge_identity(settings, workspace.root).weights
    return Served(settings.judge.name, (), tuple(server_command(workspace, python)), "judge", settings, (weights,),
                  server)


def _candidates(workspace: Workspace, group: ServerGroup, python: str) -> Served:
    settings = generation_settings(workspace.settings)
    context = server_context(replace(workspace, settings=settings), python) or {}
    command = group_command(workspace, group, python)
    server = {**context, "command": command,
              "judge_at": len(settings.judge.server.command) if settings.judge.kind == "vllm" else None}
    also = tuple(one.model for one in group.adapters)
    return Served(group.served, also, tuple(command), "generate", settings,
                  tuple(one.weights or "" for one in group.candidates), server)


def _candidate(workspace: Workspace, model: str) -> Candidate:
    """A model of generate.*, a folder, or a name on a hub. Raises ConfigError or ManyErrors with all that is wrong."""
    rehearsed = workspace.settings.generate.kind == "rehearsal"
    name = model.rstrip("/").rpartition("/")[2] if "/" in model else model
    if (problem := name_problem(name)) is not None:
        raise ConfigError(f"{model!r} can't be a model's name: {problem}", where="MODEL",
                          todo="name it in generate.models, and give its folder there")
    known = "/" not in model and (model in workspace.settings.generate.models or path_of(workspace, model) is not None)
    folder = None if known else _folder(workspace, model)
    if not known and folder is None and not rehearsed:
        if _HUB.fullmatch(model):
            return _of_hub(workspace, name, model)
        raise _unknown(workspace, model)
    return _checked(workspace if folder is None else _with_folder(workspace, name, folder), name)


def _given(workspace: Workspace, name: str, place: str) -> Candidate:
    """A model by its own name, in a folder (absolute) or on a hub. Raises ConfigError or ManyErrors."""
    if (problem := name_problem(name)) is not None:
        raise ConfigError(f"{name!r} can't be a model's name: {problem}", where=name, todo="add it by another name")
    if Path(place).is_absolute():
        return _checked(_with_folder(workspace, name, Path(place)), name)
    if workspace.settings.generate.kind == "rehearsal":
        return _checked(workspace, name)
    if not _HUB.fullmatch(place):
        raise ConfigError(f"{place!r} is neither a folder's whole path nor a hub's name with its owner", where=name,
                          todo="add the model again, with its folder or with owner/name")
    return _of_hub(workspace, name, place)


def _of_hub(workspace: Workspace, name: str, model: str) -> Candidate:
    template = workspace.settings.generate.chat_template
    return Candidate(name, Path(model), weights=f"named:{model}",
                     chat_template=workspace.root / Path(template).expanduser() if template else None)


def _checked(workspace: Workspace, name: str) -> Candidate:
    """A candidate of generate.*. Raises ConfigError or ManyErrors with all that is wrong with it."""
    rehearsed = workspace.settings.generate.kind == "rehearsal"
    candidate, problems = candidate_of(workspace, name)
    if problems:
        errors = [ConfigError(f"{one.model}: {one.what}", where=one.where, todo=one.todo) for one in problems]
        raise errors[0] if len(errors) == 1 else ManyErrors(errors)
    return rehearsed_adapter(workspace.root, candidate) if rehearsed else candidate


def _folder(workspace: Workspace, model: str) -> Path | None:
    """The folder that a user means: from where he stands, or from the workspace."""
    given = Path(model).expanduser()
    return next((path.resolve() for path in (given, workspace.root / given) if path.is_dir()), None)


def _with_folder(workspace: Workspace, name: str, folder: Path) -> Workspace:
    """The workspace with one more candidate, in that folder."""
    generate = workspace.settings.generate
    own = generate.models.get(name, Given()).model_copy(update={"path": str(folder)})
    models = {**generate.models, name: own}
    return replace(workspace, settings=workspace.settings.model_copy(
        update={"generate": generate.model_copy(update={"models": models})}))


def _unknown(workspace: Workspace, model: str) -> ConfigError:
    import difflib

    names = [workspace.settings.judge.name, *workspace.settings.generate.models, *api_entries(workspace)]
    near = difflib.get_close_matches(model, names, n=3)
    return ConfigError(
        f"no model '{model}': it is not the judge, no model of generate.models or api_config.yaml, and no folder",
        where="MODEL", todo=f"did you mean {' or '.join(near)}?" if near else
        "give the judge's name, a folder with weights, or a hub's name with its owner (owner/name)")


# --- scripts ------------------------------------------------------------------------------------------
def worker_script(workspace: Workspace, places: FleetPlaces, spec: FleetSpec, group: Group, one: Served,
                  python: str = sys.executable) -> str:
    """The text of a group's array job; how many tasks it has is said when it is submitted."""
    settings = one.settings
    logs = {kind: log_pattern(places.logs, f"worker-{group.number}_%A_%a.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    context = {
        "directives": directives(settings.slurm, name=job_name(places, spec, group), gpus=needs_gpu(settings),
                                 signal=f"B:USR2@{int(lead_of(group))}", **logs),
        "fleet": spec.name, "group": group.number, "models": group.names, "version": spec.version,
        "server": one.server, "environment": sorted(settings.environment.items()), "python": python,
        "workspace": workspace.root, "script": group.script,
    }
    return render("fleet_worker.sh.j2", context, workspace.templates)
