"""A row for each worker of a fleet: from its job, its registration and what each of its starts wrote down.

Pure. Takes nothing for granted: a start's record may lack any key, or hold anything under it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from automate.cluster.queue import JobState, JobStatus
from automate.durations import seconds_of
from automate.fleets.account import spent_of
from automate.fleets.ending import SIGNALS
from automate.serving.fleet.records import FleetSpec, Spent, WorkerRecord
from automate.serving.fleet.registry import Seen

Run = Mapping[str, Any]
RowState = Literal["waiting", "loading", "ready", "draining", "refused", "silent", "unknown", "ended"]
SKEW = 300.0
"""Seconds by which a start's clock may be behind that of whoever made the fleet."""
_PHASES: dict[str, RowState] = {"ready": "ready", "draining": "draining", "ended": "draining"}
_BESIDE = "ended with the engine that it stood beside"


class Job(Protocol):
    """A job of the fleet, of the group with this number."""

    @property
    def job(self) -> str: ...

    @property
    def group(self) -> int: ...

    @property
    def status(self) -> JobStatus: ...


@dataclass(frozen=True)
class WorkerRow:
    """A worker: a job that waits, one start of a server, or a start that has ended.

    Seconds. `age`: since its start; `left`: until its time limit; `prefix_hits`: share of prompt tokens, 0 to 1;
    `spent`: what its start wrote down, and nothing where no start is its own; `gpus`: of that start, where it says so;
    `started` in epoch seconds by its own clock. `quiet`: it ended, and its last word was that it runs. `why`: why it
    ended, or why it is not used.
    """

    worker: str
    model: str
    group: int
    node: str
    job: str | None
    state: RowState
    running: float | None = None
    waiting: float | None = None
    in_flight: int | None = None
    kv_usage: float | None = None
    prefix_hits: float | None = None
    served: int = 0
    age: float | None = None
    left: float | None = None
    started: float | None = None
    spent: Spent = field(default_factory=Spent)
    gpus: float | None = None
    deaths: tuple[str, ...] = ()
    why: str = ""
    error: str = ""
    quiet: bool = False
    registered: bool = False
    job_state: str = ""
    note: str = ""


def number(data: object, key: str) -> float | None:
    """A finite number of a mapping; None where there is none."""
    value = data.get(key) if isinstance(data, Mapping) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def text(data: object, key: str) -> str:
    """A text of a mapping; empty where there is none."""
    value = data.get(key) if isinstance(data, Mapping) else None
    return value if isinstance(value, str) else ""


def _deaths(run: Run) -> tuple[str, ...]:
    """What a start's servers died of, one after the other."""
    said = run.get("deaths")
    return tuple(text(one, "cause") or "unknown" for one in said) if isinstance(said, list) else ()


def _name(run: Run | None) -> str:
    """A start's worker in the registry; before it was registered, the start itself."""
    return text(run, "worker") or text(run, "id")


def rows_of(spec: FleetSpec, jobs: Sequence[Job], seen: Mapping[str, Seen], runs: Sequence[Run],
            now: float) -> list[WorkerRow]:
    """Registered workers, jobs whose server isn't registered, and starts that have ended: each start in one row.

    `runs`: oldest first; those of an earlier fleet of this name are left out. A server beside an engine has no job of
    its own: its start is told by its id.
    """
    by_job = {job.job: job for job in jobs}
    runs = own_runs(spec, jobs, seen, runs)[0]
    newest = {text(run, "job"): at for at, run in enumerate(runs) if text(run, "job")}
    taken = _taken(seen, runs, newest)
    rows, shown, served = [], set(taken.values()), set()
    for worker, one in seen.items():
        at, job = taken.get(worker), one.record.job or ""
        rows.append(_registered(one, None if at is None else runs[at], by_job.get(job), now))
        served |= {job} if (newest[job] == at if job in newest else not _refused(one)) else set()
    for waits in jobs:
        if waits.job not in served and (waits.status.may_act or waits.job not in newest):
            at = None if waits.status.state.queued else newest.get(waits.job)  # in the queue again: that start is over
            at = None if at in shown else at
            rows.append(_of_job(spec, waits, None if at is None else runs[at], now))
            shown |= set() if at is None else {at}
    return rows + [_other(spec, run, by_job.get(text(run, "job")), now)
                   for at, run in enumerate(runs) if at not in shown]


def own_runs(spec: FleetSpec, jobs: Sequence[Job], seen: Mapping[str, Seen],
             runs: Sequence[Run]) -> tuple[list[Run], list[Run]]:
    """The starts of this very fleet, and those of earlier ones of its name."""
    mine = {job.job for job in jobs}
    here = {one.record.id for one in seen.values() if one.record.fleet == spec.id}
    own, earlier = list[Run](), list[Run]()
    for run in runs:
        job = text(run, "job")
        known = job in mine if job else (number(run, "started") or 0.0) >= spec.created - SKEW
        (own if known or _name(run) in here else earlier).append(run)
    return own, earlier


def _refused(seen: Seen) -> bool:
    """Whether it is there, and not used."""
    return seen.life == "alive" and bool(seen.why)


def _taken(seen: Mapping[str, Seen], runs: Sequence[Run], newest: Mapping[str, int]) -> dict[str, int]:
    """Which start each registered worker is, by its place in `runs`: no start is two workers.

    By its id, else by its job; one that is refused may name whatever job it likes.
    """
    names = {_name(run): at for at, run in enumerate(runs)}
    taken = {worker: names[worker] for worker in seen if worker in names}
    free = set(newest.values()) - set(taken.values())
    for worker, one in seen.items():
        at = newest.get(one.record.job or "")
        if worker not in taken and not _refused(one) and at is not None and at in free:
            taken[worker] = at
            free.discard(at)
    return taken


def _other(spec: FleetSpec, run: Run, job: Job | None, now: float) -> WorkerRow:
    """A start that is not registered, and whose job tells nothing: it loads beside an engine, or it has ended."""
    spoke = number(run, "updated") or number(run, "started") or 0.0
    if text(run, "job") or text(run, "phase") == "ended" or now - spoke > 2 * spec.stale:
        return _ended(spec, run, job, now)
    group = int(number(run, "group") or 0)
    return WorkerRow(
        _name(run), text(run, "model") or _model(spec, group), group, text(run, "node"), None,
        _PHASES.get(text(run, "phase"), "loading"), age=max(0.0, now - (number(run, "started") or now)),
        started=number(run, "started"), spent=spent_of([run], now), gpus=number(run, "gpus"),
        deaths=_deaths(run), note=_died(_deaths(run)))


def _registered(seen: Seen, run: Run | None, job: Job | None, now: float) -> WorkerRow:
    """A worker of the registry. Ages by its own clock, and by the reader's since its last beat: no two are mixed.

    Its seconds are those of its start's own record, never what it claims in the registry.
    """
    record = seen.record
    state: RowState = _life(seen, job)
    spoke = spent_of([run] if run else [], now)
    age = max(0.0, record.time - record.since, spoke.total) + seen.silence if record.since else None
    left = None if record.until is None else max(0.0, record.until - record.time - seen.silence)
    deaths = _deaths(run or {})
    return WorkerRow(
        record.id, record.model, record.group, record.node, record.job, state, record.running, record.waiting,
        record.in_flight, record.kv_usage, _hits(record), record.served, age, left, record.since or None,
        spoke, number(run, "gpus"), deaths, seen.why, quiet=state == "ended",
        registered=True, job_state=job.status.state.value if job else "",
        note=_registered_note(seen, state, deaths, job))


def _life(seen: Seen, job: Job | None) -> RowState:
    if seen.life == "gone" or (job is not None and job.status.state.ended):
        return "ended"
    if _refused(seen):
        return "refused"
    return "silent" if seen.life == "silent" else seen.record.state


def _hits(record: WorkerRecord) -> float | None:
    if not record.prefix_queries or record.prefix_hits is None:
        return None
    return min(1.0, record.prefix_hits / record.prefix_queries)


def _registered_note(seen: Seen, state: RowState, deaths: Sequence[str], job: Job | None) -> str:
    silent = f"no heartbeat for {seen.silence:.0f} s" if state == "silent" and not seen.why else ""
    end = _last(job) if state == "ended" and not seen.why else ""
    return "; ".join(part for part in (seen.why, silent, _died(deaths), end) if part)


def _died(deaths: Sequence[str]) -> str:
    return f"its server died {len(deaths)}x, last: {deaths[-1]}" if deaths else ""


def _model(spec: FleetSpec, group: int) -> str:
    return next((one.model for one in spec.groups if one.number == group), f"group {group}")


def _of_job(spec: FleetSpec, job: Job, run: Run | None, now: float) -> WorkerRow:
    """A job whose server isn't registered: it waits, loads, or has only just ended or begun."""
    status = job.status
    ended = not status.may_act and run is None
    if status.state.queued or ended:
        end = status.state.value.lower() if status.state.ended else "cancelled, or lost by Slurm,"
        note = f"{end} before its server was started" if ended else status.reason
        return WorkerRow("", _model(spec, job.group), job.group, status.nodes if ended else "", job.job,
                         "ended" if ended else "waiting", job_state=status.state.value, note=note)
    phase = text(run, "phase") if run else ""
    state: RowState = _PHASES.get(phase, "loading") if status.state.active else "unknown"
    started = number(run, "started")
    age = max(0.0, now - started) if started is not None else _elapsed(status)
    deaths = _deaths(run or {})
    lost = "ready by its own word, but not registered" if state == "ready" else ""
    note = "; ".join(part for part in (status.evidence if state == "unknown" else "", lost, _died(deaths)) if part)
    return WorkerRow(
        _name(run), _model(spec, job.group), job.group, text(run, "node") or status.nodes, job.job, state, age=age,
        started=started, spent=spent_of([run] if run else [], now), gpus=number(run, "gpus"), deaths=deaths,
        job_state=status.state.value, note=note)


def _elapsed(status: JobStatus) -> float | None:
    seconds = seconds_of(status.elapsed) if status.elapsed else math.inf
    return seconds if math.isfinite(seconds) else None


def _ended(spec: FleetSpec, run: Run, job: Job | None, now: float) -> WorkerRow:
    """A start that is over: by its own last word, or because its job is no more."""
    group = int(number(run, "group") or 0)
    spoke = text(run, "phase") == "ended"
    why, error = _why(run), text(run, "error").split("\n")[0]
    said = error or why or ("" if spoke else _last(job))
    started, end = number(run, "started"), number(run, "ended") or number(run, "updated")
    age = None if started is None or end is None else max(0.0, end - started)
    return WorkerRow(
        _name(run), text(run, "model") or _model(spec, group), group, text(run, "node"), text(run, "job") or None,
        "ended", served=int(number(run, "served") or 0), age=age, started=started, spent=spent_of([run], now),
        gpus=number(run, "gpus"), deaths=_deaths(run), why=why, error=error, quiet=not spoke,
        job_state=job.status.state.value if job else "", note=said)


def _why(run: Run) -> str:
    """Why a start ended, in words also where a signal's name was written down."""
    why = text(run, "why")
    if why not in SIGNALS:
        return why
    return _BESIDE if why == "SIGINT" and not text(run, "job") else f"told to end ({why})"


def _last(job: Job | None) -> str:
    """What is known of a start that ended without a last word."""
    state = job.status.state if job else JobState.UNKNOWN
    if state.ended:
        return f"ended without a last word ({state.value.lower()})"
    return "ended without a last word" + (": its job was started again" if job and state.active else "")
