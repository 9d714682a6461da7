"""Keys and tokens: read from the environment, taken out of texts, kept out of what children inherit.

Standard library only. Never writes a secret anywhere, and never names one in an error."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import quote, quote_plus

from automate.errors import ConfigError

REMOVED = "[removed]"
SHORTEST = 4
"""Characters below which a value is too common a text to be looked for."""
_PRINTABLE = re.compile(r"[\x20-\x7e]+")
_EQUALS = r"(?:=|%(?:25)*3[Dd])"
_PARAMETER = (r"X-Amz-(?:Signature|Security-Token|Credential)|X-Goog-(?:Signature|Credential)|"
              r"(?:(?<![\w-])|(?<=%26)|(?<=%3F))(?:AWSAccessKeyId|Signature|Key-Pair-Id|sig)")
_QUERY = re.compile(rf"(?i)((?:{_PARAMETER}){_EQUALS})(?:(?!%(?:25)*26)[^&\s\"'<>\\])+")
_MEMBER = re.compile(r"(?i)(\\?\"[\w-]*(?:secret|password|api[_-]?key|access[_-]?key|session[_-]?token|"
                     r"(?<![a-z])token)(?:[_-]?(?:id|key))?\\?\"\s*:\s*\\?\")(?:[^\"\\]|\\(?!\")[^\"])+")
_HF_TOKEN = re.compile(r"\bhf_[A-Za-z0-9]{16,}")
_BEARER = re.compile(r"(?i)\b(bearer\s+)[\w.~+/=-]{6,}")
_SECRET_WORDS = frozenset({
    "TOKEN", "TOKENS", "SECRET", "SECRETS", "KEY", "KEYS", "APIKEY", "PASS", "PASSWORD", "PASSWORDS", "PASSWD",
    "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "AUTH", "COOKIE", "BEARER", "JWT", "PAT", "NETRC"})
_SECRET_ENDS = ("TOKEN", "SECRET", "PASSWORD", "APIKEY")


def read_key(environ: Mapping[str, str], name: str) -> str | None:
    """The secret in a variable, without spaces and line breaks at its ends; None where it is absent or blank.

    Raises ConfigError, which doesn't show it, where it holds what can't stand in a header of HTTP.
    """
    value = environ.get(name, "").strip()
    if not value:
        return None
    if not _PRINTABLE.fullmatch(value):
        raise ConfigError("its value holds a control character, a line break or a letter outside of ASCII",
                          where=f"environment variable {name}", todo="copy the key again, as one line")
    return value


def spellings(secret: str) -> Iterator[str]:
    """A secret as it may stand in texts: plain, in URLs, in JSON, in base64. Nothing where it is too short."""
    text = secret.strip()
    if len(text) < SHORTEST:
        return
    yield text
    yield quote(text, safe="")
    yield quote(text, safe="").replace("%", "%25")
    yield quote_plus(text)
    yield json.dumps(text)[1:-1]
    if len(text) >= 8:
        yield base64.b64encode(text.encode()).decode().rstrip("=")
        yield base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def scrub(text: str, secrets: Iterable[str]) -> str:
    """Text without these secrets, however they are written, and without the signatures of presigned URLs."""
    known = sorted({form for secret in secrets for form in spellings(secret)}, key=len, reverse=True)
    if known:
        text = re.sub("|".join(map(re.escape, known)), REMOVED, text)
    for pattern in (_QUERY, _MEMBER, _BEARER):
        text = pattern.sub(rf"\g<1>{REMOVED}", text)
    return _HF_TOKEN.sub(REMOVED, text)


def looks_secret(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret, or to say where one lies."""
    words = [word for word in re.split(r"[^A-Z0-9]+", name.upper()) if word]
    return any(word in _SECRET_WORDS or word.endswith(_SECRET_ENDS) for word in words)


def without_secrets(environ: Mapping[str, str], named: Iterable[str]) -> dict[str, str]:
    """The environment for a child that needs no secret.

    Left out: the variables `named`, every variable whose name looks like a secret's, and every one whose value holds
    the value of a named one.
    """
    names = set(named)
    kept = without_values(environ, [environ.get(name, "") for name in names])
    return {name: value for name, value in kept.items() if name not in names and not looks_secret(name)}


def without_values(environ: Mapping[str, str], secrets: Iterable[str]) -> dict[str, str]:
    """The environment without the variables whose value holds one of these secrets, such as one that was typed."""
    values = {form for secret in secrets for form in spellings(secret)}
    return {name: value for name, value in environ.items() if not any(one in value for one in values)}
