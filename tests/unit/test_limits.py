"""Limits on submitted jobs: read as Slurm 22.05 printed them, and never thought larger than they are."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.cluster import asking
from automate.cluster.asking import is_node, known_users
from automate.cluster.limits import (
    Asked,
    Limit,
    Queued,
    Room,
    SubmitLimits,
    below,
    chain,
    limit_words,
    max_tasks,
    parse_queued,
    room,
    submit_limits,
)

CONFIG = """\
Configuration data as of 2026-11-21T08:46:25
AccountingStorageEnforce = associations,limits,qos
AccountingStorageType   = accounting_storage/slurmdbd
ClusterName             = flock
MaxArraySize            = 1001
SchedulerParameters     = batch_sched_delay=0,sched_interval=2,bf_interval=2
"""
USERS = """\
User|Def Acct|Cluster|Account|Partition|QOS|Def QOS|MaxSubmit|GrpSubmit
root|flock|flock|child||normal,over,small||9|
root|flock|flock|flock||normal,small|||
root|flock|other|flock||normal,small||1|1
"""
ACCOUNTS = """\
Account|User|ParentName|GrpSubmit
root|||
flock||root|
parent||root|50
child||parent|30
"""
QOS = """\
Name|MaxSubmitPU|MaxSubmitPA|GrpSubmit|Flags
normal||||
small|2|||
part||5|7|
over|40|||OverPartQOS
"""
PARTITION = ("PartitionName=test AllowGroups=ALL AllowQos=ALL Default=YES QoS=N/A MaxTime=UNLIMITED Nodes=n[1-2] "
             "State=UP TotalNodes=2")
ME = Asked("root")


def limits_of(asked: Asked, config: str = CONFIG, partition: str = PARTITION, users: str = USERS) -> dict[str, int]:
    found = submit_limits(asked, config, users, ACCOUNTS, QOS, partition).limits
    return {limit.name.replace(f"={limit.most}", ""): limit.most for limit in found}


def test_the_limit_of_a_qos_and_those_above_an_account() -> None:
    assert limits_of(replace(ME, qos="small")) == {"MaxSubmitJobsPerUser of QOS small": 2}
    assert limits_of(replace(ME, account="child")) == {
        "MaxSubmitJobs of root in account child": 9, "GrpSubmitJobs of account child": 30,
        "GrpSubmitJobs of account parent": 50}
    assert limits_of(ME) == {}


def test_a_limit_of_the_qos_hides_that_of_the_association() -> None:
    found = limits_of(Asked("root", "child", "small"))
    assert "MaxSubmitJobs of root in account child" not in found
    assert found["MaxSubmitJobsPerUser of QOS small"] == 2


def test_the_partitions_qos_wins_unless_the_jobs_says_otherwise() -> None:
    partition = PARTITION.replace("QoS=N/A", "QoS=small")
    name = "MaxSubmitJobsPerUser of QOS small, the QOS of partition test"
    assert limits_of(ME, partition=partition) == {name: 2}
    assert limits_of(replace(ME, qos="normal"), partition=partition) == {name: 2}
    assert limits_of(replace(ME, qos="over"), partition=partition) == {"MaxSubmitJobsPerUser of QOS over": 40}


def test_the_default_qos_counts_where_none_is_asked_for() -> None:
    users = USERS.replace("normal,small|||", "normal,small|small||")
    assert limits_of(ME, users=users) == {"MaxSubmitJobsPerUser of QOS small": 2}


@pytest.mark.parametrize("enforce", ["none", "associations", "associations,qos"])
def test_limits_that_nobody_enforces_are_none(enforce: str) -> None:
    config = CONFIG.replace("associations,limits,qos", enforce)
    assert limits_of(Asked("root", "child", "small"), config) == {}


def test_without_accounting_nothing_is_known() -> None:
    assert submit_limits(ME, "", "", "", "", "") == SubmitLimits((), None)
    assert submit_limits(replace(ME, qos="small"), CONFIG, "", "", "", "").limits == ()


def test_what_counts_against_each_limit() -> None:
    jobs = [Queued("root", "child", "small", "test"), Queued("root", "flock", "normal", "test,short"),
            Queued("anna", "child", "small", "test"), Queued("anna", "parent", "normal", "short")]
    for limit, count in (
        (Limit("user", 9, user="root"), 2), (Limit("qos", 9, user="root", qos="small"), 1),
        (Limit("group", 9, qos="small"), 2), (Limit("account", 9, accounts=frozenset({"child", "parent"})), 3),
        (Limit("partition", 9, partition="short"), 2),
    ):
        assert room(SubmitLimits((limit,)), jobs).jobs == 9 - count, limit.name
    both = SubmitLimits((Limit("wide", 9, user="root"), Limit("tight", 3, user="root")))
    assert room(both, jobs) == Room(1, "tight; 2 count now")
    assert room(SubmitLimits(), jobs) == Room()


@given(st.lists(st.integers(0, 20)), st.integers(0, 30))
def test_room_is_never_negative_nor_more_than_any_limit_leaves(most: list[int], jobs: int) -> None:
    limits = SubmitLimits(tuple(Limit(str(number), number, user="u") for number in most))
    free = room(limits, [Queued("u", "a", "q", "p")] * jobs).jobs
    assert free == (max(0, min(most) - jobs) if most else None)


def test_an_account_and_its_family() -> None:
    parents = {"child": "parent", "parent": "root", "root": "", "flock": "root"}
    assert chain("child", parents) == ["child", "parent", "root"]
    assert below("parent", parents) == {"parent", "child"}
    assert chain("a", {"a": "b", "b": "a"}) == ["a", "b"]  # an answer that makes no sense ends too


@pytest.mark.parametrize(("config", "tasks"), [
    (CONFIG, 1000), (CONFIG.replace("bf_interval=2", "max_array_tasks=40,bf_interval=2"), 40),
    (CONFIG.replace("1001", "1"), None), ("", None),
    (CONFIG.replace("1001", "31").replace("sched_interval=2", "max_array_tasks=99"), 30)])
def test_tasks_of_an_array(config: str, tasks: int | None) -> None:
    assert max_tasks(config) == tasks


@pytest.mark.parametrize(("words", "limit"), [
    ("sbatch: error: QOSMaxSubmitJobPerUserLimit sbatch: error: Batch job submission failed: Job violates "
     "accounting/QOS policy (job submit limit, user's size and/or time limits)", "QOSMaxSubmitJobPerUserLimit"),
    ("sbatch: error: AssocMaxSubmitJobLimit sbatch: error: Batch job submission failed: Job violates",
     "AssocMaxSubmitJobLimit"),
    ("sbatch: error: AssocGrpSubmitJobsLimit", "AssocGrpSubmitJobsLimit"),
    ("Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
     "Slurm's accounting or QOS policy"),
    ("sbatch: error: QOSMaxWallDurationPerJobLimit sbatch: error: Batch job submission failed: Job violates "
     "accounting/QOS policy (job submit limit, user's size and/or time limits)", None),
    ("sbatch: error: Batch job submission failed: Invalid qos specification", None),
    ("sbatch: error: Batch job submission failed: Invalid node name specified", None)])
def test_a_refusal_is_for_want_of_room_only_where_slurm_says_so(words: str, limit: str | None) -> None:
    assert limit_words(words) == limit


def test_lines_of_squeue() -> None:
    assert parse_queued("root|flock|small|test\n\nodd\nroot|a|b|test,short\n") == [
        Queued("root", "flock", "small", "test"), Queued("root", "a", "b", "test,short")]


@pytest.mark.parametrize(("name", "good"), [
    ("n1", True), ("c-12.cluster_a", True), ("", False), ("-n1", False), ("n[1-9]", False), ("n1,n2", False),
    ("n1 --wrap=x", False), ("n1\n", False), ("$(id)", False), (None, False), (7, False), ("n" * 64, False)])
def test_names_of_nodes(name: object, good: bool) -> None:
    assert is_node(name) is good


def test_only_names_of_users_are_given_to_squeue() -> None:
    assert known_users(["anna", "b.c-d@site", "x,y", "--me", "", "anna", "$(id)"]) == ["anna", "b.c-d@site"]


# --- asking, with commands of our own ----------------------------------------------------------------
def commands(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> Path:
    """Put commands on PATH, and no others; what they were given stands in the log that is returned."""
    log = folder / "calls"
    for name, body in scripts.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> {log}\n{body}\n')
        path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/bin:/usr/bin" if scripts else str(folder))
    return log


def test_each_thing_is_asked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("config", CONFIG), ("users", USERS), ("accounts", ACCOUNTS), ("qos", QOS), ("part", PARTITION)):
        (tmp_path / name).write_text(text)
    log = commands(
        tmp_path, monkeypatch, scontrol=f'case "$*" in *config*) cat {tmp_path}/config;; *) cat {tmp_path}/part;; esac',
        sacctmgr=f'case "$3" in user) cat {tmp_path}/users;; assoc) cat {tmp_path}/accounts;; '
                 f'*) cat {tmp_path}/qos;; esac',
        squeue="printf 'root|child|small|test\\nroot|flock|normal|test\\n'")
    found = asking.ask(Asked("root", None, "small"))
    assert [limit.most for limit in found.limits] == [2]
    assert room(found, asking.queued(found, "root")).jobs == 1
    calls = log.read_text().split("\n")[:-1]
    assert len(calls) == 6
    assert re.search(r"^squeue .*-u root", calls[-1])


def test_where_the_commands_fail_no_limit_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch, scontrol="exit 1", sacctmgr="echo no >&2; exit 1")
    assert asking.ask(Asked("root", None, "small")) == SubmitLimits()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert asking.ask(ME) == SubmitLimits()
    assert asking.usable_nodes("test") is None
    assert asking.partitions() is None


def test_nodes_that_are_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands(tmp_path, monkeypatch, sinfo="printf 'n1|idle\\nn2|drained*\\nn3|mix\\nn4|down*\\nbad name|idle\\n'")
    assert asking.usable_nodes("test") == {"n1", "n3"}


def test_everybodys_jobs_are_looked_at_where_two_people_share_a_workspace(tmp_path: Path,
                                                                          monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.cluster.queue import look

    log = commands(tmp_path, monkeypatch, squeue="echo '1|RUNNING|0:10|1|n1|p|anna|None|mine'", sacct="true")
    assert look(["1", "2"], users=["anna"])["1"].user == "anna"
    squeue, sacct = log.read_text().split("\n")[:2]
    assert re.search(rf"-u (anna,{asking.me()}|{asking.me()},anna) ", squeue)
    assert "--allusers" in sacct
    log.unlink()
    look(["1", "2"])
    assert "--me" in log.read_text()
    assert "--allusers" not in log.read_text()
