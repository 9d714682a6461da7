"""A stand-in for conda, mamba and micromamba on PATH, and a module of one's own to build an environment for."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from automate.settings_validation import Validation
from automate.validation import catalogue
from automate.validation.catalogue import Source
from automate.validation_places import ValidationPlaces

STAND_IN = f"""#!{sys.executable}
import json, os, sys
from pathlib import Path
arguments = sys.argv[1:]
prefix = Path(arguments[arguments.index("--prefix") + 1])
declared = Path(arguments[arguments.index("--file") + 1]) if "--file" in arguments else None
with (Path(__file__).parent / "calls.jsonl").open("a") as file:
    file.write(json.dumps({{"argv": arguments, "environ": dict(os.environ),
                            "name": declared and declared.name, "text": declared and declared.read_text()}}) + "\\n")
(prefix / "bin").mkdir(parents=True)
python = prefix / "bin" / "python"
python.write_text('#!/bin/sh\\necho "$@" >> "{{0}}/python-calls"\\nexec {sys.executable} "$@"\\n'.replace(
    "{{0}}", str(Path(__file__).parent)))
python.chmod(0o755)
if (Path(__file__).parent / "broken").exists():
    print("CondaError: no such channel")
    sys.exit(3)
"""


def places_of(root: Path, **settings: Any) -> ValidationPlaces:
    """Places of a workspace that looks for modules in its own folder `mine`."""
    return ValidationPlaces(root, Validation.model_validate({"module_folders": ["mine"], **settings}))


def module_of(root: Path, *, requirements: str | None = "pydantic>=2.7\n", yml: str | None = None) -> Source:
    """A module `own` in the folder `mine`, with the declarations given."""
    folder = root / "mine"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "own.py").write_text("MODULE = None\n")
    for name, text in (("own.requirements.txt", requirements), ("own.environment.yml", yml)):
        (folder / name).unlink(missing_ok=True)
        if text is not None:
            (folder / name).write_text(text)
    return catalogue.find("own", places_of(root))


def install(folder: Path, *names: str) -> Path:
    """Put the stand-in on a PATH of its own, under each name."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(STAND_IN)
        (folder / name).chmod(0o755)
    return folder


def calls(folder: Path) -> list[dict[str, Any]]:
    """What the stand-in was called with."""
    file = folder / "calls.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
