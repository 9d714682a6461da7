"""What the tests against a real vLLM share: one started server for the whole run."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rigs.vllm import TinyServer, available, real_parts_required


@pytest.fixture(scope="session")
def tiny_vllm() -> Iterator[TinyServer]:
    """A started server; its folder is a short one, because a Unix socket's path must be short."""
    reason = available()
    if reason is not None:
        if real_parts_required():
            pytest.fail(reason)
        pytest.skip(reason)
    folder = Path(tempfile.mkdtemp(prefix="flock-vllm-"))
    try:
        with TinyServer(folder / "tiny.sock", ("--enable-prompt-tokens-details",)) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
