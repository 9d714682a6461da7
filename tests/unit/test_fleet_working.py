"""A worker is put together inside its job only for a fleet, group and version that are there."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from automate import __version__
from automate.campaign.fleets.working import open_worker, stage_judge
from automate.errors import ConfigError, DataError
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.records import FleetSpec, Group

GROUP = Group(1, "judge", "worker_1.sh", 1, 1)
SPEC = FleetSpec("house", "id", __version__, 0.0, "me", "local", (GROUP,), "print")


def places(root: Path, spec: FleetSpec = SPEC) -> FleetPlaces:
    found = FleetPlaces(root, "house")
    write_json(found.spec, spec.as_json())
    return found


def test_a_worker_of_the_judge_stages_weights_and_looks_after_the_fleet(tmp_path: Path) -> None:
    places(tmp_path)
    worker = open_worker(tmp_path, "house", 1, __version__, tmp_path / "s.sh", print, {"FLOCK_HPC_JOB": "local-1"})
    assert (worker.group, worker.spec, worker.age > 0) == (GROUP, SPEC, True)
    assert worker.prepare is not None and worker.control is not None


def test_a_worker_of_other_models_stages_nothing(tmp_path: Path) -> None:
    places(tmp_path, replace(SPEC, groups=(replace(GROUP, settings="generate"),)))
    assert open_worker(tmp_path, "house", 1, __version__, tmp_path / "s.sh", print, {}).prepare is None


@pytest.mark.parametrize(("fleet", "group", "version", "words"), [
    ("other", 1, __version__, "there is no fleet 'other' any more"), ("house", 2, __version__, "has no group 2"),
    ("house", 1, "0.0.1", "was written by flock-hpc 0.0.1"), ("../house", 1, __version__, "can't be a fleet's name"),
])
def test_what_is_not_there_is_said(tmp_path: Path, fleet: str, group: int, version: str, words: str) -> None:
    places(tmp_path)
    with pytest.raises(ConfigError, match=words) as found:
        open_worker(tmp_path, fleet, group, version, tmp_path / "s.sh", print, {})
    assert found.value.todo


def test_a_fleets_file_that_is_none_is_refused(tmp_path: Path) -> None:
    places(tmp_path).spec.write_text("{}")
    with pytest.raises(DataError, match="not a fleet"):
        open_worker(tmp_path, "house", 1, __version__, tmp_path / "s.sh", print, {})


def test_settings_that_can_not_be_read_stop_no_server(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "flock-hpc.yaml").write_text("judge: [")
    assert stage_judge(places(tmp_path), GROUP, tmp_path / "s.sh", said.append, lambda: False) == {}
    assert "not looked at" in said[0]
