"""Kinds of data sets: where they come from, one of one's own, letters of options."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from automate.errors import ConfigError
from automate.pools.initial import VALUES
from automate.pools.kinds.base import Asked, Kind, Question, kinds, options_text
from automate.pools.kinds.finding import GROUP, SHIPPED, kind_class
from automate.pools.kinds.letters import last_letter
from tests.unit.pool_support import opened

DOCS = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


class Other(Kind):
    name = "other"


def point(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_the_shipped_kinds_are_there_and_say_what_they_are() -> None:
    found = kinds()
    assert set(SHIPPED) <= set(found)
    for name in SHIPPED:
        info = found[name]({}).info()
        assert info["name"] == name
        assert info["description"]
        assert "SystemPrompt" in info["settings"]  # type: ignore[operator]
        assert found[name].reading <= set(found[name].meanings)


def test_kinds_come_from_settings_and_from_installed_packages() -> None:
    assert kind_class("other", {"other": f"{__name__}:Other"}) is Other
    assert kind_class("other", {}, [point("other", f"{__name__}:Other")]) is Other
    assert kind_class("siqa", {"siqa": SHIPPED["siqa"]}, [point("siqa", SHIPPED["siqa"])]).name == "siqa"


@pytest.mark.parametrize(("extra", "name", "why"), [
    ({}, "nothing", "no data set kind 'nothing'"),
    ({"mine": "no_such_module:Kind"}, "mine", "can't be loaded"),
    ({"mine": f"{__name__}:Nothing"}, "mine", "can't be loaded"),
    ({"mine": "nonsense"}, "mine", "can't be loaded"),
    ({"mine": "../etc/passwd:x"}, "mine", "can't be loaded"),
    ({"mine": "builtins:dict"}, "mine", "no subclass"),
    ({"mine": f"{__name__}:point"}, "mine", "no subclass"),
    ({"siqa": f"{__name__}:Other"}, "siqa", "two classes are the data set kind 'siqa'")])
def test_a_kind_that_cant_be_used_is_refused_in_words(extra: Mapping[str, str], name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        kind_class(name, extra)


def test_a_broken_package_doesnt_break_other_kinds() -> None:
    assert kind_class("siqa", {"broken": "no_such_module:Kind"}).name == "siqa"
    found = kinds({"broken": "no_such_module:Kind"})
    assert "broken" in found
    assert found["siqa"].name == "siqa"
    with pytest.raises(ConfigError, match="broken"):
        found["broken"]


def test_letters_of_options() -> None:
    assert list(options_text(("x", "y", "z"))) == [("A", "x"), ("B", "y"), ("C", "z")]
    with pytest.raises(ValueError, match="27 options"):
        options_text(["x"] * 27)


def test_only_letters_that_are_asked_for_count() -> None:
    assert last_letter("A then Z", "AB") == "A"
    assert last_letter("Z", "AB") is None


# --- the example of docs/datasets.md, as a user would have it -------------------------------------------
def example() -> str:
    """The first Python block of the page."""
    return DOCS.read_text().split("```python\n")[1].split("```")[0]


@pytest.fixture
def own_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    folder = tmp_path / "lib"
    folder.mkdir()
    (folder / "my_sets.py").write_text(example())
    monkeypatch.syspath_prepend(str(folder))
    yield "my_sets:Analogies"
    sys.modules.pop("my_sets", None)


def test_the_example_of_the_page_for_authors_works(own_package: str) -> None:
    kind = kind_class("analogies", {"analogies": own_package})({"Hint": "yes"})
    question = kind.row({"a": "hand", "b": "glove", "c": "foot", "answer": "Sock"})
    asked = kind.ask(question)
    assert isinstance(asked, Asked)
    assert "hand" in asked.messages[-1]["content"]
    assert kind.correct(kind.retrieve("It is a SOCK.", question), question.result)
    assert not kind.correct(kind.retrieve("shoe", question), question.result)
    assert kind.retrieve(" .", question) == ""
    with pytest.raises(ValueError, match="no field 'c'"):
        kind.row({"a": "hand", "b": "glove"})


def test_the_example_loads_like_any_other_kind(own_package: str, tmp_path: Path) -> None:
    with opened(tmp_path / "work", kinds={"analogies": own_package}) as bench:
        rows = [{"a": "hand", "b": "glove", "c": "foot", "answer": "sock"}]
        dataset = bench.dataset("mine", "analogies", rows=rows, Hint="yes")
        assert bench.one("SELECT result FROM questions WHERE dataset = ?", dataset) == "sock"


class Careless(Kind):
    """Fails in ways that a kind should not."""

    name = "careless"

    def row(self, raw: Mapping[str, object]) -> Question:
        if raw.get("how") == "raise":
            return raw["not there"]  # type: ignore[return-value]
        if raw.get("how") == "list":
            return Question("", "q", ["a", "b"], "1")  # type: ignore[arg-type]
        if raw.get("how") == "number":
            return Question("", "q", (), 5)  # type: ignore[arg-type]
        return Question("", "q", (), "x")


def test_a_careless_kind_fails_on_its_row_only(tmp_path: Path) -> None:
    with opened(tmp_path, kinds={"careless": f"{__name__}:Careless"}) as bench:
        bench.dataset("set", "careless", rows=[{}])
        receipt = bench.send("owner", "set", "Load-Data", [{}, {"how": "raise"}, {"how": "list"}, {"how": "number"}])
        answer = receipt.replies[-1]["Data"]
        assert '"known": 1' in str(answer) or '"known":1' in str(answer)
        assert "fails on it: KeyError" in str(answer)
        assert "made no Question" in str(answer)
        assert "the result is int, not text" in str(answer)




def test_the_page_for_authors_has_every_setting() -> None:
    named = set(re.findall(r"`([A-Za-z]+)`", "".join(
        line.split(" | ")[0] for line in DOCS.read_text().splitlines() if line.startswith("| `"))))
    for name in SHIPPED:
        assert set(kind_class(name).meanings) <= named
    assert set(VALUES) <= named
