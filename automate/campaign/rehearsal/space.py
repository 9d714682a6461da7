"""The workspace in which a plan is rehearsed: links to the user's questions and answers, and a state of its own.

Never writes into the user's campaign, and removes only folders that it made."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from automate.errors import StorageError
from automate.journal import fresh_name, read_json, replace_file, write_json
from automate.processes import process_start
from automate.settings import Settings
from automate.workspace import SETTINGS_FILE, Workspace

OWNER, KEPT = "owner.json", "kept"


def make_space(user: Workspace, settings: Settings) -> Workspace:
    """A new workspace under the user's, with links to what is only read. Raises StorageError."""
    root = user.rehearsals / fresh_name()
    space = Workspace(root, settings.model_copy(update={"arena_hard": "arena-hard-auto"}), user.default_baseline)
    try:
        root.mkdir(parents=True)
        write_json(root / OWNER, {"pid": os.getpid(), "start": process_start(os.getpid())})
        _shadow(user.arena_hard, space.arena_hard, user.settings.bench)
        _link(user.models_file, root / "arena_hard_models_to_test.txt")
        _link(user.templates, space.templates)
    except OSError as error:
        raise StorageError.of(error, root, "make the rehearsal's workspace") from error
    return space


def _link(target: Path, link: Path) -> None:
    if target.exists() and not link.exists():
        link.symlink_to(target.resolve())


def _shadow(theirs: Path, ours: Path, bench: str) -> None:
    """The checkout as links, except for the folders on the way to the judgments and these themselves."""
    ours.mkdir(parents=True)
    for there, here, apart in ((theirs, ours, "data"), (theirs / "data", ours / "data", bench),
                               (theirs / "data" / bench, ours / "data" / bench, "model_judgment")):
        here.mkdir(parents=True, exist_ok=True)
        for entry in there.iterdir() if there.is_dir() else ():
            if entry.name != apart:
                _link(entry, here / entry.name)


def write_settings(space: Workspace, data: Mapping[str, Any]) -> Workspace:
    """Write the rehearsal's settings, and open its workspace with them. Raises ConfigError."""
    whole = {**data, "arena_hard": "arena-hard-auto", "models_file": "arena_hard_models_to_test.txt"}
    head = "# A rehearsal: times are scaled down, and the judge's verdicts mean nothing.\n"
    replace_file(space.root / SETTINGS_FILE, (head + yaml.safe_dump(whole, sort_keys=False)).encode())
    return Workspace(space.root, Settings.model_validate(whole), space.default_baseline)


def keep(space: Workspace) -> None:
    """Mark a rehearsal as one that is not removed by the next."""
    with contextlib.suppress(OSError):
        (space.root / KEPT).touch()


def remove(space: Workspace) -> None:
    """Remove a rehearsal's workspace; what a job still writes is given some time."""
    for _ in range(20):
        shutil.rmtree(space.root, ignore_errors=True)
        if not space.root.exists():
            break
        time.sleep(0.1)
    with contextlib.suppress(OSError):  # only where they are empty
        space.root.parent.rmdir()
        space.root.parent.parent.rmdir()


def sweep(user: Workspace) -> int:
    """Remove rehearsals whose command was killed; returns how many there were."""
    gone = 0
    for root in sorted(user.rehearsals.iterdir()) if user.rehearsals.is_dir() else ():
        owner = read_json(root / OWNER) if root.is_dir() else None
        if owner is None or (root / KEPT).exists() or process_start(int(owner["pid"])) == owner["start"]:
            continue
        shutil.rmtree(root, ignore_errors=True)
        gone += 1
    return gone
