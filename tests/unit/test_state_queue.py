"""Slurm's answer shared by those who look: who asks, how often, and what the others see."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from automate.arena.batches import Batch, Plan
from automate.campaign.plans import ArrayPart, StoredPlan, save_plan
from automate.campaign.state import CampaignState, look
from automate.cluster.asking import me
from automate.cluster.queue import JobState
from automate.cluster.shared import SharedQueue
from automate.cluster.submit import SubmissionBook, new_submission
from automate.workspace import Workspace
from tests.unit.support import ROOT, make_workspace

SQUEUE = """#!/bin/sh
echo "$$ $@" >> "$FAKE/squeue.calls"
[ -e "$FAKE/down" ] && { echo "Unable to contact slurm controller" >&2; exit 1; }
[ -e "$FAKE/slow" ] && sleep 0.3
cat "$FAKE/queue"
"""
SACCT = """#!/bin/sh
echo "$@" >> "$FAKE/sacct.calls"
cat "$FAKE/accounts"
"""


class Slurm:
    """A squeue and a sacct that count how often they are called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "bin"
        self.bin.mkdir(parents=True)
        for name, text in (("squeue", SQUEUE), ("sacct", SACCT), ("sbatch", "#!/bin/sh\nexit 1\n")):
            (self.bin / name).write_text(text)
            (self.bin / name).chmod(0o755)
        self.queue()
        self.accounts()

    def queue(self, *jobs: str, state: str = "RUNNING") -> None:
        lines = [f"{job}|{state}|1:00|1|c1|part|{me()}|None|judge-{job}\n" for job in jobs]
        (self.folder / "queue").write_text("".join(lines))

    def accounts(self, *jobs: str, state: str = "COMPLETED") -> None:
        lines = [f"{job}|{state}|0:0|00:10:00|c1|1|part|{me()}|None|judge-{job}\n" for job in jobs]
        (self.folder / "accounts").write_text("".join(lines))

    def down(self, down: bool = True) -> None:
        (self.folder / "down").touch() if down else (self.folder / "down").unlink()

    @property
    def calls(self) -> tuple[int, int]:
        """How often squeue and sacct were called."""
        found = []
        for name in ("squeue", "sacct"):
            path = self.folder / f"{name}.calls"
            found.append(len(path.read_text().splitlines()) if path.exists() else 0)
        return found[0], found[1]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    fake = Slurm(tmp_path / "slurm")
    monkeypatch.setenv("FAKE", str(fake.folder))
    monkeypatch.setenv("PATH", f"{fake.bin}:{os.environ['PATH']}")
    return fake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "queue"


def aged(folder: Path, seconds: float) -> None:
    """Make the answer older (or newer) than it is."""
    path = folder / "answer.json"
    stat = path.stat()
    os.utime(path, (stat.st_atime, stat.st_mtime - seconds))


def one(queue: SharedQueue, job: str = "1", max_age: float = 10) -> JobState:
    return queue.get([job], (), max_age).statuses([job], ())[job].state


def test_a_young_answer_is_shared(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    assert one(SharedQueue(folder)) is JobState.RUNNING
    slurm.queue("1", state="PENDING")
    again = SharedQueue(folder).get(["1"], (), 10)
    assert again.statuses(["1"], ())["1"].state is JobState.RUNNING
    assert 0 <= again.age < 10
    assert slurm.calls == (1, 0)


def test_an_old_answer_is_replaced(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    one(SharedQueue(folder))
    slurm.queue("1", state="PENDING")
    for seconds in (11, 3600, -3600):  # the last: a clock was set back
        aged(folder, seconds)
        assert one(SharedQueue(folder)) is JobState.PENDING
    assert slurm.calls == (4, 0)


def test_who_acts_asks_afresh_and_tells_the_others(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    one(SharedQueue(folder))
    slurm.queue("1", state="PENDING")
    assert SharedQueue(folder).fresh(["1"]).statuses(["1"], ())["1"].state is JobState.PENDING
    assert one(SharedQueue(folder)) is JobState.PENDING
    assert slurm.calls == (2, 0)


def test_the_old_answer_is_shown_while_another_asks(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    mine, other = SharedQueue(folder), SharedQueue(folder)
    answer = mine.get(["1"], (), 10)
    aged(folder, 20)
    assert other._turn(answer) is True, "the other one asks from here on"
    shown = mine.get(["1"], (), 10)
    assert 20 <= shown.age < 60
    assert shown.id == answer.id
    assert slurm.calls == (1, 0)


def test_one_who_was_killed_while_asking_does_not_block(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    mine = SharedQueue(folder)
    answer = mine.get(["1"], (), 10)
    for number, age in enumerate((61, 7000, -7000)):
        aged(folder, 20)
        answer = SharedQueue(folder)._read() or answer
        assert SharedQueue(folder)._turn(answer) is True
        for path in folder.glob("asking-*"):
            os.utime(path, (time.time() - age, time.time() - age))
        assert mine.get(["1"], (), 10).id != answer.id
        assert slurm.calls == (number + 2, 0)


def test_without_an_answer_one_waits_for_the_one_who_asks(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    other = SharedQueue(folder)
    assert other._turn(None) is True
    moments = iter(range(1000))
    waited = []

    def pause(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            other.fresh(["1"])

    mine = SharedQueue(folder, clock=lambda: next(moments) / 100, pause=pause)
    assert one(mine) is JobState.RUNNING
    assert (len(waited), slurm.calls) == (3, (1, 0))


def test_nobody_waits_for_ever(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    assert SharedQueue(folder)._turn(None) is True
    moments = iter(range(1000))
    mine = SharedQueue(folder, clock=lambda: next(moments), pause=lambda seconds: None)
    assert one(mine) is JobState.RUNNING
    assert slurm.calls == (1, 0)


def test_a_job_handed_over_since_is_not_lost(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    old = SharedQueue(folder).get(["1"], (), 10)
    late = old.statuses(["1", "2"], ())["2"]
    assert (late.state, late.gone, late.may_act) == (JobState.UNKNOWN, False, True)
    assert not old.covers(["1", "2"], ())
    slurm.queue("1", "2", state="PENDING")
    assert one(SharedQueue(folder), "2") is JobState.PENDING
    assert slurm.calls == (2, 0)


def test_lost_jobs_are_accounted_for_once(slurm: Slurm, folder: Path) -> None:
    slurm.queue("1")
    slurm.accounts("2")
    jobs = ["1", "2", "3"]
    found = SharedQueue(folder).get(jobs, (), 10).statuses(jobs, ())
    assert [(found[job].state, found[job].gone) for job in jobs] == [
        (JobState.RUNNING, False), (JobState.COMPLETED, False), (JobState.UNKNOWN, True)]
    SharedQueue(folder).get(jobs, (), 10)
    assert slurm.calls == (1, 1)
    slurm.accounts()
    aged(folder, 11)
    found = SharedQueue(folder).get(["1", "2"], (), 10).statuses(["1", "2"], ())
    assert found["2"].state is JobState.COMPLETED, "its end is known"
    assert slurm.calls == (2, 1)


def test_a_controller_that_is_down_is_not_asked_more_often(slurm: Slurm, folder: Path) -> None:
    slurm.down()
    answer = SharedQueue(folder).get(["1"], (), 10)
    status = answer.statuses(["1"], ())["1"]
    assert (status.state, status.gone) == (JobState.UNKNOWN, False)
    assert answer.problem == "squeue failed: Unable to contact slurm controller"
    assert SharedQueue(folder).get(["1"], (), 10).problem == answer.problem
    assert slurm.calls == (1, 0)
    slurm.down(False)
    aged(folder, 11)
    slurm.queue("1")
    assert one(SharedQueue(folder)) is JobState.RUNNING


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": 1}', '{"id": "x", "users": 3}'])
def test_an_answer_that_cant_be_read_is_replaced(slurm: Slurm, folder: Path, text: str) -> None:
    slurm.queue("1")
    folder.mkdir()
    (folder / "answer.json").write_text(text)
    assert one(SharedQueue(folder)) is JobState.RUNNING


def test_another_users_answer_does_for_their_jobs_only(slurm: Slurm, folder: Path) -> None:
    answer = SharedQueue(folder).get(["1"], ("ada",), 10)
    assert answer.covers(["1"], ())
    assert answer.covers(["1"], ("ada",))
    assert not answer.covers(["1"], ("ada", "bob"))
    assert f"-u {','.join(sorted({'ada', me()}))}" in (slurm.folder / "squeue.calls").read_text()


def test_who_may_only_look_asks_alone_and_seldom(slurm: Slurm, tmp_path: Path) -> None:
    slurm.queue("1")
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "queue"  # nothing can be written there, not even by root
    now = [100.0]
    mine = SharedQueue(folder, clock=lambda: now[0])
    assert one(mine) is JobState.RUNNING
    now[0] += 9
    assert mine.get(["1"], (), 10).age == 9
    assert slurm.calls == (1, 0)
    now[0] += 2
    assert mine.get(["1"], (), 10).age == 0
    assert slurm.calls == (2, 0)
    assert not (folder / "answer.json").exists()


# Through the campaign's state


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Three batches of one array, handed over as job 7."""
    found = make_workspace(tmp_path / "ws", baseline="base")
    batches = tuple(Batch(number, (f"m{number}",), 4) for number in (1, 2, 3))
    stored = StoredPlan(Plan("p", "t", "base", batches), (ArrayPart(1, 0, (1, 2, 3)),), {})
    save_plan(found, stored)
    book = SubmissionBook(found.submissions)
    submission = new_submission("p", stored.plan.array_name(1), Path("s.sh"), "slurm", {1: 1, 2: 2, 3: 3}, array=True,
                                parallel=None)
    book.save(replace(submission, job="7"))
    return found


def states(state: CampaignState) -> list[str]:
    return [view.state for view in state.batches]


def test_looking_shares_and_acting_does_not(slurm: Slurm, workspace: Workspace) -> None:
    slurm.queue("7_1", "7_2")
    slurm.accounts("7_3")
    assert states(look(workspace, max_age=10)) == ["running", "running", "completed"]
    slurm.queue("7_1", "7_2", state="PENDING")
    again = look(workspace, max_age=10)
    assert states(again) == ["running", "running", "completed"]
    assert (again.queue_problem, again.asked < 10) == (None, True)
    assert slurm.calls == (1, 1)
    assert states(look(workspace)) == ["queued", "queued", "completed"]
    assert slurm.calls == (2, 1)


def test_a_problem_is_told(slurm: Slurm, workspace: Workspace) -> None:
    slurm.down()
    state = look(workspace, max_age=10)
    assert state.queue_problem == "squeue failed: Unable to contact slurm controller"
    assert states(state) == ["unknown"] * 3
    assert all(view.may_act for view in state.batches)


MONITOR = """
import sys, time
from pathlib import Path
from automate.campaign.state import look
from automate.workspace import Workspace
from tests.unit.support import make_workspace
workspace = make_workspace(Path(sys.argv[1]), baseline="base")
while not Path(sys.argv[2]).exists():
    time.sleep(0.005)
for _ in range(20):
    state = look(workspace, max_age=600)
    assert [view.state for view in state.batches] == ["running"] * 3, state
"""


def test_monitors_at_once_ask_once(slurm: Slurm, workspace: Workspace, tmp_path: Path) -> None:
    slurm.queue("7_1", "7_2", "7_3")
    (slurm.folder / "slow").touch()
    start = tmp_path / "start"
    command = [sys.executable, "-c", MONITOR, str(workspace.root), str(start)]
    monitors = [subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) for _ in range(3)]
    try:
        start.touch()
        assert [monitor.wait(60) for monitor in monitors] == [0, 0, 0]
        assert slurm.calls == (1, 0)
        aged(workspace.queue_cache, 700)
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True)
        assert slurm.calls == (2, 0)
        assert not list(workspace.queue_cache.glob(".clock*"))
    finally:
        for monitor in monitors:
            monitor.kill()
