"""Curves on battles where the truth is known: points, best ones, means, rankings, and what is said of odd ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from automate.errors import ConfigError, DataError
from automate.results.battles import Battles
from automate.results.boards import Options
from automate.results.scoring.scores import leaderboard
from automate.results.training.curves import curves
from automate.results.training.data import Curves, Settled
from automate.results.training.rounds import around, best_shares, spearman_rounds
from automate.results.training.stop import stop
from tests.unit.curves_rig import OPTIONS, PATTERN, battles_of, drawn, exact, grid, name, without_verdicts
from tests.unit.scores_support import random_style


def of(wins: dict[str, int], final_step: int | None = None) -> Curves:
    return curves(exact(wins), OPTIONS, PATTERN, final_step=final_step)


def ladder(orders: dict[int | str, list[int]]) -> dict[str, int]:
    """Runs a, b, ... that win so many questions at each step."""
    return {name("abcdefgh"[run], step): won for step, wins in orders.items() for run, won in enumerate(wins)}


# --- points -------------------------------------------------------------------------------------
def test_points_have_the_leaderboards_scores_and_intervals() -> None:
    battles = grid([8, 64], ["1e5"], [100, 200, "final"])
    found = curves(battles, OPTIONS, PATTERN)
    board = leaderboard(battles, OPTIONS)
    assert len(found.points) == 6
    for point in found.points:
        score = board.score_of(point.checkpoint.model)
        assert score is not None
        assert (point.score, point.low, point.high, point.questions) == (score.score, score.low, score.high, 400)
        assert point.low < point.score < point.high


def test_a_run_that_improves_is_best_at_its_end_and_surely_so() -> None:
    (run,) = of({name("a", step): won for step, won in ((1000, 10), (2000, 40), (3000, 70), ("final", 90))}).runs
    assert [point.score for point in run.points] == [10, 40, 70, 90]
    assert run.best is run.end
    assert [point.share for point in run.points] == [0, 0, 0, 1]
    assert run.has_final


def test_of_equal_steps_the_first_is_best_and_half_sure() -> None:
    (run,) = of({name("a", 1): 50, name("a", 2): 50, name("a", 3): 20}).runs
    assert run.best.checkpoint.step == 1
    assert [point.share for point in run.points] == [0.5, 0.5, 0]


def test_an_end_without_a_step_is_drawn_after_the_last_one_and_marked() -> None:
    wins = {name("a", 1000): 10, name("a", 3000): 20, name("a", "final"): 30, name("b", 5000): 10}
    run = of(wins).runs[0]
    assert (run.end.place, run.end.guessed) == (5000, True)
    assert any("drawn after" in note for note in of(wins).notes)
    known = of(wins, final_step=3100)
    assert (known.runs[0].end.place, known.runs[0].end.guessed) == (3100, False)
    assert not any("drawn after" in note for note in known.notes)


def test_without_final_the_last_step_is_the_end_and_that_is_said() -> None:
    found = of({name("a", 1): 10, name("a", 2): 20, name("b", 1): 10, name("b", "final"): 20})
    assert found.runs[0].end.checkpoint.step == 2
    assert any("1 of 2 runs have no final checkpoint" in note and "a-rank64" in note for note in found.notes)


def test_names_that_do_not_fit_and_checkpoints_without_a_score_are_listed() -> None:
    battles = exact({name("a", 1): 10, "other": 40, name("a", 2): 30})
    found = curves(battles_of({**{model: np.stack([battles.first, battles.second], 1)[battles.model == at]
                                  for at, model in enumerate(battles.models)}, name("a", 3): without_verdicts()}),
                   OPTIONS, PATTERN)
    assert found.unmatched == ("other",)
    assert found.scoreless == (name("a", 3),)
    assert [point.checkpoint.step for point in found.points] == [1, 2]


def test_no_name_fits() -> None:
    found = of({"x": 10, "y": 20})
    assert (found.runs, found.columns, found.bests, found.settled) == ((), (), (), ())
    assert found.unmatched == ("x", "y")
    assert found.stop.text


def test_only_null_games() -> None:
    with pytest.raises(DataError):
        curves(battles_of({name("a", 1): without_verdicts()}), OPTIONS, PATTERN)


def test_a_pattern_that_can_not_be_used() -> None:
    with pytest.raises(ConfigError):
        curves(exact({"x": 10}), OPTIONS, "(")


def test_one_checkpoint_only() -> None:
    found = of({name("a", 5): 10})
    (run,) = found.runs
    assert run.best is run.points[0] is run.end
    assert run.points[0].share == 1
    assert found.settled == ()
    assert any("one checkpoint only" in note for note in found.notes)


def test_two_models_of_one_step_are_both_shown() -> None:
    found = curves(exact({"a-x-1": 30, "a-y-1": 60, "a-x-2": 50}), OPTIONS, r"(?P<run>a)-.-(?P<step>\d+)")
    (run,) = found.runs
    assert [(point.checkpoint.model, point.best) for point in run.points] == [
        ("a-x-1", False), ("a-y-1", True), ("a-x-2", False)]
    assert run.at("1") is run.points[0]
    assert "2 models are step 1 of run a" in found.notes[0]


def test_where_two_models_are_the_last_step_the_first_is_the_end() -> None:
    (run,) = curves(exact({"a-x-1": 30, "a-x-2": 50, "a-y-2": 60}), OPTIONS, r"(?P<run>a)-.-(?P<step>\d+)").runs
    assert run.end.checkpoint.model == "a-x-2"


def test_the_same_seed_gives_the_same_curves_and_rounds_do_not_move_scores() -> None:
    battles = grid([8, 64], ["1e5", "5e6"], [1, 2])
    found = curves(battles, OPTIONS, PATTERN)
    assert found == curves(battles, OPTIONS, PATTERN)
    other = curves(battles, Options(rounds=50, seed=3), PATTERN)
    assert [point.score for point in other.points] == [point.score for point in found.points]
    assert other.settled != found.settled


# --- groups -------------------------------------------------------------------------------------
def test_best_of_each_rank_and_rate_and_of_all() -> None:
    wins = {name("m", step, rank, rate): base + add for rank, base in ((8, 10), (128, 40))
            for rate, more in (("1e5", 5), ("5e6", 0)) for step, add in ((1, more), (2, 10 + more))}
    found = {(best.group, best.value): best for best in of(wins).bests}
    assert found["rank", "8"].point.checkpoint.model == name("m", 2, 8, "1e5")
    assert found["lr", "5e6"].point.checkpoint.model == name("m", 2, 128, "5e6")
    assert found["all", "all"].point.checkpoint.model == name("m", 2, 128, "1e5")
    assert found["all", "all"].runner_up == name("m", 2, 128, "5e6")
    assert (found["all", "all"].of, found["rank", "8"].of, found["run", "m-rank8-alpha1e5"].of) == (8, 4, 2)
    assert [value for group, value in found if group == "rank"] == ["8", "128"]


def test_shares_of_a_close_race_lie_between() -> None:
    best = of({name("a", 1): 50, name("b", 1): 51}).bests[-1]
    assert best.point.checkpoint.run.startswith("b")
    assert 0.5 < best.share < 1


def test_means_are_of_the_runs_that_have_the_step() -> None:
    found = of({name("m", 1, 8, "a"): 10, name("m", 1, 8, "b"): 30, name("m", 2, 8, "b"): 50, name("m", 1, 16): 70})
    means = {(mean.value, mean.column): mean for mean in found.means if mean.group == "rank"}
    assert {key: (mean.score, mean.runs) for key, mean in means.items()} == {
        ("8", "1"): (20, 2), ("8", "2"): (50, 1), ("16", "1"): (70, 1)}
    alone = next(point for point in found.points if point.score == 50)
    assert (means["8", "2"].low, means["8", "2"].high) == pytest.approx((alone.low, alone.high), abs=1e-6)


# --- rankings -----------------------------------------------------------------------------------
def test_rankings_that_are_the_same_or_turned_round() -> None:
    found = of(ladder({1: [40, 30, 20, 10], 2: [11, 21, 31, 41], "final": [50, 60, 70, 80]}))
    assert [(one.column, one.correlation, one.runs) for one in found.settled] == [("1", -1, 4), ("2", 1, 4)]
    assert all(one.low <= one.correlation <= one.high for one in found.settled)
    assert (found.stop.by_value, found.stop.by_bound) == ("2", "2")
    assert "1 of 24 cases" in found.stop.text


def test_a_correlation_is_scipys_also_in_every_round() -> None:
    generator = np.random.default_rng(1)
    first, second = generator.integers(0, 6, (2, 50, 7)).astype(float)
    second[3] = 4.0
    first[4, 2] = np.nan
    found = spearman_rounds(first, second)
    assert math.isnan(found[3])
    assert math.isnan(found[4])
    for at in (0, 1, 2, *range(5, 50)):
        assert found[at] == pytest.approx(stats.spearmanr(first[at], second[at]).statistic)


def test_only_runs_that_have_the_step_are_compared() -> None:
    wins = ladder({1: [10, 20, 30, 40], 2: [15, 25, 35, 45], "final": [50, 60, 70, 80]})
    del wins[name("b", 1)]
    found = of(wins)
    assert [(one.column, one.runs) for one in found.settled] == [("1", 3), ("2", 4)]
    assert "Not all steps have the same runs (3 to 4)" in found.stop.text


def test_a_step_that_is_the_end_of_all_its_runs_is_not_compared_with_itself() -> None:
    found = of(ladder({1: [10, 20, 30], 2: [15, 25, 35]}))
    assert [one.column for one in found.settled] == ["1"]


@pytest.mark.parametrize("runs", [1, 2])
def test_too_few_runs_have_no_correlation_and_that_is_said(runs: int) -> None:
    found = of(ladder({1: [10, 20][:runs], "final": [30, 40][:runs]}))
    assert [math.isnan(one.correlation) for one in found.settled] == [True]
    assert (found.stop.by_value, found.stop.by_bound) == (None, None)
    assert "Too few runs" in found.stop.text
    assert f"at most {runs} " in found.stop.text


def test_three_runs_are_never_called_safe() -> None:
    found = of(ladder({1: [10, 20, 30], "final": [40, 50, 60]}))
    assert found.stop.by_bound == "1"
    assert "safe" not in found.stop.text
    assert "too few to rely on" in found.stop.text


def test_all_runs_equal_have_no_ranking() -> None:
    found = of(ladder({1: [10, 10, 10], "final": [40, 50, 60]}))
    assert math.isnan(found.settled[0].correlation)
    assert "no ranking" in found.stop.text


def test_noise_widens_the_interval_of_a_correlation() -> None:
    chances = {name(run, step): 0.4 + 0.01 * at for at, run in enumerate("abcdef") for step in (1, "final")}
    few, many = (curves(drawn(chances, count), OPTIONS, PATTERN).settled[0] for count in (100, 20_000))
    assert few.high - few.low > many.high - many.low


# --- from which step on -------------------------------------------------------------------------
def settled(*values: tuple[float, float], runs: int = 9) -> list[Settled]:
    return [Settled(str(at + 1), at + 1.0, value, low, 1.0, runs, runs) for at, (value, low) in enumerate(values)]


@pytest.mark.parametrize(("values", "by_value", "by_bound"), [
    ([(0.95, 0.8), (0.95, 0.91), (0.99, 0.92)], "1", "2"),
    ([(0.95, 0.95), (0.5, 0.2), (0.99, 0.7)], "3", None),
    ([(0.95, 0.95), (0.95, 0.95), (0.89, 0.8)], None, None),
    ([(0.9, 0.9)], "1", "1"),
    ([(0.95, 0.95), (math.nan, math.nan), (0.95, 0.95)], "1", "1"),
])
def test_the_first_step_from_which_it_stays_so(values: list[tuple[float, float]], by_value: str | None,
                                               by_bound: str | None) -> None:
    found = stop(settled(*values), 0.9, 95, 9)
    assert (found.by_value, found.by_bound) == (by_value, by_bound)


def test_the_threshold_counts() -> None:
    assert stop(settled((0.7, 0.6)), 0.5, 95, 9).by_bound == "1"
    assert stop(settled((0.7, 0.6)), 0.9, 95, 9).by_value is None


# --- rounds -------------------------------------------------------------------------------------
def test_shares_leave_out_what_has_no_value() -> None:
    draws = np.array([[1.0, 2.0], [3.0, 2.0], [np.nan, 1.0], [np.nan, np.nan]])
    assert list(best_shares(draws)) == pytest.approx([1 / 3, 2 / 3])


def test_an_interval_needs_half_of_the_rounds_and_holds_its_value() -> None:
    assert math.isnan(around(1.0, np.array([1.0, np.nan, np.nan]), 95)[0])
    assert around(1.0, np.array([0.2, 0.5, 0.6, 0.9]), 95)[1] == 1.0


# --- not the same questions ---------------------------------------------------------------------
def lacking(battles: Battles, model: str, hardest: int) -> Battles:
    """Without the questions that this model lost first: those of the highest numbers, in `exact`."""
    gone = (battles.model == battles.models.index(model)) & (battles.question >= len(battles.questions) - hardest)
    return battles.take(~gone)


def test_the_best_step_is_the_best_on_shared_questions() -> None:
    """Step 1 wins 50 of its 60 questions, step 2 wins 70 of 100: on the 60 that both have step 2 wins all."""
    found = curves(lacking(exact({name("a", 1): 50, name("a", 2): 70}), name("a", 1), 40), OPTIONS, PATTERN)
    (run,) = found.runs
    assert [round(point.score) for point in run.points] == [83, 70]
    assert run.best.checkpoint.step == 2
    assert [point.share for point in run.points] == [0, 1]
    assert found.bests[0].point.checkpoint.step == 2
    assert any("go by the questions that all concerned share" in note for note in found.notes)


def test_of_too_few_shared_questions_nothing_is_sure() -> None:
    found = curves(lacking(exact({name("a", 1): 5, name("a", 2): 70}), name("a", 1), 90), OPTIONS, PATTERN)
    assert all(math.isnan(point.share) for point in found.points)
    assert any("not said how sure" in note and "too few questions are shared" in note for note in found.notes)


def test_rankings_are_compared_on_shared_questions() -> None:
    """Run c's first step lacks what it would have lost, so that its score alone puts it first there."""
    wins = ladder({100: [40, 50, 30], "final": [60, 70, 50]})
    battles = lacking(exact(wins), name("c", 100), 45)
    found = curves(battles, OPTIONS, PATTERN)
    first = {run.name[0]: run.points[0].score for run in found.runs}
    assert first["c"] > first["b"] > first["a"]
    assert found.settled[0].correlation == pytest.approx(stats.spearmanr([40, 50, 30], [55, 55, 50]).statistic)


def test_with_style_control_unlike_questions_leave_it_out() -> None:
    battles = lacking(exact({name("a", 1): 50, name("a", 2): 70}), name("a", 1), 10)
    found = curves(battles, Options(rounds=50, style=("length",)), PATTERN, style=random_style(battles))
    assert all(math.isnan(point.share) for point in found.points)
    assert any("style control is fitted to all questions" in note for note in found.notes)
