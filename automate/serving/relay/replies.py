"""Turns what an upstream sends into what its client gets, as it comes: a reply's head, and its body framed anew.

Never makes a reply that was cut off look whole."""

from __future__ import annotations

from http import HTTPStatus

import httptools

from automate.serving.relay.requests import HOP_BY_HOP
from automate.serving.relay.terms import Answer

_OURS = HOP_BY_HOP | {b"content-length"}
_LARGEST_HEAD = 256 << 10
_REASONS = {status.value: status.phrase.encode() for status in HTTPStatus}
_WITHOUT_BODY = frozenset({204, 304})
_LARGEST_HELD = 8 << 10


class BrokenReplyError(Exception):
    """What the upstream sent is no reply that can be passed on."""


def status_line(status: int) -> bytes:
    """The first line of a reply."""
    return b"HTTP/1.1 %d %b\r\n" % (status, _REASONS.get(status, b"Other"))


def answer_bytes(answer: Answer, *, head_only: bool = False, close: bool = False) -> bytes:
    """An answer of the relay's own as it goes over the wire."""
    parts = [status_line(answer.status),
             f"Content-Type: {answer.content_type}\r\nContent-Length: {len(answer.body)}\r\n".encode("latin-1")]
    if answer.retry_after is not None:
        parts.append(b"Retry-After: %d\r\n" % max(0, -int(-answer.retry_after // 1)))
    if answer.status == HTTPStatus.UNAUTHORIZED:
        parts.append(b"WWW-Authenticate: Bearer\r\n")
    if close:
        parts.append(b"Connection: close\r\n")
    parts += (b"\r\n", b"" if head_only else answer.body)
    return b"".join(parts)


class ReplyReader:
    """One reply. `began`: its head is out; `complete`: all of it is; `closes`: the client's connection ends with it.

    `reusable`: the upstream's connection can take another request. `head_only`: the request was HEAD; `old`: HTTP/1.0.
    `mend`: a small plain-text error is held back; `held` is its status then, `text` what it says.
    """

    __slots__ = ("_chunked", "_head_only", "_head_size", "_headers", "_interim", "_length", "_mend", "_old", "_out",
                 "_parser", "_until_close", "began", "closes", "complete", "held", "reusable", "text")

    def __init__(self, *, head_only: bool, old: bool, keep_alive: bool, mend: bool = False) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head_only, self._old, self.closes, self._mend = head_only, old, not keep_alive, mend
        self.held: int | None = None
        self.text = b""
        self._headers: list[tuple[bytes, bytes]] = []
        self._out: list[bytes] = []
        self._length: bytes | None = None
        self._head_size = 0
        self._interim = self._chunked = self._until_close = False
        self.began = self.complete = self.reusable = False

    def feed(self, data: bytes) -> bytes:
        """What of the upstream's bytes goes to the client. Raises BrokenReplyError."""
        if not self.began:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self.reusable = False
            if not self.complete:
                raise BrokenReplyError("the model server's reply is not valid HTTP/1.1") from None
        if not self.began and self._head_size > _LARGEST_HEAD:
            raise BrokenReplyError("the head of the model server's reply is too large")
        out = self._out
        if len(out) == 1:
            self._out = []
            return out[0]
        self._out = []
        return b"".join(out)

    def end(self) -> bool:
        """The upstream closed its connection in order: whether the reply is whole now."""
        if self.began and self._until_close:
            self.complete = True
        return self.complete

    @property
    def untouched(self) -> bool:
        """Whether not a byte of it has come."""
        return self._head_size == 0

    # --- what httptools calls -------------------------------------------------------------------
    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False  # more than was asked for

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.began:
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.complete:
            return
        status = self._parser.get_status_code()
        self._interim = 100 <= status < 200
        if self._interim:
            if status == HTTPStatus.SWITCHING_PROTOCOLS:
                raise BrokenReplyError("nobody asked to switch protocols")
            self._headers = []
            return
        if self._head_size > _LARGEST_HEAD < sum(len(name) + len(value) for name, value in self._headers):
            raise BrokenReplyError("the head of the model server's reply is too large")
        self._begin(status)

    def on_body(self, body: bytes) -> None:
        if self.complete or self._head_only:
            return
        if self.held is not None:
            self.text += body
        elif self._chunked:
            self._out.append(b"%x\r\n%b\r\n" % (len(body), body))
        else:
            self._out.append(body)

    def on_message_complete(self) -> None:
        if self._interim or self.complete:
            return
        if self._chunked:
            self._out.append(b"0\r\n\r\n")
        self.complete = True
        self.reusable = self._parser.should_keep_alive() and not self._head_only

    # --- the head -------------------------------------------------------------------------------
    def _begin(self, status: int) -> None:
        parts, framed = [status_line(status)], self._frame()
        for name, value in self._headers:
            if name.lower() not in _OURS:
                parts += (name, b": ", value, b"\r\n")
        bodyless = status in _WITHOUT_BODY or self._head_only
        if self._length is not None and status != HTTPStatus.NO_CONTENT:
            parts += (b"Content-Length: ", self._length, b"\r\n")
        elif not bodyless:
            self._until_close = not framed
            self._chunked = framed and not self._old
            self.closes = self.closes or not self._chunked
            if self._chunked:
                parts.append(b"Transfer-Encoding: chunked\r\n")
        parts.append(b"Connection: close\r\n\r\n" if self.closes else b"\r\n")
        if self._mend and status >= HTTPStatus.BAD_REQUEST and self._is_small_text():
            self.held = status
        else:
            self._out += parts
        self.began = True
        self.complete = self._head_only

    def _is_small_text(self) -> bool:
        plain = any(name.lower() == b"content-type" and value.lower().startswith(b"text/plain")
                    for name, value in self._headers)
        return plain and self._length is not None and int(self._length) <= _LARGEST_HELD and not self._head_only

    def _frame(self) -> bool:
        """Read how the body is framed; whether it is chunked."""
        lengths = [value for name, value in self._headers if name.lower() == b"content-length"]
        encodings = [value for name, value in self._headers if name.lower() == b"transfer-encoding"]
        if len(lengths) + len(encodings) > 1 or (lengths and not lengths[0].isdigit()):
            raise BrokenReplyError("the model server's reply says its length in two ways")
        if encodings and encodings[0].strip().lower() != b"chunked":
            raise BrokenReplyError("the model server's reply has an unknown transfer encoding")
        self._length = lengths[0] if lengths else None
        return bool(encodings)
