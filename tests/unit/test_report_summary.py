"""What a board says in words: numbers right, and nothing said that the numbers don't hold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from automate.results.boards import Board, Comparison, Options, Quality, Score
from automate.results.reporting.content import Content
from automate.results.reporting.summary import listed, p_value, percent, points, summarize, warn
from automate.results.reporting.tables import axis_of, board_rows, category_rows

BASE = Score("base", 50.0, 50.0, 50.0, is_baseline=True, rank_low=2, rank_high=3)
BEST = Score("best", 62.34, 58.0, 66.5, 1000, 500, 1, 1)
NEXT = Score("next", 55.0, 49.0, 61.0, 1000, 500, 2, 3)
LAST = Score("last", 31.0, 27.0, 35.2, 998, 499, 4, 4)
BOARD = Board((BEST, NEXT, BASE, LAST), Options(), ("base",), ("judge",))
AHEAD = Comparison("best", "next", 7.34, 2.1, 12.5, 0.0061, 500, 260, 180, 60, 5.2)


def said(board: Board = BOARD, comparison: Comparison | None = AHEAD, **more: object) -> str:
    return "\n".join(summarize(board, comparison, **more))  # type: ignore[arg-type]


def test_the_best_and_by_how_much() -> None:
    text = said()
    assert "The best of 3 models is best with a score of 62.3 (95 % interval 58.0 to 66.5), on 500 questions" in text
    assert "It leads next by 7.3 points (95 % interval of the difference 2.1 to 12.5, p = 0.006)" in text
    assert "a difference of 5.2 points can be seen" in text
    assert "it stands apart from all others" in text
    assert "1 is better, 1 is worse and 1 is neither for certain" in text


def test_what_cannot_be_told_apart() -> None:
    close = replace(BOARD, scores=(replace(BEST, rank_high=2), replace(NEXT, rank_low=1), BASE, LAST))
    text = said(close, replace(AHEAD, low=-1.0, p_value=0.2))
    assert "It can't be told apart from next: the difference is 7.3 points" in text
    assert "interval of the difference −1.0 to 12.5, p = 0.20" in text
    assert "1 model can't be told apart from the best: next" in text
    assert "stands apart" not in text
    assert "Taken alone, its lead over next" in said(close)
    assert "leads" not in said(close)
    assert "it is behind next" in said(close, replace(AHEAD, difference=-3.0, low=-5.0, high=-1.0))


def test_a_baseline_on_top_does_not_hide_who_is_level() -> None:
    board = replace(BOARD, scores=(replace(BASE, rank_low=1, rank_high=1), replace(NEXT, rank_low=2),
                                   replace(LAST, rank_low=2)))
    assert "1 model can't be told apart from the best: last" in said(board, None)


def test_unknown_ranks_claim_nothing() -> None:
    scores = tuple(replace(score, rank_low=0, rank_high=0) for score in BOARD.scores)
    assert "All pairs" not in said(replace(BOARD, scores=scores))


def test_style_control_and_categories() -> None:
    styled = replace(BOARD, scores=(LAST, BEST, BASE, NEXT))
    assert "the best is last; last moves most, from place 3 to 1" in said(styled=styled)
    assert "the order is the same" in said(styled=BOARD)
    other = replace(BOARD, scores=(NEXT, BEST, BASE))
    assert "By category the first is another: next in hard." in said(by_category={"easy": BOARD, "hard": other})
    assert "It is first in each of the 2 categories." in said(by_category={"easy": BOARD, "hard": BOARD})
    assert "categor" not in said(by_category={"easy": BOARD})


def test_one_model_and_none() -> None:
    alone = said(replace(BOARD, scores=(BEST, BASE)), None)
    assert "The only model is best" in alone
    assert "it is better than the baseline" in alone
    assert "it can't be told apart from the baseline" in said(replace(BOARD, scores=(NEXT, BASE)), None)
    assert "No model has a game with a verdict" in said(replace(BOARD, scores=(BASE,)), None)


def test_warnings_come_once() -> None:
    bad = Quality("judge", None, 1000, 500, 0.31, 0.5, 0.6, 0.3, 0.1)
    told = warn([replace(BOARD, warnings=("few questions",)), replace(BOARD, warnings=("few questions",))], [bad])
    assert told == ("few questions", "judge 'judge': on 31 % of the questions the two orders name different winners")
    assert warn([], [replace(bad, model="one", warnings=("of one",))]) == ("of one",)
    assert warn([], [replace(bad, model="one")]) == ()
    assert warn([], [replace(bad, warnings=("its own words",))]) == ("its own words",)


@pytest.mark.parametrize(("value", "text"), [(0.04, "0.0"), (-0.04, "0.0"), (-2.55, "−2.5"), (float("nan"), "–")])
def test_numbers(value: float, text: str) -> None:
    assert points(value) == text
    assert percent(None) == "–"


def test_p_values_and_lists() -> None:
    assert [p_value(value) for value in (0.0001, 0.0213, 0.35, float("nan"))] == [
        "p < 0.001", "p = 0.021", "p = 0.35", "p unknown"]
    assert listed(["a"]) == "a"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert listed(list("abcdefg")) == "a, b, c, d and 3 more"


def test_rows_of_the_table() -> None:
    quality = (Quality("j1", "best", 100, 50, 0.2, 0.7, 0.5, 0.4, 0.1, {"unparsed": 2}),
               Quality("j2", "best", 300, 150, 0.4, 0.5, 0.5, 0.4, 0.1, {"null": 1}))
    rows, axis = board_rows(Content("b", "now", BOARD, (), styled=replace(BOARD, scores=(NEXT, BEST)), quality=quality))
    assert [(row.place, row.ranks, row.model) for row in rows] == [
        (1, "1", "best"), (2, "2–3", "next"), (3, "2–3", "base"), (4, "4", "last")]
    assert rows[0].flips == pytest.approx(0.35)
    assert rows[0].nulls == 3
    assert rows[0].styled == BEST
    assert rows[3].styled is None
    assert (axis.start, axis.end) == (20.0, 70.0)
    bar = rows[0].bar
    assert bar is not None
    assert bar.low < bar.score < bar.high
    assert rows[3].bar is not None and rows[3].bar.high < bar.middle < bar.low


def test_scores_that_are_none_have_no_bar() -> None:
    nothing = replace(BEST, score=float("nan"), low=float("nan"), high=float("nan"))
    assert axis_of([nothing]).bar(nothing) is None
    assert axis_of([BASE]).end > axis_of([BASE]).start
    no_interval = replace(BEST, low=float("nan"), high=float("nan"))
    bar = axis_of([no_interval]).bar(no_interval)
    assert bar is not None and bar.low == bar.high == bar.score


def test_categories_that_only_some_models_have() -> None:
    rows = category_rows(BOARD, {"hard": replace(BOARD, scores=(BEST,)), "easy": BOARD})
    assert [score and score.score for score in rows[1].scores] == [55.0, None, 55.0]


def test_a_style_controlled_boards_own_warnings_are_said_to_be_its() -> None:
    styled = replace(BOARD, options=replace(BOARD.options, style=("length",)), warnings=("shared", "of fewer"))
    assert warn([replace(BOARD, warnings=("shared",)), styled], []) == ("shared", "with style control: of fewer")


def test_scores_across_baselines_have_no_best() -> None:
    board = replace(BOARD, baselines=("base", "other"), comparable=False)
    assert summarize(board) == ("3 models were judged against base and other. Scores against different baselines can't "
                                "be compared, so no model is called the best, and there are no ranks.",)
    rows, _ = board_rows(Content("b", "now", board, ()))
    assert {row.ranks for row in rows} == {"–"}
