"""What the monitor needs of Slurm's words: when a job begins, and who cancelled it."""

from __future__ import annotations

from automate.cluster.queue import parse_sacct, parse_squeue


def test_squeue_says_when_a_waiting_job_begins() -> None:
    text = ("1|PENDING|0:00|1||test|alice|BeginTime;2026-11-21T09:34:40|a|b\n"
            "2|RUNNING|0:04|1|n1|test|alice|None;2026-11-21T09:29:40|name\n"
            "3|PENDING|0:00|1||test|alice|Priority;N/A|name\n4|PENDING|0:00|1||test|alice|Priority|name")
    assert [(one.job, one.reason, one.begins, one.name) for one in parse_squeue(text)] == [
        ("1", "BeginTime", "2026-11-21T09:34:40", "a|b"), ("2", "", "", "name"), ("3", "Priority", "", "name"),
        ("4", "Priority", "", "name")]


def test_sacct_says_who_cancelled_a_job() -> None:
    text = "2|CANCELLED by 1000|0:0|00:00:04|n1|1|test|alice|None|name\n3|CANCELLED|0:0|0:04|n1|1|t|alice|None|name"
    assert [(one.state.value, one.reason) for one in parse_sacct(text)] == [("CANCELLED", "by 1000"), ("CANCELLED", "")]
