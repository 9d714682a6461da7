"""Replies of the API: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import DataError
from automate.validation.assignments import Assignment
from automate.validation.replies import (
    Task,
    merged_input,
    parse_assignment,
    parse_tasks,
    parse_time,
    url_expiry,
    wire_id,
)

NOW = 1_795_273_200.0  # 2026-11-21T15:00:00Z
URL = "https://bucket.example/set.jsonl?X-Amz-Date=20261121T145900Z&X-Amz-Expires=3600&X-Amz-Signature=abc"


def reply(**changes: Any) -> dict[str, Any]:
    body: dict[str, Any] = {
        "id": 4711, "task_submission": {"task_id": 12, "id": 9, "data": {
            "hg_repo_id": "org/model", "base_model": "theirs", "revision": "main", "gpu_type": "A100"}},
        "assigned_at": "2026-11-21T14:59:30.123456", "status": "validating",
        "data": {"base_model": "qwen1.5", "context_length": 1024, "max_params": 10, "validation_set_url": URL}}
    return {name: value for name, value in (body | changes).items() if value is not ...}


def parsed(lease: float | None = None, **changes: Any) -> Assignment:
    return parse_assignment(json.dumps(reply(**changes)).encode(), "12", "lora", NOW, lease)


def test_an_assignment_as_documented() -> None:
    found = parsed(lease=600.0)
    assert (found.id, found.task_id, found.module, found.problem, found.cause) == ("4711", "12", "lora", None, None)
    assert found.needs_data and found.needs_model and found.fetched_at == NOW
    assert found.assigned_at == "2026-11-21T14:59:30.123456"
    assert found.deadline == pytest.approx(NOW - 30 + 0.123456 + 600)
    assert found.url_expires == NOW - 60 + 3600


def test_without_a_lease_there_is_no_deadline_and_a_late_clock_does_not_lengthen_it() -> None:
    assert parsed().deadline is None
    assert parsed(lease=60.0, assigned_at="2026-11-21T16:00:00").deadline == NOW + 60
    assert parsed(lease=60.0, assigned_at=...).deadline == NOW + 60
    assert parsed(lease=60.0, assigned_at={"odd": 1}).assigned_at is None


def test_ids_are_numbers_or_text() -> None:
    inner = reply()["task_submission"] | {"task_id": "12"}
    assert parsed(id="4711", task_submission=inner).problem is None
    assert parsed(id="4711").id == parsed(id=4711).id


@pytest.mark.parametrize("bad", [None, True, 1.5, "", "../up", "a/b", "-x", ".x", "a--b", "x" * 200, [1], {"a": 1}, -5,
                                 "a b", "a\u202eb"])
def test_no_usable_id(bad: Any) -> None:
    assert wire_id(bad) is None
    with pytest.raises(DataError, match="no usable assignment id"):
        parsed(id=bad)


@pytest.mark.parametrize(("changes", "said"), [
    ({"data": ...}, "`data` is missing"),
    ({"data": [1]}, "`data` is missing, or no object"),
    ({"task_submission": ...}, "`task_submission`"),
    ({"task_submission": {"task_id": 12}}, "`task_submission`"),
    ({"task_submission": {"task_id": 13, "data": {}}}, "belongs to task 13"),
    ({"status": "completed"}, "its status is 'completed'"),
    ({"data": {"validation_set_url": 5}}, "is int, expected text"),
    ({"data": {"validation_set_url": "file:///etc/passwd"}}, "no http"),
    ({"data": {"validation_set_url": "https://a b/"}}, "no http"),
    ({"data": {"validation_set_url": "http://[::1"}}, "no http"),
    ({"data": {"hg_repo_id": "../../x"}}, "no name of a repository"),
    ({"data": {"hg_repo_id": None}}, "no name of a repository"),
    ({"data": {"revision": 7}}, "`revision` is no text")])
def test_what_is_missing_or_wrong_is_named(changes: dict[str, Any], said: str) -> None:
    found = parsed(**changes)
    assert found.problem is not None and said in found.problem
    assert found.cause == "reply" and found.id == "4711"


def test_fields_that_nobody_knows_are_no_problem() -> None:
    assert parsed(novel={"deep": [1]}, data=reply()["data"] | {"x": None}).problem is None


def test_what_is_not_asked_for_is_not_needed() -> None:
    found = parsed(data={}, task_submission={"task_id": 12, "data": {}})
    assert (found.needs_data, found.needs_model, found.problem) == (False, False, None)


def test_the_assignment_wins_over_the_submission() -> None:
    merged = merged_input(json.dumps(reply()).encode())
    assert merged["base_model"] == "qwen1.5" and merged["hg_repo_id"] == "org/model" and merged["gpu_type"] == "A100"
    assert merged_input(reply()) == merged
    assert merged_input({"data": 5, "task_submission": []}) == {}


@pytest.mark.parametrize(("body", "said"), [
    (b"", "empty"), (b"  ", "empty"), (b"<html>502</html>", "HTML or XML"), (b"OK", "not JSON"), (b"[1]", "found list"),
    (b'{"id": 1', "not JSON"), (b'{"id": NaN}', "not JSON"), (b"\xff\xfe", "not JSON"), (b"[" * 100_000, "not JSON"),
    (b'{"id": ' + b"9" * 5000 + b"}", "")])
def test_a_body_that_is_no_assignment_is_told_as_what_it_is(body: bytes, said: str) -> None:
    with pytest.raises(DataError) as caught:
        parse_assignment(body, "12", "lora", NOW, None)
    assert said in caught.value.what and len(caught.value.what) < 500


def test_control_characters_of_a_reply_do_not_reach_a_terminal() -> None:
    with pytest.raises(DataError) as caught:
        parse_assignment(b'"\\u001b[31mred\\u202e"', "12", "lora", NOW, None)
    assert "\x1b" not in str(caught.value) and "\u202e" not in str(caught.value)


def test_tasks_as_documented() -> None:
    rows = [{"id": 12, "title": "T\u001b[1m", "task_type": "training", "status": "submission_phase",
             "submission_phase_ends_at": "2026-11-21T15:00:00.000000",
             "final_validation_ends_at": "2026-11-21T16:00:00.000000",
             "data": {"max_params": 5, "context_length": 1024}, "new": 1},
            {"id": "13", "data": None}, {"id": None}, "text", {"id": 14, "data": {"max_params": True}}]
    found = parse_tasks(json.dumps(rows).encode())
    assert found == [Task("12", "T?[1m", "training", "submission_phase", NOW + 3600, 5, 1024), Task("13"), Task("14")]


@pytest.mark.parametrize("body", [b'{"items": []}', b"5", b"null", b"<html>", b""])
def test_a_list_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(DataError):
        parse_tasks(body)


def test_times() -> None:
    assert parse_time("2026-11-21T15:00:00") == NOW == parse_time("2026-11-21T16:00:00+01:00")
    assert [parse_time(bad) for bad in (None, 5, "yesterday", "x" * 999)] == [None] * 4


@pytest.mark.parametrize(("url", "expected"), [
    (URL, NOW + 3540), ("https://a/b", None), ("https://a/?X-Amz-Expires=60", NOW + 60),
    ("https://a/?Expires=1795276800&Signature=x", 1_795_276_800.0), ("https://a/?X-Amz-Expires=soon", None),
    ("https://a/?X-Amz-Expires=60&X-Amz-Date=never", None), (None, None), ("http://[", None), (5, None)])
def test_when_an_address_dies(url: Any, expected: float | None) -> None:
    assert url_expiry(url, NOW) == expected


_values = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
                       lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(
                           ["id", "data", "task_submission", "task_id", "status", "assigned_at", "hg_repo_id",
                            "validation_set_url", "revision"]), inner, max_size=6), max_leaves=12)


@given(_values, st.none() | st.floats(1, 1e6))
def test_no_reply_breaks_the_reader(value: Any, lease: float | None) -> None:
    try:
        found = parse_assignment(json.dumps(value).encode("utf-8", "surrogatepass"), "12", "lora", NOW, lease)
    except DataError:
        return
    assert wire_id(found.id) == found.id
