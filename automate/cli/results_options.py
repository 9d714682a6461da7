"""What `leaderboard`, `curves` and `report` have in common: where judgments come from, how scores are computed.

Collects what was typed; computes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from automate.cli.options import Finite, open_here, workspace_option
from automate.yamlfile import Value

if TYPE_CHECKING:
    from automate.results.boards import Options
    from automate.results.reading.folder import BenchFolder
    from automate.results.reporting.output import Target
    from automate.settings_results import Curves, Results
    from automate.workspace import Workspace

F = TypeVar("F", bound=Callable[..., Any])

MOST_ROUNDS = 100_000
"""More take hours and change no digit that is shown."""

STYLES = {"length": ("length",), "markdown": ("markdown",), "both": ("markdown", "length")}


def _options(*given: Callable[[F], F]) -> Callable[[F], F]:
    def apply(function: F) -> F:
        for option in reversed(given):  # so that help lists them in this order
            function = option(function)
        return function

    return apply


def source_options(function: F) -> F:
    """Which judgments: of a workspace, or of any Arena-Hard data folder."""
    return _options(
        workspace_option,
        click.option("--data", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
                     help="An Arena-Hard data folder instead of a workspace."),
        click.option("--bench", metavar="NAME", help="The bench (default: the settings', or the only one in DIR)."),
        click.option("--judge", "judges", multiple=True, metavar="NAME", help="The judge; several are pooled."),
        click.option("--baseline", metavar="MODEL", help="Only games against this model."),
    )(function)


def score_options(function: F) -> F:
    """How scores and intervals are computed."""
    return _options(
        click.option("--confidence", type=Finite(min=0, max=100, min_open=True, max_open=True), metavar="PERCENT",
                     help="Of every interval (default: the settings')."),
        click.option("--rounds", type=click.IntRange(min=10, max=MOST_ROUNDS), metavar="N",
                     help=f"Rounds of the bootstrap, at most {MOST_ROUNDS:,}."),
        click.option("--seed", type=click.IntRange(min=0, max=2**32 - 1), metavar="N", help="Seed of the bootstrap."),
    )(function)


def style_option(function: F) -> F:
    """`--style-control [KIND]`: off where it isn't given, both where no kind is."""
    return click.option("--style-control", "style", is_flag=False, flag_value="both", type=click.Choice(list(STYLES)),
                        help="As if answers had the same length, markdown, or both (default).")(function)


@dataclass(frozen=True)
class Source:
    """Where judgments are and by which settings they are taken. `workspace` None: a data folder; `judges` empty: the
    only one there is; `place`: the folder for files that are made."""

    folder: BenchFolder
    results: Results
    pattern: Curves
    judges: tuple[str, ...]
    place: Path
    workspace: Workspace | None = None

    @property
    def inputs(self) -> tuple[Path, ...]:
        """What results are computed from, so that none is written over it."""
        own = () if self.workspace is None else (
            self.workspace.settings_file, self.workspace.models_file, self.workspace.bench.parent)
        return (self.folder.path, *own)

    def options(self, given: Mapping[str, float | int | None], style: tuple[str, ...] = (),
                category: str | None = None) -> Options:
        """The settings' options with what was typed (None: not typed) over them."""
        return options_of(self.results, given, style, category)


def options_of(results: Results, given: Mapping[str, float | int | None], style: tuple[str, ...] = (),
               category: str | None = None) -> Options:
    """Settings as options, with what was typed (None: not typed) over them."""
    from automate.results.boards import Options

    values = results.model_dump() | {name: value for name, value in given.items() if value is not None}
    return Options(style=style, category=category, **values)


def source(workspace_dir: Path | None, data: Path | None, bench: str | None, judges: tuple[str, ...],
           **overrides: Value) -> Source:
    """A workspace with its settings (`overrides` over them), or a data folder with the default ones."""
    from automate.results.reading.folder import of_data, of_workspace
    from automate.settings_results import Curves, Results

    if data is not None:
        if workspace_dir is not None:
            raise click.UsageError("--data and --workspace don't go together")
        return Source(of_data(data, bench), Results(), Curves(), judges, Path("results"))
    workspace = open_here(workspace_dir, bench=bench, **overrides)
    settings = workspace.settings
    return Source(of_workspace(workspace), settings.results, settings.curves, judges or (settings.judge.name,),
                  workspace.results, workspace)


def result_target(path: Path, inputs: Iterable[Path]) -> Target:
    """Where a result goes; a folder that will be made for it is said. Raises DataError, StorageError."""
    from automate.errors import visible
    from automate.results.reporting.output import target

    found = target(path, inputs)
    if found.makes is not None:
        click.echo(visible(f"making the folder {found.makes}"), err=True)
    return found


def write(path: Path, content: bytes, inputs: Iterable[Path] = ()) -> None:
    """Replace a file whole; what was written is said on the other stream, so that what is piped stays clean.

    Never one of `inputs`, nor below one. Raises DataError, StorageError.
    """
    from automate.errors import visible

    result_target(path, inputs).write(content)
    click.echo(visible(f"written: {path}"), err=True)
