"""How far a judge's verdicts can be trusted, counted from small made-up games and from real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.results.battles import Judgments, Style
from automate.results.boards import Quality
from automate.results.reading.folder import of_data
from automate.results.reading.judgments import read_judgments
from automate.results.reading.style import read_style
from automate.results.scoring.quality import judge_agreement, judge_quality
from tests.unit.reading_support import JUDGE, Row, answers, bench, row, rows
from tests.unit.support import real_data

WIN, LOSS, TIE = ("B>A", "A>B"), ("A>B", "B>A"), ("A=B", "A=B")
FIRST, SECOND = ("A>B", "A>B"), ("B>A", "B>A")


def read(root: Path, **files: list[Row]) -> Judgments:
    return read_judgments(bench(root, files), (JUDGE,))


def quality(found: Judgments, style: Style | None = None) -> dict[str | None, Quality]:
    return {one.model: one for one in judge_quality(found.battles, style, found.tallies)}


def test_order_place_and_ties(tmp_path: Path) -> None:
    """Ten questions: 3 won, 2 lost, 2 ties, 2 by the first place, 1 a win and a tie."""
    labels = [WIN] * 3 + [LOSS] * 2 + [TIE] * 2 + [FIRST] * 2 + [("B>>A", "A=B")]
    one = quality(read(tmp_path, m1=rows(10, labels)))["m1"]
    assert (one.games, one.questions) == (20, 10)
    assert one.agreement == 0.7
    assert one.flips == 0.2
    assert one.ties == 5 / 20
    assert one.first_wins == (3 + 2 + 4) / 20  # a win of game 2, a loss of game 1, both games of FIRST
    assert one.second_wins == (3 + 2 + 1) / 20


def test_a_game_without_its_fellow_counts_for_places_only(tmp_path: Path) -> None:
    one = quality(read(tmp_path, m1=[row("q0", None, "A>B"), row("q1", *LOSS)]))["m1"]
    assert (one.games, one.questions, one.agreement) == (3, 1, 1.0)
    assert one.nulls == {"null": 1}


@pytest.mark.parametrize(("labels", "words"), [
    ([WIN, LOSS], []),
    ([FIRST, FIRST, WIN], ["the two orders agree on only 33.3%", "the first place wins"]),
    ([SECOND, WIN, LOSS, WIN], ["the second place wins 25.0 points more often"]),
    ([WIN] * 20 + [("A", "B>A")], ["2.4% of the games have no verdict (2 a label that none knows)"]),
])
def test_warnings_of_a_judge(tmp_path: Path, labels: list[tuple[str, str]], words: list[str]) -> None:
    found = quality(read(tmp_path, m1=rows(84, labels)))[None]
    assert len(found.warnings) == len(words)
    for text, word in zip(found.warnings, words, strict=True):
        assert word.replace("2 a label", "4 a label") in text


@pytest.mark.parametrize(("games", "lead", "warned"), [
    (49, 7, False), (50, 7, True), (500, 50, False), (500, 51, True)])
def test_a_place_that_wins_more_often(tmp_path: Path, games: int, lead: int, warned: bool) -> None:
    """Of so many pairs of games as many more are won by the first place as `lead`; 10 points are not above 10."""
    labels = [FIRST] * lead + [WIN] * (games - lead)
    (text,) = quality(read(tmp_path, m1=rows(games, labels)))[None].warnings or ("",)
    assert ("the first place wins" in text) == warned
    assert "10.0 points" not in text


def test_nulls_that_are_uneven_between_models(tmp_path: Path) -> None:
    found = quality(read(tmp_path, m1=rows(100), m2=[row(f"q{i}", None if i < 5 else "A>B") for i in range(100)]))
    assert any("uneven: 2.5% of 'm2', 0.0% of 'm1'" in text for text in found[None].warnings)
    assert any("on 'm2': 2.5% of the games have no verdict (5 null)" in text for text in found["m2"].warnings)
    assert found["m1"].warnings == ()


def test_few_games_of_a_model_warn_of_nothing(tmp_path: Path) -> None:
    found = quality(read(tmp_path, m1=rows(200), m2=rows(4, [FIRST])))
    assert found["m2"].warnings == ()
    assert found["m2"].agreement == 0


def test_length_and_verdicts(tmp_path: Path) -> None:
    """m1 wins where it is longer, m2 where it is shorter; both write more than the baseline on average."""
    folder = bench(tmp_path, {"m1": rows(20, [WIN] * 10 + [LOSS] * 10), "m2": rows(20, [LOSS] * 10 + [WIN] * 10)})
    answers(folder, "base", {f"q{i}": 100 for i in range(20)})
    for model in ("m1", "m2"):
        answers(folder, model, {f"q{i}": 300 - 10 * i for i in range(19)})
    found = read_judgments(folder, (JUDGE,))
    both = quality(found, read_style(folder, ["m1", "m2", "base"], found.battles.questions))
    assert both["m1"].length_correlation == pytest.approx(0.866, abs=0.01)
    assert both["m2"].length_correlation == pytest.approx(-0.866, abs=0.01)
    assert both[None].length_correlation == pytest.approx(0, abs=1e-9)
    style = read_style(folder, ["m1", "base"], found.battles.questions)
    alone = quality(read_judgments(folder, (JUDGE,), ["m1"]), style)
    assert "verdicts follow the answers' length (correlation +0.87" in alone[None].warnings[-1]


def test_length_that_is_not_known(tmp_path: Path) -> None:
    folder = bench(tmp_path, {"m1": rows(20)})
    found = read_judgments(folder, (JUDGE,))
    style = read_style(folder, ["m1", "base"], found.battles.questions)
    assert quality(found, style)[None].length_correlation is None
    assert quality(found, Style((), {}))[None].length_correlation is None


def test_two_judges(tmp_path: Path) -> None:
    """Of four games both judged: three with one winner. Kappa by hand: (3/4 - 3/8) / (1 - 3/8) = 0.6."""
    bench(tmp_path, {"m1": [row("q0", *WIN), row("q1", *LOSS), row("q2", None, None)]})
    folder = bench(tmp_path, {"m1": [row("q0", "B>>A", "A>B"), row("q1", "A>B", "A=B"), row("q2"), row("q3")]}, "two")
    (one,) = judge_agreement(read_judgments(folder, (JUDGE, "two")).battles)
    assert (one.first, one.second, one.games, one.agreement) == (JUDGE, "two", 4, 0.75)
    assert one.kappa == pytest.approx(0.6)


def test_judges_without_a_game_in_common(tmp_path: Path) -> None:
    bench(tmp_path, {"m1": rows(2)})
    folder = bench(tmp_path, {"m2": rows(2)}, "two")
    (one,) = judge_agreement(read_judgments(folder, (JUDGE, "two")).battles)
    assert one.games == 0


def test_the_real_judge() -> None:
    folder = of_data(real_data("leaderboard-dev", "data"), "ko")
    found = read_judgments(folder, ("ens",))
    style = read_style(folder, [*found.battles.models, *found.battles.baselines], found.battles.questions)
    judged = quality(found, style)
    whole = judged[None]
    assert (whole.games, whole.questions, whole.nulls) == (24_000, 12_000, {})
    assert [round(100 * share, 2) for share in (whole.agreement, whole.first_wins, whole.second_wins, whole.ties)] == [
        72.44, 52.10, 41.23, 6.66]
    assert len(judged) == 25
    assert whole.length_correlation == pytest.approx(0.472, abs=0.001)
