"""Staging: one copy a node, verified, nobody else's, and never the end of a job."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from automate import claims
from automate.arena.weights import fingerprint
from automate.serving import copying, staging, staging_folder
from automate.serving.staging import Node, Staged, stage
from automate.serving.staging_folder import NotStaged, check_folder, copy_there, expand, home_of, pays
from automate.settings_judge import Staging

LARGE = 1 << 40


def other_disk(path: Path) -> int:
    """Stands for st_dev: staging folders are on a disk of their own."""
    return 2 if "/node" in str(path) else 1


NODE = Node(device=other_disk, free=lambda path: LARGE, stale=0.0, patience=0.3, poll=0.01)


def make_judge(folder: Path, size: int = 100_000) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"architectures": ["X"]}')
    (folder / "model-1.safetensors").write_bytes(os.urandom(size))
    (folder / "model-2.safetensors").write_bytes(os.urandom(size // 2))
    (folder / "code").mkdir()
    (folder / "code" / "model.py").write_text("pass\n")
    (folder / "original").mkdir()
    (folder / "original" / "huge.pth").write_bytes(b"x" * 1000)
    (folder / ".cache").mkdir()
    (folder / ".cache" / "lock").write_text("")
    return folder


class Case:
    """A judge on a shared disk, a node's disk, and what the job said."""

    def __init__(self, root: Path) -> None:
        self.judge = make_judge(root / "shared" / "judge")
        self.disk = root / "node"
        self.disk.mkdir(mode=0o700)
        self.print = fingerprint(self.judge)
        self.home = home_of(self.disk)
        self.final = self.home / self.print
        self.said: list[str] = []

    def stage(self, node: Node = NODE, stop: Callable[[], bool] = lambda: False, folder: str | None = None,
              environ: Mapping[str, str] | None = None, verify: Callable[[Path], bool] | None = None) -> Staged | None:
        return stage(self.judge, folder or str(self.disk), self.print, self.said.append, stop, environ=environ or {},
                     verify=verify or (lambda path: fingerprint(path) == self.print), node=node)

    def refused(self, words: str) -> None:
        """Nothing was staged, one line says why and where from the judge is loaded, and nothing half is left."""
        lines = [line for line in self.said if line.startswith("weights not staged: ")]
        assert len(lines) == 1
        assert words in lines[0]
        assert lines[0].endswith(f"; the judge is loaded from {self.judge}")
        assert "\n" not in lines[0]
        assert not self.final.exists()
        assert not list(self.home.glob("*.part-*")) if self.home.exists() else True


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_a_copy_is_made_once_and_used_again(case: Case) -> None:
    first, second = case.stage(), case.stage()
    assert first is not None and second is not None
    assert first.path == second.path == case.final
    assert (first.reused, second.reused, second.copied_bytes) == (False, True, 0)
    assert first.copied_bytes == sum(size for _, size in copying.files_of(case.judge))
    for name in ("config.json", "model-1.safetensors", "model-2.safetensors", "code/model.py"):
        assert (case.final / name).read_bytes() == (case.judge / name).read_bytes()
    assert not (case.final / "original").exists()
    assert not (case.final / ".cache").exists()
    assert fingerprint(case.final) == case.print
    assert case.home.stat().st_mode & 0o777 == case.final.stat().st_mode & 0o777 == 0o700
    assert any("weights staged:" in line and "copied to" in line for line in case.said)


def test_links_are_copied_as_what_they_point_to(case: Case) -> None:
    blob = case.judge.parent / "blob"
    (case.judge / "model-1.safetensors").rename(blob)
    (case.judge / "model-1.safetensors").symlink_to(blob)
    assert case.stage() is not None
    assert not (case.final / "model-1.safetensors").is_symlink()


def test_a_large_file_is_spread_over_threads_and_comes_out_whole(
        case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "PIECE", 7001)
    monkeypatch.setattr(copying, "STEP", 1000)
    assert case.stage() is not None
    assert (case.final / "model-1.safetensors").read_bytes() == (case.judge / "model-1.safetensors").read_bytes()


def test_a_system_without_sendfile_between_files_copies_by_hand(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    def sendfile(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "sendfile", sendfile)
    assert case.stage() is not None
    assert fingerprint(case.final) == case.print


def test_variables_of_the_job_are_put_in(case: Case) -> None:
    assert case.stage(folder="${DISK}/$SUB", environ={"DISK": str(case.disk.parent), "SUB": "node"}) is not None
    with pytest.raises(NotStaged, match=r"\$NOWHERE is not set in this job"):
        expand("$NOWHERE/x", {"NOWHERE": ""})
    with pytest.raises(NotStaged, match="not an absolute path"):
        expand("scratch", {})


# What can be wrong with the folder


def test_an_unknown_variable(case: Case) -> None:
    assert case.stage(folder="$NOWHERE/x") is None
    case.refused("$NOWHERE is not set in this job")


def test_no_such_folder(case: Case) -> None:
    assert case.stage(folder=str(case.disk / "gone")) is None
    case.refused("there is no folder")


def test_the_same_file_system_gains_nothing(case: Case) -> None:
    assert case.stage(replace(NODE, device=lambda path: 1)) is None
    case.refused("is on the same file system as the weights")


def test_too_little_room(case: Case) -> None:
    assert case.stage(replace(NODE, free=lambda path: 100_000)) is None
    case.refused("GB free, and the weights need")


def test_a_folder_that_others_may_change(case: Case) -> None:
    case.disk.chmod(0o777)
    assert case.stage() is None
    case.refused("no sticky bit")
    case.disk.chmod(0o1777)
    assert case.stage() is not None


def test_a_folder_of_another_user(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = case.disk.stat().st_uid
    monkeypatch.setattr(staging_folder, "SYSTEM", frozenset())
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(NotStaged, match="belongs to another user"):
        check_folder(case.disk)


def test_a_read_only_folder(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert case.stage() is None
    case.refused("can't be written (read-only, or not for this user)")


@pytest.mark.parametrize("kind", ["link", "open", "file"])
def test_our_own_folder_made_by_somebody_else(case: Case, tmp_path: Path, kind: str) -> None:
    if kind == "link":
        theirs = tmp_path / "theirs"
        theirs.mkdir(mode=0o700)
        case.home.symlink_to(theirs)
    elif kind == "open":
        case.home.mkdir()
        case.home.chmod(0o755)
    else:
        case.home.write_text("")
    assert not copy_there(case.disk, case.print)
    assert case.stage() is None
    case.refused("somebody else may have made it")


def test_a_fingerprint_is_never_a_path(case: Case) -> None:
    case.print = "../../elsewhere"
    assert case.stage() is None
    assert "is not a fingerprint" in case.said[0]


# What can go wrong in the middle


def test_a_disk_that_fills_up_while_it_is_copied_to(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    real, sent = os.sendfile, []

    def sendfile(target: int, source: int, offset: int, count: int) -> int:
        sent.append(count)
        if len(sent) > 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(target, source, offset, count)

    monkeypatch.setattr(os, "sendfile", sendfile)
    assert case.stage() is None
    case.refused("No space left on device")


def test_a_file_that_vanishes_while_it_is_copied(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = copying.files_of(case.judge)
    monkeypatch.setattr(staging, "files_of", lambda folder: listed)
    (case.judge / "code" / "model.py").unlink()
    assert case.stage() is None
    case.refused("No such file or directory")


def test_a_copy_that_differs_is_not_used(case: Case) -> None:
    assert case.stage(verify=lambda path: False) is None
    case.refused("the copy differs from the original")


def test_being_told_to_stop_ends_the_copying(case: Case) -> None:
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 2

    assert case.stage(stop=stop) is None
    assert case.said[-1] == "weights not staged: the job was told to stop"
    assert not list(case.home.glob("*.part-*"))
    assert not case.final.exists()
    assert case.stage() is not None  # the claim was given up


@pytest.mark.parametrize("damage", ["cut", "gone", "linked"])
def test_a_damaged_copy_is_made_anew(case: Case, damage: str) -> None:
    assert case.stage() is not None
    file = case.final / "model-2.safetensors"
    if damage == "cut":
        os.truncate(file, 10)
    else:
        file.unlink()
        if damage == "linked":
            file.symlink_to(case.judge / "model-2.safetensors")
    again = case.stage()
    assert again is not None
    assert not again.reused
    assert any("not whole" in line for line in case.said)
    assert file.read_bytes() == (case.judge / "model-2.safetensors").read_bytes()


# Several jobs on one node


def test_jobs_at_once_make_one_copy(case: Case) -> None:
    found: list[Staged | None] = []
    threads = [threading.Thread(target=lambda: found.append(case.stage(replace(NODE, patience=30))))
               for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [staged.path for staged in found if staged] == [case.final] * 6
    assert sum(not staged.reused for staged in found if staged) == 1
    assert not list(case.home.glob("*.part-*"))


def test_a_dead_copiers_part_is_removed_and_the_copy_taken_over(case: Case) -> None:
    case.home.mkdir(mode=0o700)
    part = case.home / f"{case.print}.part-0123456789abcdef"
    part.mkdir(mode=0o700)
    (part / "model-1.safetensors").write_bytes(b"half")
    me = claims.myself()
    claims.take(case.home / f"{case.print}.claim", stale=0.0, me=replace(me, pid=2**22 + 1, started="1"))
    assert case.stage() is not None
    assert not part.exists()
    assert any(f"removed {part}, which a job that ended" in line for line in case.said)


def test_a_live_copier_is_waited_for_and_its_copy_used(case: Case) -> None:
    case.home.mkdir(mode=0o700)
    claim = claims.take(case.home / f"{case.print}.claim", stale=0.0)
    part = case.home / f"{case.print}.part-0123456789abcdef"

    def finish() -> None:
        part.mkdir(mode=0o700)
        work = copying.Copying(case.judge, part, copying.files_of(case.judge), lambda: False)
        work.run(lambda: None)
        part.rename(case.final)
        claim.release()

    other = threading.Timer(0.1, finish)
    other.start()
    staged = case.stage(replace(NODE, patience=30))
    other.join()
    assert staged is not None
    assert staged.reused
    assert any("waiting for another job's copy" in line for line in case.said)


def test_a_copier_that_stands_still_is_not_waited_for_for_ever(case: Case) -> None:
    case.home.mkdir(mode=0o700)
    claims.take(case.home / f"{case.print}.claim", stale=0.0)
    assert case.stage() is None
    case.refused("has stood still")


def test_stop_ends_the_waiting(case: Case) -> None:
    case.home.mkdir(mode=0o700)
    claims.take(case.home / f"{case.print}.claim", stale=0.0)
    assert case.stage(replace(NODE, patience=3600), stop=lambda: True) is None
    assert case.said == ["weights not staged: the job was told to stop"]


# Old copies


def test_old_copies_make_room_but_nothing_else_does(case: Case) -> None:
    case.home.mkdir(mode=0o700)
    names = {"old": "0" * 32, "older": "1" * 32, "fresh": "2" * 32}
    week = time.time() - 8 * 86400
    for age, name in names.items():
        folder = case.home / name
        folder.mkdir(mode=0o700)
        (folder / "w").write_bytes(b"x")
        if age != "fresh":
            os.utime(folder, (week, week - (1 if age == "older" else 0)))
    for foreign in ("notes", "0" * 8):
        (case.home / foreign).mkdir(mode=0o700)
        os.utime(case.home / foreign, (week, week))

    def free(path: Path) -> int:
        return LARGE if not (case.home / names["older"]).exists() else 0

    assert case.stage(replace(NODE, free=free)) is not None
    left = {path.name for path in case.home.iterdir()}
    assert {names["old"], names["fresh"], "notes", "0" * 8} < left
    assert names["older"] not in left
    assert any("nobody has used for a week" in line for line in case.said)


def test_using_a_copy_keeps_it_young(case: Case) -> None:
    assert case.stage() is not None
    os.utime(case.final, (1, 1))
    assert case.stage() is not None
    assert case.final.stat().st_mtime > time.time() - 3600


# Whether it pays


@pytest.mark.parametrize(("when", "rate", "loads", "there", "unfit", "good", "words"), [
    ("never", 1e6, 9, True, "", False, "is never"),
    ("always", None, 1, False, "memory", True, "is always"),
    ("auto", 8e7, 3, False, "", True, "0.08 GB/s, and this node is expected to load the judge about 3 times"),
    ("auto", 8e7, 1, False, "", False, "only once"),
    ("auto", 2e9, 9, False, "", False, "not less than judge.staging.below (1)"),
    ("auto", None, 9, False, "", False, "could not be measured"),
    ("auto", 2e9, 1, True, "", True, "a copy is on this node already"),
    ("auto", 8e7, 9, True, "it is memory", False, "it is memory"),
])
def test_when_staging_pays(when: str, rate: float | None, loads: int, there: bool, unfit: str, good: bool,
                           words: str) -> None:
    setting = Staging.model_validate({"folder": "/scratch", "when": when})
    decided, why = pays(setting, rate=rate, loads=loads, there=there, filesystem=unfit)
    assert decided is good
    assert words in why
    assert "\n" not in why


def test_without_a_folder_nothing_is_staged() -> None:
    assert pays(Staging(when="always"), rate=1.0, loads=9, there=False)[0] is False
