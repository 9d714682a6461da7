"""The plain default scores and their intervals: weighted means, questions resampled together."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from automate.errors import ConfigError, DataError
from automate.results.boards import Options
from automate.results.scoring.intervals import (
    draws,
    interval,
    quantile,
    question_scores,
    resampled_scores,
    score_interval,
    spread,
)
from automate.results.scoring.scores import leaderboard
from tests.unit.scores_support import battles, expected, random_battles, real_battles, row_of

HAND = [("m", "q1", 1, 2), ("m", "q2", -1, 0)]


@pytest.mark.parametrize(("weight", "score"), [(3.0, 75.0), (1.0, 62.5), (2.0, 70.0)])
def test_a_score_is_the_weighted_mean_of_games(weight: float, score: float) -> None:
    board = leaderboard(battles(HAND), Options(strong_weight=weight))
    assert row_of(board, "m").score == pytest.approx(score)
    assert (row_of(board, "m").games, row_of(board, "m").questions) == (4, 2)


def test_sums_by_question() -> None:
    won, weight = question_scores(battles([*HAND, ("n", "q2", -2, -2)]), Options())
    assert won.tolist() == [[4.0, 0.5], [0.0, 0.0]]
    assert weight.tolist() == [[4.0, 2.0], [0.0, 6.0]]


def test_the_baseline_stands_at_50_between_the_models() -> None:
    board = leaderboard(battles([("good", "q1", 1, 1), ("good", "q2", 1, 0), ("bad", "q1", -1, -1),
                                 ("bad", "q2", -1, 0)]), Options())
    assert [(row.model, row.score, row.is_baseline) for row in board.scores] == [
        ("good", 87.5, False), ("base", 50.0, True), ("bad", 12.5, False)]
    assert (board.scores[1].low, board.scores[1].high) == (50.0, 50.0)


def test_rows_without_both_verdicts_are_left_out_and_said() -> None:
    board = leaderboard(battles([*HAND, ("m", "q3", None, 2), ("m", "q4", None, None)]), Options())
    row = row_of(board, "m")
    assert row.score == pytest.approx(75.0)
    assert (row.games, row.questions) == (4, 2)
    assert any("2 of 4 rows left out" in note for note in board.notes)


def test_a_model_without_a_usable_question_is_named_not_scored() -> None:
    board = leaderboard(battles([*HAND, ("empty", "q1", None, 1)]), Options())
    assert board.score_of("empty") is None
    assert any("no score for 1 model " in note and "empty" in note for note in board.notes)


def test_what_no_score_can_be_computed_from_is_refused() -> None:
    with pytest.raises(DataError, match="no judgments"):
        leaderboard(battles([]), Options())
    with pytest.raises(DataError, match=r"no question has verdicts in both games \(1 rows were read\)"):
        leaderboard(battles([("m", "q1", None, None)]), Options())
    with pytest.raises(DataError, match="no judgment is of the category math"):
        leaderboard(battles(HAND), Options(category="math"))
    with pytest.raises(ConfigError, match="no style feature is called colour"):
        leaderboard(battles(HAND), Options(style=("colour",)))


def test_a_category_alone_and_all_together() -> None:
    found = battles([("m", "q1", 1, 1), ("m", "q2", 1, 1), ("m", "q3", -1, -1)],
                    category={"q3": "hard"}, baseline={"hard": "strong"})
    assert row_of(leaderboard(found, Options(category="c")), "m").score == 100.0
    hard = leaderboard(found, Options(category="hard"))
    assert (row_of(hard, "m").score, hard.baselines) == (0.0, ("strong",))
    both = leaderboard(found, Options())
    assert row_of(both, "m").score == pytest.approx(200 / 3)
    assert both.baselines == ("base", "strong")
    assert both.score_of("base") is None
    assert any("2 categories together (c, hard), each against its own baseline" in note for note in both.notes)


def test_two_baselines_of_one_category_are_warned_of() -> None:
    mixed = battles([("m", "q1", 1, 1), ("m", "q2", 1, 1)], category={"q2": "other"}, baseline={"other": "b2"})
    one = type(mixed)(mixed.models, mixed.questions, ("c",), mixed.baselines, mixed.judges, mixed.model,
                      mixed.question, np.zeros(2, np.int32), mixed.baseline, mixed.judge, mixed.first, mixed.second)
    assert any("judgments against 2 baselines (base, b2)" in text for text in leaderboard(one, Options()).warnings)


def test_a_baseline_judged_against_itself_has_one_row() -> None:
    board = leaderboard(battles([("base", "q1", 1, 0), ("m", "q1", 1, 1)]), Options())
    assert [row.model for row in board.scores].count("base") == 1
    assert row_of(board, "base").score == 75.0
    assert any("judged against itself" in note for note in board.notes)


def test_a_question_is_drawn_whole() -> None:
    """Two questions, one all won and one all lost: a round is one, the other or both, and never a share of games."""
    rounds = resampled_scores(battles([("m", "q1", 1, 1), ("m", "q2", -1, -1)]), Options(rounds=200))
    assert set(np.unique(rounds)) == {0.0, 50.0, 100.0}


def test_all_models_have_the_same_draws() -> None:
    found = battles([(model, f"q{number}", number % 3 - 1, number % 5 - 2) for model in "ab" for number in range(40)])
    rounds = resampled_scores(found, Options())
    assert np.array_equal(rounds[:, 0], rounds[:, 1])
    assert rounds.std() > 0


def test_the_seed_decides_the_draws() -> None:
    found = random_battles({"m": 0.3}, 50)
    first, again, other = (resampled_scores(found, Options(seed=seed)) for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_every_category_keeps_its_number_of_questions() -> None:
    kinds = {f"q{number}": "few" for number in range(3)}
    found = battles([("m", f"q{number}", 1, 1) for number in range(20)], category=kinds)
    counts = draws(found, Options(rounds=50))
    assert (counts[:, :3].sum(axis=1) == 3).all()
    assert (counts[:, 3:].sum(axis=1) == 17).all()
    assert counts[:, :3].std() > 0


def test_a_round_without_a_game_of_a_model_is_unknown() -> None:
    found = battles([("m", f"q{number}", 1, -1) for number in range(10)] + [("rare", "q0", 1, 1)])
    rounds = resampled_scores(found, Options(rounds=200))
    assert np.isnan(rounds[:, 1]).any()
    assert np.isfinite(rounds[:, 0]).all()


def test_the_spread_of_a_mean_is_its_standard_error() -> None:
    """One game a question with the same weights: the textbook formula, which the resampling comes near."""
    verdicts = [[1, 1, 0, -1][number % 4] for number in range(80)]
    found = battles([("m", f"q{number}", verdict, verdict) for number, verdict in enumerate(verdicts)])
    won = np.array([[1, 1, 0.5, 0][number % 4] for number in range(80)]) * 100
    error = won.std(ddof=1) / np.sqrt(80)
    assert spread(resampled_scores(found, Options(rounds=20_000))[:, 0], 80) == pytest.approx(error, rel=0.02)


def test_the_spread_of_few_questions_is_put_right() -> None:
    """A mean of n drawn from n varies by n - 1 to n too little; what is unknown does not count."""
    assert spread(np.array([40.0, 60.0, np.nan]), 2) == pytest.approx(np.sqrt(200) * np.sqrt(2))
    assert np.isnan(spread(np.array([40.0, 60.0]), 1))


def test_the_interval_is_students_on_the_logit_scale() -> None:
    low, high = interval(20.0, 4.0, 25, 95.0)
    reach = 2.0639 * 0.04 / (0.2 * 0.8)
    logit = np.log(0.2 / 0.8)
    assert low == pytest.approx(100 / (1 + np.exp(-(logit - reach))), abs=0.01)
    assert high == pytest.approx(100 / (1 + np.exp(-(logit + reach))), abs=0.01)
    assert quantile(95.0, 25) == pytest.approx(2.0639, abs=1e-4)


@pytest.mark.parametrize(("score", "questions", "bounds"), [
    (100.0, 10, (100 * 0.025 ** 0.1, 100.0)), (0.0, 10, (0.0, 100 - 100 * 0.025 ** 0.1)), (50.0, 1, (0.0, 100.0))])
def test_the_interval_where_nothing_varies(score: float, questions: int, bounds: tuple[float, float]) -> None:
    assert interval(score, 0.0, questions, 95.0) == pytest.approx(bounds)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("score", [1e-15, 100 - 1e-13])
def test_a_fitted_score_next_to_certain_has_the_interval_of_a_certain_one(score: float) -> None:
    certain = float(round(score))
    found = score_interval(score, np.array([0.0, 40.0, 100.0]), 10, 95.0)
    assert found == pytest.approx(interval(certain, 0.0, 10, 95.0))


def test_a_model_that_wins_everything_has_an_honest_interval() -> None:
    row = row_of(leaderboard(battles([("m", f"q{number}", 2, 2) for number in range(20)]), Options()), "m")
    assert (row.score, row.high) == (100.0, 100.0)
    assert 80 < row.low < 90


def test_more_confidence_is_a_wider_interval() -> None:
    found = random_battles({"m": 0.3}, 60)
    widths = [row.high - row.low for confidence in (80.0, 95.0, 99.0)
              for row in leaderboard(found, Options(confidence=confidence)).scores if not row.is_baseline]
    assert widths == sorted(widths)
    assert widths[0] < widths[2]


def test_few_questions_and_unlike_questions_are_warned_of() -> None:
    found = battles([("m", f"q{number}", 1, -1) for number in range(40)] + [("few", "q0", 1, 1), ("few", "q1", 1, -1)])
    warnings = leaderboard(found, Options()).warnings
    assert any("few questions" in text and "few 2" in text and "m 40" not in text for text in warnings)
    assert any("not judged on the same questions: of the 40" in text and "1 model lacks some (few 2)" in text
               for text in warnings)


def test_as_many_questions_are_not_the_same_ones() -> None:
    same = battles([(model, f"q{number}", 1, -1) for model in "ab" for number in range(30)])
    assert leaderboard(same, Options()).warnings == ()
    shifted = battles([(model, f"q{number + start}", 1, -1) for model, start in (("a", 0), ("b", 1))
                       for number in range(30)])
    (warning,) = leaderboard(shifted, Options()).warnings
    assert "of the 31 that any model has both verdicts on, 2 models lack some (a 30, b 30)" in warning


def test_warnings_of_a_category_name_it() -> None:
    found = battles([*HAND, ("empty", "q3", 1, 1)], category={"q3": "other"})
    board = leaderboard(found, Options(category="c"))
    assert "few questions, so rough intervals in category c: m 2" in board.warnings
    assert "no score for 1 model without a usable question in category c: empty" in board.notes


def test_the_real_models_have_the_published_scores() -> None:
    found, _ = real_battles()
    board = leaderboard(found, Options(rounds=50))
    with expected("weighted_mean.csv").open(encoding="utf-8") as file:
        rows = list(csv.reader(file))[1:]
    assert len(rows) == 24
    for model, score, published in rows:
        assert row_of(board, model).score == pytest.approx(float(score), abs=1e-5)
        assert f"{row_of(board, model).score:.2f}" == f"{float(published):.2f}"
