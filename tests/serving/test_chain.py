"""The chain with a real vLLM as candidate and as judge, on a real Slurm: from checkpoints to a report."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.chain_support import RESULTS, board, of_kind
from tests.e2e.support import (
    EXAMPLE_BASELINE,
    assert_nothing_runs,
    bench_file,
    flock,
    make_workspace,
    read_lines,
    rows_folder,
    said,
)
from tests.rigs import vllm as rig
from tests.rigs.adapter import make_adapter
from tests.rigs.required import missing
from tests.rigs.slurm import FOREIGN, SlurmRig, available

MODELS = tuple(f"tiny-rank8-alpha1e5-step{step}" for step in (100, 200))
JUDGE = "tiny-judge"
QUESTIONS = 3
LOAD = 500.0
SERVER = {"command": [*rig.vllm_command(), "serve"], "args": ["--enforce-eager"], "load_timeout": LOAD}


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmRig]:
    """A running cluster that this process's environment points at."""
    if reason := rig.available() or available():
        missing(reason)
    with SlurmRig() as cluster:
        for name in [name for name in os.environ if name.startswith(FOREIGN)]:
            monkeypatch.delenv(name)
        for name, value in cluster.env.items():
            monkeypatch.setenv(name, value)
        yield cluster


@pytest.fixture
def workspace(slurm: SlurmRig, tmp_path: Path) -> Iterator[Path]:
    """The bundled example with two adapters of the tiny model in place of its models, and the tiny model as judge."""
    around = {"variables": rig.serve_environment()}
    root = make_workspace(
        tmp_path / "work", cluster="generic", slurm={"mem": "4G", "cpus_per_task": 2, "time": "00:30:00", "gpus": 1},
        generate={"kind": "vllm", "path": "checkpoints/{model}", "max_tokens": 40, "server": SERVER,
                  "environment": around})
    settings = yaml.safe_load((root / "flock-hpc.yaml").read_text())
    settings["judge"] = {"kind": "vllm", "name": JUDGE, "path": str(rig.tiny_model()), "max_tokens": 48,
                         "server": SERVER, "environment": around}
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump(settings))
    (root / "arena_hard_models_to_test.txt").write_text("\n".join(MODELS) + "\n")
    (root / "arena-hard-auto" / "config" / "api_config.yaml").unlink()
    for seed, model in enumerate(MODELS):
        (root / "checkpoints").mkdir(exist_ok=True)
        make_adapter(root / "checkpoints" / model, rig.tiny_model(), rank=8, seed=seed)
    yield root
    flock("cancel", cwd=root)
    assert_nothing_runs(root)


def judged(root: Path, model: str) -> list[dict[str, Any]]:
    """A model's rows of judgments."""
    return read_lines(rows_folder(root).parent / JUDGE / f"{model}.jsonl")


def logs(root: Path) -> str:
    """What the jobs said."""
    return "".join(f"\n--- {path.name}\n{path.read_text(errors='replace')}"
                   for path in sorted(root.glob("logs/arena-hard/*/*")) if path.suffix in (".out", ".err"))


def test_from_checkpoints_to_a_report(slurm: SlurmRig, workspace: Path) -> None:
    done = flock("run", "--all", "--submit", "--wait", "--executor", "slurm", "--limit-questions", str(QUESTIONS),
                 cwd=workspace, timeout=3 * LOAD)
    text = said(done)
    assert done.returncode == 0, text + logs(workspace)
    answers = [read_lines(bench_file(workspace, "model_answer", f"{model}.jsonl")) for model in MODELS]
    for rows in answers:
        assert len(rows) == QUESTIONS
        assert all(0 < row["metadata"]["token_len"] <= 40 for row in rows)
    assert answers[0][0]["messages"][-1] != answers[1][0]["messages"][-1], "each adapter says something of its own"
    for model in MODELS:
        games = [game for row in judged(workspace, model) for game in row["games"]]
        assert len(games) == 2 * QUESTIONS
        assert all(game["score"] for game in games)
    (made,), (games_job,), (report,) = (of_kind(workspace, word) for word in ("answer", "judge", "arena-report"))
    assert games_job["after"] == f"{made['job']}_1"
    assert report["after"] == games_job["job"]
    assert {*RESULTS, "curves.csv", "curves.txt", "curves.svg", "curves.png"} <= {
        path.name for path in (workspace / "results").iterdir()}
    assert board(workspace) == sorted([*MODELS, EXAMPLE_BASELINE])
    assert json.loads((workspace / "results" / "report.json").read_text())["missing"] == []
    assert all(model in text for model in MODELS)
