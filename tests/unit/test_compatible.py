"""The compatible mode: what Arena-Hard's own program prints for the same judgments and seed."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from automate.errors import ConfigError, DataError
from automate.results.battles import Battles, Style
from automate.results.boards import Options
from automate.results.compatible.draws import Draws
from automate.results.compatible.result import expanded, loading_lines, show_result
from automate.results.compatible.text import Line, ordered, table, tensor
from automate.results.scoring.scores import leaderboard
from tests.unit.scores_support import Row, battles, expected, random_battles, random_style, real_battles, row_of

BOTH = ("length", "markdown")

PLAIN = """\
##### Category: c #####
   Model  Scores (%)           CI (%)
0   beta        72.4  (-12.1 / +11.5)
1  alpha        54.2  (-11.6 / +13.4)
2   base        50.0    (-0.0 / +0.0)
3  gamma         5.4    (-4.5 / +5.9)"""
"""What Arena-Hard's own program printed for `small()` with the seed 3 (numpy 2.4, pandas 3.1)."""

STYLED = """\
   Model  Scores (%)           CI (%)
0   beta        72.9  (-13.8 / +11.5)
1  alpha        56.4  (-17.8 / +17.4)
2   base        50.0    (-0.0 / +0.0)
3  gamma         3.7    (-2.9 / +4.7)"""
COEFFICIENTS = [0.5641, 0.2516, 0.6467, 0.0811]


def small() -> tuple[Battles, Style]:
    """Three models and twelve questions by a rule, and counts by another."""
    rows: list[Row] = []
    for place, (model, shift) in enumerate((("alpha", 1), ("beta", 0), ("gamma", -1))):
        rows += [(model, f"q{number}", _verdict(number * 5 + place * 3, shift), _verdict(number * 3 + place, shift))
                 for number in range(12)]
    found = battles(rows)
    counts = {name: np.array([(100 + 37 * ((number * 7 + place * 5) % 11), (number + place) % 3,
                               (2 * number + place) % 5, (number**2 + place) % 4) for number in range(12)], float)
              for place, name in enumerate(("alpha", "beta", "gamma", "base"))}
    return found, Style(found.questions, counts)


def _verdict(number: int, shift: int) -> int:
    return max(-2, min(2, number % 5 - 2 + shift))


def printed(text: str) -> dict[str, tuple[float, float, float]]:
    """Score and distances of the bounds of each model in a printed table."""
    lines = re.findall(r"^\d+\s+(\S+)\s+([\d.]+)\s+\(-([\d.]+) / \+([\d.]+)\)$", text, re.MULTILINE)
    return {name: (float(score), float(low), float(high)) for name, score, low, high in lines}


def close(text: str, wanted: str, points: float) -> None:
    ours, theirs = printed(text), printed(wanted)
    assert list(ours) and set(ours) == set(theirs)
    for model, numbers in theirs.items():
        assert ours[model] == pytest.approx(numbers, abs=points + 1e-9), model


def test_the_plain_text_is_the_originals() -> None:
    assert show_result(small()[0], None, seed=3, category="c") == PLAIN


def test_the_plain_recipe_step_by_step() -> None:
    """The same from the recipe in the open, with numpy's global generator and pandas' layout."""
    found = random_battles({"b": 0.4, "a": -0.4, "c/d": 1.0}, 17)
    row, outcome = expanded(found)
    lists = {name.split("/")[-1]: outcome[found.model[row] == place] for place, name in enumerate(found.models)}
    np.random.seed(11)
    rounds = pd.DataFrame([{name: np.random.choice(lists[name], len(lists[name])).mean(dtype=float)
                            for name in sorted(lists)} for _ in range(100)])
    frame = pd.DataFrame({"Model": rounds.columns, "Scores (%)": [round(x * 100, 1) for x in rounds.mean().tolist()],
                          "CI (%)": [f"(-{round((mean - low) * 100, 1)} / +{round((high - mean) * 100, 1)})"
                                     for mean, low, high in zip(rounds.mean().tolist(),
                                                                rounds.quantile(0.05).tolist(),
                                                                rounds.quantile(0.95).tolist(), strict=True)]})
    base = pd.DataFrame({"Model": ["base"], "Scores (%)": [50.0], "CI (%)": ["(-0.0 / +0.0)"]})
    whole = pd.concat([frame, base]).sort_values(by="Scores (%)", ascending=False).reset_index(drop=True)
    assert show_result(found, None, seed=11, category="c") == f"##### Category: c #####\n{whole.to_string()}"


def test_verdicts_one_by_one() -> None:
    row, outcome = expanded(battles([("m", "q1", -2, 1), ("m", "q2", 0, 2)]))
    assert row.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert outcome.tolist() == [1, 0, 0, 0, 1, 1, 1, 0.5]


def test_the_style_text_is_near_the_originals() -> None:
    text = show_result(*small(), seed=3, control=BOTH, category="c")
    assert text.startswith("INFO: Control features: ['length', 'markdown']\n##### Category: c #####\n   Model  Scores")
    close(text, STYLED, 0.3)
    last = text.splitlines()[-1].removeprefix("Feature Coefs: tensor([").removesuffix("])")
    assert [float(value) for value in last.split(",")] == pytest.approx(COEFFICIENTS, abs=0.003)


def test_the_fit_stops_early_as_the_originals_does() -> None:
    """Converged, this score would differ by more than the tolerance of the test above."""
    board = leaderboard(small()[0], Options("compatible", BOTH, "c", seed=3), small()[1])
    assert row_of(board, "gamma").score == pytest.approx(3.7, abs=0.15)
    assert (board.options.rounds, board.options.confidence, board.options.strong_weight) == (100, 90.0, 3.0)


@pytest.mark.parametrize(("control", "features", "words"), [
    (("length",), 1, "stops with an error"), (("markdown",), 3, "names shifted")])
def test_one_group_of_features_alone_is_right_and_says_so(control: tuple[str, ...], features: int, words: str) -> None:
    text = show_result(*small(), seed=3, control=control, category="c")
    assert list(printed(text)) == ["beta", "alpha", "base", "gamma"]
    coefficients = next(line for line in text.splitlines() if line.startswith("Feature Coefs"))
    assert coefficients.count(",") == features - 1
    assert any(line.startswith("Note: ") and words in line for line in text.splitlines())


def test_several_categories_one_after_another() -> None:
    rows: list[Row] = [("m", f"q{number}", number % 3 - 1, number % 5 - 2) for number in range(30)]
    found = battles(rows, category={f"q{number}": "late" for number in range(15, 30)}, baseline={"late": "other"})
    text = show_result(found, None, seed=1, category=("c", "late"))
    first = show_result(found, None, seed=1, category="c")
    assert text.startswith(first + "\n##### Category: late #####")
    assert {"base", "other"} < set(printed(text))
    assert "Note: with several categories" in text.splitlines()[-1]
    assert "Note" not in first


def test_null_rows_are_counted_and_left_out_without_a_word() -> None:
    found, _ = small()
    with_nulls = battles([("alpha", "x", None, 2), *_rows(found), ("beta", "y", 1, None)])
    assert show_result(with_nulls, None, seed=3, category="c") == PLAIN
    assert loading_lines(with_nulls) == "Loading judge judgments...\nNumber of null judgments found: 2"


def _rows(found: Battles) -> list[Row]:
    return [(found.models[model], found.questions[question], int(first), int(second)) for model, question, first, second
            in zip(found.model, found.question, found.first, found.second, strict=True)]


def test_the_order_of_models_in_the_files_does_not_matter_to_the_plain_text() -> None:
    found, _ = small()
    assert show_result(battles(sorted(_rows(found), key=lambda row: row[0], reverse=True)), None, seed=3,
                       category="c") == PLAIN


def test_features_without_variance_and_without_metadata() -> None:
    found, style = small()
    style.counts["alpha"][:, 1] = style.counts["beta"][:, 1] = style.counts["gamma"][:, 1] = 0
    style.counts["base"][:, 1] = 0
    style.counts["beta"][4] = np.nan
    text = show_result(found, style, seed=3, control=BOTH, category="c")
    assert "Note: style features left out, as they are the same in all rows: header_count" in text
    assert "1 of 36 rows left out" in text
    assert "nan" not in text.lower()


def test_one_model_and_a_judged_baseline() -> None:
    only = battles([("m", f"q{number}", 1, number % 3 - 1) for number in range(9)])
    text = show_result(only, random_style(only), seed=0, control=BOTH, category="c")
    assert set(printed(text)) == {"m", "base"}
    itself = battles([("base", "q1", 1, -1), ("m", "q1", 1, 1), ("m", "q2", 1, -1)])
    assert "nan" not in show_result(itself, random_style(itself), seed=0, control=BOTH, category="c").lower()


def test_winning_everything() -> None:
    found = battles([("m", f"q{number}", 2, 2) for number in range(9)])
    assert "0     m       100.0  (-0.0 / +0.0)" in show_result(found, None, seed=0, category="c")


def test_what_can_not_be_printed_is_refused() -> None:
    found, style = small()
    with pytest.raises(DataError, match="no judgment is of the category hard"):
        show_result(found, None, seed=0, category="hard")
    with pytest.raises(ConfigError, match="no style feature is called size"):
        show_result(found, style, seed=0, control=["size"], category="c")
    with pytest.raises(DataError, match="no answers were read"):
        show_result(found, None, seed=0, control=BOTH, category="c")
    two = battles([("m", "q1", 1, 1), ("m", "q2", 1, 1)], category={"q2": "other"})
    with pytest.raises(ConfigError, match="one category at a time"):
        leaderboard(two, Options("compatible"))


def test_two_baselines_in_one_category_are_said() -> None:
    found, _ = small()
    mixed = Battles(found.models, found.questions, found.categories, ("base", "b2"), found.judges, found.model,
                    found.question, found.category, (np.arange(36) % 6 == 0).astype(np.int32), found.judge,
                    found.first, found.second)
    text = show_result(mixed, None, seed=3, category="c")
    assert text.startswith(PLAIN)
    assert "Note: these judgments are against 2 baselines (base, b2)" in text


@pytest.mark.parametrize("count", [1, 9, 10, 11, 101])
def test_the_table_is_laid_out_as_by_pandas(count: int) -> None:
    generator = np.random.default_rng(count)
    lines = [Line(f"model-{'x' * int(generator.integers(30))}{number}", *np.sort(generator.random(3))[[1, 0, 2]])
             for number in range(count)]
    frame = pd.DataFrame({"Model": [line.model for line in lines], "Scores (%)": [line.percent for line in lines],
                          "CI (%)": [line.interval for line in lines]})
    wanted = frame.sort_values(by="Scores (%)", ascending=False).reset_index(drop=True).to_string()
    assert table(lines) == wanted


def test_equal_scores_are_ordered_as_by_pandas() -> None:
    lines = [Line(f"m{number}", 0.1 * (number % 4), 0.0, 1.0) for number in range(40)]
    frame = pd.DataFrame({"Model": [line.model for line in lines], "Scores (%)": [line.percent for line in lines]})
    wanted = frame.sort_values(by="Scores (%)", ascending=False)["Model"].tolist()
    assert [line.model for line in ordered(lines)] == wanted


def test_names_can_not_reach_the_terminal_raw() -> None:
    assert "\x1b" not in table([Line("a\x1b[31m\nb", 0.5, 0.4, 0.6)])
    assert len(table([Line("a\nb\tc", 0.5, 0.4, 0.6)]).splitlines()) == 2


@pytest.mark.parametrize(("values", "text"), [
    ([1.46691, -0.02139, -0.14879, 0.10447], "tensor([ 1.4669, -0.0214, -0.1488,  0.1045])"),
    ([1.5, 2.25], "tensor([1.5000, 2.2500])"), ([1e-5, 3.0], "tensor([1.0000e-05, 3.0000e+00])"),
    ([-0.5], "tensor([-0.5000])")])
def test_a_tensor_is_written_as_by_torch(values: list[float], text: str) -> None:
    assert tensor(np.array(values)) == text


def test_the_real_plain_text_is_the_originals() -> None:
    found, _ = real_battles()
    text = f"{loading_lines(found)}\n{show_result(found, None, seed=0, category='ko')}\n"
    assert text == expected("plain_seed0.txt").read_text(encoding="utf-8")


def test_the_real_style_text_is_near_the_originals() -> None:
    found, style = real_battles()
    text = show_result(found, style, seed=0, control=("markdown", "length"), category="ko")
    close(text, expected("style_seed0_1thread.txt").read_text(encoding="utf-8"), 0.3)
    close(text, expected("style_seed0_2threads.txt").read_text(encoding="utf-8"), 0.3)
    assert len(printed(text)) == 25


def test_draws_are_those_of_numpys_old_generator() -> None:
    ours, theirs = Draws(7), np.random.RandomState(7)
    for size, count in ((1, 5), (2, 3), (3, 1000), (2048, 2048), (2049, 2049), (5, 0), (1818, 100_000), (1, 1), (7, 7)):
        assert ours.below(size, count).tolist() == theirs.randint(0, size, count).tolist()
