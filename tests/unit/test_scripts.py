"""The spec's own commands: their options become flock-hpc's, from any place, with any python3."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from automate.campaign.demo import make_demo
from scripts import automate_arena_hard_judgment as judgment
from tests.unit.support import ROOT

SCRIPTS = ROOT / "scripts"
AUTOMATE, MONITOR = SCRIPTS / "automate_arena_hard_judgment.py", SCRIPTS / "monitor_arena_hard_judgments.py"
SUBMIT = SCRIPTS / "submit_arena_hard_judgment.sh"
BIN = Path(sys.executable).parent
BARE = [sys.executable, "-E", "-S"]
"""A Python that has no packages, and so no flock-hpc."""

Done = subprocess.CompletedProcess[str]


def call(command: Sequence[str | Path], folder: Path, path: Path | None = BIN) -> Done:
    """Run a command in a folder, with `path` first on PATH and without settings from the environment."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("FLOCK_HPC_")}
    environ["PATH"] = os.pathsep.join([*([str(path)] if path else []), "/usr/bin", "/bin"])
    return subprocess.run([str(word) for word in command], cwd=folder, env=environ, capture_output=True, text=True,
                          check=False, timeout=120)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """The bundled example with a rehearsal judge, in a folder with a space in its name."""
    root = tmp_path / "a workspace"
    make_demo(root)
    return root


@pytest.fixture
def stub(tmp_path: Path) -> Path:
    """A folder with a flock-hpc that prints its arguments, one a line."""
    folder = tmp_path / "stub"
    folder.mkdir()
    (folder / "flock-hpc").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (folder / "flock-hpc").chmod(0o755)
    return folder


# What the options become: the Python script


@pytest.mark.parametrize(("typed", "expected"), [
    ("", "judge --dry-run"),
    ("--dry-run", "judge --dry-run"),
    ("--submit", "judge --submit"),
    ("--submit --wait", "judge --submit --wait"),
    ("--validate-only", "validate-only"),
    ("--models A B C --submit", "judge --models A --models B --models C --submit"),
    ("--all --batch-size 5 --submit", "judge --from-api-config= --batch-size 5 --submit"),
    ("--models-file F", "judge --models-file F --dry-run"),
    ("--missing-models-file F --submit", "judge --models-file F --submit"),
    ("--baseline base --executor local --limit-questions 3 --skip-missing --workspace W --submit",
     "judge --workspace W --baseline base --executor local --limit-questions 3 --skip-missing --submit"),
    # Checking knows no jobs, so it takes neither of these:
    ("--validate-only --batch-size 5 --skip-missing --baseline base", "validate-only --baseline base"),
    # The most careful of several actions counts:
    ("--submit --dry-run", "judge --dry-run"),
    ("--submit --dry-run --validate-only", "validate-only"),
])
def test_options_become_those_of_flock_hpc(typed: str, expected: str) -> None:
    assert judgment.arguments(judgment.parser().parse_args(typed.split())) == expected.split()


def test_a_name_with_spaces_stays_one_name() -> None:
    assert judgment.arguments(judgment.parser().parse_args(["--models", "a b", "c"]))[1:5] == [
        "--models", "a b", "--models", "c"]


@pytest.mark.parametrize("typed", ["--wait", "--wait --submit --dry-run", "--all --models A", "--models",
                                   "--models-file F --missing-models-file G", "--batch-size many"])
def test_options_that_make_no_sense_are_refused(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *typed.split()])
    with pytest.raises(SystemExit) as refused:
        judgment.main()
    assert refused.value.code == 2


def test_without_an_action_it_says_how_to_submit(monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str]) -> int:
        ran.append(argv)
        return 7

    monkeypatch.setattr(judgment, "run", run)
    monkeypatch.setattr(sys, "argv", ["./scripts/x.py", "--models", "a b"])
    assert judgment.main() == 7
    assert ran == [["judge", "--models", "a b", "--dry-run"]]
    assert "python3 ./scripts/x.py --models 'a b' --submit" in capsys.readouterr().out


# What the options become: the shell script


def submit(stub: Path, *typed: str) -> Done:
    return call([SUBMIT, *typed], stub, stub)


@pytest.mark.parametrize(("typed", "expected"), [
    ("--all", "judge --all --submit"),
    ("--all --dry-run", "judge --all --dry-run"),
    ("--all --validate", "validate-only --all"),
    ("--validate --all --batch-size 5 --dry-run", "validate-only --all"),
    ("--models A B --batch-size 5", "judge --models A B --batch-size 5 --submit"),
    ("--batch-size=5 --models A", "judge --models A --batch-size=5 --submit"),
    ("--all --submit --dry-run", "judge --all --dry-run"),
    ("--models-file F --wait --skip-missing", "judge --models-file F --wait --skip-missing --submit"),
    ("--all --baseline base --max-parallel 2", "judge --all --baseline base --max-parallel 2 --submit"),
])
def test_the_shell_script_submits_unless_told_otherwise(stub: Path, typed: str, expected: str) -> None:
    done = submit(stub, *typed.split())
    assert (done.returncode, done.stdout.split("\n")[:-1]) == (0, expected.split())
    assert done.stderr == f"Executing: flock-hpc {expected}\n"


def test_the_shell_script_evaluates_nothing(stub: Path) -> None:
    names = ["a b", "$(touch gone)", "`touch gone`", "x;y", "*", 'q"uote', "it's"]
    done = submit(stub, "--models", *names)
    assert done.stdout.split("\n")[:-1] == ["judge", "--models", *names, "--submit"]
    assert not (stub / "gone").exists()


@pytest.mark.parametrize("typed", ["", "--dry-run", "--models", "--models --dry-run", "--all --batch-size"])
def test_the_shell_script_refuses_half_a_command(stub: Path, typed: str) -> None:
    done = submit(stub, *typed.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert "--help" in done.stderr


def test_the_shell_script_hands_the_exit_status_on(stub: Path) -> None:
    (stub / "flock-hpc").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    assert submit(stub, "--all").returncode == 3


def test_shellcheck_has_nothing_to_say() -> None:
    command = shutil.which("shellcheck", path=os.pathsep.join([str(BIN), os.environ.get("PATH", "")]))
    if command is None:
        pytest.skip("no shellcheck: install the dev extra")
    done = call([command, SUBMIT], ROOT)
    assert (done.returncode, done.stdout) == (0, "")


# Where they run, and with what


@pytest.mark.parametrize("command", [[sys.executable, AUTOMATE], [*BARE, AUTOMATE], [sys.executable, MONITOR],
                                     [SUBMIT]])
def test_help_is_shown(command: list[str | Path], tmp_path: Path) -> None:
    done = call([*command, "--help"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lower().startswith("usage:")


def test_dry_run_writes_jobs_and_submits_nothing(workspace: Path) -> None:
    done = call([sys.executable, AUTOMATE, "--dry-run", "--batch-size", "1"], workspace)
    assert done.returncode == 0, done.stderr
    scripts, state = workspace / "generated_judgment_scripts", workspace / ".flock-hpc"
    assert {f"run_arena_hard_judgment_batch_{number}.sh" for number in (1, 2, 3)} <= {p.name for p in scripts.iterdir()}
    assert list((workspace / "generated_judgment_configs").glob("arena_hard_judgment_batch_*.yaml"))
    assert not list((state / "submissions").glob("*"))
    assert not list((state / "local").glob("local-*"))


def test_validation_and_monitor_see_the_example(workspace: Path) -> None:
    checked = call([sys.executable, AUTOMATE, "--validate-only"], workspace)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "3 model(s) ready" in checked.stdout
    seen = call([sys.executable, MONITOR], workspace)
    assert seen.returncode == 0, seen.stderr
    assert "=== Arena Hard Judgment Monitor ===" in seen.stdout
    assert "example-step1000" in seen.stdout


def test_all_means_the_models_of_the_api_config(workspace: Path) -> None:
    (workspace / "arena_hard_models_to_test.txt").write_text("example-final\n", encoding="utf-8")
    with (workspace / "flock-hpc.yaml").open("a", encoding="utf-8") as settings:
        settings.write("models_pattern: example-step*\n")
    listed = call([sys.executable, AUTOMATE, "--all", "--dry-run"], workspace)
    assert listed.returncode == 0, listed.stdout + listed.stderr
    assert "example-step2000" in listed.stdout
    assert "example-final" not in listed.stdout


@pytest.mark.parametrize("way", ["relative", "symlink", "copy"])
def test_scripts_work_by_any_path_and_as_copies(workspace: Path, way: str) -> None:
    names = {}
    for script in (AUTOMATE, SUBMIT):
        here = workspace / script.name
        if way == "symlink":
            here.symlink_to(script)
        elif way == "copy":
            shutil.copy(script, here)
        names[script] = os.path.relpath(script, workspace) if way == "relative" else f"./{script.name}"
    python = call([sys.executable, names[AUTOMATE], "--validate-only"], workspace)
    assert python.returncode == 0, python.stdout + python.stderr
    shell = call([names[SUBMIT], "--all", "--validate"], workspace)
    assert shell.returncode == 0, shell.stdout + shell.stderr


@pytest.mark.parametrize("script", [AUTOMATE, MONITOR])
def test_a_python_without_flock_hpc_hands_over(tmp_path: Path, stub: Path, script: Path) -> None:
    copy = tmp_path / "checkout" / "scripts" / script.name
    copy.parent.mkdir(parents=True)
    shutil.copy(script, copy)
    expected = ["judge", "--models", "a b", "--submit"] if script == AUTOMATE else ["monitor", "--json"]
    typed = ["--models", "a b", "--submit"] if script == AUTOMATE else ["--json"]
    by_path = call([*BARE, copy, *typed], tmp_path, stub)
    assert by_path.stdout.split("\n")[:-1] == expected
    venv = tmp_path / "checkout" / ".venv" / "bin"
    venv.mkdir(parents=True)
    for name in ("python", "flock-hpc"):
        shutil.copy(stub / "flock-hpc", venv / name)
    by_venv = call([*BARE, copy, *typed], tmp_path, None)
    assert by_venv.stdout.split("\n")[:-1] == ["-P", "-m", "automate", *expected]


@pytest.mark.parametrize("script", [AUTOMATE, MONITOR, SUBMIT])
def test_where_there_is_no_flock_hpc_they_say_what_to_do(tmp_path: Path, script: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "python3").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (folder / "python3").chmod(0o755)
    copy = tmp_path / script.name
    shutil.copy(script, copy)
    done = call([copy, "--all"] if script == SUBMIT else [*BARE, copy], tmp_path, folder)
    assert (done.returncode, "pip install" in done.stderr) == (1, True), done


@pytest.mark.parametrize("script", [AUTOMATE, MONITOR])
def test_an_old_python3_can_start_them(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert "from __future__" not in text


def test_both_find_flock_hpc_in_the_same_way() -> None:
    def functions(path: Path) -> dict[str, str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return {node.name: ast.dump(node) for node in tree.body if isinstance(node, ast.FunctionDef)}

    one, other = functions(AUTOMATE), functions(MONITOR)
    assert {name: one[name] for name in ("elsewhere", "run")} == {name: other[name] for name in ("elsewhere", "run")}
