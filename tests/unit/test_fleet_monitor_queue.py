"""A fleet's jobs are asked about in the monitor's own question: one squeue, and one sacct for what it has lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from automate.campaign.demo import make_demo
from automate.campaign.monitoring.monitor import Watch
from automate.cluster.submit import Submission, SubmissionBook
from automate.fleet_places import FleetPlaces
from automate.workspace import Workspace, open_workspace
from tests.unit.fleet_support import group, spec
from tests.unit.test_state_queue import Slurm, aged, folder, slurm

__all__ = ["folder", "slurm"]


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    make_demo(tmp_path / "ws")
    return open_workspace(tmp_path / "ws")


def hand_in(workspace: Workspace, name: str, job: str, tasks: int) -> FleetPlaces:
    """A fleet whose servers are tasks of one array job."""
    places = FleetPlaces(workspace.root, name)
    places.home.mkdir(parents=True)
    made = replace(spec(group(), name=name), id=f"id-{name}")
    places.spec.write_bytes(orjson.dumps(made.as_json()))
    SubmissionBook(places.submissions).save(Submission(
        f"s-{name}", made.id, "x", "script", "slurm", dict.fromkeys(range(tasks), 1), True, job=job))
    return places


def test_fleets_cost_no_question_of_their_own(workspace: Workspace, slurm: Slurm) -> None:
    hand_in(workspace, "one", "70", 2)
    hand_in(workspace, "two", "80", 1)
    slurm.queue("70_0", "70_1", "80_0")
    watch = Watch(lambda: workspace, strict=True)
    fleets = {fleet.name: fleet for fleet in watch.look().fleets}
    assert [row.state for row in fleets["one"].workers] == ["loading", "loading"]
    assert [row.job for row in fleets["two"].workers] == ["80_0"]
    for _ in range(3):
        watch.look()
    assert slurm.calls == (1, 0)


def test_a_node_that_failed_is_among_the_fleets_failures(workspace: Workspace, slurm: Slurm) -> None:
    hand_in(workspace, "one", "70", 2)
    slurm.queue("70_0")
    slurm.accounts("70_1", state="NODE_FAIL")
    watch = Watch(lambda: workspace, strict=True)
    fleet, = watch.look().fleets
    failure, = fleet.failures
    assert (failure.kind, failure.job, failure.node) == ("node", "70_1", "c1")
    assert slurm.calls == (1, 1)


def test_a_cluster_that_cant_be_asked_leaves_the_servers_unknown(workspace: Workspace, slurm: Slurm) -> None:
    hand_in(workspace, "one", "70", 1)
    slurm.down()
    row, = Watch(lambda: workspace, strict=True).look().fleets[0].workers
    assert row.state == "unknown" and "Unable to contact" in row.note


def test_a_fleet_that_is_over_is_asked_about_no_more(workspace: Workspace, slurm: Slurm) -> None:
    hand_in(workspace, "one", "70", 1)
    slurm.accounts("70_0", state="NODE_FAIL")  # a state that accounting is asked about again and again
    watch = Watch(lambda: workspace, strict=True)
    watch.look()
    aged(workspace.queue_cache, 60)
    watch.look()
    assert slurm.calls[1] == 1
