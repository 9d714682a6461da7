"""Cuts what a client sends into whole requests, and makes of each the one that is passed on.

Never passes on what could be read in two ways: length and framing are the relay's own, hop-by-hop headers end here."""

from __future__ import annotations

import hmac
from collections import deque

import httptools
import msgspec

from automate.serving.relay.terms import Answer, Target, error_answer

LARGEST_HEAD = 64 << 10
LARGEST_REFUSED = 1 << 20
"""Bytes of a body without the key that are read and thrown away, so that its sender sees the 401."""
HOP_BY_HOP = frozenset({b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization",
                        b"proxy-connection", b"te", b"trailer", b"transfer-encoding", b"upgrade"})
_OURS = HOP_BY_HOP | {b"host", b"content-length", b"content-encoding", b"expect", b"authorization"}
_PLAIN_CONNECTIONS = frozenset({b"keep-alive", b"close", b""})
_NONE = dict.fromkeys(_OURS, 0)
UNAUTHORIZED = error_answer(401, "the key is missing or wrong", code="invalid_api_key")
CODED = error_answer(415, "a body is taken as it is only: send it without a Content-Encoding")


class RefusedError(Exception):
    """A request that gets this answer, after which its connection is closed."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def _refused(status: int, message: str) -> RefusedError:
    return RefusedError(error_answer(status, message))


class Request:
    """One request. `refusal`: what it gets whatever follows; `headers`: those that are passed on."""

    __slots__ = ("authorization", "body", "expects", "head_only", "headers", "keep_alive", "method", "old", "path",
                 "refusal")

    def __init__(self) -> None:
        self.method = self.path = b""
        self.headers: list[tuple[bytes, bytes]] = []
        self.authorization = b""
        self.body = b""
        self.refusal: Answer | None = None
        self.keep_alive = True
        self.expects = self.head_only = self.old = False

    def upstream_head(self, target: Target) -> bytes:
        """The head that is written to the target; the body follows it as it is."""
        parts = [self.method, b" ", self.path, b" HTTP/1.1\r\nHost: localhost\r\n"]
        if self.body or self.method not in _WITHOUT_BODY:
            parts.append(b"Content-Length: %d\r\n" % len(self.body))
        given = {name.lower().encode("ascii") for name, _ in target.headers}
        for name, value in self.headers:
            if not given or name.lower() not in given:
                parts += (name, b": ", value, b"\r\n")
        if target.forward_key and self.authorization and b"authorization" not in given:
            parts += (b"Authorization: ", self.authorization, b"\r\n")
        parts += (_line(name, value) for name, value in target.headers)
        parts.append(b"\r\n")
        return b"".join(parts)


_WITHOUT_BODY = frozenset({b"GET", b"HEAD", b"OPTIONS", b"DELETE"})


def _line(name: str, value: str) -> bytes:
    if any(sign in name + value for sign in "\r\n\0"):
        raise ValueError("a header of more than one line")
    return f"{name}: {value}\r\n".encode("latin-1")


class _Model(msgspec.Struct):
    model: str | None = None


_decoder = msgspec.json.Decoder(_Model)


def model_of(body: bytes) -> str | None:
    """The model that a JSON body asks for; None where it names none."""
    if not body:
        return None
    try:
        return _decoder.decode(body).model
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


class RequestReader:
    """Bytes in, whole requests out, in `ready`. `reading`: the request that has begun and is not whole yet."""

    def __init__(self, key: bytes, open_paths: frozenset[bytes], largest: int) -> None:
        self._key, self._open, self._largest = key, open_paths, largest
        self._parser = httptools.HttpRequestParser(self)
        self.ready: deque[Request] = deque()
        self.reading: Request | None = None
        self.in_body = self.keyed = self.ended = False
        self._raw: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        self._size = self._head = 0
        self._fresh = False

    def feed(self, data: bytes) -> None:
        """Read on. Raises RefusedError where nothing more can be read of this connection."""
        if self.ended:
            return
        self._fresh = False
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self.ended = True
            if self.ready:
                self.ready[-1].keep_alive = False
        except httptools.HttpParserError as error:
            if self.ended:
                return
            self.ended = True
            cause = error.__context__
            raise cause if isinstance(cause, RefusedError) else _refused(400, "not a valid HTTP/1.1 request") from None
        if self.reading is not None and not (self.in_body or self._fresh):
            self._head += len(data)
            if self._head > LARGEST_HEAD:
                self.ended = True
                raise self._too_long()

    # --- what httptools calls -------------------------------------------------------------------
    def on_message_begin(self) -> None:
        self.reading = Request()
        self.in_body, self._fresh = False, True
        self._raw, self._body, self._size, self._head = [], [], 0, 0

    def on_url(self, url: bytes) -> None:
        assert self.reading is not None
        self.reading.path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_body:
            self._count(len(name) + len(value))  # a trailer: read, and not passed on
        else:
            self._raw.append((name, value))

    def on_headers_complete(self) -> None:
        request = self.reading
        assert request is not None
        self.in_body = True
        request.method = self._parser.get_method()
        length, chunked = self._look(request)
        request.head_only = request.method == b"HEAD"
        request.keep_alive = self._parser.should_keep_alive() and not request.old
        request.path = _origin_form(request.path)
        has_body = chunked or length > 0
        if has_body and self._parser.should_upgrade():
            raise _refused(501, "only HTTP/1.1 is spoken here: send the request without an Upgrade header")
        self._admit(request, has_body)
        if length > (self._largest if request.refusal is None else LARGEST_REFUSED):
            raise RefusedError(request.refusal or self._too_large())
        request.expects = request.expects and has_body and request.refusal is None

    def on_body(self, body: bytes) -> None:
        assert self.reading is not None
        self._count(len(body))
        if self.reading.refusal is None:
            self._body.append(body)

    def on_message_complete(self) -> None:
        request = self.reading
        assert request is not None
        request.body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        self.reading, self._body, self.in_body = None, [], False
        self.ended = not request.keep_alive
        self.ready.append(request)

    # --- the head -------------------------------------------------------------------------------
    def _look(self, request: Request) -> tuple[int, bool]:
        """Take the headers apart: the body's length, and whether it is chunked."""
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise _refused(505, "only HTTP/1.1 and HTTP/1.0 are spoken here")
        request.old = version == "1.0"
        size, length, dropped, own = len(request.path), 0, set(), _NONE.copy()
        for name, value in self._raw:
            lower = name.lower()
            size += len(name) + len(value)
            if lower not in _OURS:
                request.headers.append((name, value))
                continue
            own[lower] += 1
            if lower == b"content-length":
                length = _length(value)
            elif lower == b"authorization":
                request.authorization = value
            elif lower == b"connection" and value.lower() not in _PLAIN_CONNECTIONS:
                dropped |= {token.strip().lower() for token in value.split(b",")}
            elif lower == b"transfer-encoding" and (value.strip().lower() != b"chunked" or request.old):
                raise _refused(501, "the only transfer encoding that is read here is chunked")
            elif lower == b"expect":
                request.expects = _expects(value)
            elif lower == b"content-encoding" and value.strip().lower() not in (b"", b"identity"):
                request.refusal = CODED
        if size > LARGEST_HEAD:
            raise self._too_long()
        if dropped:
            request.headers = [pair for pair in request.headers if pair[0].lower() not in dropped]
        if own[b"authorization"] != 1:
            request.authorization = b""
        _check_counts(own, request.old)
        return length, own[b"transfer-encoding"] > 0

    def _admit(self, request: Request, has_body: bool) -> None:
        scheme, _, given = request.authorization.partition(b" ")
        if scheme.lower() == b"bearer" and hmac.compare_digest(given.strip(), self._key):
            self.keyed = True
            return
        if request.method != b"GET" or has_body or request.path.partition(b"?")[0] not in self._open:
            request.refusal = UNAUTHORIZED

    def _count(self, more: int) -> None:
        assert self.reading is not None
        self._size += more
        refusal = self.reading.refusal
        if self._size > (self._largest if refusal is None else LARGEST_REFUSED):
            raise RefusedError(refusal or self._too_large())

    def _too_long(self) -> RefusedError:
        return _refused(431, f"the head of the request is larger than {LARGEST_HEAD} bytes")

    def _too_large(self) -> Answer:
        return error_answer(413, f"the body of the request is larger than {self._largest} bytes")


def _check_counts(own: dict[bytes, int], old: bool) -> None:
    lengths, encodings, hosts = own[b"content-length"], own[b"transfer-encoding"], own[b"host"]
    if lengths + encodings > 1:
        raise _refused(400, "more than one header says how long the request is")
    if hosts > 1 or (hosts == 0 and not old):
        raise _refused(400, "a request needs one Host header")


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise _refused(400, "the Content-Length is not a number")
    return int(value)


def _expects(value: bytes) -> bool:
    if value.strip().lower() != b"100-continue":
        raise _refused(417, "only 100-continue can be expected here")
    return True


def _origin_form(url: bytes) -> bytes:
    """Path and query of a request's target."""
    if url.startswith(b"/"):
        return url.partition(b"#")[0]
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserInvalidURLError:
        parsed = None
    if parsed is None or (parsed.schema or b"").lower() not in (b"http", b"https"):
        raise _refused(400, "the request's target is not a path")
    path = parsed.path or b"/"
    return path if parsed.query is None else path + b"?" + parsed.query


