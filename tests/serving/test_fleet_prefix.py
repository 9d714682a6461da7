"""Two real vLLM servers as a fleet: affinity by question takes more of the prompts from their prefix caches."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.fleet_prefix import ROUTINGS, play, servers
from benchmarks.prefix_reuse import campaign
from benchmarks.support import BENCH
from tests.rigs.required import missing
from tests.rigs.vllm import available
from tests.serving.test_campaign import real_data

QUESTIONS = 20


@pytest.fixture
def folder() -> Iterator[Path]:
    """A short path: Unix sockets lie in it."""
    reason = available()
    if reason is not None:
        missing(reason)
    if not (real_data() / "data" / BENCH / "question.jsonl").is_file():
        missing("no real questions among the test data")
    found = Path(tempfile.mkdtemp(prefix="fhpc-"))
    yield found
    shutil.rmtree(found, ignore_errors=True)


def test_affinity_by_question_has_the_largest_share_from_the_prefix_caches(folder: Path) -> None:
    cut = campaign(folder / "w", QUESTIONS)
    shares = {}
    with servers(folder) as sockets:
        for routing in ROUTINGS:
            place = folder / routing
            place.mkdir()
            run = asyncio.run(play(cut, sockets, routing, place))
            assert run.played == 6 * QUESTIONS
            shares[routing] = run.share
    assert max(shares, key=lambda routing: shares[routing]) == "affinity", shares
