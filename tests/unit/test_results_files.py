"""Files that commands of results write: cells of CSV, and where `--csv FILE` goes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from automate.cli.results_options import write
from automate.cli.views.files import cell, plain


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", "  =1+1", "\t=1", "\n@x"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert cell(text).startswith("'")


def test_other_cells_stay_as_they_are_but_for_control_characters() -> None:
    assert cell("model-7b") == "model-7b"
    assert cell("a\x1b[31m") == "a?[31m"


def test_json_has_no_number_that_json_does_not_know() -> None:
    assert plain({"a": (float("nan"), 1, True), 2: float("inf")}) == {"a": [None, 1, True], "2": None}


def test_a_device_is_written_into_and_stays_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write(pipe, b"a,b\n")
        assert os.read(reader, 10) == b"a,b\n"
    finally:
        os.close(reader)
    assert pipe.is_fifo()
    assert capsys.readouterr().err == f"written: {pipe}\n"
