"""An adapter's config as the installed peft takes it, and whether that peft is too old for it.

Needs peft, and imports it inside functions; never says that a submission is wrong where the library may be."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from automate.validation.inner import words
from automate.validation.inner.evidence import ADAPTER
from automate.validation.modules.base import InvalidConfigValueException

KINDS = frozenset({
    "ADALORA", "ADAMSS", "BEFT", "BOFT", "C3A", "CARTRIDGE", "DEFT", "DELORA", "FOURIERFT", "FROD", "GLORA", "GRALORA",
    "HIRA", "HRA", "IA3", "LILY", "LN_TUNING", "LOHA", "LOKR", "LORA", "MISS", "OFT", "OSF", "PEANUT", "POLY", "PSOFT",
    "PVERA", "RANDLORA", "ROAD", "SHADOW", "SHIRA", "SUPERTUNING", "TINYLORA", "TRAINABLE_TOKENS", "UNILORA", "VBLORA",
    "VERA", "WAVEFT", "XLORA"})
"""Kinds of adapters that some version of peft up to 0.21 merges."""


class UnknownKind(ValueError):
    """A kind of adapter that no version of peft has."""


def _version(text: object) -> tuple[int, ...]:
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text) if isinstance(text, str) else None
    return tuple(map(int, found.groups())) if found else ()


def _too_old(config: Mapping[str, object], installed: str) -> bool:
    return _version(config.get("peft_version")) > _version(installed)


def load(folder: Path) -> tuple[object, Collection[str]]:
    """The `PeftConfig` of an adapter's folder, and the keys of its file that the installed peft doesn't know.

    These are left out, as peft itself does from 0.14 on. Raises InvalidConfigValueException (cause `environment`) for
    a kind of adapter that other versions have, UnknownKind for one that none has, and what peft raises.
    """
    import peft
    from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING

    config = json.loads((folder / ADAPTER).read_bytes())
    kind = config["peft_type"]
    if kind not in {str(getattr(known, "value", known)) for known in PEFT_TYPE_TO_CONFIG_MAPPING}:
        if kind in KINDS or _too_old(config, peft.__version__):
            raise InvalidConfigValueException(f"peft {peft.__version__} doesn't know adapters of the kind "
                                              f"{words.plain(kind, 40)}", cause="environment")
        raise UnknownKind(f"no peft knows adapters of the kind {words.plain(kind, 40)!r}")
    maker = PEFT_TYPE_TO_CONFIG_MAPPING[kind]
    known = inspect.signature(maker.__init__).parameters
    given = maker.from_json_file(str(folder / ADAPTER))
    made = maker.from_peft_type(**{name: value for name, value in given.items() if name in known})
    return made, sorted(words.plain(name, 60) for name in given if name not in known)


def merged(model: object, folder: Path) -> object:
    """The model with the adapter of a folder merged into it; says which keys of its config were left out."""
    import peft

    config, unknown = load(folder)
    if unknown:
        print(f"peft {peft.__version__} doesn't know, and leaves out, of {ADAPTER}: {', '.join(unknown)[:500]}")
    tuned = peft.PeftModel.from_pretrained(model, str(folder), config=config, local_files_only=True)
    whole: object = tuned.merge_and_unload()
    return whole
