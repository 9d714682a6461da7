"""Which requests the front passes on, and by which way: through vllm-router, or beside it. Pure.

Never lets one of vllm-router's own paths through: those that are passed on are listed here, all others are not."""

from __future__ import annotations

import hashlib
import re
from collections import Counter, deque

import msgspec

ROUTED = ("/v1/chat/completions", "/v1/completions")
"""Through vllm-router: it passes the client's key on, retries and balances."""
BESIDE = ("/v1/embeddings", "/v1/responses")
"""To a worker beside vllm-router: it loses the key of one of these, and unknown fields of the other."""
POSTED = (*ROUTED, *BESIDE)
_BEGINNING = 512
_FEW = 32
"""Requests of one beginning among the last ones that are never too many for one worker."""
_SHARE = 1.5
_SPREAD = 61


class _Message(msgspec.Struct):
    role: str = ""
    content: msgspec.Raw = msgspec.Raw(b"")


class _Body(msgspec.Struct):
    messages: list[_Message] = []
    prompt: msgspec.Raw = msgspec.Raw(b"")


_FIRST = re.compile(rb'"role": ?"user", ?"content": ?')
_decoder = msgspec.json.Decoder(_Body)


def bare(path: str) -> str:
    """A path without its query."""
    return path.partition("?")[0]


def session_of(body: bytes) -> str:
    """A name for what a request begins with: equal for requests whose prefixes can be found in one worker's cache.

    The beginning of the first message of the user (or of the prompt), as a hash.
    """
    found = _FIRST.search(body)  # as most clients write it; all else is parsed
    if found:
        return _name(body[found.end():found.end() + _BEGINNING])
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _name(body[:_BEGINNING])
    first = next((bytes(one.content) for one in read.messages if one.role == "user"), bytes(read.prompt))
    return _name(first[:_BEGINNING])


def _name(text: bytes) -> str:
    return hashlib.blake2b(text, digest_size=12).hexdigest()


class Sessions:
    """Names under which vllm-router hashes requests to workers: one a beginning, but many for one that is everywhere.

    A beginning with more than its share of the last requests would fill one worker while others idle. It is in every
    worker's cache after a while, so its requests are spread. `window`: how many requests are looked back on.
    """

    def __init__(self, window: int = 512) -> None:
        self._last: deque[str] = deque()
        self._count: Counter[str] = Counter()
        self._window = window
        self._asked = 0

    def name(self, body: bytes, workers: int) -> str:
        """The name for a request, given how many workers there are."""
        session = session_of(body)
        self._asked += 1
        self._last.append(session)
        self._count[session] += 1
        if len(self._last) > self._window:
            old = self._last.popleft()
            self._count[old] -= 1
            if not self._count[old]:
                del self._count[old]
        many = self._count[session] > max(_FEW, _SHARE * len(self._last) / max(1, workers))
        return f"{session}-{self._asked % _SPREAD}" if many else session
