"""Takes secrets out of texts: values that are known to be secret, and whatever looks like one.

Never keeps what it removed; takes out rather too much than too little, but no names of users or folders."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from urllib.parse import quote, quote_plus

REMOVED = "[removed]"
_NAME = (
    r"(?i:(?!\w{0,79}_(?:PATH|FILE|DIR|SOCK|ENV|NAME|URL)(?!\w))(?:\w{0,79}_)?"
    r"(?:[A-Z]{0,40}TOKEN|TOKENS|[A-Z]{0,40}SECRET|SECRETS|(?:SSH|DB|PG|MYSQL)?PASS|[A-Z]{0,40}PASSWORDS?|PASSWD|"
    r"PASSPHRASE|PWD|CREDENTIALS?|KEYS?|APIKEY|AUTH|COOKIE|PAT|BEARER|JWT)"
    r"(?:_\w{0,79})?(?!\w))")
_SECRET_NAME = re.compile(rf"{_NAME}$")
_FOLDERS = frozenset({"PWD", "OLDPWD"})
_OURS = r"(?:[Kk]eys?|[Tt]okens|[Pp]ass)(?!\w)"
"""Words of plain texts and of files of this package; only in capitals are they variables."""
_PLAIN = frozenset({"true", "false", "none", "null", "yes", "no", "auto", "default"})
_WORDS = (r"(?:api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|auth[_-]?key|secret[_-]?key|secret|token|"
          r"password|passwd|passphrase|credentials?|authorization|cookie|jwt)")
_QUOTED = (r"(?:\"(?:[^\"\\\n]|\\.)*+\"|'[^'\n]*+'|"
           r"\\\"(?:[^\"\\\n]|\\\\(?:\\[\"\\]|[^\"\\\n])|\\[^\"\\\n])*+\\\")")
"""Quoted text; the last kind is what double quotes of a shell look like within JSON."""
_VALUE = (rf"({_QUOTED}|\\?\"[^\"\n]*\"|" r"[|>][+-]?[ \t]*\n[ \t]+\S+|"
          r"(?!null\b|none\b|true\b|false\b|~|\[removed)[^\s,;&}\]]+)")
_KEPT = rf"\g<1>{REMOVED}"
_ENDS = r"[^\n;|&\"]"
_WORD = rf"(?:{_QUOTED}|(?:\\[^\"\n]|[^\s;&|\"'\\])+)"
_PROGRAMS = (r"(?:wandb|huggingface-cli|hf|auth|docker|podman|apptainer|singularity|registry|remote|ngc|az|oc|comet|"
             r"modelscope|kaggle|npm|helm|vault)")
Instead = str | Callable[[re.Match[str]], str]


def _assigned(found: re.Match[str]) -> str:
    """An assignment without its value, where the name looks secret and the value is not a plain word or a count."""
    name, value = found["name"], found["value"].strip("\\\"'")
    count = "TOKEN" in name.upper() and re.fullmatch(r"[\d.,eE+_-]+", value) is not None
    if not looks_secret(name) or value.lower() in _PLAIN or count or value.startswith(REMOVED[:-1]):
        return found[0]
    return f"{found[1]}{REMOVED}"


PATTERNS: tuple[tuple[re.Pattern[str], Instead], ...] = (
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
    (re.compile(rf"(?<![\w$])(?!{_OURS})(?={_NAME})((?P<name>[A-Za-z_]\w*+)\\?[\"']?\s{{0,4}}(?::|\+?=>?)[ \t]*)"
                rf"(?P<value>{_QUOTED}(?:[^\s,;&|\"'}}\]\\])*|"
                r"[|>][+-]?[ \t]*\n[ \t]+\S+|(?![{\[~|>])(?:\\[^\"\n]|[^\s;&|\"'\\,}\]])+"
                r"(?:,(?=[^\s\"'])[^\s;&|\"'\\]*)?)"), _assigned),
    (re.compile(r"((?<![\w-])(?:-u|--user)(?:[ \t]+|=|(?=\w))\\?[\"']?[^\s:\"'\\]{1,100}:)[^\s\"'\\]+"), _KEPT),
    (re.compile(rf"(\bsshpass[ \t]+-p[ \t]*){_WORD}"), _KEPT),
    (re.compile(rf"((?<![\w-]){_PROGRAMS}[ \t]+login[ \t]+)(?!\[removed){_ENDS}+"), _KEPT),
    (re.compile(r"(\b(?:echo|printf)[ \t]+)[^|\n]{1,160}+(?=\|[^|\n]{0,200}(?:\blogin\b|--password-stdin))"), _KEPT),
    (re.compile(r"((?<![\w-])(?:-H|--header)(?:[ \t]*|=)\\?[\"']?[\w-]{1,60}:[ \t]*)[^\"'\n\\]+"), _KEPT),
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
    """Removes the given values, and whatever looks like a secret, from texts; `count` says how many.

    `lines` are texts that are replaced as a whole before that, by what stands in their place.
    """

    def __init__(self, values: set[str], lines: Mapping[str, str] | None = None) -> None:
        self._values = _known(values)
        self._lines = {old: new for line, clean in (lines or {}).items() for old, new in _written(line, clean)}
        words = "|".join(map(re.escape, sorted(self._lines, key=len, reverse=True)))
        self._found = re.compile(rf"(?<!\w)(?:{words})(?!\w)") if words else None
        self.count = 0

    def __call__(self, text: str) -> str:
        """The text without secrets."""
        if self._found is not None:
            text = self._found.sub(self._line, text)
        if self._values is not None:
            text, number = self._values.subn(REMOVED, text)
            self.count += number
        for pattern, instead in PATTERNS:
            before = text.count(REMOVED)
            text, number = pattern.subn(instead, text)
            self.count += number if isinstance(instead, str) else text.count(REMOVED) - before
        return text

    def _line(self, found: re.Match[str]) -> str:
        clean = self._lines[found[0]]
        self.count += clean.count(REMOVED)
        return clean


def _written(line: str, clean: str) -> Iterator[tuple[str, str]]:
    """A line and what replaces it, as they stand in scripts, JSON and YAML."""
    yield line, clean
    for ascii_only in (True, False):
        yield json.dumps(line, ensure_ascii=ascii_only)[1:-1], json.dumps(clean, ensure_ascii=ascii_only)[1:-1]
    yield line.replace("'", "''"), clean.replace("'", "''")


def suspicious_lines(text: str) -> list[int]:
    """Numbers (from 1) of the lines that seem to hold a secret; a reference to a variable is none."""
    found = set()
    for pattern, instead in PATTERNS:
        for match in pattern.finditer(text):
            head = match[1] if pattern.groups else ""
            value = match[0].removeprefix(head).lstrip("\\\"' ")
            if (isinstance(instead, str) or instead(match) != match[0]) and not value.startswith(("$", "{{", REMOVED)):
                found.add(text.count("\n", 0, match.start() + len(head)) + 1)
    return sorted(found)
