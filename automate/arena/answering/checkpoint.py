"""Whether a model's folder is whole: weights, configuration, tokenizer, chat template; and what an adapter needs.

Never reads the weights themselves; names, sizes and headers are enough. Never changes anything."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from automate.arena.weights import fingerprint
from automate.journal import parse_object

UNFINISHED = (".tmp", ".incomplete", ".part", ".partial", ".crdownload", ".download")
Marks = tuple[tuple[str, int, int], ...]
ADAPTER_CONFIG = "adapter_config.json"
_CUT = "it is still being written, or was cut off"
MOST_RANK = 512
"""The largest LoRA rank that vLLM serves."""
_PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})(\.safetensors|\.bin)$")
_INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "spiece.model", "tekken.json")
_PLAIN_JSON = ("tokenizer.json", "tekken.json", "vocab.json", "tokenizer_config.json", "added_tokens.json",
               "special_tokens_map.json", "chat_template.json", "generation_config.json")
_LARGEST_HEADER = 100 << 20
_Whole = dict[str, msgspec.Raw]
"""A JSON object whose values are only gone over: twelve times as quick as reading them."""


class _Generation(Extension):
    """The tag {% generation %}, which chat templates may hold."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 has it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@dataclass(frozen=True)
class Fault:
    """What is wrong with a folder: the file, what about it, and what to do where that is no matter of course."""

    where: Path
    what: str
    todo: str = ""


@dataclass(frozen=True)
class Adapter:
    """A LoRA adapter: its rank, and the base that its configuration names."""

    rank: int
    base: str | None


def _read(path: Path, faults: list[Fault]) -> dict[str, Any] | None:
    try:
        return parse_object(path.read_bytes())
    except FileNotFoundError:
        faults.append(Fault(path, "not there"))
    except OSError as error:
        faults.append(Fault(path, f"can't be read: {error.strerror or error}"))
    except ValueError as error:
        cut = f"{_CUT} ({error})" if str(error).startswith("not JSON") else str(error)
        faults.append(Fault(path, f"can't be read: {cut}"))
    return None


def _safetensors_fault(path: Path) -> str | None:
    """Why a safetensors file is not whole, by its own header, or None. Raises OSError."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(8)
        if len(head) < 8:
            return f"only {size} bytes: it is still being written, or was cut off"
        length = struct.unpack("<Q", head)[0]
        if length > min(size - 8, _LARGEST_HEADER):
            return "its header is cut off: it is still being written, or is no safetensors file"
        try:
            header = parse_object(file.read(length))
            ends = [_end(entry) for name, entry in header.items() if name != "__metadata__"]
        except ValueError as error:
            return f"its header can't be read: {error}"
    wanted = 8 + length + max(ends, default=0)
    if wanted == size:
        return None
    return f"{size} bytes where its header says {wanted}: it is still being written, or was cut off"


def _end(entry: object) -> int:
    """Where a tensor ends, by its entry in a header. Raises ValueError."""
    match entry:
        case {"data_offsets": [int(), int(end)]}:
            return end
    raise ValueError("an entry without data_offsets of two numbers")


def _json_faults(path: Path) -> list[Fault]:
    """What is wrong with a file that must hold a JSON object."""
    faults: list[Fault] = []
    try:
        msgspec.json.decode(path.read_bytes(), type=_Whole)
    except (OSError, ValueError, msgspec.MsgspecError):
        _read(path, faults)  # which takes what Python writes, such as Infinity
    return faults


def _file_fault(path: Path) -> str | None:
    try:
        if path.suffix == ".safetensors":
            return _safetensors_fault(path)
        with path.open("rb") as file:
            start = file.read(2)
        if not start:
            return f"empty: {_CUT}"
        if start == b"PK" and not zipfile.is_zipfile(path):
            return "it has no end: it is still being written, or was cut off"
    except OSError as error:
        return f"can't be read: {error.strerror or error}"
    return None


def _weights(folder: Path, stems: tuple[str, ...]) -> Iterator[Fault]:
    """Faults of the weights files, and of those that are named and missing."""
    found = [path for path in sorted(folder.iterdir()) if path.is_file()]
    for path in found:
        if path.name.endswith(UNFINISHED):
            yield Fault(path, "a file that is still being written")
    weights = [path for path in found if path.suffix in (".safetensors", ".bin") and path.name.startswith(stems)]
    index = next((folder / name for name in _INDEXES if (folder / name).is_file()), None)
    named = _parts(weights)
    if index is not None:
        named = _named(index, faults := list[Fault]())
        yield from faults
    weights = sorted({*weights, *(path for path in found if path.name in named)})
    for path in weights:
        if (fault := _file_fault(path)) is not None:
            yield Fault(path, fault)
    yield from (Fault(folder / name, "not there, but the other files of the weights name it")
                for name in sorted(named) if not (folder / name).is_file())
    if not weights and not named:
        yield Fault(folder, f"no weights in it ({stems[0]}*.safetensors or .bin)")


def _named(index: Path, faults: list[Fault]) -> set[str]:
    """Names of weights files that an index says there are."""
    content = _read(index, faults)
    entries = content.get("weight_map") if content is not None else {}
    if not isinstance(entries, dict):
        faults.append(Fault(index, "can't be read: no weight_map in it"))
        return set()
    return {str(name) for name in entries.values()}


def _parts(weights: list[Path]) -> set[str]:
    """Names of all parts of which one is there, by their numbers."""
    found = (_PART.fullmatch(path.name) for path in weights)
    return {f"{part[1]}-{number:05d}-of-{part[3]}{part[4]}" for part in found if part
            for number in range(1, int(part[3]) + 1)}


def has_tokenizer(folder: Path) -> bool:
    """Whether a tokenizer's vocabulary lies in a folder."""
    return (any((folder / name).is_file() for name in _TOKENIZERS) or any(folder.glob("*.tiktoken"))
            or all((folder / name).is_file() for name in ("vocab.json", "merges.txt")))


def _tokenizer_faults(folder: Path) -> Iterator[Fault]:
    """What is wrong with the files of a folder's tokenizer, as far as they are there."""
    for path in (folder / name for name in _PLAIN_JSON):
        if path.is_file():
            yield from _json_faults(path)
    others = [folder / name for name in _TOKENIZERS if not name.endswith(".json")]
    for path in [*others, *sorted(folder.glob("*.tiktoken"))]:
        if path.is_file() and path.stat().st_size == 0:
            yield Fault(path, f"empty: {_CUT}")


def own_template(folder: Path) -> str | None:
    """The chat template that a model's folder holds; "" where its tokenizer brings its own; None without one."""
    plain = folder / "chat_template.jinja"
    if plain.is_file():
        return plain.read_text(encoding="utf-8", errors="replace")
    for name in ("chat_template.json", "tokenizer_config.json"):
        content = _read(folder / name, []) or {}
        template = content.get("chat_template")
        if isinstance(template, str):
            return template
        if isinstance(template, list):  # several, by name
            named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
            return str(named.get("default") or next(iter(named.values()), ""))
    return "" if (folder / "tekken.json").is_file() else None


def template_fault(text: str) -> str | None:
    """Why a chat template can't be used, or None."""
    try:
        jinja2.Environment(extensions=[loopcontrols, _Generation], autoescape=True).parse(text)
    except jinja2.TemplateSyntaxError as error:
        return f"a chat template that can't be read: line {error.lineno}: {error.message}"
    return None


def marks(folder: Path) -> Marks:
    """Name, size and time of each file of a folder: what changes when one is written. Raises OSError."""
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.stat()) for entry in entries]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in found))


def folder_faults(folder: Path) -> list[Fault]:
    """What keeps a full model's folder from being served, its chat template aside."""
    if not folder.is_dir():
        return [Fault(folder, "no such folder")]
    try:
        return list(_folder_faults(folder, marks(folder)))
    except OSError as error:
        return [Fault(folder, f"can't be read: {error.strerror or error}")]


@lru_cache(maxsize=1024)
def _folder_faults(folder: Path, _: Marks) -> tuple[Fault, ...]:
    faults: list[Fault] = []
    try:
        _read(folder / "config.json", faults)
        faults += _weights(folder, ("model", "pytorch_model", "consolidated"))
        if not has_tokenizer(folder):
            faults.append(Fault(folder / "tokenizer.json", "no tokenizer (tokenizer.json or tokenizer.model)"))
        faults += _tokenizer_faults(folder)
    except OSError as error:
        faults.append(Fault(folder, f"can't be read: {error.strerror or error}"))
    return tuple(faults)


def adapter_of(folder: Path, faults: list[Fault]) -> Adapter | None:
    """The adapter in a folder; None where it is none, or its configuration can't be used (then with faults)."""
    path = folder / ADAPTER_CONFIG
    config = _read(path, faults) if path.is_file() else None
    if config is None:
        return None
    rank, base = config.get("r"), config.get("base_model_name_or_path")
    pattern = config.get("rank_pattern")
    ranks = [rank, *(pattern.values() if isinstance(pattern, dict) else ())]
    if str(config.get("peft_type", "LORA")).upper() != "LORA" or config.get("use_dora"):
        faults.append(Fault(path, "not a plain LoRA adapter: vLLM serves no other"))
    elif not all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in ranks):
        faults.append(Fault(path, "no rank in it (r)"))
    elif max(ranks) > MOST_RANK:
        faults.append(Fault(path, f"its rank is {max(ranks)}, more than {MOST_RANK}: vLLM serves none so large"))
    else:
        return Adapter(max(ranks), base if isinstance(base, str) and base else None)
    return None


def adapter_faults(folder: Path) -> list[Fault]:
    """What keeps an adapter's folder from being served, its base aside."""
    try:
        return list(_adapter_faults(folder, marks(folder)))
    except OSError as error:
        return [Fault(folder, f"can't be read: {error.strerror or error}")]


@lru_cache(maxsize=1024)
def _adapter_faults(folder: Path, _: Marks) -> tuple[Fault, ...]:
    return (*_weights(folder, ("adapter_model",)), *_tokenizer_faults(folder))


def fingerprint_of(folder: Path, base: Path | None) -> str:
    """A hash of what answers: a model's weights, or an adapter's with its base's. Raises OSError."""
    if base is None:
        return _fingerprint(folder, marks(folder))
    told = hashlib.sha256((folder / ADAPTER_CONFIG).read_bytes()).hexdigest()
    parts = (_fingerprint(base, marks(base)), fingerprint(folder), told)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


@lru_cache(maxsize=1024)
def _fingerprint(folder: Path, _: Marks) -> str:
    return fingerprint(folder)
