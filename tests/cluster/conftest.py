"""Gives the tests of this folder one real Slurm cluster for the whole session."""

import os
from collections.abc import Iterator

import pytest

from tests.rigs.slurm import FOREIGN, SlurmRig, available


@pytest.fixture(scope="session")
def slurm() -> Iterator[SlurmRig]:
    """A running cluster, with this process's environment pointing at it until the session ends.

    Where Slurm is not installed the tests are skipped, or fail if FLOCK_HPC_REQUIRE_REAL is 1.
    """
    if reason := available():
        if os.environ.get("FLOCK_HPC_REQUIRE_REAL") == "1":
            pytest.fail(f"FLOCK_HPC_REQUIRE_REAL=1, but {reason}", pytrace=False)
        pytest.skip(reason)
    with SlurmRig() as rig, pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            patch.delenv(name)
        for name, value in rig.env.items():
            patch.setenv(name, value)
        yield rig
