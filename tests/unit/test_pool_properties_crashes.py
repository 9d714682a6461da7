"""One play from money to rewards; a crash before each of its statements leaves the very state that no crash leaves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from automate.pools.audit import audit
from automate.pools.messages import Message
from tests.unit.pool_play import PLAY, Make, opened
from tests.unit.pool_support import ROWS, Bench, Crash

STEP = 1 if os.environ.get("FLOCK_HPC_POOL_EXAMPLES") else 7
"""Each statement, or one of so many; a prime, so that all kinds of statements come in their turn."""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """A workspace with a data set; its folder, and a copy of it as it was."""
    memory = Path("/dev/shm")
    root = Path(os.path.realpath(tmp_path_factory.mktemp("crashes")))
    if memory.is_dir():
        root = memory / f"pools-crashes-{os.getpid()}"
        root.mkdir(mode=0o700)
    with opened(root / "work") as bench:
        bench.dataset("siqa", rows=ROWS)
    shutil.copytree(root / "work", root / "copy")
    yield root / "work", root / "copy"
    shutil.rmtree(root)


def play(begun: tuple[Path, Path], crash: int | None) -> tuple[dict[str, list[tuple[object, ...]]], int]:
    """The whole play from the copy on, with a crash before this statement; all tables at the end, and how many
    statements there were."""
    work, copy = begun
    shutil.rmtree(work)
    shutil.copytree(copy, work)
    with opened(work) as bench:
        bench.trap.set(crash if crash is not None else 1 << 60)
        for step in PLAY:
            made = untrapped(bench, step)
            if made is not None:
                try:
                    bench.exchange.receive([made])
                except Crash:
                    bench.reopen()
                    bench.exchange.deliver()
                    bench.exchange.receive([made])
        count = (1 << 60) - (bench.trap.left or 0)
        bench.trap.left = None
        problems = [audit(bench.exchange, row["id"], bench.clock.now)["problems"] for row in bench.rows(
            "SELECT id FROM pools")]
        assert problems == [[]] and bench.one("SELECT state FROM pools") == "paid"
        return bench.dump(), count


def untrapped(bench: Bench, step: Make | Callable[[Bench], None]) -> Message | None:
    """Making a message looks into the database, which is no part of the program that dies."""
    left, bench.trap.left = bench.trap.left, None
    made = step(bench)
    bench.trap.left = left
    return made


def test_a_crash_before_any_statement_is_as_no_crash(begun: tuple[Path, Path]) -> None:
    whole, count = play(begun, None)
    assert whole == play(begun, None)[0], "the play itself is the same each time"
    assert count > 500
    tried = range(1, count + 1, STEP)
    assert [at for at in tried if play(begun, at)[0] != whole] == []
