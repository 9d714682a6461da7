"""A short storm over a campaign on a real Slurm; `make soak` is the long one."""

from __future__ import annotations

import random
from pathlib import Path

from tests.cluster.support import assert_played, campaign, played, submissions
from tests.e2e.support import Key, assert_nothing_runs, eventually
from tests.rigs.slurm import SlurmRig
from tests.rigs.storm import Driver, Storm

MIX = {"job cancelled": 1, "job killed": 1, "engine": 1, "guard": 1, "server": 1, "slurmd": 1, "slurmctld": 1,
       "node set down": 1}


def test_nothing_is_lost_or_played_twice_in_a_storm(rough: SlurmRig, tmp_path: Path, healthy: list[Key]) -> None:
    with campaign(rough, tmp_path / "storm", latency=1.2, concurrency=1,
                  limits={"resubmits": 50, "requeues": 50}) as one:
        driver, log = Driver(rough, one.root, one.log, "--batch-size", "1"), list[str]()
        try:
            storm = Storm(rough, one.root, random.Random(7), log.append, rest=4, mix=MIX)
            eventually(lambda: played(one.root) > 2, "a first game")
            storm.blow(len(MIX), (1, 3), driver.ended)
            eventually(driver.ended, "the campaign's end", timeout=300)
        finally:
            driver.end()
        assert storm.killed.total() == len(MIX), log
        assert_played(one.root, healthy)
        assert_nothing_runs(one.root)
        assert submissions(one.root)
