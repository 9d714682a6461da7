"""What a started job reads from its batch's YAML, and the checks it makes first.

Never starts anything."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from automate import __version__
from automate.arena.answering.effective import ANSWERS, generation_settings
from automate.arena.batches import PlanKind
from automate.arena.engine_job import FleetUse, engine_settings
from automate.errors import ConfigError, StorageError
from automate.settings import Settings
from automate.settings_loader import build
from automate.workspace import Workspace
from automate.yamlfile import parse_yaml


@dataclass(frozen=True)
class Words:
    """How a kind of work is spoken of in a job: one `thing`, the `verb` for it, the `command` that goes on, whose
    `server` is asked, how its `log` begins."""

    thing: str
    verb: str
    command: str
    server: str
    log: str

    @property
    def things(self) -> str:
        """Many of them."""
        return f"{self.thing}s"

    @property
    def article(self) -> str:
        """One of them, with its article."""
        return f"{'an' if self.thing[0] in 'aeiou' else 'a'} {self.thing}"

    @property
    def past(self) -> str:
        """What was done with it."""
        return f"{self.verb.removesuffix('e')}ed"

    @property
    def submit(self) -> str:
        """The command that goes on, as a user types it."""
        return f"flock-hpc {self.command} --submit"


JUDGING = Words("game", "play", "judge", "judge", "judge-batch")
ANSWERING = Words("answer", "generate", "generate", "model", "answer-batch")


@dataclass(frozen=True)
class JobConfig:
    """A batch as its job sees it. `groups`: of answers, the models of each server, as the script numbers them; `fleet`:
    on which games are played, where the job starts no server of its own; `servers`: the settings by which those run."""

    workspace: Workspace
    plan: str
    batch: int
    models: tuple[str, ...]
    limit_questions: int | None
    template: str
    path: Path
    kind: PlanKind = "judge"
    groups: tuple[tuple[str, ...], ...] = ()
    fleet: FleetUse | None = None
    servers: Settings | None = None

    @property
    def words(self) -> Words:
        if self.fleet is not None:
            return replace(JUDGING, command=f"{JUDGING.command} --fleet {self.fleet.words}")
        return ANSWERING if self.kind == ANSWERS else JUDGING

    @property
    def script(self) -> Path:
        """The batch's own script."""
        workspace = self.workspace
        return (workspace.answer_script if self.kind == ANSWERS else workspace.batch_script)(self.batch)

    def server_log(self, job: str) -> Path:
        """Where the servers of this batch write in a job."""
        folder = self.workspace.answer_logs if self.kind == ANSWERS else self.workspace.logs
        return folder / f"{self.words.log}-{self.batch}_{job}_{self.plan}.server.log"

    @property
    def settings(self) -> Settings:
        return self.workspace.settings


def read_job_config(root: Path, path: Path, sha256: str, version: str, words: Words = JUDGING) -> JobConfig:
    """Read a batch's YAML. Raises ConfigError where it isn't the one that its script was rendered with."""
    again = f"run 'flock-hpc {words.command}' again to write the batch anew, and submit that"
    if version != __version__:
        raise ConfigError(f"this batch was written by flock-hpc {version}, but {__version__} is installed now",
                          where=str(path), todo=again)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise StorageError.of(error, path, "read the batch's YAML") from error
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ConfigError("the batch's YAML was changed after its script was written", where=str(path), todo=again)
    file = parse_yaml(data.decode(), str(path))
    own = file.value.get("flock_hpc")
    models = file.value.get("model_list")
    if not isinstance(own, dict) or not isinstance(models, list) or not isinstance(own.get("settings"), dict):
        raise ConfigError("not a batch of flock-hpc: no flock_hpc.settings or no model_list", where=str(path),
                          todo=again)
    raw = own["settings"]
    settings = build(raw if isinstance(raw, dict) else {}, [file], {})
    kind: PlanKind = "generate" if own.get("kind") == ANSWERS else "judge"
    settings = generation_settings(settings) if kind == ANSWERS else settings
    fleet = FleetUse.of(own.get("fleet")) if kind == "judge" else None
    servers = settings if fleet is not None else None
    settings = engine_settings(settings) if fleet is not None else settings
    limit, batch, groups = own.get("limit_questions"), own.get("batch"), own.get("groups")
    return JobConfig(
        workspace=Workspace(root, settings, str(own.get("default_baseline"))), plan=str(own.get("plan")),
        batch=batch if isinstance(batch, int) else 0, models=tuple(str(model) for model in models),
        limit_questions=limit if isinstance(limit, int) else None,
        template=str(file.value.get("prompt_template")), path=path, kind=kind,
        groups=tuple(tuple(str(model) for model in group) for group in groups if isinstance(group, list))
        if isinstance(groups, list) else (), fleet=fleet, servers=servers,
    )
