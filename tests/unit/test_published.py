"""Arena-Hard v0.1's published tables from battles files."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from automate.errors import ConfigError, DataError
from automate.results.boards import Options
from automate.results.reading.battle_rows import BattleRows, read_battles
from automate.results.scoring.published import board, published, table
from tests.unit.scores_support import row_of
from tests.unit.support import real_data


def rows(*outcomes: tuple[str, str, float], baselines: tuple[str, ...] = ("base",)) -> BattleRows:
    models = tuple(dict.fromkeys(model for model, _, _ in outcomes))
    questions = tuple(dict.fromkeys(uid for _, uid, _ in outcomes))
    return BattleRows(models, questions, np.array([models.index(model) for model, _, _ in outcomes], np.int32),
                      np.array([questions.index(uid) for _, uid, _ in outcomes], np.int32),
                      np.array([worth for _, _, worth in outcomes], np.float64), baselines)


def small() -> BattleRows:
    return rows(*((model, f"q{number}", [1.0, 0.5, 0.0][(number * step) % 3]) for number in range(20)
                  for model, step in (("a", 1), ("b", 2), ("b", 4))))


def test_the_recipe_step_by_step() -> None:
    """All rows resampled at once by numpy's global generator, percentiles of ratings, two digits."""
    found = small()
    np.random.seed(42)
    ratings = []
    for _ in range(100):
        picked = np.random.choice(len(found.outcome), len(found.outcome))
        shares = [found.outcome[picked][found.model[picked] == model].mean() for model in range(2)]
        ratings.append([400 * np.log10(share / (1 - share)) for share in shares])
    bounds = 100 / (1 + 10 ** (-np.percentile(ratings, [2.5, 97.5], axis=0) / 400))
    table = {row.model: row for row in published(found)}
    for model, name in enumerate(found.models):
        assert table[name].score == pytest.approx(100 * found.outcome[found.model == model].mean(), abs=0.005)
        assert (table[name].low, table[name].high) == pytest.approx(tuple(np.round(bounds[:, model], 2)))


def test_the_columns_as_printed() -> None:
    table = {row.model: row for row in published(small())}
    low, high = table["a"].score - table["a"].low, table["a"].high - table["a"].score
    assert table["a"].interval == f"(-{low:.2f}, +{high:.2f})"
    assert (table["base"].score, table["base"].interval) == (50.0, "(-0.00, +0.00)")


def test_winning_everything_is_no_error() -> None:
    table = {row.model: row for row in published(rows(*(("a", f"q{number}", 1.0) for number in range(9))))}
    assert (table["a"].score, table["a"].low, table["a"].high) == (100.0, 100.0, 100.0)


def test_what_can_not_be_scored_is_refused() -> None:
    with pytest.raises(DataError, match="no battles"):
        published(rows())
    with pytest.raises(DataError, match="2 baselines"):
        published(rows(("a", "q", 1.0), baselines=("x", "y")))
    with pytest.raises(ConfigError, match="neither categories nor style"):
        board(small(), Options(style=("length",)))


def test_the_default_board_resamples_questions() -> None:
    """Three copies of every row make rows look sure of themselves; questions are as many as before."""
    once = rows(*(("a", f"q{number}", float(number % 2)) for number in range(40)))
    thrice = rows(*(("a", f"q{number // 3}", float(number // 3 % 2)) for number in range(120)))
    one, three = (row_of(board(found, Options()), "a") for found in (once, thrice))
    assert (one.low, one.high) == pytest.approx((three.low, three.high))
    assert (three.questions, three.games) == (40, 40)
    narrow = {row.model: row for row in published(thrice)}["a"]
    assert narrow.high - narrow.low < 0.7 * (three.high - three.low)


def test_copies_of_strong_verdicts_are_no_games() -> None:
    found = board(rows(*(("a", "q0", 1.0) for _ in range(6)), *(("a", "q1", 0.0) for _ in range(4)),
                       ("a", "q2", 0.5), ("a", "q2", 0.5), ("a", "q3", 1.0), ("b", "q3", 0.0)), Options(rounds=50))
    assert (row_of(found, "a").games, row_of(found, "b").games) == (2 + 2 + 2 + 1, 1)
    assert any("14 rows are 8 games" in note for note in found.notes)


def test_the_default_board_has_ranges_of_ranks() -> None:
    found, power = table(rows(*((model, f"q{number}", float((number * step) % 7 < wins)) for number in range(140)
                                for model, step, wins in (("good", 1, 6), ("even", 3, 3), ("odd", 5, 3)))), Options())
    assert {row.model: (row.rank_low, row.rank_high) for row in found.scores} == {
        "good": (1, 1), "base": (2, 4), "even": (2, 4), "odd": (2, 4)}
    assert power is not None
    assert 5 < power < 40


def test_the_board_of_the_published_way() -> None:
    found = board(small(), Options("compatible", confidence=90.0, rounds=7))
    assert (found.options.confidence, found.options.rounds, found.options.seed) == (95.0, 100, 42)
    assert [(row.model, row.score, row.low, row.high) for row in found.scores] == [
        (row.model, row.score, row.low, row.high) for row in published(small())]
    assert [row.is_baseline for row in found.scores].count(True) == 1


@pytest.mark.parametrize(("name", "models"), [("dw_20240806", 17), ("dw_20240813", 19)])
def test_the_published_tables_to_their_digits(name: str, models: int) -> None:
    found = published(read_battles(real_data("v01-battles", f"{name}_battles.jsonl")))
    with real_data("v01-battles", f"{name}_leaderboard.csv").open(encoding="utf-8") as file:
        wanted = list(csv.DictReader(file))
    assert len(wanted) == len(found) == models
    for ours, theirs in zip(found, wanted, strict=True):
        assert [ours.model, str(ours.score), str(ours.low), str(ours.high), ours.interval] == [
            theirs[column] for column in ("model", "score", "rating_q025", "rating_q975", "CI")]
