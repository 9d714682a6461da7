"""The registry: who registers is seen, who is silent is asked after, who is gone is dropped; nothing else is used."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.errors import ClusterError, DataError, FlockError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet import files
from automate.serving.fleet.keys import make_secrets
from automate.serving.fleet.records import Wish, WorkerRecord
from automate.serving.fleet.registry import (
    Seen,
    is_retired,
    read_spec,
    read_wish,
    register,
    retire,
    unregister,
    write_wish,
)
from automate.serving.fleet.watch import Watch
from tests.unit.fleet_registry_support import STALE, Fleet, dead, elsewhere, make_record, make_spec

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: needs root")


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    found = FleetPlaces(tmp_path, "f")
    make_secrets(found)
    return found


@pytest.fixture
def fleet(places: FleetPlaces) -> Fleet:
    return Fleet(places)


def gone(places: FleetPlaces, worker: str) -> dict[str, object]:
    found: dict[str, object] = orjson.loads((places.gone / f"{worker}.json").read_bytes())
    return found


def visible_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# Registering


def test_a_worker_that_registers_is_usable(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    seen = fleet.look()
    assert seen == {"w1": Seen(record, "alive", seen["w1"].silence)}
    assert fleet.look()["w1"].usable
    assert fleet.watch.bad == {}
    assert fleet.jobs.asked == []
    assert stat.S_IMODE(fleet.places.worker("w1").stat().st_mode) == 0o600


def test_each_heartbeat_replaces_the_record_whole(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    with fleet.places.worker("w1").open("rb") as before:
        register(fleet.places, record.beaten(5.0, in_flight=3))
        assert orjson.loads(before.read())["beat"] == 0  # whoever reads meanwhile has a whole record
    assert fleet.look()["w1"].record.in_flight == 3
    assert visible_files(fleet.places.workers) == ["w1.json"]


def test_nothing_is_made_in_a_registry_that_is_lost(fleet: Fleet, tmp_path: Path) -> None:
    register(fleet.places, make_record())
    fleet.places.home.rename(tmp_path / "moved")
    acts = [partial(register, fleet.places, make_record()), partial(write_wish, fleet.places, Wish()),
            partial(retire, fleet.places, "w1")]
    for act in acts:
        with pytest.raises(StorageError, match="lost") as error:
            act()
        assert error.value.todo
    unregister(fleet.places, make_record(), "ended")
    assert not fleet.places.home.exists()


def test_a_registry_that_is_lost_is_said_and_works_again_when_it_comes_back(fleet: Fleet, tmp_path: Path) -> None:
    register(fleet.places, make_record())
    assert fleet.look()["w1"].usable
    fleet.places.workers.rename(tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(StorageError, match="lost") as error:
            fleet.look()
        assert "put the folder back" in (error.value.todo or "")
    (tmp_path / "moved").rename(fleet.places.workers)
    assert fleet.look()["w1"].usable


def test_a_file_in_the_registrys_place_is_lost_too(fleet: Fleet) -> None:
    fleet.places.workers.rmdir()
    fleet.places.workers.write_text("")
    with pytest.raises(StorageError, match="lost"):
        fleet.look()
    with pytest.raises(StorageError, match="lost"):
        register(fleet.places, make_record())


def test_a_full_disk_is_a_storage_error(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageError, match="No space left"):
        register(fleet.places, make_record())


def test_a_full_disk_keeps_nobody_from_reading(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    register(fleet.places, make_record())

    def full(path: Path) -> float:
        raise StorageError("can't write there: No space left on device")

    monkeypatch.setattr("automate.serving.fleet.watch.age_of", full)
    assert fleet.look()["w1"].usable


# Unregistering


def test_who_unregisters_leaves_a_last_word(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    unregister(fleet.places, record, "its time limit")
    assert fleet.look() == {}
    assert gone(fleet.places, "w1")["why"] == "its time limit"
    assert WorkerRecord.of(gone(fleet.places, "w1"), "gone") == record


def test_unregistering_again_changes_nothing(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    unregister(fleet.places, record, "first")
    unregister(fleet.places, record, "second")
    assert gone(fleet.places, "w1")["why"] == "first"


def test_the_registration_of_another_under_its_id_stays(fleet: Fleet) -> None:
    register(fleet.places, make_record(nonce="newer"))
    unregister(fleet.places, make_record(nonce="older"), "ended")
    assert fleet.look()["w1"].record.nonce == "newer"
    assert visible_files(fleet.places.gone) == []


def test_it_is_unregistered_also_where_its_last_word_cant_be_kept(fleet: Fleet) -> None:
    register(fleet.places, make_record())
    fleet.places.gone.rmdir()
    unregister(fleet.places, make_record(), "ended")
    assert fleet.look() == {}


def test_last_words_do_not_pile_up(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_KEPT", 3)
    for number in range(6):
        record = make_record(f"w{number}")
        register(fleet.places, record)
        unregister(fleet.places, record, "ended")
        os.utime(fleet.places.gone / f"w{number}.json", (number, number))
    assert visible_files(fleet.places.gone) == ["w3.json", "w4.json", "w5.json"]


def test_a_killed_workers_half_written_file_is_no_record(fleet: Fleet) -> None:
    (fleet.places.workers / ".w1.nonce.tmp").write_text('{"id": ')
    register(fleet.places, make_record())
    assert list(fleet.look()) == ["w1"]
    assert fleet.watch.bad == {}


# Silence


def test_silence_alone_is_not_death(fleet: Fleet) -> None:
    register(fleet.places, make_record())
    fleet.look()
    fleet.clock.now += STALE - 1
    assert fleet.look()["w1"].usable
    fleet.clock.now += 2
    seen = fleet.look()["w1"]
    assert (seen.life, seen.usable) == ("silent", False)
    assert seen.silence == pytest.approx(STALE + 1, abs=2)
    assert "no heartbeat for 3" in seen.why
    assert "its job 7 lives" in seen.why
    assert fleet.places.worker("w1").exists()


def test_a_heartbeat_ends_the_silence(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    fleet.look()
    fleet.clock.now += 1000
    assert not fleet.look()["w1"].usable
    register(fleet.places, record.beaten(1.0))
    seen = fleet.look()["w1"]
    assert seen.usable
    assert seen.silence == 0


def test_silence_and_slurms_word_are_death(fleet: Fleet) -> None:
    register(fleet.places, make_record())
    fleet.look()
    fleet.jobs.says["7"] = False
    assert fleet.look()["w1"].usable  # the job's end alone is not enough either
    fleet.clock.now += STALE + 1
    seen = fleet.look()["w1"]
    assert (seen.life, seen.usable) == ("gone", False)
    assert "its job 7 is gone" in seen.why
    assert fleet.look() == {}
    assert "its job 7 is gone" in str(gone(fleet.places, "w1")["why"])


def test_who_was_dropped_and_beats_again_is_back(fleet: Fleet) -> None:
    record = make_record()
    register(fleet.places, record)
    fleet.look()
    fleet.jobs.says["7"] = False
    fleet.clock.now += STALE + 1
    fleet.look()
    register(fleet.places, record.beaten(1.0))
    assert fleet.look()["w1"].usable


@pytest.mark.parametrize("job", [None, "8"])
def test_one_of_whom_nobody_can_tell_stays_and_is_never_used(fleet: Fleet, job: str | None) -> None:
    fleet.put(make_record(holder=elsewhere(job)), age=STALE + 5)
    for _ in range(3):
        seen = fleet.look()["w1"]
        assert (seen.life, seen.usable) == ("silent", False)
        assert "nobody here can tell" in seen.why
        fleet.clock.now += 100_000
    assert fleet.places.worker("w1").exists()


def test_a_process_of_this_machine_needs_no_slurm(fleet: Fleet) -> None:
    fleet.put(make_record(holder=dead()), age=STALE + 5)
    assert fleet.look()["w1"].life == "gone"
    assert fleet.jobs.asked == []


def test_slurm_is_asked_seldom(fleet: Fleet) -> None:
    fleet.put(make_record(), age=STALE + 5)
    for _ in range(14):
        fleet.look()
        fleet.clock.now += 1
    assert fleet.jobs.asked == ["7"]
    fleet.clock.now += 2
    fleet.look()
    assert fleet.jobs.asked == ["7", "7"]


def test_slurm_that_says_nothing_is_no_crash(fleet: Fleet) -> None:
    def fails(job: str) -> bool | None:
        raise ClusterError("squeue failed")

    fleet.put(make_record(), age=STALE + 5)
    watch = Watch(fleet.places, fleet.spec, fails, version="1.2.3", clock=fleet.clock)
    assert watch.look()["w1"].life == "silent"


def test_a_record_that_cant_be_removed_is_said_to_be_gone_again(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet.put(make_record(holder=dead()), age=STALE + 5)

    def refuse(*_: object) -> None:
        raise StorageError("read-only")

    monkeypatch.setattr("automate.serving.fleet.watch.bury", refuse)
    assert [fleet.look()["w1"].life for _ in range(2)] == ["gone", "gone"]


# First sight, and clocks


def test_a_new_reader_does_not_take_an_old_record_for_alive(fleet: Fleet) -> None:
    fleet.put(make_record(), age=STALE + 5)
    seen = fleet.look()["w1"]
    assert seen.life == "silent"
    assert seen.silence == pytest.approx(STALE + 5, abs=5)


def test_the_age_at_first_sight_counts_towards_the_silence(fleet: Fleet) -> None:
    fleet.put(make_record(), age=STALE - 10)
    assert fleet.look()["w1"].usable
    fleet.clock.now += 15
    assert fleet.look()["w1"].life == "silent"


@pytest.mark.parametrize(("ahead", "note"), [
    (0.0, ""), (30.0, ""), (-30.0, ""), (3660.0, "its clock is 36"),
    (-7250.0, "its clock is 72"),
])
def test_a_wrong_clock_is_said_and_does_no_harm(fleet: Fleet, ahead: float, note: str) -> None:
    fleet.put(make_record(time=float(round(time.time() + ahead))))
    seen = fleet.look()["w1"]
    assert seen.usable
    assert seen.note.startswith(note)
    assert ("ahead" in seen.note, "behind" in seen.note) == (ahead > 60, ahead < -60)
    assert seen.skew == pytest.approx(ahead, abs=20)


def test_one_that_says_no_time_has_no_wrong_clock(fleet: Fleet) -> None:
    register(fleet.places, make_record(time=0.0))
    assert fleet.look()["w1"].skew == 0


@pytest.mark.parametrize("ahead", [60.0, 86_400.0, 86_400.0 * 3650])
def test_a_heartbeat_from_the_future_counts_once_and_then_it_must_beat(fleet: Fleet, ahead: float) -> None:
    fleet.put(make_record(time=4e9, since=4e9, until=1.0), age=-ahead)
    assert fleet.look()["w1"].usable
    fleet.clock.now += STALE + 1
    assert fleet.look()["w1"].life == "silent"
    register(fleet.places, make_record(beat=1, time=-4e9))
    assert fleet.look()["w1"].usable


def test_any_change_of_the_beat_is_a_heartbeat(fleet: Fleet) -> None:
    register(fleet.places, make_record(beat=9))
    fleet.look()
    fleet.clock.now += STALE + 1
    register(fleet.places, make_record(beat=3))
    assert fleet.look()["w1"].usable


def test_a_record_written_again_without_a_beat_is_not_one(fleet: Fleet) -> None:
    register(fleet.places, make_record())
    fleet.look()
    fleet.clock.now += STALE + 1
    register(fleet.places, make_record())
    assert fleet.look()["w1"].life == "silent"


# Whom not to use


@pytest.mark.parametrize(("changes", "why"), [
    ({"fleet": "older"}, "another fleet of this name"),
    ({"version": "0.0.1"}, "runs flock-hpc 0.0.1, this is 1.2.3"),
    ({"group": 5}, "no group 5"),
    ({"group": -1}, "no group -1"),
    ({"model": "other"}, "serves other, adapter; its group is to serve judge, adapter"),
    ({"also": ("adapter", "foreign")}, "serves judge, adapter, foreign"),
])
def test_a_worker_that_is_not_what_it_should_be_is_not_used(fleet: Fleet, changes: dict[str, Any], why: str) -> None:
    register(fleet.places, make_record(**changes))
    seen = fleet.look()["w1"]
    assert (seen.life, seen.usable) == ("alive", False)
    assert why in seen.why


def test_one_that_drains_is_alive_and_gets_nothing_new(fleet: Fleet) -> None:
    register(fleet.places, make_record(state="draining"))
    seen = fleet.look()["w1"]
    assert (seen.life, seen.usable, seen.why) == ("alive", False, "")


@pytest.mark.parametrize(("data", "why"), [
    (b"", "JSON"), (b"\x00\xff", "JSON"), (b"[1]", "expected a JSON object"), (b"{}", "Field required"),
    (b'{"id": "w1"}', "Field required"), (b"9" * 70_000, "too large"), (b"[" * 50_000, "JSON"),
])
def test_garbage_is_named_and_not_used(fleet: Fleet, data: bytes, why: str) -> None:
    (fleet.places.workers / "w1.json").write_bytes(data)
    register(fleet.places, make_record("w2"))
    assert list(fleet.look()) == ["w2"]
    assert list(fleet.watch.bad) == ["w1.json"]
    assert why in fleet.watch.bad["w1.json"]
    (fleet.places.workers / "w1.json").unlink()
    fleet.look()
    assert fleet.watch.bad == {}


@pytest.mark.parametrize("name", ["other.json", "w1", "w1.txt", "W1.json", "\x1b[2J.json"])
def test_a_record_under_another_name_is_not_used(fleet: Fleet, name: str) -> None:
    (fleet.places.workers / name).write_bytes(orjson.dumps(make_record().as_json()))
    assert fleet.look() == {}
    assert "another name (w1)" in fleet.watch.bad[name]


@pytest.mark.parametrize("kind", ["folder", "pipe", "link", "dangling"])
def test_what_is_no_plain_file_is_not_used_and_not_waited_for(fleet: Fleet, tmp_path: Path, kind: str) -> None:
    path, elsewhere = fleet.places.worker("w1"), tmp_path / "record"
    elsewhere.write_bytes(orjson.dumps(make_record().as_json()))
    match kind:
        case "folder":
            path.mkdir()
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to(elsewhere)
        case _:
            path.symlink_to(tmp_path / "nowhere")
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        assert fleet.look() == {}
    assert "w1.json" in fleet.watch.bad
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


@AS_ROOT
def test_a_record_of_another_user_is_not_used(fleet: Fleet) -> None:
    register(fleet.places, make_record())
    os.chown(fleet.places.worker("w1"), 65534, 65534)
    assert fleet.look() == {}
    assert "belongs to another user (uid 65534)" in fleet.watch.bad["w1.json"]


def test_a_file_that_goes_while_it_is_read_is_nothing(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    register(fleet.places, make_record())
    found = files.read_dated

    def goes(path: Path) -> tuple[dict[str, object], float]:
        path.unlink()
        return found(path)

    monkeypatch.setattr("automate.serving.fleet.watch.read_dated", goes)
    assert fleet.look() == {}
    assert fleet.watch.bad == {}


def test_a_reader_beside_writers_never_sees_half_a_record(fleet: Fleet) -> None:
    stop = threading.Event()

    def beat(worker: str) -> None:
        record = make_record(worker)
        while not stop.is_set():
            register(fleet.places, record)
            record = record.beaten(1.0)

    names = ["w0", "w1", "w2"]
    threads = [threading.Thread(target=beat, args=(name,)) for name in names]
    for name, thread in zip(names, threads, strict=True):
        register(fleet.places, make_record(name))
        thread.start()
    try:
        for _ in range(200):
            assert sorted(fleet.look()) == names
            assert fleet.watch.bad == {}
    finally:
        stop.set()
        for thread in threads:
            thread.join()


# Several registrations


def test_a_job_that_was_started_again_replaces_its_older_registration(fleet: Fleet) -> None:
    fleet.put(make_record("old", holder=elsewhere("7", restart=0)))
    assert fleet.look()["old"].usable
    fleet.put(make_record("new", holder=elsewhere("7", restart=1)))
    seen = fleet.look()
    assert seen["new"].usable
    assert (seen["old"].life, seen["old"].usable) == ("gone", False)
    assert "its job 7 was started again, and registered as new" in seen["old"].why
    assert list(fleet.look()) == ["new"]
    assert fleet.jobs.asked == []


def test_a_silent_one_whose_job_waits_to_start_again_stays_silent(fleet: Fleet) -> None:
    """Slurm says that the job lives, for it is queued again: nothing is sent there meanwhile."""
    fleet.put(make_record(), age=STALE + 5)
    assert fleet.look()["w1"].life == "silent"


def test_workers_of_different_jobs_stay_side_by_side(fleet: Fleet) -> None:
    fleet.jobs.says["8"] = True
    fleet.put(make_record("a", holder=elsewhere("7", restart=0)))
    fleet.put(make_record("b", holder=elsewhere("8", restart=1)))
    fleet.put(make_record("c", holder=elsewhere(None, restart=0)))
    fleet.put(make_record("d", holder=elsewhere(None, restart=1)))
    assert all(seen.usable for seen in fleet.look().values())
    assert len(fleet.look()) == 4


def test_a_process_that_registered_anew_leaves_its_silent_record(fleet: Fleet) -> None:
    holder = elsewhere()
    fleet.put(make_record("old", holder=holder, since=100.0), age=STALE + 5)
    fleet.put(make_record("new", holder=holder, since=200.0))
    seen = fleet.look()
    assert seen["new"].usable
    assert (seen["old"].life, seen["old"].why) == ("gone", "its job 7 registered anew as new")


def test_of_a_processs_silent_records_the_last_stays(fleet: Fleet) -> None:
    holder = elsewhere()
    fleet.put(make_record("old", holder=holder, since=100.0), age=STALE + 5)
    fleet.put(make_record("new", holder=holder, since=200.0), age=STALE + 5)
    assert {worker: seen.life for worker, seen in fleet.look().items()} == {"new": "silent", "old": "gone"}


def test_a_new_nonce_under_an_id_is_a_new_worker(fleet: Fleet) -> None:
    fleet.put(make_record(nonce="one"))
    fleet.look()
    fleet.put(make_record(nonce="two"), age=STALE + 5)  # the same beat, and old: at first sight the file's age counts
    assert fleet.look()["w1"].life == "silent"
    fleet.put(make_record(nonce="two", beat=1))
    assert fleet.look()["w1"].usable


def test_two_workers_under_one_id_are_not_used(fleet: Fleet) -> None:
    one, two = make_record(nonce="one"), make_record(nonce="two")
    for beat in range(3):
        fleet.put(replace(one, beat=beat))
        first = fleet.look()["w1"]
        fleet.put(replace(two, beat=beat))
        second = fleet.look()["w1"]
        fleet.clock.now += 5
        if beat:
            assert first.why == second.why == "two workers register under this name"
            assert not first.usable
    fleet.clock.now += STALE  # one of them ends
    fleet.put(replace(two, beat=10))
    assert fleet.look()["w1"].usable


# What the fleet is, and what is wished


def test_spec_and_wish_come_back_as_they_were(places: FleetPlaces) -> None:
    assert read_spec(places) is None
    assert read_wish(places) == Wish()
    places.spec.write_bytes(orjson.dumps(make_spec().as_json()))
    assert read_spec(places) == make_spec()
    wish = Wish({0: 3, 1: 0}, True, 12.5)
    write_wish(places, wish)
    assert read_wish(places) == wish


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"name": 3}', b"\xff"])
def test_a_broken_spec_is_said(places: FleetPlaces, data: bytes) -> None:
    places.spec.write_bytes(data)
    with pytest.raises(DataError) as error:
        read_spec(places)
    assert error.value.where == str(places.spec)


@pytest.mark.parametrize("data", [b"", b"[]", b'{"wanted": 3}', b'{"wanted": {"x": 1}}', b'{"wanted": {"0": -1}}'])
def test_a_broken_wish_is_said_and_not_taken_for_none(places: FleetPlaces, data: bytes) -> None:
    places.wish.write_bytes(data)
    with pytest.raises(DataError) as error:
        read_wish(places)
    assert error.value.where == str(places.wish)


def test_a_spec_that_cant_be_read_is_a_storage_error(places: FleetPlaces) -> None:
    places.spec.mkdir()
    with pytest.raises(StorageError):
        read_spec(places)


def test_a_retired_worker_is_asked_to_end_and_no_other(places: FleetPlaces) -> None:
    retire(places, "w1")
    retire(places, "w1")
    assert is_retired(places, "w1")
    assert not is_retired(places, "w2")


def test_no_error_of_the_registry_is_a_bug(fleet: Fleet) -> None:
    """Whatever lies in the folder, a look ends with workers or an error that says what to do."""
    for number, text in enumerate(["\x1b]0;x\x07", "null", "{}", orjson.dumps(asdict(elsewhere())).decode()]):
        (fleet.places.workers / f"x{number}.json").write_text(text)
    (fleet.places.workers / "..odd").write_text("")
    try:
        assert fleet.look() == {}
    except FlockError as error:
        pytest.fail(str(error))
    assert len(fleet.watch.bad) == 4
