"""Names: which may become file names, and the one name of a baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from automate.names import MAX_BYTES, baseline_tag, check_name, name_problem


@pytest.mark.parametrize("name", [
    "llama3.1-8b-instruct", "chatgpt-4o-latest(2025-03-26)", "org__model", "Qwen 2.5 (72B) 'final'", "$(reboot)`id`",
    "123", "1e5", "yes", "модель", "a" * MAX_BYTES, "a.b.c", "#hash", "100%",
])
def test_good_names_are_taken_as_they_are(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(("name", "reason"), [
    ("", "empty"), (" a", "spaces"), ("a ", "spaces"), ("a\nb", "control"), ("a\tb", "control"), ("a\x7fb", "control"),
    ("a\x85b", "control"), ("a\u2028b", "line break"), ("a\u2029b", "line break"), ("a/b", "slash"), ("a\\b", "slash"),
    ("..", "dot"), (".hidden", "dot"), ("a..b", "'..'"), ("-rf", "dash"), ("a" * (MAX_BYTES + 1), "longer"),
    ("é" * (MAX_BYTES // 2 + 1), "longer"), ("a\ud800b", "Unicode"), ("a\0b", "control"),
])
def test_bad_names_are_refused_with_the_reason(name: str, reason: str) -> None:
    with pytest.raises(ValueError, match=r"baseline name .* can't be used") as refused:
        check_name(name, "baseline")
    assert reason in str(refused.value)


@settings(deadline=None)
@given(st.text(min_size=1, max_size=200))
@example("a" * MAX_BYTES)
@example("\ufeffx")
def test_an_accepted_name_is_one_entry_of_its_folder(name: str) -> None:
    if name_problem(name) is None:
        path = Path("/folder") / f"{name}.jsonl"
        assert path.parent == Path("/folder")
        assert path.name == f"{name}.jsonl"
        assert len(f".{name}.jsonl.01234567.tmp".encode()) < 255
        assert len(name.splitlines()) == 1


def test_a_baseline_for_all_categories_is_named_by_its_model() -> None:
    assert baseline_tag("base") == "base"
    assert baseline_tag({"hard": "base", "creative": "base"}) == "base"


def test_baselines_by_category_have_one_name_whatever_their_order() -> None:
    tag = baseline_tag({"hard": "x", "creative": "y"})
    assert tag == baseline_tag({"creative": "y", "hard": "x"}) == "creative=y+hard=x"
    assert tag != baseline_tag({"creative": "x", "hard": "y"})


@settings(deadline=None)
@given(st.dictionaries(st.text(min_size=1), st.text(min_size=1), min_size=2))
def test_the_name_of_baselines_by_category_can_be_a_file_name(baselines: dict[str, str]) -> None:
    if len(set(baselines.values())) > 1:
        assert name_problem(baseline_tag(baselines)) is None


def test_long_mappings_are_named_by_their_hash() -> None:
    first = baseline_tag({"a" * 60: "x" * 60, "b": "y"})
    second = baseline_tag({"a" * 60: "x" * 60, "b": "z"})
    assert first != second
    assert first.startswith("by-category-")
    assert len(first) < 40
