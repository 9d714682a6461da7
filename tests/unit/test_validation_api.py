"""The client against the stand-in: each reply told as what it is, nothing repeated that may have arrived."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from http import client as http_client
from pathlib import Path
from typing import Any

import pytest
import requests
import urllib3
from requests.structures import CaseInsensitiveDict

from automate.errors import ApiError, ConfigError, DataError
from automate.journal import read_journal
from automate.settings_validation import Validation
from automate.validation.api import FlockApi
from automate.validation.api_errors import (
    ApiRefused,
    ApiUnavailable,
    BadKey,
    NoSubmissions,
    NotValidating,
    RateLimited,
    error_of,
    limit_seconds,
    retry_after,
)
from automate.validation.api_wire import IDLE, LARGEST, Answer, Failure, failure_of
from automate.validation.audit import Audit
from automate.validation.replies import parse_assignment
from automate.validation.standin import Fault, Plan, StandIn, TaskPlan

KEY = "flk-the-very-secret-key-0123456789"


@pytest.fixture
def standin() -> Iterator[StandIn]:
    with StandIn(Plan((TaskPlan(12, submissions=3), TaskPlan(13, submissions=0)), key=KEY, slow=30.0)) as server:
        yield server


@pytest.fixture
def naps() -> list[float]:
    return []


@pytest.fixture
def client(standin: StandIn, tmp_path: Path, naps: list[float]) -> Callable[..., FlockApi]:
    def make(key: str = KEY, debug: bool = False, base_url: str | None = None, **values: Any) -> FlockApi:
        settings = Validation(base_url=base_url or standin.base_url, **{"read_timeout": 5.0, **values})
        return FlockApi(settings, key, Audit(tmp_path / "audit"), debug=tmp_path / "debug" if debug else None,
                        sleep=naps.append)
    return make


def taken(standin: StandIn, api: FlockApi) -> str:
    return parse_assignment(api.request_assignment("12"), "12", "example", 0.0, None).id


def audit(tmp_path: Path) -> list[dict[str, Any]]:
    return [record for _, record in read_journal(tmp_path / "audit").records]


# --- the main path --------------------------------------------------------------------------------
def test_a_whole_circle(standin: StandIn, client: Callable[..., FlockApi], tmp_path: Path) -> None:
    api = client()
    assert [task.id for task in api.tasks()] == ["12", "13"]
    assert api.check_key() is True
    first, second = taken(standin, api), taken(standin, api)
    api.complete(first, {"loss": 1.5, "gpu_type": "A100"})
    api.fail(second)
    assert standin.assignments[first].payloads == [{"loss": 1.5, "gpu_type": "A100"}]
    assert (standin.assignments[second].status, standin.assignments[second].payloads) == ("failed", [None])
    assert standin.violations == []
    lines = audit(tmp_path)
    assert [(line["call"], line["id"], line["outcome"]) for line in lines] == [
        ("list", "", "ok"), ("list", "", "ok"), ("key", "12", "ok"), ("request", "12", "ok"), ("request", "12", "ok"),
        ("complete", first, "ok"), ("fail", second, "ok")]
    assert lines[5]["sent"] is not None and lines[5]["status"] == 200 and lines[3]["sent"] is None
    assert all(len(line["reply"]) == 64 for line in lines)


# --- errors by their detail -----------------------------------------------------------------------
def test_what_the_api_says_is_told_apart(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    api = client()
    with pytest.raises(NoSubmissions):
        api.request_assignment("13")
    with pytest.raises(ApiRefused) as refused:
        api.request_assignment("999")
    assert refused.value.detail == "Task not found"
    one = taken(standin, api)
    api.fail(one)
    with pytest.raises(NotValidating):
        api.complete(one, {"score": 1.0})
    assert standin.assignments[one].accepted == 1


def test_a_rate_limit_says_how_long(tmp_path: Path) -> None:
    with StandIn(Plan((TaskPlan(12), TaskPlan(13)), key=KEY, lookup_interval=180.0)) as server:
        api = FlockApi(Validation(base_url=server.base_url), KEY, Audit(tmp_path),
                       sleep=lambda _: pytest.fail("it slept"))
        api.request_assignment("12")
        with pytest.raises(RateLimited) as caught:
            api.request_assignment("12")
        api.request_assignment("13")
    assert caught.value.seconds == 180.0


@pytest.mark.parametrize("status", [200, 400, 403, 404, 409, 429, 500])
@pytest.mark.parametrize(("detail", "kind"), [
    ("No task submissions available to validate", NoSubmissions),
    ("Rate limit reached for validation assignment lookup: 1 per 3 minutes", RateLimited),
    ("Validation assignment is not in validating status", NotValidating)])
def test_the_detail_decides_and_not_the_status(status: int, detail: str, kind: type[ApiError]) -> None:
    assert type(error_of(status, detail, where="here", wait=None, posted=True)) is kind


@pytest.mark.parametrize(("status", "detail", "otherwise", "kind"), [
    (401, None, "", BadKey), (403, "Not authenticated", "", BadKey), (403, None, "", BadKey),
    (400, "Invalid API key", "", BadKey), (403, "You have no stake in this task", "", ApiRefused),
    (403, None, "the reply is HTML or XML", ApiRefused), (404, "Not Found", "", ApiRefused),
    (429, None, "", RateLimited), (500, "Internal Server Error", "", ApiUnavailable), (503, None, "", ApiUnavailable),
    (418, None, "", ApiRefused)])
def test_other_errors(status: int, detail: str | None, otherwise: str, kind: type[ApiError]) -> None:
    assert type(error_of(status, detail, where="x", wait=None, posted=False, otherwise=otherwise)) is kind


@pytest.mark.parametrize(("text", "seconds"), [
    ("1 per 3 minutes", 180.0), ("limit: 2 per minute", 30.0), ("1 per 0.5 seconds", 0.5), ("1 per 1 hour", 3600.0),
    ("0 per minute", None), ("often", None), ("1 per 999999 days", 86400.0)])
def test_how_far_apart_lookups_must_be(text: str, seconds: float | None) -> None:
    assert limit_seconds(text) == seconds


def test_retry_after() -> None:
    assert retry_after({"Retry-After": "7"}, 0.0) == 7.0
    assert retry_after({"Retry-After": "Thu, 01 Jan 1970 00:01:00 GMT"}, 10.0) == 50.0
    assert [retry_after({"Retry-After": bad}, 0.0) for bad in ("", "soon", "-1", "1e9")] == [None] * 4


def test_a_wrong_key_is_told_in_one_line_and_not_shown(client: Callable[..., FlockApi]) -> None:
    api = client("flk-another-secret-key")
    for ask in (api.check_key, lambda: api.request_assignment("12"), lambda: api.fail("1")):
        with pytest.raises(BadKey) as caught:
            ask()
        assert "another-secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "  ", "two\nlines", "schlüssel"])
def test_a_key_that_is_none_is_refused_at_once(client: Callable[..., FlockApi], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        client(key)
    assert "lines" not in str(caught.value) and "schl" not in str(caught.value)


def test_a_key_that_nobody_judges(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    standin.inject("key", Fault.RATE_LIMIT)
    assert client().check_key("12") is False


# --- repeating, and not repeating -----------------------------------------------------------------
@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.GATEWAY, Fault.DROP_BEFORE, Fault.HTML, Fault.CUT, Fault.NOT_JSON,
                                   Fault.WRONG_TYPE, Fault.HUGE])
def test_a_list_is_asked_again(standin: StandIn, client: Callable[..., FlockApi], naps: list[float], tmp_path: Path,
                               fault: Fault) -> None:
    standin.inject("list", fault, fault)
    assert len(client(retries=2).tasks()) == 2
    assert len(naps) == 2 and all(0 <= nap <= 30 for nap in naps)
    assert [(line["attempt"], line["outcome"]) for line in audit(tmp_path)] == [
        (1, "ApiUnavailable"), (2, "ApiUnavailable"), (3, "ok")]


@pytest.mark.parametrize(("fault", "said"), [
    (Fault.HTML, "web page"), (Fault.CUT, "cut off"), (Fault.NOT_JSON, "not JSON"), (Fault.WRONG_TYPE, "list of tasks"),
    (Fault.HUGE, "larger than 8 MiB"), (Fault.GATEWAY, "HTTP 502: the reply is HTML"), (Fault.ERROR, "HTTP 500"),
    (Fault.DROP_BEFORE, "connection broke")])
def test_a_list_that_does_not_come_is_told_as_what_it_is(standin: StandIn, client: Callable[..., FlockApi],
                                                         fault: Fault, said: str) -> None:
    standin.inject("list", fault)
    with pytest.raises(ApiUnavailable, match=said) as caught:
        client(retries=0).tasks()
    assert caught.value.unsure is False


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.GATEWAY, Fault.DROP_BEFORE, Fault.DROP_AFTER, Fault.ERROR_AFTER,
                                   Fault.HTML])
def test_an_update_that_may_have_arrived_is_never_repeated(standin: StandIn, client: Callable[..., FlockApi],
                                                           naps: list[float], fault: Fault) -> None:
    api = client()
    one = taken(standin, api)
    standin.inject("update", fault)
    with pytest.raises(ApiUnavailable) as caught:
        api.complete(one, {"score": 1.0})
    assert caught.value.unsure is (fault is not Fault.ERROR) and naps == []
    assert len([call for call in standin.calls if call.place == "update"]) == 1
    done = fault in (Fault.DROP_AFTER, Fault.ERROR_AFTER)
    assert standin.assignments[one].accepted == done
    if done:
        with pytest.raises(NotValidating):
            api.complete(one, {"score": 1.0})
    else:
        api.complete(one, {"score": 1.0})
    assert standin.assignments[one].accepted == 1


def test_an_update_whose_reply_is_late_is_unsure(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    api = client(read_timeout=0.2)
    one = taken(standin, api)
    standin.inject("update", Fault.SLOW)
    with pytest.raises(ApiUnavailable, match=r"no reply within 0\.2 s") as caught:
        api.fail(one)
    assert caught.value.unsure and standin.assignments[one].accepted == 1


def test_an_update_whose_reply_is_cut_off_was_taken(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    api = client()
    one = taken(standin, api)
    standin.inject("update", Fault.CUT)
    api.complete(one, {"score": 1.0})
    assert standin.assignments[one].accepted == 1


@pytest.mark.parametrize("fault", [Fault.DROP_AFTER, Fault.ERROR_AFTER, Fault.DROP_BEFORE, Fault.ERROR, Fault.HTML,
                                   Fault.NOT_JSON, Fault.HUGE, Fault.WRONG_TYPE])
def test_a_lookup_is_never_repeated(standin: StandIn, client: Callable[..., FlockApi], naps: list[float],
                                    fault: Fault) -> None:
    standin.inject("request", fault)
    with pytest.raises(ApiUnavailable) as caught:
        client().request_assignment("12")
    assert caught.value.unsure is (fault is not Fault.ERROR) and caught.value.arrived and naps == []
    assert len([call for call in standin.calls if call.place == "request"]) == 1


def test_a_cut_off_assignment_is_handed_on(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    standin.inject("request", Fault.CUT)
    body = client().request_assignment("12")
    assert body.startswith(b'{"id": 1200000')
    with pytest.raises(DataError, match="not JSON"):
        parse_assignment(body, "12", "example", 0.0, None)


def closed_port() -> int:
    with socket.socket() as taken_once:
        taken_once.bind(("127.0.0.1", 0))
        return int(taken_once.getsockname()[1])


def test_a_post_is_repeated_where_no_connection_could_be_made(client: Callable[..., FlockApi], naps: list[float],
                                                              tmp_path: Path) -> None:
    api = client(base_url=f"http://127.0.0.1:{closed_port()}/api/v1", retries=3)
    with pytest.raises(ApiUnavailable, match=r"no connection \(.*refused\)") as caught:
        api.fail("12")
    assert caught.value.unsure is False and len(naps) == 3
    assert [line["status"] for line in audit(tmp_path)] == [None] * 4


def test_what_network_faults_mean() -> None:
    pool = urllib3.HTTPSConnectionPool("flock.invalid")
    unknown = urllib3.exceptions.NewConnectionError(urllib3.connection.HTTPConnection("flock.invalid"), "")
    unknown.__cause__ = socket.gaierror(-2, "Name or service not known")
    wrapped = requests.ConnectionError(urllib3.exceptions.MaxRetryError(pool, "/", unknown))
    assert failure_of(wrapped, Validation()) == Failure("its name is not known here (Name or service not known)", False)
    wrapped = requests.exceptions.SSLError(ssl.SSLCertVerificationError(1, "self-signed"))
    assert failure_of(wrapped, Validation()) == Failure("its certificate is not trusted here", False)
    slow = urllib3.exceptions.ConnectTimeoutError()
    late = requests.ConnectTimeout(urllib3.exceptions.MaxRetryError(pool, "/", slow))
    assert failure_of(late, Validation()) == Failure("no connection within 10 s", False)
    bad = requests.exceptions.InvalidURL(f"https://{KEY}")
    assert failure_of(bad, Validation()) == Failure("its address can't be used", False)
    assert failure_of(requests.ReadTimeout("x"), Validation()) == Failure("no reply within 60 s", True)
    assert failure_of(requests.ConnectionError(ConnectionResetError(104, "Connection reset by peer")), Validation()
                      ) == Failure("the connection broke (Connection reset by peer)", True)


# --- a raw server: what the stand-in does not do --------------------------------------------------
def received(connection: socket.socket) -> bytes:
    """One request with its body."""
    data = b""
    while part := connection.recv(1 << 16):
        data += part
        head, end, body = data.partition(b"\r\n\r\n")
        found = re.search(rb"(?i)content-length: (\d+)", head)
        if end and len(body) >= int(found[1] if found else 0):
            break
    return data


@pytest.fixture
def raw() -> Iterator[Callable[[bytes], tuple[int, list[bytes]]]]:
    """Start a server that answers every connection with these bytes; gives its port and what it received."""
    listening: list[socket.socket] = []

    def start(answer: bytes) -> tuple[int, list[bytes]]:
        server = socket.create_server(("127.0.0.1", 0))
        listening.append(server)
        got: list[bytes] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    got.append(received(connection))
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return int(server.getsockname()[1]), got

    yield start
    for server in listening:
        server.shutdown(socket.SHUT_RDWR)
        server.close()


def http(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{lines}\r\n".encode() + body


def test_the_key_goes_to_no_other_host(raw: Any, client: Callable[..., FlockApi]) -> None:
    other, heard = raw(http("200 OK", b"[]"))
    port, _ = raw(http("307 Temporary Redirect", Location=f"http://127.0.0.1:{other}/api/v1/tasks/list"))
    api = client(base_url=f"http://127.0.0.1:{port}")
    for ask in (api.tasks, lambda: api.fail("1"), lambda: api.request_assignment("12")):
        with pytest.raises(ApiRefused, match="sends to another address"):
            ask()
    assert heard == []


def test_a_redirect_within_the_host_is_followed_and_a_ring_is_not(standin: StandIn, raw: Any,
                                                                  client: Callable[..., FlockApi]) -> None:
    standin.inject("list", Fault.REDIRECT)
    with pytest.raises(ApiRefused):
        client().tasks()
    port, heard = raw(http("308 Permanent Redirect", Location="/again"))
    with pytest.raises(ApiRefused):
        client(base_url=f"http://127.0.0.1:{port}").fail("1")
    assert 1 < len(heard) < 6 and heard[1].startswith(b"POST /again") and b'"failed"' in heard[1]


def test_a_post_is_not_turned_into_a_get(raw: Any, client: Callable[..., FlockApi]) -> None:
    port, heard = raw(http("302 Found", Location="/login"))
    with pytest.raises(ApiUnavailable) as caught:
        client(base_url=f"http://127.0.0.1:{port}").fail("1")
    assert caught.value.unsure and len(heard) == 1


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary Redirect"])
@pytest.mark.parametrize("location", ["http://[bad", "//[::1", "http://a:99999999/"])
def test_a_redirect_that_leads_nowhere_is_a_reply_and_no_reason_to_ask_again(
        raw: Any, client: Callable[..., FlockApi], naps: list[float], status: str, location: str) -> None:
    port, heard = raw(http(status, Location=location))
    with pytest.raises(ApiError) as caught:
        client(base_url=f"http://127.0.0.1:{port}", retries=3).complete("1", {"score": 1.0})
    assert len(heard) == 1 and naps == []
    assert getattr(caught.value, "unsure", False) is not status.startswith("307")


def test_a_redirects_body_is_not_read_beyond_the_limit(raw: Any, client: Callable[..., FlockApi]) -> None:
    port, _ = raw(http("303 See Other", b" " * (LARGEST + 9), Location="/there"))
    api = client(base_url=f"http://127.0.0.1:{port}")
    got = api._wire.send("POST", f"http://127.0.0.1:{port}/x", b"{}")
    assert isinstance(got, Answer) and got.large and len(got.body) == LARGEST


@pytest.mark.parametrize("error", [ValueError("x"), http_client.BadStatusLine("x"), UnicodeError()])
def test_what_breaks_while_a_reply_is_read_has_reached_the_server(error: Exception) -> None:
    assert failure_of(error, Validation()) == Failure("its reply can't be read", True)


@pytest.mark.parametrize(("status", "detail", "doubt"), [
    (503, "maintenance", False), (500, "Internal Server Error", False), (408, "too slow", False),
    (500, None, True), (503, None, True), (503, "", True), (502, "maintenance", True), (504, "maintenance", True)])
def test_an_error_in_the_apis_own_words_leaves_no_doubt(status: int, detail: str | None, doubt: bool) -> None:
    error = error_of(status, detail, where="x", wait=None, posted=True, otherwise="" if detail else "a page")
    assert isinstance(error, ApiUnavailable) and (error.unsure, error.arrived) == (doubt, True)
    error = error_of(status, detail, where="x", wait=None, posted=False)
    assert isinstance(error, ApiUnavailable) and (error.unsure, error.arrived) == (False, False)


def test_a_server_may_ask_for_time(raw: Any, client: Callable[..., FlockApi], naps: list[float]) -> None:
    port, _ = raw(http("503 Service Unavailable", b'{"detail": "busy"}', Retry_After="17"))
    with pytest.raises(ApiUnavailable) as caught:
        client(base_url=f"http://127.0.0.1:{port}", retries=1).tasks()
    assert caught.value.retry_after == 17.0 and len(naps) == 1 and naps[0] >= 17.0
    port, heard = raw(http("503 Service Unavailable", b"", Retry_After="3600"))
    with pytest.raises(ApiUnavailable):
        client(base_url=f"http://127.0.0.1:{port}", retries=5).tasks()
    assert len(heard) == 1


def test_compressed_replies_are_read_and_bombs_are_not(raw: Any, client: Callable[..., FlockApi]) -> None:
    import gzip

    port, _ = raw(http("200 OK", gzip.compress(b'[{"id": 5}]'), Content_Encoding="gzip"))
    assert [task.id for task in client(base_url=f"http://127.0.0.1:{port}").tasks()] == ["5"]
    port, _ = raw(http("200 OK", gzip.compress(b" " * (64 << 20)), Content_Encoding="gzip"))
    with pytest.raises(ApiUnavailable, match="larger than 8 MiB"):
        client(base_url=f"http://127.0.0.1:{port}", retries=0).tasks()
    port, _ = raw(http("200 OK", b"not gzip at all", Content_Encoding="gzip"))
    with pytest.raises(ApiUnavailable):
        client(base_url=f"http://127.0.0.1:{port}", retries=0).tasks()


def test_a_body_that_does_not_end_is_not_read_to_its_end(client: Callable[..., FlockApi]) -> None:
    class Endless:
        status_code, headers, read = 200, CaseInsensitiveDict[str](), 0

        @property
        def raw(self) -> Endless:
            return self

        def read1(self, size: int, decode_content: bool) -> bytes:
            assert decode_content and self.read < 3 * LARGEST
            self.read += 1 << 20
            return b" " * (1 << 20)

    answer = client()._wire._read(Endless())  # type: ignore[arg-type]
    assert answer.large and not answer.whole and len(answer.body) == LARGEST


def test_a_page_that_does_not_say_so_is_one(raw: Any, client: Callable[..., FlockApi]) -> None:
    port, _ = raw(http("200 OK", b"  <!doctype html><p>Please log in</p>"))
    with pytest.raises(ApiUnavailable, match="web page") as caught:
        client(base_url=f"http://127.0.0.1:{port}").fail("1")
    assert caught.value.unsure


@pytest.mark.parametrize("answer", [None, http("403 Forbidden", b"no")])
def test_a_proxy_that_lets_nothing_through(raw: Any, client: Callable[..., FlockApi], answer: bytes | None,
                                           monkeypatch: pytest.MonkeyPatch) -> None:
    port, heard = (closed_port(), []) if answer is None else raw(answer)
    monkeypatch.setenv("https_proxy", f"http://127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with pytest.raises(ApiUnavailable) as caught:
        client(base_url="https://flock.invalid/api/v1", retries=0).fail("1")
    assert caught.value.unsure is False and not any(KEY.encode() in one for one in heard)


def test_a_proxy_of_this_machine_is_not_asked_for_this_machine(standin: StandIn, client: Callable[..., FlockApi],
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{closed_port()}")
    assert client().tasks()


@pytest.mark.parametrize("answer", [b"", b"\x00\x01garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                                    b"HTTP/1.1 99999 ?\r\n\r\n",
                                    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz"])
def test_what_is_no_http_is_unavailable_and_unsure(raw: Any, client: Callable[..., FlockApi], answer: bytes) -> None:
    port, _ = raw(answer)
    with pytest.raises(ApiUnavailable) as caught:
        client(base_url=f"http://127.0.0.1:{port}").request_assignment("12")
    assert caught.value.unsure


def test_cookies_are_not_kept(raw: Any, client: Callable[..., FlockApi]) -> None:
    port, heard = raw(http("200 OK", b"[]", Set_Cookie="a=b"))
    api = client(base_url=f"http://127.0.0.1:{port}")
    api.tasks()
    api.tasks()
    assert len(heard) == 2 and b"ookie" not in heard[1]


def test_netrc_stays_out(raw: Any, client: Callable[..., FlockApi], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
                         ) -> None:
    (tmp_path / "netrc").write_text("default login me password netrc-secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    port, heard = raw(http("200 OK", b"[]"))
    api = client(base_url=f"http://127.0.0.1:{port}")
    api._wire._session.trust_env = True
    api.tasks()
    assert b"uthorization" not in heard[0] and f"flock-api-key: {KEY}".encode() in heard[0]


# --- what never reaches the wire ------------------------------------------------------------------
@pytest.mark.parametrize("payload", [
    {"loss": float("nan")}, {"loss": float("inf")}, {"a": {"b": [1.0, float("-inf")]}}, {}, {"a": object()},
    {"a": b"x"}, {5: 1.0}, {"a": {float("nan"): 1}}, {"a": {1, 2}}])
def test_what_must_not_be_sent_is_refused_before(standin: StandIn, client: Callable[..., FlockApi],
                                                 payload: dict[Any, Any]) -> None:
    with pytest.raises(DataError):
        client().complete("1200000", payload)
    assert standin.calls == []


def test_the_field_that_must_not_be_sent_is_named(client: Callable[..., FlockApi]) -> None:
    with pytest.raises(DataError) as caught:
        client().complete("1", {"a": {"b": [1.0, float("nan")]}})
    assert caught.value.where == "data.a.b[1]" and "not finite" in caught.value.what


@pytest.mark.parametrize("bad", ["../../x", "1/2", "", "a?b=c", "1\n2", "a b"])
def test_no_odd_id_becomes_an_address(standin: StandIn, client: Callable[..., FlockApi], bad: str) -> None:
    api = client()
    for ask in (lambda: api.fail(bad), lambda: api.request_assignment(bad), lambda: api.complete(bad, {"a": 1})):
        with pytest.raises(DataError):
            ask()
    assert standin.calls == []


def test_an_audit_takes_lines_of_many_threads(tmp_path: Path) -> None:
    audit_file = Audit(tmp_path / "audit", clock=lambda: 1_795_273_200.0)
    with ThreadPoolExecutor(8) as pool:
        for number in range(200):
            pool.submit(audit_file.line, "fail", str(number), sent=b"x", status=200, detail="", outcome="ok")
    audit_file.close()
    lines = audit(tmp_path)
    assert sorted(int(line["id"]) for line in lines) == list(range(200))
    assert len(list((tmp_path / "audit").iterdir())) == 1 and lines[0]["time"] == "2026-11-21T15:00:00.000+00:00"
    audit_file.line("fail", "again", sent=None, status=None, detail="gone", outcome="ApiUnavailable")
    assert len(audit(tmp_path)) == 201 and audit_file.problem is None


def test_a_full_disk_keeps_no_result_back(standin: StandIn, tmp_path: Path) -> None:
    (tmp_path / "audit").write_text("a file where the folder should be")
    api = FlockApi(Validation(base_url=standin.base_url), KEY, Audit(tmp_path / "audit"),
                   debug=tmp_path / "audit" / "debug")
    one = taken(standin, api)
    api.complete(one, {"score": 1.0})
    assert standin.assignments[one].accepted == 1
    assert api.audit.problem is not None and "audit" in str(api.audit.problem)


# --- the key is nowhere ---------------------------------------------------------------------------
def everything(error: BaseException | None) -> str:
    seen = ""
    while error is not None:
        seen += repr(error) + str(error) + repr(vars(error)) + repr(getattr(error, "__notes__", ""))
        assert error.__context__ is None or error.__context__ is error.__cause__ or isinstance(
            error.__context__, ApiError), "an exception of another library hangs on it"
        error = error.__cause__ or error.__context__
    return seen


def test_the_key_is_nowhere(standin: StandIn, raw: Any, client: Callable[..., FlockApi], tmp_path: Path,
                            caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    caplog.set_level(0)
    said = ""
    echo, _ = raw(http("400 Bad Request", f'{{"detail": "no such key {KEY}", "flock-api-key": "{KEY}"}}'.encode(),
                       Echo=KEY))
    page, _ = raw(http("200 OK", f"<p>{KEY}</p>".encode()))
    text, _ = raw(http("200 OK", f"key {KEY}".encode()))
    bases = [standin.base_url, *(f"http://127.0.0.1:{port}" for port in (echo, page, text, closed_port()))]
    for base in bases:
        api = client(debug=True, base_url=base, retries=1, read_timeout=0.5)
        said += repr(api) + repr(api._wire) + repr(api._wire._auth)
        for fault in sorted(set(Fault) - {Fault.HUGE, Fault.SLOW}):
            for place in ("list", "request", "update", "key"):
                standin.inject(place, fault)
            for ask in (api.tasks, lambda: api.request_assignment("12"), lambda: api.fail("1200000"),  # noqa: B023
                        lambda: api.complete("1200010", {"score": 1.0}), api.check_key):  # noqa: B023
                try:
                    ask()
                except (ApiError, DataError) as error:
                    said += everything(error)
            if base != standin.base_url:
                break
        api.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    kept = "".join(path.read_text() for path in files)
    assert len(files) == 2 * len(bases) and "wallet-submissions" in kept and "validation_set.jsonl" in kept
    out, err = capfd.readouterr()
    for where, found in (("exceptions", said), ("files", kept), ("logs", caplog.text), ("output", out + err)):
        assert KEY not in found and "very-secret" not in found, where
        assert re.search(r"X-Amz-Signature=[0-9a-f]", found) is None, where
    assert "X-Amz-Signature=[removed]" in kept
    assert any(record["reply"] for _, record in read_journal(tmp_path / "debug").records)


def test_a_list_that_is_not_open_to_all(tmp_path: Path) -> None:
    with StandIn(Plan((TaskPlan(12),), key=KEY, list_needs_key=True)) as server:
        settings = Validation(base_url=server.base_url)
        assert len(FlockApi(settings, KEY, Audit(tmp_path)).tasks()) == 1
        with pytest.raises(BadKey):
            FlockApi(settings, "flk-another-secret-key", Audit(tmp_path)).tasks()


def test_a_connection_that_lay_idle_is_not_used_again(standin: StandIn, client: Callable[..., FlockApi]) -> None:
    api = client()
    api.tasks()
    api.tasks()
    before = set(standin._server.open)
    assert len(before) == 1
    api._wire._used -= 2 * IDLE
    api.fail(taken(standin, api))
    assert standin._server.open - before
