"""A campaign against a real vLLM: job scripts, server life cycle, engine, constrained labels, prefix cache."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from automate.arena.verdict import ACCEPTED
from tests.rigs import vllm as rig
from tests.rigs.required import missing

MODELS = ("tulu3-8b-rank64-alpha1e5-001-step6000", "tulu3-8b-rank64-alpha1e5-001-step12000")
BASELINE = "llama3.1-8b-instruct"
PROJECT = Path(__file__).resolve().parents[2]


def real_data() -> Path:
    path = Path(os.environ.get("FLOCK_HPC_TEST_DATA", PROJECT.parent / "shared" / "data")) / "arena-hard-auto"
    if not path.is_dir():
        missing(f"no test data at {path}: set FLOCK_HPC_TEST_DATA")
    return path


def cut(source: Path, target: Path, rows: int, uids: set[str] | None = None) -> set[str]:
    """The first rows of a jsonl file (or those of these uids), lines ended at newline only."""
    kept: list[str] = []
    found: set[str] = set()
    for line in source.read_text(encoding="utf-8").split("\n"):
        uid = json.loads(line)["uid"] if line else None
        if uid and (uid in uids if uids is not None else len(kept) < rows):
            kept.append(line)
            found.add(uid)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("\n".join(kept) + "\n", encoding="utf-8")
    return found


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    reason = rig.available()
    if reason:
        if rig.real_parts_required():
            pytest.fail(reason)
        pytest.skip(reason)
    data = real_data() / "data" / "arena-hard-v2.0"
    bench = tmp_path / "arena-hard-auto" / "data" / "arena-hard-v2.0"
    uids = cut(data / "question.jsonl", bench / "question.jsonl", 6)
    for model in (*MODELS, BASELINE):
        cut(data / "model_answer" / f"{model}.jsonl", bench / "model_answer" / f"{model}.jsonl", 0, uids)
    (tmp_path / "arena_hard_models_to_test.txt").write_text("\n".join(MODELS) + "\n")
    settings = {
        "cluster": "local", "environment": {}, "limits": {"claim_stale": 2, "poll": 1},
        "judge": {
            "kind": "vllm", "name": "tiny-judge", "path": str(rig.tiny_model()), "max_tokens": 48,
            "server": {"command": [*rig.vllm_command(), "serve"], "args": ["--enforce-eager"], "restarts": 2},
            "environment": {"variables": rig.serve_environment()},
        },
    }
    (tmp_path / "flock-hpc.yaml").write_text(json.dumps(settings))
    return tmp_path


def flock(workspace: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "automate", *args], cwd=workspace, text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)


def rows_of(workspace: Path, model: str) -> list[dict[str, object]]:
    path = workspace / "arena-hard-auto/data/arena-hard-v2.0/model_judgment/tiny-judge" / f"{model}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def job_logs(workspace: Path) -> str:
    found = workspace.glob("logs/arena-hard/judgment_batches/*.out")
    return "".join(path.read_text(errors="replace") for path in found)


def assert_complete(workspace: Path, output: str) -> None:
    for model in MODELS:
        rows = rows_of(workspace, model)
        assert len(rows) == 6, output
        for row in rows:
            games = row["games"]
            assert isinstance(games, list)
            assert [game["score"] in ACCEPTED for game in games] == [True, True], output


def ours(workspace: Path) -> list[psutil.Process]:
    """Processes of this workspace's jobs: their command line or working folder names it."""
    found = []
    for process in psutil.process_iter():
        try:
            text = " ".join(process.cmdline()) + " " + process.environ().get("FLOCK_HPC_CACHE", "")
            if str(workspace) in text or process.environ().get("FLOCK_HPC_TEST_MARK") == str(workspace):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.pid != os.getpid()]


def assert_nothing_left(workspace: Path) -> None:
    deadline = time.monotonic() + 60
    while (left := ours(workspace)) and time.monotonic() < deadline:
        time.sleep(0.5)
    assert not left


def test_campaign_with_constrained_labels(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOCK_HPC_TEST_MARK", str(workspace))
    run = flock(workspace, "judge", "--all", "--submit", "--wait")
    output, _ = run.communicate(timeout=500)
    logs = job_logs(workspace)
    assert run.returncode == 0, output + logs
    assert_complete(workspace, output + logs)
    records = [json.loads(line) for path in workspace.glob(".flock-hpc/journal/**/*.jsonl")
               for line in path.read_text(encoding="utf-8").split("\n") if line]
    assert len(records) == 24
    assert any(record.get("asked_twice") for record in records)  # a random model says nothing by itself
    assert sum(record["usage"][2] for record in records) > 0  # served by the prefix cache
    monkeypatch.delenv("FLOCK_HPC_TEST_MARK")
    assert_nothing_left(workspace)


def test_killed_server_is_started_again(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SIGKILL of the API server alone: its engine processes end too, a new server comes, no game is lost."""
    monkeypatch.setenv("FLOCK_HPC_TEST_MARK", str(workspace))
    settings = json.loads((workspace / "flock-hpc.yaml").read_text())
    settings["judge"] |= {"max_tokens": 800, "concurrency": 2}
    (workspace / "flock-hpc.yaml").write_text(json.dumps(settings))
    run = flock(workspace, "judge", "--all", "--submit", "--wait")
    deadline = time.monotonic() + 300
    journal = workspace / ".flock-hpc" / "journal"
    while not any(path.stat().st_size for path in journal.glob("**/*.jsonl")) and time.monotonic() < deadline:
        time.sleep(0.2)
    servers = [process for process in ours(workspace) if "serve" in process.cmdline() and "vllm" in
               " ".join(process.cmdline()) and "guard" not in " ".join(process.cmdline())]
    old = [child for server in servers for child in server.children(recursive=True)]
    for server in servers:
        server.send_signal(signal.SIGKILL)
    output, _ = run.communicate(timeout=500)
    logs = job_logs(workspace)
    assert servers, output + logs
    assert run.returncode == 0, output + logs
    assert "restart 1 of 2" in logs
    assert old
    assert not [child for child in old if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert_complete(workspace, output + logs)
    monkeypatch.delenv("FLOCK_HPC_TEST_MARK")
    assert_nothing_left(workspace)
