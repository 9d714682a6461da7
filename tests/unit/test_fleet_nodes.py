"""Deaths of fleets' servers count for bad nodes as those of batches do."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.campaign.nodes import bad_nodes, forgive, node_table, remember_failed_jobs
from automate.cluster.queue import JobState, JobStatus
from automate.cluster.submit import Submission
from automate.fleet_places import FleetPlaces
from automate.fleets.ending import NODE_FAILED
from automate.fleets.jobs import WorkerJob
from automate.workspace import Workspace
from tests.unit.fleet_control_support import FakeCluster, make, run_record
from tests.unit.support import make_workspace

DEATH = {"cause": "gpu lost", "what": "Xid 79", "node": "n1", "node_fault": True, "time": 100.0}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make(tmp_path, FakeCluster())
    return make_workspace(tmp_path)


def places(workspace: Workspace) -> FleetPlaces:
    return FleetPlaces(workspace.root, "main")


def test_two_servers_that_died_of_a_nodes_fault_make_it_bad(workspace: Workspace) -> None:
    run_record(places(workspace), "1_0", deaths=[DEATH])
    assert bad_nodes(workspace, []) == []
    run_record(places(workspace), "1_1", deaths=[DEATH, {**DEATH, "node_fault": False}])
    assert bad_nodes(workspace, []) == ["n1"]
    [line] = node_table(workspace, [])
    assert (line.starts, line.deaths, line.games) == (2, 2, 0)
    forgive(workspace, ["n1"], now=200)
    assert bad_nodes(workspace, []) == []


def test_a_batch_and_a_server_count_together(workspace: Workspace) -> None:
    run_record(places(workspace), "1_0", deaths=[DEATH])
    assert bad_nodes(workspace, [{"job": "7", "node": "n1", "deaths": [DEATH]}]) == ["n1"]


def test_a_start_that_its_nodes_failure_ended(workspace: Workspace) -> None:
    for number in range(2):
        run_record(places(workspace), f"1_{number}", why=NODE_FAILED, ended=50.0)
    assert bad_nodes(workspace, []) == ["n1"]


@pytest.mark.parametrize("why", ["retired", "time limit", "the fleet was stopped", None, 3, ["node failed"]])
def test_other_ends_do_not_count(workspace: Workspace, why: object) -> None:
    for number in range(3):
        run_record(places(workspace), f"1_{number}", why=why)
    assert bad_nodes(workspace, []) == []


def test_what_slurm_said_of_a_servers_job_is_remembered_once(workspace: Workspace) -> None:
    submission = Submission("s", "one", "serve-main-1-x", "x.sh", "slurm", {0: 1, 1: 1}, True, job="1")
    jobs = [WorkerJob(f"1_{number}", 1, JobStatus(f"1_{number}", JobState.NODE_FAIL, "squeue", nodes="n1",
                                                  elapsed="1:00"), submission) for number in range(2)]
    jobs.append(WorkerJob("1_2", 1, JobStatus("1_2", JobState.NODE_FAIL, "squeue", nodes="", elapsed="0:00"),
                          submission))
    for _ in range(2):
        remember_failed_jobs(workspace, jobs)
    assert bad_nodes(workspace, []) == ["n1"]
    assert len(list((workspace.nodes / "failed").iterdir())) == 2
