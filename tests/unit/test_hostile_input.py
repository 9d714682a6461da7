"""Numbers that are none, and escape codes in what is printed: refused, or made visible."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.cli.main import main
from automate.errors import FlockError, ManyErrors


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300"])
@pytest.mark.parametrize("words", [["monitor", "--watch", "--interval"], ["bundle", "--max-mb"],
                                   ["doctor", "--timeout"]])
def test_a_number_that_is_none_is_a_usage_error(words: list[str], value: str, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words, value]) == 2


def test_errors_hold_no_control_characters() -> None:
    bad = "a\x1b[31mb\x1b]0;x\x07\x9b1m\u202e\rc\td\n"
    error = FlockError(bad, where=bad, todo=bad)
    for text in (str(error), str(ManyErrors([error])), *error.args):
        assert not set(text) & set("\x1b\x07\x9b\u202e\r") and "\td\n" in text


def test_a_scenario_s_escape_codes_are_not_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "s.yaml"
    path.write_text('events:\n- {after: 1m, kind: "a\\e[31mb\\e]0;x\\a"}\n')
    assert main(["rehearse", str(path)]) != 0
    assert main(["no\x1bcommand"]) == 2
    assert main(["rehearse", "no\x1b]0;x\x07"]) != 0
    shown = capsys.readouterr()
    assert shown.err and not set(shown.out + shown.err) & set("\x1b\x07")
