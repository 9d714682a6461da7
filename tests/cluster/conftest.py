"""Gives the tests of this folder one real Slurm cluster for the whole session."""

import os
from collections.abc import Iterator

import pytest

from tests.e2e.support import EXAMPLES, Key, games_of, judge_now, make_workspace
from tests.rigs.slurm import FOREIGN, SlurmRig, available

PREEMPTION = """
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=low Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=1 PreemptMode=REQUEUE GraceTime=5
PartitionName=high Nodes=n1,n2 MaxTime=INFINITE State=UP PriorityTier=10 PreemptMode=OFF
"""


def refuse(reason: str) -> None:
    """Skip the test, or fail it where none may be missing."""
    if os.environ.get("FLOCK_HPC_REQUIRE_REAL") == "1":
        pytest.fail(f"FLOCK_HPC_REQUIRE_REAL=1, but {reason}", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmRig]:
    """A running cluster, with this process's environment pointing at it until the session ends.

    Where Slurm is not installed the tests are skipped, or fail if FLOCK_HPC_REQUIRE_REAL is 1.
    """
    if reason := available():
        refuse(reason)
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
        refuse(reason)
    with SlurmRig(min_job_age=5, max_array_size=4, slurmd_timeout=15, message_timeout=5, requeue_delay=5,
                  kill_wait=10, extra=PREEMPTION) as rig:
        yield rig


@pytest.fixture(scope="session")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> list[Key]:
    """Every game of the example, played in peace on this machine."""
    root = make_workspace(tmp_path_factory.mktemp("healthy") / "example")
    judge_now(root, "--all")
    return games_of(root, EXAMPLES)
