"""Single workers of a fleet on a real Slurm: the time limit, scancel, and an end by request."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from automate import claims
from automate.campaign.fleets.planning import spec_of
from automate.fleet_places import FleetPlaces
from automate.journal import write_json
from automate.serving.fleet.keys import make_secrets
from automate.serving.fleet.records import Wish
from automate.serving.fleet.registry import retire, write_wish
from automate.workspace import open_workspace
from tests.e2e.support import JUDGE, eventually, make_workspace, processes_of
from tests.rigs.slurm import SlurmRig


def make_fleet(root: Path, slurm_time: str, **more: Any) -> FleetPlaces:
    """A fleet of the rehearsal judge whose jobs the test submits; the test holds its control claim."""
    asked = {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": slurm_time, **more}
    make_workspace(root, cluster="generic", slurm=asked)
    places = FleetPlaces(root, "house")
    spec, scripts = spec_of(open_workspace(root), [JUDGE], 1, 2, name="house", executor="slurm", python=sys.executable)
    make_secrets(places)
    for number, text in scripts.items():
        places.script(number).write_text(text)
    places.logs.mkdir(parents=True)
    write_wish(places, Wish({1: 1}, changed=time.time()))
    write_json(places.spec, replace(spec, heartbeat=0.5, address="127.0.0.1").as_json())
    claims.take(places.control_claim, stale=60)
    return places


def read(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("2*.json"))]


def submit(slurm: SlurmRig, places: FleetPlaces) -> str:
    return slurm.run("sbatch", "--parsable", "--array=0", str(places.script(1))).stdout.strip()


def ready(places: FleetPlaces, restart: int = 0) -> dict[str, Any]:
    def registered() -> bool:
        return any(one["holder"]["restart"] == restart for one in read(places.workers))
    eventually(registered, f"a worker of start {restart}", timeout=90)
    return next(one for one in read(places.workers) if one["holder"]["restart"] == restart)


def state(slurm: SlurmRig, job: str) -> str:
    return slurm.run("sacct", "-X", "-n", "-P", "-j", job, "--format=State").stdout.split("\n")[0].partition(" ")[0]


def test_before_its_time_limit_a_worker_goes_back_into_the_queue_and_comes_again(slurm: SlurmRig,
                                                                                 tmp_path: Path) -> None:
    places = make_fleet(tmp_path / "w", "00:01:00")
    job = submit(slurm, places)
    first = ready(places)
    assert 0 < first["until"] - first["time"] <= 60
    assert first["job"] == f"{job}_0"
    second = ready(places, restart=1)
    run = read(places.runs)[0]
    assert (run["why"], run["next"]["kind"], run["status"]) == ("time limit", "requeue", 0)
    assert [one["id"] for one in read(places.workers)] == [second["id"]]
    slurm.run("scancel", job)
    eventually(lambda: not read(places.workers), "unregistered", timeout=60)
    eventually(lambda: state(slurm, job) == "CANCELLED", "cancelled", timeout=60)
    eventually(lambda: read(places.runs)[1]["phase"] == "ended", "its last word", timeout=30)
    assert (read(places.runs)[1]["why"], read(places.runs)[1]["next"]["kind"]) == ("cancelled", "none")
    eventually(lambda: not processes_of(places.root), "no process left over", timeout=30)


def test_a_retired_worker_ends_its_job_as_completed(slurm: SlurmRig, tmp_path: Path) -> None:
    places = make_fleet(tmp_path / "w", "00:10:00")
    job = submit(slurm, places)
    retire(places, ready(places)["id"])
    eventually(lambda: state(slurm, job) == "COMPLETED", "completed", timeout=60)
    assert read(places.workers) == []
    assert read(places.gone)[0]["why"] == "retired"


def test_a_preempted_worker_unregisters_and_slurm_starts_it_again(rough: SlurmRig, tmp_path: Path) -> None:
    places = make_fleet(tmp_path / "w", "00:10:00", partition="low")
    job = submit(rough, places)
    first = ready(places)
    rough.run("sbatch", "--partition=high", "--nodes=2", "--exclusive", "--output=/dev/null", "--wrap=sleep 5")
    eventually(lambda: first["id"] not in {one["id"] for one in read(places.workers)}, "unregistered", timeout=60)
    second = ready(places, restart=1)
    run = read(places.runs)[0]
    assert (run["why"], run["next"]["kind"], run["status"]) == ("preempted", "slurm", 0)
    retire(places, second["id"])
    eventually(lambda: state(rough, job) == "COMPLETED", "completed", timeout=60)
