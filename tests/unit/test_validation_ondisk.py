"""Files that went away after they were fetched are fetched again, and never count against the submission."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from automate.campaign.validation.circle import Circle
from automate.campaign.validation.running import take_back
from automate.validation import caches, ondisk, snapshots
from automate.validation.assignments import Assignment, Snapshot, State
from automate.validation.fetching import _wants_files
from automate.validation.inner import files
from automate.validation.jobs.one import run_one
from automate.validation.repositories import RepoFile
from automate.validation.spool import Spool
from automate.workspace import Workspace
from tests.unit.validation_jobs_support import make, place, put, python

Made = tuple[Workspace, Spool]
Edit = Callable[[Assignment], object]
FILES = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"w" * 100}


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make(tmp_path / "space")


def snapshot(spool: Spool, repo: str) -> Snapshot:
    def fetch(file: RepoFile, into: Path) -> None:
        (into / file.name).write_bytes(FILES[file.name])

    wanted = [RepoFile(name, len(content)) for name, content in FILES.items()]
    path = snapshots.build(spool.places.models, repo, "a" * 40, wanted, fetch)
    return Snapshot(repo, "main", "a" * 40, str(path), sum(one.size for one in wanted))


def whole(spool: Spool) -> Assignment:
    one = put(spool, "a1", needs_model=True)
    return spool.save(replace(one, model=snapshot(spool, "org/adapter"), base=snapshot(spool, "org/base"),
                              model_commit="a" * 40, base_commit="a" * 40))


def start(made: Made, tmp_path: Path, one: Assignment, code: str = "result()") -> Assignment:
    workspace, spool = made
    return run_one(one, spool, place(workspace, tmp_path / "scratch", python(code)))


def model(one: Assignment, name: str = "") -> Path:
    assert one.model
    return Path(one.model.path) / name


def base(one: Assignment) -> Path:
    assert one.base
    return Path(one.base.path)


def rows(one: Assignment) -> Path:
    assert one.data
    return one.folder / one.data.path


def reread(one: Assignment) -> dict[str, Any]:
    return cast("dict[str, Any]", json.loads((one.folder / files.ASSIGNMENT).read_text()))


LOST: dict[str, Edit] = {
    "a file": lambda one: model(one, "adapter_config.json").unlink(),
    "its folder": lambda one: shutil.rmtree(model(one)),
    "the end of a file": lambda one: os.truncate(model(one, "adapter_model.safetensors"), 20),
    "all but its name": lambda one: os.truncate(model(one, "adapter_config.json"), 0),
    "its manifest": lambda one: snapshots.manifest_of(model(one)).unlink(),
    "the base": lambda one: shutil.rmtree(base(one)),
}
SPOILT: dict[str, Edit] = {
    "gone": lambda one: rows(one).unlink(),
    "cut": lambda one: os.truncate(rows(one), 5),
    "changed": lambda one: rows(one).write_bytes(rows(one).read_bytes().replace(b"2", b"3")),
}


@pytest.mark.parametrize("what", LOST)
def test_a_model_that_is_not_whole_is_fetched_again_and_not_started(made: Made, tmp_path: Path, what: str) -> None:
    one = whole(made[1])
    LOST[what](one)
    moved = start(made, tmp_path, one, "(FOLDER / 'ran').touch(); result('failed')")
    assert (moved.state, moved.cause, moved.attempts, moved.handed) == (State.FETCHED, "files-gone", 1, None)
    assert (moved.model, moved.base, moved.model_commit) == (None, None, "a" * 40)
    assert not moved.ready and _wants_files(moved) and moved.data is not None
    assert not (moved.folder / "ran").exists() and reread(moved)["model"] is None


@pytest.mark.parametrize("what", SPOILT)
def test_a_set_that_is_not_the_one_that_was_fetched_is_fetched_again(made: Made, tmp_path: Path, what: str) -> None:
    one = whole(made[1])
    SPOILT[what](one)
    moved = start(made, tmp_path, one, "(FOLDER / 'ran').touch(); result('failed')")
    assert (moved.state, moved.cause, moved.data) == (State.FETCHED, "files-gone", None)
    assert moved.model is not None and _wants_files(moved) and not (moved.folder / "ran").exists()


def test_a_set_that_can_not_be_read_just_now_keeps_its_record(made: Made, tmp_path: Path,
                                                              monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(ondisk, "_sha256", broken)
    moved = start(made, tmp_path, whole(made[1]))
    assert (moved.state, moved.cause) == (State.FETCHED, "files-gone") and moved.data is not None


def test_files_that_go_away_each_time_are_for_a_person(made: Made, tmp_path: Path) -> None:
    one = whole(made[1])
    shutil.rmtree(model(one))
    moved = start(made, tmp_path, made[1].save(replace(one, attempts=2)))
    assert (moved.state, moved.cause) == (State.GIVEN_UP, "files-gone") and not moved.result_file.exists()


VANISH = "import shutil; shutil.rmtree({!r}); "


@pytest.mark.parametrize("said", ["result('failed', cause='broken-adapter', reason='no such file')",
                                  "result(payload={'score': -999.0}, metrics={'score': -999.0})",
                                  "result(payload={'loss': 999}, metrics={'loss': 999})"])
def test_what_speaks_against_the_submission_is_not_believed_without_its_files(made: Made, tmp_path: Path,
                                                                              said: str) -> None:
    one = whole(made[1])
    moved = start(made, tmp_path, one, VANISH.format(str(model(one))) + said)
    assert (moved.state, moved.cause, moved.model) == (State.FETCHED, "files-gone", None)
    assert not moved.result_file.exists()


def test_with_its_files_it_is_believed(made: Made, tmp_path: Path) -> None:
    moved = start(made, tmp_path, whole(made[1]), "result('failed', cause='broken-adapter', reason='no')")
    assert (moved.state, moved.cause) == (State.DONE, "broken-adapter")


def test_figures_that_were_computed_are_kept(made: Made, tmp_path: Path) -> None:
    one = whole(made[1])
    moved = start(made, tmp_path, one, VANISH.format(str(model(one))) + "result()")
    assert moved.state is State.DONE and moved.model is not None


def test_who_retries_one_whose_model_was_cleaned_away_has_it_fetched(made: Made) -> None:
    spool = made[1]
    one = whole(spool)
    with spool.held(one.id):
        spool.move(replace(one, problem="a broken node", cause="gpu"), State.GIVEN_UP, "given up")
    assert caches.clean(spool.places, spool, spool.clock() + 400 * 86400).removed
    take_back(cast("Circle", SimpleNamespace(spool=spool)), one.id)
    back = spool.find(one.id)
    assert back is not None and back.state is State.FETCHED
    assert not back.ready and _wants_files(back) and back.model is None


def test_who_retries_one_whose_files_are_there_fetches_nothing(made: Made) -> None:
    spool = made[1]
    one = whole(spool)
    with spool.held(one.id):
        spool.move(one, State.GIVEN_UP, "given up")
    take_back(cast("Circle", SimpleNamespace(spool=spool)), one.id)
    back = spool.find(one.id)
    assert back is not None and back.ready and back.model == one.model


def test_a_snapshot_that_holds_less_than_was_fetched_is_not_whole(made: Made) -> None:
    one = whole(made[1])
    manifest = snapshots.manifest_of(model(one))
    told = json.loads(manifest.read_text())
    del told["files"]["adapter_model.safetensors"]
    manifest.write_text(json.dumps(told))
    assert snapshots.whole(model(one)) and ondisk.checked(one)[0].model is None


def test_nothing_is_there_to_be_whole(made: Made) -> None:
    one = replace(put(made[1], "a1"), data=None)
    assert ondisk.checked(one) == (one, "")
