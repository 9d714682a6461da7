"""Durations in Slurm's formats."""

from __future__ import annotations

import pytest

from automate.cluster.own_job import _seconds
from automate.cluster.rehearsed.scenario import share_of
from automate.durations import in_words, seconds_of


@pytest.mark.parametrize(("text", "seconds"), [
    ("0", float("inf")), ("0:00", float("inf")), ("00:00:00", float("inf")), ("0-0", float("inf")),
    ("UNLIMITED", float("inf")), ("30", 1800), ("0:30", 30), ("01:00:00", 3600), ("1-2", 93600), ("0-00:10", 600)])
def test_no_time_is_no_limit_to_slurm(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


def test_a_moment_or_a_run_time_of_zero_is_zero() -> None:
    assert share_of("00:00", 100) == share_of("0", 100) == 0
    assert share_of("1:00", 100) == 60
    assert _seconds("00:00:00") == 0
    assert _seconds("UNLIMITED") is None
    assert in_words(seconds_of("0")) == "no limit"
