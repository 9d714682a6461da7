"""What could be read in two ways is read in none; and however bytes are cut, the same requests and replies come out."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from automate.serving.relay.replies import BrokenReplyError, ReplyReader
from automate.serving.relay.requests import LARGEST_HEAD, RefusedError, Request, RequestReader
from automate.serving.relay.terms import Target
from tests.unit.relay_rig import AUTHORIZATION, KEY, Whole, both_loops, client, request, rig

POST = f"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\n{AUTHORIZATION}"
HIDDEN = "GET /hidden HTTP/1.1\r\nHost: h\r\n\r\n"
BAD = {
    "length and chunks": f"{POST}Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{HIDDEN}",
    "chunks and length": f"{POST}Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n{HIDDEN}",
    "two lengths": f"{POST}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "the same length twice": f"{POST}Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "two lengths in one": f"{POST}Content-Length: 3, 3\r\n\r\nabc",
    "a length with a sign": f"{POST}Content-Length: +3\r\n\r\nabc",
    "a hexadecimal length": f"{POST}Content-Length: 0x3\r\n\r\nabc",
    "a negative length": f"{POST}Content-Length: -3\r\n\r\nabc",
    "an empty length": f"{POST}Content-Length: \r\n\r\nabc",
    "an endless length": f"{POST}Content-Length: {'9' * 30}\r\n\r\nabc",
    "a folded header": f"{POST}X-Folded: a\r\n b\r\n\r\n",
    "a folded encoding": f"{POST}Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare line feeds": f"{POST}Content-Length: 0\r\n\r\n".replace("\r\n", "\n"),
    "one bare line feed": f"{POST}X: a\nContent-Length: 3\r\n\r\nabc",
    "a bare carriage return": f"{POST}X: a\rContent-Length: 3\r\n\r\nabc",
    "a zero byte": f"{POST}X: a\0b\r\n\r\n",
    "a space before the colon": f"{POST}Content-Length : 3\r\n\r\nabc",
    "another encoding": f"{POST}Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an encoding in disguise": f"{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "an encoding twice": f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "identity after chunked": f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "an encoding of HTTP/1.0": f"{POST}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n".replace("HTTP/1.1", "HTTP/1.0"),
    "a chunk of another size": f"{POST}Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    "a chunk size with a sign": f"{POST}Transfer-Encoding: chunked\r\n\r\n+3\r\nabc\r\n0\r\n\r\n",
    "a chunk by line feeds": f"{POST}Transfer-Encoding: chunked\r\n\r\n3\nabc\n0\n\n",
    "an endless chunk": f"{POST}Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc",
    "two hosts": f"{POST}Host: other\r\nContent-Length: 0\r\n\r\n",
    "no host": f"POST / HTTP/1.1\r\n{AUTHORIZATION}Content-Length: 0\r\n\r\n",
    "no version": "GET /\r\n\r\n",
    "another version": f"{POST}\r\n".replace("HTTP/1.1", "HTTP/2.0"),
    "the preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a tunnel": f"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n{AUTHORIZATION}\r\n",
    "an upgrade with a body": f"{POST}Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
    "no path": f"OPTIONS * HTTP/1.1\r\nHost: h\r\n{AUTHORIZATION}\r\n",
    "another scheme": f"GET file:///etc/passwd HTTP/1.1\r\nHost: h\r\n{AUTHORIZATION}\r\n",
    "a space in the path": f"{POST}\r\n".replace("/v1/", "/v1 /"),
    "TLS": "\x16\x03\x01\x02\x00\x01",
    "a long header": f"{POST}X: {'x' * 70_000}\r\n\r\n",
    "a long path": f"{POST}\r\n".replace("/v1/", f"/{'x' * 70_000}/"),
    "many headers": f"{POST}{'X: y' * 20_000}\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
@both_loops
async def test_what_can_be_read_in_two_ways_is_refused_whole(data: str) -> None:
    async with rig() as one:
        async with client(one.port) as raw:
            await raw.send(data.encode("latin-1"))
            reply = await raw.reply()
            assert reply.status in (400, 413, 431, 501, 505)
            assert reply.headers["connection"] == "close"
            assert reply.error["message"]
            await raw.send(request())
            assert await raw.closed() == b""
        assert not one.upstream.seen
        assert not one.asked


@both_loops
async def test_what_follows_a_whole_request_is_refused_after_its_reply() -> None:
    async with rig() as one, client(one.port) as raw:
        await raw.send(request("abc") + BAD["length and chunks"].encode())
        assert [(await raw.reply()).status for _ in range(2)] == [200, 400]
        assert await raw.closed() == b""
    assert [seen.body for seen in one.upstream.seen] == [b"abc"]


@both_loops
async def test_an_upgrade_is_passed_over() -> None:
    async with rig() as one, client(one.port) as raw:
        extra = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n"
        await raw.send(request(method="GET", extra=extra) + HIDDEN.encode())
        assert (await raw.reply()).status == 200
        assert await raw.closed() == b""
    (seen,) = one.upstream.seen
    assert seen.headers == {"host": "localhost"}


def reader() -> RequestReader:
    return RequestReader(KEY.encode(), frozenset({b"/health"}), 100_000)


def read(pieces: list[bytes]) -> tuple[list[Request], int | None]:
    """The requests in these pieces, and the status of the refusal that ended them."""
    one = reader()
    try:
        for piece in pieces:
            one.feed(piece)
    except RefusedError as refused:
        return list(one.ready), refused.answer.status
    return list(one.ready), None


def told(requests: list[Request]) -> list[tuple[object, ...]]:
    return [(one.method, one.path, tuple(one.headers), one.body, one.refusal and one.refusal.status, one.keep_alive)
            for one in requests]


def pieces_of(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in pairwise(at)]


def chunked(body: bytes, size: int) -> bytes:
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"


names = st.sampled_from(["X-One", "content-type", "X-Two", "Accept"])
values = st.text("abc xyz;=/", max_size=12).map(str.strip)
bodies = st.binary(max_size=60)
CUTS = st.lists(st.integers(0, 10_000), max_size=12)


@st.composite
def wire_requests(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """A valid request as bytes, and its body."""
    body = draw(bodies)
    extra = "".join(f"{name}: {value}\r\n" for name, value in draw(st.lists(st.tuples(names, values), max_size=3)))
    if draw(st.booleans()):
        head = request(method="PUT", extra=extra + "Transfer-Encoding: chunked\r\n", key=draw(st.booleans()))
        return head + chunked(body, draw(st.integers(1, 9))), body
    return request(body, key=draw(st.booleans()), extra=extra), body


@given(st.lists(wire_requests(), min_size=1, max_size=4), CUTS)
def test_however_requests_are_cut_the_same_come_out(wire: list[tuple[bytes, bytes]], cuts: list[int]) -> None:
    data = b"".join(one for one, _ in wire)
    whole, refused = read([data])
    assert refused is None
    assert told(read(pieces_of(data, cuts))[0]) == told(whole)
    for one, (_, body) in zip(whole, wire, strict=True):
        assert one.body == (b"" if one.refusal else body)


@given(st.sampled_from(sorted(BAD.values())), CUTS, st.booleans())
@example(BAD["a long header"], [65_000], False)
def test_however_a_bad_request_is_cut_it_is_refused(text: str, cuts: list[int], preceded: bool) -> None:
    data = text.encode("latin-1")
    before = request("abc") if preceded else b""
    found, status = read(pieces_of(before + data, cuts))
    assert status is not None
    assert [one.body for one in found] == ([b"abc"] if preceded else [])


@given(st.binary(max_size=300), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=4), CUTS)
def test_no_bytes_at_all_pass_without_the_key(tail: bytes, changes: list[tuple[int, int]], cuts: list[int]) -> None:
    data = bytearray(request("abc", key=False) + tail + request("def", key=False, extra="X: y\r\n"))
    for at, value in changes:
        data[at % len(data)] = value
    found, _ = read(pieces_of(bytes(data), cuts))
    for one in found:
        assert (one.refusal and not one.body) or one.path.partition(b"?")[0] == b"/health"


@given(bodies, st.lists(st.tuples(names, values), max_size=3))
def test_what_is_written_to_the_upstream_is_one_request(body: bytes, headers: list[tuple[str, str]]) -> None:
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
    (found,), _ = read([request(body, extra=extra)])
    (again,), refused = read([found.upstream_head(Target(uds="x", forward_key=True)) + found.body])
    assert refused is None
    assert told([again]) == told([found])


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X\r\nY", "b"), ("X", "a\0")])
def test_a_target_cannot_add_more_than_a_header(header: tuple[str, str]) -> None:
    (found,), _ = read([request()])
    with pytest.raises(ValueError, match="more than one line"):
        found.upstream_head(Target(uds="x", headers=(header,)))


@pytest.mark.parametrize("headers", [
    [(b"Content-Length", b"3"), (b"Transfer-Encoding", b"chunked")], [(b"Content-Length", b"3")] * 2,
    [(b"transfer-encoding", b"chunked")] * 2, [(b"CONTENT-LENGTH", b"0x3")], [(b"Host", b"other")],
])
def test_the_head_is_checked_whatever_the_parser_lets_through(headers: list[tuple[bytes, bytes]]) -> None:
    one = reader()
    one.on_message_begin()
    one.on_url(b"/")
    for header in [(b"Host", b"h"), *headers]:
        one.on_header(*header)
    one._parser = Lenient()  # type: ignore[assignment]
    with pytest.raises(RefusedError) as caught:
        one.on_headers_complete()
    assert caught.value.answer.status == 400


class Lenient:
    """A parser that takes all for HTTP/1.1."""

    def get_method(self) -> bytes:
        return b"POST"

    def get_http_version(self) -> str:
        return "1.1"

    def should_keep_alive(self) -> bool:
        return True


def test_a_head_has_a_limit_however_it_comes() -> None:
    fits = request(extra=f"X: {'x' * (LARGEST_HEAD - 400)}\r\n")
    for size in (1000, 1 << 20):
        assert read([fits[at : at + size] for at in range(0, len(fits), size)])[1] is None
    one, endless = reader(), b"POST / HTTP/1.1\r\nHost: h\r\nX: "
    with pytest.raises(RefusedError):
        for _ in range(100):
            one.feed(endless)
            endless = b"x" * 1000


@given(bodies, st.integers(1, 9), st.sampled_from(["length", "chunks", "close"]), CUTS, st.booleans())
def test_however_a_reply_is_cut_its_body_comes_whole(body: bytes, size: int, framing: str, cuts: list[int],
                                                     old: bool) -> None:
    framed = {"length": b"Content-Length: %d\r\n\r\n%b" % (len(body), body), "close": b"\r\n" + body,
              "chunks": b"Transfer-Encoding: chunked\r\n\r\n" + chunked(body, size)}
    one = ReplyReader(head_only=False, old=old, keep_alive=not old)
    out = b"".join(map(one.feed, pieces_of(b"HTTP/1.1 200 OK\r\nX: y\r\n" + framed[framing], cuts)))
    assert one.complete == (framing != "close")
    assert one.end()
    whole = Whole(out)
    assert whole.bodies == [body]
    assert one.closes or whole.done == 1
    assert one.reusable == (framing != "close")


@given(st.binary(max_size=60), CUTS)
def test_a_reply_of_junk_never_becomes_one(junk: bytes, cuts: list[int]) -> None:
    one = ReplyReader(head_only=False, old=False, keep_alive=True)
    try:
        for piece in pieces_of(b"\x00" + junk, cuts):
            assert one.feed(piece) == b""
    except BrokenReplyError:
        pass
    assert not (one.began or one.complete)
    assert not one.end()
