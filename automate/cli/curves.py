"""`curves`: scores over training steps, best checkpoints, how early one could have stopped; as text, files and plots.

No logic: options become settings, and what comes back is shown and written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.leaderboard import STYLES
from automate.cli.options import Finite, workspace_option

if TYPE_CHECKING:
    from automate.results.boards import Options
    from automate.results.curves_data import Curves
    from automate.results.folder import BenchFolder
    from automate.settings_results import Curves as Pattern
    from automate.settings_results import Results

FORMATS = ("svg", "png")


def _formats(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """`svg,png` as a tuple, each once."""
    named = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",") if part.strip()))
    unknown = [name for name in named if name not in FORMATS]
    if unknown or not named:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}: known are {' and '.join(FORMATS)}")
    return named


@click.command()
@workspace_option
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="An Arena-Hard data folder instead of a workspace.")
@click.option("--bench", metavar="NAME", help="The bench (default: the settings', or the only one in DIR).")
@click.option("--judge", "judges", multiple=True, metavar="NAME", help="The judge; several are pooled.")
@click.option("--baseline", metavar="MODEL", help="Only games against this model.")
@click.option("--category", metavar="NAME", help="Only this category.")
@click.option("--style-control", "style", is_flag=False, flag_value="both", type=click.Choice(list(STYLES)),
              help="As if answers had the same length, markdown, or both (default).")
@click.option("--confidence", type=Finite(min=0, max=100, min_open=True, max_open=True), metavar="PERCENT",
              help="Of every interval (default: the settings').")
@click.option("--rounds", type=click.IntRange(min=10, max=1_000_000), metavar="N", help="Rounds of the bootstrap.")
@click.option("--seed", type=click.IntRange(min=0, max=2**32 - 1), metavar="N", help="Seed of the bootstrap.")
@click.option("--pattern", metavar="REGEX", help="How names are read, with the groups (?P<run>...) and (?P<step>...) "
              "(default: curves.pattern of the settings).")
@click.option("--by", default="run", show_default=True, metavar="GROUP",
              help="Rows of the table: run, or means by a group of the pattern (rank, lr, ...).")
@click.option("--threshold", type=Finite(min=-1, max=1), default=0.9, show_default=True, metavar="X",
              help="Spearman's correlation at which two rankings count as the same.")
@click.option("--csv", "csv_file", is_flag=False, flag_value="-", type=click.Path(dir_okay=False, allow_dash=True),
              metavar="[FILE]", help="Everything as CSV, into FILE or instead of the tables.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the tables.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="Where plots are written (default: results/ of the workspace, or of this folder).")
@click.option("--format", "formats", default="svg,png", show_default=True, callback=_formats, metavar="svg,png",
              help="File formats of the plots.")
@click.option("--no-plots", is_flag=True, help="Write no plots.")
@click.pass_context
def curves(ctx: click.Context, workspace_dir: Path | None, data: Path | None, bench: str | None,
           judges: tuple[str, ...], baseline: str | None, category: str | None, style: str | None,
           confidence: float | None, rounds: int | None, seed: int | None, pattern: str | None, by: str,
           threshold: float, csv_file: str | None, as_json: bool, output: Path | None, formats: tuple[str, ...],
           no_plots: bool) -> None:
    """Score over training steps with intervals, by run, rank or learning rate, as tables and plots.

    Also the best checkpoint of each run and group with how sure that is, and from which step on the runs' ranking
    stayed like the final one. Writes plots (--no-plots: none) and changes nothing else.
    """
    from automate.results.checkpoints import compile_pattern

    if as_json and csv_file == "-":
        raise click.UsageError("--csv and --json: choose one for the screen")
    folder, results, settings, named, place = _source(workspace_dir, data, bench, judges)
    settings = settings if pattern is None else settings.model_copy(update={"pattern": pattern})
    groups = [name for name in compile_pattern(settings.pattern).groupindex if name not in ("run", "step")]
    if by not in ("run", *groups):
        raise click.UsageError(f"--by {by}: the pattern has no such group; it has {', '.join(['run', *groups])}")
    given = {"confidence": confidence, "rounds": rounds, "seed": seed}
    options = _options(results, given, STYLES[style] if style else (), category)
    found = _found(folder, named, baseline, options, settings, threshold)
    _show(found, by, as_json, csv_file)
    if not no_plots:
        _plots(found, output or place, formats)
    ctx.exit(0 if found.runs else 1)


def _source(workspace_dir: Path | None, data: Path | None, bench: str | None,
            judges: tuple[str, ...]) -> tuple[BenchFolder, Results, Pattern, tuple[str, ...], Path]:
    """The bench folder, the settings of results and of names, the judges, and where plots go."""
    from automate.cli.options import open_here
    from automate.results.folder import of_data, of_workspace
    from automate.settings_results import Curves as Pattern
    from automate.settings_results import Results

    if data is not None:
        if workspace_dir is not None:
            raise click.UsageError("--data and --workspace don't go together")
        return of_data(data, bench), Results(), Pattern(), judges, Path("results")
    workspace = open_here(workspace_dir, bench=bench)
    settings = workspace.settings
    return (of_workspace(workspace), settings.results, settings.curves, judges or (settings.judge.name,),
            workspace.results)


def _options(results: Results, given: dict[str, float | int | None], style: tuple[str, ...],
             category: str | None) -> Options:
    from automate.results.boards import Options

    values = results.model_dump() | {name: value for name, value in given.items() if value is not None}
    return Options(style=style, category=category, **values)


def _found(folder: BenchFolder, judges: tuple[str, ...], baseline: str | None, options: Options, settings: Pattern,
           threshold: float) -> Curves:
    from automate.results.curves import curves as compute
    from automate.results.reading import read_judgments, read_style, style_notes

    read = read_judgments(folder, folder.chosen_judges(judges), baseline=baseline)
    battles = read.battles
    style = read_style(folder, [*battles.models, *battles.baselines], battles.questions) if options.style else None
    found = compute(battles, options, settings.pattern, final_step=settings.final_step, style=style,
                    threshold=threshold)
    said = (*read.notes, *(style_notes(folder, style) if style is not None else ()))
    return replace(found, notes=(*found.notes, *said))


def _show(found: Curves, by: str, as_json: bool, csv_file: str | None) -> None:
    if csv_file is not None:
        from automate.cli.views.curves_files import as_csv

        if csv_file == "-":
            click.echo(as_csv(found), nl=False)
            return
        _write(Path(csv_file), as_csv(found).encode())
    if as_json:
        import json

        from automate.cli.views.curves_files import as_json as document

        click.echo(json.dumps(document(found), indent=2, ensure_ascii=False, allow_nan=False))
        return
    from automate.cli.views.curves_text import lines, signs_for
    from automate.cli.views.live import text_width

    for line in lines(found, by, text_width(), signs_for(sys.stdout.encoding or "ascii")):
        click.echo(line)


def _plots(found: Curves, folder: Path, formats: tuple[str, ...]) -> None:
    """Write each plot in each format; nothing where there is no checkpoint."""
    from automate.results import plots

    for name in plots.titles(found):
        for kind in formats:
            content = plots.svg(found, name).encode() if kind == "svg" else plots.png(found, name)
            _write(folder / f"{name}.{kind}", content)


def _write(path: Path, content: bytes) -> None:
    """Replace a file whole; what was written is said on the other stream, so that --json stays JSON."""
    from automate.errors import visible
    from automate.journal import replace_file

    replace_file(path, content)
    click.echo(visible(f"written: {path}"), err=True)
