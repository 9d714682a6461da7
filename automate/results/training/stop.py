"""From which step on training could have been stopped without changing the runs' ranking, and how far to rely on it.

Decides nothing: it says from which step on a correlation stays above a threshold, and what speaks against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from automate.results.training.data import Settled, Stop
from automate.results.training.rounds import MIN_RUNS

FEW_RUNS = 6
"""With fewer runs than this the text says how easily chance brings the same ranking about."""
TOO_FEW_RUNS = 4
"""With fewer runs than this chance does so more often than once in twenty times, and nothing is called safe."""


def stop(settled: Sequence[Settled], threshold: float, confidence: float, runs: int) -> Stop:
    """The first step from which the correlation, and its interval's lower end, stay at `threshold` or above."""
    known = [one for one in settled if not math.isnan(one.correlation)]
    if not known:
        return Stop(threshold, None, None, _unknown(settled, runs))
    by_value = _first(known, lambda one: one.correlation >= threshold)
    by_bound = _first(known, lambda one: one.low >= threshold)
    reliable = min(one.runs for one in known) >= TOO_FEW_RUNS
    return Stop(threshold, by_value, by_bound,
                " ".join([*_found(by_value, by_bound, threshold, confidence, reliable), *_doubts(settled, known)]))


def _first(known: Sequence[Settled], good: Callable[[Settled], bool]) -> str | None:
    """The column from which on all are good."""
    found = None
    for one in reversed(known):
        if not good(one):
            break
        found = one.column
    return found


def _unknown(settled: Sequence[Settled], runs: int) -> str:
    if not runs:
        return "No checkpoints, so there is no ranking."
    if not settled:
        return "No run has a step before its end, so no ranking can be compared with the final one."
    most = max(one.runs for one in settled)
    if most < MIN_RUNS:
        return (f"Too few runs to compare rankings: at most {most} with a step and an end, and {MIN_RUNS} are the "
                f"least; with {MIN_RUNS} to {FEW_RUNS - 1} chance still has a good part in it.")
    return ("All runs have the same score at each step or at the end, or too few questions in common: there is no "
            "ranking to compare.")


def _found(by_value: str | None, by_bound: str | None, threshold: float, confidence: float,
           reliable: bool) -> list[str]:
    if by_value is None:
        return [f"At no step before the end does the ranking of the runs stay like the final one "
                f"(Spearman {threshold:g} or more): training could not have been stopped earlier."]
    said = [f"From step {by_value} on the ranking of the runs stays like the final one (Spearman {threshold:g} or "
            f"more)."]
    if by_bound is None:
        return [*said, f"It is not sure: at no step does the lower end of the {confidence:g} % interval stay that "
                       f"high."]
    since = "" if by_bound == by_value else f" from step {by_bound} on"
    said.append(f"The lower end of the {confidence:g} % interval stays that high{since or ' as well'}.")
    return [*said, f"By this measure stopping at step {by_bound} was safe."] if reliable else said


def _doubts(settled: Sequence[Settled], known: Sequence[Settled]) -> list[str]:
    doubts = []
    fewest = min(one.runs for one in known)
    if fewest < FEW_RUNS:
        too_few = ", too few to rely on" if fewest < TOO_FEW_RUNS else ""
        doubts.append(f"Only {fewest} runs are compared{too_few}: rankings that have nothing to do with each other "
                      f"agree wholly in 1 of {math.factorial(fewest)} cases.")
    left_out = [one.column for one in settled if math.isnan(one.correlation)]
    if left_out:
        doubts.append(f"No correlation at step {', '.join(left_out)}: fewer than {MIN_RUNS} runs there, all equal, "
                      "or too few questions in common.")
    if len({one.runs for one in known}) > 1:
        most = max(one.runs for one in known)
        doubts.append(f"Not all steps have the same runs ({fewest} to {most}).")
    return doubts
