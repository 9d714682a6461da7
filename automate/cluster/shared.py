"""Slurm's last answer, shared by everybody who only looks at a workspace: one of them asks, the others read.

Never holds more than was said, and never keeps an answer for one that is newer: each says how old it is."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from automate.cluster import queue
from automate.cluster.asking import me
from automate.cluster.queue import JobState, JobStatus
from automate.errors import ClusterError, StorageError
from automate.journal import parse_object, write_json

KILLED = 60.0
"""After how many seconds one who asks and does not answer is taken to have been killed."""
PATIENCE = 10.0
"""How many seconds to wait for another's question where there is no answer yet that could be shown."""
APART = 10.0
"""At least how many seconds lie between two questions of a process that can't share its answers."""
OLD = 3600.0
"""The age of an answer from the future."""
ENDED = frozenset({JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED, JobState.TIMEOUT,
                   JobState.OUT_OF_MEMORY})
"""States of which accounting does not have to be asked twice."""
_NOT_YET = "submitted since Slurm was last asked"


@dataclass(frozen=True)
class Answer:
    """What squeue said of `users`' jobs, and sacct of those of `jobs` that squeue had lost.

    `problem`: why squeue could not be asked; `unaccounted`: why sacct could not be. `age` in seconds.
    """

    id: str
    users: tuple[str, ...]
    jobs: frozenset[str]
    queue: tuple[JobStatus, ...] = ()
    accounted: tuple[JobStatus, ...] = ()
    problem: str | None = None
    unaccounted: str | None = None
    age: float = 0.0

    def covers(self, jobs: Collection[str], users: Collection[str]) -> bool:
        """Whether all these jobs were there to be asked about, and these users' were."""
        return set(users or {me()}) <= set(self.users) and self.jobs.issuperset(jobs)

    def statuses(self, jobs: Iterable[str], names: Collection[str]) -> dict[str, JobStatus]:
        """The status of each job, and of each with one of `names`; what nobody could say is UNKNOWN, with the reason.

        A job that was handed over after the question is not lost.
        """
        wanted = list(jobs)
        if self.problem is not None:
            return queue.resolve(wanted, [], [], self.problem)
        why = "neither squeue nor sacct knows it"
        if self.unaccounted is not None:
            why = f"squeue doesn't know it, and {self.unaccounted}"
        found = {status.job: status for status in self.queue if status.name in names}
        found |= queue.resolve((job for job in wanted if job in self.jobs), self.queue, self.accounted, why, gone=True)
        late = [job for job in wanted if job not in self.jobs]
        return found | queue.resolve(late, self.queue, [], _NOT_YET)


def ask(jobs: Collection[str], users: Sequence[str] = (), before: Answer | None = None) -> Answer:
    """Ask Slurm now: squeue once, and sacct once for jobs that squeue lost and whose end is not known `before`."""
    whose, asked = tuple(sorted({*users, me()})), frozenset(jobs)
    answer = Answer(secrets.token_hex(6), whose, asked)
    try:
        answer = replace(answer, queue=tuple(queue.squeue(users)))
    except ClusterError as error:
        return replace(answer, problem=error.what)
    there = {status.job for status in answer.queue}
    ends = {status.job: status for status in (before.accounted if before else ()) if status.state in ENDED}
    lost = [job for job in jobs if job not in there]
    known = tuple(ends[job] for job in lost if job in ends)
    unknown = [job for job in lost if job not in ends]
    if not unknown:
        return replace(answer, accounted=known)
    try:
        return replace(answer, accounted=(*known, *queue.sacct(unknown, everybody=bool(users))))
    except ClusterError as error:
        return replace(answer, accounted=known, unaccounted=error.what)


def _status(data: Mapping[str, object]) -> JobStatus:
    known = {name: value for name, value in data.items() if name in JobStatus.__dataclass_fields__}
    return JobStatus(**{**known, "state": JobState(known["state"])})  # type: ignore[arg-type]


@dataclass
class SharedQueue:
    """The answer in `folder`. One object a process: it remembers what could not be shared."""

    folder: Path
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep
    _own: tuple[float, Answer] | None = field(default=None, init=False)

    @property
    def path(self) -> Path:
        return self.folder / "answer.json"

    def fresh(self, jobs: Collection[str], users: Sequence[str] = ()) -> Answer:
        """Ask now, whatever is known, and let the others see the answer."""
        answer = ask(jobs, users, self._read())
        self._write(answer)
        return answer

    def get(self, jobs: Collection[str], users: Sequence[str], max_age: float) -> Answer:
        """An answer that is younger than `max_age` seconds, or the old one while somebody else asks.

        Where there is none that can be shown, waits for that other one, but not for ever.
        """
        until = self.clock() + PATIENCE
        while True:
            if self._own is not None and self.clock() - self._own[0] < APART:
                return self._alone(jobs, users)
            answer = self._read()
            good = answer is not None and answer.covers(jobs, users)
            if answer is not None and good and answer.age < max_age:
                return answer
            turn = self._turn(answer)
            if turn is None:
                return self._alone(jobs, users)
            if turn:
                return self._ask(jobs, users, answer)
            if answer is not None and (good or answer.age < max_age) and answer.age < KILLED:
                return answer
            if self.clock() > until:
                return answer or self._alone(jobs, users)
            self.pause(0.1)

    def _ask(self, jobs: Collection[str], users: Sequence[str], old: Answer | None) -> Answer:
        """Ask in one's turn, unless somebody did between the look and the turn."""
        now = self._read()
        if now is not None and (old is None or now.id != old.id) and now.covers(jobs, users):
            return now
        answer = ask(jobs, users, now)
        self._write(answer)
        return answer

    def _alone(self, jobs: Collection[str], users: Sequence[str]) -> Answer:
        """For somebody who may only look: the answer stays in this process."""
        if self._own is None or self.clock() - self._own[0] >= APART or not self._own[1].covers(jobs, users):
            self._own = self.clock(), ask(jobs, users, self._own[1] if self._own else None)
        return replace(self._own[1], age=self.clock() - self._own[0])

    # --- files ----------------------------------------------------------------------------------
    def _read(self) -> Answer | None:
        try:
            with self.path.open("rb") as file:
                data, written = parse_object(file.read()), os.fstat(file.fileno()).st_mtime
            answer = Answer(
                str(data["id"]), tuple(data["users"]), frozenset(data["jobs"]),
                tuple(_status(one) for one in data["queue"]), tuple(_status(one) for one in data["accounted"]),
                data["problem"], data["unaccounted"])
        except (OSError, KeyError, TypeError, ValueError, AttributeError):
            return None  # the next one who asks replaces it
        age = self._now() - written
        return replace(answer, age=age if age >= 0 else OLD)  # a clock was set back

    def _now(self) -> float:
        """The time by the file system's own clock; by this machine's for somebody who may only look."""
        probe = self.folder / f".clock-{secrets.token_hex(4)}"
        try:
            probe.touch()
            return probe.stat().st_mtime
        except OSError:
            return time.time()
        finally:
            with contextlib.suppress(OSError):
                probe.unlink(missing_ok=True)

    def _write(self, answer: Answer) -> None:
        data = {**asdict(answer), "jobs": sorted(answer.jobs)}
        del data["age"]
        try:
            write_json(self.path, data)
        except StorageError:  # somebody who may only look, or a full disk
            self._own = self.clock(), answer
        else:
            self._own = None
            self._sweep(answer.id)

    def _turn(self, old: Answer | None) -> bool | None:
        """Whether it is this process's turn to replace `old`; None where it can't write.

        The file of a turn is named after the answer that it replaces and is never taken away before that answer is,
        so nobody else gets the same turn. One that led to nothing is followed by the next.
        """
        name = old.id if old else "none"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for number in range(1000):
                path = self.folder / f"asking-{name}-{number}"
                with contextlib.suppress(FileExistsError):
                    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o664))
                    return True
                with contextlib.suppress(FileNotFoundError):
                    if abs(self._now() - path.stat().st_mtime) < KILLED:
                        return False
        except OSError:
            return None
        return False

    def _sweep(self, current: str) -> None:
        with contextlib.suppress(OSError):
            for path in self.folder.glob("asking-*"):
                if not path.name.startswith(f"asking-{current}-"):
                    path.unlink(missing_ok=True)
