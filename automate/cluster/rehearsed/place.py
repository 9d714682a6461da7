"""A rehearsed cluster as the local runner's place: virtual nodes, and the scenario's events when their time comes.

Ends only processes of jobs that its runner started, and writes only into its own queue's folder."""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from automate.cluster.local.executor import LocalQueue
from automate.cluster.local.jobs import Running
from automate.cluster.local.place import Place
from automate.cluster.local.schedule import Job, Node
from automate.cluster.queue import JobState
from automate.cluster.rehearsed.cluster import ECC, Rehearsal, State, read_rehearsal, read_state
from automate.cluster.rehearsed.events import Timeline
from automate.cluster.rehearsed.scenario import Event
from automate.errors import ConfigError
from automate.journal import write_json
from automate.processes import descendants

SHORTEST = 2.0
"""Real seconds that a job gets to end, however time is scaled: its own work is not scaled."""
_SERVER = b"automate.serving.rehearsal"
_BATCH = re.compile(r"judge-batch-(\d+)-")


def batch_of(job: Job) -> int | None:
    """The batch that a job plays, by its name or its place in the array."""
    match = _BATCH.match(job["name"])
    if match:
        return int(match[1])
    return None if job["index"] is None else int(job["index"])


def servers_below(pid: int) -> list[int]:
    """Processes below a job that serve a rehearsal judge."""
    found = []
    for one in descendants(pid):
        with contextlib.suppress(OSError):
            if _SERVER in Path(f"/proc/{one}/cmdline").read_bytes().split(b"\0"):
                found.append(one)
    return found


class LineCounter:
    """Counts whole lines of the files below a folder, reading each byte once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines = 0
        self._read: dict[Path, int] = {}

    def count(self) -> int:
        """Lines written so far."""
        for path in self.folder.rglob("*.jsonl"):
            with contextlib.suppress(OSError), path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
                self.lines += data.count(b"\n")
                self._read[path] = file.tell()
        return self.lines


class RehearsedCluster(Place):
    """Virtual nodes under a scenario. `queue` holds its files."""

    own_machine = False
    tick = 0.1

    def __init__(self, rehearsal: Rehearsal, queue: LocalQueue, state: State | None = None) -> None:
        scenario = rehearsal.scenario
        self.rehearsal, self.queue, self.scenario = rehearsal, queue, scenario
        self.scale = scenario.scale
        self.queue_wait = scenario.queue_wait / self.scale
        self.requeue_delay = scenario.requeue_delay / self.scale
        self.kill_wait = max(scenario.kill_wait / self.scale, SHORTEST)
        self.grace = max(scenario.grace / self.scale, SHORTEST)
        self.state = state or State(began=time.time())
        fired = {int(index): count for index, count in self.state.fired.items()}
        self.timeline = Timeline(scenario.events, self.scale, rehearsal.games, fired)
        self._games = LineCounter(rehearsal.journal)
        self._counts = any(event.after_games is not None for event in scenario.events)
        self._published: object = None
        for name in scenario.nodes.all:
            self.state.nodes.setdefault(name, {"up": True, "back": None, "fault": None, "fault_until": None})
        self._publish(time.time())

    @classmethod
    def of(cls, queue: LocalQueue) -> RehearsedCluster:
        """The cluster whose scenario lies in the queue's folder. Raises ConfigError."""
        rehearsal = read_rehearsal(queue.rehearsal_file)
        if rehearsal is None:
            raise ConfigError("no scenario to rehearse", where=str(queue.rehearsal_file))
        return cls(rehearsal, queue, read_state(queue.cluster_file))

    @property
    def nodes(self) -> Sequence[Node]:
        slots = self.scenario.nodes.slots
        return [Node(name, slots, bool(node["up"])) for name, node in self.state.nodes.items()]

    def environ(self, node: str) -> dict[str, str]:
        """Where the rehearsal judge finds how long it loads, and whether it dies of this node."""
        del node
        return {"FLOCK_HPC_REHEARSED_CLUSTER": str(self.queue.cluster_file)}

    def avoid(self, node: str) -> list[str]:
        """A job whose servers died of a node goes on elsewhere, as a successor would on Slurm."""
        return [node] if self.state.nodes.get(node, {}).get("fault") else []

    def stays_open(self, *, default: bool = False) -> bool:
        """As long as the command that rehearses is there and has not closed the queue."""
        del default
        return self.rehearsal.watched and self.queue.rehearsal_file.exists()

    def step(self, running: Sequence[Running], queue: LocalQueue) -> None:
        """Let the events happen whose time has come, and end those that are over."""
        now = time.time()
        played = self._games.count() if self._counts else 0
        for index, event in self.timeline.due(now - self.state.began, played):
            chance = random.Random(f"{index} {self.timeline.fired.get(index, 0)}")
            words = self._happens[event.kind](self, event, [e for e in running if e.ending is None], chance)
            if words is None:
                self.timeline.back(index)
            else:
                self.state.struck[str(index)] = self.state.struck.get(str(index), 0) + 1
                self._log(now, words)
        for name, node in self.state.nodes.items():
            if node["back"] is not None and now >= node["back"]:
                node.update(up=True, back=None)
                self._log(now, f"{name} is back")
            if node["fault_until"] is not None and now >= node["fault_until"]:
                node.update(fault=None, fault_until=None)
                self._log(now, f"{name} is mended")
        self._publish(now)

    def _log(self, now: float, words: str) -> None:
        self.state.log.append([round((now - self.state.began) * self.scale, 1), words])

    def _publish(self, now: float) -> None:
        """Write down what judges, submission and queue have to know, if it has changed."""
        slow = self.state.slow if now < self.state.slow_until else 1.0
        for name, node in self.state.nodes.items():
            node["load_seconds"] = self.scenario.load_of(name) * slow / self.scale
        self.state.fired = {str(index): count for index, count in self.timeline.fired.items()}
        data = {name: getattr(self.state, name) for name in State.__dataclass_fields__}
        if repr(data) != self._published:
            self._published = repr(data)
            write_json(self.queue.cluster_file, data)

    # --- events: what happened in words, or None where there was nothing to strike yet ------------------
    def _until(self, event: Event) -> float:
        return float("inf") if event.seconds is None else time.time() + event.seconds / self.scale

    def _target(self, event: Event, running: Sequence[Running], chance: random.Random) -> Running | None:
        fit = [entry for entry in running if event.node in (None, entry.job["host"])
               and event.batch in (None, batch_of(entry.job))]
        return chance.choice(fit) if fit else None

    def _node(self, event: Event, chance: random.Random) -> str | None:
        up = [name for name, node in self.state.nodes.items() if node["up"] and not node["fault"]]
        return event.node or (chance.choice(up) if up else None)

    def _kill_server(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        serving = [entry for entry in running if servers_below(entry.process.pid)]
        entry = self._target(event, serving, chance)
        if entry is None:
            return None
        for pid in servers_below(entry.process.pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return f"the judge's server of {_name(entry)} is killed"

    def _kill_engine(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        entry = self._target(event, running, chance)
        if entry is None:
            return None
        with contextlib.suppress(OSError):
            os.kill(entry.process.pid, signal.SIGKILL)
        return f"the process of {_name(entry)} is killed"

    def _kill_job(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        entry = self._target(event, running, chance)
        if entry is None:
            return None
        entry.kill()
        return f"{_name(entry)} is killed with all that runs in it"

    def _preempt(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        entry = self._target(event, running, chance)
        if entry is None:
            return None
        entry.end(JobState.PREEMPTED, self.grace, requeue=True)
        return f"{_name(entry)} is preempted"

    def _node_down(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        name = self._node(event, chance)
        if name is None:
            return None
        back = self._until(event)
        self.state.nodes[name].update(up=False, back=None if back == float("inf") else back)
        struck = [entry for entry in running if entry.job["host"] == name]
        for entry in struck:
            entry.end(JobState.NODE_FAIL, 0.0, requeue=True)
        return f"{name} fails" + (f", and {', '.join(map(_name, struck))} with it" if struck else "")

    def _node_up(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        self.state.nodes[str(event.node)].update(up=True, back=None)
        return f"{event.node} is back"

    def _bad_node(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running
        name = self._node(event, chance)
        if name is None:
            return None
        until = self._until(event)
        self.state.nodes[name].update(fault=ECC, fault_until=None if until == float("inf") else until)
        return f"the GPU of {name} breaks: servers that load there die"

    def _cancel(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        active = [job for job in self.queue.jobs() if JobState(job["state"]).active and batch_of(job) == event.batch]
        for job in active:
            self.queue.cancel_file(job["job"]).touch()
        return f"batch {event.batch} is cancelled" if active else None

    def _refuse(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        self.state.refuse_until = self._until(event)
        return f"no job is taken for {event.seconds:g} s"

    def _limit(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        self.state.submit_limit, self.state.limit_until = event.limit, min(self._until(event), 1e12)
        return f"no more than {event.limit} jobs may wait or run"

    def _slow(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        self.state.slow, self.state.slow_until = event.factor or 1.0, min(self._until(event), 1e12)
        return f"loading takes {event.factor:g} times as long"

    def _silent(self, event: Event, running: Sequence[Running], chance: random.Random) -> str | None:
        del running, chance
        self.state.silent_until = self._until(event)
        return f"the queue does not answer for {event.seconds:g} s"

    _happens: dict[str, Callable[..., str | None]] = {  # noqa: RUF012
        "kill_server": _kill_server, "kill_engine": _kill_engine, "kill_job": _kill_job, "preempt": _preempt,
        "node_down": _node_down, "node_up": _node_up, "bad_node": _bad_node, "cancel": _cancel,
        "refuse_submits": _refuse, "submit_limit": _limit, "slow_disk": _slow, "queue_silent": _silent,
    }


def _name(entry: Running) -> str:
    """A job in the words of the report."""
    batch = batch_of(entry.job)
    return f"batch {batch} ({entry.job['job']} on {entry.job['host']})" if batch else str(entry.job["job"])
