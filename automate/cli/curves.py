"""`curves`: scores over training steps, best checkpoints, how early one could have stopped; as text, files and plots.

No logic: options become settings, and what comes back is shown and written."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite
from automate.cli.results_options import (
    STYLES,
    result_target,
    score_options,
    source,
    source_options,
    style_option,
    write,
)

if TYPE_CHECKING:
    from automate.results.boards import Options
    from automate.results.reading.folder import BenchFolder
    from automate.results.training.data import Curves
    from automate.settings_results import Curves as Pattern

FORMATS = ("svg", "png")


def _formats(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, ...]:
    """`svg,png` as a tuple, each once."""
    named = tuple(dict.fromkeys(part.strip().lower() for part in value.split(",") if part.strip()))
    unknown = [name for name in named if name not in FORMATS]
    if unknown or not named:
        raise click.BadParameter(f"{', '.join(unknown) or 'nothing'}: known are {' and '.join(FORMATS)}")
    return named


@click.command()
@source_options
@click.option("--category", metavar="NAME", help="Only this category.")
@style_option
@score_options
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
    from automate.results.training.checkpoints import compile_pattern

    if as_json and csv_file == "-":
        raise click.UsageError("--csv and --json: choose one for the screen")
    place = source(workspace_dir, data, bench, judges)
    settings = place.pattern if pattern is None else place.pattern.model_copy(update={"pattern": pattern})
    groups = [name for name in compile_pattern(settings.pattern).groupindex if name not in ("run", "step")]
    if by not in ("run", *groups):
        raise click.UsageError(f"--by {by}: the pattern has no such group; it has {', '.join(['run', *groups])}")
    given = {"confidence": confidence, "rounds": rounds, "seed": seed}
    options = place.options(given, STYLES[style] if style else (), category)
    if csv_file not in (None, "-"):
        result_target(Path(str(csv_file)), place.inputs)
    found = _found(place.folder, place.judges, baseline, options, settings, threshold)
    _show(found, by, as_json, csv_file, place.inputs)
    if not no_plots:
        _plots(found, output or place.place, formats, place.inputs)
    ctx.exit(0 if found.runs else 1)


def _found(folder: BenchFolder, judges: tuple[str, ...], baseline: str | None, options: Options, settings: Pattern,
           threshold: float) -> Curves:
    from automate.results.reading.judgments import read_judgments
    from automate.results.reading.style import read_style, style_notes
    from automate.results.training.curves import curves as compute

    read = read_judgments(folder, folder.chosen_judges(judges), baseline=baseline)
    battles = read.battles
    style = read_style(folder, [*battles.models, *battles.baselines], battles.questions) if options.style else None
    found = compute(battles, options, settings.pattern, final_step=settings.final_step, style=style,
                    threshold=threshold)
    said = (*read.notes, *(style_notes(folder, style) if style is not None else ()))
    return replace(found, notes=(*found.notes, *said))


def _show(found: Curves, by: str, as_json: bool, csv_file: str | None, inputs: tuple[Path, ...]) -> None:
    if csv_file is not None:
        from automate.cli.views.curves_files import as_csv

        if csv_file == "-":
            click.echo(as_csv(found), nl=False)
            return
        write(Path(csv_file), as_csv(found).encode(), inputs)
    if as_json:
        import json

        from automate.cli.views.curves_files import as_json as document

        click.echo(json.dumps(document(found), indent=2, ensure_ascii=False, allow_nan=False))
        return
    from automate.cli.views.curves_text import lines, signs_for
    from automate.cli.views.live import text_width

    for line in lines(found, by, text_width(), signs_for(sys.stdout.encoding or "ascii")):
        click.echo(line)


def _plots(found: Curves, folder: Path, formats: tuple[str, ...], inputs: tuple[Path, ...]) -> None:
    """Write each plot in each format; nothing where there is no checkpoint."""
    from automate.results.plotting import pictures as plots

    for name in plots.titles(found):
        for kind in formats:
            content = plots.svg(found, name).encode() if kind == "svg" else plots.png(found, name)
            write(folder / f"{name}.{kind}", content, inputs)
