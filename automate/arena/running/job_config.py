"""What a started job reads from its batch's YAML, and the checks it makes first.

Never starts anything."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from automate import __version__
from automate.errors import ConfigError, StorageError
from automate.settings import Settings
from automate.settings_loader import build
from automate.workspace import Workspace
from automate.yamlfile import parse_yaml


@dataclass(frozen=True)
class JobConfig:
    """A batch as its job sees it."""

    workspace: Workspace
    plan: str
    batch: int
    models: tuple[str, ...]
    limit_questions: int | None
    template: str
    path: Path

    @property
    def settings(self) -> Settings:
        return self.workspace.settings


def read_job_config(root: Path, path: Path, sha256: str, version: str) -> JobConfig:
    """Read a batch's YAML. Raises ConfigError where it isn't the one that its script was rendered with."""
    again = "run 'flock-hpc judge' again to write the batch anew, and submit that"
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
    limit, batch = own.get("limit_questions"), own.get("batch")
    return JobConfig(
        workspace=Workspace(root, settings, str(own.get("default_baseline"))), plan=str(own.get("plan")),
        batch=batch if isinstance(batch, int) else 0, models=tuple(str(model) for model in models),
        limit_questions=limit if isinstance(limit, int) else None,
        template=str(file.value.get("prompt_template")), path=path,
    )
