"""Configs of modules: files over each other, defaults below, errors that name file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from automate.resources import configs_dir
from automate.validation.inner import configuration
from automate.validation.inner.loading import load
from automate.validation.modules.base import BaseConfig, InvalidConfigValueException
from tests.unit.inner_support import assignment, module, start


class Config(BaseConfig):
    """A key of each kind."""

    rows: int
    fp16: bool = True
    rate: float = 0.5
    names: tuple[str, ...] = ()
    inner: dict[str, int] = {}  # noqa: RUF012 - pydantic copies it
    folder: Path = Path("outputs")


class Loose(BaseModel):
    """A schema that is not made of BaseConfig."""

    renamed: int = Field(1, alias="other")


def files(folder: Path, *contents: object) -> list[Path]:
    found = []
    for number, content in enumerate(contents):
        path = folder / f"c{number}.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        found.append(path)
    return found


def refusal(folder: Path, *contents: object, schema: type[BaseModel] = Config) -> str:
    with pytest.raises(InvalidConfigValueException) as caught:
        configuration.load(files(folder, *contents), schema, "mine")
    assert caught.value.cause == "config"
    return str(caught.value)


def test_later_files_win_key_by_key_and_defaults_are_last(tmp_path: Path) -> None:
    found = configuration.load(files(tmp_path, {"rows": 1, "fp16": False, "inner": {"a": 1, "b": 2}},
                                     {"rows": 2, "inner": {"a": 3}}), Config, "mine")
    assert found == Config(rows=2, fp16=False, rate=0.5, inner={"a": 3})


def test_files_that_are_not_there_are_left_out(tmp_path: Path) -> None:
    found = configuration.load([tmp_path / "none.json", *files(tmp_path, {"rows": 1})], Config, "mine")
    assert found == Config(rows=1)


def test_values_that_json_writes_in_its_own_way_are_taken(tmp_path: Path) -> None:
    found = configuration.load(files(tmp_path, {"rows": 1, "rate": 2, "names": ["a"], "folder": "x/y"}), Config, "m")
    assert found == Config(rows=1, rate=2.0, names=("a",), folder=Path("x/y"))


@pytest.mark.parametrize(("value", "said"), [
    ({"rows": "1"}, "`rows`: expected a valid integer, found text"),
    ({"rows": 1.0}, "`rows`: expected a valid integer, found a number"),
    ({"rows": True}, "`rows`: expected a valid integer, found true or false"),
    ({"rows": None}, "`rows`: expected a valid integer, found null"),
    ({"rows": 1, "fp16": "yes"}, "`fp16`: expected a valid boolean, found text"),
    ({"rows": 1, "fp16": 1}, "`fp16`: expected a valid boolean, found a whole number"),
    ({"rows": 1, "names": "ab"}, "`names`: expected a valid array, found text"),
    ({"rows": 1, "inner": {"a": "b"}}, "`inner.a`: expected a valid integer, found text"),
])
def test_a_wrong_type_names_file_key_and_what_was_expected(tmp_path: Path, value: object, said: str) -> None:
    text = refusal(tmp_path, {"rows": 5}, value)
    assert said in text and text.startswith(str(tmp_path / "c1.json"))


def test_the_file_that_is_named_is_the_one_that_set_the_key(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"rows": "x"}, {"fp16": False}, {"rate": 1.0})
    assert text.startswith(str(tmp_path / "c0.json"))


def test_an_unknown_key_is_an_error_with_a_near_match(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"rows": 1}, {"fp_16": True})
    assert text == f"{tmp_path / 'c1.json'}: `fp_16` is unknown; did you mean `fp16`?"
    assert "expected one of: folder, fp16" in refusal(tmp_path, {"rows": 1, "zzzz": 1})


def test_an_unknown_key_is_an_error_for_any_schema(tmp_path: Path) -> None:
    assert "`nothing` is unknown" in refusal(tmp_path, {"nothing": 1}, schema=Loose)
    assert configuration.load(files(tmp_path, {"other": 4}), Loose, "mine") == Loose(other=4)


def test_a_key_that_is_missing_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path, {"fp16": True}) == f"{tmp_path / 'c0.json'}: `rows` is missing"
    with pytest.raises(InvalidConfigValueException, match=r"the config of mine: `rows` is missing"):
        configuration.load([], Config, "mine")


@pytest.mark.parametrize(("content", "said"), [
    ("{", "line 1, column 2: not JSON"), ("", "not JSON"), ("[1]", "expected one JSON object"),
    ("{\"rows\": NaN}", "NaN is not a number"), ("{\"rows\": 1, \"rows\": 2}", "`rows` stands there twice"),
    ("[" * 50_000, ""), ("{\"rows\": " + "9" * 5000 + "}", ""), (" " * (2**20 + 1), "larger than"),
])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, content: str, said: str) -> None:
    text = refusal(tmp_path, content)
    assert text.startswith(str(tmp_path / "c0.json")) and said in text and len(text) < 700


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "c.json").mkdir()
    with pytest.raises(InvalidConfigValueException, match=r"c\.json: can't be read"):
        configuration.load([tmp_path / "c.json"], Config, "mine")
    (tmp_path / "d.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(InvalidConfigValueException, match="not UTF-8"):
        configuration.load([tmp_path / "d.json"], Config, "mine")


def test_values_are_never_shown(tmp_path: Path) -> None:
    assert "hf_secret" not in refusal(tmp_path, {"rows": "hf_secret", "inner": {"a": "hf_secret"}})


def test_keys_are_made_plain(tmp_path: Path) -> None:
    text = refusal(tmp_path, {"a\x1b[2J\u202e" + "b" * 5000: 1})
    assert "\x1b" not in text and "\u202e" not in text and len(text) < 900


def test_a_config_that_is_wrong_makes_the_start_unusable(tmp_path: Path) -> None:
    wrong = files(tmp_path, {"rowz": 1})
    result = start(assignment(tmp_path, path=module(tmp_path, "return Metrics(score=1)"), configs=wrong))
    assert (result.outcome.value, result.cause) == ("unusable", "config")
    assert str(wrong[0]) in result.reason and "`rowz`" in result.reason and "`rows`" in result.reason


@pytest.mark.parametrize("name", ["example", "rl", "llm_judge", "lora"])
def test_the_shipped_configs_fit_their_modules(name: str) -> None:
    path = configs_dir() / f"{name}.json"
    shipped: dict[str, Any] = json.loads(path.read_text())
    kind = load(name).kind
    config = configuration.load([path], kind.config_schema, name)
    assert config.model_dump(mode="json", include=set(shipped)) == shipped
