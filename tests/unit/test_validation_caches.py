"""Models nobody uses go by age and size; what an outstanding assignment uses never does."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from automate.validation import caches, snapshots
from automate.validation.assignments import Snapshot, State
from automate.validation.repositories import RepoFile
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces
from tests.unit.validation_files_rig import NOW, admit, make_places

SIZE = 1000


def put(places: ValidationPlaces, letter: str, days: float, repo: str = "org/model") -> Path:
    """A snapshot of SIZE bytes that was last used some days ago."""
    def fetch(file: RepoFile, into: Path) -> None:
        (into / file.name).write_bytes(b"x" * file.size)

    folder = snapshots.build(places.models, repo, letter * 40, [RepoFile("model.safetensors", SIZE)], fetch)
    snapshots.touch(folder, NOW - days * caches.DAY)
    return folder


def use(spool: Spool, number: str, folder: Path, state: State = State.FETCHED) -> None:
    """An assignment in `state` that uses a snapshot."""
    made = replace(admit(spool, number), model=Snapshot("org/model", "main", folder.name, str(folder)))
    spool.save(made)
    if state is not State.FETCHED:
        spool.move(made, state)


def made(root: Path, **models: float | None) -> tuple[ValidationPlaces, Spool]:
    places = make_places(root, models=models)
    return places, Spool(places)


def test_what_was_not_used_for_long_goes(tmp_path: Path) -> None:
    places, spool = made(tmp_path)
    old, young = put(places, "a", 15), put(places, "b", 13)
    done = caches.clean(places, spool, NOW)
    assert done.removed == (old,) and (done.freed, done.left, done.problems) == (SIZE, SIZE, ())
    assert not old.exists() and not snapshots.manifest_of(old).exists()
    assert snapshots.whole(young)
    assert not list((places.models / ".trash").iterdir())


def test_the_longest_unused_goes_above_the_size(tmp_path: Path) -> None:
    places, spool = made(tmp_path, max_gb=2 * SIZE / caches.GB, max_age_days=None)
    folders = [put(places, letter, days) for letter, days in (("a", 1), ("b", 4), ("c", 2), ("d", 3))]
    done = caches.clean(places, spool, NOW)
    assert done.removed == (folders[1], folders[3]) and done.left == 2 * SIZE


@pytest.mark.parametrize("state", [State.FETCHED, State.RUNNING, State.DONE])
def test_what_an_outstanding_assignment_uses_stays(tmp_path: Path, state: State) -> None:
    places, spool = made(tmp_path, max_gb=1e-9)
    used, free = put(places, "a", 100), put(places, "b", 99)
    use(spool, "7", used, state)
    done = caches.clean(places, spool, NOW)
    assert (done.removed, done.problems) == ((free,), ())
    assert snapshots.whole(used)


def test_what_comes_into_use_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places, spool = made(tmp_path)
    folder = put(places, "a", 100)
    answers = [set(), {folder}]
    monkeypatch.setattr(caches, "in_use", lambda places, spool: answers.pop(0))
    done = caches.clean(places, spool, NOW)
    assert done.removed == () and "came into use" in done.problems[0]
    assert snapshots.whole(folder)


@pytest.mark.parametrize("state", [State.SUBMITTED, State.FAILED, State.GIVEN_UP])
def test_what_is_settled_keeps_nothing(tmp_path: Path, state: State) -> None:
    places, spool = made(tmp_path)
    folder = put(places, "a", 100)
    use(spool, "7", folder, state)
    assert caches.clean(places, spool, NOW).removed == (folder,)


def test_what_another_workspace_uses_stays(tmp_path: Path) -> None:
    shared = str(tmp_path / "models")
    mine, spool = made(tmp_path / "mine")
    places = make_places(tmp_path / "mine", models={"folder": shared})
    theirs = make_places(tmp_path / "theirs", models={"folder": shared})
    folder, free = put(places, "a", 100), put(places, "b", 100)
    caches.note_workspace(theirs)
    use(Spool(theirs), "7", folder)
    assert caches.clean(places, Spool(places), NOW).removed == (free,)
    assert mine.root == places.root and snapshots.whole(folder) and not spool.listed()


def test_what_was_just_used_stays_though_there_is_too_much(tmp_path: Path) -> None:
    places, spool = made(tmp_path, max_gb=1e-9)
    put(places, "a", 0)
    assert caches.clean(places, spool, NOW + caches.GRACE / 2) == caches.Cleaned(left=SIZE)
    assert caches.clean(places, spool, NOW + caches.GRACE * 2).removed != ()


def test_what_is_being_fetched_stays(tmp_path: Path) -> None:
    places, spool = made(tmp_path)
    folder = put(places, "a", 100)
    with snapshots.held(places.models, folder):
        done = caches.clean(places, spool, NOW)
    assert done.removed == () and "at work" in done.problems[0]
    assert snapshots.whole(folder)


def test_what_was_never_finished_goes_too_unless_it_is_pinned(tmp_path: Path) -> None:
    places, spool = made(tmp_path)
    parts = []
    for letter in "ab":
        part = snapshots.aside_of(snapshots.folder_of(places.models, "org/model", letter * 40))
        part.mkdir(parents=True)
        (part / "f").write_bytes(b"x" * SIZE)
        os.utime(part, (NOW - 100 * caches.DAY,) * 2)
        parts.append(part)
    spool.save(replace(admit(spool), model_commit="a" * 40))
    assert caches.clean(places, spool, NOW).removed == (parts[1],)
    assert parts[0].is_dir()


def test_what_is_not_ours_is_never_touched(tmp_path: Path) -> None:
    places, spool = made(tmp_path)
    strange = places.models / "my" / "model"
    strange.mkdir(parents=True)
    os.utime(strange, (0, 0))
    (places.models / "file").write_text("x")
    assert caches.clean(places, spool, NOW) == caches.Cleaned()
    assert strange.is_dir()


def test_nothing_is_there(tmp_path: Path) -> None:
    places, spool = made(tmp_path)
    assert caches.clean(places, spool, NOW) == caches.Cleaned()
