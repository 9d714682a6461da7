"""Before the server starts: file systems by name, disk rates, what loads told, and whether weights are staged."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.arena.running import loading as before
from automate.arena.running.job_config import JobConfig
from automate.arena.running.loading import PATH_VARIABLE, Prepared, loads_expected, prepare_weights
from automate.serving import staging
from automate.serving.loading import Loading, disk_rate, filesystem_of, kind_of, known_loads, largest_file
from tests.unit.support import make_workspace
from tests.unit.test_staging import make_judge

MOUNTS = r"""22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:40 / /lustre rw shared:2 - lustre 10.0.0.1@o2ib:/fs rw
31 22 0:41 / /lustre2 rw - nfs4 server:/x rw
33 30 0:43 / /lustre/with\040space rw - gpfs fs1 rw
34 22 0:44 / /tmp rw - ext4 /dev/sdb rw
35 22 0:45 / /tmp rw - tmpfs tmpfs rw
a line of another shape
"""


@pytest.mark.parametrize(("path", "found"), [
    ("/lustre/models/judge", "lustre /lustre"),
    ("/lustre", "lustre /lustre"),
    ("/lustre2/x", "nfs4 /lustre2"),
    ("/lustre3", "ext4 /"),
    ("/lustre/with space/x", "gpfs /lustre/with space"),
    ("/tmp/x", "tmpfs /tmp"),
])
def test_the_file_system_of_a_path(path: str, found: str) -> None:
    assert filesystem_of(Path(path), MOUNTS) == found
    assert kind_of(found) == found.split(" ")[0]


def test_a_links_file_system_is_its_targets(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("/lustre/models")
    assert filesystem_of(tmp_path / "link", MOUNTS) == "lustre /lustre"
    assert filesystem_of(Path("/x"), "") == "unknown"
    assert filesystem_of(tmp_path) != "unknown"


def test_a_disk_rate_is_bytes_a_second(tmp_path: Path) -> None:
    judge = make_judge(tmp_path / "judge")
    rate = disk_rate(judge)
    assert rate is not None
    assert rate > 0
    assert largest_file(judge) == judge / "model-1.safetensors"


def test_no_more_is_read_than_was_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, real, read = make_judge(tmp_path / "judge"), os.readv, []

    def readv(descriptor: int, buffers: Any) -> int:
        read.append(real(descriptor, buffers))
        return read[-1]

    monkeypatch.setattr(os, "readv", readv)
    disk_rate(judge, most=120_000)
    assert sum(read) == 120_000


@pytest.mark.parametrize("kind", ["gone", "empty", "file"])
def test_what_cant_be_read_has_no_rate(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "judge"
    if kind == "empty":
        folder.mkdir()
    elif kind == "file":
        folder.write_text("x")
    assert disk_rate(folder) is None


def test_a_file_that_cant_be_opened_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = make_judge(tmp_path / "judge")

    def refuse(*_: object) -> int:
        raise PermissionError("no")

    monkeypatch.setattr(os, "open", refuse)
    assert disk_rate(judge) is None


def test_known_loads_are_read_defensively() -> None:
    runs: list[dict[str, Any]] = [
        {"judge": "j", "load": [{"seconds": 12, "weights": 5, "disk_rate": 1e9, "filesystem": "lustre /l"}]},
        {"judge": "j", "load": [{"seconds": "x"}, 3, {"seconds": float("nan")}, {"seconds": 2.5, "staged": True}]},
        {"judge": "other", "load": [{"seconds": 1}]},
        {"judge": "j"}, {"judge": "j", "load": {"seconds": 1}}, {},
    ]
    assert known_loads(runs, "j") == [
        Loading("j", "lustre /l", 12.0, 5, 1e9, False), Loading("j", None, 2.5, None, None, True)]


@pytest.mark.parametrize(("batches", "at_once", "here", "loads"), [
    (1, None, 0, 1), (12, None, 0, 1), (12, 4, 0, 3), (12, 5, 0, 3), (12, 40, 0, 1), (12, None, 1, 2), (0, None, 0, 1)])
def test_loads_of_a_node(batches: int, at_once: int | None, here: int, loads: int) -> None:
    assert loads_expected(batches, at_once, here) == loads


# As a job does it


class Job:
    """A job's config on a judge, with a staging folder that counts as another disk."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.judge = make_judge(root / "judge")
        self.disk = root / "node"
        self.disk.mkdir(mode=0o700)
        self.said: list[str] = []
        monkeypatch.setattr(before, "Node", lambda **more: replace(
            staging.Node(**more), device=lambda path: 2 if "/node" in str(path) else 1, poll=0.01))
        monkeypatch.setattr(before, "_unfit", lambda filesystem: "")

    def prepare(self, when: str = "always", stop: bool = False, **judge: Any) -> Prepared:
        own = {"path": str(self.judge), "staging": {"folder": str(self.disk), "when": when}} | judge
        workspace = make_workspace(self.root, judge=own)
        config = JobConfig(workspace, "20250907_143000", 1, ("m",), None, "", self.root / "batch.yaml")
        return prepare_weights(config, self.said.append, lambda: stop)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(tmp_path, monkeypatch)


def test_a_staged_judge_is_named_to_the_script_and_in_the_record(job: Job) -> None:
    found = job.prepare()
    path = Path(found.environment[PATH_VARIABLE])
    assert path.is_relative_to(job.disk)
    assert (path / "config.json").is_file()
    assert found.facts["staged"] is True
    assert found.facts["weights"] == 150_000
    assert found.facts["filesystem"] == filesystem_of(path)
    assert float(str(found.facts["source_rate"])) > 0
    assert "disk_rate" not in found.facts
    assert job.prepare().facts["copied"] == 0


def test_auto_says_why_not_and_measures_all_the_same(job: Job) -> None:
    found = job.prepare("auto")
    assert found.environment == {PATH_VARIABLE: ""}
    assert found.facts["staged"] is False
    assert float(str(found.facts["disk_rate"])) > 0
    assert any(line.startswith("weights: not staged: ") for line in job.said)


def test_auto_uses_a_copy_that_is_there(job: Job) -> None:
    job.prepare()
    assert job.prepare("auto").facts["staged"] is True


@pytest.mark.parametrize(("judge", "words"), [
    ({"staging": {"folder": "$NOWHERE", "when": "always"}}, "$NOWHERE is not set"),
    ({"staging": {"folder": "scratch", "when": "always"}}, "not an absolute path"),
    ({"staging": {"folder": "/nowhere/at/all", "when": "auto"}}, "there is no folder /nowhere/at/all"),
])
def test_a_folder_that_cant_be_used_is_one_line(job: Job, judge: dict[str, Any], words: str) -> None:
    found = job.prepare(**judge)
    assert found.environment == {PATH_VARIABLE: ""}
    assert [words in line for line in job.said if line.startswith("weights not staged")] == [True]


def test_a_container_cant_be_given_a_folder_with_a_colon(job: Job) -> None:
    folder = job.disk / "a:b"
    folder.mkdir(mode=0o700)
    job.prepare(environment={"container": "/x.sif"}, staging={"folder": str(folder), "when": "always"})
    assert any("a container can't be given the folder" in line for line in job.said)


@pytest.mark.parametrize("judge", [
    {"kind": "rehearsal"}, {"path": "/nowhere/judge"}, {"kind": "openai", "base_url": "http://x/v1"}])
def test_a_judge_without_a_folder_has_nothing_to_stage(job: Job, judge: dict[str, Any]) -> None:
    assert job.prepare(**judge) == Prepared()
    assert job.said == []


def test_a_judge_that_cant_be_read_is_a_line_and_no_more(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: Path) -> str:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(before, "fingerprint", broken)
    assert job.prepare() == Prepared()
    assert "Input/output error" in job.said[-1]


def test_memory_and_shared_disks_are_no_staging_folders() -> None:
    assert "counts against slurm.mem" in before._unfit("tmpfs /dev/shm")
    assert "of many nodes" in before._unfit("lustre /lustre")
    assert before._unfit("xfs /scratch") == before._unfit("unknown") == ""
