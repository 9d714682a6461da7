"""What refused messages leave behind: little, however much came."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.errors import PoolError
from automate.pools.messages import HTTP_TAG_LENGTH
from tests.unit.pool_support import opened


def test_tags_of_a_refused_message_are_cut(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        receipt = bench.send("eve", "pool", "Join-Pool", {"dataset": "no", "model": "no"}, X_Long="y" * 500_000,
                             X_Short="s")
        assert receipt.state == "refused"
        (row,) = bench.rows("SELECT tags FROM messages WHERE id = ?", receipt.id)
        assert len(row["tags"]) < 500
        assert '"X-Short":"s"' in row["tags"]
        assert "[500000 characters, SHA-256 " in row["tags"]
        assert '"Action":"Join-Pool"' in row["tags"]
        assert bench.exchange.receive([bench.message("eve", "token", "Balance")])[0].state == "handled"


def test_tags_of_a_handled_message_are_kept(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        receipt = bench.send("eve", "token", "Balance", X_Long="y" * 9_000)
        assert receipt.state == "handled"
        assert "y" * 9_000 in bench.one("SELECT tags FROM messages WHERE id = ?", receipt.id)


def test_tags_over_http_are_short(tmp_path: Path) -> None:
    with opened(tmp_path) as bench:
        bench.message("eve", "token", "Balance", X_Long="y" * 60_000, via="http")
        bench.message("eve", "token", "Balance", X_Long="y" * HTTP_TAG_LENGTH, via="local")
        with pytest.raises(PoolError, match="tags of more than"):
            bench.message("eve", "token", "Balance", X_Long="y" * HTTP_TAG_LENGTH, via="http")
