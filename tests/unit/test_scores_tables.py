"""What tables say beside their scores: what they can show, and warnings that are told once."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pytest

from automate.cli.views.board_rows import ASCII
from automate.cli.views.board_text import lines
from automate.results.boards import Options
from automate.results.scoring.tables import Request, Tables, make_tables
from tests.unit.reading_support import JUDGE, Row, bench, row, rows

WIN, LOSS, TIE = ("B>A", "A>B"), ("A>B", "B>A"), ("A=B", "A=B")


def tables(root: Path, files: dict[str, list[Row]], **options: object) -> Tables:
    return make_tables(bench(root, files), Request(Options(rounds=100), (JUDGE,), **options))  # type: ignore[arg-type]


def text(found: Tables) -> str:
    return " ".join(" ".join(line.plain.split()) for line in lines(found, 100, ASCII))


def in_two_categories(count: int, **more: object) -> list[Row]:
    return [row(f"q{number}", category="even" if number % 2 else "odd", **more) for number in range(count)]


def test_few_questions_of_the_same_models_are_told_of_once(tmp_path: Path) -> None:
    found = tables(tmp_path, {"one": in_two_categories(20), "two": in_two_categories(20)})
    every = [warning for table in (*found.tables, *found.split) for warning in table.board.warnings]  # type: ignore[union-attr]
    assert every == ["few questions, so rough intervals: one, two (all 20; odd 10; even 10)"]


def test_few_questions_of_a_category_alone_name_it(tmp_path: Path) -> None:
    found = tables(tmp_path, {"one": in_two_categories(50), "two": in_two_categories(50)})
    every = [warning for table in (*found.tables, *found.split) for warning in table.board.warnings]  # type: ignore[union-attr]
    assert every == [f"few questions, so rough intervals in category {category}: one 25, two 25"
                     for category in ("odd", "even")]


@pytest.mark.parametrize("labels", [[TIE], [WIN]])
def test_what_uniform_verdicts_can_show_is_not_said(tmp_path: Path, labels: list[tuple[str, str]]) -> None:
    files = {model: rows(40, labels) for model in ("one", "two")}
    found = tables(tmp_path, files)
    assert found.tables[0].detectable is None
    assert "can't be said from so few or such uniform verdicts" in text(found)
    assert "about 0.0 points" not in text(found)
    pair = tables(tmp_path, files, compare=("one", "two"))
    assert "can't be said from so few or such uniform verdicts" in text(pair)
    assert asdict(pair.tables[0].comparison)["detectable"] is None  # type: ignore[arg-type]


def test_three_questions_show_no_difference_of_over_100_points(tmp_path: Path) -> None:
    found = tables(tmp_path, {"one": rows(3, [WIN, LOSS, TIE]), "two": rows(3, [LOSS, WIN, WIN])})
    assert found.tables[0].detectable is None


def test_what_many_questions_can_show_is_said(tmp_path: Path) -> None:
    found = tables(tmp_path, {"one": rows(60, [WIN, LOSS, TIE]), "two": rows(60, [LOSS, WIN, WIN])})
    assert found.tables[0].detectable is not None
    assert "Smallest difference between neighbours that 60 questions can show: about" in text(found)
