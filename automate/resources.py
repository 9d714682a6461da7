"""Finds the templates and configs that ship with the package, installed or in a checkout.

Never writes; a workspace's own templates/ are looked up by the caller."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _resource(name: str) -> Path:
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name


def templates_dir() -> Path:
    """Folder of the shipped Jinja templates."""
    return _resource("templates")


def configs_dir() -> Path:
    """Folder of the shipped configs: profiles, prompts, example campaign."""
    return _resource("configs")
