"""Which model, judge and bench names may become file names.

Never changes a name: it is taken as it is, or refused with the reason."""

from __future__ import annotations

import hashlib

MAX_BYTES = 180


def name_problem(name: str) -> str | None:
    """Why `name` can't be a file name on a shared file system, or None where it can."""
    if not name or name != name.strip():
        return "it is empty, or has spaces at an end"
    if any(ord(char) < 32 or 127 <= ord(char) < 160 or char in "\u2028\u2029" for char in name):
        return "it holds a control character or line break"
    if "/" in name or "\\" in name:
        return "it holds a slash"
    if name.startswith(".") or ".." in name:
        return "it starts with a dot or holds '..'"
    if name.startswith("-"):
        return "it starts with a dash"
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        return "it is not valid Unicode"
    return f"it is longer than {MAX_BYTES} bytes" if size > MAX_BYTES else None


def check_name(name: str, what: str = "model") -> str:
    """Return `name`, or raise ValueError saying why it can't be used."""
    problem = name_problem(name)
    if problem:
        raise ValueError(f"{what} name {name!r} can't be used: {problem}")
    return name


def baseline_tag(baseline: str | dict[str, str]) -> str:
    """A file name that stands for a baseline: the model's name, or one name for a mapping by category.

    Baselines by category that all name one model are that model.
    """
    if isinstance(baseline, str):
        return baseline
    models = set(baseline.values())
    if len(models) == 1:
        return models.pop()
    text = "+".join(f"{category}={model}" for category, model in sorted(baseline.items()))
    if name_problem(text) is None and len(text) <= 100:
        return text
    return "by-category-" + hashlib.sha256(text.encode()).hexdigest()[:16]
