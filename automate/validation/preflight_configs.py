"""Preflight's look at what the settings and configs of validation name: folders, modules, values of configs.

Changes nothing, and asks nobody."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from automate.errors import FlockError
from automate.names import name_problem
from automate.validation import catalogue, environments
from automate.validation.check import Check
from automate.validation_places import ValidationPlaces

Config = Callable[[str, str], None]
"""Reads a module's config for a task; raises FlockError where it can't be used."""


def built_or_configured(places: ValidationPlaces) -> list[str]:
    """Modules whose environment is built in this workspace, or that have a config file in it."""
    found = []
    for source in catalogue.everything(places):
        config = places.configs / f"{source.name}.json"
        if os.path.lexists(config) or (places.settings.manager != "current"
                                       and environments.state(source, places).status in ("ready", "outdated")):
            found.append(source.name)
    return sorted(set(found))


def named_folders(places: ValidationPlaces) -> Iterator[Check]:
    """Folders and modules that settings name and that are not there."""
    for folder in catalogue.missing_folders(places):
        yield Check("FH512", "error", "validation.module_folders", f"there is no folder {folder}",
                    "make it, or take it out of the settings")
    for setting in ("templates", "judge_prompts"):
        named = getattr(places.settings, setting)
        if named is not None and not (places.root / named).exists():
            yield Check("FH515", "error", f"validation.{setting}", f"there is no folder {places.root / named}",
                        "clone the checkout there, or take it out of the settings")


def writable(places: ValidationPlaces) -> Iterator[Check]:
    """Whether the state's folder, or the nearest one above it that is there, can be written."""
    here = next((path for path in (places.home, *places.home.parents) if path.exists()), Path("/"))
    if not os.access(here, os.W_OK | os.X_OK):
        yield Check("FH516", "error", str(here), "it can't be written: nothing can be fetched, run or reported",
                    "check rights and mount (ls -ld, df)")


def configs(modules: Sequence[str], task_ids: Sequence[str], config: Config) -> Iterator[Check]:
    """The configs of modules, for each task."""
    for module in modules:
        tasks = [task for task in task_ids if name_problem(task) is None] or [""]
        wrong = 0
        for task in tasks:
            try:
                config(module, task)
            except FlockError as error:
                wrong += 1
                yield Check("FH519", "error", error.where or f"config of {module}", error.what, error.todo or "")
        if not wrong:
            yield Check("FH519", "ok", f"config of {module}", "its keys and values are known")
