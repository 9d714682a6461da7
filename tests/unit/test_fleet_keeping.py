"""A fleet's key and its authority's private key are in no bundle and in no archive, and none brings them in."""

from __future__ import annotations

import base64
import gzip
import io
import json
import tarfile
from pathlib import Path

import orjson
import pytest

from automate.campaign.keeping.archive import allowed, pack_workspace
from automate.campaign.keeping.bundle import FOLDER, make_bundle
from automate.campaign.keeping.restore import restore
from automate.errors import FlockError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.keys import make_secrets
from automate.workspace import open_workspace
from tests.unit.fleet_support import record, run, spec


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    """A workspace with a fleet, whose key was written by mistake wherever something may be written."""
    root = tmp_path / "ws"
    (root / "profiles").mkdir(parents=True)
    (root / "flock-hpc.yaml").write_text("cluster: local\nbaseline: base\njudge: {kind: rehearsal, name: j}\n")
    (root / "arena_hard_models_to_test.txt").write_text("model-a\n")
    found = FleetPlaces(root, "main")
    make_secrets(found)
    key, private = found.key.read_text().strip(), found.authority_key.read_text()
    for folder in (found.runs, found.workers, found.gone, found.submissions, found.logs):
        folder.mkdir(parents=True, exist_ok=True)
    found.spec.write_bytes(orjson.dumps(spec().as_json()))
    (found.home / "worker_1.sh").write_text(f"#!/bin/bash\necho {key}\n")
    (found.home / ".key-copy.tmp").write_text(key)
    (found.home / "key.bak").write_text(key)
    (found.workers / "w1.json").write_bytes(orjson.dumps(record(1, node=key).as_json()))
    (found.runs / "r1.json").write_bytes(orjson.dumps(run(1, error=f"401 for {key}")))
    coded = base64.b64encode(key.encode()).decode()
    (found.logs / "main-1.out").write_text(f"asked with {key}\nserver up\n{private}\n{coded}\n")
    (found.runs / "link.json").symlink_to(found.key)
    return found


def secrets(places: FleetPlaces) -> list[str]:
    key, private = places.key.read_text().strip(), places.authority_key.read_text()
    body = "".join(private.split("\n")[1:-2])
    return [key, base64.b64encode(key.encode()).decode(), body[:40], "BEGIN PRIVATE", "BEGIN EC PRIVATE"]


def members(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {one.name: (tar.extractfile(one) or io.BytesIO()).read().decode() for one in tar}


def test_a_bundle_holds_records_and_logs_and_no_secret(places: FleetPlaces, tmp_path: Path) -> None:
    target = tmp_path / "b.tar.gz"
    make_bundle(places.root, target, lines=100, most=20_000_000, environ={"PATH": "/usr/bin"})
    found, whole = members(target), gzip.decompress(target.read_bytes())
    for secret in secrets(places):
        assert secret.encode() not in whole, [name for name, text in found.items() if secret in text]
    names = {name.removeprefix(f"{FOLDER}/") for name in found}
    assert {"fleets/main/fleet.json", "fleets/main/worker_1.sh", "fleets/main/runs/r1.json",
            "fleets/main/workers/w1.json", "logs/fleets/main/main-1.out"} <= names
    assert "server up" in found[f"{FOLDER}/logs/fleets/main/main-1.out"]
    assert not [name for name in names if "key" in name or "authority" in name or "link" in name]
    assert json.loads(found[f"{FOLDER}/monitor.json"])["fleets"][0]["name"] == "main"


@pytest.mark.parametrize("answers", [False, True])
def test_an_archive_holds_nothing_of_a_fleet(places: FleetPlaces, tmp_path: Path, answers: bool) -> None:
    target = tmp_path / "a.tar.gz"
    pack_workspace(open_workspace(places.root), target, answers=answers)
    whole = gzip.decompress(target.read_bytes())
    assert not [secret for secret in secrets(places) if secret.encode() in whole]
    assert not [name for name in members(target) if "fleet" in name]


def test_an_archive_brings_no_fleet_in(places: FleetPlaces, tmp_path: Path) -> None:
    for name in ("fleets/main/key", "fleets/main/authority.key", ".flock-hpc/fleets/main/key",
                 "runs/../fleets/main/key", "checkout/fleets/main/key"):
        assert not allowed(name), name
    good, evil, root = tmp_path / "a.tar.gz", tmp_path / "evil.tar.gz", tmp_path / "new"
    pack_workspace(open_workspace(places.root), good)
    with tarfile.open(good) as given, tarfile.open(evil, "w:gz", format=tarfile.PAX_FORMAT) as tar:
        for member in given:
            if member.name == "manifest.json":
                extra = tarfile.TarInfo("fleets/main/key")
                extra.size = 4
                tar.addfile(extra, io.BytesIO(b"mine"))
            tar.addfile(member, given.extractfile(member))
    with pytest.raises(FlockError, match="fleets/main/key"):
        restore(evil, root)
    assert not (root / ".flock-hpc" / "fleets").exists()
    restore(good, root)
    assert not (root / ".flock-hpc" / "fleets").exists()
