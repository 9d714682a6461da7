"""A leaderboard in words: who is best and by how much, what can't be told apart, and what makes it unsafe.

Pure text from boards; computes no score of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from automate.results.boards import Board, Comparison, Quality, Score

FLIPS_UNSAFE = 0.25
"""Share of questions whose two orders name different winners from which a reader is warned."""


def points(value: float, digits: int = 1) -> str:
    """A number with a fixed number of digits; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def percent(value: float | None, digits: int = 1) -> str:
    """A share of 0 to 1 in percent."""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.{digits}f} %"


def p_value(value: float) -> str:
    """A p-value as one says it."""
    if not math.isfinite(value):
        return "p unknown"
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}" if value < 0.1 else f"p = {value:.2f}"


def confidence(board: Board) -> str:
    """The intervals' level as text: 95 %."""
    return f"{board.options.confidence:g} %"


def listed(names: Sequence[str], most: int = 4) -> str:
    """Names in a row, the last ones as a number."""
    if len(names) > most + 1:
        return f"{', '.join(names[:most])} and {len(names) - most} more"
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else "".join(names)


def contenders(board: Board) -> list[Score]:
    """The scores of judged models that have one, best first; the baseline is not among them."""
    return [score for score in board.scores if not score.is_baseline and math.isfinite(score.score)]


def summarize(board: Board, comparison: Comparison | None = None, styled: Board | None = None,
              by_category: Mapping[str, Board] | None = None) -> tuple[str, ...]:
    """What the board says, a sentence or two for each thing, in the order of a reader's questions."""
    scores = contenders(board)
    if not scores:
        return ("No model has a game with a verdict: there is nothing to compare yet.",)
    if not board.comparable:
        return (f"{len(scores)} models were judged against {listed(board.baselines)}. Scores against different "
                "baselines can't be compared, so no model is called the best, and there are no ranks.",)
    sentences = [_best(board, scores), _lead(board, scores, comparison), _alone(scores),
                 _against_baseline(board, scores), _with_style(board, styled),
                 _in_categories(scores[0], by_category or {})]
    return tuple(sentence for sentence in sentences if sentence)


def _best(board: Board, scores: Sequence[Score]) -> str:
    best = scores[0]
    what = "The only model" if len(scores) == 1 else f"The best of {len(scores)} models"
    return (f"{what} is {best.model} with a score of {points(best.score)} ({confidence(board)} interval "
            f"{points(best.low)} to {points(best.high)}), on {best.questions:,} questions against "
            f"{listed(board.baselines) or 'the baseline'}, whose score is 50.")


def _lead(board: Board, scores: Sequence[Score], comparison: Comparison | None) -> str:
    if comparison is None or len(scores) < 2:
        return ""
    found = (f"{points(comparison.difference)} points ({confidence(board)} interval of the difference "
             f"{points(comparison.low)} to {points(comparison.high)}, {p_value(comparison.p_value)})")
    seen = (f"With these {comparison.questions:,} questions a difference of {points(comparison.detectable)} points "
            "can be seen." if comparison.detectable is not None else "So few, or such uniform, verdicts don't tell "
            "which difference could be seen.")
    if comparison.low > 0 and comparison.second in _level(scores):
        return f"Taken alone, its lead over {comparison.second} is {found}. {seen}"
    if comparison.low > 0:
        return f"It leads {comparison.second} by {found}. {seen}"
    if comparison.high < 0:
        return f"On the questions that both have it is behind {comparison.second}, by {found}. {seen}"
    return f"It can't be told apart from {comparison.second}: the difference is {found}. {seen}"


def _level(scores: Sequence[Score]) -> list[str]:
    """Models that no less may be first than the best."""
    best = scores[0].rank_low
    return [score.model for score in scores[1:] if best and score.rank_low <= best]


def _alone(scores: Sequence[Score]) -> str:
    level = _level(scores)
    if not scores[0].rank_low or len(scores) < 2:
        return ""
    if not level:
        return "All pairs of models compared, it stands apart from all others."
    are = "1 model" if len(level) == 1 else f"{len(level)} models"
    return f"All pairs of models compared, {are} can't be told apart from the best: {listed(level)}."


def _against_baseline(board: Board, scores: Sequence[Score]) -> str:
    better = sum(score.low > 50 for score in scores)
    worse = sum(score.high < 50 for score in scores)
    unsure = len(scores) - better - worse
    found = [(count, what) for count, what in
             ((better, "better"), (worse, "worse"), (unsure, "neither for certain")) if count]
    if len(scores) == 1:
        verdict = f"it is {found[0][1]} than" if not unsure else "it can't be told apart from"
        return f"Judged by its interval, {verdict} the baseline."
    if len(found) == 1:
        return f"Judged by their intervals, all {len(scores)} models are {found[0][1]} than the baseline." \
            if not unsure else "No model's interval lies wholly above or below the baseline's 50."
    parts = [f"{count} {'is' if count == 1 else 'are'} {what}" for count, what in found]
    return f"Against the baseline, {listed(parts)} (by the interval: above, below or around 50)."


def _with_style(board: Board, styled: Board | None) -> str:
    if styled is None:
        return ""
    plain, controlled = contenders(board), contenders(styled)
    if not plain or not controlled:
        return ""
    places = {score.model: place for place, score in enumerate(plain, 1)}
    moved = [(abs(places[score.model] - place), score.model, places[score.model], place)
             for place, score in enumerate(controlled, 1) if score.model in places]
    most = max(moved, default=(0, "", 0, 0))
    same = "the best is the same" if controlled[0].model == plain[0].model else f"the best is {controlled[0].model}"
    if most[0] == 0:
        return "With style control (length and markdown of the answers taken out) the order is the same."
    return (f"With style control (length and markdown of the answers taken out) {same}; "
            f"{most[1]} moves most, from place {most[2]} to {most[3]}.")


def _in_categories(best: Score, by_category: Mapping[str, Board]) -> str:
    firsts = {name: found[0] for name, board in by_category.items() if (found := contenders(board))}
    if len(firsts) < 2:
        return ""
    others = [f"{score.model} in {name}" for name, score in firsts.items() if score.model != best.model]
    if not others:
        return f"It is first in each of the {len(firsts)} categories."
    return f"By category the first is another: {listed(others)}."


def warn(boards: Sequence[Board], quality: Sequence[Quality]) -> tuple[str, ...]:
    """What makes the ranking unsafe: the boards' own warnings and the judges', over all models and of each, each once.

    What only a style-controlled board says is said to be so: its fit is of fewer questions.
    """
    plain = {text for board in boards if not board.options.style for text in board.warnings}
    said = [text if not board.options.style or text in plain else f"with style control: {text}"
            for board in boards for text in board.warnings]
    for one in quality:
        said += one.warnings
        if one.model is None and one.flips >= FLIPS_UNSAFE and not one.warnings:
            said.append(f"judge '{one.judge}': on {percent(one.flips, 0)} of the questions the two orders name "
                        "different winners")
    return tuple(dict.fromkeys(said))
