"""The older command that generates answers: its options become flock-hpc's, from any place, with any python3."""

from __future__ import annotations

import ast
import shutil
import sys
from pathlib import Path

import pytest

from scripts import automate_arena_hard_generation as generation
from tests.unit.support import ROOT
from tests.unit.test_scripts import BARE, BIN, call

SCRIPT, JUDGMENT = (ROOT / "scripts" / f"automate_arena_hard_{name}.py" for name in ("generation", "judgment"))


@pytest.mark.parametrize(("typed", "expected"), [
    ("", "generate --dry-run"),
    ("--dry-run", "generate --dry-run"),
    ("--submit", "generate --submit"),
    ("--submit --wait", "generate --submit --wait"),
    ("--models A B C --submit", "generate --models A --models B --models C --submit"),
    ("--all --batch-size 5 --submit", "generate --batch-size 5 --from-api-config= --submit"),
    ("--models-file F", "generate --models-file F --dry-run"),
    ("--missing-models-file F --submit", "generate --models-file F --submit"),
    ("--executor local --limit-questions 3 --skip-missing --workspace W --submit",
     "generate --workspace W --executor local --limit-questions 3 --skip-missing --submit"),
    ("--submit --dry-run", "generate --dry-run"),  # the more careful of both
])
def test_options_become_those_of_flock_hpc(typed: str, expected: str) -> None:
    assert generation.arguments(generation.parser().parse_args(typed.split())) == expected.split()


def test_a_name_with_spaces_stays_one_name() -> None:
    assert generation.arguments(generation.parser().parse_args(["--models", "a b", "c"]))[1:5] == [
        "--models", "a b", "--models", "c"]


@pytest.mark.parametrize("typed", ["--wait", "--wait --submit --dry-run", "--all --models A", "--models",
                                   "--models-file F --missing-models-file G", "--batch-size many"])
def test_options_that_make_no_sense_are_refused(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["script", *typed.split()])
    with pytest.raises(SystemExit) as refused:
        generation.main()
    assert refused.value.code == 2


def test_without_an_action_it_says_how_to_submit(monkeypatch: pytest.MonkeyPatch,
                                                 capsys: pytest.CaptureFixture[str]) -> None:
    ran: list[list[str]] = []

    def run(argv: list[str]) -> int:
        ran.append(argv)
        return 7

    monkeypatch.setattr(generation, "run", run)
    monkeypatch.setattr(sys, "argv", ["./scripts/x.py", "--models", "a b"])
    assert generation.main() == 7
    assert ran == [["generate", "--models", "a b", "--dry-run"]]
    assert "python3 ./scripts/x.py --models 'a b' --submit" in capsys.readouterr().out


@pytest.mark.parametrize("command", [[sys.executable, SCRIPT], [*BARE, SCRIPT]])
def test_help_is_shown(command: list[str | Path], tmp_path: Path) -> None:
    done = call([*command, "--help"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.lower().startswith("usage:")


def test_a_python_without_flock_hpc_hands_over(tmp_path: Path) -> None:
    stub = tmp_path / "stub"
    stub.mkdir()
    (stub / "flock-hpc").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n', encoding="utf-8")
    (stub / "flock-hpc").chmod(0o755)
    copy = tmp_path / SCRIPT.name
    shutil.copy(SCRIPT, copy)
    done = call([*BARE, copy, "--models", "a b", "--submit"], tmp_path, stub)
    assert done.stdout.split("\n")[:-1] == ["generate", "--models", "a b", "--submit"]


def test_where_there_is_no_flock_hpc_it_says_what_to_do(tmp_path: Path) -> None:
    copy = tmp_path / SCRIPT.name
    shutil.copy(SCRIPT, copy)
    done = call([*BARE, copy], tmp_path, None)
    assert (done.returncode, "pip install" in done.stderr) == (1, True), done


def test_an_old_python3_can_start_it() -> None:
    text = SCRIPT.read_text(encoding="utf-8")
    ast.parse(text, feature_version=(3, 6))
    assert "from __future__" not in text


def test_it_finds_flock_hpc_as_the_judgment_command_does() -> None:
    def functions(path: Path) -> dict[str, str]:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        return {node.name: ast.dump(node) for node in tree.body if isinstance(node, ast.FunctionDef)}

    one, other = functions(SCRIPT), functions(JUDGMENT)
    assert {name: one[name] for name in ("elsewhere", "run")} == {name: other[name] for name in ("elsewhere", "run")}


def test_dry_run_writes_jobs_and_submits_nothing(tmp_path: Path) -> None:
    from tests.e2e.chain_support import make_bare

    root = make_bare(tmp_path / "a workspace", cluster="local")
    done = call([sys.executable, SCRIPT, "--dry-run", "--executor", "local"], root, BIN)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((root / "generated_answer_scripts").glob("run_arena_hard_answers_batch_*.sh"))
    assert not list((root / ".flock-hpc" / "submissions").glob("*"))
