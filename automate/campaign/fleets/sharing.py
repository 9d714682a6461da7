"""Which candidates share a fleet's servers: a base and its adapters, by names that a user knows.

Never starts a server; looks at adapters' own configurations only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from automate.arena.answering.candidates import Candidate, ServerGroup, groups, signature
from automate.arena.answering.checkpoint import Fault, adapter_of
from automate.names import name_problem

SPARE = 1
"""Empty slots for adapters beside a base that may be asked too.

What has no adapter is given the last slot's by vLLM's kernels for the CPU (vllm-project/vllm#48421): adapters take the
first slots, and an empty one adds nothing.
"""


def shared_groups(asked: Sequence[Candidate], max_loras: int, others: Iterable[str] = ()) -> list[ServerGroup]:
    """The groups of these candidates, in order of their first. Adapters go to their base where that is asked for, too.

    Nobody asked for the base: it is served by its folder's name, or by one like it where another model (`others`: of
    other servers) has that.
    """
    found, taken = list(groups(asked, max_loras)), {*others, *(one.model for one in asked)}
    for base in [one for one in asked if one.base is None and one.path is not None]:
        home = next((one for one in found if _wants(one, base)), None)
        if home is not None:
            alone = next(one for one in found if one.candidates == (base,))
            first, second = sorted((found.index(alone), found.index(home)))
            found[first] = ServerGroup((base, *home.adapters), base.model, SPARE)
            del found[second]
    return [one if one.candidates[0].base is None else replace(one, served=_base_name(one, taken), spare=SPARE)
            for one in found]


def _wants(group: ServerGroup, base: Candidate) -> bool:
    """Whether these are adapters of this very base, which has not come to them yet."""
    first = group.candidates[0]
    return first.base is not None and signature(first) == signature(base)


def _base_name(group: ServerGroup, taken: set[str]) -> str:
    """A free name for a base that nobody named, which is taken then."""
    own = group.folder.name if group.folder is not None else ""
    name = next(one for one in _names(own, group.served) if one not in taken)
    taken.add(name)
    return name


def _names(own: str, other: str) -> Iterator[str]:
    if own and name_problem(own) is None:
        yield own
    yield other
    yield from (f"{other}-{number}" for number in count(2))


def rehearsed_adapter(root: Path, candidate: Candidate) -> Candidate:
    """A rehearsed candidate with the base that its own folder names, where that is an adapter's."""
    folder, faults = candidate.path, list[Fault]()
    if candidate.base is not None or folder is None or (folder / "config.json").is_file():
        return candidate
    adapter = adapter_of(folder, faults)
    if adapter is None or adapter.base is None:
        return candidate
    named = (root / Path(adapter.base).expanduser(), folder / adapter.base)
    return replace(candidate, base=next((path for path in named if path.is_dir()), Path(adapter.base)),
                   rank=adapter.rank)
