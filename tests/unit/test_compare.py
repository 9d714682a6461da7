"""Two models on shared questions, and the groups that can't be told apart."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from automate.errors import DataError
from automate.results.battles import Battles
from automate.results.boards import Options
from automate.results.scoring.compare import compare, detectable, groups, holm, neighbours, p_value, standing
from automate.results.scoring.scores import leaderboard
from tests.unit.scores_support import Row, battles, random_battles, random_style, real_battles, row_of


def test_the_difference_is_on_shared_questions_alone() -> None:
    found = battles([("a", "q1", 1, 1), ("a", "q2", 1, -1), ("a", "only-a", 2, 2), ("b", "q1", -1, -1),
                     ("b", "q2", 1, 1), ("b", "only-b", -2, -2), ("a", "half", 1, None), ("b", "half", 1, 1)])
    result = compare(found, "a", "b", Options())
    assert result.difference == pytest.approx(75.0 - 50.0)
    assert (result.questions, result.wins, result.losses, result.ties) == (2, 1, 1, 0)


def test_the_other_way_round_is_the_opposite() -> None:
    found = random_battles({"a": 0.3, "b": 0.0, "c": 0.1}, 80)
    one, other = compare(found, "a", "b", Options()), compare(found, "b", "a", Options())
    assert one.difference == pytest.approx(-other.difference)
    assert (one.low, one.high) == pytest.approx((-other.high, -other.low))
    assert one.p_value == pytest.approx(other.p_value)
    assert (one.wins, one.losses) == (other.losses, other.wins)


def test_a_model_and_its_copy_do_not_differ() -> None:
    found = battles([(model, f"q{number}", number % 3 - 1, number % 5 - 2) for model in "ab" for number in range(30)])
    result = compare(found, "a", "b", Options())
    assert (result.difference, result.low, result.high, result.p_value, result.ties) == (0.0, 0.0, 0.0, 1.0, 30)


def test_pairing_makes_the_interval_narrower() -> None:
    """Two models that find the same questions hard: unpaired, their difference would be far less sure."""
    found = random_battles({"a": 0.2, "b": 0.0}, 200)
    board = leaderboard(found, Options())
    widths = [score.high - score.low for score in board.scores if not score.is_baseline]
    result = compare(found, "a", "b", Options())
    assert result.high - result.low < 0.9 * float(np.hypot(widths[0], widths[1]))


@pytest.mark.parametrize("style", [(), ("length", "markdown")])
def test_p_value_and_interval_never_contradict_each_other(style: tuple[str, ...]) -> None:
    decided = set()
    for number in range(12):
        found = random_battles({"a": number / 12, "b": 0.0}, 60, seed=number)
        result = compare(found, "a", "b", Options(style=style, rounds=200), random_style(found))
        assert (result.p_value < 0.05) == (result.low > 0 or result.high < 0)
        assert result.low <= result.difference <= result.high
        decided.add(result.p_value < 0.05)
    assert decided == {True, False}


def test_the_baseline_can_be_compared_with() -> None:
    found = random_battles({"a": 0.5, "b": 0.0}, 100)
    result = compare(found, "a", "base", Options())
    score = row_of(leaderboard(found, Options()), "a")
    assert result.difference == pytest.approx(score.score - 50)
    assert result.p_value < 0.05
    assert compare(found, "base", "a", Options()).difference == pytest.approx(-result.difference)


def test_what_can_not_be_compared_is_refused() -> None:
    found = battles([("a", "q1", 1, 1), ("b", "q2", 1, 1)])
    with pytest.raises(DataError, match="no question in common"):
        compare(found, "a", "b", Options())
    with pytest.raises(DataError, match="no judgments of nobody"):
        compare(found, "a", "nobody", Options())
    with pytest.raises(DataError, match="itself"):
        compare(found, "a", "a", Options())


def test_one_shared_question_says_nothing() -> None:
    result = compare(battles([("a", "q1", 1, 1), ("b", "q1", -1, -1)]), "a", "b", Options())
    assert (result.low, result.high, result.p_value) == (-100.0, 100.0, 1.0)


def test_style_control_reaches_the_comparison() -> None:
    found = random_battles({"a": 0.4, "b": 0.0, "c": -0.4}, 60)
    style = random_style(found)
    options = Options(style=("length", "markdown"))
    board = leaderboard(found, options, style)
    result = compare(found, "a", "b", options, style)
    assert result.difference == pytest.approx(row_of(board, "a").score - row_of(board, "b").score)
    assert result.difference != pytest.approx(compare(found, "a", "b", Options()).difference)


def test_p_values_by_hand() -> None:
    assert p_value(3.0, 1.5, 25) == pytest.approx(2 * stats.t.sf(2.0, 24))
    assert p_value(0.0, 0.0, 25) == 1.0
    assert p_value(100.0, 0.0, 5) == pytest.approx(2 * 0.5**5)
    assert p_value(1.0, float("nan"), 1) == 1.0


def test_the_detectable_difference_is_found_with_80_percent_power() -> None:
    assert detectable(2.0, 10_000, 95.0) == pytest.approx(2.0 * (1.96 + 0.8416), rel=1e-3)
    generator, error, questions = np.random.default_rng(3), 2.0, 500
    true = detectable(error, questions, 95.0)
    assert true is not None
    found = generator.normal(true, error, 4000)
    share = np.mean([p_value(difference, error, questions) < 0.05 for difference in found])
    assert share == pytest.approx(0.8, abs=0.02)


def test_a_true_null_is_rejected_as_often_as_promised() -> None:
    """300 pairs of equally good models: about 15 are called different at 95 %; 3 to 30 is where chance leads."""
    called = sum(compare(random_battles({"a": 0.1, "b": 0.1}, 80, seed=seed), "a", "b",
                         Options(rounds=200, seed=seed)).p_value < 0.05 for seed in range(300))
    assert 3 <= called <= 30


def test_holm_step_by_step() -> None:
    assert holm(np.array([0.010, 0.040, 0.030, 0.005]), 0.05).tolist() == [True, False, False, True]
    assert holm(np.array([0.02, 0.01]), 0.05).tolist() == [True, True]
    assert holm(np.array([0.03, 0.03]), 0.05).tolist() == [False, False]
    assert holm(np.zeros(0), 0.05).tolist() == []


def test_groups_that_can_not_be_told_apart() -> None:
    found = random_battles({"far ahead": 2.0, "one": 0.6, "two": 0.6, "behind": -1.5}, 150)
    options = Options()
    board = groups(leaderboard(found, options), found, options)
    ranks = {row.model: (row.rank_low, row.rank_high) for row in board.scores}
    assert ranks == {"far ahead": (1, 1), "one": (2, 3), "two": (2, 3), "base": (4, 4), "behind": (5, 5)}


def test_groups_are_paired_by_question() -> None:
    """One model is a little better on nearly every question, and questions differ widely: only pairing shows it."""
    rows: list[Row] = []
    for number in range(200):
        hard = number % 2
        rows += [("a", f"q{number}", -1 if hard else 1, (0 if number % 8 < 4 else -1) if hard else 1),
                 ("b", f"q{number}", -1 if hard else 1, -1 if hard else 1)]
    found = battles(rows)
    board = groups(leaderboard(found, Options()), found, Options())
    first, second = row_of(board, "a"), row_of(board, "b")
    assert second.low < first.score < second.high
    assert first.rank_high < second.rank_high
    assert second.rank_low > first.rank_low


def without(found: Battles, model: str, worst: int) -> Battles:
    """The verdicts of `model` again as `nohard`, without its worst questions: a score that is no fair one."""
    at = np.flatnonzero(found.model == found.models.index(model))
    kept = at[np.argsort(found.first[at].astype(int) + found.second[at], kind="stable")][worst:]
    rows = np.concatenate([np.arange(len(found)), kept])
    again = found.take(rows)
    again.model[len(found):] = len(found.models)
    return replace(again, models=(*found.models, "nohard"))


def test_ranks_are_of_shared_questions() -> None:
    """Questions left out make a score higher, and nobody better."""
    found = without(random_battles({"full": 0.1, "other": -0.1, "far ahead": 2.0}, 200), "full", 60)
    board = groups(leaderboard(found, Options()), found, Options())
    assert row_of(board, "nohard").score > row_of(board, "full").score + 10
    assert row_of(board, "full").rank_low <= row_of(board, "nohard").rank_low == 2
    assert row_of(board, "far ahead").rank_high == 1
    assert "nohard 140" in board.warnings[0]


def test_ranks_with_style_control_are_of_shared_questions() -> None:
    found, options = without(random_battles({"full": 0.1, "other": -0.1}, 120), "full", 40), Options(style=("length",))
    style = random_style(found)
    style = replace(style, counts={**style.counts, "nohard": style.counts["full"]})
    board, between = standing(leaderboard(found, options, style), found, options, style)
    names = [row.model for row in board.scores]
    one, two = names.index("nohard"), names.index("full")
    assert between.differences[one, two] == pytest.approx(0.0, abs=1e-9)
    assert between.questions[one, two] == 80
    assert row_of(board, "nohard").score > row_of(board, "full").score + 5
    assert row_of(board, "full").rank_low <= row_of(board, "nohard").rank_low


@pytest.mark.parametrize(("missing", "style"), [(0, ()), (1, ()), (30, ()), (0, ("length",))])
def test_ranks_and_comparisons_never_contradict_each_other(missing: int, style: tuple[str, ...]) -> None:
    """Also where each model lacks other questions."""
    full = random_battles({"a": 0.2, "b": 0.0, "c": 0.3}, 90)
    found = full.take((full.question + 30 * full.model) % 90 >= missing)
    options, counts = Options(style=style, rounds=200), random_style(found)
    board, between = standing(leaderboard(found, options, counts), found, options, counts)
    for one, first in enumerate(board.scores):
        for two, second in enumerate(board.scores):
            if one != two:
                alone = compare(found, first.model, second.model, options, counts)
                assert between.differences[one, two] == pytest.approx(alone.difference, abs=1e-9)
                assert detectable(between.errors[one, two], alone.questions, 95.0) == pytest.approx(alone.detectable)


def test_many_sets_of_questions_with_style_control_come_near_the_comparison() -> None:
    """No fit for each pair any more; still on shared questions, unlike the scores."""
    full = without(random_battles({"a": 0.9, "full": 0.1, "c": -0.9}, 150), "full", 50)
    found, options = full.take(full.question // 3 != full.model), Options(style=("length",))
    style = random_style(found)
    style = replace(style, counts={**style.counts, "nohard": style.counts["full"]})
    board, between = standing(leaderboard(found, options, style), found, options, style)
    names = [row.model for row in board.scores]
    for one, first in enumerate(names):
        for two, second in enumerate(names[:one]):
            alone = compare(found, first, second, options, style)
            assert between.questions[one, two] == alone.questions
            assert between.differences[one, two] == pytest.approx(alone.difference, abs=0.5)
    own = row_of(board, "nohard").score - row_of(board, "full").score
    assert own > 5
    assert abs(between.differences[names.index("nohard"), names.index("full")]) < 0.5


def test_what_can_be_shown_is_not_always_known() -> None:
    """Nothing varies; so few questions that only more than 100 points could be found; one question."""
    assert detectable(0.0, 500, 95.0) is None
    assert detectable(40.0, 3, 95.0) is None
    assert detectable(float("nan"), 1, 95.0) is None
    copies = battles([(model, f"q{number}", 1, 1) for model in "ab" for number in range(30)])
    assert compare(copies, "a", "b", Options()).detectable is None
    board, between = standing(leaderboard(copies, Options()), copies, Options())
    assert neighbours(between, range(len(board.scores)), 95.0) is None


def test_a_single_question_tells_nobody_apart() -> None:
    found = battles([("a", "q1", 2, 2), ("b", "q1", -2, -2)])
    board = groups(leaderboard(found, Options()), found, Options())
    assert {(row.rank_low, row.rank_high) for row in board.scores} == {(1, 3)}


def test_one_model_and_several_baselines_have_ranks() -> None:
    found = battles([("a", f"q{number}", 1, number % 2) for number in range(30)], category={"q0": "x"},
                    baseline={"x": "other"})
    board = groups(leaderboard(found, Options()), found, Options())
    assert [(row.model, row.rank_low, row.rank_high) for row in board.scores] == [("a", 1, 1)]


def test_groups_with_style_and_in_the_compatible_mode() -> None:
    found = random_battles({"a": 1.5, "b": -1.5}, 60)
    style = random_style(found)
    for options in (Options(style=("length",)), Options("compatible", ("length", "markdown"), "c")):
        board = groups(leaderboard(found, options, style), found, options, style)
        assert [(row.model, row.rank_low, row.rank_high) for row in board.scores] == [
            ("a", 1, 1), ("base", 2, 2), ("b", 3, 3)]


def test_the_real_models_fall_into_groups() -> None:
    found, _ = real_battles()
    options = Options()
    board = groups(leaderboard(found, options), found, options)
    first = board.scores[0]
    assert (first.model, first.rank_low, first.rank_high) == ("o3-medium", 1, 1)
    assert all(row.rank_low <= place <= row.rank_high for place, row in enumerate(board.scores, 1))
    few = groups(board, found, replace(options, confidence=99.9))
    assert all(wide.rank_high - wide.rank_low >= row.rank_high - row.rank_low
               for wide, row in zip(few.scores, board.scores, strict=True))
    result = compare(found, "o1-medium", "gemini-2.0-flash-001", options)
    assert result.p_value > 0.5
    assert result.detectable is not None
    assert 5 < result.detectable < 10
