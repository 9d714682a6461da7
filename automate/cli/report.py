"""`report`: one page to send to a colleague, of a workspace or of any Arena-Hard data folder.

Parses and calls; computes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from automate.cli.results_options import Source, result_target, score_options, source, source_options

if TYPE_CHECKING:
    from automate.results.boards import Options
    from automate.results.reporting.report import Extent

Games = int | Literal["all"] | None

KINDS = {"both": ("length", "markdown"), "length": ("length",), "markdown": ("markdown",), "none": ()}


class _Games(click.ParamType[Games]):
    """A number of questions, or `all`."""

    name = "N|all"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Games:
        text = str(value)
        if text == "all":
            return "all"
        if not text.isdecimal() or len(text) > 9:
            self.fail(f"{text!r} is neither a number of questions nor 'all'.", param, ctx)
        return int(text)


@click.command("report")
@source_options
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where the page goes (default: results/report.html of the workspace, or report.html here).")
@click.option("--category", metavar="NAME", help="Only questions of this category.")
@click.option("--style-control", "style", type=click.Choice(list(KINDS)), default="both",
              show_default=True, help="What the style-controlled scores take out.")
@score_options
@click.option("--games", type=_Games(), metavar="N|all",
              help="Questions a model in the page (default: as many as fit into 25 MB, disagreements first).")
def report(workspace_dir: Path | None, output: Path | None, data: Path | None, bench: str | None,
           judges: tuple[str, ...], baseline: str | None, category: str | None, style: str, confidence: float | None,
           rounds: int | None, seed: int | None, games: Games) -> None:
    """Write one self-contained HTML page: leaderboard, categories, curves, judge quality, and the games themselves."""
    place = source(workspace_dir, data, bench, judges, baseline=baseline)
    options = place.options({"confidence": confidence, "rounds": rounds, "seed": seed}, category=category)
    if output is not None:
        result_target(output, place.inputs)  # before the work, not after it
    _tell(_written(place, output, options, _extent(place, games, KINDS[style], baseline)))


def _extent(place: Source, games: Games, style: tuple[str, ...], baseline: str | None) -> Extent:
    from automate.results.reporting.report import Extent

    extent = Extent(games=games if isinstance(games, int) else None, style=style, baseline=baseline,
                    curves=place.pattern)
    return extent if games is None else replace(extent, room=None)


def _written(place: Source, output: Path | None, options: Options, extent: Extent) -> Path:
    """Write the page and return its path."""
    if place.workspace is not None:
        from automate.campaign.reporting import report_of_workspace

        return report_of_workspace(place.workspace, output, judges=place.judges, options=options, extent=extent)
    from automate.results.reporting.facts import of_data
    from automate.results.reporting.report import write_report

    judges = place.folder.chosen_judges(place.judges)
    return write_report(place.folder, judges, output or Path("report.html"), options, of_data(judges), extent=extent)


def _tell(path: Path) -> None:
    from automate.errors import visible
    from automate.results.reporting.output import target
    from automate.results.reporting.page import size_text

    if target(path).descriptor is None:  # the page itself is on the screen otherwise
        click.echo(f"wrote {visible(str(path))} ({size_text(path.stat().st_size)})")
