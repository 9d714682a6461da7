"""What the Flock API answers when it does not give what was asked, told apart by `detail` rather than by status.

Pure. Texts of the server are cut, cleaned and freed of secrets by who raises these.

Doubt (`unsure`) is left by a POST whose reply was lost: a connection that broke, a time-out, a gateway (502, 504), an
error without a `detail` of the API's own (a page, plain text, a body cut off), a redirect that may follow the deed. An
HTTP 5xx with a `detail` is a reply: the API says itself that it failed, so what it says later is taken at its word.
Neither is repeated by the call itself (`arrived`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from automate.errors import ApiError
from automate.validation.replies import JSON, shown

DETAIL = 300
"""Characters of a `detail` that are kept."""
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_LIMIT = re.compile(r"(\d{1,6}) per (\d{1,6}(?:\.\d{1,6})?)?\s*(second|minute|hour|day|sec|min|s|m|h)", re.IGNORECASE)
_KEY = re.compile(r"api[ _-]?key|not authenticated|unauthori[sz]ed|(?:invalid|wrong|bad|unknown|expired) (?:key|token)|"
                  r"could not validate credentials|invalid credentials", re.IGNORECASE)


class NoSubmissions(ApiError):
    """There is nothing to validate for this task now."""


class RateLimited(ApiError):
    """Asked too soon. `seconds`: how far apart lookups must be, or how long to wait; None: the reply doesn't say."""

    def __init__(self, what: str, *, seconds: float | None = None, where: str | None = None,
                 todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.seconds = seconds


class NotValidating(ApiError):
    """The assignment takes no result: it has one, or its lease is over."""


class BadKey(ApiError):
    """The API key was refused."""


class ApiUnavailable(ApiError):
    """The API can't be reached, or failed: to be tried again later.

    `unsure`: the POST may have been taken all the same; `arrived`: a POST that may have reached the API, taken or not,
    and is not repeated at once. `retry_after`: seconds that the server asked for, or None.
    """

    def __init__(self, what: str, *, unsure: bool = False, arrived: bool = False, retry_after: float | None = None,
                 where: str | None = None, todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.unsure = unsure
        self.arrived = arrived or unsure
        self.retry_after = retry_after


class ApiRefused(ApiError):
    """Anything else that it answered. `detail`: its words, or what the reply was; `status`: of HTTP."""

    def __init__(self, what: str, *, detail: str = "", status: int = 0, where: str | None = None,
                 todo: str | None = None) -> None:
        super().__init__(what, where=where, todo=todo)
        self.detail = detail
        self.status = status


def detail_of(value: JSON) -> str | None:
    """The `detail` of an error's body as one line; None where there is none. FastAPI's lists of faults are joined."""
    found = value.get("detail") if isinstance(value, dict) else None
    if found is None:
        return None
    if isinstance(found, list):
        parts = [one.get("msg", one) if isinstance(one, dict) else one for one in found[:5]]
        return shown("; ".join(str(part) for part in parts), DETAIL)
    return shown(found, DETAIL)


def limit_seconds(detail: str) -> float | None:
    """How far apart calls must be by a text such as `1 per 3 minutes`; None where it does not say."""
    found = _LIMIT.search(detail)
    if found is None or int(found[1]) == 0:
        return None
    seconds = float(found[2] or 1) * _UNITS[found[3][0].lower()] / int(found[1])
    return min(seconds, 86400.0)


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds to wait by a Retry-After header, a count or a date; None where it is absent or makes no sense."""
    text = headers.get("Retry-After", "").strip()
    if re.fullmatch(r"\d{1,9}", text):
        return min(float(text), 86400.0)
    try:
        return min(max(0.0, parsedate_to_datetime(text).timestamp() - now), 86400.0)
    except (ValueError, TypeError, OverflowError):
        return None


_GATEWAY = (502, 504)
"""What only something in front of the API answers, whatever it says."""


def error_of(status: int, detail: str | None, *, where: str, wait: float | None, posted: bool,
             otherwise: str = "") -> ApiError:
    """The error that a reply means. `detail` decides; the status only where there is none that is known.

    `wait`: of the Retry-After header; `posted`: whether the call was a POST; `otherwise`: what a body without a
    `detail` was.
    """
    text = detail or ""
    low = text.lower()
    said_something = bool(text or otherwise)
    said = text or otherwise or "no reason given"
    if "not in validating status" in low:
        return NotValidating(text, where=where)
    if "no task submissions" in low:
        return NoSubmissions(text, where=where)
    if "rate limit" in low or (status == 429 and not _KEY.search(text)):
        seconds = limit_seconds(text) if limit_seconds(text) is not None else wait
        return RateLimited(said, seconds=seconds, where=where)
    if status == 401 or (status < 500 and _KEY.search(text)) or (status == 403 and not said_something):
        return BadKey(f"the API key was refused: {said}", where=where,
                      todo="check the key, and that it is the key of a validator; then run the same command again")
    if status >= 500 or status == 408:
        return ApiUnavailable(f"the API failed with HTTP {status}: {said}", where=where, retry_after=wait,
                              unsure=posted and (not text or status in _GATEWAY), arrived=posted,
                              todo="nothing is lost: it is tried again later")
    return ApiRefused(f"the API refused (HTTP {status}): {said}", detail=text or otherwise, status=status, where=where)
