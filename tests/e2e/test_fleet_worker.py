"""One worker of a fleet as a whole process, by the script of its job: whom it answers, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automate.fleets.account import read_worker_runs, spent_of
from automate.journal import write_json
from automate.serving.fleet.records import Wish
from automate.serving.fleet.registry import retire, use, write_wish
from tests.e2e.fleet_worker_rig import JOB, fleet
from tests.e2e.support import JUDGE, PROJECT, eventually, judge_settings
from tests.e2e.test_loading import SERVER

OTHER_KEY = "x" * 43


def test_it_registers_when_it_can_be_used_and_not_before(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"load_seconds": 1.5}) as rig:
        worker = rig.start()
        eventually(lambda: rig.runs() and rig.runs()[0]["phase"] == "loading", "a loading worker")
        assert rig.registered() == []
        record = rig.ready()
        assert (record["model"], record["fleet"], record["job"], record["node"]) == (JUDGE, rig.spec.id, JOB, "n1")
        assert record["holder"]["pid"] == worker.pid
        assert rig.chat(record)[0] == 200
        beat = record["beat"]
        eventually(lambda: rig.registered()[0]["beat"] > beat + 2, "heartbeats")
        eventually(lambda: rig.registered()[0]["served"] == 1, "the request is counted, and the worker's own is not")
        assert rig.runs()[0]["phase"] == "ready"


def test_it_answers_nobody_without_the_key_and_no_request_for_another_model(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        rig.start()
        record = rig.ready()
        for path in ("/v1/models", "/v1/chat/completions", "/invocations", "/metrics", "/tokenize", "/",
                     "/flock-hpc/worker"):
            for body in (None, {"model": JUDGE}):
                assert rig.ask(record, path, body, key=None)[0] == 401
                assert rig.ask(record, path, body, key=OTHER_KEY)[0] == 401
        assert rig.ask(record, "/health", key=None)[0] == 200
        told = rig.ask(record, "/flock-hpc/worker")[1]
        assert told == {name: record[name] for name in ("id", "nonce", "fleet", "model", "also", "version")}
        status, said = rig.chat(record, model="another")
        assert (status, said["error"]["type"]) == (404, "NotFoundError")
        assert said["error"]["message"] == f"this worker has {JUDGE} and no other model"
        assert rig.ask(record, "/v1/models")[1]["data"][0]["id"] == JUDGE
        assert "vllm:num_requests_running" in rig.ask(record, "/metrics")[1]
        eventually(lambda: rig.registered()[0]["prefix_queries"] is not None, "the server's own counters")


def test_the_key_is_in_no_file_but_its_own(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        worker = rig.start()
        rig.chat(rig.ready())
        key = rig.places.key.read_text().strip()
        pids = (worker.pid, rig.part("automate.serving.rehearsal").pid)
        lines = [Path(f"/proc/{pid}/{what}").read_bytes() for pid in pids for what in ("cmdline", "environ")]
        worker.send_signal(signal.SIGTERM)
        rig.ended(worker)
        found = [path for path in rig.root.rglob("*") if path.is_file() and key.encode() in path.read_bytes()]
        assert found == [rig.places.key]
        assert not any(key.encode() in line for line in lines)


def test_a_retired_worker_finishes_what_it_has_and_takes_nothing_new(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"latency": 2.0}) as rig:
        worker = rig.start()
        record = rig.ready()
        answer = rig.chat_later(record, "the last one")
        retire(rig.places, record["id"])
        eventually(lambda: [one["state"] for one in rig.registered()] == ["draining"], "a draining worker", pause=0.02)
        assert rig.chat(record, "too late")[0] == 503
        assert answer.result(60)[0] == 200
        assert rig.ended(worker) == 0
        assert rig.registered() == []
        assert rig.gone()[0]["why"] == "retired"
        run = rig.runs()[0]
        assert (run["why"], run["status"], run["phase"], run["next"]["kind"]) == ("retired", 0, "ended", "none")
        rig.nothing_left()


def test_a_request_that_does_not_end_in_time_is_cut_off(tmp_path: Path) -> None:
    judge = {"rehearsal": {"hang": 1.0, "sticky": True}, "request_timeout": 1}
    with fleet(tmp_path / "w", judge=judge) as rig:
        worker = rig.start()
        record = rig.ready()
        answer = rig.chat_later(record, "for ever")
        retire(rig.places, record["id"])
        assert rig.ended(worker) == 0
        assert "requests in flight that are cut off: 1" in rig.text()
        assert answer.result(60)[0] in (502, 503)  # which is tried again elsewhere
        rig.nothing_left()


def test_told_to_end_it_unregisters_at_once_and_its_requests_still_finish(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"latency": 2.0}) as rig:
        worker = rig.start()
        answer = rig.chat_later(rig.ready(), "in flight")
        worker.send_signal(signal.SIGTERM)
        eventually(lambda: rig.registered() == [], "unregistered", timeout=30, pause=0.02)
        assert not answer.done()
        assert answer.result(60)[0] == 200
        assert rig.ended(worker) == 143
        assert (rig.runs()[0]["why"], rig.runs()[0]["next"]["kind"]) == ("SIGTERM", "none")
        rig.nothing_left()


def test_killed_it_leaves_no_process_and_its_record_stays_until_it_is_dropped(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        worker = rig.start()
        record = rig.ready()
        worker.kill()
        rig.ended(worker)
        rig.nothing_left()
        assert [one["id"] for one in rig.registered()] == [record["id"]]
        assert rig.gone() == []
        run = rig.runs()[0]
        assert run["phase"] == "ready" and "ended" not in run
        assert 0 < spent_of(read_worker_runs(rig.places), time.time()).total <= time.time() - run["started"] + 0.1


def test_a_server_that_dies_is_started_again_under_a_new_id_at_the_same_port(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"load_seconds": 1.0}) as rig:
        worker = rig.start()
        first = rig.ready()
        rig.part("automate.serving.rehearsal").kill()
        eventually(lambda: rig.registered() == [], "unregistered while it restarts", pause=0.02)
        assert rig.chat(first)[0] == 503
        second = rig.ready()
        assert second["id"] != first["id"] and second["nonce"] != first["nonce"]
        assert (second["host"], second["port"]) == (first["host"], first["port"])
        assert rig.ask(second, "/flock-hpc/worker")[1]["nonce"] == second["nonce"]
        assert rig.chat(second)[0] == 200
        run = rig.runs()[0]
        assert (run["id"], len(run["loads"]), len(run["deaths"])) == (second["id"], 2, 1)
        assert rig.gone()[0]["why"] == "its server died, or does not answer"
        retire(rig.places, second["id"])
        assert rig.ended(worker) == 0


def test_a_server_that_can_not_be_started_ends_the_worker_with_its_cause(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"die_while_loading": True}, server={"restarts": 1}) as rig:
        worker = rig.start()
        assert rig.ended(worker) == 1
        run = rig.runs()[0]
        assert (run["phase"], run["status"], run["loads"], len(run["deaths"])) == ("ended", 1, [], 2)
        assert "server failed" in run["error"]
        assert run["spent"]["load"] == pytest.approx(run["seconds"], abs=0.01)
        assert "Traceback" not in rig.text()
        rig.nothing_left()


def test_a_server_without_an_adapter_that_it_should_have_is_not_registered(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        group = replace(rig.spec.groups[0], also=("an-adapter",))
        write_json(rig.places.spec, replace(rig.spec, groups=(group,)).as_json())
        assert rig.ended(rig.start()) == 1
        assert "its server does not have an-adapter" in rig.text() and "Traceback" not in rig.text()
        assert rig.registered() == rig.gone() == []
        assert rig.runs()[0]["hopeless"] is True


def test_a_fleet_that_is_stopped_ends_its_workers(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        worker = rig.start()
        rig.ready()
        write_wish(rig.places, Wish({1: 1}, stop=True))
        assert rig.ended(worker) == 0
        assert rig.gone()[0]["why"] == rig.runs()[0]["why"] == "the fleet was stopped"
        rig.nothing_left()


def test_a_fleet_that_is_stopped_while_a_worker_loads_ends_it(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"load_seconds": 600}) as rig:
        worker = rig.start()
        eventually(lambda: bool(rig.runs()), "a loading worker")
        write_wish(rig.places, Wish({1: 1}, stop=True))
        assert rig.ended(worker) == 0
        assert rig.gone() == []
        rig.nothing_left()


def test_a_lost_folder_ends_the_worker_and_is_not_made_again(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        worker = rig.start()
        rig.ready()
        away = rig.places.home.with_name("moved")
        rig.places.home.rename(away)
        assert rig.ended(worker) == 1
        assert not rig.places.home.exists()
        assert f"{rig.places.home}: the fleet's folder was moved or removed" in rig.text()
        assert "the fleet's folder is lost: no more requests are taken" in rig.text() and "Traceback" not in rig.text()
        rig.nothing_left()
        away.rename(rig.places.home)


def test_a_folder_that_is_away_for_a_moment_ends_nothing(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", stale=60.0) as rig:
        rig.start()
        beat = rig.ready()["beat"]
        away = rig.places.home.with_name("moved")
        rig.places.home.rename(away)
        eventually(lambda: "is tried again" in rig.text(), "a heartbeat that could not be written")
        away.rename(rig.places.home)
        eventually(lambda: rig.registered()[0]["beat"] > beat, "heartbeats again")
        assert rig.chat(rig.registered()[0])[0] == 200


def test_a_fleet_of_the_same_name_that_was_made_anew_is_not_its_own(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        worker = rig.start()
        rig.ready()
        write_json(rig.places.spec, {**rig.spec.as_json(), "id": "another"})
        assert rig.ended(worker) == 1
        assert "another fleet has taken the name" in rig.text()
        assert rig.registered() == []


@pytest.mark.parametrize(("address", "words"), [
    ("198.51.100.7", "no address of this machine"), ("no-such-host.invalid", "no such host or interface"),
    ("0.0.0.0", "names no single address"),
])
def test_an_address_that_is_not_the_nodes_is_refused_before_anything_is_loaded(tmp_path: Path, address: str,
                                                                               words: str) -> None:
    with fleet(tmp_path / "w", address=address) as rig:
        assert rig.ended(rig.start()) == 1
        assert words in rig.text() and "fleet.address" in rig.text() and "Traceback" not in rig.text()
        assert (rig.runs()[0]["hopeless"], rig.runs()[0]["phase"]) == (True, "ended")
        assert not list(rig.places.logs.glob("*.server.log"))


def test_a_key_that_others_may_read_is_refused(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        rig.places.key.chmod(0o644)
        assert rig.ended(rig.start()) == 1
        assert str(rig.places.key) in rig.text() and "Traceback" not in rig.text()
        assert rig.places.key.read_text().strip() not in rig.text()
        assert rig.runs()[0]["hopeless"] is True
        assert not list(rig.places.logs.glob("*.server.log"))


def test_a_fleet_of_another_version_is_refused(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", version="0.0.1") as rig:
        assert rig.ended(rig.start()) == 1
        assert "made by flock-hpc 0.0.1" in rig.text() and "Traceback" not in rig.text()


def test_a_fleet_that_is_gone_is_named(tmp_path: Path) -> None:
    with fleet(tmp_path / "w") as rig:
        rig.places.spec.unlink()
        assert rig.ended(rig.start()) == 1
        assert "there is no fleet 'house' any more" in rig.text() and "Traceback" not in rig.text()


def test_at_its_time_limit_it_is_put_into_the_queue_again(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"latency": 2.0}) as rig:
        queue = rig.root / ".flock-hpc" / "local"
        queue.mkdir(parents=True)
        worker = rig.start()
        answer = rig.chat_later(rig.ready(), "in flight")
        worker.send_signal(signal.SIGUSR2)
        assert answer.result(60)[0] == 200
        assert rig.ended(worker) == 0
        assert (queue / f"{JOB}.requeue").exists()
        run = rig.runs()[0]
        assert (run["why"], run["next"]["kind"], run["status"]) == ("time limit", "requeue", 0)
        rig.start(SLURM_RESTART_COUNT="1")
        assert rig.ready()["holder"]["restart"] == 1


def test_a_worker_that_never_got_ready_is_not_started_again(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"load_seconds": 600}) as rig:
        worker = rig.start()
        eventually(lambda: "waiting until it is ready" in rig.text(), "a loading worker")
        worker.send_signal(signal.SIGUSR2)
        rig.ended(worker)
        run = rig.runs()[0]
        assert (run["next"]["kind"], run["hopeless"]) == ("none", True)
        assert "before the server was ready" in run["error"]
        assert not list((rig.root / ".flock-hpc").glob("local/*.requeue"))


@pytest.mark.parametrize("same", [True, False])
def test_weights_are_staged_to_the_nodes_disk_where_they_are_those_of_the_job(tmp_path: Path, same: bool) -> None:
    weights, others, seen = tmp_path / "a judge's folder", tmp_path / "another judge", tmp_path / "seen"
    for folder in (weights, others):
        folder.mkdir()
        (folder / "config.json").write_text('{"architectures": ["X"]}')
        (folder / "model.safetensors").write_bytes(os.urandom(100_000))
    server = tmp_path / "server.sh"
    server.write_text(SERVER.format(seen=seen, python=sys.executable, judge=JUDGE))
    server.chmod(0o755)
    disk = Path("/dev/shm") / f"flock-hpc-test-{os.getpid()}"  # another file system than tmp_path
    disk.mkdir(mode=0o700)
    judge = {"kind": "vllm", "path": str(weights), "server": {"command": [str(server), "serve"]},
             "staging": {"folder": str(disk), "when": "always"},
             "environment": {"variables": {"PYTHONPATH": str(PROJECT)}}}
    try:
        with fleet(tmp_path / "w", judge=judge) as rig:
            if not same:
                judge_settings(rig.root, path=str(others))
            rig.start()
            rig.ready()
            loaded = seen.read_text().splitlines()
            assert len(loaded) == 1
            assert loaded[0].startswith(str(disk)) if same else loaded == [str(weights)]
    finally:
        shutil.rmtree(disk)


def test_nobody_uses_the_fleet_so_it_ends(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", idle=1.0) as rig:
        worker = rig.start()
        assert rig.ended(worker) == 0
        assert rig.gone()[0]["why"] == "nobody uses the fleet"


def test_of_a_fleet_in_use_the_oldest_stay_though_they_are_idle(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", idle=1.5, stale=60.0) as rig, use(rig.places, "engine"):
        first = rig.start()
        oldest = rig.ready()
        second = rig.start(FLOCK_HPC_JOB="local-8")
        assert rig.ended(second) == 0
        assert first.poll() is None
        assert [one["id"] for one in rig.registered()] == [oldest["id"]]
        assert rig.gone()[0]["why"] == "idle"


def test_what_its_record_says_adds_up(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", rehearsal={"load_seconds": 1.0, "latency": 1.0}) as rig:
        worker = rig.start()
        record = rig.ready()
        assert rig.chat(record)[0] == 200
        retire(rig.places, record["id"])
        assert rig.ended(worker) == 0
        run = rig.runs()[0]
        spent = run["spent"]
        assert sum(spent.values()) == pytest.approx(run["seconds"], abs=0.01)
        assert run["seconds"] == pytest.approx(run["ended"] - run["started"], abs=0.5)
        assert spent["load"] >= run["loads"][0] >= 1.0
        assert 1.0 <= spent["work"] < 5.0
        assert spent_of(read_worker_runs(rig.places), time.time()).total == pytest.approx(run["seconds"], abs=0.01)
        assert json.loads((rig.places.gone / f"{record['id']}.json").read_text())["served"] == 1


def test_a_registry_that_can_not_be_written_is_tried_again(tmp_path: Path) -> None:
    with fleet(tmp_path / "w", stale=60.0) as rig:
        rig.start()
        record = rig.ready()
        shutil.rmtree(rig.places.workers)
        rig.places.workers.write_text("")
        eventually(lambda: "is tried again" in rig.text(), "a heartbeat that could not be written")
        assert rig.chat(record)[0] == 200
        rig.places.workers.unlink()
        rig.places.workers.mkdir(mode=0o700)
        eventually(lambda: [one["id"] for one in rig.registered()] == [record["id"]], "registered again")
