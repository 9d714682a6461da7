"""Options that validation commands share, and how they find their workspace.

No logic of their own: they collect what was typed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from automate.workspace import Workspace
    from automate.yamlfile import Value

F = TypeVar("F", bound=Callable[..., Any])


class TaskIds(click.ParamType[tuple[str, ...]]):
    """Task ids with commas between them."""

    name = "ids"

    def convert(self, value: Any, param: click.Parameter | None,  # noqa: ANN401 - click's own signature
                ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        ids = tuple(dict.fromkeys(part.strip() for part in str(value).split(",") if part.strip()))
        ids = tuple(dict.fromkeys(str(int(one)) if one.isascii() and one.isdigit() else one for one in ids))
        wrong = [one for one in ids if not one.replace("-", "").replace("_", "").isalnum() or not one.isascii()]
        if not ids or wrong:
            self.fail(f"{wrong[0]!r} is not a task id" if wrong else "expected task ids such as 123,456", param, ctx)
        return ids


def task_ids_option(function: F) -> F:
    """`--task_ids`, as the validator's own command writes it; `--task-ids` is taken as well."""
    return click.option("--task_ids", "--task-ids", "task_ids", required=True, type=TaskIds(),
                        metavar="ID,ID...", help="Tasks to validate for, with commas between them.")(function)


def executor_option(function: F) -> F:
    """Where array jobs run."""
    return click.option("--executor", type=click.Choice(["auto", "slurm", "local"]),
                        help="Where assignments run (default: Slurm if it is on this machine, else here).")(function)


def debug_option(function: F) -> F:
    """`--debug`."""
    return click.option("--debug", is_flag=True, help="Log every request and reply, with secrets removed.")(function)


def end_on_sigterm() -> None:
    """Let SIGTERM end a command as Ctrl-C does, so that what it holds is given up."""
    import signal
    from types import FrameType

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)


NEW = """# Settings of this workspace; see docs/settings.md. Everything has its default so far.
validation: {}
"""


def open_validation(workspace_dir: Path | None, overrides: Mapping[str, Value] | None = None, *,
                    make: bool = False) -> Workspace:
    """The workspace of a command.

    Where there is none, this folder with the defaults, and said so; with `make` a flock-hpc.yaml is written there, so
    that jobs and later commands find the same.
    """
    import os

    from automate.errors import WorkspaceError
    from automate.journal import replace_file
    from automate.names import baseline_tag
    from automate.settings_loader import load_settings
    from automate.workspace import SETTINGS_FILE, Workspace, find_root, open_workspace

    try:
        return open_workspace(find_root(workspace_dir), overrides)
    except WorkspaceError:
        root = (workspace_dir or Path()).resolve()
        if not root.is_dir() or (workspace_dir is None and os.environ.get("FLOCK_HPC_WORKSPACE")):
            raise
    if make:
        replace_file(root / SETTINGS_FILE, NEW.encode())
        click.echo(f"made {root / SETTINGS_FILE}", err=True)
        return open_workspace(root, overrides)
    click.echo(f"no {SETTINGS_FILE} here: looking at {root} with default settings", err=True)
    settings = load_settings(None, root=root, overrides=overrides)
    return Workspace(root, settings, baseline_tag(settings.baseline))
