"""Options that several commands share, and how they become settings and models.

No logic of their own: they collect what was typed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from automate.workspace import Workspace, find_root, open_workspace
from automate.yamlfile import Value

F = TypeVar("F", bound=Callable[..., Any])


class Finite(click.FloatRange):
    """A number within a range that is neither `nan` nor infinite."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


class SeveralCommand(click.Command):
    """A command whose `--models` takes several names up to the next option: `--models A B --submit`."""

    several = frozenset({"--models"})

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, spread(args, self.several))


def spread(args: Sequence[str], several: frozenset[str]) -> list[str]:
    """`--models A B` written as `--models A --models B`."""
    out: list[str] = []
    current: str | None = None
    first = False
    for position, word in enumerate(args):
        if word == "--":
            return [*out, *args[position:]]
        if word in several:
            current, first = word, True
            out.append(word)
        elif current and not first and not word.startswith("-"):
            out += [current, word]
        else:
            current = current if first else None
            first = False
            out.append(word)
    return out


def workspace_option(function: F) -> F:
    """`--workspace DIR`: the workspace, if it is not the current folder or one above it."""
    return click.option("--workspace", "workspace_dir", type=click.Path(path_type=Path, file_okay=False),
                        help="The workspace (default: this folder or one above it).")(function)


def _apply(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):  # so that help lists them in this order
        function = option(function)
    return function


def naming_options(function: F) -> F:
    """How models are named, and where jobs run."""
    return _apply(function, (
        click.option("--all", "all_models", is_flag=True, help="Every model of the models file."),
        click.option("--models", multiple=True, metavar="NAME...", help="These models."),
        click.option("--models-file", type=click.Path(path_type=Path, dir_okay=False),
                     help="Names from this file instead, one a line."),
        click.option("--from-api-config", is_flag=False, flag_value="", default=None, metavar="[GLOB]",
                     help="Names from api_config.yaml that match GLOB (default: models_pattern of the settings)."),
        click.option("--limit-questions", type=click.IntRange(min=1), metavar="N",
                     help="Only the first N questions: a smoke run."),
        click.option("--executor", type=click.Choice(["auto", "slurm", "local"]),
                     help="Where jobs run (default: Slurm if it is on this machine, else here)."),
    ))


def selection_options(function: F) -> F:
    """How models are selected for judging."""
    return naming_options(_apply(function, (
        click.option("--missing", is_flag=True, help="Only models whose games are not all played."),
        click.option("--baseline", help="Judge against this model instead of the settings' baseline."),
    )))


def batch_options(function: F) -> F:
    """What is done with batches."""
    return _apply(function, (
        click.option("--batch-size", type=click.IntRange(min=1), metavar="N",
                     help="Models a job (default: the settings' 10)."),
        click.option("--dry-run", is_flag=True,
                     help="Write scripts and configs and say what they would do; submit nothing."),
        click.option("--submit", "submit_", is_flag=True, help="Submit the jobs."),
        click.option("--wait", is_flag=True, help="With --submit: follow the jobs to their end."),
        click.option("--skip-missing", is_flag=True,
                     help="Leave models out that are not ready, and go on with the others."),
        click.option("--max-parallel", type=click.IntRange(min=1), metavar="N", help="At most N batches at once."),
        click.option("--max-gpu-hours", type=Finite(min=0, min_open=True), metavar="N",
                     help="The campaign takes at most N GPU-hours (default: limits.max_gpu_hours)."),
        click.option("--array/--no-array", "array", default=None, help="One array job (default), or one job a batch."),
    ))


def fleet_option(function: F) -> F:
    """`--fleet N` or `--fleet N..M`."""
    return click.option(
        "--fleet", metavar="N[..M]",
        help="Play on a fleet of N servers of the judge (N to M as needed) that load it once, by one engine job "
             "without a GPU.")(function)


def open_here(workspace_dir: Path | None, **overrides: Value) -> Workspace:
    """The workspace of a command, with the flags that were given."""
    root = find_root(workspace_dir)
    return open_workspace(root, {name: value for name, value in overrides.items() if value is not None})
