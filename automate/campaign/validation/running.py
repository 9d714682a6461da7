"""`validation run`, `submit`, `loop`, `retry`: the parts put together, and what they did told in lines.

Never decides by itself what is whose fault; the rooms below do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from automate.campaign.validation.circle import Circle
from automate.campaign.validation.fetching import tell
from automate.claims import Claim
from automate.cluster.queue import job_alive
from automate.errors import ConfigError
from automate.names import name_problem
from automate.validation import environments, jobs, ondisk
from automate.validation.api_errors import ApiUnavailable, RateLimited
from automate.validation.assignments import State
from automate.validation.fetching import Turn
from automate.validation.inner import files
from automate.validation.jobs.outcomes import forget_results
from automate.validation.loop import Loop, Stop
from automate.validation.submitting import Submitted

Show = Callable[[jobs.Progress], None]
PAUSE, LOCAL_PAUSE = 20.0, 1.0
"""Seconds between two turns of the loop; how often tasks are asked is theirs and the settings' to say."""


# --- run ------------------------------------------------------------------------------------------
def run_fetched(circle: Circle, *, ids: Sequence[str] | None, most: int | None, submit: bool, wait: bool,
                show: Show | None = None) -> bool:
    """Hand over what is fetched, or say what would be; False where an assignment that was named can't be.

    On this machine it is waited for; `show` is told how far it is.
    """
    tell_settled(circle, circle.settle())
    if not submit:
        return _would(circle, ids, most)
    handed = circle.hand_in(most, ids)
    tell_handed(circle, handed)
    mine = list(handed.jobs)
    named = ids is None or set(ids) <= set(mine)
    if not mine or not (wait or circle.where == "local"):
        return named
    while True:
        done = jobs.wait(circle.workspace, circle.spool, circle.cluster, mine,
                         show=show or (lambda now: _show(circle, now)))
        if circle.where != "local" or not done.again:
            return named
        again = circle.hand_in(None, [one for one in mine if _waits(circle, one)])
        if not again.jobs:
            return named


def _waits(circle: Circle, assignment_id: str) -> bool:
    found = circle.spool.find(assignment_id)
    return found is not None and found.ready and found.handed is None


def _would(circle: Circle, ids: Sequence[str] | None, most: int | None) -> bool:
    fetched = circle.spool.listed(State.FETCHED)
    ready = [one for one in fetched if one.ready and one.handed is None and (ids is None or one.id in ids)][:most]
    waiting = [one for one in fetched if not one.ready]
    for one in ready:
        circle.say(f"{one.id}  task {one.task_id}  {one.module}")
    missing = [one for one in ids or () if one not in {found.id for found in ready}]
    for name in missing:
        found = None if name_problem(name) else circle.spool.find(name)
        circle.say(f"{name}: " + (f"{found.state}{f': {found.problem}' if found.problem else ''}" if found else
                                  "not in the spool"))
    circle.say(f"{counted(len(ready))} would be handed to {'Slurm' if circle.where == 'slurm' else 'this machine'}"
               f"{f'; {len(waiting)} not ready' if waiting else ''}; --submit does it")
    return not missing


def _show(circle: Circle, now: jobs.Progress) -> None:
    circle.say(f"{now.waiting} waiting, {now.running} running, {now.done} done"
               + (f", {now.again} to try again" if now.again else "")
               + (f", {now.given_up} given up" if now.given_up else ""))


def tell_settled(circle: Circle, settled: jobs.Settled) -> None:
    """What dead jobs left."""
    for one in settled.taken:
        circle.say(f"{one.id}: its job is gone, its result is there: {one.state}")
    for one in settled.again:
        circle.say(f"{one.id}: its job died ({one.history[-1].cause or 'unknown'}); it will be tried again")
    for one in settled.given_up:
        circle.say(f"{one.id}: given up after {one.attempts} attempts: {one.history[-1].what}")
    for one, why in settled.waiting:
        circle.say(f"{one.id}: left alone: {why}")


def counted(number: int) -> str:
    """A number of assignments, in words."""
    return f"{number} assignment{'' if number == 1 else 's'}"


def tell_handed(circle: Circle, handed: jobs.HandedIn) -> None:
    """What was handed over, and what was not and why."""
    for array in handed.arrays:
        ids = sorted({job if ":" in job else job.partition("_")[0] for job in array.jobs.values()})
        circle.say(f"{array.module}: {counted(len(array.jobs))} handed over as {array.name} ({', '.join(ids)})")
    for assignment_id, why in handed.kept.items():
        circle.say(f"{assignment_id}: not handed over: {why}")
    for refusal in handed.refused:
        circle.say(str(refusal))
    if not handed.arrays and not handed.kept:
        circle.say("nothing to hand over: fetch first, or see 'flock-hpc validation status'")


# --- submit ---------------------------------------------------------------------------------------
def submit_finished(circle: Circle) -> bool:
    """Report what is finished; whether all of it went through."""
    tell_settled(circle, circle.settle())
    done = circle.submit(hurry=True)
    tell_submitted(circle, done)
    return not done.kept and done.stopped is None


def tell_submitted(circle: Circle, done: Submitted) -> None:
    """A line for each assignment that was reported or kept."""
    for one in done.sent:
        circle.say(f"{one.id}: submitted")
    for one in done.unconfirmed:
        circle.say(f"{one.id}: submitted (the reply was lost; the API says that it has it)")
    for one in done.reported_failed:
        result = files.read_result(one.folder)
        circle.say(f"{one.id}: reported as failed: {result.reason if result else 'its own fault'}")
    for one in done.lost:
        circle.say(f"{one.id}: its lease was lost; nothing was reported")
    for one, why in done.kept:
        circle.say(f"{one.id}: kept: {why}")
    if done.stopped is not None:
        circle.say(str(done.stopped))
    if not any((done.sent, done.unconfirmed, done.reported_failed, done.lost, done.kept)):
        circle.say("nothing to report")


# --- loop -----------------------------------------------------------------------------------------
def make_loop(circle: Circle, module: str, task_ids: Sequence[str], *, most: int | None, wait_here: bool = False,
              stop: Stop | None = None) -> Loop:
    """The loop of a workspace. `wait_here`: what is handed over is waited for, on this machine."""
    stop = stop or Stop()
    fetcher = circle.fetcher(module, task_ids, most, stop)

    def fetch() -> Turn:
        turn = fetcher.turn()
        tell(circle, Turn(turn.admitted))
        return turn

    told: dict[str, str] = {}

    def submit(claim: Claim | None) -> Submitted:
        done = circle.submit(claim, stop=stop)
        news = tuple((one, why) for one, why in done.kept if told.get(one.id) != why)
        told.update({one.id: why for one, why in news})
        shown = Submitted(done.sent, done.reported_failed, done.unconfirmed, done.lost, news)
        if shown != Submitted():
            tell_submitted(circle, shown)
        return done

    def hand_in() -> None:
        handed = circle.hand_in()
        if handed.arrays:
            tell_handed(circle, handed)
        if wait_here and handed.jobs:
            jobs.wait(circle.workspace, circle.spool, circle.cluster, list(handed.jobs), stop=stop,
                      show=lambda now: _show(circle, now))

    return Loop(circle.places, settle=lambda: tell_settled(circle, circle.settle()), submit=submit, fetch=fetch,
                hand_in=hand_in, clean=circle.clean, say=circle.say, stop=stop, job_alive=job_alive,
                stale=circle.spool.stale,
                pause=min(LOCAL_PAUSE if wait_here else PAUSE, circle.settings.time_sleep))


def run_loop(circle: Circle, module: str, task_ids: Sequence[str], *, most: int | None, once: bool) -> int:
    """Turn after turn; 0 where it ended as it was told to, 1 where a part of the only turn failed."""
    circle.apart()
    there = _there(circle, lambda: circle.ready(module, task_ids))
    done = make_loop(circle, module, task_ids, most=most).run(once=once)
    return 1 if once and (done.failures or not there) else 0


def run_here(circle: Circle, module: str, task_ids: Sequence[str], *, once: bool) -> int:
    """The validator's own command: the environment is built if need be, then fetch, run and report on this machine.

    `once`: until one turn brought nothing new; 1 where something of it failed.
    """
    circle.apart()
    source = circle.source(module)
    there = _there(circle, lambda: circle.known(task_ids))
    environments.create(source, circle.places, say=circle.say, environ=circle.around)
    if there:
        there = _there(circle, lambda: circle.ready(module, task_ids))
    else:
        circle.prepared(module, task_ids)
    loop = make_loop(circle, module, task_ids, most=None, wait_here=True)
    done = loop.run(once=once)
    if not once:
        return 0
    last = circle.submit(hurry=True)
    tell_submitted(circle, last)
    return 1 if done.failures or last.kept or last.stopped or not there else 0


def _there(circle: Circle, look: Callable[[], None]) -> bool:
    """Look at what must be known before the loop starts; False, and said so, where the API just isn't there: what is
    finished is settled and reported all the same. Raises FlockError for what the loop can't mend by waiting."""
    try:
        look()
    except (ApiUnavailable, RateLimited) as error:
        circle.say(f"{error}\nkey and tasks could not be checked; it goes on with what is here, and asks again")
        return False
    return True


# --- retry ----------------------------------------------------------------------------------------
def take_back(circle: Circle, assignment_id: str) -> None:
    """A given-up assignment, put back to `fetched`; what is not on disk any more is fetched again.

    Raises ConfigError where it is not given up.
    """
    with circle.spool.held(assignment_id):
        found = circle.spool.find(assignment_id)
        if found is None or found.state is not State.GIVEN_UP:
            there = "not in the spool" if found is None else f"{found.state}, not given up"
            raise ConfigError(f"it is {there}", where=f"assignment {assignment_id}",
                              todo="see 'flock-hpc validation status'")
        forget_results(found)
        kept, gone = ondisk.checked(found)
        anew = replace(kept, attempts=0, problem=None, cause=None, handed=None)
        circle.spool.move(anew, State.FETCHED, "taken back by a person" + (f"; to be fetched: {gone}" if gone else ""))
