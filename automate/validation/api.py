"""The Flock API: tasks, lookups, updates; each reply told as what it is, each call in the audit.

Never repeats a POST that may have arrived, never sends a number that is not finite, never shows the key."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from automate.errors import ApiError, ConfigError, DataError
from automate.settings_validation import Validation
from automate.validation.api_debug import DebugLog
from automate.validation.api_errors import (
    ApiRefused,
    ApiUnavailable,
    BadKey,
    NotValidating,
    RateLimited,
    detail_of,
    error_of,
    retry_after,
)
from automate.validation.api_wire import KEEP_METHOD, LARGEST, Answer, Failure, Wire
from automate.validation.audit import Audit
from automate.validation.replies import JSON, Task, describe, load, parse_tasks, shown, wire_id
from automate.validation.secrets import read_key

LONGEST_WAIT = 30.0
"""Seconds between two tries of one call; who must wait longer is told so instead."""
_BACKOFF = wait_random_exponential(multiplier=0.5, max=LONGEST_WAIT)


@dataclass(frozen=True)
class _Call:
    """One call. `name`: for the audit; `which`: the task's or assignment's id."""

    name: str
    which: str
    method: str
    path: str
    body: bytes | None = None

    @property
    def posted(self) -> bool:
        return self.method == "POST"


def _tidy(value: JSON, where: str) -> None:
    """Raises DataError for what JSON has no form for: a number that is not finite, a name that is no text."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            if not isinstance(name, str):
                raise DataError(f"the name {name!r} is no text", where=where)
            _tidy(one, f"{where}.{name}")
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            _tidy(one, f"{where}[{number}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise DataError(f"the number is not finite ({value}) and is never sent", where=where)


def update_body(payload: Mapping[str, JSON]) -> bytes:
    """The body that reports a completed assignment. Raises DataError for what must not be sent."""
    if not payload:
        raise DataError("there are no metrics to send", where="data")
    _tidy(payload, "data")
    try:
        return json.dumps({"status": "completed", "data": payload}, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise DataError(f"the metrics can't be sent: {shown(error)}", where="data") from error


def _may_repeat(error: BaseException) -> bool:
    return isinstance(error, ApiUnavailable) and not error.arrived and (error.retry_after or 0.0) <= LONGEST_WAIT


def _wait(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    asked = error.retry_after if isinstance(error, ApiUnavailable) else None
    return max(asked or 0.0, _BACKOFF(state))


class FlockApi:
    """The API of one key. Raises errors of `api_errors` only, and DataError for what must not be sent.

    `debug`: a folder for whole requests and replies without secrets. `secrets`: more that no text may hold.
    """

    def __init__(self, settings: Validation, key: str, audit: Audit, *, debug: Path | None = None,
                 sleep: Callable[[float], None] = time.sleep, secrets: Iterable[str] = ()) -> None:
        known = read_key({settings.api_key_env: key}, settings.api_key_env)
        if known is None:
            raise ConfigError("there is no Flock API key", where=f"environment variable {settings.api_key_env}",
                              todo=f"set {settings.api_key_env}, or give --flock-api-key")
        self.settings = settings
        self.audit = audit
        self._sleep = sleep
        self._debug = DebugLog(debug, (known, *secrets))
        self._wire = Wire(settings, known, self._debug)

    def __repr__(self) -> str:
        return f"<FlockApi {self.settings.base_url}>"

    # --- calls -----------------------------------------------------------------------------------
    def tasks(self) -> list[Task]:
        """The tasks there are. Repeated while the API can't be reached."""
        return parse_tasks(self._do(_Call("list", "", "GET", "/tasks/list"), _judge_list).body)

    def check_key(self, task_id: str | None = None) -> bool:
        """Whether the key is known to be accepted; False: the API does not tell. Raises BadKey where it is refused.

        Asks for what this wallet has submitted to a task, which nobody's record changes by.
        """
        asked = task_id if task_id is not None else next((task.id for task in self.tasks()), "0")
        path = f"/tasks/wallet-submissions?{urlencode({'task_id': asked})}"
        try:
            self._do(_Call("key", asked, "GET", path), _shape)
        except (ApiRefused, RateLimited):
            return False
        return True

    def request_assignment(self, task_id: str) -> bytes:
        """One lookup: the reply as it came, cut off or not, as long as there may be an id in it."""
        path = f"/tasks/request-validation-assignment/{_segment(task_id)}"
        return self._do(_Call("request", task_id, "POST", path), _judge_request).body

    def complete(self, assignment_id: str, payload: Mapping[str, JSON]) -> None:
        """Report metrics."""
        self._update("complete", assignment_id, update_body(payload))

    def fail(self, assignment_id: str) -> None:
        """Report that the submission is at fault."""
        self._update("fail", assignment_id, b'{"status": "failed"}')

    def close(self) -> None:
        """End connections, flush the audit."""
        self._wire.close()
        self.audit.close()

    # --- how they go -----------------------------------------------------------------------------
    def _update(self, name: str, assignment_id: str, body: bytes) -> None:
        path = f"/tasks/update-validation-assignment/{_segment(assignment_id)}"
        self._do(_Call(name, assignment_id, "POST", path, body), _judge_update)

    def _do(self, call: _Call, judge: Callable[[Answer], str | None]) -> Answer:
        """Make a call, again where that is safe. `judge` says what is wrong with an answer of HTTP 2xx."""
        tries = Retrying(stop=stop_after_attempt(self.settings.retries + 1), wait=_wait, sleep=self._sleep,
                         retry=retry_if_exception(_may_repeat), reraise=True)
        number = iter(range(1, self.settings.retries + 2))
        return tries(lambda: self._once(call, judge, next(number)))

    def _once(self, call: _Call, judge: Callable[[Answer], str | None], attempt: int) -> Answer:
        self.audit.ready()
        started = time.monotonic()
        answer = self._wire.send(call.method, self.settings.base_url + call.path, call.body)
        error = self._error(call, judge, answer)
        got = answer if isinstance(answer, Answer) else None
        self.audit.line(call.name, shown(self._debug.clean(call.which)), sent=call.body,
                        status=got.status if got else None, reply=got.body if got else None, attempt=attempt,
                        detail=error.what if error else "", seconds=time.monotonic() - started,
                        outcome="ok" if error is None else _outcome(error))
        if error is not None:
            raise error
        assert got is not None
        return got

    def _error(self, call: _Call, judge: Callable[[Answer], str | None], answer: Answer | Failure) -> ApiError | None:
        """What keeps an answer from being what was asked for; None: nothing."""
        where = f"{call.method} {self._debug.clean(call.path)}"
        if isinstance(answer, Failure):
            return ApiUnavailable(f"the API can't be reached: {answer.what}", unsure=call.posted and answer.reached,
                                  where=f"{call.method} {urlsplit(self.settings.base_url).netloc}",
                                  todo="nothing is lost: it is tried again later")
        detail, other = self._said(answer)
        wait = retry_after(answer.headers, time.time())
        if 300 <= answer.status < 400:
            if call.posted and answer.status not in KEEP_METHOD:  # such as 303: done, and the reply lies elsewhere
                return ApiUnavailable(f"the API sends to another address (HTTP {answer.status}), so it is not known "
                                      "whether it has taken this", unsure=True, where=where,
                                      todo="check `validation.base_url`; it is tried again later")
            return ApiRefused("the API sends to another address, which the key is not given to", status=answer.status,
                              where=where, todo="check `validation.base_url`")
        if not 200 <= answer.status < 300:
            return error_of(answer.status, detail, where=where, wait=wait, posted=call.posted, otherwise=other)
        if detail is not None and (call.name == "request" or not _plain(answer.status, detail)):
            return error_of(answer.status, detail, where=where, wait=wait, posted=call.posted)
        wrong = judge(answer)
        return None if wrong is None else ApiUnavailable(
            self._debug.clean(wrong), unsure=call.posted, retry_after=wait, where=where,
            todo="what stands between here and the API may have answered instead; it is tried again later")

    def _said(self, answer: Answer) -> tuple[str | None, str]:
        """Its `detail`, and what its body is where that is no JSON object; both without secrets."""
        if answer.large:
            return None, f"the reply is larger than {LARGEST >> 20} MiB"
        try:
            value = load(answer.body)
        except DataError as error:
            return None, self._debug.clean(error.what)
        detail = detail_of(value) if not (isinstance(value, dict) and wire_id(value.get("id"))) else None
        return None if detail is None else self._debug.clean(detail), ""


def _plain(status: int, detail: str) -> bool:
    """Whether a `detail` under HTTP 2xx is none of the errors that are known."""
    return type(error_of(status, detail, where="", wait=None, posted=False)) is ApiRefused


def _outcome(error: ApiError) -> str:
    unsure = isinstance(error, ApiUnavailable) and error.unsure
    return f"{type(error).__name__}{' (unsure)' if unsure else ''}"


def _segment(value: str) -> str:
    """An id as a part of a path. Raises DataError for what is no id."""
    if wire_id(value) is None:
        raise DataError(f"{shown(value, 60)!r} is no id of the Flock API")
    return quote(value, safe="")


# --- what is wrong with an answer of HTTP 2xx ------------------------------------------------------
def _shape(answer: Answer) -> str | None:
    if answer.large:
        return f"the reply is larger than {LARGEST >> 20} MiB"
    if answer.page:
        return "the reply is a web page, not the API's"
    return None if answer.whole else f"the reply was cut off after {len(answer.body)} bytes"


def _judge_list(answer: Answer) -> str | None:
    wrong = _shape(answer)
    if wrong is None:
        try:
            parse_tasks(answer.body)
        except DataError as error:
            return error.what
    return wrong


def _judge_request(answer: Answer) -> str | None:
    """Whatever may hold an assignment's id goes on to the spool, even if it was cut off."""
    if b'"id"' in answer.body and not answer.page and not answer.large:
        return None
    return _shape(answer) or f"no assignment: {describe(answer.body)}"


def _judge_update(answer: Answer) -> str | None:
    """HTTP 2xx is all that says it was taken; the body says nothing, unless something else has answered."""
    return "the reply is a web page, not the API's" if answer.page else None


__all__ = ["ApiRefused", "ApiUnavailable", "BadKey", "FlockApi", "NotValidating", "RateLimited", "update_body"]
