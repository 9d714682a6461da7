"""Calls of an OpenAI-compatible judge: one request, its reply's text, and what a refusal or an outage means.

The key goes into one header, towards one address, and into no text, file or exception. Never chooses a model."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import requests
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_attempt

from automate.validation.inner import words
from automate.validation.modules.base import RecoverableException

KEY, ADDRESS = "OPENAI_API_KEY", "OPENAI_BASE_URL"
CONNECT_TIMEOUT, READ_TIMEOUT = 10.0, 120.0
TRIES = 5
LONGEST_WAIT = 60.0
LARGEST_REPLY = 8_000_000
LONGEST_REPLY = 900.0
"""Seconds after which a reply that trickles in is given up."""
_REFUSED = {400, 403, 413, 422}
_CONFIG = {401, 404, 405}


class Outage(RecoverableException):
    """The network's or the provider's trouble: nothing is scored by it."""

    def __init__(self, reason: str, *, cause: str = "judge-unavailable", wait: float | None = None) -> None:
        super().__init__(reason, cause=cause)
        self.wait = wait


class Misconfigured(RecoverableException):
    """A key, address or model name that a person must mend, in the environment of whoever asks: not tried again here.

    Recoverable all the same, so that a start without the key (from cron, say) gives up no answers that wait for it.
    """


class Refused(Exception):
    """A judge would not answer this request (400, 403, 413, 422); carries its words."""


class _Bearer(requests.auth.AuthBase):
    """The key as a header; as `auth`, so that no `.netrc` replaces it and no redirect takes it along."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class JudgeClient:
    """One provider. `sleep` waits between tries; `tries` of them a call."""

    def __init__(self, environ: Mapping[str, str], *, sleep: Callable[[float], None], connections: int = 16,
                 tries: int = TRIES) -> None:
        self._key, self._address = _key(environ), _address(environ)
        self._sleep, self._tries = sleep, tries
        self._session = requests.Session()
        self._session.auth = _Bearer(self._key)
        adapter = requests.adapters.HTTPAdapter(pool_maxsize=connections)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def models(self) -> list[str]:
        """Names that the provider offers; empty where it doesn't say. Raises Misconfigured: bad key."""
        try:
            listed = self._once("GET", "/models", None).get("data")
        except (Outage, Refused):
            return []
        except Misconfigured as error:
            if error.cause == "judge-key":
                raise
            return []
        rows = listed if isinstance(listed, list) else []
        return [row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)]

    def ask(self, body: Mapping[str, Any]) -> str | None:
        """The text of a judge's reply; None where it holds no text. Tried again while the trouble may pass.

        Raises Outage, Refused, Misconfigured.
        """
        for attempt in Retrying(stop=stop_after_attempt(self._tries), wait=_wait, sleep=self._sleep,
                                retry=retry_if_exception_type(Outage), reraise=True):
            with attempt:
                return self._text(self._once("POST", "/chat/completions", body))
        raise AssertionError("the last try raises")

    def _text(self, reply: Mapping[str, Any]) -> str | None:
        choices = reply.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            said = reply.get("error")
            raise Outage(self._clean(f"the judge's reply has no choices{f': {said}' if said else ''}"))
        message = choices[0].get("message")
        content = message.get("content") if isinstance(message, dict) else None
        return self._without_key(content) if isinstance(content, str) else None

    def _once(self, method: str, path: str, body: Mapping[str, Any] | None) -> Mapping[str, Any]:
        try:
            with self._session.request(method, self._address + path, json=body, stream=True, allow_redirects=False,
                                       timeout=(CONNECT_TIMEOUT, READ_TIMEOUT)) as reply:
                data = _read(reply)
                if reply.status_code != 200:
                    raise self._trouble(reply, data)
                return _object(data)
        except requests.RequestException as error:
            raise Outage(self._clean(f"the judge can't be reached: {type(error).__name__}")) from None

    def _trouble(self, reply: requests.Response, data: bytes) -> Exception:
        """What a status other than 200 means."""
        status = reply.status_code
        said = self._clean(f"the judge replied {status}: {data[:2000].decode('utf-8', 'replace')}")
        if status in _REFUSED:
            return Refused(said)
        if status in _CONFIG:
            return Misconfigured(f"{said} (check {KEY}, {ADDRESS} and the task's eval_model_list)",
                                 cause="judge-key" if status == 401 else "judge-config")
        if 300 <= status < 400:
            return Misconfigured(f"the judge's address redirects ({status}): name the final one in "
                                 f"{ADDRESS}", cause="judge-config")
        return Outage(said, cause="judge-limits" if status in (402, 429) else "judge-unavailable",
                      wait=_seconds(reply.headers.get("Retry-After")))

    def _without_key(self, text: str) -> str:
        return text.replace(self._key, "***")

    def _clean(self, text: str) -> str:
        return words.plain(self._without_key(text), 300)


def _key(environ: Mapping[str, str]) -> str:
    key = environ.get(KEY, "").strip()
    if not key:
        raise Misconfigured(f"{KEY} is not set: the judges of this task are asked with it, on the login node",
                            cause="judge-key")
    if not key.isascii() or not key.isprintable() or " " in key:
        raise Misconfigured(f"{KEY} holds characters that no key has", cause="judge-key")
    return key


def _address(environ: Mapping[str, str]) -> str:
    address = environ.get(ADDRESS, "").strip().rstrip("/")
    try:
        parts = urlsplit(address)
        secret = parts.username or parts.password or parts.query or parts.fragment
        safe = parts.scheme == "https" or (parts.scheme == "http"
                                           and parts.hostname in ("127.0.0.1", "::1", "localhost"))
        good = bool(parts.hostname) and safe and not secret and address.isprintable()
    except ValueError:
        good = False
    if not good:
        raise Misconfigured(f"{ADDRESS}: expected an address such as https://api.flock.io/v1 (plain http "
                            "for this machine only), without name, password or query", cause="judge-config")
    return address


def _read(reply: requests.Response) -> bytes:
    """The body, up to a limit that no honest reply reaches."""
    data, until = bytearray(), time.monotonic() + LONGEST_REPLY
    for chunk in reply.iter_content(65536):
        data += chunk
        if len(data) > LARGEST_REPLY or time.monotonic() > until:
            raise Outage("the judge's reply is longer than any reply may be, in bytes or in time")
    return bytes(data)


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Outage("the judge's reply is not a JSON object")
    return value


def _seconds(header: str | None) -> float | None:
    try:
        wait = float(header or "")
    except ValueError:
        return None
    return wait if math.isfinite(wait) and wait >= 0 else None


def _wait(state: RetryCallState) -> float:
    """1, 2, 4, ... seconds, or what the provider asks for where that is longer; never more than a minute."""
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.wait if isinstance(error, Outage) and error.wait is not None else 0.0
    return float(min(LONGEST_WAIT, max(asked, 2.0 ** (state.attempt_number - 1))))
