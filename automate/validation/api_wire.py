"""One exchange with the Flock API over HTTP: time-outs, size limits, redirects, and whether anything may have arrived.

Never repeats an exchange, never gives the key to another host, never lets an exception of `requests` out."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from http.cookiejar import DefaultCookiePolicy
from typing import Any
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase
from urllib3 import exceptions as urllib3_errors

from automate.settings_validation import Validation
from automate.validation.api_debug import DebugLog

HEADER = "flock-api-key"
LARGEST = 8 << 20
"""Bytes of a reply, decompressed, after which it is given up."""
BODY_TIMES = 4.0
"""How many read time-outs a whole body may take."""
IDLE = 20.0
"""Seconds after which a kept connection is not used again: one that the server has dropped would make a POST unsure."""
_HOPS = 3
KEEP_METHOD = (307, 308)
"""Redirects that say: nothing was done, ask the same there."""
_BEFORE = (requests.exceptions.InvalidURL, requests.exceptions.InvalidSchema, requests.exceptions.MissingSchema,
           requests.exceptions.InvalidHeader)
"""What `requests` raises of a request that it has not begun to send."""
_LOOPBACK = {"127.0.0.1", "::1", "localhost"}


@dataclass(frozen=True)
class Answer:
    """What came back. `body`: decompressed; `whole`: it did not end early; `large`: it was cut at `LARGEST`."""

    status: int
    headers: dict[str, str]
    body: bytes
    whole: bool = True
    large: bool = False

    @property
    def page(self) -> bool:
        """Whether this is a page for people, such as something in front of the server answers with."""
        return "html" in self.headers.get("Content-Type", "").lower() or self.body.lstrip()[:1] == b"<"


@dataclass(frozen=True)
class Failure:
    """No answer. `what`: one sentence; `reached`: whether the request may have reached the server."""

    what: str
    reached: bool


class _Key(AuthBase):
    """Puts the key into the header; that there is an `auth` also keeps ~/.netrc out."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers[HEADER] = self._key
        return request

    def __repr__(self) -> str:
        return "<key>"


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An exception and all that it wraps."""
    left: list[Any] = [error]
    seen: set[int] = set()
    while left:
        one = left.pop()
        if isinstance(one, BaseException) and id(one) not in seen:
            seen.add(id(one))
            yield one
            left += [*one.args, getattr(one, "reason", None), one.__cause__, one.__context__]


def failure_of(error: BaseException, settings: Validation) -> Failure:
    """What an exception of `requests` means, in words that hold nothing of the request."""
    inner = list(_chain(error))
    words = next((one.strerror for one in inner if isinstance(one, OSError) and isinstance(one.strerror, str)
                  and not isinstance(one, requests.RequestException)), "")
    if any(isinstance(one, ssl.SSLCertVerificationError) for one in inner):
        return Failure("its certificate is not trusted here", False)
    if any(isinstance(one, socket.gaierror) for one in inner):
        return Failure(f"its name is not known here ({words})", False)
    if any(isinstance(one, urllib3_errors.NewConnectionError) for one in inner):
        return Failure(f"no connection ({words or 'refused'})", False)
    if any(isinstance(one, requests.ConnectTimeout | urllib3_errors.ConnectTimeoutError) for one in inner):
        return Failure(f"no connection within {settings.connect_timeout:g} s", False)
    if any(isinstance(one, requests.exceptions.ProxyError | urllib3_errors.ProxyError) for one in inner) or any(
            isinstance(one, OSError) and "Tunnel connection failed" in str(one) for one in inner):
        return Failure("the proxy of this machine let nothing through", False)
    if isinstance(error, _BEFORE):
        return Failure("its address can't be used", False)
    if any(isinstance(one, requests.Timeout | urllib3_errors.TimeoutError | TimeoutError) for one in inner):
        return Failure(f"no reply within {settings.read_timeout:g} s", True)
    if isinstance(error, ValueError | HTTPException):
        return Failure("its reply can't be read", True)
    return Failure(f"the connection broke ({words})" if words else "the connection broke without a reply", True)


class _Session(requests.Session):
    """A session that reads no redirect: `Wire` does, after the limits of size and time."""

    def get_redirect_target(self, resp: requests.Response) -> str | None:
        return None


class Wire:
    """Exchanges with the host of `settings.base_url`. One session; used by one thread at a time."""

    def __init__(self, settings: Validation, key: str, debug: DebugLog) -> None:
        self._settings = settings
        self._auth = _Key(key)
        self._debug = debug
        self._used = time.monotonic()
        self._session = _Session()
        self._session.trust_env = urlsplit(settings.base_url).hostname not in _LOOPBACK
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))

    def __repr__(self) -> str:
        return f"<Wire {self._settings.base_url}>"

    def send(self, method: str, url: str, body: bytes | None = None) -> Answer | Failure:
        """One exchange, redirects within the same host followed. Never raises for what the network does."""
        for _ in range(_HOPS):
            answer = self._once(method, url, body)
            onward = self._onward(answer, method, url) if isinstance(answer, Answer) else None
            if onward is None:
                return answer
            url = onward
        return answer

    def _once(self, method: str, url: str, body: bytes | None) -> Answer | Failure:
        if time.monotonic() - self._used > IDLE:
            self._session.close()
        got: Answer | Failure
        try:
            with self._session.request(
                    method, url, data=body, auth=self._auth, stream=True, allow_redirects=False,
                    headers={"Content-Type": "application/json", "Accept": "application/json"},
                    timeout=(self._settings.connect_timeout, self._settings.read_timeout)) as reply:
                got = self._read(reply)
        except (requests.RequestException, urllib3_errors.HTTPError, HTTPException, OSError, ValueError) as error:
            got = failure_of(error, self._settings)
        self._used = time.monotonic()
        self._note(method, url, body, got)
        return got

    def _read(self, reply: requests.Response) -> Answer:
        """The body, up to the limits of size and time; a body that breaks off is kept as far as it came."""
        until = time.monotonic() + BODY_TIMES * self._settings.read_timeout
        read = getattr(reply.raw, "read1", reply.raw.read)  # the first returns what is there, however little
        parts: list[bytes] = []
        size, whole = 0, True
        try:
            while size <= LARGEST and (part := read(1 << 16, decode_content=True)):
                parts.append(part)
                size += len(part)
                if time.monotonic() > until:
                    whole = False
                    break
        except (requests.RequestException, urllib3_errors.HTTPError, HTTPException, OSError, ValueError):
            whole = False
        length = reply.headers.get("Content-Length", "")
        if "Content-Encoding" not in reply.headers and length.isdigit() and size < int(length):
            whole = False
        large = size > LARGEST
        return Answer(reply.status_code, dict(reply.headers), b"".join(parts)[:LARGEST], whole and not large, large)

    def _onward(self, answer: Answer, method: str, url: str) -> str | None:
        """Where a redirect leads, if it may be followed: the same scheme, host and port, and the method kept."""
        target = answer.headers.get("Location")
        if not target or not (answer.status in KEEP_METHOD or (method == "GET" and answer.status in (301, 302, 303))):
            return None
        try:
            there = urljoin(url, target)
            same = urlsplit(there)[:2] == urlsplit(url)[:2]
        except ValueError:
            return None
        return there if same else None

    def _note(self, method: str, url: str, body: bytes | None, got: Answer | Failure) -> None:
        if not self._debug.wanted:
            return
        sent = self._debug.body(body)
        if isinstance(got, Failure):
            self._debug.note(method=method, url=url, sent=sent, failure=got.what, reached=got.reached)
        else:
            self._debug.note(method=method, url=url, sent=sent, status=got.status,
                             headers=self._debug.headers(got.headers), reply=self._debug.body(got.body),
                             whole=got.whole)

    def close(self) -> None:
        """End all connections."""
        self._session.close()
