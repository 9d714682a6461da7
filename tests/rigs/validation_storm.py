"""A storm over Flock validation: a stand-in of the API that misbehaves by a seeded schedule, real array jobs, and
SIGKILL at random for loop, jobs and modules. Only plays it; what must hold afterwards is in `wrongs`."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from automate.validation.assignments import Assignment, State
from automate.validation.spool import Spool
from automate.validation.standin import StandIn
from automate.validation.standin.hub import HubStandIn, Repository
from automate.validation.standin.plan import Plan, TaskPlan
from automate.workspace import open_workspace
from tests.rigs.leaks import Leak, search_for
from tests.rigs.slurm import SlurmRig

REPO, TASKS = "trainer/tiny", (11, 22, 33)
MODULE = '''
"""A light module that takes its time: the mean of a column, or the submission's own fault where it says so."""
import random, time
from automate.validation.modules.base import BaseInputData, SubmissionFault
from automate.validation.modules.example import ExampleModule

class Input(BaseInputData):
    validation_set_url: str
    fault: str | None = None

class Light(ExampleModule):
    input_data_schema = Input
    def validate(self, data, **kwargs):
        time.sleep(random.uniform(0.2, 1.5))
        if data.fault:
            raise SubmissionFault("it says so itself", cause="says-so")
        return super().validate(data, **kwargs)

MODULE = Light
'''


@dataclass
class ValidationStorm:
    """One storm of `assignments` over three tasks. `key`, `token`: secrets that must be found nowhere afterwards."""

    rig: SlurmRig
    root: Path
    assignments: int
    seed: int = 0
    rate: float = 0.2
    key: str = "flk-storm-5d1f0c77a9e24b63"
    token: str = "hf_storm8842aa17c05fTOKEN"
    starts: int = 0
    killed: Counter[str] = field(default_factory=Counter)
    leaks: list[str] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        shares = [self.assignments // 3 + (number < self.assignments % 3) for number in range(3)]
        self.plan = Plan(key=self.key, seed=self.seed, rate=self.rate, deal=True, lease=180, slow=0.3, tasks=tuple(
            TaskPlan(task, submissions=share, repo=REPO, metrics=("score",))
            for task, share in zip(TASKS, shares, strict=True)))
        self.log = self.root / "loop.log"

    def make(self, api: StandIn, hub: HubStandIn) -> None:
        """The workspace."""
        (self.root / "mods").mkdir(parents=True)
        (self.root / "mods" / "light.py").write_text(MODULE)
        (self.root / "flock-hpc.yaml").write_text(json.dumps({
            "cluster": "generic", "executor": "slurm", "limits": {"claim_stale": 3},
            "slurm": {"mem": "100M", "cpus_per_task": 1, "gpus": 0, "time": "00:05:00"},
            "validation": {"base_url": api.base_url, "hub_url": hub.url, "manager": "current", "attempts": 5,
                           "lookup_interval": 0, "time_sleep": 1, "max_outstanding": 24, "min_free_gb": 0,
                           "read_timeout": 5, "retries": 2, "module_folders": ["mods"]}}))
        self.spool = Spool(open_workspace(self.root).validation)

    def loop(self) -> subprocess.Popen[bytes]:
        """Start the loop, with the keys in its environment as a user has them."""
        self.starts += 1
        command = [sys.executable, "-m", "automate", "validation", "loop", "light", "--debug", "--task_ids",
                   ",".join(map(str, TASKS))]
        env = {**self.rig.environment(), "FLOCK_API_KEY": self.key, "HF_TOKEN": self.token}
        with self.log.open("ab") as out:
            return subprocess.Popen(command, cwd=self.root, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT)

    # --- what is killed -------------------------------------------------------------------------
    def workers(self) -> Iterator[tuple[str, psutil.Process]]:
        """Processes of this workspace's jobs: the module, or the array task around it."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                words = process.cmdline()
                if not any(str(self.root) in word for word in words):
                    continue
                if "automate.validation.runner" in words:
                    yield "module", process
                elif "submitit.core._submit" in words:
                    yield "array task", process

    def kill_one(self, loop: subprocess.Popen[bytes]) -> None:
        """SIGKILL the loop, a module or an array task; look into a worker's environment before."""
        found = list(self.workers())
        for name, process in found:
            with contextlib.suppress(psutil.Error):
                around = " ".join(f"{one}={value}" for one, value in process.environ().items()) + " ".join(
                    process.cmdline())
                self.leaks += [f"{name}: {secret[:4]}..." for secret in (self.key, self.token) if secret in around]
        if self.dice.random() < 0.2:
            loop.kill()
            loop.wait()
            self.killed["loop"] += 1
            return
        if not found:
            return
        name, process = self.dice.choice(found)
        with contextlib.suppress(psutil.Error):
            process.kill()
            self.killed[name] += 1

    # --- the whole of it -------------------------------------------------------------------------
    def blow(self, kills: int, pause: tuple[float, float], limit: float,
             say: Callable[[str], None] = lambda line: None) -> tuple[dict[str, str], list[str]]:
        """Play it to its end; the state of each assignment, and what is wrong. Ends after `limit` seconds at most."""
        model = Repository({"config.json": b"{}", "model.safetensors": b"not a real model"})
        with StandIn(self.plan) as api, HubStandIn({REPO: model}, tokens=[self.token]) as hub:
            self.make(api, hub)
            loop, until = self.loop(), time.monotonic() + limit
            try:
                while not self.over(api) and time.monotonic() < until:
                    time.sleep(self.dice.uniform(*pause))
                    if self.killed.total() < kills:
                        self.kill_one(loop)
                    if loop.poll() is not None:
                        loop = self.loop()
                    say(f"{self.spool.count(State.SUBMITTED)} submitted, {self.killed.total()} killed")
            finally:
                loop.terminate()
                loop.wait(60)
            self.causes = Counter(_cause(one) for one in self.spool.listed(State.GIVEN_UP))
            return {one.id: one.state.value for one in self.spool.listed()}, self.wrongs(api)

    def over(self, api: StandIn) -> bool:
        """Whether nothing is left to fetch, to run or to report."""
        open_states = [state for state in State if state.outstanding]
        return not any(api.books.left().values()) and not self.spool.count(*open_states)

    def wrongs(self, api: StandIn) -> list[str]:
        """Whatever must not be: the spool next to the stand-in's books, and secrets that were found."""
        ours = {one.id: one for one in self.spool.listed()}
        wrong = [*api.violations, *self.leaks]
        wrong += [f"left at the stand-in: {task}: {count}" for task, count in api.books.left().items() if count]
        for record in api.assignments.values():
            mine = ours.get(record.id)
            if mine is None:
                if record.delivered and record.status != "expired":  # its loop was killed before it could keep it
                    wrong.append(f"{record.id}: delivered, and not in the spool")
                continue
            wrong += [f"{record.id}: {what}" for what in _wrong(mine, record.accepted, record.status,
                                                                record.trouble.expected)]
        leaks: list[Leak] = [leak for secret in (self.key, self.token) for leak in search_for(secret, [self.root])]
        return wrong + [f"a secret in {leak.path}" for leak in leaks]


def _cause(one: Assignment) -> str:
    """Why one was given up, in a word."""
    return one.cause or next((event.cause for event in reversed(one.history) if event.cause), "?")


def _wrong(mine: Assignment, accepted: int, status: str, expected: str) -> list[str]:
    """What is wrong with one assignment."""
    found = []
    if accepted > 1:
        found.append(f"accepted {accepted} times")
    if mine.state.outstanding:
        found.append(f"still {mine.state}")
    if mine.state is State.SUBMITTED and status != "completed" and not mine.unconfirmed:
        found.append(f"submitted here, {status} there")
    if (mine.state is State.FAILED or status == "failed") and expected != "failed":
        found.append("marked as failed for no fault of its own")
    if mine.state is State.GIVEN_UP and accepted:
        found.append("given up here, accepted there")
    if mine.state is State.GIVEN_UP and not (mine.cause or mine.problem or mine.history):
        found.append("given up without a reason")
    return found
