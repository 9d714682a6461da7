"""Slurm's reasons for a wait, in words."""

from __future__ import annotations

import pytest

from automate.campaign.follow import NEVER
from automate.campaign.monitoring.reasons import explain


@pytest.mark.parametrize(("code", "words"), [
    ("Priority", "other jobs of the partition come first"), ("Resources", "waits for free nodes"),
    ("BeginTime", "begin time"), ("Dependency", "another job"), ("JobArrayTaskLimit", "as the campaign allows"),
    ("PartitionTimeLimit", "more time than the partition allows"),
    ("ReqNodeNotAvail, UnavailableNodes:c[1-9]", "down, drained or reserved"),
    ("(ReqNodeNotAvail, May be reserved for other job)", "down, drained or reserved"),
    ("Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions", "reserved for"),
    ("launch failed requeued held", "could not be started on its node"),
    ("QOSMaxJobsPerUserLimit", "the QOS's limit of running jobs for each user is reached"),
    ("QOSMaxSubmitJobPerUserLimit", "the QOS's limit of submitted jobs for each user is reached"),
    ("QOSMaxGRESPerUser", "the QOS's limit of GPUs for each user is reached"),
    ("QOSMaxCpuPerUserLimit", "the QOS's limit of CPU cores for each user is reached"),
    ("QOSMaxWallDurationPerJobLimit", "asks for more than the QOS's limit of run time for one job"),
    ("QOSGrpNodeLimit", "the QOS's limit of nodes is reached"),
    ("QOSGrpGRES", "the QOS's limit of GPUs is reached"),
    ("QOSJobLimit", "the QOS's limit of running jobs is reached"),
    ("QOSMinGRES", "asks for less than the QOS's least of GPUs"),
    ("AssocGrpGRES", "the account's limit of GPUs is reached"),
    ("AssocGrpCPUMinutesLimit", "the account's time budget for CPU cores is used up"),
    ("AssocGrpGRESRunMinutes", "the account's time budget for GPUs is used up"),
    ("AssocGrpBillingMinutes", "the account's time budget for billed units is used up"),
    ("AssocMaxJobsLimit", "the account's limit of running jobs is reached"),
    ("AssocGrpMemLimit", "the account's limit of memory is reached"),
    ("MaxGRESPerAccount", "the limit of GPUs for each account is reached"),
    ("", "")])
def test_reasons_are_said_in_words(code: str, words: str) -> None:
    assert words in explain(code).words
    assert bool(explain(code).words) is bool(words)


@pytest.mark.parametrize("code", sorted(NEVER))
def test_what_never_ends_by_itself_has_advice(code: str) -> None:
    reason = explain(code)
    assert reason.never
    assert reason.advice


@pytest.mark.parametrize("code", ["QOSMaxMemoryPerJob", "QOSMinCpuNotSatisfied", "AssocMaxCpuPerJobLimit"])
def test_a_request_over_a_limit_for_one_job_never_starts(code: str) -> None:
    assert explain(code).never


@pytest.mark.parametrize("code", ["Priority", "Resources", "QOSMaxJobsPerUserLimit", "AssocGrpGRES", "BeginTime"])
def test_a_wait_that_ends_by_itself_is_no_fault(code: str) -> None:
    assert not explain(code).never


@pytest.mark.parametrize("code", ["SomethingNew", "MaxiTaxi", "[red]x[/]", "QOS", "Assoc"])
def test_an_unknown_reason_is_shown_as_slurm_wrote_it(code: str) -> None:
    assert explain(code).words == code
