"""Nodes that break jobs: counted from what the jobs wrote, forgiven by a person, and never trusted by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.arena.running.ending import NODE_FAILED
from automate.campaign.nodes import (
    Excluded,
    bad_nodes,
    exclusion,
    forgive,
    forgiven,
    node_table,
    remember_failed,
)
from automate.campaign.plans import StoredPlan, make_plan
from automate.campaign.state import BatchView
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ConfigError
from automate.workspace import Workspace
from tests.unit.support import make_workspace


def died(node: object, *, at: float = 100.0, fault: object = True, job: str = "7") -> dict[str, Any]:
    death = {"cause": "gpu lost", "what": "Xid 79", "node": node, "node_fault": fault, "time": at}
    return {"job": job, "node": "n1", "played": 5, "deaths": [death]}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return make_workspace(tmp_path)


def test_two_deaths_by_a_nodes_fault_make_it_bad(workspace: Workspace) -> None:
    assert bad_nodes(workspace, [died("n1")]) == []
    assert bad_nodes(workspace, [died("n1"), died("n2"), died("n1")]) == ["n1"]
    assert bad_nodes(workspace, [died("n1", fault=False), died("n1", fault="yes"), died("n1")]) == []


def test_how_many_is_a_setting(tmp_path: Path) -> None:
    assert bad_nodes(make_workspace(tmp_path, limits={"bad_node_deaths": 1}), [died("n1")]) == ["n1"]


def test_forgiving_counts_until_it_happens_again(workspace: Workspace) -> None:
    runs = [died("n1", at=100), died("n1", at=200)]
    forgive(workspace, ["n1"], now=250)
    assert bad_nodes(workspace, runs) == []
    assert node_table(workspace, runs)[0].forgiven == 250
    assert bad_nodes(workspace, [*runs, died("n1", at=300)]) == []
    assert bad_nodes(workspace, [*runs, died("n1", at=300), died("n1", at=301)]) == ["n1"]


@pytest.mark.parametrize("name", ["../x", "n[1-9]", "n1,n2", "--wrap=x", "n1 n2", "a/b", "n1\n"])
def test_hostile_names_go_nowhere(workspace: Workspace, name: str) -> None:
    assert bad_nodes(workspace, [died(name), died(name)]) == []
    with pytest.raises(ConfigError, match="can't be a node's name"):
        forgive(workspace, ["n1", name])
    assert forgiven(workspace) == {}


@pytest.mark.parametrize("deaths", [None, "x", [7], [{}], [{"node_fault": True}], {"node": "n1"}])
def test_records_that_make_no_sense_are_passed_over(workspace: Workspace, deaths: object) -> None:
    assert bad_nodes(workspace, [{"deaths": deaths}, {"deaths": deaths}, {}]) == []


def view_of(workspace: Workspace, job: str, nodes: str, state: JobState = JobState.NODE_FAIL,
            evidence: str = "sacct") -> BatchView:
    stored: StoredPlan = make_plan(workspace, {"a": 1}, size=1, first=1, max_array_size=9, limit_questions=None,
                                   plan_id="p")
    status = JobStatus(job, state, evidence, nodes=nodes)
    return BatchView(stored, stored.plan.batches[0], job, status, None, 1)


def test_jobs_that_a_node_took_with_it_count_once(workspace: Workspace) -> None:
    for job, nodes in (("1", "n1"), ("1", "n1"), ("2", "n[1-2]"), ("3", "")):
        remember_failed(workspace, [view_of(workspace, job, nodes)])
    remember_failed(workspace, [view_of(workspace, "4", "n1", JobState.FAILED),
                                view_of(workspace, "5", "n1", evidence="local queue")])
    assert bad_nodes(workspace, []) == []
    assert bad_nodes(workspace, [died("n1", job="1")]) == []  # the same job, told by both
    assert bad_nodes(workspace, [died("n1", job="9")]) == ["n1"]


def failed_start(node: str = "n1", **more: Any) -> dict[str, Any]:
    return {"job": "7", "node": node, "stopped_by": NODE_FAILED, "updated": 100.0, **more}


def test_a_start_that_a_nodes_failure_ended_counts_though_slurm_requeued_it(workspace: Workspace) -> None:
    line = node_table(workspace, [failed_start()])[0]
    assert (line.deaths, line.bad, line.cause) == (1, False, "node failure")
    assert bad_nodes(workspace, [failed_start(), failed_start(job="8")]) == ["n1"]
    assert bad_nodes(workspace, [failed_start(stopped_by="requeued"), failed_start("n[1-2]"), failed_start()]) == []
    forgive(workspace, ["n1"], now=150)
    assert bad_nodes(workspace, [failed_start(), failed_start(ended=120.0)]) == []
    assert node_table(workspace, [failed_start(), failed_start(ended=160.0)])[0].deaths == 1


def test_a_failed_start_and_the_jobs_last_word_count_once_a_node(workspace: Workspace) -> None:
    remember_failed(workspace, [view_of(workspace, "7", "n1")])
    assert node_table(workspace, [failed_start()])[0].deaths == 1
    found = {line.node: line.deaths for line in node_table(workspace, [failed_start("n2")])}
    assert found == {"n1": 1, "n2": 1}


def test_a_job_that_never_had_a_node_is_no_nodes_death(workspace: Workspace) -> None:
    for nodes in ("", "None assigned"):
        view = view_of(workspace, "1", nodes)
        assert view.status is not None
        remember_failed(workspace, [replace(view, status=replace(view.status, elapsed="0:00"))])
    assert node_table(workspace, []) == []


def test_starts_and_games_of_each_node(workspace: Workspace) -> None:
    runs: list[dict[str, Any]] = [{"node": "n1", "played": 3}, {"node": "n1"}, {"node": "n2", "played": "x"}]
    runs += [died("n3"), died("n3")]
    found = {line.node: (line.starts, line.games, line.deaths, line.bad) for line in node_table(workspace, runs)}
    assert found == {"n3": (0, 0, 2, True), "n1": (4, 13, 0, False), "n2": (1, 0, 0, False)}
    assert node_table(workspace, runs)[0].node == "n3"


def test_what_is_excluded() -> None:
    found = exclusion(["n1", "elsewhere"], {"n1", "n2"}, "m[1-3]", {"m1", "m2", "m3"})
    assert (found.option, found.nodes) == ("m[1-3],n1", ("n1",))
    assert exclusion([], {"n1"}, None, set()) == Excluded()
    assert exclusion(["elsewhere"], {"n1"}, None, set()) == Excluded()


@pytest.mark.parametrize("own", [set(), {"n3"}])
def test_a_partition_is_never_left_without_a_node(own: set[str]) -> None:
    found = exclusion(["n1", "n2"], {"n1", "n2"} | own, ",".join(own) or None, own)
    assert found.option is None
    assert "not excluded: n1, n2" in found.notes[0]


def test_nodes_that_nobody_can_name_are_not_excluded_in_silence() -> None:
    found = exclusion(["n1"], None, None, set())
    assert found.option is None
    assert "can't be excluded now" in found.notes[0]
