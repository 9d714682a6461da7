"""`report`: one page to send to a colleague, of a workspace or of any Arena-Hard data folder.

Parses and calls; computes nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from automate.cli.options import Finite, open_here, workspace_option

if TYPE_CHECKING:
    from automate.results.boards import Options
    from automate.results.report import Extent

Games = int | Literal["all"] | None


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
@workspace_option
@click.option("--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE",
              help="Where the page goes (default: results/report.html of the workspace, or report.html here).")
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
              help="An Arena-Hard data folder instead of a workspace.")
@click.option("--bench", metavar="NAME", help="The bench in that folder (default: the only one).")
@click.option("--judge", "judges", multiple=True, metavar="NAME", help="The judge; several times to pool judges.")
@click.option("--baseline", metavar="MODEL", help="Only games against this model.")
@click.option("--category", metavar="NAME", help="Only questions of this category.")
@click.option("--style-control", "style", type=click.Choice(["both", "length", "markdown", "none"]), default="both",
              show_default=True, help="What the style-controlled scores take out.")
@click.option("--confidence", type=Finite(min=0, max=100, min_open=True, max_open=True), metavar="PERCENT",
              help="Level of the intervals (default: the settings' 95).")
@click.option("--rounds", type=click.IntRange(min=10), metavar="N", help="Bootstrap rounds (default: 1,000).")
@click.option("--seed", type=click.IntRange(min=0, max=2**32 - 1), metavar="N", help="Seed of the bootstrap.")
@click.option("--games", type=_Games(), metavar="N|all",
              help="Questions a model in the page (default: as many as fit into 25 MB, disagreements first).")
def report(workspace_dir: Path | None, output: Path | None, data: Path | None, bench: str | None,
           judges: tuple[str, ...], baseline: str | None, category: str | None, style: str, confidence: float | None,
           rounds: int | None, seed: int | None, games: Games) -> None:
    """Write one self-contained HTML page: leaderboard, categories, curves, judge quality, and the games themselves."""
    from automate.results.boards import Options

    given = _Given(judges, baseline, category, style, confidence, rounds, seed, games)
    if data is not None:
        if workspace_dir is not None:
            raise click.UsageError("give --data or --workspace, not both")
        path = _of_data(data, bench, output or Path("report.html"), given, Options())
    else:
        path = _of_workspace(workspace_dir, bench, output, given)
    _tell(path)


class _Given:
    """What was typed, to be laid over the settings' options."""

    def __init__(self, judges: tuple[str, ...], baseline: str | None, category: str | None, style: str,
                 confidence: float | None, rounds: int | None, seed: int | None, games: Games) -> None:
        self.judges, self.baseline, self.category, self.style, self.games = judges, baseline, category, style, games
        self.numbers = {"confidence": confidence, "rounds": rounds, "seed": seed}

    def options(self, options: Options) -> Options:
        confidence, rounds, seed = (self.numbers[name] for name in ("confidence", "rounds", "seed"))
        return replace(options, category=self.category,
                       confidence=options.confidence if confidence is None else float(confidence),
                       rounds=options.rounds if rounds is None else int(rounds),
                       seed=options.seed if seed is None else int(seed))

    def extent(self, extent: Extent) -> Extent:
        style: dict[str, tuple[str, ...]] = {"both": ("length", "markdown"), "none": ()}
        games = self.games if isinstance(self.games, int) else None
        return replace(extent, games=games, room=extent.room if self.games is None else None,
                       style=style.get(self.style, (self.style,)), baseline=self.baseline)


def _of_data(data: Path, bench: str | None, output: Path, given: _Given, options: Options) -> Path:
    from automate.results.folder import of_data
    from automate.results.report import Extent, write_report
    from automate.results.report_facts import of_data as facts_of_data

    folder = of_data(data, bench)
    judges = folder.chosen_judges(given.judges)
    return write_report(folder, judges, output, given.options(options), facts_of_data(judges),
                        extent=given.extent(Extent()))


def _of_workspace(workspace_dir: Path | None, bench: str | None, output: Path | None, given: _Given) -> Path:
    from automate.campaign.reporting import options_of, report_of_workspace
    from automate.results.report import Extent

    workspace = open_here(workspace_dir, bench=bench, baseline=given.baseline)
    extent = Extent(curves=workspace.settings.curves)
    return report_of_workspace(workspace, output, judges=given.judges, options=given.options(options_of(workspace)),
                               extent=given.extent(extent))


def _tell(path: Path) -> None:
    from automate.errors import visible
    from automate.results.report_page import size_text

    click.echo(f"wrote {visible(str(path))} ({size_text(path.stat().st_size)})")
