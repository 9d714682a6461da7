"""Why a batch's newest job ended with games due: a class, its evidence, the next step, what the job did by itself.

Reads logs' ends only; never guesses: what no evidence shows is unknown."""

from __future__ import annotations

import contextlib
import pwd
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automate.campaign.monitoring.vitals import items, text
from automate.campaign.plans import moved
from automate.campaign.state import BatchView, log_files
from automate.serving import causes
from automate.workspace import Workspace

AGAIN = "'flock-hpc judge --submit' goes on from here"
KINDS = {
    "time_limit": ("time limit", f"{AGAIN}; to need fewer jobs, raise slurm.time or lower --batch-size"),
    "preempted": ("preempted", AGAIN),
    "node": ("node failure", AGAIN),
    "not_started": ("it never started: its nodes or its partition went away", "check slurm.partition ('sinfo' lists "
                    f"what there is), then {AGAIN}"),
    "killed": ("its process was killed", AGAIN),
    "host_memory": ("host memory", f"raise slurm.mem, then {AGAIN}"),
    "cancelled": ("cancelled", f"when you want it to go on: {AGAIN}"),
    "judge_server": ("judge server", "read the server's log"),
    "stalled": ("stalled: no game was finished for too long", "see the server's log; limits.stall says how long a job "
                f"may stand still. {AGAIN}"),
    "ended_early": ("ended with games due", "submit again: it plays just those"),
    "script": ("failed before flock-hpc began", "see the .err log: modules, environment or folders of the job's node"),
    "moved": ("the workspace was moved", "'flock-hpc judge --submit' writes the scripts anew"),
    "error": ("error", AGAIN),
    "unknown": ("unknown", "see its logs"),
}
"""Class -> what it is called, and what to do where nothing better is known."""
_BY_STATE = {"timeout": "time_limit", "deadline": "time_limit", "out_of_memory": "host_memory", "node_fail": "node",
             "boot_fail": "node", "preempted": "preempted", "cancelled": "cancelled"}
_BY_STOP = {"time limit": "time_limit", "preempted": "preempted", "cancelled": "cancelled", "stalled": "stalled",
            "node fault": "node", "node failed": "node"}
_WAS = ("preempted", "requeued", "cancelled")


_ANSWERS = (
    ("'flock-hpc judge", "'flock-hpc generate"), ("judge server", "model server"), ("games due", "answers due"),
    ("no game was", "no answer was"), ("plays just those", "asks just those"), ("slurm.mem", "generate.slurm.mem"),
    ("slurm.time", "generate.slurm.time"), ("slurm.partition", "generate.slurm.partition"))
"""Words of judging, and those of generating answers."""


@dataclass(frozen=True)
class Failure:
    """A batch whose newest job ended with games due: its class, evidence, next step, and what the job did about it.

    `work`: judge or generate; of a batch that generates, answers are due.
    """

    batch: int
    plan: str
    job: str
    state: str
    cause: str
    todo: str
    evidence: str
    log: str | None
    kind: str = "unknown"
    due: int = 0
    node: str = ""
    facts: tuple[str, ...] = ()
    next: str = ""
    work: str = "judge"


def next_words(run: Mapping[str, Any], starts: int, requeues: int) -> str:
    """What a start did about its end; `starts`: how often the batch was started until now."""
    step, stop = run.get("next"), text(run, "stopped_by")
    kind, why = text(step, "kind"), text(step, "why")
    start = f"start {starts + 1} of at most {requeues + 1}"
    if kind == "requeue":
        return f"requeued itself, {start}"
    if kind == "successor":
        job = text(step, "job")
        return f"handed in job {job} to go on, {start}" if job else "handed in a job to go on"
    if kind == "slurm":
        return "left it to Slurm, which puts it into the queue again"
    more = why.removeprefix("ended by ").removeprefix(f"{stop}: ") if stop else why  # the stop is told beside it
    return ("did not requeue itself" if more == AGAIN else f"did not requeue itself: {more}") if why else ""


def ended_words(run: Mapping[str, Any]) -> str:
    """How the last start of a job that goes on ended; empty where it didn't say."""
    stop = text(run, "stopped_by")
    return f"last start was {stop}" if stop in _WAS else f"last start ended by {stop}" if stop else ""


def failure(workspace: Workspace, view: BatchView, due: int, runs: Sequence[Mapping[str, Any]] = ()) -> Failure:
    """The failure of a batch whose job has ended. `runs`: every record of the workspace, oldest first."""
    run = view.run or {}
    starts = sum(1 for one in runs if (one.get("plan"), one.get("batch")) == (view.stored.plan.id, view.batch.number))
    logs = _logs(workspace, view)
    server = _server_cause(view, logs)
    kind = _kind(workspace, view, run, server)
    cause, todo = _words(view, run, kind, server, due)
    for path in logs:  # the log has a place of its own
        cause = cause.removeprefix(f"{path}: ")
    node = "" if kind == "not_started" else text(run, "node") or (view.status.nodes if view.status else "")
    found = Failure(
        view.batch.number, view.stored.plan.id, view.job or "", view.state, cause, todo,
        view.status.evidence if view.status else "", str(logs[-1]) if logs else None, kind, due, node,
        _facts(view, run, node), next_words(run, starts, workspace.settings.limits.requeues))
    return found if view.kind == "judge" else _of_answers(found)


def _of_answers(found: Failure) -> Failure:
    """A failure of a batch that generates answers, in its own words."""
    def own(text: str) -> str:
        for old, new in _ANSWERS:
            text = text.replace(old, new)
        return re.sub(r"flock-hpc logs (\d+)", r"flock-hpc logs \1 --answers", text)

    return replace(found, cause=own(found.cause), todo=own(found.todo), facts=tuple(map(own, found.facts)),
                   next=own(found.next), work="generate")


def _logs(workspace: Workspace, view: BatchView) -> list[Path]:
    with contextlib.suppress(OSError):  # a log that vanished between the list and the look
        return log_files(workspace, view)
    return []


def _server_cause(view: BatchView, logs: Sequence[Path]) -> causes.Cause | None:
    """What the last lines of the judge server's log show, for a job that failed."""
    mine = [path for path in logs if path.name.endswith(".server.log") and (view.job or "") in path.name]
    if not mine or view.state != "failed":
        return None
    found = causes.classify(causes.tail(mine[-1]))
    return None if found is causes.UNKNOWN else found


def _spoke(run: Mapping[str, Any]) -> bool:
    """Whether the record is of the job's last start: not where an earlier start left it to be requeued."""
    step = run.get("next")
    return bool(run) and not (text(run, "phase") == "ended" and text(step, "kind") in ("requeue", "slurm"))


def _signal_9(view: BatchView) -> bool | None:
    """Whether signal 9 ended the job, or its script's program; None where no exit code is known."""
    code, reason = (view.status.exit_code, view.status.reason) if view.status else ("", "")
    if not code and reason.startswith(("exit status ", "signal ")):  # the local queue's word
        return reason in ("exit status 137", "signal 9")
    return code.endswith(":9") or code.partition(":")[0] == "137" if code else None


def _killed(view: BatchView, run: Mapping[str, Any]) -> bool:
    """Whether a failed job was in the midst of its work by its own record, and nothing speaks against signal 9."""
    return view.state == "failed" and text(run, "phase") not in ("", "ended") and _signal_9(view) is not False


def _kind(workspace: Workspace, view: BatchView, run: Mapping[str, Any], server: causes.Cause | None) -> str:
    stop = _BY_STOP.get(text(run, "stopped_by").partition(":")[0])
    if view.status is not None and view.status.never_started:
        return "not_started"
    if view.state == "failed" and not _spoke(run) and moved(workspace, view.stored):
        return "moved"
    if _killed(view, run) and _signal_9(view):
        return "killed"
    if view.state in _BY_STATE:
        return "time_limit" if view.state == "cancelled" and stop == "time_limit" else _BY_STATE[view.state]
    if stop is not None:
        return stop
    if server is not None or (items(run, "deaths") and view.state == "failed"):
        return "judge_server"
    if run.get("error"):
        return "error"
    if _killed(view, run):
        return "killed"
    if view.state == "completed" or run.get("status") == 3:
        return "ended_early"
    return "script" if view.state == "failed" and not run else "unknown"


def _words(view: BatchView, run: Mapping[str, Any], kind: str, server: causes.Cause | None,
           due: int) -> tuple[str, str]:
    cause, todo = KINDS[kind]
    if kind == "unknown":
        return cause, f"see 'flock-hpc logs {view.batch.number}'"
    if kind == "killed":
        sure = " (signal 9)" if _signal_9(view) else ", as it seems"
        return f"{cause}{sure}: by somebody, or by the system's out-of-memory killer; check slurm.mem", todo
    if kind == "not_started" and run:
        return cause.replace("never started", "did not start again"), todo
    if kind == "moved":
        return f"the job was submitted when the workspace lay in {view.stored.root}", todo
    if kind == "ended_early":
        return f"ended with {due} games due" if due else cause, todo
    if kind == "cancelled" and (who := cancelled_by(view)):
        return f"cancelled by {who}", todo
    if (kind in ("judge_server", "error", "stalled") or run.get("hopeless")) and run.get("error"):
        first, _, advice = str(run["error"]).partition("\n  -> ")
        cause, todo = first.split("\n")[0], advice
    if kind == "judge_server" and server is not None:
        cause, todo = f"judge server: {server.name}", server.todo
    elif kind == "judge_server" and not run.get("error"):
        cause = f"judge server: {text(items(run, 'deaths')[-1], 'cause') or 'unknown'}"
    if todo in ("", causes.UNKNOWN.todo):
        todo = f"see 'flock-hpc logs {view.batch.number}': it ends with the server's last lines"
    return cause, todo


def cancelled_by(view: BatchView) -> str:
    """Who cancelled a job, as far as Slurm or our own note says; empty where nobody says."""
    status = view.status
    if status is None:
        return ""
    if status.evidence == "cancelled by flock-hpc":
        return "flock-hpc cancel"
    word, _, uid = status.reason.rpartition(" ")
    if word == "by" and uid.isdigit():
        try:
            return f"user {pwd.getpwuid(int(uid)).pw_name}"
        except (KeyError, OverflowError):
            return f"user {uid}"
    return ""


def _facts(view: BatchView, run: Mapping[str, Any], node: str) -> tuple[str, ...]:
    """The evidence, one short sentence each."""
    found = []
    if view.status is not None:
        status = view.status
        told = status.exit_code in ("", "0", "0:0") or "exit" in status.reason
        code = "" if told else f", exit {status.exit_code}"
        ran = f" after {status.elapsed}" if status.elapsed else ""
        where = f" on {node}" if node else ""
        why = f" ({status.reason})" if status.reason and not status.reason.startswith("by ") else ""
        found.append(f"{status.evidence}: {status.state.value}{why}{ran}{where}{code}")
    if text(run, "stopped_by") not in ("", view.state):
        found.append(f"the job says: stopped by {text(run, 'stopped_by')}")
    deaths = items(run, "deaths")
    if deaths:
        what = text(deaths[-1], "what")
        found.append(f"its judge server died {len(deaths)}x, last: {text(deaths[-1], 'cause') or 'unknown'}"
                     + (f" ({what})" if what else ""))
    return tuple(found)
