"""What a test does where a real part is missing: it skips with the reason, or fails where none may be missing."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test, or fail it where FLOCK_HPC_REQUIRE_REAL is set."""
    if os.environ.get("FLOCK_HPC_REQUIRE_REAL", "") not in ("", "0"):
        pytest.fail(reason)
    pytest.skip(reason)
