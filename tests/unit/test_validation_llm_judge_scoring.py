"""From judges' texts to the metric: the protocol's rules, odd ones too."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.validation.modules.llm_judge import scoring
from automate.validation.modules.llm_judge.scoring import ReplyFault, final_score, read_reply, request_fields


@pytest.mark.parametrize(("text", "expected"), [
    ('{"score": 8, "confidence": 0.9, "reasoning": "r"}', (8.0, 0.9)),
    ('words {"a": 1} then ```json\n{"confidence": 0.5, "score": "7"}\n``` and {"score": 1}', (7.0, 0.5)),
    ('{"score": 9}', (9.0, 0.0)),
    ('{"score": 11, "confidence": 3}', (11.0, 3.0)),
    ('{"score": -3, "confidence": 1}', (-3.0, 1.0)),
    ('{"score": 8, "confidence": "very"}', (8.0, 0.0)),
    ('{"score": "8/10", "confidence": 1}', (5.0, 0.0)),
    ('{"score": 8, "confidence": 1, "reasoning": "it says } here"}', (5.0, 0.0)),
    ('{"x": "\\"score\\"", "score" : 4, "confidence": 1}', (4.0, 1.0)),
    ("", (5.0, 0.0)), ("no json", (5.0, 0.0)), ("{" * 50, (5.0, 0.0)), ("{'score': 8}", (5.0, 0.0)),
    ('{"score": NaN, "confidence": 1}', (5.0, 0.0)), ('{"score": 1e999, "confidence": 1}', (5.0, 0.0)),
    ('{"score": 8, "confidence": "inf"}', (5.0, 0.0)),
])
def test_a_reply_is_read_as_the_client_reads_it(text: str, expected: tuple[float, float]) -> None:
    assert read_reply(text) == expected


@pytest.mark.parametrize("text", [None, '{"score": null}', '{"score": [8]}', '{"score": 8, "confidence": null}',
                                  '{"score": 1' + "0" * 400 + "}", '{"score": ' + "[" * 200_000 + "}"])
def test_values_over_which_the_client_trips_are_told_apart(text: str | None) -> None:
    with pytest.raises(ReplyFault):
        read_reply(text)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet='{}" score\n:x', max_size=60)
       | st.lists(st.sampled_from(["{", "}", '"score"', " ", "a", "\n"]), max_size=30).map("".join))
def test_the_flat_object_is_the_one_that_the_expression_finds(text: str) -> None:
    found = re.search(r'\{[^}]*"score"[^}]*\}', text)
    assert scoring._flat_object(text) == (found.group(0) if found else None)


def test_a_long_hostile_reply_is_read_in_linear_time() -> None:
    assert read_reply("{" * 3_000_000 + '"score"') == scoring.UNREADABLE


def test_the_metric_is_the_mean_of_products_over_ten() -> None:
    assert final_score([[(8, 0.5), (6, 1.0)], [(10, 1.0)]]) == pytest.approx((4 + 6 + 10) / 3 / 10)
    assert final_score([[(9, 0.0)], [(9, 1.0)]]) == pytest.approx(0.45)  # no confidence counts as no score
    assert final_score([[(8, 1.0)] * 6, [scoring.ITEM_DEFAULT]]) == pytest.approx((48 + 2.5) / 7 / 10)
    assert final_score([[], []]) == 0.5


@pytest.mark.parametrize(("requested", "expected"), [
    ("gpt-4o", {"model": "gpt-4o", "temperature": 0.1}),
    ("o3-mini-high", {"model": "o3-mini", "temperature": 0.1, "reasoning_effort": "high"}),
    ("low-x-thinking", {"model": "x", "temperature": 0.1, "reasoning_effort": "low",
                        "extra_body": {"thinking": {"type": "enabled"}}}),
    ("high", {"model": "high", "temperature": 0.1, "reasoning_effort": "high"}),
    ("kimi-k2.5", {"model": "kimi-k2.5", "temperature": 0.6, "extra_body": {"thinking": {"type": "disabled"}}}),
    ("kimi-k2.6-thinking", {"model": "kimi-k2.6", "temperature": 1, "extra_body": {"thinking": {"type": "enabled"}}}),
    ("kimi-k2.6-low", {"model": "kimi-k2.6", "temperature": 0.1, "reasoning_effort": "low",
                       "extra_body": {"thinking": {"type": "disabled"}}}),
])
def test_a_requested_name_is_split_into_fields(requested: str, expected: dict[str, object]) -> None:
    assert request_fields(requested, 0.1) == expected
