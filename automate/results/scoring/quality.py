"""How far a judge's verdicts can be trusted: order, place, ties, nulls, length; and how far two judges agree.

Pure over battles and counts; says where a ranking is unsafe, never changes one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from automate.results.battles import FEATURES, NO_VERDICT, Battles, Floats, Style, Tally
from automate.results.boards import Agreement, Quality
from automate.results.reading.messages import causes, many

LEAST_AGREEMENT = 0.60
"""Of questions on which both orders agree. By chance alone two verdicts with few ties agree on half; good judges
reach 70 to 80 %. Below 60 % most of what is seen is the order."""

MOST_PLACE = 0.10
"""Difference between the shares of a judge's games won by the first and by the second place. Both orders are played, so
that it cancels in a mean, but where two answers are close the place decides both games and nothing is learned."""

MOST_NULLS = 0.02
"""Of a model's games. Nulls are not random (long answers, refusals), so they shift a score by up to their share."""

MOST_UNEVEN = 0.02
"""Between the shares of nulls of the model with the most and that with the least: they are compared on other games."""

MOST_LENGTH = 0.30
"""Spearman's correlation of verdict and length, within models: above it length goes with about a tenth of the spread of
verdicts (0.3 squared), and a score without style control rewards long answers."""

LEAST_GAMES = 100
"""Games below which no warning is given for one model, nor of a preference for a place: the shares are too rough."""


def judge_quality(battles: Battles, style: Style | None = None, tallies: Sequence[Tally] = ()) -> tuple[Quality, ...]:
    """For each judge one `Quality` over all models (`model` None), then one for each model with rows.

    The length correlation over all models is the mean of the models' own, weighted by their questions, so that it
    doesn't hold that better models write more. Counts of nulls are taken from `tallies` where they are given.
    """
    found: list[Quality] = []
    lengths = _length_differences(battles, style)
    for number, judge in enumerate(battles.judges):
        nulls = {tally.model: tally.nulls for tally in tallies if tally.judge == judge}
        here = battles.judge == number
        single = [_quality(battles, here & (battles.model == model), lengths, judge, name, nulls.get(name))
                  for model, name in enumerate(battles.models) if (here & (battles.model == model)).any()]
        if single:
            whole = _of_all(_quality(battles, here, None, judge, None, _sum(nulls.values())), single)
            found += [whole, *(replace(one, warnings=tuple(_warnings_of_model(one, whole))) for one in single)]
    return tuple(found)


def _sum(counts: Iterable[Mapping[str, int]]) -> Mapping[str, int] | None:
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return total or None


def _quality(battles: Battles, rows: NDArray[np.bool_], lengths: Floats | None, judge: str, model: str | None,
             nulls: Mapping[str, int] | None) -> Quality:
    first, second = battles.first[rows], battles.second[rows]
    both = (first != NO_VERDICT) & (second != NO_VERDICT)
    one, two = np.sign(first[both]), np.sign(second[both])
    games = np.concatenate([-np.sign(first[first != NO_VERDICT]), np.sign(second[second != NO_VERDICT])])
    missing = int((first == NO_VERDICT).sum() + (second == NO_VERDICT).sum())
    known = nulls if nulls is not None else {"null": missing} if missing else {}
    return Quality(
        judge, model, len(games), int(both.sum()), flips=_share(one * two < 0), agreement=_share(one == two),
        first_wins=_share(games > 0), second_wins=_share(games < 0), ties=_share(games == 0), nulls=dict(known),
        length_correlation=None if lengths is None else _spearman((first[both] + second[both]).astype(np.float64),
                                                                  lengths[rows][both]))


def _share(which: NDArray[np.bool_]) -> float:
    """The share of true ones; NaN of none."""
    return float(which.mean()) if len(which) else float("nan")


def _length_differences(battles: Battles, style: Style | None) -> Floats | None:
    """The model's tokens minus its baseline's, of each row; NaN where one isn't known."""
    if style is None:
        return None
    column = FEATURES.index("token_len")
    unknown = np.full(len(style.questions), np.nan)

    def tokens(names: Sequence[str]) -> Floats:
        table = np.array([style.counts[name][:, column] if name in style.counts else unknown for name in names],
                         np.float64).reshape(len(names), len(unknown))
        return np.hstack([table, np.full((len(names), 1), np.nan)])  # a last column for questions without counts

    numbers = {uid: number for number, uid in enumerate(style.questions)}
    place = np.array([numbers.get(uid, len(numbers)) for uid in battles.questions], np.int64)[battles.question]
    difference: Floats = tokens(battles.models)[battles.model, place] - tokens(battles.baselines)[battles.baseline,
                                                                                                   place]
    return difference


def _spearman(verdicts: Floats, lengths: Floats) -> float | None:
    """Spearman's correlation, None where there are fewer than ten pairs or nothing varies."""
    from scipy.stats import rankdata

    known = ~np.isnan(lengths)
    if known.sum() < 10:
        return None
    one, two = rankdata(verdicts[known]), rankdata(lengths[known])
    if one.std() == 0 or two.std() == 0:
        return None
    return float(np.corrcoef(one, two)[0, 1])


def _null_share(quality: Quality) -> float:
    nulls = sum(quality.nulls.values())
    return nulls / (quality.games + nulls) if nulls else 0.0


def _orders(found: Quality) -> list[str]:
    if not _above(LEAST_AGREEMENT, found.agreement):
        return []
    return [f"{_who(found)}: the two orders agree on only {found.agreement:.1%} of "
            f"{many(found.questions, 'pair')} of games (below {LEAST_AGREEMENT:.0%}): much of the verdicts is the "
            "order"]


def _nulls(found: Quality) -> list[str]:
    share = _null_share(found)
    return [f"{_who(found)}: {share:.1%} of the games have no verdict ({causes(found.nulls)}), above {MOST_NULLS:.0%}: "
            "the score is of the others only"] if _above(share, MOST_NULLS) else []


def _above(share: float, limit: float) -> bool:
    """Above it also as it is printed, in percent with one digit."""
    return round(share - limit, 9) >= 0.0005


def _who(found: Quality) -> str:
    return f"judge '{found.judge}'" + (f" on '{found.model}'" if found.model is not None else "")


def _warnings_of_model(found: Quality, whole: Quality) -> list[str]:
    """What makes verdicts on one model unsafe, where that is not so of all of them."""
    if found.games + sum(found.nulls.values()) < LEAST_GAMES:
        return []
    return [*(() if _orders(whole) else _orders(found)), *(() if _nulls(whole) else _nulls(found))]


def _warnings_of_judge(found: Quality) -> list[str]:
    """What makes a judge's verdicts unsafe as a whole: leanings that are its own, not one model's."""
    said = [*_orders(found), *_nulls(found)]
    lead = found.first_wins - found.second_wins
    if found.games >= LEAST_GAMES and _above(abs(lead), MOST_PLACE):
        said.append(f"judge '{found.judge}': the {'first' if lead > 0 else 'second'} place wins {100 * abs(lead):.1f} "
                    f"points more often than the other (above {100 * MOST_PLACE:.0f}): between close models the place "
                    "decides")
    length = found.length_correlation
    if length is not None and abs(length) > MOST_LENGTH:
        said.append(f"judge '{found.judge}': verdicts follow the answers' length (correlation {length:+.2f}, beyond "
                    f"{MOST_LENGTH}): a score without style control rewards length")
    return said


def _of_all(over_all: Quality, single: Sequence[Quality]) -> Quality:
    """The judge as a whole: with the models' own length correlations, and with what is uneven between models."""
    known = [one for one in single if one.length_correlation is not None]
    weight = sum(one.questions for one in known)
    length = sum(one.questions * (one.length_correlation or 0.0) for one in known) / weight if weight else None
    found = replace(over_all, length_correlation=length)
    said = _warnings_of_judge(found) if found.games else _nulls(found)
    shares = sorted((_null_share(one), one.model or "") for one in single if one.games + sum(one.nulls.values()))
    if shares and _above(shares[-1][0] - shares[0][0], MOST_UNEVEN):
        said.append(f"judge '{found.judge}': games without a verdict are uneven: {shares[-1][0]:.1%} of "
                    f"'{shares[-1][1]}', {shares[0][0]:.1%} of '{shares[0][1]}'")
    return replace(found, warnings=tuple(said))


def judge_agreement(battles: Battles) -> tuple[Agreement, ...]:
    """How far each two judges agree on games that both have judged: same model, question, baseline and order."""
    verdicts = [_by_game(battles, number) for number in range(len(battles.judges))]
    found = []
    for one in range(len(verdicts)):
        for two in range(one + 1, len(verdicts)):
            shared = verdicts[one].keys() & verdicts[two].keys()
            pairs = np.array([verdicts[one][key] + verdicts[two][key] for key in shared], np.int8).reshape(-1, 4)
            games = np.concatenate([pairs[:, [0, 2]], pairs[:, [1, 3]]])
            games = np.sign(games[(games != NO_VERDICT).all(axis=1)])
            found.append(Agreement(battles.judges[one], battles.judges[two], len(games),
                                   _share(games[:, 0] == games[:, 1]), _kappa(games[:, 0], games[:, 1])))
    return tuple(found)


def _by_game(battles: Battles, judge: int) -> dict[tuple[int, int, int], tuple[int, int]]:
    """(model, question, baseline) -> both verdicts of one judge."""
    rows = np.flatnonzero(battles.judge == judge)
    keys = zip(battles.model[rows].tolist(), battles.question[rows].tolist(), battles.baseline[rows].tolist(),
               strict=True)
    return dict(zip(keys, zip(battles.first[rows].tolist(), battles.second[rows].tolist(), strict=True), strict=True))


def _kappa(one: NDArray[np.int8], two: NDArray[np.int8]) -> float:
    """Cohen's kappa of winner, tie and loser: agreement beyond chance; NaN where it isn't defined."""
    if not len(one):
        return float("nan")
    chance = sum(float((one == value).mean() * (two == value).mean()) for value in (-1, 0, 1))
    return float("nan") if chance >= 1 else (_share(one == two) - chance) / (1 - chance)
