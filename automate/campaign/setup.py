"""Makes workspaces: flock-hpc.yaml, models file, folders and .gitignore.

Never overwrites a file that is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path

import jinja2

from automate.errors import StorageError, WorkspaceError
from automate.journal import replace_file
from automate.resources import templates_dir
from automate.settings import Settings
from automate.settings_loader import profile_names, read_profile
from automate.workspace import SETTINGS_FILE, Workspace

MODELS_TEXT = """# The models to judge, one name a line; '#' starts a comment. A name is the name of its answer file:
# <arena_hard>/data/<bench>/model_answer/<name>.jsonl
"""
IGNORED = ("/.flock-hpc/", "/generated_judgment_scripts/", "/generated_judgment_configs/",
           "/generated_answer_scripts/", "/generated_answer_configs/", "/logs/")


def _yaml(value: object) -> str:
    """A value in YAML's flow style; JSON is YAML."""
    word = isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./-]*", value, re.ASCII)
    if word and str(value).lower() not in {"true", "false", "null", "yes", "no", "on", "off"}:
        return str(value)
    return json.dumps(value, ensure_ascii=False)


def settings_text(values: Mapping[str, object], cluster: str) -> str:
    """The text of a new flock-hpc.yaml."""
    defaults = Settings()
    context: dict[str, object] = {
        "cluster": cluster, "profiles": profile_names(), "arena_hard": defaults.arena_hard, "bench": defaults.bench,
        "models_file": defaults.models_file, "models_pattern": None, "baseline": defaults.baseline,
        "batch_size": defaults.batch_size, "kind": defaults.judge.kind, "judge_name": defaults.judge.name,
        "judge_path": None, "server_args": None, "max_model_len": None, "honour_rows": None, "modules": None,
        "venv": None, "slurm": None,
    }
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates_dir()), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - YAML, quoted by `y`
    environment.filters["y"] = _yaml
    return environment.get_template("flock-hpc.yaml.j2").render(**{**context, **values})


def make_workspace(root: Path, values: Mapping[str, object], cluster: str) -> list[str]:
    """Make what a workspace needs under `root`; returns a line for each thing made. Raises WorkspaceError."""
    read_profile(cluster, root)
    if (root / SETTINGS_FILE).exists():
        raise WorkspaceError(f"there is a {SETTINGS_FILE} already", where=str(root / SETTINGS_FILE),
                             todo="edit it, or remove it to start anew; nothing was changed")
    made = []
    try:
        root.mkdir(parents=True, exist_ok=True)
        workspace = Workspace(root, Settings(models_file=str(values.get("models_file", Settings().models_file)),
                                             arena_hard=str(values.get("arena_hard", Settings().arena_hard))), "-")
        for folder in (workspace.scripts, workspace.configs, workspace.logs):
            if not folder.is_dir():
                folder.mkdir(parents=True)
                made.append(f"{folder.relative_to(root)}/")
        if not workspace.models_file.exists():
            replace_file(workspace.models_file, MODELS_TEXT.encode())
            made.append(str(workspace.models_file.relative_to(root)))
        made += _gitignore(root)
        replace_file(root / SETTINGS_FILE, settings_text(values, cluster).encode())
    except OSError as error:
        raise StorageError.of(error, root, "make a workspace") from error
    return [*made, SETTINGS_FILE]


def _gitignore(root: Path) -> list[str]:
    path = root / ".gitignore"
    old = path.read_text(encoding="utf-8") if path.is_file() else ""
    missing = [line for line in IGNORED if line not in old.split("\n")]
    if not missing:
        return []
    text = old + ("\n" if old and not old.endswith("\n") else "") + "\n".join(missing) + "\n"
    replace_file(path, text.encode())
    return [".gitignore"]
