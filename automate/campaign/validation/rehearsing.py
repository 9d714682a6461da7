"""`validation rehearse`: fetch, run and submit against a stand-in of API and hub that misbehaves; its books at the end.

Needs no account and no network; its numbers mean nothing. Never touches the workspace's own spool."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from automate.campaign.validation.circle import Circle, Given
from automate.campaign.validation.running import make_loop, run_fetched, submit_finished
from automate.journal import fresh_name, replace_file
from automate.validation.assignments import State
from automate.validation.standin import StandIn
from automate.validation.standin.hub import HubStandIn, Repository
from automate.validation.standin.plan import Plan, TaskPlan
from automate.workspace import SETTINGS_FILE, Workspace, open_workspace

Say = Callable[[str], None]
REPO = "trainer/example-model"
TASKS = (101, 102, 103)
TURNS = 200
"""Turns after which a rehearsal is over, whatever is left."""
OPEN_STATES = tuple(state for state in State if state.outstanding)


@dataclass(frozen=True)
class Tally:
    """What came out: assignments by state, how many the stand-in accepted, and what must not be."""

    states: Mapping[str, int]
    accepted: int
    wrong: tuple[str, ...]
    persons: int = 0
    anew: int = 0


def plan_of(assignments: int, seed: int, faults: bool) -> Plan:
    """Three tasks with `assignments` submissions together; every third of the calls meets a fault."""
    shares = [assignments // 3 + (number < assignments % 3) for number in range(3)]
    tasks = tuple(TaskPlan(task, submissions=share, repo=REPO, metrics=("score",))
                  for task, share in zip(TASKS, shares, strict=True))
    return Plan(tasks=tasks, seed=seed, rate=0.2 if faults else 0.0, deal=faults,
                slow=0.3)


def settings_text(workspace: Workspace, base_url: str, hub_url: str) -> str:
    """flock-hpc.yaml of a rehearsal: the cluster's part as in the workspace, short waits. JSON is YAML."""
    own = workspace.settings
    slurm = {**own.slurm.model_dump(exclude_defaults=True), "gpus": 0, "time": "00:10:00", "mem": "1G",
             "cpus_per_task": 1}
    return json.dumps({
        "cluster": own.cluster, "slurm": slurm, "limits": {"claim_stale": own.limits.claim_stale},
        "validation": {"base_url": base_url, "hub_url": hub_url, "manager": "current", "lookup_interval": 0,
                       "time_sleep": 1, "max_outstanding": 1000, "per_task": own.validation.per_task,
                       "local_parallel": 2, "min_free_gb": 0, "read_timeout": 5, "retries": 2}}, indent=2) + "\n"


def rehearse_circle(workspace: Workspace, *, assignments: int, seed: int, faults: bool, executor: str | None,
                    say: Say) -> bool:
    """Play the whole circle; whether every assignment ended as it must. The folder stays, to look around in."""
    root = workspace.validation.rehearsal / fresh_name()
    key = f"rehearsal-{secrets.token_hex(12)}"
    model = Repository({"config.json": b"{}", "model.safetensors": b"not a real model"})
    plan = plan_of(assignments, seed, faults)
    with StandIn(Plan(**{**vars(plan), "key": key})) as api, HubStandIn({REPO: model}) as hub:
        replace_file(root / SETTINGS_FILE, settings_text(workspace, api.base_url, hub.url).encode())
        circle = Circle(open_workspace(root), say, given=Given(key, None), executor=executor or "local")
        say(f"{assignments} submissions of {len(TASKS)} tasks, "
            + (f"faults by seed {seed}" if faults else "no faults") + f"; in {root}")
        play(circle, api)
        result = tally(circle, api)
    show(result, root, say)
    return not result.wrong


def play(circle: Circle, api: StandIn) -> None:
    """Fetch, run, submit, until nothing is left to do or to be had."""
    loop = make_loop(circle, "example", [str(task) for task in TASKS], most=None)
    for _ in range(TURNS):
        loop.fetch()
        if any(one.ready and one.handed is None for one in circle.spool.listed(State.FETCHED)):
            run_fetched(circle, ids=None, most=None, submit=True, wait=True)
        if circle.spool.count(State.DONE):
            submit_finished(circle)
        if not any(api.books.left().values()) and not circle.spool.count(*OPEN_STATES):
            return
        loop.stop.wait(1.0, loop.sleep, loop.clock)


def tally(circle: Circle, api: StandIn) -> Tally:
    """The spool next to the stand-in's books."""
    ours = {one.id: one for one in circle.spool.listed()}
    wrong = [*api.violations, *(f"task {task}: {left} submissions were never fetched"
                                for task, left in api.books.left().items() if left)]
    for record in api.assignments.values():
        mine = ours.get(record.id)
        if record.accepted > 1:
            wrong.append(f"assignment {record.id} was accepted {record.accepted} times")
        if record.delivered and mine is None and record.status != "expired":
            wrong.append(f"assignment {record.id} was delivered and is not in the spool")
        if mine is not None and mine.state is State.FAILED and record.trouble.expected != "failed":
            wrong.append(f"assignment {record.id} was reported as failed for no fault of its own")
        if mine is not None and mine.state.outstanding:
            wrong.append(f"assignment {record.id} is still {mine.state}")
    accepted = sum(record.accepted for record in api.assignments.values())
    expected = Counter(record.trouble.expected for record in api.assignments.values() if record.delivered)
    return Tally(Counter(one.state.value for one in ours.values()), accepted, tuple(wrong), expected["person"],
                 sum(record.status == "expired" for record in api.assignments.values()))


def show(result: Tally, root: Path, say: Say) -> None:
    """What came out, in lines."""
    say("")
    if result.persons:
        say(f"{result.persons} were sent with something amiss that only a person can mend, as the stand-in planned")
    if result.anew:
        say(f"{result.anew} had their lease ended by the stand-in, and came anew under another id")
    say(", ".join(f"{result.states[state]} {state}" for state in State if result.states.get(state)))
    say(f"the stand-in accepted {result.accepted} reports, none twice" if not result.wrong else
        f"{len(result.wrong)} things went wrong:")
    for line in result.wrong:
        say(f"  {line}")
    say(f"look around: flock-hpc validation status --workspace {root}")
