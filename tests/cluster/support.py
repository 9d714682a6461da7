"""What the tests with a real Slurm share: campaigns that go on in the background, and looks into Slurm's books."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.support import (
    BENCH,
    EXAMPLE_BASELINE,
    EXAMPLES,
    Key,
    assert_complete,
    assert_nothing_runs,
    bench_file,
    change_settings,
    command,
    environment,
    flock,
    games_of,
    journal,
    judge_settings,
    make_workspace,
    read_answers,
    read_questions,
    read_rows,
    rows_file,
    said,
    verdicts_of,
)
from tests.rigs.slurm import SlurmRig

ASKED = {"mem": "100M", "cpus_per_task": 1, "gpus": 0}
LIMITS = {"claim_stale": 1, "poll": 0.5, "resubmits": 3}


def in_queue(rig: SlurmRig, root: Path) -> dict[str, str]:
    """Jobs of a workspace that wait or run: state by id."""
    plans = [json.loads(path.read_text()) for path in (root / ".flock-hpc" / "plans").glob("*.json")]
    tags = tuple(plan["tag"] for plan in plans)
    lines = rig.run("squeue", "--me", "-h", "-r", "-o", "%i|%T|%j").stdout.split("\n")[:-1]
    found = [line.split("|") for line in lines]
    return {job: state for job, state, name in found if any(tag in name for tag in tags)}


def submissions(root: Path) -> list[dict[str, Any]]:
    """What a workspace knows of its own submissions, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((root / ".flock-hpc" / "submissions").glob("*.json"))]


def runs(root: Path) -> list[dict[str, Any]]:
    """What each started job of a workspace says of itself, oldest first."""
    found = [json.loads(path.read_text()) for path in (root / ".flock-hpc" / "runs").glob("*.json")]
    return sorted(found, key=lambda run: float(run["started"]))


def accounted(rig: SlurmRig, job: str) -> list[str]:
    """The state of each start of a job, oldest first, as accounting has it."""
    asked = ("sacct", "-X", "-n", "-P", "--duplicates", "-j", job, "-o", "State")
    return [line.split()[0] for line in rig.run(*asked).stdout.split("\n")[:-1]]


def played(root: Path, models: Sequence[str] = EXAMPLES) -> int:
    """How many records the models' journals hold."""
    return sum(len(journal(root, model)) for model in models)


def assert_played(root: Path, games: list[Key], models: Sequence[str] = EXAMPLES) -> None:
    """All games are there, each once, in upstream's rows and in the journal; `games` are those of calm times."""
    questions, theirs = read_questions(root), read_answers(root, EXAMPLE_BASELINE)
    for model in models:
        assert_complete(read_rows(rows_file(root, model)), questions, theirs=theirs, ours=read_answers(root, model))
    assert games_of(root, models) == verdicts_of(root, models) == games


def copy_models(root: Path, copies: int) -> tuple[str, ...]:
    """Add each of the example's models `copies` times under other names; the names of all."""
    names = [f"{model}-copy{copy}" if copy else model for copy in range(copies + 1) for model in EXAMPLES]
    for name in names:
        source = bench_file(root, "model_answer", f"{name.partition('-copy')[0]}.jsonl")
        if not bench_file(root, "model_answer", f"{name}.jsonl").exists():
            shutil.copyfile(source, bench_file(root, "model_answer", f"{name}.jsonl"))
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(names) + "\n")
    file = root / "arena-hard-auto" / "config" / "api_config.yaml"
    known = yaml.safe_load(file.read_text())
    file.write_text(yaml.safe_dump({**known, **{name: known[name.partition("-copy")[0]] for name in names}}))
    return tuple(names)


def copied(games: Sequence[Key], models: Sequence[str]) -> list[Key]:
    """The games of copied models, from those of the example's."""
    return sorted((model, uid, order, label) for model in models
                  for name, uid, order, label in games if name == model.partition("-copy")[0])


class Campaign:
    """A workspace on a real Slurm, and `judge --submit --wait` over it in the background."""

    def __init__(self, rig: SlurmRig, root: Path, *args: str, env: Mapping[str, str] | None = None) -> None:
        self.rig, self.root, self.args = rig, root, args
        self.env = {**rig.env, **(env or {})}
        self.log = root.with_suffix(".log")
        self.process: subprocess.Popen[bytes] | None = None

    def follow(self, *args: str) -> None:
        """Start the command."""
        line = command("judge", "--all", "--submit", "--wait", "--executor", "slurm", *self.args, *args)
        with self.log.open("ab") as out:
            self.process = subprocess.Popen(line, cwd=self.root, env=environment(self.env), stdout=out,
                                            stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT)

    @property
    def text(self) -> str:
        """What the command has said so far, on one line."""
        return " ".join(self.log.read_text().split())

    def ended(self, timeout: float = 300) -> int:
        """Wait for the command's end; its exit status."""
        assert self.process is not None
        return self.process.wait(timeout)

    def finish(self, games: list[Key], models: Sequence[str] = EXAMPLES) -> None:
        """Wait for the end of all; everything must be there once, and nothing may be left."""
        assert self.ended() == 0, self.log.read_text()
        assert_played(self.root, games, models)
        assert_nothing_runs(self.root)

    def flock(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        """Run another command in the workspace to its end."""
        return flock(*args, cwd=self.root, env={**self.env, **(env or {})})

    def picture(self, env: Mapping[str, str] | None = None) -> dict[str, Any]:
        """What `monitor --json` says."""
        done = self.flock("monitor", "--json", env=env)
        assert done.returncode == 0, done.stdout + done.stderr
        picture: dict[str, Any] = json.loads(done.stdout)
        return picture

    def close(self) -> None:
        """End the command and its jobs."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.flock("cancel")


@contextlib.contextmanager
def campaign(rig: SlurmRig, root: Path, *args: str, latency: float = 0.5, concurrency: int = 2,
             limits: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None,
             **slurm: Any) -> Iterator[Campaign]:
    """A campaign over the example with a slow judge; its jobs are cancelled in the end, where any are left."""
    make_workspace(root, cluster="generic", limits={**LIMITS, **(limits or {})},
                   slurm={**ASKED, "time": "00:10:00", **slurm})
    judge_settings(root, rehearsal={"latency": latency}, concurrency=concurrency)
    one = Campaign(rig, root, *args, env=env)
    try:
        yield one
    finally:
        one.close()


__all__ = ["BENCH", "Campaign", "accounted", "assert_played", "campaign", "change_settings", "copied", "copy_models",
           "in_queue", "played", "runs", "said", "submissions"]
