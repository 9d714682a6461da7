"""Rules of allocation: the facts' integer examples, and what holds for every rule."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.pools.allocation import RULES, Allocation, Standing, ranked

RULE = pytest.mark.parametrize("rule", sorted(RULES))


def field(*correct: int, total: int = 10) -> list[Standing]:
    """Models 1, 2, ... that joined in this order."""
    return [Standing(number, f"p{number}", right, total, number, number) for number, right in enumerate(correct, 1)]


def amounts(allocation: Allocation) -> list[int]:
    return [share.amount for share in allocation.shares]


@st.composite
def fields(draw: st.DrawFn) -> list[Standing]:
    rows = []
    for number in range(draw(st.integers(0, 25))):
        total = draw(st.sampled_from([0, 1, 3, 7, 10, 1954, 2**26 - 1]))
        rows.append(Standing(number + 1, draw(st.sampled_from("abcd")), draw(st.integers(0, total)), total,
                             draw(st.integers(0, 3)), number))
    return rows


@pytest.mark.parametrize(("funds", "n", "shares", "dust"), [
    (100, 1, [100], 0),
    (100, 2, [66, 33], 1),
    (100, 3, [50, 33, 16], 1),
    (100, 5, [33, 26, 20, 13, 6], 2),
    (100, 10, [18, 16, 14, 12, 10, 9, 7, 5, 3, 1], 5),
    (100, 12, [18, 16, 14, 12, 10, 9, 7, 5, 3, 1], 5),
    (1000, 3, [500, 333, 166], 1),
    (1000, 11, [181, 163, 145, 127, 109, 90, 72, 54, 36, 18], 5),
    (7, 10, [1, 1, 1], 4),
])
def test_arithmetic_decrease_gives_the_integer_examples(funds: int, n: int, shares: list[int], dust: int) -> None:
    got = RULES["ArithmeticDecrease"](funds, field(*range(1, n + 1), total=20), 10)
    assert (amounts(got), got.dust, got.refund) == (shares, dust, 0)
    assert [share.model for share in got.shares] == list(range(n, n - len(shares), -1)), "the best, best first"
    assert [share.rank for share in got.shares] == list(range(1, len(shares) + 1))


def test_the_best_ten_of_twelve_are_paid_and_not_the_worst() -> None:
    got = RULES["ArithmeticDecrease"](1000, field(*range(12), total=12), 10)
    assert {share.model for share in got.shares} == set(range(3, 13))


def test_winners_is_how_many_are_paid() -> None:
    assert amounts(RULES["ArithmeticDecrease"](100, field(9, 8, 7, 6), 2)) == [66, 33]
    assert amounts(RULES["Proportional"](100, field(6, 4, 4, 1), 2)) == [60, 40]
    assert amounts(RULES["Equal"](100, field(9, 8, 7, 6), 2)) == [25, 25, 25, 25]


def test_models_without_a_right_answer() -> None:
    assert amounts(RULES["ArithmeticDecrease"](100, field(0, 0), 10)) == [66, 33]
    assert amounts(RULES["Equal"](100, field(3, 0, 0), 10)) == [33, 33, 33]
    assert RULES["WinnerTakesAll"](100, field(0, 0), 10) == Allocation((), 0, 100)
    assert RULES["Proportional"](100, field(0, 0), 10) == Allocation((), 0, 100)
    assert amounts(RULES["Proportional"](100, field(0, 3), 10)) == [100]


def test_proportional_is_exact_over_unequal_totals() -> None:
    standings = [Standing(1, "a", 1, 3, 1, 1), Standing(2, "b", 1, 6, 2, 2)]
    assert amounts(RULES["Proportional"](99, standings, 10)) == [66, 33]


def test_equal_with_less_than_one_unit_each_gives_all_back_as_dust() -> None:
    assert RULES["Equal"](2, field(1, 1, 1), 10) == Allocation((), 2, 0)


def test_who_joined_first_is_first_among_equals_then_the_order_of_joining() -> None:
    late, early, twin = (Standing(1, "l", 5, 10, 9, 1), Standing(2, "e", 1, 2, 3, 2), Standing(3, "t", 2, 4, 3, 3))
    assert [one.participant for one in ranked([late, twin, early])] == ["e", "t", "l"]


@RULE
def test_a_pool_without_models_is_refunded(rule: str) -> None:
    assert RULES[rule](123, [], 10) == Allocation((), 0, 123)


@RULE
@given(funds=st.integers(1, 9 * 10**18), standings=fields(), winners=st.integers(1, 12))
def test_nothing_is_created_or_lost(rule: str, funds: int, standings: list[Standing], winners: int) -> None:
    got = RULES[rule](funds, standings, winners)
    assert sum(amounts(got)) + got.dust + got.refund == funds
    assert got.dust >= 0 and got.refund >= 0 and all(amount > 0 for amount in amounts(got))
    assert len({share.model for share in got.shares}) == len(got.shares)
    assert got.dust < max(len(standings), 1), "rounding leaves less than one unit a model"


@RULE
@given(funds=st.integers(1, 10**6), standings=fields(), winners=st.integers(1, 12))
def test_a_better_model_never_gets_less(rule: str, funds: int, standings: list[Standing], winners: int) -> None:
    got = {share.model: share for share in RULES[rule](funds, standings, winners).shares}
    paid = [got[one.model].amount if one.model in got else 0 for one in ranked(standings)]
    assert paid == sorted(paid, reverse=True)
    for rank, one in enumerate(ranked(standings), 1):
        if one.model in got:
            assert (got[one.model].rank, got[one.model].participant) == (rank, one.participant)


@RULE
@given(funds=st.integers(1, 10**6), standings=fields(), data=st.data())
def test_the_order_of_asking_does_not_matter(rule: str, funds: int, standings: list[Standing], data: st.DataObject,
                                             ) -> None:
    shuffled = data.draw(st.permutations(standings))
    assert RULES[rule](funds, shuffled, 10) == RULES[rule](funds, standings, 10)
