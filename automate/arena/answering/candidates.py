"""Where each model's answers come from: its folder, its adapter and base, how it is asked; and which server holds it.

Never starts a server and never changes a folder; what is wrong with a model is returned as a problem."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from automate.arena.answering.checkpoint import (
    ADAPTER_CONFIG,
    Adapter,
    Fault,
    adapter_faults,
    adapter_of,
    fingerprint_of,
    folder_faults,
    own_template,
    template_fault,
)
from automate.arena.benchmark import read_api_config
from automate.errors import FlockError
from automate.settings import Candidate as Given
from automate.workspace import Workspace
from automate.yamlfile import Value

REHEARSAL = "rehearsal"
"""The weights of a rehearsed model."""
BASE = ("name the base's folder as generate.models.<name>.base, or as base_model_name_or_path in adapter_config.json: "
        "it must be on disk, as compute nodes can't fetch a hub id")
NO_FILE = "a folder, where the answer file is to be"
WAIT = "wait until it is written, then run the same command again"


@dataclass(frozen=True)
class Candidate:
    """One model as it is served and asked. `weights`: a fingerprint; None where the folder can't be used.

    `path` is its folder, or with `base` that of its LoRA adapter of rank `rank`; None for a rehearsal. `tokenizer`: a
    folder to take the tokenizer from in place of the base's.
    """

    model: str
    path: Path | None
    base: Path | None = None
    rank: int = 0
    weights: str | None = None
    chat_template: Path | None = None
    tokenizer: Path | None = None
    system_prompt: str | None = None
    temperature: float = 0.0
    max_tokens: int = 4096
    args: tuple[str, ...] = ()


@dataclass(frozen=True)
class Problem:
    """Why a model can't be served as things are: the file or setting, what is wrong with it, and what to do."""

    model: str
    where: str
    what: str
    todo: str

    def __str__(self) -> str:
        return f"{self.model}: {self.where}: {self.what}\n  -> {self.todo}"


@dataclass(frozen=True)
class ServerGroup:
    """What one server holds: one model, or adapters of one base. `served`: the full model's name on the server;
    `spare`: slots for adapters that stay empty."""

    candidates: tuple[Candidate, ...]
    served: str
    spare: int = 0

    @property
    def models(self) -> tuple[str, ...]:
        return tuple(candidate.model for candidate in self.candidates)

    @property
    def adapters(self) -> tuple[Candidate, ...]:
        return tuple(candidate for candidate in self.candidates if candidate.base is not None)

    @property
    def folder(self) -> Path | None:
        """The folder of the full model."""
        first = self.candidates[0]
        return first.base or first.path


@lru_cache(maxsize=8)
def _entries(path: Path, changed: int, size: int) -> dict[str, dict[str, Value]]:
    return read_api_config(path) or {}


def api_entries(workspace: Workspace) -> dict[str, dict[str, Value]]:
    """api_config.yaml's entries by model, read once for each state of the file; none where it can't be read."""
    path = workspace.api_config
    try:
        stat = path.stat()
        return _entries(path, stat.st_mtime_ns, stat.st_size)
    except (FlockError, OSError):
        return {}


def _full(workspace: Workspace, text: str) -> Path:
    return workspace.root / Path(text).expanduser()


def _entry_path(workspace: Workspace, entry: dict[str, Value]) -> Path | None:
    """The folder that an api_config.yaml entry names, where there is one."""
    for key in ("model_path", "path", "model"):
        text = entry.get(key)
        if isinstance(text, str) and text and ("/" in text or key != "model"):
            folders = [_full(workspace, text), workspace.arena_hard / text]
            if (found := next((folder for folder in folders if folder.is_dir()), None)) is not None:
                return found
    return None


def path_of(workspace: Workspace, model: str) -> Path | None:
    """A model's folder: by generate.models, by api_config.yaml where that names a folder, else by generate.path."""
    generate = workspace.settings.generate
    given = generate.models.get(model, Given())
    if given.path is not None:
        return _full(workspace, given.path)
    named = _entry_path(workspace, api_entries(workspace).get(model, {}))
    if named is not None or generate.path is None:
        return named
    return _full(workspace, generate.path.replace("{model}", model))


def _asked(workspace: Workspace, model: str) -> Candidate:
    """A model and how it is asked: by generate.models, else by api_config.yaml, else by generate."""
    generate = workspace.settings.generate
    given, entry = generate.models.get(model, Given()), api_entries(workspace).get(model, {})
    words, heat, most = entry.get("sys_prompt", entry.get("system_prompt")), entry.get("temperature"), entry.get(
        "max_tokens")
    system = given.system_prompt if given.system_prompt is not None else (
        words if isinstance(words, str) else generate.system_prompt)
    temperature = given.temperature if given.temperature is not None else (
        float(heat) if isinstance(heat, (int, float)) and not isinstance(heat, bool) and heat >= 0
        else generate.temperature)
    max_tokens = given.max_tokens or (most if isinstance(most, int) and not isinstance(most, bool) and most > 0
                                      else generate.max_tokens)
    template = given.chat_template or generate.chat_template
    return Candidate(model, path_of(workspace, model), system_prompt=system or None, temperature=temperature,
                     max_tokens=max_tokens, chat_template=_full(workspace, template) if template else None,
                     args=tuple(given.args))


def candidate_of(workspace: Workspace, model: str) -> tuple[Candidate, list[Problem]]:
    """One model and all that is wrong with it; with problems its `weights` are not known."""
    asked, given = _asked(workspace, model), workspace.settings.generate.models.get(model, Given())
    folder = asked.path
    if workspace.settings.generate.kind == "rehearsal":
        base = _full(workspace, given.base) if given.base else None
        return replace(asked, base=base, rank=8 if base else 0, weights=REHEARSAL), []
    if folder is None:
        return asked, [Problem(model, f"generate.models.{model}", "nothing says where this model lies",
                               "give its folder as generate.models.<name>.path, all of them as generate.path "
                               "(/checkpoints/{model}), or in api_config.yaml as 'model'")]
    faults: list[Fault] = []
    base = _full(workspace, given.base) if given.base else None
    if adapter := base is not None or _is_adapter(folder):
        asked = _adapter(workspace, asked, base, faults)
    else:
        faults += folder_faults(folder)
    if asked.base is not None or not adapter:
        asked = _templated(asked, faults)
    problems = [Problem(model, str(fault.where), fault.what, fault.todo or _todo(fault)) for fault in faults]
    return (asked if problems else replace(asked, weights=_fingerprint(asked, problems))), problems


def _is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file() and not (folder / "config.json").is_file()


def _fingerprint(asked: Candidate, problems: list[Problem]) -> str | None:
    try:
        return fingerprint_of(asked.path, asked.base) if asked.path else None
    except OSError as error:
        problems.append(Problem(asked.model, str(asked.path), f"can't be read: {error.strerror or error}",
                                "check who may read there"))
        return None


def _todo(fault: Fault) -> str:
    if "being written" in fault.what or "name it" in fault.what or fault.what.startswith("no weights"):
        return f"{WAIT}; if nothing writes it any more, copy it again"
    if "tokenizer" in fault.what:
        return "save the tokenizer beside the weights (tokenizer.save_pretrained)"
    if "chat template" in fault.what:
        return "save a chat template with the tokenizer, or give one as generate.chat_template"
    return "mend the folder, or name another as generate.models.<name>.path"


def _adapter(workspace: Workspace, asked: Candidate, base: Path | None, faults: list[Fault]) -> Candidate:
    """The candidate as an adapter of its base, which is looked at too."""
    folder = asked.path or workspace.root
    found: Adapter | None = adapter_of(folder, faults)
    if found is None:
        if not faults:
            faults.append(Fault(folder / ADAPTER_CONFIG, "not there, but a base is given"))
        return asked
    faults += adapter_faults(folder)
    if base is not None:
        if not base.is_dir():
            faults.append(Fault(base, f"generate.models.{asked.model}.base is no folder on this machine", BASE))
            return asked
    elif (base := _named_base(workspace, folder, found)) is None:
        what = f"its base '{found.base}' is no folder on this machine"
        what = what if found.base else "it names no base (base_model_name_or_path)"
        faults.append(Fault(folder / ADAPTER_CONFIG, what, BASE))
        return asked
    faults += folder_faults(base)
    return replace(asked, base=base, rank=found.rank)


def _named_base(workspace: Workspace, folder: Path, found: Adapter) -> Path | None:
    """The folder that an adapter's own configuration names as its base's, where there is one."""
    named = [_full(workspace, found.base), folder / found.base] if found.base else []
    return next((path for path in named if path.is_dir()), None)


def _templated(asked: Candidate, faults: list[Fault]) -> Candidate:
    """The candidate with the place of its chat template; a fault where there is none, or none that can be read."""
    if asked.path is None or any(fault.what == "no such folder" for fault in faults):
        return asked
    own = asked.path
    where: Path = asked.chat_template or asked.base or own
    try:
        text = own_template(where) if asked.chat_template is None else where.read_text(encoding="utf-8")
        if text is None and asked.base is not None and (text := own_template(own)) is not None:
            asked, where = replace(asked, tokenizer=own), own
    except (OSError, UnicodeDecodeError) as error:
        faults.append(Fault(where, f"a chat template that can't be read: {error}"))
        return asked
    told = where / "tokenizer_config.json"
    if text is None and not any(fault.where == told for fault in faults):
        faults.append(Fault(told, "no chat template, neither here nor in the settings"))
    elif text is not None and (fault := template_fault(text)) is not None:
        faults.append(Fault(where, fault))
    return asked


def candidates(workspace: Workspace, models: Iterable[str]) -> tuple[list[Candidate], list[Problem]]:
    """The models that can be served, in order, and the problems of the others."""
    good, bad = [], []
    for model in models:
        candidate, problems = candidate_of(workspace, model)
        if (file := workspace.answer_file(model)).is_dir():
            problems = [*problems, Problem(model, str(file), NO_FILE, "move that folder away")]
        bad += problems
        good += [] if problems else [candidate]
    return good, bad


def groups(found: Sequence[Candidate], max_loras: int) -> tuple[ServerGroup, ...]:
    """Which server holds which models, in order of their first: adapters of one base together, at most `max_loras`.

    A full model is alone, a base too: vLLM's build for the CPU has been seen to give requests for the base an adapter's
    answers where both are in one batch. The same candidates give the same groups.
    """
    order: list[list[Candidate]] = []
    open_groups: dict[tuple[object, ...], list[Candidate]] = {}
    for one in found:
        group = open_groups.get(signature(one)) if one.base is not None else None
        if group is None or len(group) >= max_loras:
            group = []
            order.append(group)
            if one.base is not None:
                open_groups[signature(one)] = group
        group.append(one)
    return tuple(server_group(members, [one.model for one in members]) for members in order)


def signature(one: Candidate) -> tuple[object, ...]:
    """What must be equal for two adapters, or an adapter and its base, to share a server."""
    folder = (one.base or one.path or Path(one.model)).resolve()
    return folder, one.chat_template, one.tokenizer, one.args


def server_group(members: Sequence[Candidate], models: Sequence[str]) -> ServerGroup:
    """The group of these candidates. `models`: all that were planned for it, of which some may have gone since.

    A base is served under a name that no adapter has.
    """
    base = members[0].base
    if base is None:
        return ServerGroup(tuple(members), members[0].model)
    name = f"base-{base.name}"
    while name in models:
        name += "-"
    return ServerGroup(tuple(members), name)
