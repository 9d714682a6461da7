"""YAML with line numbers: types are not guessed, and every error names file and line."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.errors import ConfigError, StorageError
from automate.yamlfile import Value, parse_scalar, parse_yaml, read_yaml


def value_of(text: str) -> Value:
    return parse_yaml(f"key: {text}\n", "file.yaml").value["key"]


@pytest.mark.parametrize("text", [
    "12:00:00", "1-12:00:00", "yes", "no", "on", "Off", "y", "0123", "0253417860914427", "1_000", "0x1F", "0o7",
    "2024-01-01", "2024-01-01T00:00:00Z", "1.2.3", "=", "llama3.1-8b", "nulls", "truely", "1e", "e5", ".", "+",
])
def test_what_yaml_1_1_would_guess_stays_text(text: str) -> None:
    assert value_of(text) == text


@pytest.mark.parametrize(("text", "value"), [
    ("true", True), ("False", False), ("0", 0), ("-7", -7), ("+7", 7), ("0.5", 0.5), ("-.5", -0.5), ("3.", 3.0),
    ("1e5", 1e5), ("2.5E-3", 2.5e-3), ("~", None), ("null", None), ("", None), ("'1'", "1"), ('"true"', "true"),
    ("[1, a, ~]", [1, "a", None]), ("{a: 1, 2: b}", {"a": 1, "2": "b"}), ("9007199254740993", 9007199254740993),
])
def test_the_core_types_are_read(text: str, value: Value) -> None:
    read = value_of(text)
    assert read == value
    assert type(read) is type(value)


def test_every_key_and_item_has_its_line() -> None:
    file = parse_yaml("a: 1\nb:\n  c:\n    - x\n    - y\n  # comment\n  d: {e: 2}\n", "file.yaml")
    assert file.lines == {("a",): 1, ("b",): 2, ("b", "c"): 3, ("b", "c", 0): 4, ("b", "c", 1): 5, ("b", "d"): 7,
                          ("b", "d", "e"): 7}
    assert file.where(("b", "c", 1)) == "file.yaml:5"
    assert file.where(("b", "d", "missing", "deeper")) == "file.yaml:7"
    assert file.where(("missing",)) == "file.yaml"


@pytest.mark.parametrize(("text", "line", "words"), [
    ("a: 1\nb: 2\na: 3\n", 3, "the key 'a' stands here twice"),
    ("a:\n  b: 1\n  'b': 2\n", 3, "the key 'b' stands here twice"),
    ("a: 1\n\tb: 2\n", 2, "not valid YAML"),
    ("a: [1, 2\nb: 3\n", 2, "not valid YAML"),
    ("a: b: c\n", 1, "not valid YAML"),
    ("a: *unknown\n", 1, "undefined alias"),
    ("a: &x [*x]\n", 1, "contains itself"),
    ("? [a]\n: 1\n", 1, "plain word"),
    ("- a\n- b\n", 1, "expected a mapping"),
    ("just text\n", 1, "expected a mapping"),
    ("a: 1\n---\nb: 2\n", 2, "document"),
    ("a: 1\nb: !!python/object/apply:os.system [id]\n", 2, "could not determine a constructor"),
])
def test_errors_name_file_and_line(text: str, line: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        parse_yaml(text, "file.yaml")
    assert refused.value.where == f"file.yaml:{line}"


@pytest.mark.parametrize("text", ["a: b\0c\n", "a: \x1b[1m\n"])
def test_control_characters_are_an_error_of_the_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"file\.yaml"):
        parse_yaml(text, "file.yaml")


@pytest.mark.parametrize("text", ["a: !!bool maybe", "a: !!int ''", "a: !!timestamp never"])
def test_bad_explicit_tags_are_an_error_of_the_file(text: str) -> None:
    with pytest.raises(ConfigError, match=r"file\.yaml"):
        parse_yaml(text, "file.yaml")


@pytest.mark.parametrize("text", ["", "\n", "# only a comment\n"])
def test_an_empty_file_is_an_empty_mapping(text: str) -> None:
    assert parse_yaml(text, "file.yaml").value == {}


def test_aliases_that_end_are_followed() -> None:
    assert parse_yaml("a: &x {b: 1}\nc: *x\n", "f").value == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(("text", "value"), [
    ("8", 8), ("0.5", 0.5), ("true", True), ("12:00:00", "12:00:00"), ("", None), ("a: b", "a: b"), ("*", "*"),
    ("*-final", "*-final"), ("[a, b]", ["a", "b"]), ("{", "{"), ("@x", "@x"), ("'quoted'", "quoted"), ("- a", "- a"),
])
def test_one_scalar(text: str, value: Value) -> None:
    assert parse_scalar(text) == value


@pytest.mark.parametrize("text", ["a #b", "#b", "&x", "x\nother: 1"])
def test_one_scalar_loses_nothing(text: str) -> None:
    assert parse_scalar(text) == text


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Zl", "Zp"]), max_size=12)
LEAVES = st.none() | st.booleans() | st.integers(-(10**12), 10**12) | TEXT


@settings(deadline=None)
@given(st.dictionaries(TEXT, st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=8)))
def test_json_is_yaml_but_for_its_odd_line_breaks(data: dict[str, Value]) -> None:
    assert parse_yaml(orjson.dumps(data).decode(), "file.yaml").value == data


def test_a_file_is_read_as_utf_8_with_or_without_a_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: \xc3\xa9\n")
    assert read_yaml(path).value == {"name": "é"}
    path.write_bytes(b"name: \xff\n")
    with pytest.raises(ConfigError, match="not UTF-8") as refused:
        read_yaml(path)
    assert refused.value.where == str(path)
    with pytest.raises(StorageError, match=r"b\.yaml"):
        read_yaml(tmp_path / "b.yaml")
