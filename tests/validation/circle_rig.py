"""`scripts/run.py` as a user starts it, against the stand-ins of API and hub, watched from outside while it runs.

Holds what tests of the whole circle share: files, the workspace, the process, and the processes below it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from atexit import register
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from types import TracebackType

import psutil

from automate.validation.assignments import Assignment
from automate.validation.spool import Spool
from automate.validation.standin import StandIn
from automate.validation.standin.hub import HubStandIn, Repository
from automate.workspace import open_workspace
from tests.rigs.leaks import search_for

ROOT = Path(__file__).resolve().parents[2]
KEY, TOKEN = "flk-circle-3b7e91d04ac258f6", "hf_circle9d20c4e7b16fTOKEN"
BASE, ADAPTER, POLICY = "someone/tiny-base", "trainer/adapter", "trainer/policy"
LORA = {"per_device_eval_batch_size": 1, "use_cpu": True, "any_version": True, "supported_base_models": [BASE]}
_HIDDEN = ("FLOCK_API", "FLOCK_HPC_W", "HF_", "OPENAI_", "TIME_SLEEP", "ASSIGNMENT_LOOKUP")


@cache
def tiny() -> Path:
    """The folder that scripts/make-tiny-lora.py makes: `base`, `adapter`, `full`, `rows.jsonl`; not to be changed."""
    root = Path(mkdtemp(prefix="flock-hpc-circle-"))
    register(shutil.rmtree, root, ignore_errors=True)
    made = subprocess.run([sys.executable, ROOT / "scripts" / "make-tiny-lora.py", root / "made", "--base-name", BASE],
                          env=around(), capture_output=True, text=True, timeout=300)
    assert made.returncode == 0, made.stderr
    return root / "made"


def repositories() -> dict[str, Repository]:
    """The hub's: the tiny base, and its adapter."""
    return {BASE: Repository.of_folder(tiny() / "base"), ADAPTER: Repository.of_folder(tiny() / "adapter")}


def around(**more: str) -> dict[str, str]:
    """This environment without variables of validators, hubs and judges, one thread a process, and `more`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_HIDDEN)}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


@dataclass
class Seen:
    """A process below the command, as it was last seen. `looks`: how often."""

    words: list[str]
    environ: dict[str, str]
    looks: int = 1

    @property
    def module_step(self) -> int:
        """Which step of a module this process does; 0: it is a guard, a check of an input, or something else."""
        if self.words[1:3] != ["-m", "automate.validation.runner"] or "--check" in self.words:
            return 0
        return 2 if self.words[-2:] == ["--step", "2"] else 1


class Watch(threading.Thread):
    """Looks at everything that a command started, by the folder that their variables name, until `over` is set.

    Not by parents: workers of the local executor are no children of the command.
    """

    def __init__(self, pid: int, folder: Path) -> None:
        super().__init__(daemon=True)
        self.pid, self.folder = pid, str(folder)
        self.own = psutil.Process(pid).cmdline()
        self.found: dict[psutil.Process, Seen] = {}
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            for process in psutil.process_iter():
                if process.pid != self.pid:
                    with contextlib.suppress(psutil.Error):
                        self._look(process)

    def _look(self, process: psutil.Process) -> None:
        words, environ = process.cmdline(), process.environ()
        if any(self.folder in text for text in (*words, *environ.values())):
            before = self.found.get(process)
            same = before is not None and before.words == words
            self.found[process] = Seen(words, environ, before.looks + 1 if before is not None and same else 1)

    def seen(self) -> list[Seen]:
        """Each process once it was a program of its own: between fork and exec it looks like the command itself."""
        return [one for one in self.found.values() if one.words and (one.words != self.own or one.looks > 20)]


@dataclass
class Circle:
    """One workspace and one command in it; `with` starts the command and ends it. `words`: its arguments."""

    root: Path
    api: StandIn
    hub: HubStandIn
    words: Sequence[str]
    validation: Mapping[str, object] = field(default_factory=dict)
    configs: Mapping[str, object] = field(default_factory=dict)
    environ: Mapping[str, str] = field(default_factory=dict)

    @property
    def log(self) -> Path:
        return self.root / "run.log"

    @property
    def workspace(self) -> Path:
        return self.root / "w"

    def make(self) -> None:
        """The workspace's files."""
        (self.root / "tmp").mkdir(parents=True)
        (self.workspace / "configs").mkdir(parents=True)
        own = {"base_url": self.api.base_url, "hub_url": self.hub.url, "manager": "current", "min_free_gb": 0,
               "read_timeout": 10, "retries": 1, **self.validation}
        (self.workspace / "flock-hpc.yaml").write_text(json.dumps({"cluster": "local", "validation": own}))
        for module, config in self.configs.items():
            (self.workspace / "configs" / f"{module}.json").write_text(json.dumps(config))

    def __enter__(self) -> Circle:
        self.make()
        env = around(TMPDIR=str(self.root / "tmp"), **self.environ)
        with self.log.open("wb") as out:
            self.process = subprocess.Popen([sys.executable, ROOT / "scripts" / "run.py", *self.words],
                                            cwd=self.workspace, env=env, stdin=subprocess.DEVNULL, stdout=out,
                                            stderr=subprocess.STDOUT)
        self.watch = Watch(self.process.pid, self.root)
        self.watch.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.watch.over.set()
        self.watch.join()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def until(self, met: Callable[[], bool], limit: float = 240) -> None:
        """Wait for something to be so. Fails with the command's log where it ends before, or never comes there."""
        ends = time.monotonic() + limit
        while not met():
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log.read_text()}"
            assert time.monotonic() < ends, f"not so far after {limit} s\n{self.log.read_text()}"
            time.sleep(0.1)

    def all_accepted(self) -> bool:
        """Whether the API has given everything out, and has a report on each."""
        given = list(self.api.assignments.values())
        return not any(self.api.books.left().values()) and all(one.accepted for one in given)

    def end(self) -> int:
        """Tell it to stop as a service manager does; its exit status."""
        self.until(lambda: not any(one.state.outstanding for one in self.spooled().values()), 30)
        self.process.terminate()
        return self.process.wait(60)

    def spooled(self) -> dict[str, Assignment]:
        """The assignments on disk, by id."""
        return {one.id: one for one in Spool(open_workspace(self.workspace).validation).listed()}

    def told(self) -> str:
        """Log of the command and logs of the modules, for a test that fails."""
        logs = sorted((self.workspace / ".flock-hpc" / "validation" / "spool").glob("*/*/logs/*.log"))
        return "\n".join(path.read_text(errors="replace") for path in (self.log, *logs))

    def payload(self, task_id: int, number: int = 0) -> dict[str, float]:
        """What was accepted for the submission `number` of a task."""
        found = [one for one in self.api.assignments.values() if (one.task_id, one.number) == (str(task_id), number)]
        assert [(one.status, one.accepted) for one in found] == [("completed", 1)], self.told()
        assert found[0].payloads[0] is not None
        return found[0].payloads[0]

    def leaks(self, *secrets: str) -> list[str]:
        """Where one of the secrets stands: in a file, or around a process below the command."""
        found = [f"{one.path} ({one.form})" for secret in secrets for one in search_for(secret, [self.root])]
        for one in self.watch.seen():
            text = "\0".join([*one.words, *(f"{name}={value}" for name, value in one.environ.items())])
            found += [f"around {one.words[:4]}" for secret in secrets if secret in text]
        return found

    def modules(self, step: int = 1) -> list[Seen]:
        """The processes of modules that were seen."""
        return [one for one in self.watch.seen() if one.module_step == step]


def lora_words(*tasks: int, debug: bool = False) -> list[str]:
    """The arguments as the specification writes them."""
    return ["lora", "--task_ids", ",".join(map(str, tasks)), "--flock-api-key", KEY, "--hf-token", TOKEN,
            "--time-sleep", "1", "--assignment-lookup-interval", "1", *(["--debug"] if debug else [])]
