"""Inside the small job: hands in what fits of all plans that wait, of a chain its report too, and goes on later.

Never stays when nothing waits any more, or when no room can come."""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pydantic import ValidationError

from automate.campaign.chain_held import NO_JOB, Chain, coming, sort_out
from automate.campaign.chain_report import arrange_report
from automate.campaign.chain_results import are_fresh
from automate.campaign.handing import Request, Submitted, hand_in, submit_claim
from automate.campaign.plans import StoredPlan, read_plans
from automate.campaign.refill import before, hand_in_small, remember
from automate.campaign.state import CampaignState, look
from automate.campaign.waiting import count_of, never_submitted
from automate.claims import Claim
from automate.cluster.base import Cluster
from automate.cluster.limits import limit_words
from automate.cluster.own_job import postpone
from automate.cluster.slurm import SlurmCluster
from automate.cluster.submit import Submission, SubmissionBook, settle_open
from automate.errors import ClaimedError, FlockError
from automate.journal import read_json
from automate.settings import Settings
from automate.workspace import Workspace

PATIENCE = 480.0
"""Seconds that a refill job waits for another command to end its planning."""
Say = Callable[[str], None]


@dataclass
class Round:
    """What one look of a small job came to. `left`: a plan of which some still waits; `why`: because of what."""

    accepted: list[Submission] = field(default_factory=list)
    left: StoredPlan | None = None
    why: list[str] = field(default_factory=list)
    refused: bool = False


def run(workspace: Workspace, say: Say, environ: Mapping[str, str]) -> int:
    """Hand in what fits of all plans that wait, and go on later while any is left; the exit status."""
    cluster: Cluster = SlurmCluster()
    claim = submit_claim_patiently(workspace)
    try:
        settle_open(SubmissionBook(workspace.submissions), cluster)
        now = Round()
        for name, request, chain in _waiting(workspace):
            plans = read_plans(workspace)
            stored = next((one for one in plans if one.plan.id == name), None)
            if stored is None or not _one(workspace, cluster, stored, plans, request, chain, now, say):
                workspace.waiting(name).unlink(missing_ok=True)
                say(f"plan {name}: nothing waits any more")
        if now.left is not None:
            _go_on(_under(workspace, now.left), cluster, now.left, look(workspace), now, say, environ)
        return int(now.refused)
    finally:
        claim.release()


def _waiting(workspace: Workspace) -> list[tuple[str, Request, Chain | None]]:
    found = []
    for path in sorted(workspace.submissions.glob("*.waiting")):
        data = read_json(path) or {}
        with contextlib.suppress(TypeError, KeyError, ValueError, AttributeError):
            given = data["request"]
            chain = Chain.of_data(data["chain"]) if "chain" in data else None
            found.append((str(data["plan"]), Request.of(given), chain))
    return found


def submit_claim_patiently(workspace: Workspace) -> Claim:
    """The submit claim, waited for some minutes. Raises ClaimedError."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            return submit_claim(workspace)
        except ClaimedError:
            if time.monotonic() > until:
                raise
            time.sleep(2.0)


def _under(workspace: Workspace, stored: StoredPlan) -> Workspace:
    """The workspace with a plan's own settings, which hold the options that `judge` was given."""
    try:
        return replace(workspace, settings=Settings.model_validate(stored.settings))
    except ValidationError:
        return workspace


def _one(workspace: Workspace, cluster: Cluster, stored: StoredPlan, plans: Sequence[StoredPlan], request: Request,
         chain: Chain | None, now: Round, say: Say) -> bool:
    """Hand in what fits of one plan, and the report where it was the rest of a chain; True while some is left."""
    state = look(workspace)
    numbers, own = never_submitted(workspace, state, stored, plans), _under(workspace, stored)
    if numbers:
        done = _hand_in(own, cluster, stored, plans, request, state, numbers, chain)
        now.refused = bool(tell(stored, done, say)) or now.refused
        now.accepted += done.accepted
        if done.waiting:
            now.left = stored
            now.why.append(done.why)
            return True
    if chain is None or workspace.stopped(stored.plan.id).exists() or not (numbers or chain.last):
        return False
    return _report(own, cluster, stored, request, chain, now, say)


def _hand_in(workspace: Workspace, cluster: Cluster, stored: StoredPlan, plans: Sequence[StoredPlan],
             request: Request, state: CampaignState, numbers: Sequence[int], chain: Chain | None) -> Submitted:
    """Hand in what fits; of a chain games whose answers are there first, then those whose answers have a job."""
    if chain is None:
        return hand_in(workspace, cluster, stored, request, state, numbers=numbers, by="refill", spare=1)
    ready, after, held = sort_out(state, numbers, chain.needs, coming(workspace, state, plans))
    done = Submitted(waiting=list(held), why=NO_JOB if held else "")
    for some, jobs in ((ready, None), (sorted(after), after)):
        if some:
            part = hand_in(workspace, cluster, stored, request, look(workspace), numbers=some, by="refill", spare=1,
                           after=jobs)
            done = Submitted(done.accepted + part.accepted, done.refused + part.refused, done.waiting + part.waiting,
                             part.why or done.why, done.notes + part.notes)
    return done


def _report(workspace: Workspace, cluster: Cluster, stored: StoredPlan, request: Request, chain: Chain, now: Round,
            say: Say) -> bool:
    """Hand in a report job that waits for every judging job; True where it has to wait for room itself."""
    try:
        job = arrange_report(workspace, cluster, chain.report, new_jobs=True, fresh=are_fresh(workspace))
    except FlockError as error:
        limit = limit_words(error.what)
        say(f"plan {stored.plan.id}: no report job: {limit or error.what}")
        if limit is None:
            now.refused = True
            return False
        remember(workspace, stored, request, replace(chain, last=True))
        now.left = stored
        now.why.append(limit)
        return True
    if job is not None:
        say(f"plan {stored.plan.id}: job {job.job} writes the report")
    return False


def tell(stored: StoredPlan, done: Submitted, say: Say) -> int:
    """Say what was handed in; 1 where something was refused."""
    for note in done.notes:
        say(note)
    for submission in done.accepted:
        say(f"plan {stored.plan.id}: {count_of(submission.tasks)} handed in as job {submission.job}")
    for submission, error in done.refused:
        say(f"plan {stored.plan.id}: not handed in: batches {sorted(submission.tasks.values())}: {error}")
    if done.waiting:
        say(f"plan {stored.plan.id}: {count_of(done.waiting)} "
            + ("still waits for room: " if len(done.waiting) == 1 else "still wait for room: ") + done.why)
    return 1 if done.refused else 0


def _go_on(workspace: Workspace, cluster: Cluster, stored: StoredPlan, state: CampaignState, now: Round, say: Say,
           environ: Mapping[str, str]) -> None:
    """Another small job; where the limit leaves no place for a second one, this very job again, later.

    None where nothing of ours is in the queue whose end could make room.
    """
    if before(state, now.accepted) is None and all(hopeless(why) for why in now.why):
        say("no job of this workspace is in the queue whose end could make room: given up. Run the same command again")
        return
    try:
        job = hand_in_small(workspace, cluster, stored, state, now.accepted)
        say(f"job {job.job} goes on")
        return
    except FlockError as error:
        say(f"no second small job ({limit_words(error.what) or error.what}): this one waits again")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # Slurm ends a job that is put into the queue again
    postpone(environ, before(state, now.accepted))


def hopeless(why: str) -> bool:
    """Whether a wait ends only where something of this campaign ends, and not where others leave room."""
    return why.startswith("limits.max_gpu_hours") or why == NO_JOB
