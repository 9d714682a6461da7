"""Gives the tests of this folder one real Slurm cluster for the whole session."""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.support import Campaign, campaign, played
from tests.e2e.support import EXAMPLES, Key, eventually, games_of, judge_now, kill, make_workspace, victims
from tests.rigs.required import missing
from tests.rigs.slurm import FOREIGN, SlurmRig, available

PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""

TWO_MINUTES: dict[str, Any] = {"latency": 1.4, "concurrency": 1, "time": "00:02:00",
                               "limits": {"drain": 15, "requeues": 5}}
"""72 games that take 100 s; the limit leaves 84 s for them."""


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmRig]:
    """A running cluster, with this process's environment pointing at it until the session ends.

    Where Slurm is not installed the tests are skipped, or fail if FLOCK_HPC_REQUIRE_REAL is 1.
    """
    if reason := available():
        missing(reason)
    with SlurmRig() as rig, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        for name, value in rig.env.items():
            patch.setenv(name, value)
        yield rig


@pytest.fixture(scope="session")
def rough() -> Iterator[SlurmRig]:
    """A second cluster, to break things in: preemption, small arrays, a short memory, nodes given up soon.

    This process's environment does not point at it: commands are given its `env`.
    """
    if reason := available():
        missing(reason)
    with SlurmRig(min_job_age=5, max_array_size=4, slurmd_timeout=15, message_timeout=5, requeue_delay=5,
                  kill_wait=10, extra=PREEMPTION) as rig:
        yield rig


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    """Every game of the example, played in peace on this machine."""
    root = make_workspace(tmp_path_factory.mktemp("healthy") / "example")
    judge_now(root, "--all")
    return games_of(root, EXAMPLES)


@pytest.fixture(scope="session")
def limited(slurm: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Campaign]]:
    """Campaigns whose time limit hits in the middle; they go on while other tests run."""
    folder = tmp_path_factory.mktemp("limited")
    with (campaign(slurm, folder / "requeue", **TWO_MINUTES) as requeue,
          campaign(slurm, folder / "successor", options={"no-requeue": True}, **TWO_MINUTES) as successor):
        both = {"requeue": requeue, "successor": successor}
        for one in both.values():
            one.follow()
        yield both


@pytest.fixture(scope="session")
def forgotten(rough: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Campaign]:
    """A campaign of three batches, one of them killed; slurmctld forgets all three, at most a minute after they ended.

    It looks once a minute, and begins anew where it is restarted.
    """
    with campaign(rough, tmp_path_factory.mktemp("forgotten") / "one", latency=0.7,
                  options={"no-requeue": True}) as one:
        done = one.flock("judge", "--all", "--batch-size", "1", "--submit", "--executor", "slurm")
        assert done.returncode == 0, done.stdout + done.stderr
        eventually(lambda: all(played(one.root, [model]) for model in EXAMPLES), "games of all batches")
        assert kill(victims(one.root)["engine"][0])
        yield one
