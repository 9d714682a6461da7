"""Takes secrets out of texts: values that are known to be secret, and whatever looks like one.

Never keeps what it removed; takes out rather too much than too little, but no names of users or folders."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

REMOVED = "[removed]"
_SECRET_NAME = re.compile(
    r"^(?!.*_(PATH|FILE|DIR|SOCK|ENV|NAME|URL)$)(.*_)?"
    r"(TOKENS?|SECRETS?|PASS|PASSWORDS?|PASSWD|PASSPHRASE|PWD|CREDENTIALS?|KEYS?|APIKEY|AUTH|COOKIE|PAT|BEARER|JWT)"
    r"(_.*)?$", re.IGNORECASE)
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_PLAIN = frozenset({"true", "false", "none", "null", "yes", "no", "auto", "default"})
_WORDS = (r"(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|auth[_-]?key|secret[_-]?key|secret|token|"
          r"password|passwd|passphrase|credentials?|authorization|cookie|jwt)")
_VALUE = (r"(\\?\"[^\"\n]*\"|'[^'\n]*'|[|>][+-]?[ \t]*\n[ \t]+\S+|"
          r"(?!null\b|none\b|true\b|false\b|~|\[removed)[^\s,;&}\]]+)")
_KEPT = rf"\g<1>{REMOVED}"

PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REMOVED),
    (re.compile(r"(?m)^(?:[A-Za-z0-9+/=]{4,120}\r?\n){1,60}-----END [A-Z ]*PRIVATE KEY-----"), REMOVED),
    (re.compile(r"\b([a-z][\w+.-]{0,20}://)[^\s/\"'<>@]{1,300}"
                r"(?:@[^\s/\"'<>@]{0,300})*@", re.IGNORECASE), rf"\g<1>{REMOVED}@"),
    (re.compile(r"\b((?:bearer|basic)\s+)(?!\[removed)[\w.~+/=-]{6,}", re.IGNORECASE), _KEPT),
    (re.compile(r"\bhf_(?:(?=[A-Za-z]*[0-9A-Z])[A-Za-z0-9]{8,}|[A-Za-z0-9]{20,})"), REMOVED),
    (re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"), REMOVED),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|nvapi-|AIza)[\w-]{10,}"), REMOVED),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}"), REMOVED),
    (re.compile(r"\beyJ[\w-]{6,}\.[\w-]{6,}\.[\w-]*"), REMOVED),
    (re.compile(r"([?&](?:key|sig|auth|code|pass)=)[^\s&\"']+", re.IGNORECASE), _KEPT),
    (re.compile(rf"(--[\w-]{{0,60}}{_WORDS}[\"']?(?:\s*,\s*|\s*\n\s*-\s+|[ \t]+|=)[\"']?)(?!\[removed)[^\s\"',\]]+",
                re.IGNORECASE), _KEPT),
    (re.compile(rf"({_WORDS}\\?[\"']?\s{{0,4}}(?::|=>?)[ \t]*){_VALUE}", re.IGNORECASE), _KEPT),
)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return name.upper() not in _FOLDERS and _SECRET_NAME.match(name) is not None


def secret_values(environ: Mapping[str, str]) -> set[str]:
    """Values of those variables whose names look like secrets."""
    return {value for name, value in environ.items() if looks_secret(name) and _worth(value)}


def kept_secrets(folder: Path) -> set[str]:
    """What stands in the files of a folder of secrets. A file that can't be read is passed over."""
    found = set()
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        try:
            text = path.read_text(encoding="utf-8", errors="replace").strip() if path.is_file() else ""
        except OSError:
            continue
        if text:
            found.add(text)
    return found


def _worth(value: str) -> bool:
    text = value.strip()
    return len(text) >= 4 and text.lower() not in _PLAIN and not (text.isdigit() and len(text) < 6)


def spellings(value: str) -> Iterator[str]:
    """A secret as it may stand in files: plain, by line, for URLs, JSON and the shell, in base64."""
    for text in dict.fromkeys([value, value.strip(), *(line.strip() for line in value.split("\n"))]):
        if len(text) < 4 or (text != value.strip() and len(text) < 12):
            continue
        yield text
        yield quote(text, safe="")
        yield quote_plus(text)
        yield json.dumps(text)[1:-1]
        yield json.dumps(text, ensure_ascii=False)[1:-1]
        yield shlex.quote(text).strip("'")
        if len(text) >= 6:
            for encoded in (base64.b64encode(text.encode()), base64.urlsafe_b64encode(text.encode())):
                yield encoded.decode().rstrip("=")


def _known(values: set[str]) -> re.Pattern[str] | None:
    words = sorted({word for value in values for word in spellings(value)}, key=len, reverse=True)
    parts = [rf"(?<!\w){re.escape(word)}(?!\w)" if len(word) < 8 else re.escape(word) for word in words]
    return re.compile("|".join(parts)) if parts else None


class Redactor:
    """Removes the given values, and whatever looks like a secret, from texts; `count` says how many."""

    def __init__(self, values: set[str]) -> None:
        self._values = _known(values)
        self.count = 0

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._values is not None:
            text, number = self._values.subn(REMOVED, text)
            self.count += number
        for pattern, instead in PATTERNS:
            text, number = pattern.subn(instead, text)
            self.count += number
        return text
