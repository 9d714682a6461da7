"""Texts of errors made fit for a result file and a terminal: short, printable, without the query of an address.

Never decides what an error means."""

from __future__ import annotations

import re

from automate.errors import visible

LONGEST = 600
"""Characters of a reason in a result."""
_QUERY = re.compile(r"(https?://[^\s'\"<>?]{1,2000})\?[^\s'\"<>)\]}]+")
_SIGNED = re.compile(r"(?i)(X-Amz-[A-Za-z-]+|signature|token|api[_-]?key)=[^\s&'\"<>)\]}]+")


def plain(text: str, longest: int = LONGEST) -> str:
    """One line without control characters, lone surrogates, or queries of addresses (presigned ones are secrets)."""
    head = text[:longest * 20]
    cleared = _SIGNED.sub(r"\1=...", _QUERY.sub(r"\1?...", head))
    line = " ".join(visible(cleared).split()).encode("utf-8", "replace").decode()
    return line if len(line) <= longest and len(text) == len(head) else line[:longest - 3].rstrip() + "..."


def of(error: BaseException, longest: int = LONGEST) -> str:
    """What an exception says of itself, in one line; its type's name where it says nothing or its text fails."""
    try:
        said = plain(str(error), longest)
    except Exception:
        said = ""
    return said or type(error).__name__
