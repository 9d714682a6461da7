"""What a batch's job does when it has to end with games left: go on by itself, or say why not.

Deciding is pure; acting is the job's very last step, as Slurm ends a job that asks to be requeued."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from automate.arena.batches import Batch, Plan, plan_tag
from automate.arena.running.gpu_hours import may_go_on
from automate.arena.running.job_config import JUDGING, JobConfig, Words
from automate.arena.running.runlog import RunLog, own_job_id, own_node, read_runs
from automate.cluster import own_job
from automate.cluster.own_job import OwnJob
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook, hand_over, new_submission
from automate.errors import FlockError
from automate.names import baseline_tag

Kind = Literal["requeue", "successor", "slurm", "none"]
TIME_LIMIT, STALLED, NODE_FAULT = "time limit", "stalled", "node fault"
DRAIN_SIGNAL = "USR2"
"""Not USR1, which NCCL may take for itself."""
NODE_FAILED = "node failed"
SIGNALS = ("SIGTERM", "SIGINT")


@dataclass(frozen=True)
class End:
    """How a start of a batch ended: why it stopped, games left (None: never counted), games played.

    `hindered`: servers died in it, so that its load time says nothing; `played_before`: an earlier start of this batch
    got through to games.
    """

    stopped_by: str
    left: int | None
    played: int
    starts: int
    cancelled: bool = False
    hindered: bool = False
    played_before: bool = False

    @property
    def never_played(self) -> bool:
        """Whether the time limit alone kept every game from being played: another start would end like this one."""
        return self.stopped_by == TIME_LIMIT and self.played == 0 and self.left != 0 and not (
            self.hindered or self.played_before)


@dataclass(frozen=True)
class Next:
    """What comes after: `job` is the successor's id."""

    kind: Kind
    why: str
    job: str | None = None

    @property
    def record(self) -> dict[str, str | None]:
        """As it stands in the run's record."""
        return {"kind": self.kind, "why": self.why, "job": self.job}


def no_room(words: Words) -> str:
    """Why no other start is asked for where the GPU-hours are used up."""
    return f"limits.max_gpu_hours leaves no room for another start: raise it, then '{words.submit}'"


def never_played(words: Words) -> str:
    """What is to be said of a start that never got through to its work."""
    return (f"the time limit was over before {words.article} could be {words.past}\n"
            f"  -> raise slurm.time above what loading the {words.server} takes, then run '{words.submit}'")


def longest_game(runs: Iterable[Mapping[str, Any]], judge: str) -> float:
    """Seconds of the longest games that earlier starts measured with this judge: the 95th percentile's worst."""
    found = []
    for run in runs:
        seconds = run.get("game_seconds")
        if run.get("judge") == judge and isinstance(seconds, dict):
            found.append(float(seconds.get("p95", 0.0)))
    return max(found, default=0.0)


def why_ended(own: OwnJob | None, signal: str) -> str:
    """Why Slurm sent a signal, by its own word: time limit, preempted, cancelled and so on, or the signal's name."""
    if own is None:
        return signal
    if own.timed_out:
        return TIME_LIMIT
    if own.preempted or (own.requeued and own.notice == "PREEMPTION"):
        return "preempted"
    if own.requeued:
        return NODE_FAILED if own.notice == "NODE FAILURE" else "requeued"
    return "cancelled" if own.ending else signal


def decide(end: End, own: OwnJob | None, *, most: int, local: bool, words: Words = JUDGING) -> Next:
    """Whether and how the batch goes on. `most`: starts in all."""
    if own is not None and own.requeued and not end.cancelled:
        return Next("slurm", f"{end.stopped_by}: Slurm puts it into the queue again by itself")
    none = _reason_to_stop(end, most, words)
    if none is not None:
        return Next("none", none)
    what = f"{end.left if end.left is not None else 'its'} {words.things} are left"
    if end.stopped_by == NODE_FAULT and not local:
        return Next("successor", f"{what}; a new job stays away from this node")
    if own is not None and own.requeue is False:
        return Next("successor", f"{what}; requeue is off for this job")
    return Next("requeue", what)


def _reason_to_stop(end: End, most: int, words: Words) -> str | None:
    if end.cancelled or end.stopped_by == "cancelled":
        return f"cancelled: '{words.submit}' goes on from here"
    if end.stopped_by not in (TIME_LIMIT, NODE_FAULT, "preempted"):
        return f"ended by {end.stopped_by}: '{words.submit}' goes on from here"
    if end.left == 0:
        return f"nothing is left to {words.verb}"
    if end.never_played:
        return (f"the time limit was over before {words.article} could be {words.past}: raise slurm.time above the "
                f"{words.server}'s load time, then '{words.submit}'")
    if end.starts >= most:
        return f"it was started {end.starts} times already (limits.requeues): '{words.submit}' goes on"
    return None


@dataclass(frozen=True)
class GoOn:
    """Carries out what was decided, for the job that this process is."""

    config: JobConfig
    say: Callable[[str], None]
    environ: Mapping[str, str]

    @property
    def local(self) -> bool:
        return bool(self.environ.get("FLOCK_HPC_JOB"))

    def end_of(self, stopped_by: str, left: int | None, played: int, hindered: bool = False) -> End:
        """The end of this start, with what the workspace's files say of the batch."""
        mine = [run for run in read_runs(self.config.workspace.runs)
                if (run.get("plan"), run.get("batch"), run.get("kind", "judge"))
                == (self.config.plan, self.config.batch, self.config.kind)]
        before = any(run.get("played") for run in mine)
        return End(stopped_by, left, played, len(mine), self._cancelled(), hindered, before)

    def _cancelled(self) -> bool:
        job = own_job_id(self.environ)
        workspace = self.config.workspace
        return job is not None and ((workspace.submissions / f"{job}.cancelled").exists()
                                    or (workspace.local_queue / f"{job}.cancel").exists())

    def finish(self, log: RunLog, end: End, own: OwnJob | None) -> Next:
        """Decide, write it down, and do it; what could not be done is written down too."""
        most = self.config.settings.limits.requeues + 1
        step = decide(end, own, local=self.local, most=most, words=self.config.words)
        log.update(next=step.record)
        if step.kind in ("requeue", "successor") and not may_go_on(self.config.workspace):  # asks of what was written
            step = Next("none", f"{step.why}; {no_room(self.config.words)}")
            log.update(next=step.record)
        if step.kind == "requeue":
            step = self._try(self._requeue, step, log, "none" if self.local else "successor")
        if step.kind == "successor":
            step = self._try(lambda step: self._succeed(step, end.stopped_by), step, log, "none")
        self.say(self._words(step, end, most))
        return step

    def _try(self, act: Callable[[Next], Next], step: Next, log: RunLog, otherwise: Kind) -> Next:
        try:
            step = act(step)
        except FlockError as error:
            step = Next(otherwise, f"{step.why}; {error.what}")
        log.update(next=step.record)
        return step

    def _words(self, step: Next, end: End, most: int) -> str:
        start = f"start {end.starts + 1} of at most {most}"
        return {
            "requeue": f"{step.why}: put into the queue again, {start}",
            "successor": f"{step.why}: job {step.job} goes on, {start}",
            "slurm": step.why,
            "none": f"not put into the queue again: {step.why}",
        }[step.kind]

    def _requeue(self, step: Next) -> Next:
        own_job.requeue(self.environ, self.config.workspace.local_queue)
        return step

    def _succeed(self, step: Next, stopped_by: str) -> Next:
        """Hand a new job in for the same batch, with its intent written down first; not for a faulty node."""
        workspace, config = self.config.workspace, self.config
        batch = Batch(config.batch, config.models, 0)
        plan = Plan(config.plan, plan_tag(workspace, config.plan), baseline_tag(config.settings.baseline), (batch,),
                    kind=config.kind)
        book, cluster = SubmissionBook(workspace.submissions), SlurmCluster()
        parallel, others = self.beside(book.all())
        submission = new_submission(plan.id, plan.job_name(batch), config.script, "slurm",
                                    {0: batch.number}, array=False, parallel=parallel, by="job")
        away = [config.settings.slurm.exclude, own_node(self.environ) if stopped_by == NODE_FAULT else None]
        acting = [job for job, status in cluster.look(others).items() if status.state.active] if others else []
        submission = replace(submission, exclude=",".join(filter(None, away)) or None, after=":".join(acting) or None)
        return replace(step, job=hand_over(book, cluster, submission).job)

    def beside(self, submissions: Sequence[Submission]) -> tuple[int | None, list[str]]:
        """How many batches may run at once, and where that is limited, all other jobs of the plan.

        A successor waits for those that still act, so that no more run than before. A requeued job keeps its place.
        """
        plan = [one for one in submissions if one.plan == self.config.plan and one.job is not None]
        own = own_job_id(self.environ) or ""
        mine = next((one for one in plan if own in one.jobs), None)
        if mine is None or mine.parallel is None:
            return None, []
        return mine.parallel, [job for one in plan for job in one.jobs if job != own]
