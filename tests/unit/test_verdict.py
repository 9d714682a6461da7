"""Verdicts: a label only where the judge gave one, by upstream's rule and the project's own exceptions."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.arena.verdict import ACCEPTED, LABELS, PATTERNS, SHORT, read_verdict
from automate.journal import read_jsonl
from tests.unit.support import real_data

TEN = ["A>>B", "A>B", "A=B", "B>A", "B>>A", "B=A", "A<B", "A<<B", "B<A", "B<<A"]


def upstream(text: str) -> str | None:
    """Upstream's rule: the last match of the first pattern that matches anything, on upper-cased text."""
    for pattern in PATTERNS:
        found = re.findall(pattern, text.upper())
        if found:
            return str(found[-1])
    return None


def test_the_labels() -> None:
    assert sorted(TEN) == sorted(ACCEPTED)
    assert set(LABELS) < ACCEPTED


@pytest.mark.parametrize("label", TEN)
@pytest.mark.parametrize("text", ["My final verdict is: [[{}]]", "[{}]", "**[[{}]]**", "\\boxed{{[[{}]]}}", "[[[{}]]]"])
def test_each_of_the_ten_is_read_in_either_case(label: str, text: str) -> None:
    for said in (label, label.lower()):
        verdict = read_verdict(text.format(said))
        assert (verdict.label, verdict.short, verdict.reason) == (label, False, None)


@pytest.mark.parametrize(("text", "label"), [
    ("[[a>>b]]", "A>>B"),
    ("First [[A>B]], but on reflection: [[B>>A]]", "B>>A"),
    ("[[A>B]] is my verdict, not [B>A]", "A>B"),
    ("[A>B] and then [B>A]", "B>A"),
    ("arr[b] = 1 and [A=B]", "A=B"),
    ("[[A=B]] where m = grid[[0]][a] and arr[b]", "A=B"),
    ("[[A=B]]\n[[c]]", "A=B"),
    ("[[A]] at first, [[A>>B]] at last", "A>>B"),
    ("[[ A>B ]] [A>B]", "A>B"),
])
def test_the_last_match_of_the_first_pattern_that_matches(text: str, label: str) -> None:
    assert read_verdict(text).label == label == upstream(text)


@pytest.mark.parametrize(("text", "label"), [("[[A]]", "A>B"), ("[[b]]", "B>A"), ("[[A>B]] or rather [[B]]", "B>A")])
def test_a_bare_side_in_double_brackets_is_short_for_better(text: str, label: str) -> None:
    verdict = read_verdict(text)
    assert (verdict.label, verdict.short) == (label, True)
    assert upstream(text) in SHORT


@pytest.mark.parametrize("text", [
    "for a in arr[b]: list[a]", "x[a][b]", "arr[b] ... list[a]", "[A]", "Answer [B] is better.", "[a<b>c]", "[=]",
    "[A>B] is wrong, since list[a] fails",
])
def test_code_and_single_sides_are_no_label(text: str) -> None:
    verdict = read_verdict(text)
    assert (verdict.label, verdict.short) == (None, False)
    assert verdict.reason


@pytest.mark.parametrize("label", ["A=B>>B", "AB", "A>>>B", "A>A", "=", "B>B", "A>=B", "A==B", "A<>B"])
@pytest.mark.parametrize("brackets", ["[[{}]]", "[{}]"])
def test_anything_else_in_brackets_is_named_and_is_no_label(label: str, brackets: str) -> None:
    verdict = read_verdict("Verdict: " + brackets.format(label))
    assert verdict.label is None
    assert f"[{label}]" in (verdict.reason or "")


@pytest.mark.parametrize("text", ["No brackets, A is better.", "[[C]]", "[[Tie]]", "[[A > B]]", "[]", "A>B", "[[]]"])
def test_no_label(text: str) -> None:
    assert read_verdict(text).reason == "no label in the judge's reply"


@pytest.mark.parametrize("text", [None, "", "  \n\t"])
def test_an_empty_reply(text: str | None) -> None:
    assert read_verdict(text).reason == "the judge's reply is empty"


@pytest.mark.parametrize(("text", "label"), [
    ("<think>[[A>B]]?</think>[[B>A]]", "B>A"),
    ("\n<think>[[A>B]]</think> no, <think>[[A>>B]]</think>\n[[A=B]]", "A=B"),
    ("reasoning without a start [[A>>B]] </think> [[B>A]]", "B>A"),
    ("<think>[[A>B]]</think>[[B]]", "B>A"),
    ("I <think> that [[A>B]]", "A>B"),
])
def test_only_what_follows_the_last_thought_counts(text: str, label: str) -> None:
    assert read_verdict(text).label == label


def test_thoughts_alone_are_no_verdict() -> None:
    assert read_verdict("<think>It must be [[A>B]]").reason == "the judge was still thinking when its reply ended"
    assert read_verdict("  <think>").label is None
    assert read_verdict("<think>[[A>B]]</think>").reason == "no label in the judge's reply"
    assert read_verdict("[[A>B]]</think> I can't say").label is None
    assert read_verdict("<think>so</think> [[A>B]] <think>or not</think> I can't say").label is None


@settings(deadline=None)
@given(st.text(alphabet="[]AB<>=ab c/thinkTHINK\n\u2028", max_size=40))
def test_a_label_is_upstreams_own_reading(text: str) -> None:
    said = text.rpartition("</think>")[2]
    verdict = read_verdict(text)
    assert (verdict.label is None) == (verdict.reason is not None)
    if verdict.label is not None:
        theirs = upstream(said)
        assert theirs == verdict.label or (verdict.short and SHORT[str(theirs)] == verdict.label)
    elif text.strip() and not text.lstrip().startswith("<think>"):
        theirs = upstream(said)
        assert theirs is None or theirs not in ACCEPTED


@pytest.mark.parametrize(("path", "games", "nulls"), [
    ("DeepSeek-R1-Distill-Llama-70B/bagel-8b-v1.0.jsonl", 362, 8),
    ("gpt-3.5-turbo-0125/Nexusflow__Athene-V2-Chat.jsonl", 216, 2),
])
def test_real_judgments_are_read_as_they_were_scored(path: str, games: int, nulls: int) -> None:
    """The recorded scores are five labels and null; no text of these two judges falls under an exception."""
    rows = read_jsonl(real_data("v01-judgments", path)).records
    played = [game for _, row in rows for game in row["games"]]
    seen = Counter[str | None]()
    for game in played:
        verdict = read_verdict(game["judgment"])
        assert verdict.label == game["score"], game["judgment"][-300:]
        assert not verdict.short
        seen[verdict.label] += 1
    assert seen.total() == games
    assert seen.pop(None) == nulls
    assert set(seen) == set(LABELS)
