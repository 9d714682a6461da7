"""The doctor's job: hand it over, wait for it, read what it found.

Never leaves a job behind: one that is not waited for any more is cancelled, and that is said."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from automate import __version__, claims
from automate.arena.batches import needs_gpu, plan_tag, server_context
from automate.campaign.doctoring.checks import Check, Mark, ok
from automate.campaign.monitoring.reasons import explain
from automate.cluster.base import Cluster
from automate.cluster.queue import JobState, JobStatus, job_alive
from automate.cluster.script import directives, log_pattern, render
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission, reconcile
from automate.errors import ClaimedError, ClusterError, FlockError
from automate.journal import fresh_name, read_json, replace_file
from automate.serving.causes import tail
from automate.workspace import Workspace

LIMIT = "00:02:00"
LATE = 20.0
"""Seconds in which the job's file may still come, after the job has ended: file systems take their time."""

Say = Callable[[str], None]


def script_text(workspace: Workspace, name: str, folder: Path, script: Path, result: Path) -> str:
    """The text of the doctor's job script: a batch's directives and environment, and two minutes."""
    settings = workspace.settings
    slurm = settings.slurm.model_copy(update={"time": LIMIT})
    server = server_context(workspace, sys.executable) if settings.judge.kind == "vllm" else None
    return render("doctor.sh.j2", {
        "directives": directives(slurm, name=name, gpus=needs_gpu(settings),
                                 output=log_pattern(folder, f"{script.stem}_%j.out"),
                                 error=log_pattern(folder, f"{script.stem}_%j.err")),
        "version": __version__, "server": server, "environment": sorted(settings.environment.items()),
        "python": sys.executable, "workspace": workspace.root, "result": result, "script": script,
    }, workspace.templates)


@dataclass
class DoctorJob:
    """One job of the doctor's. `run()` it; the clock and the pause come in, so that tests need not wait."""

    workspace: Workspace
    cluster: Cluster
    say: Say
    timeout: float
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    finished: bool = False
    node: str = ""
    _told: str = field(default="", init=False)

    @property
    def book(self) -> SubmissionBook:
        return SubmissionBook(self.workspace.doctor / "submissions")

    def run(self) -> list[Check]:
        """Submit, wait, and give the lines of the job; the job has ended or is cancelled when this returns or raises.

        Raises ClaimedError where another doctor waits for its job here, and whatever stops the wait.
        """
        claim = self._alone()
        try:
            left = self._clear()
            name = fresh_name()
            script, result = (self.workspace.doctor / f"{name}{end}" for end in (".sh", ".json"))
            submission = new_submission("doctor", f"doctor-{plan_tag(self.workspace, name)}", script, self.cluster.kind,
                                        {0: 0}, array=False, parallel=None)
            text = script_text(self.workspace, submission.name, self.workspace.doctor, script, result)
            replace_file(script, text.encode(), 0o775)
            return [*left, *self._submit(submission, result, claim)]
        finally:
            claim.release()

    def _alone(self) -> claims.Claim:
        """The claim of the one doctor that may have a job here; one that was killed a moment ago is waited for."""
        while True:
            try:
                return claims.take(self.workspace.doctor / "claim", stale=1.0, job_alive=job_alive)
            except ClaimedError as error:
                if not error.holder_gone:
                    raise ClaimedError(f"another doctor waits for its job in this workspace: {error.what}",
                                       todo="run this again when it is done") from error
            self.sleep(0.25)

    def _clear(self) -> list[Check]:
        """Cancel what a doctor that was killed has left in the queue."""
        mine = [sub for sub in self.book.all() if sub.executor == self.cluster.kind and not sub.refused]
        open_ones = [reconcile(self.book, self.cluster, sub) if sub.open else sub for sub in mine[-20:]]
        jobs = [sub.job for sub in open_ones if sub.job]
        states = self.cluster.look(jobs) if jobs else {}
        left = [job for job in jobs if job in states and states[job].state.active]
        if not left:
            return []
        problems = self.cluster.cancel(left)
        what = f"{', '.join(left)} of an earlier doctor was still in the queue"
        if problems:
            return [Check(Mark.WARNING, "job", f"{what}, and can't be cancelled: {'; '.join(problems)}",
                          "cancel it by hand")]
        return [Check(Mark.NOTE, "job", f"{what}; it is cancelled now")]

    def _submit(self, submission: Submission, result: Path, claim: claims.Claim) -> list[Check]:
        try:
            settled = hand_over(self.book, self.cluster, submission)
        except ClusterError as error:
            return [Check(Mark.ERROR, "job", error.what, error.todo or "")]
        except BaseException:
            self._cancel_unsure(submission)
            raise
        job = settled.job or ""
        done = False
        self.say(f"job {job} is submitted; Ctrl-C cancels it")
        try:
            status = self._wait(job, result, claim)
            found = self._read(job, result, status, submission)
            done = status is not None and not status.may_act
            return found
        finally:
            if not done:
                self._cancel(job)

    def _wait(self, job: str, result: Path, claim: claims.Claim) -> JobStatus | None:
        """Wait until the job has ended; None where the time is over while it waits or runs."""
        end, pause = self.now() + self.timeout, 1.0 if self.cluster.kind == "local" else 3.0
        while True:
            status = self.cluster.look([job])[job]
            self._tell(job, status)
            if not status.may_act and status.state is not JobState.UNKNOWN:
                return status
            if (read_json(result) or {}).get("finished"):
                return status if not status.may_act else JobStatus(job, JobState.COMPLETED, "its own file")
            if status.gone:
                return status
            if self.now() >= end:
                return None
            claim.beat()
            self.sleep(pause)

    def _tell(self, job: str, status: JobStatus) -> None:
        why = explain(status.reason).words
        text = f"job {job}: {status.state.value.lower()}" + (f": {why}" if why and status.state.queued else "")
        if text != self._told:
            self._told = text
            self.say(text)

    def _read(self, job: str, result: Path, status: JobStatus | None, submission: Submission) -> list[Check]:
        """The job's lines, and what is to be said where it didn't come to its end."""
        found = read_json(result)
        end = self.now() + LATE
        while status is not None and not (found or {}).get("finished") and self.now() < end:
            self.sleep(1.0)
            found = read_json(result)
        if found is None:
            return [self._never(job) if status is None else self._silent(job, status, submission)]
        self.finished, self.node = bool(found.get("finished")), str(found.get("node", ""))
        lines = [Check.from_json(line) for line in found.get("checks", []) if isinstance(line, dict)]
        if not self.finished:
            how = "the wait for it was over" if status is None else f"it ended ({status.state.value.lower()})"
            lines.append(Check(Mark.UNKNOWN, str(found.get("now", "job")), f"was being looked at when {how}",
                               f"see {self._log(job, result, 'err')}"))
        return lines

    def _never(self, job: str) -> Check:
        status = self.cluster.look([job])[job]
        why = explain(status.reason)
        reason = f": {status.reason}, {why.words}" if status.reason and why.words != status.reason else (
            f": {status.reason}" if status.reason else "")
        return Check(Mark.ERROR, "job", f"job {job} did not start within {self.timeout:.0f} s{reason}; nothing is "
                     "known of the nodes",
                     why.advice or "run this again with a longer --timeout, or when less is waiting")

    def _silent(self, job: str, status: JobStatus, submission: Submission) -> Check:
        log = self._log(job, Path(submission.script), "err")
        last = tail(log, 3).strip() if log.is_file() else ""
        if not log.is_file():
            return Check(Mark.ERROR, "job", f"job {job} ended ({status.state.value.lower()}) and left neither results "
                         "nor a log", "put the workspace where compute nodes see and can write it")
        return Check(Mark.ERROR, "job", f"job {job} ended ({status.state.value.lower()}) before it wrote anything: "
                     f"{last or 'its log is empty'}", f"see {log}")

    def _log(self, job: str, file: Path, suffix: str) -> Path:
        return self.cluster.log_path(log_pattern(self.workspace.doctor, f"{file.stem}_%j.{suffix}"), job)

    def _cancel(self, job: str) -> None:
        try:
            problems = self.cluster.cancel([job])
        except FlockError as error:
            problems = [str(error)]
        self.say(f"job {job} can't be cancelled: {'; '.join(problems)}" if problems else f"job {job} is cancelled")

    def _cancel_unsure(self, submission: Submission) -> None:
        """Stopped while the job was being handed over: look for it by its name."""
        try:
            job = reconcile(self.book, self.cluster, submission).job
        except FlockError as error:
            self.say(f"whether a job named {submission.name} was accepted can't be found out: {error.what}")
            return
        if job is not None:
            self._cancel(job)


def seen_by_job(checks: list[Check], job: DoctorJob) -> list[Check]:
    """The login node's doubts about file systems, settled by a job that ran there and wrote its file."""
    if not job.finished:
        return checks
    settled = {"workspace", "Arena-Hard checkout", "flock-hpc's environment"}
    return [ok(check.subject, f"{check.what.partition(';')[0].partition(', below')[0]}; node {job.node} sees it")
            if check.subject in settled and check.mark in (Mark.ERROR, Mark.NOTE) else check for check in checks]
