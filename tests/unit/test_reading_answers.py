"""Style metadata of answers, and v0.1 battles files."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from automate.errors import DataError
from automate.results.reading.battle_rows import read_battles
from automate.results.reading.folder import of_data
from automate.results.reading.style import read_style, style_notes
from tests.unit.reading_support import answers, bench, rows
from tests.unit.support import real_data, write_lines


def test_counts_of_new_and_old_answers(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(3)})
    metadata = {"token_len": 9, "header_count": {"h1": 1, "h6": 2}, "list_count": {"ordered": 3, "unordered": 4},
                "bold_count": {"**": 5, "__": 6}}
    write_lines(folder.answers / "m1.jsonl", [
        {"uid": "q0", "metadata": {**metadata, "token_len": 1}}, {"uid": "q0", "metadata": metadata},
        {"question_id": "q1", "conv_metadata": metadata}, {"uid": "unknown", "metadata": metadata},
        {"question_id": "q2", "choices": [{"index": 0, "turns": [{"content": "x", "token_len": 7}]}]},
        {"uid": "q3", "metadata": {**metadata, "bold_count": 8, "token_len": "nine"}}, b"torn"])
    style = read_style(folder, ["m1"], ["q2", "q1", "q0", "q3", "q4"])
    found = style.counts["m1"]
    assert found[1].tolist() == found[2].tolist() == [9, 3, 7, 11]
    assert found[0][0] == 7
    assert np.isnan(found[0][1:]).all()
    assert np.isnan(found[4]).all()
    assert math.isnan(found[3][0])


def test_which_tokenizer_counted(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(1)})
    for model, tokenizer in (("m1", "o200k_base"), ("m2", "m2's own"), ("m3", None)):
        extra = {"flock_hpc": {"tokenizer": tokenizer}} if tokenizer else {}
        write_lines(folder.answers / f"{model}.jsonl", [{"uid": "q0", "metadata": {"token_len": 5}, **extra}])
    style = read_style(folder, ["m1", "m2", "m3"], ["q0"])
    assert style.counted_by == {"m1": "o200k_base", "m2": "m2's own"}
    assert any("different tokenizers (o200k_base: m1; m2's own: m2)" in note for note in style_notes(folder, style))


def test_what_is_said_of_answers(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(3)})
    answers(folder, "m1", {"q0": 0, "q1": 0, "q2": 4})
    answers(folder, "m2", {"q0": None, "q1": 4})
    notes = style_notes(folder, read_style(folder, ["m1", "m2", "m3", "../m4"], ["q0", "q1", "q2"]))
    assert f"{folder.answers / 'm1.jsonl'}: 2 answers of 'm1' with no tokens" in notes
    assert f"{folder.answers / 'm2.jsonl'}: no style metadata for 2 of 3 questions of 'm2'" in notes
    assert any(note.startswith(f"{folder.answers / 'm3.jsonl'}: no answers of 'm3'") for note in notes)
    assert any("no answers of '../m4'" in note for note in notes)


def test_real_answers() -> None:
    folder = of_data(real_data("leaderboard-dev", "data"), "ko")
    style = read_style(folder, ["o3-medium"], ["0122ab60646b4961bc39e9c03bdf6bcc"])
    assert style.counts["o3-medium"].tolist() == [[3339, 0, 11, 5]]


def battle(uid: str, winner: str, model: str = "m1") -> dict[str, str]:
    return {"question_id": uid, "model_a": "base", "model_b": model, "winner": winner}


def test_battles_in_the_files_order(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "battles.jsonl", [
        battle("q1", "model_b"), battle("q1", "model_b"), battle("q0", "tie", "m0"), battle("q1", "model_a", "m0"),
        battle("q1", "nobody"), b"torn"])
    found = read_battles(path)
    assert (found.models, found.questions, found.baselines) == (("m1", "m0"), ("q1", "q0"), ("base",))
    assert found.model.tolist() == [0, 0, 1, 1]
    assert found.question.tolist() == [0, 0, 1, 0]
    assert found.outcome.tolist() == [1, 1, 0.5, 0]
    assert [problem.split(": ")[0] for problem in found.problems] == [f"{path}:5", f"{path}:6"]


def test_a_file_without_battles(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no battles in it"):
        read_battles(write_lines(tmp_path / "battles.jsonl", [{"uid": "q1"}]))


def test_real_battles() -> None:
    found = read_battles(real_data("v01-battles", "dw_20240806_battles.jsonl"))
    assert (len(found.outcome), len(found.models), found.baselines, found.problems) == (26_245, 16, ("gpt-4-0314",), ())
    mean = found.outcome[found.model == found.models.index("gpt-4o")].mean()
    assert round(100 * mean, 2) == 89.66
