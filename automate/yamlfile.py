"""YAML read with line numbers, so that an error can name file, line and key.

Never guesses types as YAML 1.1 does: 12:00:00, yes and 0123 stay strings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from automate.errors import ConfigError, StorageError

Value = None | bool | int | float | str | list["Value"] | dict[str, "Value"]
KeyPath = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """SafeLoader with the scalar types of YAML 1.2's core schema only."""


_Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("tag:yaml.org,2002:bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("tag:yaml.org,2002:int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    ("tag:yaml.org,2002:float", r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*|[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+)$",
     "-+.0123456789"),
    ("tag:yaml.org,2002:null", r"^(?:~|null|Null|NULL|)$", "~nN\0"),
):
    _Loader.add_implicit_resolver(_tag, re.compile(_pattern), list(_first) + ([""] if _first[0] == "~" else []))


_Loader.add_implicit_resolver("tag:yaml.org,2002:merge", re.compile(r"^<<$"), ["<"])


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML mapping and the line on which each key stands."""

    path: str
    value: dict[str, Value]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def where(self, key: KeyPath) -> str:
        """`file:line` of a key, or of its nearest parent that has a line."""
        for cut in range(len(key), -1, -1):
            line = self.lines.get(key[:cut])
            if line is not None:
                return f"{self.path}:{line}"
        return self.path


def _walk(node: yaml.Node, path: KeyPath, name: str, seen: frozenset[int]) -> Iterator[tuple[KeyPath, int]]:
    if id(node) in seen:
        raise ConfigError("an alias that contains itself", where=f"{name}:{node.start_mark.line + 1}")
    seen = seen | {id(node)}
    if isinstance(node, yaml.MappingNode):
        keys: set[str] = set()
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError("a key must be a plain word", where=f"{name}:{line}")
            if key in keys:
                raise ConfigError(f"the key '{key}' stands here twice", where=f"{name}:{line}",
                                  todo="keep one of the two")
            keys.add(key)
            yield (*path, key), line
            yield from _walk(value_node, (*path, key), name, seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _walk(item, (*path, index), name, seen)


def _string_keys(value: object) -> Value:
    if isinstance(value, dict):
        return {str(key): _string_keys(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_string_keys(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def parse_yaml(text: str, name: str) -> YamlFile:
    """Parse `text` as one YAML mapping; `name` is used in errors. Raises ConfigError with the line."""
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {error}", where=name) from error
    try:
        node = loader.get_single_node()
        if node is None:
            return YamlFile(name, {})
        lines = dict(_walk(node, (), name, frozenset()))
        value = _string_keys(loader.construct_document(node))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        what = " ".join(part for part in (error.context, error.problem) if part)
        raise ConfigError(f"not valid YAML: {what}", where=f"{name}{line}",
                          todo="check indentation, colons and quotes near that line") from error
    except (yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise ConfigError(f"not valid YAML: {error}", where=name) from error
    finally:
        loader.dispose()
    if value is None:
        return YamlFile(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"expected a mapping (key: value), found {type(value).__name__}", where=f"{name}:1")
    return YamlFile(name, value, lines)


def is_text(scalar: str) -> bool:
    """Whether a plain scalar is text here, and no number, boolean or null."""
    resolvers = _Loader.yaml_implicit_resolvers.get(scalar[:1], [])
    return not any(pattern.match(scalar) for _, pattern in resolvers)


def parse_scalar(text: str) -> Value:
    """A variable's value: a number, boolean or null, a [list], {mapping} or 'quoted text', else the text as it is."""
    if text[:1] in ("[", "{", "'", '"') or not is_text(text):
        try:
            return parse_yaml(f"value: {text}", "value").value["value"]
        except (ConfigError, KeyError):
            return text
    return text


def read_yaml(path: Path) -> YamlFile:
    """Read one YAML mapping from a file. Raises ConfigError or StorageError."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"not UTF-8 text: {error.reason} at byte {error.start}", where=str(path)) from error
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
    return parse_yaml(text, str(path))
