"""The user's own shell lines of the settings: what of them may hold a secret, and how they look without it.

Never runs a line, and takes out every assigned value, as nobody can know which of them is a secret."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from automate.campaign.keeping.redact import REMOVED, looks_secret

_WORD = r"""((?:"(?:[^"\\]|\\.)*+"|'[^']*+'|\$\([^()]*+\)|\\.|[^\s;&|"'\\])+)"""
_ASSIGNED = re.compile(rf"(?<![\w$])((?:(?P<name>[A-Za-z_]\w*+)\+?=))(?!\[removed){_WORD}")
_SETENV = re.compile(rf"(\bsetenv\s+(?P<name>[A-Za-z_]\w*+)\s+|\bset\s+-\w+\s+(?P<other>[A-Za-z_]\w*+)\s+){_WORD}")
_OPTION = re.compile(rf"((?<![\w-])(?:-[upHw]|--(?:user|username|password|passwd|token|header|key|api-key|secret))"
                     rf"(?:\s+|=|(?<=-[upHw])))(?!\[removed){_WORD}")
_LOGIN = re.compile(r"(\blogin\s+)([^;&|]+)")
_PIPED = re.compile(r"(\b(?:echo|printf)\s+)([^|]{1,2000}+)(?=\|)")
_HERE = re.compile(rf"(<<<\s*){_WORD}")
_SHORTEST = 6
_ITEM = re.compile(r"^\s*-\s+(.*)$")


def cleaned(line: str) -> str:
    """The line without values of assignments, and without what follows a login, a password's option or an echo."""
    for pattern in (_LOGIN, _PIPED, _HERE, _SETENV, _ASSIGNED, _OPTION):
        line = pattern.sub(rf"\g<1>{REMOVED}", line)
    return line


def given_secrets(line: str) -> set[str]:
    """Values of the line that are secrets for certain, and so are to be removed wherever they stand."""
    found = []
    for pattern in (_ASSIGNED, _SETENV):
        for match in pattern.finditer(line):
            if looks_secret(match["name"] or match.groupdict().get("other") or ""):
                found.append(match.groups()[-1])
    for pattern in (_OPTION, _LOGIN, _HERE) if "mkdir" not in line else ():
        found += [match.groups()[-1] for match in pattern.finditer(line)]
    if re.search(r"login|-stdin", line):
        found += [match[2] for match in _PIPED.finditer(line)]
    return {part for text in found for part in _parts(text)}


def _parts(text: str) -> Iterator[str]:
    """The words of a value without their quotes, and what follows a colon in them."""
    words = text.split()
    with suppress(ValueError):
        words = shlex.split(text)
    for word in words:
        for part in (word, word.partition(":")[2].strip()):
            if len(part) >= _SHORTEST and not part.startswith(("/", "$", "~", "-", ".")) and not part.isdigit():
                yield part


def setup_lines(settings: Iterable[Mapping[str, Any]], text: str) -> set[str]:
    """Lines of `judge.environment.setup` of all these settings, and of a settings file's text that may be broken."""
    found: set[str] = set()
    for one in settings:
        here: object = one
        for key in ("judge", "environment", "setup"):
            here = here.get(key) if isinstance(here, Mapping) else None
        for item in here if isinstance(here, list) else []:
            found.update(str(item).splitlines())
    inside = False
    for line in text.splitlines():
        item = _ITEM.match(line)
        inside = re.match(r"\s*setup\s*:", line) is not None or (inside and (item is not None or line[:1] in " #"))
        if inside and not line.strip().startswith("setup"):
            found.add((item[1] if item else line).strip().strip("\"'"))
    return {line.strip() for line in found if line.strip()}
