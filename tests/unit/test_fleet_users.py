"""Who uses a fleet: an engine or router counts while it beats, or while its process or job lives."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automate.claims import Holder, myself
from automate.errors import ClusterError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.keys import make_secrets
from automate.serving.fleet.registry import use, users
from tests.unit.fleet_registry_support import Jobs, dead, elsewhere

STALE = 30.0


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    found = FleetPlaces(tmp_path, "f")
    make_secrets(found)
    return found


def put(places: FleetPlaces, holder: Holder, age: float) -> Path:
    path = use(places, "engine", me=holder).path
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def count(places: FleetPlaces, **says: bool | None) -> int:
    return len(users(places, job_alive=Jobs(**says), stale=STALE))


def test_who_uses_a_fleet_is_seen_until_it_is_released(places: FleetPlaces) -> None:
    assert users(places) == []
    with use(places, "engine") as first:
        with use(places, "router"):
            assert sorted(one.who for one in users(places)) == ["engine", "router"]
        assert [one.who for one in users(places)] == ["engine"]
        first.release()
        assert users(places) == []
        first.beat()
        assert len(users(places)) == 1
    assert list(places.users.iterdir()) == []


def test_a_heartbeat_makes_it_young_again(places: FleetPlaces) -> None:
    holder = elsewhere("7")
    put(places, holder, STALE + 5)
    assert count(places) == 0
    use(places, "engine", me=holder).beat()
    assert count(places) == 1


@pytest.mark.parametrize(("word", "there"), [(True, True), (False, False), (None, False)])
def test_a_silent_one_counts_while_its_job_lives(places: FleetPlaces, word: bool | None, there: bool) -> None:
    path = put(places, elsewhere("7"), STALE + 5)
    assert count(places, j7=word) == int(there)
    assert path.exists() is (word is not False)


def test_a_silent_one_of_this_machine_counts_while_its_process_lives(places: FleetPlaces) -> None:
    put(places, myself({}), STALE + 5)
    path = put(places, dead(), STALE + 5)
    assert count(places) == 1
    assert not path.exists()


def test_a_young_one_counts_whatever_slurm_says(places: FleetPlaces) -> None:
    put(places, elsewhere("7"), 0)
    assert count(places, j7=False) == 1


def test_one_from_the_future_must_show_that_it_lives(places: FleetPlaces) -> None:
    put(places, elsewhere("7"), -86_400)
    assert count(places, j7=False) == 0


def test_slurm_that_says_nothing_is_no_crash(places: FleetPlaces) -> None:
    def fails(job: str) -> bool | None:
        raise ClusterError("squeue failed")

    put(places, elsewhere("7"), STALE + 5)
    assert users(places, job_alive=fails, stale=STALE) == []


def test_garbage_is_nobody(places: FleetPlaces) -> None:
    for number, text in enumerate(["", "[]", "{}", '{"who": 1, "holder": {}}', '{"who": "x", "holder": 3}']):
        (places.users / f"{number}.json").write_text(text)
    (places.users / "link.json").symlink_to(places.key)
    assert users(places) == []


def test_a_full_disk_makes_nobody_vanish(places: FleetPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    put(places, elsewhere("7"), 0)

    def full(path: Path) -> float:
        raise StorageError("can't write there: No space left on device")

    monkeypatch.setattr("automate.serving.fleet.users.age_of", full)
    assert count(places) == 1


def test_a_lost_folder_is_said_and_not_made_anew(places: FleetPlaces, tmp_path: Path) -> None:
    user = use(places, "engine")
    places.home.rename(tmp_path / "moved")
    for act in (user.beat, lambda: users(places), lambda: use(places, "router")):
        with pytest.raises(StorageError, match="lost"):
            act()
    user.release()
    assert not places.home.exists()


def test_two_users_of_one_process_are_two(places: FleetPlaces) -> None:
    mine = myself({})
    use(places, "engine", me=mine)
    use(places, "router", me=replace(mine, nonce="other"))
    assert count(places) == 2
