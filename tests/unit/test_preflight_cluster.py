"""Preflight of the cluster: names of another one are found, and how much of a campaign fits."""

from __future__ import annotations

import pytest

from automate.arena.preflight.cluster import budget_findings, cluster_findings, name_findings, room_finding
from automate.arena.preflight.findings import Level
from automate.cluster.limits import Room
from tests.unit.support import make_settings


@pytest.mark.parametrize(("cap", "time", "gpus", "codes"), [
    (1.9, "01:00:00", 2, ["FH508"]), (2.0, "01:00:00", 2, []), (None, "1-00:00:00", 8, []),
    (0.1, "01:00:00", 0, []), (9.0, "UNLIMITED", 1, ["FH508"])])
def test_a_cap_below_one_batch_is_an_error(cap: float | None, time: str, gpus: int, codes: list[str]) -> None:
    found = list(budget_findings(make_settings(slurm={"time": time, "gpus": gpus}, limits={"max_gpu_hours": cap})))
    assert [(one.code, one.level) for one in found] == [(code, Level.ERROR) for code in codes]


def test_how_many_batches_fit() -> None:
    assert room_finding(Room(), 9, "wait").level is Level.OK
    assert room_finding(Room(9, "limit; 0 count now"), 9, "wait").level is Level.OK
    found = room_finding(Room(2, "limit; 7 count now"), 9, "job")
    assert (found.code, found.level, found.what) == (
        "FH508", Level.NOTE, "2 of up to 9 batches fit now (limit; 7 count now)")
    assert "a small job" in found.todo


def test_names_of_another_cluster() -> None:
    settings = make_settings(cluster="generic", slurm={"partition": "gpu,capela", "account": "p_x", "qos": "norma"})
    found = list(name_findings(settings, ["gpu", "capella"], {"mine"}, {"normal"}))
    assert [(one.code, one.subject, one.level) for one in found] == [
        ("FH509", "slurm.partition", Level.ERROR), ("FH509", "slurm.account", Level.WARNING),
        ("FH509", "slurm.qos", Level.WARNING)]
    assert "did you mean 'capella'?" in found[0].todo
    assert list(name_findings(settings, None, None, None)) == []
    assert list(name_findings(make_settings(), ["gpu"], {"mine"}, {"normal"})) == []


def test_nothing_is_asked_for_the_local_executor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.cluster.asking.slurm", lambda *_: pytest.fail("asked"))
    assert list(cluster_findings(make_settings(slurm={"partition": "nowhere"}), 9, "local")) == []
