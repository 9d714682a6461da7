"""Jobs that must end with games left: told to by a signal, standing still, on a faulty node."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from tests.e2e.support import (
    EXAMPLES,
    assert_nothing_runs,
    change_settings,
    command,
    environment,
    eventually,
    flock,
    games_of,
    journal,
    judge_now,
    judge_settings,
    make_workspace,
    said,
    verdicts_of,
)


def runs(root: Path) -> list[dict[str, Any]]:
    """What the started jobs said of themselves, oldest first."""
    return [json.loads(path.read_text()) for path in sorted((root / ".flock-hpc" / "runs").glob("*.json"))]


def test_a_job_that_runs_out_of_time_goes_on_by_itself(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", judge={"rehearsal": {"latency": 0.3}, "concurrency": 2})
    assert flock("judge", "--all", "--submit", cwd=root).returncode == 0
    eventually(lambda: bool(journal(root, EXAMPLES[0])), "some games")
    os.kill(runs(root)[0]["holder"]["pid"], signal.SIGUSR2)  # as Slurm does
    eventually(lambda: len(runs(root)) == 2, "another start")
    judge_now(root, "--all")
    first, second = runs(root)
    assert (first["stopped_by"], first["next"]["kind"], first["status"]) == ("time limit", "requeue", 0)
    assert (second["restart"], second["job"], second["status"]) == (1, first["job"], 0)
    assert first["played"] + second["played"] == 72
    assert games_of(root, EXAMPLES) == verdicts_of(root, EXAMPLES)
    assert_nothing_runs(root)


def test_games_that_stand_still_end_the_job(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", judge={"rehearsal": {"hang": 1.0, "sticky": True}})
    change_settings(root, limits={"claim_stale": 1, "poll": 0.5, "resubmits": 0, "stall": 2})
    judge_now(root, "--all", status=1)
    run = runs(root)[0]
    assert (run["status"], run["phase"], run["next"]["kind"]) == (1, "ended", "none")
    assert "stalled: no game has ended" in said(flock("monitor", cwd=root))
    assert_nothing_runs(root)


def test_a_judge_that_loads_longer_than_the_time_limit_is_not_started_again_and_again(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w", judge={"rehearsal": {"load_seconds": 60}})
    with subprocess.Popen(command("judge", "--all", "--submit", "--wait", "--executor", "local"), cwd=root,
                          env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as waiting:
        eventually(lambda: bool(runs(root)) and runs(root)[0]["phase"] == "loading", "a loading judge")
        os.kill(runs(root)[0]["holder"]["pid"], signal.SIGUSR2)
        text = " ".join(waiting.communicate(timeout=60)[0].split())
    assert waiting.returncode == 1
    assert "the time limit was over before a game could be played" in text
    assert "raise slurm.time" in text
    assert [run["next"]["kind"] for run in runs(root)] == ["none"]
    assert_nothing_runs(root)


def test_a_node_whose_servers_die_of_its_fault_is_named(tmp_path: Path) -> None:
    root = make_workspace(tmp_path / "w")
    (root / "judge").mkdir()
    (root / "judge" / "config.json").write_text('{"architectures": ["Llama"], "max_position_embeddings": 9000}')
    (root / "judge" / "model.safetensors").write_bytes(b"\x02" + bytes(7) + b"{}")
    judge_settings(root, kind="vllm", path="judge", server={
        "command": ["bash", "-c", "echo CUDA error: uncorrectable ECC error encountered; exit 1"], "load_timeout": 20})
    change_settings(root, limits={"claim_stale": 1, "poll": 0.5, "resubmits": 0, "requeues": 0})
    judge_now(root, "--all", status=1)
    (run,) = runs(root)
    assert [(death["node_fault"], death["node"]) for death in run["deaths"]] == [(True, run["node"])] * 2
    assert (run["stopped_by"], run["next"]["kind"]) == ("node fault", "none")
    assert run["node"] in said(flock("nodes", cwd=root))
    assert_nothing_runs(root)
