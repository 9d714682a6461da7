"""What can be known of Flock validation before an assignment is asked for: key, tasks, modules, files, room.

Changes nothing, and asks the API only for lists; never stops at the first problem."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from automate.errors import ConfigError, FlockError
from automate.names import name_problem
from automate.validation import environments, snapshots
from automate.validation.api_errors import BadKey
from automate.validation.assignments import Assignment, State
from automate.validation.catalogue import Source
from automate.validation.catalogue import find as find_module
from automate.validation.check import Check
from automate.validation.downloads import free_gb, room_problem
from automate.validation.environments import EnvironmentState
from automate.validation.modules.base import InvalidConfigValueException
from automate.validation.preflight_configs import Config, built_or_configured, configs, named_folders, writable
from automate.validation.replies import Task
from automate.validation.secrets import read_key
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces

MOST = 5
_OUTSTANDING = tuple(state for state in State if state.outstanding)


class Api(Protocol):
    """What is asked of the API."""

    def tasks(self) -> list[Task]:
        """The tasks there are."""

    def check_key(self, task_id: str | None = None) -> bool:
        """Whether the key is known to be accepted; False: can't tell. Raises BadKey."""


def named(places: ValidationPlaces, spool: Spool) -> tuple[list[str], list[str]]:
    """Modules and task ids that this workspace names: in outstanding assignments, settings and configs."""
    outstanding = spool.listed(*_OUTSTANDING)
    modules = {one.module for one in outstanding} | set(places.settings.module_slurm)
    tasks = {one.task_id for one in outstanding} | {path.stem for path in (places.configs / "tasks").glob("*.json")}
    return sorted(modules), sorted(task for task in tasks if name_problem(task) is None)


def checks(places: ValidationPlaces, spool: Spool, *, environ: Mapping[str, str], api: Callable[[], Api],
           modules: Sequence[str] = (), task_ids: Sequence[str] = (),
           config: Config | None = None, find: Callable[[str, ValidationPlaces], Source] = find_module,
           state: Callable[[Source, ValidationPlaces], EnvironmentState] = environments.state) -> list[Check]:
    """All of them. Modules and tasks that are not given are those that the workspace names.

    `api` makes the client; it is called only where there is a key. `config` reads a module's config for a task.
    """
    known_modules, known_tasks = named(places, spool)
    needed = set(task_ids) | {one.task_id for one in spool.listed(*_OUTSTANDING)}
    modules = modules or sorted({*known_modules, *built_or_configured(places)})
    task_ids = task_ids or known_tasks
    found = [*_asked(places, environ, api, task_ids, needed)]
    for module in modules:
        found += _module(module, places, find, state)
    if not modules:
        found.append(Check("FH512", "warning", "modules", "no module is in use or built yet",
                           "build the one you need: flock-hpc validation env create MODULE"))
    if config is not None:
        found += configs(modules, task_ids, config)
    return [*found, *named_folders(places), *_checkouts(places, modules), *_token(places, environ), *_files(spool),
            *writable(places), *_room(places)]


# --- the API --------------------------------------------------------------------------------------
def _asked(places: ValidationPlaces, environ: Mapping[str, str], api: Callable[[], Api],
           task_ids: Sequence[str], needed: Collection[str]) -> Iterator[Check]:
    name = places.settings.api_key_env
    try:
        if read_key(environ, name) is None:
            yield Check("FH510", "error", name, "there is no API key", f"export {name}=... on the login node")
            return
        client = api()
        yield from _key(client, name, task_ids)
        yield from _tasks(client.tasks(), task_ids, needed)
    except ConfigError as error:
        yield Check("FH510", "error", error.where or name, error.what, error.todo or "")
    except FlockError as error:
        yield Check("FH511", "warning", places.settings.base_url, f"the API could not be asked: {error.what}",
                    error.todo or "try again later")


def _key(client: Api, name: str, task_ids: Sequence[str]) -> Iterator[Check]:
    try:
        accepted = client.check_key(task_ids[0] if task_ids else None)
    except BadKey as error:
        yield Check("FH510", "error", name, error.what, error.todo or f"put a valid key into {name}")
    except FlockError as error:
        yield Check("FH510", "warning", name, f"whether the key is accepted could not be asked: {error.what}",
                    "try again later")
    else:
        yield Check("FH510", "ok" if accepted else "note", name,
                    "the key is accepted" if accepted else "there is a key; the API does not tell whether it is good")


def _tasks(there: Collection[Task], task_ids: Sequence[str], needed: Collection[str]) -> Iterator[Check]:
    known = {task.id: task for task in there}
    for task_id in task_ids:
        task = known.get(task_id)
        if task is None:
            yield Check("FH511", "error" if task_id in needed else "warning", f"task {task_id}",
                        "the API lists no such task", "mend the id, or remove its file in configs/tasks")
        else:
            yield Check("FH511", "ok", f"task {task_id}", f"{task.title or 'no title'} ({task.status or 'no status'})")
    if not task_ids:
        yield Check("FH511", "note", "tasks", f"the API lists {len(known)} tasks; none is in use yet")


# --- modules --------------------------------------------------------------------------------------
def _module(module: str, places: ValidationPlaces, find: Callable[[str, ValidationPlaces], Source],
            state: Callable[[Source, ValidationPlaces], EnvironmentState]) -> Iterator[Check]:
    try:
        found = state(find(module, places), places)
    except FlockError as error:
        yield Check("FH512", "error", f"module {module}", error.what, error.todo or "")
        return
    if found.status == "ready" or (found.status == "current" and not found.why):
        yield Check("FH513", "ok", f"module {module}", f"environment {found.name}: {found.status} ({found.manager})")
        return
    todo = f"run 'flock-hpc validation env create {module}' on the login node"
    if found.status == "current":
        yield Check("FH513", "error", f"module {module}", f"the Python of flock-hpc lacks what it needs: {found.why}",
                    "install that, or set validation.manager to another one")
    else:
        yield Check("FH513", "error", f"module {module}", f"environment {found.name} is {found.status}: {found.why}",
                    todo)


def _checkouts(places: ValidationPlaces, modules: Sequence[str]) -> Iterator[Check]:
    for module, setting, look, level in (("lora", "templates", _read_templates, "warning"),
                                         ("llm_judge", "judge_prompts", _read_judge_prompts, "error")):
        if module not in modules:
            continue
        folder = getattr(places.settings, setting)
        path = None if folder is None else places.root / folder
        if path is not None and not path.exists():
            continue  # told with the other folders
        try:
            look(path)
        except InvalidConfigValueException as error:
            yield Check("FH515", "error" if path is not None or level == "error" else "warning",
                        f"validation.{setting}", str(error), "assignments that need these texts wait for a person")
        else:
            yield Check("FH515", "ok", f"validation.{setting}", f"the texts of {path} can be read")


def _read_templates(root: Path | None) -> None:
    from automate.validation.modules.lora.checkout import complete, tool_prompt
    from automate.validation.modules.lora.templates import TEMPLATES

    for template in TEMPLATES.values():
        complete(template, root)
    tool_prompt(root)


def _read_judge_prompts(root: Path | None) -> None:
    from automate.validation.modules.llm_judge.prompts import read_prompts

    read_prompts(root)


def _token(places: ValidationPlaces, environ: Mapping[str, str]) -> Iterator[Check]:
    name = places.settings.hf_token_env
    try:
        there = read_key(environ, name) is not None
    except ConfigError as error:
        yield Check("FH517", "error", error.where or name, error.what, error.todo or "")
        return
    yield Check("FH517", "ok", name, "there is a token of the model hub") if there else Check(
        "FH517", "note", name, "there is no token of the model hub: gated base models can't be had",
        f"export {name}=... on the login node, of an account that accepted their terms")


# --- what is on disk ------------------------------------------------------------------------------
def _files(spool: Spool) -> Iterator[Check]:
    fetched = spool.listed(State.FETCHED)
    lacking = [(one, lack) for one in fetched if (lack := _lack(one))]
    if fetched:
        yield Check("FH514", "ok", "assignments", f"{len(fetched) - len(lacking)} of {len(fetched)} fetched ones have "
                    "all their files")
    for one, lack in lacking[:MOST]:
        yield Check("FH514", "warning", f"assignment {one.id}", lack,
                    "the next 'flock-hpc validation fetch' or loop tries again")
    if len(lacking) > MOST:
        yield Check("FH514", "warning", "assignments", f"{len(lacking) - MOST} more lack files",
                    "see 'flock-hpc validation status'")
    waiting = spool.count(State.GIVEN_UP)
    if waiting:
        yield Check("FH518", "note", "assignments", f"{waiting} wait for a person to decide",
                    "see 'flock-hpc validation status'")
    for broken in spool.unreadable()[:MOST]:
        yield Check("FH518", "error", broken.where or "spool", broken.what, broken.todo or "")


def _lack(one: Assignment) -> str:
    """What keeps a job from having this assignment, or nothing."""
    if one.problem:
        return one.problem
    if one.needs_data and (one.data is None or not (one.folder / one.data.path).is_file()):
        return "its validation set is not on disk"
    parts = [("repository", one.model if one.needs_model else None), ("base model", one.base)]
    if one.needs_model and one.model is None:
        return "its repository is not on disk"
    return next((f"its {what} is not whole on disk: {part.path}" for what, part in parts
                 if part is not None and not snapshots.whole(Path(part.path))), "")


def _room(places: ValidationPlaces) -> Iterator[Check]:
    for folder in dict.fromkeys((places.home, places.models)):
        problem = room_problem(folder, places.settings)
        if problem:
            yield Check("FH516", "error", str(folder), problem, "make room there: nothing is fetched until then")
        else:
            yield Check("FH516", "ok", str(folder), f"{free_gb(folder):,.0f} GB are free")
