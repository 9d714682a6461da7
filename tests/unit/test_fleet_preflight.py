"""A fleet before a server is asked for: FH601 to FH607, each with a case in which it is found and one in which not."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from automate.arena.preflight.codes import CODES
from automate.arena.preflight.findings import Finding, Level
from automate.arena.preflight.fleet import (
    address_findings,
    engine_findings,
    fleet_checks,
    folder_findings,
    kind_findings,
    partition_findings,
    router_findings,
)
from automate.campaign.demo import make_demo
from automate.campaign.doctoring.probe import fleet_address
from automate.campaign.fleets.playing import FLEET as CAMPAIGNS
from automate.cli.main import cli
from automate.fleet_places import FleetPlaces
from automate.fleets.address import Machine
from automate.serving.fleet.keys import make_secrets
from tests.unit.fleet_support import group, record, spec
from tests.unit.support import make_settings, make_workspace


def short(found: Sequence[Finding]) -> list[tuple[str, Level]]:
    assert all(one.code in CODES for one in found)
    return [(one.code, one.level) for one in found]


def machine(addresses: Mapping[str, Sequence[str]], names: Mapping[str, Sequence[str]] | None = None) -> Machine:
    own = {one for found in addresses.values() for one in found}
    return Machine(lambda name: (names or {}).get(name, ()), lambda: addresses, own.__contains__, lambda: "c1")


@pytest.mark.parametrize(("address", "executor", "level"), [
    ("auto", "slurm", Level.OK), ("ib0", "slurm", Level.OK), ("10.1.0.1", "slurm", Level.OK), ("c1", "slurm", Level.OK),
    ("ib7", "slurm", Level.WARNING), ("no.such.host", "slurm", Level.WARNING), ("10.9.9.9", "slurm", Level.WARNING),
    ("127.0.0.1", "slurm", Level.WARNING), ("lo", "slurm", Level.WARNING), ("127.0.0.1", "local", Level.OK),
])
def test_an_address_that_others_cant_reach_is_said(address: str, executor: str, level: Level) -> None:
    here = machine({"lo": ["127.0.0.1"], "ib0": ["10.1.0.1"]}, {"c1": ["10.1.0.1"]})
    settings = make_settings(fleet={"address": address})
    assert short(list(address_findings(settings, executor, here, {}))) == [("FH601", level)]


def test_a_node_whose_name_is_only_its_loopback_is_said() -> None:
    one, = address_findings(make_settings(), "slurm", machine({"lo": ["127.0.1.1"]}, {"c1": ["127.0.1.1"]}), {})
    assert one.level is Level.WARNING and "127.0.1.1" in one.what and "fleet.address" in one.todo


@pytest.mark.parametrize(("address", "environ", "mark"), [
    ("auto", {"SLURM_JOB_ID": "1"}, "ok"), ("ib7", {"SLURM_JOB_ID": "1"}, "warning"),
    ("lo", {"SLURM_JOB_ID": "1"}, "warning"), ("127.0.0.1", {}, "ok")])
def test_the_doctors_job_says_what_it_means_on_a_node(address: str, environ: dict[str, str], mark: str) -> None:
    here = machine({"lo": ["127.0.0.1"], "ib0": ["10.1.0.1"]}, {"c1": ["10.1.0.1"]})
    one, = fleet_address(make_settings(fleet={"address": address}), environ, here)
    assert (one.mark.value, one.subject) == (mark, "fleet's address")


def test_judges_that_no_fleet_can_serve() -> None:
    paid = make_settings(judge={"kind": "openai", "name": "j", "base_url": "http://127.0.0.1:1/v1"})
    assert short(list(kind_findings(paid))) == [("FH602", Level.ERROR)]
    assert short(list(kind_findings(make_settings(judge={"engine": "upstream"})))) == [("FH602", Level.ERROR)]
    assert short(list(kind_findings(make_settings()))) == []


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    found = FleetPlaces(tmp_path, "judge")
    make_secrets(found)
    found.workers.mkdir(exist_ok=True)
    return found


def test_secrets_that_others_could_read_are_refused_and_never_shown(places: FleetPlaces) -> None:
    settings, key = make_settings(), places.key.read_text().strip()
    assert short(list(folder_findings(places, settings))) == []
    places.key.chmod(0o640)
    one, = folder_findings(places, settings)
    assert short([one]) == [("FH603", Level.ERROR)] and key not in repr(one)
    places.key.chmod(0o600)
    places.home.chmod(0o755)
    assert short(list(folder_findings(places, settings))) == [("FH603", Level.ERROR)]


def test_a_fleet_of_this_name_that_serves_something_else(places: FleetPlaces) -> None:
    settings = make_settings(judge={"name": "mine"})
    places.spec.write_bytes(orjson.dumps(spec(group(model="theirs"), name="judge").as_json()))
    assert short(list(folder_findings(places, settings))) == [], "no server of it lives"
    places.worker("w1").write_bytes(orjson.dumps(record(1, model="theirs").as_json()))
    one, = folder_findings(places, settings)
    assert short([one]) == [("FH604", Level.ERROR)] and "theirs" in one.what and "mine" in one.what
    assert short(list(folder_findings(places, make_settings(judge={"name": "theirs"})))) == []
    places.spec.write_bytes(b'{"name": 1}')
    assert short(list(folder_findings(places, settings))) == [("FH603", Level.ERROR)]


def test_the_router_is_missed_only_by_the_way() -> None:
    assert short(list(router_findings(lambda: False))) == [("FH605", Level.NOTE)]
    assert list(router_findings(lambda: True)) == []


def test_the_engines_partition_and_time() -> None:
    asked: dict[str, Any] = {"engine_slurm": {"partition": "cpus", "time": "00:10:00"}}
    settings = make_settings(fleet=asked, judge={"name": "big"})
    assert short(list(partition_findings(settings, ["cpu", "gpu"]))) == [("FH606", Level.ERROR)]
    assert "did you mean 'cpu'?" in next(partition_findings(settings, ["cpu", "gpu"])).todo
    assert list(partition_findings(settings, ["cpus"])) == list(partition_findings(settings, None)) == []
    workspace = make_workspace(fleet=asked, judge={"name": "big"})
    loads = [{"judge": "big", "load": [{"seconds": 900.0}]}]
    assert short(list(engine_findings(workspace, loads))) == [("FH607", Level.WARNING)]
    assert list(engine_findings(workspace, [{"judge": "big", "load": [{"seconds": 300.0}]}])) == []


def test_all_of_them_at_once_and_none_of_the_engines_job_beside_a_server(tmp_path: Path) -> None:
    bad: dict[str, Any] = {"engine_slurm": {"partition": "x", "time": "1"}, "address": "nowhere"}
    runs = [{"judge": "j", "load": [{"seconds": 900.0}]}]
    workspace = make_workspace(tmp_path, fleet=bad, judge={"name": "j", "engine": "upstream"})
    here = machine({"lo": ["127.0.0.1"]})
    found = fleet_checks(workspace, "slurm", runs=runs, machine=here, partitions=lambda: ["gpu"])
    assert {one.code for one in found} - {"FH605"} == {"FH601", "FH602", "FH606", "FH607"}
    beside = make_workspace(tmp_path, fleet={**bad, "engine": "beside"}, judge={"name": "j"})
    found = fleet_checks(beside, "slurm", runs=runs, machine=here, partitions=lambda: ["gpu"])
    assert {one.code for one in found} - {"FH605"} == {"FH601"}


def test_the_name_is_that_of_campaigns_fleets() -> None:
    from automate.arena.preflight.fleet import FLEET

    assert FLEET == CAMPAIGNS


def test_validate_only_says_it_where_a_fleet_is_wanted(tmp_path: Path) -> None:
    make_demo(tmp_path / "ws")
    codes = []
    for more in ((), ("--fleet",)):
        done = CliRunner().invoke(cli, ["validate-only", "--json", "--executor", "local", "--workspace",
                                        str(tmp_path / "ws"), *more])
        codes.append({one["code"] for one in json.loads(done.output)["findings"]})
    assert "FH601" not in codes[0] and "FH601" in codes[1]
