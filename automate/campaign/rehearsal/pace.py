"""How fast this machine starts jobs just now, and the scale that it can keep up with.

Measures only; a scale that somebody asked for is never changed."""

from __future__ import annotations

import subprocess
import sys
import time

from automate.cluster.rehearsed.scenario import Scenario
from automate.durations import in_words

STEPS = 2.0
"""A start of a job is about so many starts of Python one after the other: the engine's, and its judge's."""
ROOM = 0.75
"""The part of a load that starting may take."""
_PROBE = "import automate.arena.running.job, automate.serving.rehearsal"


def start_cost(at_once: int) -> float:
    """Seconds until this many jobs that start together have started here."""
    began = time.monotonic()
    probes = [subprocess.Popen([sys.executable, "-c", _PROBE], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL) for _ in range(max(1, min(at_once, 32)))]
    for probe in probes:
        probe.wait()
    return STEPS * (time.monotonic() - began)


def fitting_scale(scenario: Scenario, cost: float) -> float:
    """The scenario's scale, or a smaller one at which a job starts well within its load time."""
    quickest = min(map(scenario.load_of, scenario.nodes.all))
    return max(1.0, min(scenario.scale, float(int(quickest * ROOM / cost))))


def fit(scenario: Scenario, at_once: int, *, asked: bool) -> tuple[Scenario, list[str]]:
    """The scenario at a scale that fits this machine, and what is to be said of it. `asked`: its scale stays."""
    cost = start_cost(at_once)
    scale = fitting_scale(scenario, cost)
    if scale >= scenario.scale:
        return scenario, []
    why = f"starting {at_once} job(s) takes this machine {cost:.1f} s just now"
    if asked:
        return scenario, [f"{why}: at scale {scenario.scale:g} that is {in_words(cost * scenario.scale)}, which is not "
                          f"rehearsed right; --scale {scale:g} would be"]
    return scenario.model_copy(update={"scale": scale}), [f"{why}: the scale is {scale:g} instead of "
                                                          f"{scenario.scale:g}, so it takes longer here"]
