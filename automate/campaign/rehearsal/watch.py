"""Follows a rehearsal's jobs as `--wait` does, tells what the scenario does to them, and gives up in time.

Never cancels; whoever rehearses does."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from automate.campaign.follow import Follower
from automate.campaign.state import CampaignState
from automate.cluster.local.executor import LocalCluster
from automate.cluster.queue import JobState
from automate.cluster.rehearsed.cluster import read_state
from automate.durations import in_words


class GaveUp(Exception):
    """The rehearsal takes far longer than it should."""


@dataclass
class Watched(Follower):
    """Follows the rehearsed jobs; tells what the scenario does, and gives up at a deadline (monotonic seconds)."""

    deadline: float = math.inf
    shown: int = 0

    def step(self) -> tuple[CampaignState, bool]:
        """One look. Raises GaveUp."""
        self.show()
        if time.monotonic() > self.deadline or self._stuck():
            raise GaveUp
        return super().step()

    def _stuck(self) -> bool:
        """Whether all that is left in the queue excludes every node."""
        jobs = LocalCluster(self.workspace.local_queue, self.workspace.root).queue.jobs()
        active = [job for job in jobs if JobState(job["state"]).active]
        return bool(active) and all(job.get("reason") == "BadConstraints" for job in active)

    def show(self) -> None:
        """Print what the scenario has done since the last look."""
        state = read_state(LocalCluster(self.workspace.local_queue, self.workspace.root).queue.cluster_file)
        for when, words in (state.log if state else [])[self.shown:]:
            self.shown += 1
            self.say(f"scenario, after {in_words(float(when))}: {words}")
