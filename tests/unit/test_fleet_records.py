"""What is written down of a fleet comes back as it was, and nothing else is taken for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.errors import DataError
from automate.serving.fleet.records import FleetSpec, Group, Spent, Wish, WorkerRecord, is_host
from tests.unit.fleet_registry_support import GROUP, make_record, make_spec

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SECONDS = st.floats(0.001, 1e9)
COUNTS = st.integers(0, 1000)
JSON = st.recursive(st.none() | st.booleans() | st.integers(-(1 << 53), 1 << 53) | st.floats(allow_nan=False) | TEXT,
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)
GROUPS = st.builds(Group, st.just(0), TEXT, TEXT, COUNTS, COUNTS, st.lists(TEXT, max_size=3).map(tuple), COUNTS,
                   st.none() | SECONDS, TEXT, SECONDS, SECONDS, COUNTS, SECONDS)
SPECS = st.builds(FleetSpec, TEXT, TEXT, TEXT, st.floats(0, 4e9), TEXT, st.sampled_from(["slurm", "local"]),
                  GROUPS.map(lambda group: (group, replace(group, number=1))), TEXT, SECONDS, SECONDS, SECONDS, SECONDS,
                  TEXT, st.none() | TEXT)
PAIRS = st.dictionaries(COUNTS, st.tuples(COUNTS, COUNTS), max_size=3)
WISHES = st.builds(Wish, st.dictionaries(COUNTS, COUNTS, max_size=4), st.booleans(), st.floats(0, 4e9), PAIRS,
                   st.lists(TEXT, max_size=3).map(tuple))
RECORDS = st.builds(make_record, st.from_regex(r"\A[a-z0-9][a-z0-9.-]?[a-z0-9]{0,9}\Z"), group=COUNTS, model=TEXT,
                    host=st.sampled_from(["node-1", "10.0.0.7", "fe80::1", "a.b.example"]), port=st.integers(1, 65535),
                    nonce=TEXT, version=TEXT, job=st.none() | TEXT, node=TEXT, beat=st.integers(0, 1 << 50),
                    also=st.lists(TEXT, max_size=3).map(tuple), state=st.sampled_from(["ready", "draining"]),
                    context=st.none() | COUNTS, since=st.floats(-4e9, 4e9), until=st.none() | st.floats(0, 4e9),
                    running=st.none() | SECONDS, spent=st.builds(Spent, SECONDS, SECONDS, SECONDS))


def through_json(data: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(orjson.dumps(data))
    return found


def record_json(**changes: Any) -> dict[str, Any]:
    return through_json(make_record().as_json()) | changes


# There and back


@given(SPECS)
def test_a_spec_comes_back_as_it_was(spec: FleetSpec) -> None:
    assert FleetSpec.of(through_json(spec.as_json()), "here") == spec


@given(WISHES)
def test_a_wish_comes_back_as_it_was(wish: Wish) -> None:
    assert Wish.of(through_json(wish.as_json())) == wish


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record: WorkerRecord) -> None:
    assert WorkerRecord.of(through_json(record.as_json()), "here") == record


@given(st.dictionaries(st.sampled_from([*record_json()]) | TEXT, JSON, max_size=6))
def test_whatever_stands_in_a_record_is_a_record_or_said_not_to_be(changes: dict[str, Any]) -> None:
    try:
        record = WorkerRecord.of(record_json(**changes), "here")
    except DataError as error:
        assert error.where == "here"
        assert "\n" not in error.what
    else:
        assert isinstance(record.port, int)
        assert record.url.startswith("https://")
        assert record.state in {"ready", "draining"}
        assert all(isinstance(name, str) for name in record.names)


@given(st.dictionaries(TEXT, JSON, max_size=4))
def test_what_is_no_record_at_all_is_said(data: dict[str, Any]) -> None:
    for of in (WorkerRecord.of, FleetSpec.of):
        with pytest.raises(DataError):
            of(data, "here")


def test_a_record_of_another_version_keeps_what_is_known_here() -> None:
    data = record_json(colour="blue", holder=record_json()["holder"] | {"mood": 1})
    del data["served"]
    assert WorkerRecord.of(data, "here") == make_record(holder=WorkerRecord.of(data, "here").holder)


# What is refused


@pytest.mark.parametrize("changes", [
    {"port": 0}, {"port": 65536}, {"port": "80"}, {"port": 80.5}, {"port": True}, {"port": None}, {"host": ""},
    {"host": "a b"}, {"host": "evil.example/x?"}, {"host": "a@b"}, {"host": "node:1"}, {"host": "h\r\nx: y"},
    {"id": ""}, {"id": "../x"}, {"id": "a/b"}, {"id": ".hidden"}, {"id": "a..b"}, {"id": "-rf"}, {"id": "x" * 500},
    {"id": "a\nb"}, {"state": "evil"}, {"beat": "1"}, {"beat": None}, {"model": 3}, {"also": "adapter"}, {"also": [1]},
    {"holder": None}, {"holder": {}}, {"spent": []}, {"spent": {"load": "x"}}, {"version": None}, {"until": "soon"},
    {"nonce": 7},
])
def test_a_wrong_value_is_refused_and_not_shown(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError) as error:
        WorkerRecord.of(record_json(**changes), "here")
    assert "evil" not in str(error.value)
    assert error.value.todo


@pytest.mark.parametrize("changes", [
    {"groups": ()}, {"groups": (GROUP, GROUP)}, {"groups": (replace(GROUP, number=-1),)}, {"heartbeat": 0.0},
    {"stale": -1.0}, {"idle": 0.0}, {"patience": 0.0},
])
def test_a_spec_that_cant_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="not a fleet"):
        FleetSpec.of(through_json(make_spec(**changes).as_json()), "here")


@pytest.mark.parametrize("text", ["", " ", "node 1", "a..b", ".a", "a.", "[::1]", "::1%eth0", "1.2.3.4:80", "x/y",
                                  "n\n", "bücher", "*", "a" * 64, "a.b" * 100, "\x00"])
def test_what_is_no_host(text: str) -> None:
    assert not is_host(text)


@pytest.mark.parametrize("text", ["node-1", "node_1", "n", "10.0.0.1", "::1", "fe80::1", "a.b.c", "0node", "a" * 63])
def test_what_is_a_host(text: str) -> None:
    assert is_host(text)


# Meaning


def test_an_address_with_colons_stands_in_brackets() -> None:
    assert make_record(host="::1", port=80).url == "https://[::1]:80"
    assert make_record(host="node-1", port=80).url == "https://node-1:80"


def test_the_next_heartbeat() -> None:
    record = make_record().beaten(7.0, served=3)
    assert (record.beat, record.time, record.served) == (1, 7.0, 3)


def test_groups_answer_to_their_adapters_too() -> None:
    spec = make_spec()
    assert spec.group_of("judge") is spec.group_of("adapter") is GROUP
    assert spec.group_of("other") is None
    assert make_record().names == ("judge", "adapter")


def test_seconds_add_up() -> None:
    assert (Spent(1, 2, 3) + Spent(10, 20, 30)).total == 66


def test_what_is_wanted_of_a_group() -> None:
    assert Wish().wanted_of(GROUP) == GROUP.least
    assert Wish({0: 3}).wanted_of(GROUP) == 3
    assert Wish({0: 3}, stop=True).wanted_of(GROUP) == 0
