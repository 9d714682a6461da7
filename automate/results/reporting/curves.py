"""The report's part on training curves: plots as pictures, best checkpoints and how early one could stop as text.

Never scores anything itself; `training/` does."""

from __future__ import annotations

from automate.results.battles import Battles
from automate.results.boards import Options
from automate.results.reporting.content import CurvesPart, Picture
from automate.results.reporting.summary import listed, percent, points
from automate.results.scoring.scores import Scored
from automate.settings_results import Curves as Settings


def curves_part(battles: Battles, options: Options, settings: Settings, scored: Scored) -> CurvesPart | None:
    """Pictures and tables, or None where no name is a checkpoint's. Raises ConfigError for the pattern."""
    from automate.results.plotting import pictures as plots
    from automate.results.training import curves

    found = curves.curves(battles, options, settings.pattern, final_step=settings.final_step, found=scored)
    if not found.runs:
        return None
    pictures = tuple(Picture(title, f"Plot: {title}", plots.svg(found, name).encode())
                     for name, title in plots.titles(found).items())
    rows = tuple((best.group, best.value, best.point.checkpoint.model, points(best.point.score),
                  f"{points(best.point.low)} to {points(best.point.high)}", percent(best.share, 0), str(best.of))
                 for best in found.bests)
    heads = ("best by", "value", "checkpoint", "score", f"{options.confidence:g} % interval", "best in so many rounds",
             "of checkpoints")
    notes = [found.stop.text]
    if found.unmatched:
        notes.append(f"{len(found.unmatched)} names are no checkpoints by curves.pattern: "
                     f"{listed(found.unmatched, 8)}.")
    if found.scoreless:
        notes.append(f"{len(found.scoreless)} checkpoints have no score: {listed(found.scoreless, 8)}.")
    told = {*scored.board.warnings, *scored.board.notes}
    notes += [note for note in found.notes if note not in told]
    return CurvesPart(pictures, heads, rows, tuple(note for note in notes if note))
