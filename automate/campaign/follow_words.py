"""How batches that are followed are spoken of, and whether one goes on by itself.

Only looks at what is known of a batch."""

from __future__ import annotations

from automate.arena.running.gpu_hours import number
from automate.campaign.kinds import kind_of
from automate.campaign.state import BatchView

SUCCESSOR_GRACE = 180.0
"""Seconds in which a job that goes on by itself may be in nobody's list: between its end and its next start."""


def name_of(view: BatchView) -> str:
    """How a batch is called: the numbers of judging and of generation batches are not the same."""
    return f"{'answers batch' if view.kind == 'generate' else 'batch'} {view.batch.number}"


def logs_command(view: BatchView) -> str:
    """The command that shows a batch's logs."""
    return f"flock-hpc logs {view.batch.number}{' --answers' if view.kind == 'generate' else ''}"


def things_of(view: BatchView) -> str:
    """What a batch makes: games, or answers."""
    return kind_of(view.kind).things


def cause_of(view: BatchView) -> str:
    """The first line of what a batch's job said went wrong, in brackets; empty where it said nothing."""
    said = str((view.run or {}).get("error") or "").partition("\n")[0]
    return f" ({said})" if said else ""


def goes_on_itself(view: BatchView, now: float) -> bool:
    """Whether a batch's job said a moment ago that it goes on: requeued, by a successor, or by Slurm.

    A job that was cancelled since does not, whatever it said.
    """
    after = (view.run or {}).get("next")
    if view.state == "cancelled":
        return False
    if not isinstance(after, dict) or after.get("kind") not in ("requeue", "successor", "slurm"):
        return False
    said = number(view.run or {}, "updated") or 0.0
    return abs(now - said) < SUCCESSOR_GRACE
