"""What flock-hpc's own Python lacks of a module's declaration, for the manager `current`.

Never installs anything, and never imports what it looks for."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement


def lacking(requirements: Path | None) -> str:
    """A sentence on the requirements that are not met here; "" where all are, or none are declared."""
    missing = [problem for line in _lines(requirements) if (problem := _problem(line))]
    return f"flock-hpc's own Python lacks {', '.join(missing)}" if missing else ""


def missing(requirements: Path | None) -> str:
    """A sentence on the requirements that are not there in any version; "" where all are."""
    absent = [problem for line in _lines(requirements) if (problem := _problem(line)) and "there is" not in problem]
    return f"flock-hpc's own Python lacks {', '.join(absent)}" if absent else ""


def _lines(path: Path | None) -> list[str]:
    try:
        text = "" if path is None else path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    return [line.partition(" #")[0].strip() for line in text.splitlines()]


def _problem(line: str) -> str | None:
    """What is wrong with one line of a requirements file; options and addresses are not judged."""
    try:
        wanted = Requirement(line)
    except InvalidRequirement:
        return None
    if wanted.url or (wanted.marker and not wanted.marker.evaluate()):
        return None
    try:
        there = version(wanted.name)
    except PackageNotFoundError:
        return f"{wanted}"
    return None if wanted.specifier.contains(there, prereleases=True) else f"{wanted} (there is {there})"
