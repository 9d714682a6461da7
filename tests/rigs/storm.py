"""A storm over a campaign on a test cluster: whatever there is to kill is killed at random moments.

Only kills and mends; what is left of the campaign afterwards is for others to judge."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.e2e.support import command, environment, kill, victims
from tests.rigs.faults import heal, set_down
from tests.rigs.slurm import NODES, SlurmRig

Say = Callable[[str], None]
MIX = {"job cancelled": 8, "job killed": 10, "job requeued": 6, "engine": 20, "guard": 10, "server": 18,
       "server's tree": 10, "node set down": 3, "node dead": 4, "slurmd": 5, "slurmctld": 6}
"""What is killed, and how often one of them next to the others."""


class Driver:
    """`judge --submit --wait`, started again whenever it ends with games due."""

    def __init__(self, rig: SlurmRig, root: Path, log: Path, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.root, self.log, self.starts = root, log, 0
        self._env = environment({**rig.env, **(env or {})})
        self._args = args
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        line = command("judge", "--all", "--submit", "--wait", "--executor", "slurm", *self._args)
        with self.log.open("ab") as out:
            out.write(f"--- start {self.starts} at {time.strftime('%H:%M:%S')}\n".encode())
            out.flush()
            return subprocess.Popen(line, cwd=self.root, env=self._env, stdin=subprocess.DEVNULL, stdout=out,
                                    stderr=subprocess.STDOUT)

    def ended(self) -> bool:
        """Whether the campaign is complete; a command that ended before that is started again."""
        status = self.process.poll()
        if status:
            time.sleep(1)
            self.process = self._start()
        return status == 0

    def end(self) -> None:
        """Kill the command; its jobs go on."""
        self.process.kill()
        self.process.wait()


@dataclass
class Storm:
    """Kills over one campaign. `rest`: seconds for which a dead daemon stays dead, at most."""

    rig: SlurmRig
    root: Path
    chance: random.Random
    say: Say
    rest: float = 15.0
    mix: Mapping[str, int] = field(default_factory=lambda: MIX)
    killed: Counter[str] = field(default_factory=Counter)
    _mend: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def blow(self, kills: int, pause: tuple[float, float], over: Callable[[], bool]) -> None:
        """Kill so many, with a pause between two of them, or until it is over; then mend everything."""
        order = self._order(kills)
        try:
            while order and not over():
                self._wait(self.chance.uniform(*pause), over)
                kind = next((kind for kind in order if not over() and self._try(kind)), None)
                if kind is not None:
                    order.remove(kind)
        finally:
            for _, mend in self._mend:
                mend()
            self._mend.clear()
            heal(self.rig)

    def strike_command(self, driver: Driver) -> None:
        """Kill `judge --submit --wait` itself, which counts as well."""
        if driver.process.poll() is None:
            driver.process.kill()
            self._killed("the command", f"start {driver.starts}")

    def _killed(self, kind: str, what: str) -> None:
        self.killed[kind] += 1
        self.say(f"{self.killed.total():>3}  {kind}: {what}")

    def _order(self, kills: int) -> list[str]:
        """What to kill in which order: each kind at least once where there is room, the rest by the mix."""
        names = list(self.mix)
        order = [*names[:kills], *self.chance.choices(names, list(self.mix.values()), k=max(0, kills - len(names)))]
        self.chance.shuffle(order)
        return order

    def _wait(self, seconds: float, over: Callable[[], bool]) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not over():
            for due, mend in [*self._mend]:
                if due <= time.monotonic():
                    mend()
                    self._mend.remove((due, mend))
            time.sleep(0.2)

    def _later(self, mend: Callable[[], None]) -> None:
        self._mend.append((time.monotonic() + self.chance.uniform(1, self.rest), mend))

    def _try(self, kind: str) -> bool:
        """Kill one of a kind; False where there is none now."""
        try:
            what = self._strike(kind)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            self.say(f"{kind}: not now ({str(error)[:80]})")
            return False
        if what is None:
            return False
        self._killed(kind, what)
        return True

    def _strike(self, kind: str) -> str | None:
        match kind:
            case "job cancelled" | "job killed" | "job requeued":
                return self._job(kind)
            case "engine" | "guard" | "server":
                return self._process(kind)
            case "server's tree":
                return self._tree()
            case "slurmctld":
                return self._controller()
            case _:
                return self._node(kind)

    def _job(self, kind: str) -> str | None:
        if not self.rig.ctld_started:
            return None
        running = self.rig.run("squeue", "--me", "-h", "-r", "-t", "R", "-o", "%i").stdout.split()
        if not running:
            return None
        job = self.chance.choice(sorted(running))
        how = {"job cancelled": ["scancel", job], "job killed": ["scancel", "--full", "--signal=KILL", job],
               "job requeued": ["scontrol", "requeue", job]}[kind]
        self.rig.run(*how)
        return job

    def _process(self, part: str) -> str | None:
        found = victims(self.root).get(part, [])
        self.chance.shuffle(found)
        return next((str(process.pid) for process in found if kill(process)), None)

    def _tree(self) -> str | None:
        """A guard and everything below it, at once."""
        found = victims(self.root).get("guard", [])
        if not found:
            return None
        guard = self.chance.choice(found)
        with contextlib.suppress(psutil.NoSuchProcess):
            all_of = [guard, *guard.children(recursive=True)]
            return " ".join(str(process.pid) for process in all_of if kill(process)) or None
        return None

    def _node(self, kind: str) -> str | None:
        if not self.rig.ctld_started:
            return None
        up = sorted(set(self.rig.slurmd_pids) & set(NODES))
        if not up:
            return None
        node = self.chance.choice(up)
        if kind == "node set down":
            set_down(self.rig, node)
            return node
        self.rig.kill_slurmd(node, jobs=kind == "node dead")
        self._later(lambda: self.rig.start_slurmd(node))
        return node

    def _controller(self) -> str | None:
        if not self.rig.ctld_started:
            return None
        crash = self.chance.random() < 0.5
        self.rig.stop_ctld(crash=crash)
        self._later(self.rig.start_ctld)
        return "SIGKILL" if crash else "SIGTERM"
