"""Style control in the default mode: the converged fit, its resampling, and what can be wrong with the features."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import optimize

from automate.errors import DataError
from automate.results.battles import Style
from automate.results.boards import Options
from automate.results.scoring.intervals import draws, resampled_scores
from automate.results.scoring.scores import leaderboard
from automate.results.scoring.style import prepare
from automate.results.scoring.style_features import differences
from automate.results.scoring.style_fit import Cells, Fit, fit, refit
from tests.unit.scores_support import battles, random_battles, random_style, real_battles, real_column, row_of

BOTH = Options(style=("length", "markdown"))
MODELS = {"good": 0.7, "even": 0.0, "bad": -0.9}


def counts(*rows: tuple[float, float, float, float]) -> np.ndarray:
    return np.array(rows, np.float64)


def test_the_features_by_hand() -> None:
    style = Style(("q",), {"m": counts((99, 5, 0, 10)), "base": counts((299, 0, 3, 30))})
    found = differences(battles([("m", "q", 1, 1)]), style, ("length", "markdown"))
    assert found.names == ("token_len", "header_count", "list_count", "bold_count")
    assert found.values[0] == pytest.approx([-200 / 398, 0.05 / 1.05, -0.01 / 1.01, 0.0])


def test_questions_of_the_style_in_another_order() -> None:
    found = battles([("m", "q1", 1, 1), ("m", "q2", 1, 1)])
    style = Style(("q2", "other", "q1"), {"m": counts((30, 0, 0, 0), (1, 0, 0, 0), (10, 0, 0, 0)),
                                          "base": counts((10, 0, 0, 0), (1, 0, 0, 0), (30, 0, 0, 0))})
    assert differences(found, style, ("length",)).values[:, 0].tolist() == [-0.5, 0.5]


def _likelihood(parameters: np.ndarray, cells: Cells) -> float:
    groups = len(cells.won)
    logits = parameters[:groups, None] + cells.features @ parameters[groups:]
    return float((cells.weight * np.logaddexp(0, logits) - cells.won * logits).sum())


def _random_cells() -> Cells:
    found = random_battles(MODELS, 40)
    return prepare(found, BOTH, random_style(found)).cells


def test_the_fit_is_the_maximum_that_another_program_finds() -> None:
    cells = _random_cells()
    whole = fit(cells)
    start = np.zeros(len(cells.won) + cells.features.shape[2])
    other = optimize.minimize(_likelihood, start, (cells,), "BFGS", options={"gtol": 1e-7})
    assert np.concatenate([whole.intercepts, whole.coefficients]) == pytest.approx(other.x, abs=1e-4)
    assert (whole.converged, whole.rank) == (True, 4)


def test_a_round_is_the_fit_of_the_questions_drawn() -> None:
    cells = _random_cells()
    drawn = np.random.default_rng(5).multinomial(40, np.full(40, 1 / 40), size=8).astype(float)
    rounds = refit(cells, drawn, fit(cells))
    for number, times in enumerate(drawn):
        alone = fit(Cells(cells.won * times, cells.weight * times, cells.features))
        assert rounds.intercepts[number] == pytest.approx(alone.intercepts, abs=1e-5)
        assert rounds.coefficients[number] == pytest.approx(alone.coefficients, abs=1e-5)


def test_features_are_standardised_over_weighted_games() -> None:
    found = random_battles(MODELS, 40)
    cells = prepare(found, BOTH, random_style(found)).cells
    total = cells.weight.sum()
    assert np.einsum("gq,gqf->f", cells.weight, cells.features) == pytest.approx(np.zeros(4), abs=1e-9)
    assert np.einsum("gq,gqf->f", cells.weight, cells.features**2) == pytest.approx(np.full(4, total - 1))


def test_a_liking_for_length_is_taken_out() -> None:
    """A judge that prefers the longer answer alone: the long-winded model is no better once that is controlled for."""
    generator = np.random.default_rng(2)
    long, short, base = (generator.lognormal(mean, 0.5, 400) for mean in (6.3, 5.7, 6.0))
    rows = []
    for model, tokens in (("long", long), ("short", short)):
        liking = 3 * (tokens - base) / (tokens + base)
        rows += [(model, f"q{number}", *np.sign(ahead + generator.logistic(size=2)).astype(int).tolist())
                 for number, ahead in enumerate(liking)]
    found = battles(rows)
    style = Style(found.questions, {name: np.stack([tokens, *np.zeros((3, 400))], axis=1) for name, tokens in
                                    (("long", long), ("short", short), ("base", base))})
    plain = leaderboard(found, Options(rounds=50))
    board = leaderboard(found, Options(style=("length",)), style)
    assert row_of(plain, "long").score - row_of(plain, "short").score > 12
    assert abs(row_of(board, "long").score - row_of(board, "short").score) < 6
    assert board.coefficients["token_len"] > 0.5
    assert row_of(board, "long").low < 50 < row_of(board, "long").high


@pytest.mark.parametrize(("style", "names"), [
    (("length",), ["token_len"]), (("markdown",), ["header_count", "list_count", "bold_count"]),
    (("markdown", "length"), ["token_len", "header_count", "list_count", "bold_count"])])
def test_each_group_of_features_keeps_models_and_names_together(style: tuple[str, ...], names: list[str]) -> None:
    found = random_battles(MODELS, 60)
    board = leaderboard(found, Options(style=style, rounds=50), random_style(found))
    assert list(board.coefficients) == names
    assert [row.model for row in board.scores if not row.is_baseline] == ["good", "even", "bad"]


def test_a_feature_without_variance_is_dropped_and_named() -> None:
    found = random_battles(MODELS, 40)
    style = random_style(found)
    for table in style.counts.values():
        table[:, 1] = 0
    board = leaderboard(found, BOTH, style)
    assert list(board.coefficients) == ["token_len", "list_count", "bold_count"]
    assert any("left out, as they are the same in all rows: header_count" in note for note in board.notes)


def test_without_any_variance_scores_are_the_plain_ones() -> None:
    found = random_battles(MODELS, 40)
    style = Style(found.questions, {name: np.full((40, 4), 7.0) for name in ("good", "even", "bad", "base")})
    board, plain = leaderboard(found, BOTH, style), leaderboard(found, Options())
    assert [row.score for row in board.scores] == pytest.approx([row.score for row in plain.scores])
    assert [row.low for row in board.scores] == pytest.approx([row.low for row in plain.scores])


def test_two_empty_answers_have_no_difference_and_are_counted() -> None:
    found = random_battles(MODELS, 40)
    style = random_style(found)
    style.counts["good"][:3], style.counts["base"][:3] = 0, 0
    board = leaderboard(found, BOTH, style)
    assert any("3 rows in which neither answer has a token" in note for note in board.notes)
    assert all(np.isfinite([row.score, row.low, row.high]).all() for row in board.scores)


def test_rows_without_metadata_are_left_out_and_counted() -> None:
    found = random_battles(MODELS, 40)
    style = random_style(found)
    style.counts["even"][5:9] = np.nan
    board = leaderboard(found, BOTH, style)
    assert any("4 of 120 rows left out" in note and "even 4" in note for note in board.notes)
    assert (row_of(board, "even").questions, row_of(board, "good").questions) == (36, 40)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("odd", [float("inf"), float("-inf"), -5.0, float("nan")])
def test_counts_that_are_no_counts_are_no_metadata(odd: float) -> None:
    found = random_battles({"a": 0.4, "b": 0.0}, 40)
    style = random_style(found)
    style.counts["a"][3, 0] = style.counts["a"][4, 2] = odd
    board = leaderboard(found, Options(style=("length", "markdown")), style)
    assert row_of(board, "a").questions == 38
    assert any("2 of 80 rows left out: style metadata of an answer is missing (a 2)" in note for note in board.notes)


@pytest.mark.filterwarnings("error")
def test_one_question_for_each_model_is_no_error() -> None:
    found = battles([(model, "q0", 1 - number, 1) for number, model in enumerate("abc")])
    board = leaderboard(found, Options(style=("length", "markdown")), random_style(found))
    assert len(board.scores) == 4


def test_a_model_without_answers_has_no_score() -> None:
    found = random_battles(MODELS, 40)
    style = random_style(found)
    board = leaderboard(found, BOTH, Style(style.questions, {name: style.counts[name] for name in
                                                             ("good", "bad", "base")}))
    assert board.score_of("even") is None
    assert any("no score for 1 model without a usable question: even" in note for note in board.notes)


def test_without_any_metadata_style_control_is_refused() -> None:
    found = random_battles(MODELS, 10)
    style = random_style(found)
    without_baseline = Style(style.questions, {name: style.counts[name] for name in MODELS})
    with pytest.raises(DataError, match="without it at all: base"):
        leaderboard(found, BOTH, without_baseline)
    with pytest.raises(DataError, match="no answers were read"):
        leaderboard(found, BOTH, None)


def test_winning_everything_is_100_and_disturbs_nobody() -> None:
    found = random_battles({**MODELS, "best": 9.0, "worst": -9.0}, 60)
    board = leaderboard(found, BOTH, random_style(found))
    assert (row_of(board, "best").score, row_of(board, "worst").score) == (100.0, 0.0)
    assert 80 < row_of(board, "best").low < 100
    assert not board.warnings
    assert all(row.low < row.score < row.high for row in board.scores if row.model in MODELS)


def test_style_that_predicts_every_verdict_is_warned_of() -> None:
    verdicts = [1 if number % 2 else -1 for number in range(40)]
    found = battles([("m", f"q{number}", verdict, verdict) for number, verdict in enumerate(verdicts)])
    tokens = np.array([800.0 if number % 2 else 100.0 for number in range(40)])
    table = np.stack([tokens, *np.zeros((3, 40))], axis=1)
    base = np.stack([np.full(40, 300.0), *np.zeros((3, 40))], axis=1)
    board = leaderboard(found, Options(style=("length",)), Style(found.questions, {"m": table, "base": base}))
    assert any("has no maximum" in text for text in board.warnings)
    assert np.isfinite([row.score for row in board.scores]).all()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("seed", range(40))
def test_a_few_questions_whose_verdicts_style_foresees_have_scores_and_intervals(seed: int) -> None:
    generator = np.random.default_rng(seed)
    questions, models = int(generator.integers(1, 6)), ("m1", "m2", "m3")[: int(generator.integers(1, 4))]
    first, second = generator.choice([-2, -1, 1, 2], (2, len(models), questions)).tolist()
    found = battles([(model, f"q{number}", first[at][number], second[at][number])
                     for at, model in enumerate(models) for number in range(questions)])
    style = Style(found.questions, {name: generator.choice([0.0, 0.0, 1.0, 100.0], (questions, 4))
                                    for name in (*models, "base")})
    try:
        board = leaderboard(found, Options(style=("length", "markdown"), rounds=50), style)
    except DataError:
        return
    assert all(0 <= row.low <= row.score <= row.high <= 100 for row in board.scores)


def test_features_that_do_not_vary_within_models_are_warned_of() -> None:
    found = random_battles(MODELS, 30)
    style = Style(found.questions, {name: np.full((30, 4), 1.0 + index) for index, name in
                                    enumerate(("good", "even", "bad", "base"))})
    board = leaderboard(found, Options(style=("length",)), style)
    assert any("can't be told apart" in text for text in board.warnings)


def test_one_model_is_scored_with_a_warning() -> None:
    found = random_battles({"only": 0.4}, 50)
    board = leaderboard(found, BOTH, random_style(found))
    assert any("one model only" in text for text in board.warnings)
    assert row_of(board, "only").low < row_of(board, "only").score < row_of(board, "only").high


def test_each_category_has_its_own_baseline_in_the_fit() -> None:
    verdicts = [1 if number % 5 else -1 for number in range(30)]
    rows = [("m", f"q{number}", verdict, verdict) for number, verdict in enumerate(verdicts)]
    rows += [("m", f"h{number}", -verdict, -verdict) for number, verdict in enumerate(verdicts)]
    found = battles(rows, category={f"h{number}": "hard" for number in range(30)}, baseline={"hard": "strong"})
    style = random_style(found)
    easy, hard = (row_of(leaderboard(found, Options(style=("length",), category=name), style), "m").score
                  for name in ("c", "hard"))
    both = row_of(leaderboard(found, Options(style=("length",)), style), "m").score
    assert hard < 35 < 45 < both < 55 < 65 < easy


def test_rounds_follow_the_style_of_the_questions_drawn() -> None:
    """The score is that at the mean style, which is resampled too: rounds are the fit of a round standardised anew."""
    found = random_battles(MODELS, 40)
    style = random_style(found)
    options = Options(style=("length",), rounds=3)
    rounds, drawn = resampled_scores(found, options, style), draws(found, options)
    for number in range(3):
        picks = np.repeat(np.arange(40), drawn[number].astype(int))
        names = [f"d{place}" for place in range(40)]
        verdict = {(row, question): at for at, (row, question) in
                   enumerate(zip(found.model.tolist(), found.question.tolist(), strict=True))}
        rows = [(model, names[place], int(found.first[verdict[index, pick]]), int(found.second[verdict[index, pick]]))
                for index, model in enumerate(found.models) for place, pick in enumerate(picks)]
        again = battles(rows)
        drawn_style = Style(again.questions, {name: table[picks] for name, table in style.counts.items()})
        board = leaderboard(again, Options(style=("length",), rounds=2), drawn_style)
        assert rounds[number] == pytest.approx([row_of(board, model).score for model in found.models], abs=1e-3)


def test_an_empty_set_of_features_can_be_fitted() -> None:
    cells = Cells(np.array([[1.0, 0.0, 1.0]]), np.ones((1, 3)), np.zeros((1, 3, 0)))
    found: Fit = fit(cells)
    assert found.intercepts == pytest.approx([np.log(2)])


def test_the_real_models_agree_with_the_converged_fit() -> None:
    found, style = real_battles()
    board = leaderboard(found, BOTH, style)
    scores = real_column("style_converged.csv", "score_percent")
    assert len(scores) == 25
    for model, score in scores.items():
        assert row_of(board, model).score == pytest.approx(score, abs=0.001)
    assert dict(board.coefficients) == pytest.approx(real_column("style_converged_coefs.csv", "coef"), abs=1e-6)
    assert not board.warnings
