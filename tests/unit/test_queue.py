"""Slurm's words: read as they are, and never taken for more than they say."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.cluster.base import expand_log
from automate.cluster.queue import (
    SACCT_FIELDS,
    SQUEUE_FORMAT,
    JobState,
    JobStatus,
    job_alive,
    look,
    parse_sacct,
    parse_squeue,
    parse_state,
    resolve,
)
from automate.cluster.slurm import SlurmCluster, advice, compress, max_array_size, parse_submitted
from automate.errors import ClusterError, SubmitError

SQUEUE = """\
123_4|RUNNING|15:30|1|c1|capella|user|None|judge-array-1a2b3c
123_5|PENDING|0:00|1||capella|user|QOSMaxGRESPerUser|judge-array-1a2b3c
124|PENDING|0:00|2||capella|user|(Resources, or not)|judge-batch-1-1a2b3c
125|COMPLETING|1-02:03:04|1|c[1-3,7]|capella,long|user|None|a|b|c
126|FAILED|0:03|1|c2|capella|user|NonZeroExitCode|judge batch
"""
SACCT = """\
130|COMPLETED|0:0|00:10:00|c1|1|capella|user|None|judge-batch-1-1a2b3c
131|CANCELLED by 0|0:0|00:00:00|None assigned|1|capella|user|None|judge-batch-2-1a2b3c
132|OUT_OF_ME+|0:125|00:01:00|c2|1|capella|user|None|a|b
133_1|TIMEOUT|0:0|02:00:01|c3|1|capella|user|TimeLimit|judge-array-1a2b3c
133_2|NODE_FAIL|1:0|01:00:00|c4|1|capella|user|None|judge-array-1a2b3c
134|REQUEUED|0:0|00:00:10|c4|1|capella|user|None|twice
134|RUNNING|0:0|00:00:20|c5|1|capella|user|None|twice
133_[3-9%2]|PENDING|0:0|00:00:00|None assigned|1|capella|user|None|judge-array-1a2b3c
"""


# States


@pytest.mark.parametrize(("text", "state"), [
    *((state.value, state) for state in JobState), ("CANCELLED by 1000", JobState.CANCELLED),
    ("CANCELLED+", JobState.CANCELLED), ("OUT_OF_ME+", JobState.OUT_OF_MEMORY), (" running ", JobState.RUNNING),
    ("CONFIGURING", JobState.RUNNING), ("REQUEUE_HOLD", JobState.PENDING), ("SPECIAL_EXIT", JobState.PENDING),
    ("STAGE_OUT", JobState.COMPLETING), ("STOPPED", JobState.SUSPENDED), ("REVOKED", JobState.CANCELLED),
    ("", JobState.UNKNOWN), ("+", JobState.UNKNOWN), ("NEW_IN_30", JobState.UNKNOWN), ("R", JobState.UNKNOWN),
])
def test_states(text: str, state: JobState) -> None:
    assert parse_state(text) is state


def test_every_state_but_unknown_is_active_or_ended() -> None:
    for state in JobState:
        assert state.active + state.ended == (state is not JobState.UNKNOWN)
        assert state.active or not state.queued
    assert [state for state in JobState if state.queued] == [JobState.PENDING, JobState.REQUEUED]


# squeue and sacct


def test_squeues_lines() -> None:
    found = parse_squeue(SQUEUE)
    assert [(job.job, job.state) for job in found] == [
        ("123_4", JobState.RUNNING), ("123_5", JobState.PENDING), ("124", JobState.PENDING),
        ("125", JobState.COMPLETING), ("126", JobState.FAILED)]
    assert found[0] == JobStatus("123_4", JobState.RUNNING, "squeue", "judge-array-1a2b3c", "", "15:30", "c1", "1",
                                 "capella", "user")
    assert (found[1].reason, found[1].nodes) == ("QOSMaxGRESPerUser", "")
    assert (found[3].name, found[3].nodes, found[3].elapsed) == ("a|b|c", "c[1-3,7]", "1-02:03:04")
    assert found[4].name == "judge batch"


def test_saccts_lines() -> None:
    found = parse_sacct(SACCT)
    assert [(job.job, job.state.value) for job in found] == [
        ("130", "COMPLETED"), ("131", "CANCELLED"), ("132", "OUT_OF_MEMORY"), ("133_1", "TIMEOUT"),
        ("133_2", "NODE_FAIL"), ("134", "REQUEUED"), ("134", "RUNNING"), ("133_[3-9%2]", "PENDING")]
    assert (found[2].name, found[2].exit_code, found[2].evidence) == ("a|b", "0:125", "sacct")
    assert (found[3].reason, found[0].reason) == ("TimeLimit", "")


@pytest.mark.parametrize("text", ["", "\n\n", "slurm_load_jobs error: Unable to contact slurm controller", "1|2|3"])
def test_what_is_no_job_is_passed_over(text: str) -> None:
    assert parse_squeue(text) == []
    assert parse_sacct(text) == []


@settings(deadline=None)
@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc"]), max_size=20).map(str.strip))
def test_a_name_may_hold_anything_but_a_line_break(name: str) -> None:
    assert SQUEUE_FORMAT.endswith("%j") and SACCT_FIELDS.endswith("JobName")
    assert [job.name for job in parse_squeue(f"1|RUNNING|0:01|1|c1|p|u|None|{name}\n")] == [name]
    assert [job.name for job in parse_sacct(f"1|RUNNING|0:0|0:01|c1|1|p|u|None|{name}\n")] == [name]


# Who knows what became of a job


def test_squeue_goes_before_sacct_and_nobody_is_unknown() -> None:
    queue = [JobStatus("1", JobState.RUNNING, "squeue"), JobStatus("9_1", JobState.PENDING, "squeue")]
    accounting = [JobStatus("1", JobState.COMPLETED, "sacct"), JobStatus("2", JobState.REQUEUED, "sacct"),
                  JobStatus("2", JobState.FAILED, "sacct")]
    found = resolve(["1", "2", "3", "9_1", "9_2", "9"], queue, accounting, "nobody knows it")
    assert {job: (status.state.value, status.evidence) for job, status in found.items()} == {
        "1": ("RUNNING", "squeue"), "2": ("FAILED", "sacct"), "3": ("UNKNOWN", "nobody knows it"),
        "9_1": ("PENDING", "squeue"), "9_2": ("UNKNOWN", "nobody knows it"), "9": ("PENDING", "squeue")}
    unknown = found["3"].state
    assert not unknown.active and not unknown.ended


@pytest.mark.parametrize("state", ["RUNNING", "PENDING"])
def test_a_job_that_the_controller_does_not_hold_is_gone_whatever_accounting_says(state: str) -> None:
    accounting = [JobStatus("2", JobState(state), "sacct", "name"), JobStatus("3", JobState.FAILED, "sacct")]
    found = resolve(["2", "3"], [JobStatus("1", JobState.RUNNING, "squeue")], accounting, "nobody knows it", gone=True)
    lost = found["2"]
    assert (lost.state, lost.gone, lost.may_act, lost.name) == (JobState.UNKNOWN, True, False, "name")
    assert lost.evidence == f"squeue doesn't know it, though sacct says {state}"
    assert found["3"].state is JobState.FAILED
    assert resolve(["2"], [], accounting, "not asked")["2"].state.value == state


class Commands:
    """Slurm's commands in a folder of their own, as small shell scripts; nothing else is on PATH."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    monkeypatch.setenv("PATH", str(tmp_path))
    return Commands(tmp_path)


def test_without_slurm_every_job_is_unknown(commands: Commands) -> None:
    (status,) = look(["1"]).values()
    assert (status.state, status.gone, status.may_act) == (JobState.UNKNOWN, False, True)
    assert "squeue" in status.evidence
    assert job_alive("1") is None
    assert look([]) == {}


def test_sacct_is_asked_for_those_that_squeue_lost(commands: Commands, tmp_path: Path) -> None:
    commands("squeue", "echo '1|RUNNING|0:01|1|c1|p|u|None|x'")
    assert look(["1"])["1"].state is JobState.RUNNING
    lost = look(["1", "2"])["2"]
    assert (lost.state, lost.gone, lost.may_act) == (JobState.UNKNOWN, True, False)
    assert "squeue doesn't know it, and no command 'sacct'" in lost.evidence
    commands("sacct", f"echo \"$*\" > {tmp_path}/asked; echo '2|FAILED|1:0|0:01|c1|1|p|u|None|x'")
    found = look(["1", "2", "3_4", "3_5"])
    assert [found[job].state.value for job in ("1", "2", "3_4")] == ["RUNNING", "FAILED", "UNKNOWN"]
    assert found["3_4"].evidence == "neither squeue nor sacct knows it"
    assert " -j 2,3" in (tmp_path / "asked").read_text()
    commands("sacct", "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    assert "accounting storage is disabled" in look(["2"])["2"].evidence
    commands("squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert {(status.state, status.gone) for status in look(["1", "2"]).values()} == {(JobState.UNKNOWN, False)}


def test_jobs_are_looked_up_by_their_names_too(commands: Commands) -> None:
    commands("squeue", "printf '%s\\n' '1|RUNNING|0:01|1|c1|p|u|None|x' '2|PENDING|0:01|1|c1|p|u|None|y' "
             "'3|PENDING|0:01|1|c1|p|u|None|z'")
    commands("sacct", "true")
    assert {job: status.state.value for job, status in look(["2", "9"], ["x"]).items()} == {
        "1": "RUNNING", "2": "PENDING", "9": "UNKNOWN"}


@pytest.mark.parametrize(("body", "alive"), [
    ("echo RUNNING", True), ("echo PENDING", True), ("echo COMPLETED", False), ("printf 'FAILED\\nRUNNING\\n'", True),
    ("echo NEW_IN_30", None), ("true", False),
    ("echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1", False),
    ("echo 'Unable to contact slurm controller' >&2; exit 1", None), ("echo 'Socket timed out' >&2; exit 1", None),
])
def test_whether_a_job_lives(commands: Commands, body: str, alive: bool | None) -> None:
    commands("squeue", body)
    assert job_alive("1") is alive


# Submitting


@pytest.mark.parametrize(("text", "job"), [
    ("123\n", "123"), ("123;cluster\n", "123"), ("Site: 3 jobs left today\n123\n", "123"),
    ("123\nsbatch: your project has 17 hours left\n", "123"), ("", None), ("sbatch: error: no\n", None),
    ("Submitted batch job 123\n", None), ("  123  \n", "123"), ("12a\n", None), ("123_4\n", None),
])
def test_the_id_of_a_submitted_job(text: str, job: str | None) -> None:
    assert parse_submitted(text) == job


@pytest.mark.parametrize(("numbers", "text"), [
    ([], ""), ([3], "3"), ([1, 2, 3], "1-3"), ([7, 1, 3, 2, 2], "1-3,7"), ([0, 2, 4], "0,2,4"),
    ([1, 2, 4, 5], "1-2,4-5"),
])
def test_numbers_are_compressed(numbers: list[int], text: str) -> None:
    assert compress(numbers) == text


@settings(deadline=None)
@given(st.lists(st.integers(0, 50)))
def test_compressed_numbers_are_all_there(numbers: list[int]) -> None:
    found: list[int] = []
    for part in compress(numbers).split(",") if numbers else []:
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    assert found == sorted(set(numbers))


def test_sbatch_is_called_once_with_the_script(commands: Commands, tmp_path: Path) -> None:
    commands("sbatch", f"echo \"$*\" >> {tmp_path}/asked; echo 'Site message'; echo '77;capella'")
    cluster = SlurmCluster()
    script = tmp_path / "a script.sh"
    assert cluster.submit(script, "name", [], None) == "77"
    assert cluster.submit(script, "name", [1, 2, 3, 9], 4) == "77"
    assert (tmp_path / "asked").read_text() == f"--parsable {script}\n--parsable --array=1-3,9%4 {script}\n"


@pytest.mark.parametrize("words", [
    "sbatch: error: invalid partition specified: x", "sbatch: error: Batch job submission failed: Invalid account",
])
def test_a_refusal_carries_slurms_words(commands: Commands, tmp_path: Path, words: str) -> None:
    commands("sbatch", f"echo '{words}' >&2; exit 1")
    with pytest.raises(SubmitError) as refused:
        SlurmCluster().submit(tmp_path / "x.sh", "name", [], None)
    assert words in refused.value.what
    assert refused.value.todo == advice(words)
    assert "slurm." in advice(words)


def test_an_answer_without_an_id_is_no_submission(commands: Commands, tmp_path: Path) -> None:
    commands("sbatch", "echo 'Submitted batch job 5'")
    with pytest.raises(SubmitError):
        SlurmCluster().submit(tmp_path / "x.sh", "name", [], None)


def test_jobs_are_found_by_their_name(commands: Commands) -> None:
    commands("squeue", "printf '%s\\n' '12_1|PENDING|0:00|1||p|u|None|x' '12_2|PENDING|0:00|1||p|u|None|x' "
             "'9|PENDING|0:00|1||p|u|None|x|y'")
    assert SlurmCluster().find("x", 0) == ["12"]
    commands("sacct", "echo '3|FAILED|1:0|0:01|c1|1|p|u|None|x'")
    assert SlurmCluster().find("x", 0) == ["3", "12"]
    commands("squeue", "exit 1")
    with pytest.raises(ClusterError, match="squeue failed"):
        SlurmCluster().find("x", 0)


def test_the_largest_array(commands: Commands) -> None:
    assert max_array_size() == 1001
    commands("scontrol", "printf 'Configuration data\\nMaxArraySize            = 5001\\nMaxJobCount = 10000\\n'")
    assert max_array_size() == 5001


# Logs


@pytest.mark.parametrize(("pattern", "job", "path"), [
    ("/l/judge-batch-1_%j_x.out", "123", "/l/judge-batch-1_123_x.out"),
    ("/l/judge-batch-%a_%A_%a.out", "123_4", "/l/judge-batch-4_123_4.out"),
    ("/100%%/%%j_%j.out", "5", "/100%/%j_5.out"),
    ("/l/%A_%a", "7", "/l/7_0"),
    ("/l/%%%j", "local-3", "/l/%local-3"),
])
def test_a_logs_path(pattern: str, job: str, path: str) -> None:
    assert expand_log(pattern, job) == Path(path)
