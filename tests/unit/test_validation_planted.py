"""Keys and tokens that tests plant are those that are searched for in all that tests left, at the end of a check."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
PLANTED = (TESTS / "rigs" / "planted.txt").read_text(encoding="utf-8").split()


@pytest.mark.parametrize("secret", PLANTED)
def test_each_is_planted_by_some_test(secret: str) -> None:
    assert any(secret in path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py"))


def test_the_keys_of_whole_circles_are_among_them() -> None:
    for path in ("e2e/test_validation_commands.py", "rigs/validation_storm.py", "validation/circle_rig.py"):
        text = (TESTS / path).read_text(encoding="utf-8")
        assert sum(secret in text for secret in PLANTED) == 2, path


def test_the_check_searches_for_them() -> None:
    assert "tests/rigs/planted.txt" in (TESTS.parent / ".ci" / "run").read_text(encoding="utf-8")
