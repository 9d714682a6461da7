"""`leaderboard`: scores of judged models, from a workspace or from any Arena-Hard data folder.

No logic: options become a request, and what comes back is shown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite, SeveralCommand
from automate.cli.results_options import STYLES, options_of, score_options, source, source_options, style_option, write
from automate.errors import DataError, visible

if TYPE_CHECKING:
    from automate.results.reading.folder import BenchFolder
    from automate.results.scoring.tables import Request, Tables


@click.command(cls=SeveralCommand)
@source_options
@click.option("--judges-apart", is_flag=True, help="A table for each judge, and how far they agree.")
@click.option("--models", multiple=True, metavar="NAME...", help="Only these models.")
@click.option("--models-file", type=click.Path(path_type=Path, dir_okay=False), help="Only the models of this file.")
@click.option("--category", "categories", multiple=True, metavar="NAME",
              help="Only this category; several: a table for each.")
@style_option
@click.option("--compatible", is_flag=True, help="Print what Arena-Hard's own show_result.py prints.")
@click.option("--compare", nargs=2, metavar="A B", help="Only the difference of two models, on shared questions.")
@score_options
@click.option("--strong-weight", type=Finite(min=0, max=1000, min_open=True), metavar="X",
              help="How often a strong verdict (>>) counts.")
@click.option("--csv", "csv_file", is_flag=False, flag_value="-", type=click.Path(dir_okay=False, allow_dash=True),
              metavar="[FILE]", help="CSV, into FILE or instead of the table.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
@click.option("--markdown", is_flag=True, help="Markdown instead of the table.")
@click.option("--quality/--no-quality", default=True, help="Quality of the judge beside the scores (default: with it).")
@click.option("--battles", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="A v0.1 battles file, scored as its leaderboards were.")
@click.pass_context
def leaderboard(ctx: click.Context, workspace_dir: Path | None, data: Path | None, bench: str | None,
                judges: tuple[str, ...], judges_apart: bool, baseline: str | None, models: tuple[str, ...],
                models_file: Path | None, categories: tuple[str, ...], style: str | None, compatible: bool,
                compare: tuple[str, str] | None, confidence: float | None, rounds: int | None, seed: int | None,
                strong_weight: float | None, csv_file: str | None, as_json: bool, markdown: bool, quality: bool,
                battles: Path | None) -> None:
    """Show scores against the baseline, with intervals, ranks and the quality of the judge. Changes nothing.

    Intervals resample questions, not games, so that they hold what the word says. Models that the questions can't
    tell apart share a bracket and a range of ranks.
    """
    given = {"confidence": confidence, "rounds": rounds, "strong_weight": strong_weight}
    _check("--compatible" if compatible else None, {
        **given, "compare": compare, "csv": csv_file, "json": as_json, "markdown": markdown,
        "judges-apart": judges_apart})
    _check("--battles" if battles is not None else None, {
        "data": data, "workspace": workspace_dir, "bench": bench, "judge": judges, "judges-apart": judges_apart,
        "baseline": baseline, "models": models, "models-file": models_file, "category": categories,
        "style-control": style, "compare": compare, "strong-weight": strong_weight, **({"seed": seed} if compatible
                                                                                      else {})})
    if sum((as_json, markdown, csv_file == "-")) > 1:
        raise click.UsageError("--csv, --json and --markdown: choose one for the screen")
    if battles is not None and compatible:
        _published(battles)
        return
    from automate.results.scoring.tables import Request, battles_tables, make_tables

    if battles is not None:
        from automate.settings_results import Results

        found = battles_tables(battles, options_of(Results(), {**given, "seed": seed}))
        ctx.exit(_show(found, csv_file, as_json, markdown, (battles,)))
    place = source(workspace_dir, data, bench, judges)
    options = place.options({**given, "seed": seed}, STYLES[style] if style else ())
    request = Request(options, place.judges, _models(models, models_file), baseline, tuple(dict.fromkeys(categories)),
                      judges_apart, quality, compare or None)
    if compatible:
        ctx.exit(_compatible(place.folder, request))
    inputs = (*place.inputs, *(() if models_file is None else (models_file,)))
    ctx.exit(_show(make_tables(place.folder, request), csv_file, as_json, markdown, inputs))


def _check(mode: str | None, given: dict[str, object]) -> None:
    """Modes that fix something take no options that would change it."""
    clash = [f"--{name.replace('_', '-')}" for name, value in given.items() if value not in (None, (), False)]
    if mode and clash:
        raise click.UsageError(f"{mode} doesn't go with {', '.join(clash)}")


def _models(models: tuple[str, ...], models_file: Path | None) -> tuple[str, ...] | None:
    if not models and models_file is None:
        return None
    named = list(models)
    if models_file is not None:
        from automate.arena.benchmark import read_models_file

        found = read_models_file(models_file)
        for problem in found.problems:
            click.echo(visible(problem), err=True)
        if not found.names and not models:
            raise DataError("no models in it", where=str(models_file))
        named += found.names
    return tuple(dict.fromkeys(named))


def _compatible(folder: BenchFolder, request: Request) -> int:
    """The text of Arena-Hard's own program; what it would have stopped at goes to the other stream.

    The exit status is 1 where there is no game that it could score.
    """
    from automate.results.compatible.result import loading_lines, show_result
    from automate.results.reading.style import read_style
    from automate.results.reading.upstream import read_as_upstream

    judges = folder.chosen_judges(request.judges)
    found = read_as_upstream(folder, judges, request.models, baseline=request.baseline)
    for note in found.notes:
        click.echo(visible(note), err=True)
    battles, control = found.battles, request.options.style
    if not battles.complete.any():
        raise DataError(f"no game to score: {found.files:,} judgment files, {len(battles):,} rows of them used, none "
                        "with verdicts in both games", where=", ".join(str(folder.judgments / one) for one in judges),
                        todo="see what is missing with 'flock-hpc status', or name other models or another judge")
    style = read_style(folder, [*battles.models, *battles.baselines], battles.questions) if control else None
    usual = ("hard_prompt",) if "hard_prompt" in battles.categories else battles.categories
    text = show_result(battles, style, seed=request.options.seed, control=control,
                       category=request.categories or usual)
    click.echo(visible(f"{loading_lines(battles)}\n{text}"))
    return 0


def _published(path: Path) -> None:
    """A battles file's scores with the columns and digits of its published leaderboard."""
    from automate.cli.views.board_files import published_csv
    from automate.results.reading.battle_rows import read_battles
    from automate.results.scoring.published import published

    found = read_battles(path)
    for problem in found.problems:
        click.echo(visible(problem), err=True)
    click.echo(published_csv(published(found)), nl=False)


def _show(found: Tables, csv_file: str | None, as_json: bool, markdown: bool, inputs: tuple[Path, ...]) -> int:
    """Print in the form asked for; the exit status is 1 where there is no table at all."""
    from automate.cli.views import board_files

    status = 0 if any(table.board is not None for table in found.tables) else 1
    if csv_file is not None:
        comparisons = [table.comparison for table in found.tables if table.comparison is not None]
        text = board_files.comparison_csv(comparisons) if comparisons else board_files.as_csv(found)
        if csv_file == "-":
            click.echo(text, nl=False)
            return status
        write(Path(csv_file), text.encode(), inputs)
    if as_json:
        import json

        click.echo(json.dumps(board_files.as_json(found), indent=2, ensure_ascii=False, allow_nan=False))
    elif markdown:
        click.echo(board_files.as_markdown(found), nl=False)
    else:
        _print(found)
    return status


def _print(found: Tables) -> None:
    """The table for people: coloured on a terminal, plain in a pipe."""
    from rich.console import Console

    from automate.cli.views.board_rows import signs_for
    from automate.cli.views.board_text import lines, tally_lines
    from automate.cli.views.live import text_width

    width = text_width()
    console = Console(highlight=False, soft_wrap=True, markup=False, emoji=False)
    shown = lines(found, width, signs_for(sys.stdout.encoding or "ascii"))
    if all(table.board is None for table in found.tables):
        shown += [*([shown[0][:0]] if shown else []), *tally_lines(found, width)]
    for line in shown:
        console.print(line, soft_wrap=True, highlight=False)
