"""What is checked before answers are generated: machine and cluster as for judging, without a judge or a baseline."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from automate.arena.preflight.findings import Level
from automate.campaign.generating_checks import check, fatal
from automate.cluster.local.executor import LocalCluster
from automate.workspace import Workspace
from tests.unit.support import make_workspace


def fine(_: Sequence[str]) -> tuple[int, str]:
    return 0, ""


def workspace_at(root: Path, **values: Any) -> Workspace:
    return make_workspace(root, **{"generate": {"kind": "vllm", "path": "/x/{model}"}, **values})


def test_nothing_is_said_of_judge_or_baseline(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, generate={"kind": "rehearsal"})
    local = LocalCluster(tmp_path / "q", tmp_path)
    report = check(workspace, ["a"], answers=3, cluster=local, executor="local", run=fine)
    assert report.ok and not fatal(report, skip=False)
    assert {finding.code for finding in report.findings} == {"FH503"}


def test_the_models_server_is_looked_for_where_generate_says(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, judge={"environment": {"venv": "/judges"}},
                             generate={"kind": "vllm", "environment": {"venv": "/models"}})
    found = [one for one in check(workspace, ["a"], answers=1, cluster=None, executor="local", run=fine).findings
             if one.level is Level.ERROR]
    assert [(one.code, one.subject) for one in found] == [("FH501", "generate.environment.venv")]
    assert "/models" in found[0].what


def test_an_interpreter_without_flock_hpc_is_told(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, generate={"kind": "rehearsal"})
    report = check(workspace, ["a"], answers=1, cluster=None, executor="local", run=lambda _: (1, "No module"))
    assert fatal(report, skip=True) and [one.code for one in report.fatal] == ["FH502"]


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace = workspace_at(tmp_path, generate={"kind": "rehearsal"})
    usage = type("Usage", (), {"free": 1_000_000})
    monkeypatch.setattr("automate.campaign.generating_checks.shutil.disk_usage", lambda _: usage)
    report = check(workspace, ["a"], answers=750, cluster=None, executor="local", run=fine)
    assert [(one.code, one.level) for one in report.fatal] == [("FH505", Level.ERROR)]
    assert "750 answers take about 9 MB" in report.fatal[0].what


@pytest.mark.parametrize(("problem", "stops", "skipped"), [
    ("list:3: 'a/b' can't be used: it holds a slash", True, False),
    ("list:4: 'm' stands in the list twice; it counts once", False, False)])
def test_a_bad_name_stops_unless_it_is_left_out(tmp_path: Path, problem: str, stops: bool, skipped: bool) -> None:
    workspace = workspace_at(tmp_path, generate={"kind": "rehearsal"})
    report = check(workspace, ["m"], answers=1, cluster=None, executor="local", problems=[problem], run=fine)
    assert (fatal(report, skip=False), fatal(report, skip=True)) == (stops, skipped)


def test_a_cap_below_one_job_of_answers_is_told(tmp_path: Path) -> None:
    workspace = workspace_at(tmp_path, limits={"max_gpu_hours": 1}, slurm={"time": "00:10:00"},
                             generate={"kind": "vllm", "slurm": {"time": "04:00:00", "gpus": 1}})
    found = check(workspace, ["m"], answers=1, cluster=None, executor="local", run=fine).fatal
    assert "FH508" in {one.code for one in found}
