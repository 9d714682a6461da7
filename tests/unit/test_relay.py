"""The relay: what goes through it, what doesn't, and what its clients are told."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest

from automate.errors import ConfigError
from automate.serving.relay.relay import Answer, Asked, Relay, Target
from tests.unit.relay_rig import (
    AUTHORIZATION,
    KEY,
    Rig,
    Seen,
    ask,
    both_loops,
    client,
    ok,
    request,
    rig,
    say,
)

CHAT = '{"messages": [{"role": "user", "content": "x"}], "model": "judge"}'


@both_loops
async def test_a_request_goes_through_as_one_plain_request() -> None:
    async with rig() as one:
        extra = ("Content-Type: application/json\r\nConnection: keep-alive, X-Private\r\nX-Private: 1\r\n"
                 "X-Session-ID: s\r\nTE: trailers\r\nProxy-Authorization: p\r\nUpgrade: h2c\r\nKeep-Alive: 5\r\n")
        reply = await ask(one.port, request(CHAT, "/v1/chat/completions?a=b", extra=extra))
        (seen,) = one.upstream.seen
    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b'{"said":1}', "application/json")
    assert one.asked == [Asked("POST", "/v1/chat/completions?a=b", "judge", CHAT.encode())]
    assert seen.head.startswith(b"POST /v1/chat/completions?a=b HTTP/1.1\r\n")
    assert seen.headers == {"host": "localhost", "content-length": str(len(CHAT)), "content-type": "application/json",
                            "x-session-id": "s"}
    assert seen.body == CHAT.encode()
    assert one.count.all == 1


@pytest.mark.parametrize(("body", "model"), [
    ("", None), ("{", None), ("[]", None), ('{"model": 5}', None), ('{"model": null}', None), ("{}", None),
    ('{"model": "a", "model": "b"}', "b"), ('{"x": {"model": "inner"}, "model": "outer"}', "outer"),
    ("\x00\xff", None), ("[" * 100_000, None),
])
@both_loops
async def test_the_model_is_read_of_the_body(body: str, model: str | None) -> None:
    async with rig() as one:
        assert (await ask(one.port, request(body))).status == 200
        assert one.asked[0].model == model
        assert one.upstream.seen[0].body == body.encode()


@both_loops
async def test_the_key_goes_on_only_where_it_is_asked_for() -> None:
    async with rig() as one:
        socket = one.upstream.socket
        for target in (Target(uds=socket), Target(uds=socket, forward_key=True),
                       Target(uds=socket, headers=(("Authorization", "Bearer inner"), ("X-Session-ID", "ours")))):
            one.target.append(target)
            assert (await ask(one.port, request(extra="X-Session-ID: theirs\r\n"))).status == 200
            assert "inner" not in repr(target)
    seen = [(seen.headers.get("authorization"), seen.headers["x-session-id"]) for seen in one.upstream.seen]
    assert seen == [(None, "theirs"), (f"Bearer {KEY}", "theirs"), ("Bearer inner", "ours")]


@pytest.mark.parametrize("data", [
    request(key=False), request(key=False, method="GET", path="/v1/models"), request(key=False, path="/health"),
    request(key=False, method="GET", path="/health", extra="Transfer-Encoding: chunked\r\n") + b"0\r\n\r\n",
    request("x", key=False, method="GET", path="/health"),
    request(key=False, method="GET", path="/health/../v1/models"), request(key=False, method="GET", path="//health"),
    request(key=False, method="GET", path="/health%2f..%2fmetrics"), request(key=False, method="HEAD", path="/health"),
    request(key=False, extra=f"Authorization: Bearer {KEY}x\r\n"), request(key=False, extra=f"X-Api-Key: {KEY}\r\n"),
    request(key=False, extra="Authorization: Bearer \r\n"), request(key=False, extra=f"Authorization: Basic {KEY}\r\n"),
    request(key=False, extra=f"Authorization: {KEY}\r\n"), request(extra="Authorization: Bearer other\r\n"),
    request(key=False, extra=f"Authorization: Bearer other\r\n{AUTHORIZATION}"),
    request("x" * 900_000, key=False), request("x" * 3_000_000, key=False),
    request(key=False, method="OPTIONS"), request(key=False, extra="Authorization: Bearer \xc3\xa9\r\n"),
])
@both_loops
async def test_without_the_key_nothing_passes(data: bytes) -> None:
    async with rig() as one:
        async with client(one.port) as raw:
            await raw.send(data)
            reply = await raw.reply(head_only=data.startswith(b"HEAD"))
        assert (reply.status, reply.headers["www-authenticate"]) == (401, "Bearer")
        assert not one.asked
        assert not one.upstream.seen
    if reply.body:
        assert (reply.error["code"], reply.error["type"]) == ("invalid_api_key", "AuthenticationError")
        assert KEY not in reply.body.decode()


@both_loops
async def test_after_a_wrong_key_the_connection_takes_the_right_one() -> None:
    async with rig() as one, client(one.port) as raw:
        await raw.send(request("hidden", key=False) + request(CHAT))
        assert [(await raw.reply()).status for _ in range(2)] == [401, 200]
    assert [seen.body for seen in one.upstream.seen] == [CHAT.encode()]


@pytest.mark.parametrize("data", [
    request(method="GET", path="/health", key=False), request(method="GET", path="/health?x=1", key=False),
    request(method="GET", path="http://elsewhere/health", key=False),
    f"GET /v1/models HTTP/1.1\r\nHost: h\r\nauthorization: bearer {KEY}\r\n\r\n".encode(),
])
@both_loops
async def test_open_paths_and_other_spellings_of_the_key_pass(data: bytes) -> None:
    async with rig() as one:
        assert (await ask(one.port, data)).status == 200
        assert one.asked[0].path.startswith("/")


@both_loops
async def test_bodies_have_a_limit() -> None:
    async with rig(largest=1000) as one:
        for body in (b"x" * 1000, b"x" * 1001, b"x" * 5_000_000):
            reply = await ask(one.port, request(body))
            assert reply.status == (200 if len(body) == 1000 else 413)
        async with client(one.port) as raw:
            await raw.send(request(method="GET", extra="Transfer-Encoding: chunked\r\n"))
            for _ in range(3):
                await raw.send(b"190\r\n" + b"x" * 400 + b"\r\n")
            assert (await raw.reply()).status == 413
    assert len(one.upstream.seen) == 1


@both_loops
async def test_chunked_requests_get_a_length() -> None:
    async with rig() as one, client(one.port) as raw:
        await raw.send(request(method="PUT", extra="Transfer-Encoding: Chunked\r\nTrailer: Host\r\n"))
        await raw.send(b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nHost: other\r\nX-More: 1\r\n\r\n")
        assert (await raw.reply()).status == 200
    assert one.upstream.seen[0].body == b"abcde"
    assert one.upstream.seen[0].headers == {"host": "localhost", "content-length": "5"}


@both_loops
async def test_who_expects_to_go_on_is_told_so() -> None:
    async with rig() as one, client(one.port) as raw:
        head, body = request("abc", extra="Expect: 100-continue\r\n").split(b"\r\n\r\n")
        await raw.send(head + b"\r\n\r\n")
        assert (await raw.reply()).status == 100
        await raw.send(body)
        assert (await raw.reply()).status == 200
        await raw.send(request("abc", key=False, extra="Expect: 100-continue\r\n"))
        assert (await raw.reply()).status == 401
        await raw.send(request("abc", extra="Expect: miracles\r\n"))
        assert (await raw.reply()).status == 417
    assert "expect" not in one.upstream.seen[0].headers


@pytest.mark.parametrize(("method", "said", "expected"), [
    ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n", {"content-length": "10"}),
    ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", {}),
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", {}),
    ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", {"content-length": "7"}),
])
@both_loops
async def test_replies_without_a_body(method: str, said: bytes, expected: dict[str, str]) -> None:
    async def script(_: Seen, __: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(said)

    async with rig(script) as one, client(one.port) as raw:
        for _ in range(2):
            await raw.send(request(method=method))
            assert (await raw.reply(head_only=True)).headers == expected


@both_loops
async def test_an_old_client_gets_a_plain_body_and_the_end() -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    async with rig(say(said)) as one:
        reply = await ask(one.port, f"GET / HTTP/1.0\r\nConnection: keep-alive\r\n{AUTHORIZATION}\r\n".encode())
    assert (reply.body, reply.headers) == (b"abcde", {"connection": "close"})


@both_loops
async def test_replies_of_every_framing() -> None:
    chunked = b"HTTP/1.1 200 Y\r\ntransfer-encoding: chunked\r\nConnection: close\r\n\r\n5\r\nabcde\r\n0\r\nX:1\r\n\r\n"
    early = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + ok(b"abcde")
    for said in (chunked, early, b"HTTP/1.1 200 OK\r\n\r\nabcde", b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nabcde"):
        async with rig(say(said)) as one:
            reply = await ask(one.port, request())
        assert (reply.status, reply.body, reply.headers.get("link")) == (200, b"abcde", None)


@both_loops
async def test_the_relays_own_answers() -> None:
    async def broken(_: Asked) -> Target:
        raise RuntimeError("a secret detail")

    async with rig() as one:
        one.target.append(Answer(429, b"later", "text/plain", 1.2))
        reply = await ask(one.port, request())
    assert (reply.status, reply.body, reply.headers["retry-after"]) == (429, b"later", "2")
    assert one.count.all == 0
    async with rig(pick=broken) as one:
        reply = await ask(one.port, request())
        assert len(one.errors) == 1
        one.errors.clear()
    assert (reply.status, b"secret" in reply.body, reply.error["code"]) == (500, False, 500)


@both_loops
async def test_a_target_with_an_impossible_header_is_nobodys_fault_but_ours() -> None:
    async with rig() as one:
        for name, value in (("X", "a\r\nb"), ("X", "\u4e00"), ("\u4e00", "x")):
            one.target.append(Target(uds=one.upstream.socket, headers=((name, value),)))
            assert (await ask(one.port, request())).status == 500
        assert (len(one.errors), one.count.all, one.upstream.seen) == (3, 0, [])
        one.errors.clear()


@both_loops
async def test_a_quick_choice_spares_the_slow_one() -> None:
    async with rig(quick=lambda asked: None if asked.model else Answer(404, b"{}")) as one:
        assert [(await ask(one.port, request(body))).status for body in ("{}", CHAT)] == [404, 200]
        assert len(one.asked) == 1


@both_loops
async def test_an_upstream_that_is_not_there() -> None:
    async with rig() as one:
        for target in (Target(uds=one.upstream.socket + "x"), Target(port=await free_port())):
            one.target.append(target)
            reply = await ask(one.port, request())
            assert (reply.status, reply.error["type"]) == (502, "BadGatewayError")
            assert "can't be reached" in reply.error["message"]
    assert one.count.all == 2


async def free_port() -> int:
    relay = Relay(KEY, no_pick)
    port = await relay.start("127.0.0.1")
    await relay.close()
    return port


async def no_pick(_: Asked) -> Target:
    raise AssertionError


@pytest.mark.parametrize("said", [
    b"junk\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
    b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-Cut: ", b"",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * (300 << 10) + b"\r\n\r\n",
])
@both_loops
async def test_a_reply_that_is_none_is_a_bad_gateway(said: bytes) -> None:
    async with rig(say(said)) as one:
        reply = await ask(one.port, request())
        assert (reply.status, reply.error["code"]) == (502, 502)
    assert len(one.upstream.seen) == 1


@both_loops
async def test_a_connection_that_went_stale_is_tried_once_more() -> None:
    numbers = itertools.count()

    async def script(seen: Seen, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if next(numbers) % 2:
            writer.close()  # the second request of each connection finds it closed
        else:
            writer.write(ok(seen.body))

    async with rig(script) as one, client(one.port) as raw:
        bodies = []
        for word in ("a", "b", "c"):
            await raw.send(request(word))
            bodies.append((await raw.reply()).body)
    assert bodies == [b"a", b"b", b"c"]
    assert [(seen.body, seen.connection) for seen in one.upstream.seen] == [
        (b"a", 1), (b"b", 1), (b"b", 2), (b"c", 2), (b"c", 3)]


@both_loops
async def test_a_reply_that_nobody_asked_for_reaches_nobody() -> None:
    async def twice(seen: Seen, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(ok(seen.body) + ok(b"another's"))

    async with rig(twice) as one, client(one.port) as raw:
        for word in (b"a", b"b", b"c"):
            await raw.send(request(word))
            assert (await raw.reply()).body == word
    assert [seen.connection for seen in one.upstream.seen] == [1, 2, 3]


@both_loops
async def test_what_has_begun_to_answer_is_not_asked_twice() -> None:
    async def script(seen: Seen, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if seen.body == b"a":
            writer.write(ok())
        else:
            writer.write(b"HTTP/1.1 2")
            await writer.drain()
            writer.close()

    async with rig(script) as one, client(one.port) as raw:
        for word, status in (("a", 200), ("b", 502)):
            await raw.send(request(word))
            assert (await raw.reply()).status == status
    assert [seen.connection for seen in one.upstream.seen] == [1, 1]


CUT_OFF: dict[str, bytes] = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc",
    "chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "in a chunk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
    "junk": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz\r\n",
}


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("said", CUT_OFF.values(), ids=CUT_OFF.keys())
@both_loops
async def test_a_reply_that_is_cut_off_never_looks_whole(said: bytes, version: str) -> None:
    async with rig(say(said)) as one:
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await ask(one.port, request().replace(b"HTTP/1.1", f"HTTP/{version}".encode()))
        await one.quiet()


@both_loops
async def test_addresses_that_cannot_be_had() -> None:
    async with rig() as one:
        for host, port, where, what in (("127.0.0.1", one.port, "port", f"port {one.port} of 127.0.0.1 is taken"),
                                        ("192.0.2.1", 0, "host", "192.0.2.1 is not an address of this machine"),
                                        ("no.such.host.invalid", 0, "host", "not an address")):
            with pytest.raises(ConfigError, match=what) as caught:
                await Relay(KEY, no_pick).start(host, port)
            assert caught.value.where == f"fleet.router.{where}"
            assert caught.value.todo


async def many(one: Rig, count: int, **options: Any) -> set[int]:
    async def talk() -> set[int]:
        async with client(one.port) as raw:
            statuses = set()
            for _ in range(5):
                await raw.send(request(CHAT, **options))
                statuses.add((await raw.reply()).status)
            return statuses

    return set().union(*await asyncio.gather(*(talk() for _ in range(count))))


@both_loops
async def test_many_clients_share_the_upstreams_connections() -> None:
    async with rig() as one:
        assert await many(one, 40) == {200}
        assert one.upstream.connections <= 40
        assert one.count.all == len(one.upstream.seen) == 200
