"""An adapter's config under an outdated peft, which is made here: it takes nothing that it doesn't know."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from automate.validation.inner import adapters
from automate.validation.modules.base import InvalidConfigValueException


@dataclass
class OldConfig:
    """A config as peft had them before it left out unknown keys by itself."""

    peft_type: str = ""
    r: int = 8
    target_modules: list[str] = field(default_factory=list)

    @classmethod
    def from_json_file(cls, path: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(Path(path).read_text())
        return found

    @classmethod
    def from_peft_type(cls, **given: Any) -> OldConfig:
        return cls(**given)


@pytest.fixture(autouse=True)
def old_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    peft, mapping = ModuleType("peft"), ModuleType("peft.mapping")
    peft.__dict__.update(__version__="0.12.0", mapping=mapping)
    mapping.__dict__["PEFT_TYPE_TO_CONFIG_MAPPING"] = {"LORA": OldConfig}
    monkeypatch.setitem(sys.modules, "peft", peft)
    monkeypatch.setitem(sys.modules, "peft.mapping", mapping)


def write(folder: Path, **values: object) -> Path:
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, **values}))
    return folder


def test_keys_of_a_newer_version_are_left_out_and_named(tmp_path: Path) -> None:
    made, unknown = adapters.load(write(tmp_path, target_modules=["q"], use_new=False, peft_version="0.21.2"))
    assert made == OldConfig("LORA", 4, ["q"])
    assert unknown == ["peft_version", "use_new"]
    assert adapters.load(write(tmp_path))[1] == []


@pytest.mark.parametrize(("values", "kind"), [
    ({"peft_type": "RANDLORA"}, InvalidConfigValueException),
    ({"peft_type": "OF_NEXT_YEAR", "peft_version": "0.30.0"}, InvalidConfigValueException),
    ({"peft_type": "OF_NEXT_YEAR", "peft_version": "1.0.0.dev0@UNKNOWN"}, InvalidConfigValueException),
    ({"peft_type": "NOTHING"}, adapters.UnknownKind),
    ({"peft_type": "NOTHING", "peft_version": 9}, adapters.UnknownKind),
    ({"peft_type": "NOTHING", "peft_version": "0.9.1"}, adapters.UnknownKind),
    ({"peft_type": "NOTHING", "peft_version": "0.12.1"}, adapters.UnknownKind)])
def test_kinds_that_are_not_known(tmp_path: Path, values: dict[str, object], kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        adapters.load(write(tmp_path, **values))
    assert str(values["peft_type"]) in str(caught.value)
    if isinstance(caught.value, InvalidConfigValueException):
        assert caught.value.cause == "environment" and "0.12.0" in str(caught.value)
