"""Files that commands of results write: cells of CSV, and where `--csv FILE` goes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from automate.cli.main import main
from automate.cli.results_options import write
from automate.cli.views.files import cell, plain
from automate.errors import DataError, StorageError
from automate.results.reporting.output import target
from tests.unit.reading_support import JUDGE, bench, rows


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "  =1+1", "\t=1", "\n@x"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")


def test_other_cells_stay_as_they_are_but_for_control_characters() -> None:
    assert cell("model-7b") == "model-7b"
    assert cell("a\x1b[31m") == "a?[31m"


def test_json_has_no_number_that_json_does_not_know() -> None:
    assert plain({"a": (float("nan"), 1, True), 2: float("inf")}) == {"a": [None, 1, True], "2": None}


def test_a_descriptor_of_the_caller_is_written_into(capsys: pytest.CaptureFixture[str]) -> None:
    """`--csv >(gzip > x.gz)` of a shell is such a one."""
    reader, writer = os.pipe()
    try:
        write(Path(f"/dev/fd/{writer}"), b"a,b\n")
        assert os.read(reader, 10) == b"a,b\n"
    finally:
        os.close(reader)
        os.close(writer)
    assert capsys.readouterr().err == f"written: /dev/fd/{writer}\n"


def test_what_is_no_regular_file_is_left_alone(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "ring").symlink_to(tmp_path / "ring")
    for path, why in ((pipe, "it is a device, pipe or socket"), (tmp_path, "it is a folder"),
                      (tmp_path / "a" / "b" / "c", "there is no folder")):
        with pytest.raises(DataError, match=why):
            write(path, b"x")
    assert pipe.is_fifo()
    with pytest.raises(DataError, match="it is a device"):
        target(Path(os.devnull))  # nothing is written, lest a mistake takes it from the whole machine
    with pytest.raises(StorageError):
        write(tmp_path / "ring", b"x")
    with pytest.raises(StorageError):
        write(Path("/dev/fd/999999"), b"x")


def test_a_link_stays_and_its_file_is_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "new" / "file")
    write(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "new" / "file").read_bytes() == b"x"
    assert capsys.readouterr().err == f"making the folder {tmp_path}/new\nwritten: {tmp_path}/link\n"


@pytest.mark.parametrize("where", ["ko/model_judgment/j/m.jsonl", "ko/new.csv", "other/model_answer/m.jsonl",
                                   "link.csv", ".flock-hpc/journal/x", "battles.jsonl"])
def test_nothing_is_written_over_what_results_are_computed_from(tmp_path: Path, where: str) -> None:
    for name in ("ko/model_judgment/j/m.jsonl", "other/model_answer/m.jsonl", ".flock-hpc/journal/x", "battles.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"precious")
    (tmp_path / "link.csv").symlink_to(tmp_path / "ko" / "model_judgment" / "j" / "m.jsonl")
    with pytest.raises(DataError, match="not written"):
        write(tmp_path / where, b"x", (tmp_path / "ko", tmp_path / "battles.jsonl"))
    assert not (tmp_path / "ko" / "new.csv").exists()
    assert (tmp_path / "ko/model_judgment/j/m.jsonl").read_bytes() == (tmp_path / "battles.jsonl").read_bytes()


def test_a_rehearsals_workspace_has_results_too(tmp_path: Path) -> None:
    path = tmp_path / ".flock-hpc" / "rehearsals" / "one" / "results" / "report.html"
    path.parent.parent.mkdir(parents=True)
    write(path, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("words", [["report", "--output"], ["leaderboard", "--csv"], ["curves", "--csv"]])
def test_commands_leave_judgments_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    folder = bench(tmp_path, {"one": rows(12), "two": rows(12)})
    path = folder.judgments / JUDGE / "one.jsonl"
    before = path.read_bytes()
    assert main([words[0], "--data", str(tmp_path), "--rounds", "10", words[1], str(path)]) == 1
    assert "not written: " in capsys.readouterr().err
    assert path.read_bytes() == before
    assert main(["curves", "--data", str(tmp_path), "--rounds", "100001"]) == 2
    assert "is not in the range" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--help"], ["leaderboard"], ["leaderboard", "--json"], ["leaderboard", "--csv"]])
def test_a_full_disk_behind_the_screen_is_said(tmp_path: Path, words: list[str]) -> None:
    bench(tmp_path, {"one": rows(12), "two": rows(12)})
    more = ["--data", str(tmp_path), "--rounds", "10"] if words[0] == "leaderboard" else []
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run([sys.executable, "-m", "automate.cli.main", *words, *more], stdout=full,
                               stderr=subprocess.PIPE, text=True, check=False)
    assert found.returncode == 1
    assert found.stderr.startswith("Error: standard output: can't write what is printed: No space left on device\n")
    assert "Traceback" not in found.stderr and "Exception ignored" not in found.stderr


def test_another_failure_of_the_system_is_not_taken_for_the_screens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("automate.cli.main.cli.main", fail)
    with pytest.raises(OSError, match="No space"):
        main([])
