"""The smallest module, as the documentation shows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.validation.inner.files import Outcome, Result
from tests.unit.inner_support import assignment, start


def run(folder: Path, text: str, config: str = "{}") -> Result:
    (folder / "set.jsonl").write_text(text)
    (folder / "example.json").write_text(config)
    return start(assignment(folder, name="example", ours={"validation_set_url": "https://x/y"},
                            configs=[folder / "example.json"], data=str(folder / "set.jsonl")))


def test_the_mean_of_a_column(tmp_path: Path) -> None:
    result = run(tmp_path, '{"value": 1}\n{"value": 2.5, "more": 0}\n', '{"scale": 2.0}')
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"score": 3.5})


@pytest.mark.parametrize(("text", "said"), [
    ("", "no rows"), ('{"value": 1}\n{"value": "x"}\n', "row 2"), ('{"value": 1}\n\n', "row 2"), ("[1]\n", "row 1"),
    ('{"value": null}', "row 1"), ('{"value": NaN}\n', "row 1"), ('{"value": 1e999}\n', "row 1"),
    ("[" * 100_000 + "\n", "row 1")])
def test_a_broken_set_is_the_validators_trouble_and_the_row_is_named(tmp_path: Path, text: str, said: str) -> None:
    result = run(tmp_path, text)
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data")
    assert said in result.reason


def test_a_set_that_is_not_text_is_the_validators_trouble(tmp_path: Path) -> None:
    (tmp_path / "set.jsonl").write_bytes(b"\xff\xfe\x00")
    result = start(assignment(tmp_path, name="example", ours={"validation_set_url": "x"},
                              data=str(tmp_path / "set.jsonl")))
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data")


def test_a_set_that_is_not_on_disk_is_the_validators_trouble(tmp_path: Path) -> None:
    nothing = start(assignment(tmp_path, name="example", ours={"validation_set_url": "x"}))
    assert (nothing.outcome, nothing.cause) == (Outcome.RECOVERABLE, "no-data")
    gone = start(assignment(tmp_path, name="example", ours={"validation_set_url": "x"}, data=str(tmp_path / "gone")))
    assert (gone.outcome, gone.cause) == (Outcome.RECOVERABLE, "files-gone")
