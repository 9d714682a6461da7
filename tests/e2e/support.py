"""What the campaign tests share: workspaces with real or bundled data, the command line, and readers of its files.

Reads what a campaign wrote with plain JSON, so that the package's own readers are not their own witnesses."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

PROJECT = Path(__file__).resolve().parents[2]
BENCH = "arena-hard-v2.0"
JUDGE = "neuralmagic-llama3.1-70b-instruct-fp8-rehearsal"
BASELINE = "llama3.1-8b-instruct"
TULU = tuple(f"tulu3-8b-rank64-alpha1e5-001-step{step}" for step in (6000, 12000, 48000))
EXAMPLE_BASELINE = "example-baseline"
EXAMPLES = ("example-step1000", "example-step2000", "example-final")
LABELS = ("A>>B", "A>B", "A=B", "B>A", "B>>A")
ACCEPTED = {*LABELS, "B=A", "A<B", "A<<B", "B<A", "B<<A"}
ROW_KEYS = ["uid", "category", "judge", "model", "baseline", "games"]
GAME_KEYS = ["score", "judgment", "prompt"]
SLURM = {"mem": "100M", "cpus_per_task": 1, "time": "00:10:00", "gpus": 0}

Row = dict[str, Any]
Key = tuple[str, str, int, str]
"""(model, uid, order, label)"""


def real_data() -> Path:
    """The real Arena-Hard files; skips the test where they are not there."""
    folder = Path(os.environ.get("FLOCK_HPC_TEST_DATA") or PROJECT.parent / "shared" / "data") / "arena-hard-auto"
    if not folder.is_dir():
        pytest.skip(f"{folder} not present: real-data tests skipped (FLOCK_HPC_TEST_DATA names the folder above it)")
    return folder


def make_workspace(root: Path, *, real: bool = False, judge: Mapping[str, Any] | None = None,
                   questions: int | None = None, **settings: Any) -> Path:
    """A workspace with a rehearsal judge: all of the real data, or the bundled example's; cut to `questions`."""
    source = real_data() if real else PROJECT / "configs" / "example" / "arena-hard-auto"
    root.mkdir(parents=True)
    shutil.copytree(source, root / "arena-hard-auto", copy_function=shutil.copyfile)
    for folder, _, _ in os.walk(root / "arena-hard-auto"):
        Path(folder).chmod(0o755)
    file = root / "arena-hard-auto" / "data" / BENCH / "question.jsonl"
    if questions is not None:
        file.write_bytes(b"".join(file.read_bytes().split(b"\n")[i] + b"\n" for i in range(questions)))
    names = TULU if real else EXAMPLES
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(names) + "\n")
    own = {
        "cluster": "local", "baseline": BASELINE if real else EXAMPLE_BASELINE, "slurm": SLURM,
        "judge": {"kind": "rehearsal", "name": JUDGE, **(judge or {})},
        "limits": {"claim_stale": 1, "poll": 0.5, "resubmits": 3},
    }
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({**own, **settings}))
    return root


def change_settings(root: Path, **settings: Any) -> None:
    """Replace top-level keys of a workspace's settings file."""
    file = root / "flock-hpc.yaml"
    file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings}))


def judge_settings(root: Path, **options: Any) -> None:
    """Replace keys of the judge in a workspace's settings file."""
    change_settings(root, judge={**yaml.safe_load((root / "flock-hpc.yaml").read_text())["judge"], **options})


def command(*args: str) -> list[str]:
    """The command line of `flock-hpc ARGS` with this interpreter."""
    return [sys.executable, "-m", "automate", *args]


def environment(env: Mapping[str, str] | None = None) -> dict[str, str]:
    """This environment without settings of a user's own, with `env` added."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLOCK_HPC_")}
    return {**kept, "COLUMNS": "200", **(env or {})}


def flock(*args: str, cwd: Path, env: Mapping[str, str] | None = None,
          timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """Run `flock-hpc ARGS` in a folder to its end."""
    return subprocess.run(command(*args), cwd=cwd, env=environment(env), capture_output=True, text=True,
                          timeout=timeout, stdin=subprocess.DEVNULL)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """All that a command printed, on one line, so that wrapped text can be found."""
    return " ".join((done.stdout + done.stderr).split())


def judge_now(root: Path, *args: str, status: int = 0, executor: str = "local") -> str:
    """`judge --submit --wait` to its end; what it said. Fails where the exit status is another."""
    done = flock("judge", "--submit", "--wait", "--executor", executor, *args, cwd=root)
    assert done.returncode == status, f"exit {done.returncode} instead of {status}:\n{done.stdout}\n{done.stderr}"
    return said(done)


def rows_folder(root: Path) -> Path:
    """Where the judge's rows lie."""
    return root / "arena-hard-auto" / "data" / BENCH / "model_judgment" / JUDGE


def rows_file(root: Path, model: str, baseline: str | None = None) -> Path:
    """A model's rows; against another baseline than the settings' if one is named."""
    folder = rows_folder(root)
    return (folder / f"compared_with_{baseline}" if baseline else folder) / f"{model}.jsonl"


def read_lines(file: Path) -> list[Row]:
    """The rows of a JSON-lines file; every line must be whole."""
    data = file.read_bytes()
    assert data.endswith(b"\n") or not data, f"{file}: torn last line"
    return [json.loads(line) for line in data.split(b"\n") if line]


def read_rows(file: Path) -> list[Row]:
    """A model's rows."""
    return read_lines(file)


def read_questions(root: Path) -> dict[str, str]:
    """The bench's questions: category by uid."""
    return {row["uid"]: row["category"] for row in read_lines(root / "arena-hard-auto/data" / BENCH / "question.jsonl")}


def read_answers(root: Path, model: str) -> dict[str, str]:
    """A model's answers by uid."""
    rows = read_lines(root / "arena-hard-auto/data" / BENCH / "model_answer" / f"{model}.jsonl")
    return {row["uid"]: row["messages"][-1]["content"]["answer"] for row in rows}


def journal(root: Path, model: str) -> list[Row]:
    """All records of a model, of all baselines, file by file."""
    files = sorted((root / ".flock-hpc" / "journal").glob(f"*/*/*/{model}/*.jsonl"))
    return [record for file in files for record in read_lines(file)]


def assert_complete(rows: Sequence[Row], questions: Mapping[str, str], *, theirs: Mapping[str, str],
                    ours: Mapping[str, str], nulls: bool = False) -> None:
    """Every question once, in upstream's shape, both orders, with the right answer in each place."""
    uids = [row["uid"] for row in rows]
    assert len(uids) == len(questions), f"{len(uids)} rows for {len(questions)} questions"
    assert set(uids) == set(questions), "rows of other questions"
    for row in rows:
        uid = row["uid"]
        assert list(row) == ROW_KEYS, f"{uid}: keys {list(row)}"
        assert (row["category"], row["judge"]) == (questions[uid], JUDGE), uid
        assert len(row["games"]) == 2, f"{uid}: {len(row['games'])} games"
        for order, game in enumerate(row["games"], 1):
            assert list(game) == GAME_KEYS, f"{uid}: keys {list(game)}"
            assert game["score"] in ACCEPTED or (nulls and game["score"] is None), f"{uid}: {game['score']}"
            first, second = (theirs[uid], ours[uid]) if order == 1 else (ours[uid], theirs[uid])
            text = game["prompt"][-1]["content"]
            assert [message["role"] for message in game["prompt"]] == ["system", "user"], uid
            assert text.find(first) <= text.rfind(second), f"{uid}: order {order} shows the wrong answer as A"
            assert f"<|The Start of Assistant A's Answer|>\n{first}\n<|The End" in text, f"{uid}: order {order}"
            assert f"<|The Start of Assistant B's Answer|>\n{second}\n<|The End" in text, f"{uid}: order {order}"


def games_of(root: Path, models: Iterable[str]) -> list[Key]:
    """(model, uid, order, label) of every game in the models' rows, sorted."""
    return sorted((model, row["uid"], order, str(game["score"])) for model in models
                  for row in read_rows(rows_file(root, model)) for order, game in enumerate(row["games"], 1))


def verdicts_of(root: Path, models: Iterable[str]) -> list[Key]:
    """(model, uid, order, label) of every verdict in the models' journals, sorted."""
    return sorted((model, record["uid"], record["order"], str(record["label"])) for model in models
                  for record in journal(root, model) if record["outcome"] == "verdict")


def jobs(root: Path) -> list[Path]:
    """One file for each job that the local queue ever got."""
    return sorted((root / ".flock-hpc" / "local").glob("local-*.json"))


def bench_file(root: Path, *parts: str) -> Path:
    """A file of the bench's data."""
    return root.joinpath("arena-hard-auto", "data", BENCH, *parts)


def repeated(keys: Iterable[Key]) -> list[Key]:
    """What stands there more than once."""
    return [key for key, count in Counter(keys).items() if count > 1]


def eventually(condition: Callable[[], object], what: str, timeout: float = 120, pause: float = 0.1) -> None:
    """Wait until a condition holds; fail with `what` where it doesn't."""
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout:g} s: {what}"
        time.sleep(pause)


def sockets_of(root: Path) -> set[str]:
    """Unix sockets that the judge servers of a workspace have listened on, by their logs."""
    logs = (*(root / "logs" / "arena-hard" / "judgment_batches").glob("*.server.log"),
            *(root / "logs" / "fleets").glob("*/*.log"))
    return {found for log in logs for found in re.findall(r"listening on unix:(\S+?):? ", log.read_text())}


def processes_of(root: Path) -> dict[int, psutil.Process]:
    """Processes that name a workspace or a socket of its servers, and all that descend from them."""
    marks, found = {str(root), *sockets_of(root)}, dict[int, psutil.Process]()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = "\0".join(process.cmdline())
            if process.pid != os.getpid() and any(mark in line for mark in marks):
                found.update({one.pid: one for one in (process, *process.children(recursive=True))})
    return found


VICTIMS = {"engine": "run-batch", "guard": "automate.serving.guard", "server": "automate.serving.rehearsal",
           "runner": "local-runner", "worker": "run-worker"}


def victims(root: Path) -> dict[str, list[psutil.Process]]:
    """The processes of a workspace's jobs by their part: engine, guard, server, runner, worker (of a fleet)."""
    found: dict[str, list[psutil.Process]] = {}
    for process in processes_of(root).values():
        with contextlib.suppress(psutil.Error):
            words = process.cmdline()
            for part, word in VICTIMS.items():
                if word in words:
                    found.setdefault(part, []).append(process)
    return found


def kill(process: psutil.Process) -> bool:
    """SIGKILL a process; False where it has ended already."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def assert_nothing_runs(root: Path) -> None:
    """Fail where a process of a workspace is still there after a while."""
    eventually(lambda: not processes_of(root), f"no process left of {root}", timeout=60)


def assert_no_sockets(root: Path) -> None:
    """Fail where a socket of a workspace's servers is still there after a while."""
    assert sockets_of(root), "no server of this workspace ever listened on a socket"
    eventually(lambda: not any(Path(name).exists() for name in sockets_of(root)), "no socket left", timeout=60)
