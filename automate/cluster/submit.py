"""Hands a script over, once: the intent is written down before, and reconciled after an error.

Never submits again what may have been accepted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from automate.cluster.asking import me
from automate.cluster.base import Cluster
from automate.errors import ClusterError, DataError, SubmitError
from automate.journal import fresh_name, read_json, write_json


@dataclass(frozen=True)
class Submission:
    """One handing over: `tasks` maps array indexes to batch numbers; `{0: n}` is a job of its own.

    `by` says who did it: user, wait (`--wait`), refill (the small job) or job (a batch's own successor); `user` is the
    login name. A refill job itself has no tasks. `after` may name several jobs: with ? between them, any one of them is
    waited for, with commas all of them.
    """

    id: str
    plan: str
    name: str
    script: str
    executor: str
    tasks: dict[int, int]
    array: bool
    parallel: int | None = None
    after: str | None = None
    intended: float = field(default_factory=time.time)
    job: str | None = None
    refused: str | None = None
    user: str | None = None
    by: str = "user"
    exclude: str | None = None

    @property
    def open(self) -> bool:
        """Whether nobody wrote down yet what became of it."""
        return self.job is None and self.refused is None

    @property
    def indexes(self) -> list[int]:
        return sorted(self.tasks) if self.array else []

    def job_of(self, batch: int) -> str | None:
        """The job id of one of its batches, as squeue prints it."""
        if self.job is None:
            return None
        for index, number in self.tasks.items():
            if number == batch:
                return f"{self.job}_{index}" if self.array else self.job
        return None

    @property
    def jobs(self) -> list[str]:
        """Ids of all its jobs."""
        return [job for batch in self.tasks.values() if (job := self.job_of(batch)) is not None]


_FIELDS = {one.name for one in fields(Submission)}


def new_submission(plan: str, name: str, script: Path, executor: str, tasks: dict[int, int], *, array: bool,
                   parallel: int | None, by: str = "user") -> Submission:
    """A submission that nobody has handed over yet."""
    return Submission(fresh_name(), plan, name, str(script), executor, tasks, array, parallel, user=me(), by=by)


def first_tasks(submission: Submission, count: int) -> Submission:
    """The same with its first `count` tasks only."""
    kept = {index: submission.tasks[index] for index in sorted(submission.tasks)[:count]}
    return replace(submission, id=fresh_name(), tasks=kept)


def chained(submission: Submission, before: Sequence[Submission]) -> Submission:
    """A job that waits for the one `parallel` places before it; an array, with a limit within, for the last."""
    limit = submission.parallel
    if limit is None or len(before) < (1 if submission.array else limit):
        return submission
    return replace(submission, after=before[-1 if submission.array else -limit].job)


class SubmissionBook:
    """All submissions of a workspace: one file each, replaced by rename."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def save(self, submission: Submission) -> None:
        """Write a submission down."""
        data = asdict(submission)
        data["tasks"] = {str(index): batch for index, batch in submission.tasks.items()}
        write_json(self.folder / f"{submission.id}.json", data)

    def all(self) -> list[Submission]:
        """Every submission, oldest first."""
        found = []
        for path in sorted(self.folder.glob("*.json")) if self.folder.is_dir() else []:
            data = read_json(path)
            try:
                if data is not None:
                    tasks = {int(index): int(batch) for index, batch in data.pop("tasks").items()}
                    known = {name: value for name, value in data.items() if name in _FIELDS}
                    found.append(Submission(**known, tasks=tasks))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise DataError(f"not a submission of flock-hpc ({error!r})", where=str(path),
                                todo="move it away") from error
        return found


def _known_jobs(book: SubmissionBook) -> set[str]:
    return {submission.job for submission in book.all() if submission.job is not None}


def reconcile(book: SubmissionBook, cluster: Cluster, submission: Submission) -> Submission:
    """Find out what became of an open intent, by job name. Raises ClusterError where the cluster can't be asked."""
    found = [job for job in cluster.find(submission.name, submission.intended - 1) if job not in _known_jobs(book)]
    if found:
        settled = replace(submission, job=found[0])
    else:
        settled = replace(submission, refused=submission.refused or "no job of this name was accepted")
    book.save(settled)
    return settled


def settle_open(book: SubmissionBook, cluster: Cluster) -> list[Submission]:
    """Reconcile every open intent of this cluster's kind; those that were never settled by a killed command."""
    return [reconcile(book, cluster, submission) for submission in book.all()
            if submission.open and submission.executor == cluster.kind]


def hand_over(book: SubmissionBook, cluster: Cluster, submission: Submission) -> Submission:
    """Write the intent down, submit, write down what came of it. Raises SubmitError with the cluster's words."""
    book.save(submission)
    try:
        job = cluster.submit(Path(submission.script), submission.name, submission.indexes, submission.parallel,
                             submission.after, submission.exclude)
    except ClusterError as error:
        try:
            settled = reconcile(book, cluster, submission)
        except ClusterError as unsure:
            told = SubmitError(f"{error.what}; and whether the job was accepted can't be found out: {unsure.what}",
                               where=submission.script,
                               todo="run the same command again when Slurm answers: it looks first")
            told.unsure = True
            raise told from error
        if settled.job is not None:
            return settled
        book.save(replace(settled, refused=error.what))
        raise
    settled = replace(submission, job=job)
    book.save(settled)
    return settled


def latest_job(submissions: Sequence[Submission], plan: str, batch: int) -> tuple[Submission, str] | None:
    """The newest accepted submission of a batch, and its job id."""
    for submission in sorted(submissions, key=lambda item: item.intended, reverse=True):
        job = submission.job_of(batch) if submission.plan == plan else None
        if job is not None:
            return submission, job
    return None
