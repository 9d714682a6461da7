"""Where kinds of data sets come from: this package, installed packages, the setting `pools.kinds`.

Never imports a kind that nobody asked for."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points

from automate.errors import ConfigError
from automate.pools.kinds.base import Kind

GROUP = "flock_hpc.datasets"
"""The entry points by which an installed package offers kinds."""
SHIPPED = {
    "siqa": "automate.pools.kinds.siqa:Siqa",
    "multiple-choice": "automate.pools.kinds.multiple_choice:MultipleChoice",
    "exact-match": "automate.pools.kinds.exact_match:ExactMatch",
}

_OWN = "automate.pools.kinds."
"""The table above is the word on these, whatever an older installation's metadata says."""


def kind_class(name: str, extra: Mapping[str, str] | None = None,
               points: Iterable[EntryPoint] | None = None) -> type[Kind]:
    """The class of this name. Raises ConfigError: no such kind, or one that can't be used."""
    places = _places(extra or {}, points)
    if name not in places:
        raise ConfigError(f"there is no data set kind {name!r}", todo=f"choose one of {', '.join(sorted(places))}, or "
                          "install the package that has it, or name its class in pools.kinds")
    return _imported(name, places[name])


class Kinds(Mapping[str, type[Kind]]):
    """All by name. A class is imported when it is asked for, so that one that is broken breaks no other."""

    def __init__(self, extra: Mapping[str, str] | None = None, points: Iterable[EntryPoint] | None = None) -> None:
        self._places = _places(extra or {}, points)

    def __getitem__(self, name: str) -> type[Kind]:
        return _imported(name, self._places[name])

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)


def _places(extra: Mapping[str, str], points: Iterable[EntryPoint] | None) -> dict[str, str]:
    """`package.module:Class` by name. Two of one name are refused: which would it be?"""
    places = dict(SHIPPED)
    offered = [(point.name, point.value) for point in points] if points is not None else list(_installed())
    theirs = [(name, place) for name, place in offered if not place.startswith(_OWN)]
    for name, place in (*theirs, *extra.items()):
        if places.setdefault(name, place) != place:
            raise ConfigError(f"two classes are the data set kind {name!r}: {places[name]} and {place}",
                              todo="give one of them another name")
    return places


@lru_cache(maxsize=1)
def _installed() -> tuple[tuple[str, str], ...]:
    return tuple((point.name, point.value) for point in entry_points(group=GROUP))


@lru_cache(maxsize=64)
def _imported(name: str, place: str) -> type[Kind]:
    module, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module.strip()), attribute.strip())
    except Exception as error:
        raise ConfigError(f"it can't be loaded: {type(error).__name__}: {error}", where=f"data set kind {name!r}",
                          todo=f"{place!r} must be package.module:Class, and importable here") from error
    if not inspect.isclass(found) or not issubclass(found, Kind):
        raise ConfigError(f"{place} is no subclass of automate.pools.kinds.base.Kind", where=f"data set kind {name!r}",
                          todo="subclass it (docs/datasets.md)")
    return found
