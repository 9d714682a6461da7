"""Claims: one holder at a time, and nobody's claim is broken who may be alive."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from pathlib import Path

import orjson
import pytest

from automate.claims import Claim, Holder, alive, holder_of, myself, no_jobs, take
from automate.errors import ClaimedError, StorageError
from tests.unit.support import ROOT

STALE = 90.0
PATIENCE = 120.0
PROCESSES, ROUNDS, TURNS = 20, 60, 5


def put(folder: Path, holder: Holder, *, age: float = 0.0, number: int = 1) -> Path:
    """A claim as this holder left it, its last heartbeat `age` seconds ago."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"g{number:06d}.json"
    path.write_bytes(orjson.dumps(asdict(holder)))
    then = time.time() - age
    os.utime(path, (then, then))
    return path


def dead(**changes: object) -> Holder:
    """A process of this host that is gone: its number belongs to a process with another start."""
    return replace(myself({}), started="1", **changes)  # type: ignore[arg-type]


def elsewhere(**changes: object) -> Holder:
    """A process of another host."""
    return replace(myself({}), host="elsewhere", boot="other", pid_space="other", **changes)  # type: ignore[arg-type]


def refused(folder: Path, job_alive: Callable[[str], bool | None] = no_jobs, me: Holder | None = None) -> str:
    with pytest.raises(ClaimedError) as error:
        take(folder, stale=STALE, job_alive=job_alive, me=me)
    return str(error.value)


# Taking and giving up


def test_take_release_and_take_again(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "claim"
    assert holder_of(folder) is None
    for number in (1, 2, 3):
        claim = take(folder, stale=STALE)
        assert claim.path.name == f"g{number:06d}.json"
        assert holder_of(folder) == claim.holder
        assert claim.beat()
        claim.release()
        assert holder_of(folder) is None
    take(folder, stale=STALE)
    assert [path.name for path in folder.iterdir()] == ["g000004.json"]


def test_a_living_holder_is_named(tmp_path: Path) -> None:
    me = myself({"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2"})
    take(tmp_path, stale=STALE, me=me)
    words = refused(tmp_path)
    assert f"held by job 77, process {os.getpid()} on {me.host}, which is alive" in words
    assert "flock-hpc cancel" in words
    assert holder_of(tmp_path) == me
    assert (me.job, me.restart) == ("77", 2)


def test_a_living_holder_keeps_its_claim_however_old_its_heartbeat(tmp_path: Path) -> None:
    put(tmp_path, myself({}), age=10 * STALE)
    assert "is alive" in refused(tmp_path)


def test_a_beat_makes_the_heartbeat_young(tmp_path: Path) -> None:
    claim = Claim(put(tmp_path, dead(), age=2 * STALE), dead())
    assert claim.beat()
    assert "free in" in refused(tmp_path)


# Taking over


def test_a_dead_holder_with_a_young_heartbeat_is_waited_for(tmp_path: Path) -> None:
    path = put(tmp_path, dead(), age=STALE / 2)
    assert "which is gone; free in" in refused(tmp_path)
    os.utime(path, (1, 1))
    assert take(tmp_path, stale=STALE).path.name == "g000002.json"


def test_a_killed_process_is_gone_before_anybody_collects_it(tmp_path: Path) -> None:
    code = "import sys, time; from pathlib import Path; from automate.claims import take\n" \
           "take(Path(sys.argv[1]), stale=90.0); print('held', flush=True); time.sleep(600)"
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"held\n"
            (path,) = tmp_path.glob("g*.json")
            os.utime(path, (1, 1))
            assert f"process {process.pid} " in refused(tmp_path)
        finally:
            process.send_signal(signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert take(tmp_path, stale=STALE).path.name == "g000002.json"


def test_who_was_taken_over_learns_it_and_frees_nothing(tmp_path: Path) -> None:
    old = Claim(put(tmp_path, dead(), age=2 * STALE), dead())
    new = take(tmp_path, stale=STALE)
    assert not old.beat()
    old.release()
    assert holder_of(tmp_path) == new.holder
    assert new.beat()
    assert "is alive" in refused(tmp_path)


def test_a_beat_sees_a_later_claim_while_the_old_file_is_still_there(tmp_path: Path) -> None:
    old = Claim(put(tmp_path, dead()), dead())
    assert old.beat()
    put(tmp_path, myself({}), number=2)
    assert not old.beat()


@pytest.mark.parametrize("holder", [
    elsewhere(), elsewhere(job="5"), replace(myself({}), pid_space="other"), elsewhere(job="6", restart=1),
])
def test_a_holder_nobody_can_tell_of_is_never_broken(tmp_path: Path, holder: Holder) -> None:
    put(tmp_path, holder, age=1000 * STALE)
    assert "may be alive" in refused(tmp_path, me=myself({"SLURM_JOB_ID": "6", "SLURM_RESTART_COUNT": "1"}))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b'{"host": "x"}', b"[]", b"\xff"])
def test_a_claim_that_cant_be_read_is_never_broken(tmp_path: Path, content: bytes) -> None:
    path = put(tmp_path, dead())
    path.write_bytes(content)
    os.utime(path, (1, 1))
    assert "can't be read" in refused(tmp_path)


def test_slurm_has_the_word_on_holders_of_other_hosts(tmp_path: Path) -> None:
    asked: list[str] = []

    def gone(job: str) -> bool:
        asked.append(job)
        return False

    path = put(tmp_path, elsewhere(job="5"), age=STALE / 2)
    assert "is alive" in refused(tmp_path, lambda job: True)
    assert "may be alive" in refused(tmp_path, lambda job: None)
    assert "which is gone" in refused(tmp_path, gone)
    os.utime(path, (1, 1))
    assert "is alive" in refused(tmp_path, lambda job: True)
    assert take(tmp_path, stale=STALE, job_alive=gone).path.name == "g000002.json"
    assert asked == ["5", "5"]


def test_a_requeued_job_breaks_the_claim_of_its_earlier_run(tmp_path: Path) -> None:
    me = myself({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "1"})
    put(tmp_path, elsewhere(job="5", restart=0), age=2 * STALE)
    assert "may be alive" in refused(tmp_path, me=replace(me, restart=0))
    assert take(tmp_path, stale=STALE, me=me).holder.restart == 1


def test_who_lives() -> None:
    me = myself({"SLURM_JOB_ID": "5", "SLURM_RESTART_COUNT": "1"})
    cases: list[tuple[Holder, bool | None]] = [
        (me, True), (dead(), False), (replace(me, boot="before"), False), (replace(me, pid=2**22 + 1), False),
        (replace(me, pid_space="x", job="9"), None), (replace(me, pid_space="x", restart=0), False),
        (elsewhere(job="5", restart=2), None),
    ]
    assert [alive(holder, me, no_jobs) for holder, _ in cases] == [life for _, life in cases]


def test_what_the_file_system_refuses_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        take(tmp_path / "file" / "claim", stale=STALE)


# Races


def _try_once_together(folder: Path, rounds: int, barrier: Barrier) -> list[int]:
    """In each round all try once, at once; who gets the claim keeps it until all have tried."""
    won = []
    for number in range(rounds):
        barrier.wait(PATIENCE)
        try:
            claim = take(folder / str(number), stale=STALE)
        except ClaimedError:
            claim = None
        barrier.wait(PATIENCE)
        if claim is not None:
            won.append(number)
            assert claim.beat()
    return won


def _take_turns(folder: Path, turns: int) -> int:
    """Each takes the claim some times; a file made by exclusive create shows that it is alone."""
    taken, until = 0, time.monotonic() + PATIENCE
    while taken < turns and time.monotonic() < until:
        try:
            claim = take(folder / "claim", stale=STALE)
        except ClaimedError:
            time.sleep(0.001)
            continue
        os.close(os.open(folder / "alone", os.O_CREAT | os.O_EXCL))
        assert claim.beat()
        (folder / "alone").unlink()
        claim.release()
        taken += 1
    return taken


def _worker(folder: Path, barrier: Barrier, results: Queue[tuple[list[int], int]]) -> None:
    won = _try_once_together(folder, ROUNDS, barrier)
    results.put((won, _take_turns(folder, TURNS)))


def test_many_processes_race_for_claims(tmp_path: Path) -> None:
    """New claims, claims that were given up, and stale claims of dead holders, by turns; then one claim for all."""
    for number in range(ROUNDS):
        if number % 3:
            path = put(tmp_path / str(number), dead(), age=2 * STALE, number=number)
            if number % 3 == 1:
                path.with_suffix(".released").touch()
    context = multiprocessing.get_context("spawn")
    barrier, queue = context.Barrier(PROCESSES), context.Queue()
    workers = [context.Process(target=_worker, args=(tmp_path, barrier, queue)) for _ in range(PROCESSES)]
    try:
        for worker in workers:
            worker.start()
        results = [queue.get(timeout=PATIENCE) for _ in workers]
        for worker in workers:
            worker.join(PATIENCE)
        assert [worker.exitcode for worker in workers] == [0] * PROCESSES
    finally:
        for worker in workers:
            worker.kill()
    assert sorted(number for won, _ in results for number in won) == list(range(ROUNDS))
    assert [len(list((tmp_path / str(number)).glob("g*.json"))) for number in range(ROUNDS)] == [1] * ROUNDS
    assert [taken for _, taken in results] == [TURNS] * PROCESSES
