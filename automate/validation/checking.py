"""Config and input of an assignment, checked by its module's own environment before anything large is fetched.

Never runs the module itself, and never gives it a key."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from automate.errors import ConfigError, FlockError
from automate.settings import Settings
from automate.validation import catalogue, environments
from automate.validation.assignments import Assignment
from automate.validation.inner import files
from automate.validation.inner.files import Result
from automate.validation.jobs.one import run_file, scratch
from automate.validation.jobs.resources import inner_environment, scratch_root
from automate.validation_places import ValidationPlaces

TIMEOUT = 120.0
CONFIG = "config"
"""The cause of what is wrong with a config, as opposed to an assignment."""
REFUSED = 3
"""The inner layer's exit status where it found something."""


def check_input(places: ValidationPlaces, settings: Settings,
                environ: Mapping[str, str]) -> Callable[[Assignment], Result | None]:
    """A check for `acquire`: what is wrong with an assignment's config or input; None where nothing is, or where it
    can't be told now (its environment is not built yet, say): the job will tell."""
    def check(assignment: Assignment) -> Result | None:
        try:
            source = catalogue.find(assignment.module, places)
            command, added = environments.inner_call(source, places, [str(assignment.folder), "--check"])
        except FlockError:
            return None
        files.write_run(assignment.folder, run_file(assignment, places, source.path))
        with scratch(scratch_root(environ)) as place:
            return _run(command, inner_environment(settings, environ, added, place), assignment.folder)
    return check


def check_config(places: ValidationPlaces, settings: Settings, environ: Mapping[str, str], module: str,
                 task_id: str) -> None:
    """A module's config for a task, before anything is asked for. Raises ConfigError naming file and key."""
    with tempfile.TemporaryDirectory(prefix="flock-validation-", ignore_cleanup_errors=True) as name:
        folder = Path(name).resolve()
        (folder / files.REPLY).write_text("{}", encoding="utf-8")
        nobody = Assignment("0", task_id or "0", module, 0.0, folder)
        found = check_input(places, settings, environ)(nobody)
    if found is not None and found.cause == CONFIG:
        raise ConfigError(found.reason, where=f"config of {module}", todo="docs/validation.md lists the keys")


def _run(command: list[str], environ: Mapping[str, str], folder: Path) -> Result | None:
    try:
        done = subprocess.run(command, env=dict(environ), cwd=folder, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    result = files.read_result(folder) if done.returncode == REFUSED else None
    (folder / files.RESULT).unlink(missing_ok=True)
    return result
