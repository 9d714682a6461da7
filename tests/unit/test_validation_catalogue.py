"""Modules are found by name, without importing any; names that are hostile, unknown or doubled are refused."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from automate.errors import ConfigError
from automate.settings_validation import Validation
from automate.validation import catalogue
from automate.validation_places import ValidationPlaces

EXPLODES = "raise SystemExit('imported')\nMODULE = None\n"


def places_of(root: Path, *folders: str) -> ValidationPlaces:
    return ValidationPlaces(root, Validation(module_folders=list(folders)))


def nothing() -> list[EntryPoint]:
    return []


def make(path: Path, text: str = EXPLODES) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, catalogue.GROUP)


def test_the_shipped_modules_are_there_with_both_declarations(tmp_path: Path) -> None:
    found = catalogue.everything(places_of(tmp_path), entries=nothing)
    assert [source.name for source in found] == ["example", "llm_judge", "lora", "rl"]
    assert all(source.requirements and source.environment_yml and source.path is None for source in found)
    assert {source.origin for source in found} == {"shipped"}


def test_finding_a_module_imports_nothing(tmp_path: Path) -> None:
    before = {name for name in sys.modules if name.startswith("automate.validation.modules")}
    catalogue.find("rl", places_of(tmp_path), entries=nothing)
    assert {name for name in sys.modules if name.startswith("automate.validation.modules")} == before


@pytest.mark.parametrize("name", ["", "../lora", "lora\n", "lo ra", "-rf", ".lora", "a/b", "9lives", "é", "x" * 65])
def test_names_that_could_leave_the_folder_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="can't be the name"):
        catalogue.find(name, places_of(tmp_path), entries=nothing)


def test_an_unknown_name_gets_the_near_ones_or_all(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean lora"):
        catalogue.find("lara", places_of(tmp_path), entries=nothing)
    with pytest.raises(ConfigError, match="there are: example, llm_judge, lora, rl"):
        catalogue.find("zzz", places_of(tmp_path), entries=nothing)


def test_a_single_file_and_a_package_of_a_folder(tmp_path: Path) -> None:
    single = make(tmp_path / "mine" / "depth.py")
    make(tmp_path / "mine" / "depth.requirements.txt", "pydantic\n")
    package = make(tmp_path / "mine" / "wide" / "__init__.py").parent
    make(package / "environment.yml", "dependencies: [python]\n")
    places = places_of(tmp_path, "mine")
    found = catalogue.find("depth", places, entries=nothing)
    assert (found.path, found.origin, found.environment_yml) == (single, "folder", None)
    assert found.requirements == tmp_path / "mine" / "depth.requirements.txt"
    wide = catalogue.find("wide", places, entries=nothing)
    assert (wide.path, wide.requirements, wide.environment_yml) == (package, None, package / "environment.yml")


def test_helpers_and_tests_beside_modules_are_none(tmp_path: Path) -> None:
    make(tmp_path / "mine" / "helpers.py", "def f(): ...\n")
    make(tmp_path / "mine" / "test_depth.py")
    make(tmp_path / "mine" / "base.py")
    make(tmp_path / "mine" / "with-dash.py")
    make(tmp_path / "mine" / "empty" / "readme.md")
    places = places_of(tmp_path, "mine")
    assert {source.origin for source in catalogue.everything(places, entries=nothing)} == {"shipped"}
    with pytest.raises(ConfigError, match=r"helpers\.py is there, but names no MODULE"):
        catalogue.find("helpers", places, entries=nothing)


def test_a_name_taken_twice_is_refused_but_the_others_are_found(tmp_path: Path) -> None:
    make(tmp_path / "mine" / "lora.py")
    places = places_of(tmp_path, "mine")
    with pytest.raises(ConfigError, match="there are 2 validation modules named 'lora'"):
        catalogue.find("lora", places, entries=nothing)
    assert catalogue.find("rl", places, entries=nothing).origin == "shipped"


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    places = places_of(tmp_path, "gone")
    assert catalogue.missing_folders(places) == [tmp_path / "gone"]
    with pytest.raises(ConfigError, match=r"not there, of validation\.module_folders: .*gone"):
        catalogue.find("zzz", places, entries=nothing)


def test_entry_points_are_found_without_importing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "flock_plugin_x" / "__init__.py")
    deep = make(tmp_path / "flock_plugin_x" / "deep.py")
    make(tmp_path / "flock_plugin_x" / "deep.requirements.txt", "pydantic\n")
    make(tmp_path / "flock_plugin_x" / "sub" / "__init__.py")
    monkeypatch.syspath_prepend(str(tmp_path))

    def entries() -> list[EntryPoint]:
        return [entry("deep", "flock_plugin_x.deep:MODULE"), entry("sub", "flock_plugin_x.sub"),
                entry("sub", "flock_plugin_x.sub"), entry("gone", "flock_plugin_x.gone"),
                entry("none", "no_such_pkg.x"), entry("bad name", "flock_plugin_x.sub"), entry("builtin", "sys"),
                entry("odd", "..")]

    found = {source.name: source for source in catalogue.everything(places_of(tmp_path), entries=entries)
             if source.origin == "entry point"}
    assert {name: source.path for name, source in found.items()} == {
        "deep": deep, "sub": tmp_path / "flock_plugin_x" / "sub"}
    assert found["deep"].requirements == tmp_path / "flock_plugin_x" / "deep.requirements.txt"
    assert "flock_plugin_x" not in sys.modules
    with pytest.raises(ConfigError, match="no validation module 'gone'"):
        catalogue.find("gone", places_of(tmp_path), entries=entries)


def test_an_installed_package_s_entry_point_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = make(tmp_path / "flock_plugin_y.py")
    about = tmp_path / "flock_plugin_y-1.0.dist-info"
    make(about / "METADATA", "Metadata-Version: 2.1\nName: flock-plugin-y\nVersion: 1.0\n")
    make(about / "entry_points.txt", f"[{catalogue.GROUP}]\nfrom_dist = flock_plugin_y\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = catalogue.find("from_dist", places_of(tmp_path / "workspace"))
    assert (found.path, found.origin) == (file, "entry point")
