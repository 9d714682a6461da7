"""Names of checkpoints: what the pattern reads, in which order, and that no name is lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import ConfigError
from automate.results.training.checkpoints import group_names, natural, parse, same_place
from automate.settings_results import CHECKPOINT

NAME = "tulu3-8b-rank64-alpha1e5-001"


def test_a_name_is_read_whole() -> None:
    (found,), unmatched = parse([f"{NAME}-step48000"], CHECKPOINT)
    assert (found.run, found.step, found.final, found.label) == (NAME, 48000, False, "48000")
    assert found.groups == {"rank": "64", "lr": "1e5-001"}
    assert unmatched == []


def test_the_end_has_no_step_unless_one_is_named() -> None:
    (found,), _ = parse([f"{NAME}-final"], CHECKPOINT)
    assert (found.run, found.step, found.final, found.label) == (NAME, None, True, "final")
    (found,), _ = parse([f"{NAME}-final"], CHECKPOINT, final_step=50000)
    assert (found.step, found.final, found.label) == (50000, True, "50000 final")
    (found,), _ = parse([f"{NAME}-step49000final"], CHECKPOINT, final_step=50000)
    assert (found.step, found.final) == (49000, True)


@pytest.mark.parametrize("name", [
    "llama3.1-8b-instruct", f"{NAME}-", f"{NAME}-step", f"{NAME}-step12-extra", f"x\n{NAME}-step1", "", "final",
    f"{NAME}-step{'9' * 40}", f"{NAME}-step١٢"])
def test_a_name_that_does_not_fit_is_handed_back(name: str) -> None:
    assert parse([name], CHECKPOINT) == ([], [name])


def test_a_pattern_is_for_the_whole_name() -> None:
    pattern = r"(?P<run>a)-(?P<step>\d+)"
    found, unmatched = parse(["a-12", "a-12-extra", "an-a-12"], pattern)
    assert [one.model for one in found] == ["a-12"]
    assert unmatched == ["a-12-extra", "an-a-12"]


def test_order_is_by_run_and_step_with_the_end_last() -> None:
    steps = ("final", "step900", "step12000", "step3000")
    names = [f"a-rank{rank}-alpha1-{step}" for rank in (64, 8) for step in steps]
    found, _ = parse(names, CHECKPOINT)
    assert [(one.groups["rank"], one.label) for one in found] == [
        (rank, step) for rank in ("8", "64") for step in ("900", "3000", "12000", "final")]


@given(st.lists(st.text(max_size=30) | st.sampled_from([f"{NAME}-final", f"{NAME}-step7", "a-rank1-alpha2-step3"])))
def test_no_name_is_lost(names: list[str]) -> None:
    found, unmatched = parse(names, CHECKPOINT)
    assert sorted([*(one.model for one in found), *unmatched]) == sorted(set(names))


def test_other_groups_may_be_missing() -> None:
    found, _ = parse(["a-1", "a-seed2-1"], r"(?P<run>a)(-seed(?P<seed>\d+))?-(?P<step>\d+)")
    assert [dict(one.groups) for one in found] == [{}, {"seed": "2"}]
    assert group_names(found) == ["seed"]


def test_several_models_of_one_run_and_step_are_kept_and_told() -> None:
    found, unmatched = parse(["a-x-1", "a-y-1", "a-x-2"], r"(?P<run>a)-.-(?P<step>\d+)")
    assert [one.model for one in found] == ["a-x-1", "a-y-1", "a-x-2"]
    assert unmatched == []
    (told,) = same_place(found)
    assert "2 models are step 1 of run a: a-x-1, a-y-1" in told


@pytest.mark.parametrize(("pattern", "says"), [
    ("(", "not a regular expression"), ("(?P<run>.*)", "needs the groups"), ("(?P<step>.*)", "needs the groups")])
def test_a_pattern_that_can_not_be_used(pattern: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(["a"], pattern)


def test_values_sort_as_people_do() -> None:
    assert sorted(["1e-4", "5e-6", "1e-5"], key=natural) == ["5e-6", "1e-5", "1e-4"]
    assert sorted(["r64", "r8", "r128"], key=natural) == ["r8", "r64", "r128"]
    assert sorted(["nan", "b", "10", "9", "a²", "inf", ""], key=natural)  # of any kind, in some order
