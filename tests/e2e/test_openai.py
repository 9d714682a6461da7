"""A judge that somebody else serves: its key, its rate limit and its spending cap."""

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest
import yaml

from automate.resources import configs_dir

SECRET = "sk-only-for-this-test-7f3a"


@pytest.fixture
def address() -> Iterator[str]:
    """A server elsewhere, in short: the rehearsal judge behind a key, on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "automate.serving.rehearsal", "--model", "paid-model", "--port", str(port)]
    server = subprocess.Popen(command, env={**os.environ, "VLLM_API_KEY": SECRET}, stderr=subprocess.DEVNULL)
    base = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                urlopen(f"{base}/health", timeout=5)
                break
            except (URLError, ConnectionError):
                time.sleep(0.1)
        yield f"{base}/v1"
    finally:
        server.terminate()
        server.wait(30)


def make(tmp_path: Path, address: str, **judge: object) -> Path:
    shutil.copytree(configs_dir() / "example", tmp_path / "w")
    settings = {
        "cluster": "local", "baseline": "example-baseline", "limits": {"claim_stale": 2, "resubmits": 0},
        "judge": {"kind": "openai", "name": "example-judge", "model": "paid-model", "base_url": address,
                  "api_key_env": "PAID_KEY", **judge},
    }
    (tmp_path / "w" / "flock-hpc.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path / "w"


def flock(workspace: Path, *args: str, key: str | None = SECRET) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PAID_KEY"}
    environ |= {"PAID_KEY": key} if key else {}
    return subprocess.run([sys.executable, "-m", "automate", *args], cwd=workspace, env=environ, text=True,
                          capture_output=True, check=False, timeout=300)


def test_the_key_reaches_the_job_and_nothing_else(tmp_path: Path, address: str) -> None:
    workspace = make(tmp_path, address)
    done = flock(workspace, "judge", "--all", "--submit", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    holders = [path for path in workspace.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    kept = f".flock-hpc/secrets/{os.getuid()}/PAID_KEY"
    assert [path.relative_to(workspace).as_posix() for path in holders] == [kept]
    assert stat.S_IMODE(holders[0].stat().st_mode) == 0o600
    assert SECRET not in done.stdout + done.stderr
    script = next(workspace.glob("generated_judgment_scripts/run_arena_hard_judgment_batch_1.sh")).read_text()
    assert "gres" not in script  # no GPU is asked for
    assert "serve" not in script


def test_without_a_key_nothing_is_planned(tmp_path: Path, address: str) -> None:
    done = flock(make(tmp_path, address), "judge", "--all", "--submit", key=None)
    assert done.returncode == 1
    assert "PAID_KEY" in done.stdout
    assert "FH310" in done.stdout


@pytest.mark.parametrize("concurrency", [1, "auto"])
def test_the_spending_cap_holds(tmp_path: Path, address: str, concurrency: int | str) -> None:
    price = {"input_per_million": 1000.0, "output_per_million": 0.0}
    workspace = make(tmp_path, address, price=price, max_cost=15.0, concurrency=concurrency)
    done = flock(workspace, "judge", "--all", "--submit", "--wait", "--batch-size", "1", "--no-array")
    assert done.returncode == 1
    flock(workspace, "judge", "--all", "--submit", "--wait")  # a second try spends nothing more than the cap
    records = [json.loads(line) for path in workspace.glob(".flock-hpc/journal/**/*.jsonl")
               for line in path.read_text(encoding="utf-8").split("\n") if line]
    spent = [record["usage"][0] * 0.001 for record in records]
    assert 5.0 < sum(spent) <= 15.0
    assert len(records) < 72
    logs = "".join(path.read_text() for path in workspace.glob("logs/arena-hard/judgment_batches/*.out"))
    assert "judge.max_cost is spent" in logs


def test_the_rate_limit_lets_all_games_through(tmp_path: Path, address: str) -> None:
    workspace = make(tmp_path, address, requests_per_minute=6000)
    done = flock(workspace, "judge", "--all", "--limit-questions", "2", "--submit", "--wait")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "12 of 12 games are finished" in done.stdout
