"""The spec's three scripts for pools: their options become flock-hpc's, with any python3."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import siqa, spawn, wrapped_ar
from tests.unit.support import ROOT

NAMES = ("flock_hpc_command", "siqa", "spawn", "wrapped_ar")


@pytest.mark.parametrize(("typed", "expected"), [
    ("transfer 30", "pool send --action Transfer --tag Recipient=siqa --tag Quantity=30"),
    ("--key k --workspace w transfer 30 --to me",
     "pool send --workspace w --key k --action Transfer --tag Recipient=me --tag Quantity=30"),
    ("balance", "pool balance -- me"),
    ("balance siqa", "pool balance -- siqa"),
])
def test_wrapped_ar(typed: str, expected: str) -> None:
    assert wrapped_ar.arguments(wrapped_ar.parser().parse_args(typed.split())) == expected.split()


@pytest.mark.parametrize(("typed", "expected"), [
    ("init", "pool dataset create --name siqa siqa"),
    ("--name mine load-data F", "pool dataset create --name mine --from F siqa"),
    ("benchmark M", "pool send --target siqa --action Benchmark --data M"),
    ("evaluate", "pool send --target siqa --action Evaluate"),
    ("evaluate 100 --model M", "pool send --target siqa --action Evaluate --tag Model=M --data 100"),
    ("--workspace w info", "pool dataset info --workspace w -- siqa"),
])
def test_siqa(typed: str, expected: str) -> None:
    assert siqa.arguments(siqa.parser().parse_args(typed.split())) == expected.split()


def test_spawn() -> None:
    assert [" ".join(one) for one in spawn.commands(spawn.parser().parse_args(["--workspace", "w", "--key", "k"]))] == [
        "pool dataset create --workspace w --key k --quiet --name siqa siqa", "pool processes --workspace w"]


@pytest.mark.parametrize("name", NAMES)
def test_any_python3_reads_them(name: str) -> None:
    ast.parse((ROOT / "scripts" / f"{name}.py").read_text(encoding="utf-8"), feature_version=(3, 6))


def bare(script: str, *words: str, path: str = "/usr/bin:/bin", folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a script by a Python without packages."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLOCK_HPC_")}
    return subprocess.run([sys.executable, "-E", "-S", str(folder / "scripts" / script), *words], cwd=folder,
                          env={**environ, "PATH": path}, text=True, capture_output=True, check=False, timeout=60)


def copied(folder: Path) -> Path:
    """The scripts in a folder that has no environment beside it."""
    (folder / "scripts").mkdir()
    for name in NAMES:
        (folder / "scripts" / f"{name}.py").write_bytes((ROOT / "scripts" / f"{name}.py").read_bytes())
    return folder


def test_another_pythons_flock_hpc_is_found(tmp_path: Path) -> None:
    folder = copied(tmp_path)
    (folder / "bin").mkdir()
    stub = folder / "bin" / "flock-hpc"
    stub.write_text('#!/bin/sh\necho "$@"\n[ "$2" != dataset ] || exit 3\n')
    stub.chmod(0o755)
    done = bare("wrapped_ar.py", "balance", path=f"{folder / 'bin'}:/usr/bin:/bin", folder=folder)
    assert (done.returncode, done.stdout) == (0, "pool balance -- me\n")
    failed = bare("spawn.py", path=f"{folder / 'bin'}:/usr/bin:/bin", folder=folder)
    assert (failed.returncode, failed.stdout.count("pool ")) == (3, 1)


def test_without_any_flock_hpc_the_way_to_it_is_named(tmp_path: Path) -> None:
    done = bare("siqa.py", "info", folder=copied(tmp_path))
    assert done.returncode == 1
    assert "pip install" in done.stderr
