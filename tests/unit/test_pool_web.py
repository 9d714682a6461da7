"""Messages over HTTP: what is taken, what is refused and with which status, and that nothing else changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import pytest

from automate.pools import reading
from automate.pools.exchange import Exchange
from automate.pools.messages import Message, Receipt
from automate.pools.web import clerk
from tests.unit.pool_support import Bench, named_key
from tests.unit.pool_web_rig import Web, served


@pytest.fixture
async def web(tmp_path: Path) -> AsyncIterator[Web]:
    async with served(tmp_path) as found:
        yield found


# --- messages ---------------------------------------------------------------------------------------
async def test_a_signed_transfer_is_done_and_answered(web: Web) -> None:
    sent = web.transfer(5)
    status, _, receipt = await web.post(sent)
    assert status == 200
    assert (receipt["id"], receipt["state"], receipt["error"], receipt["replayed"]) == (
        sent["Id"], "handled", None, False)
    assert [reply["Action"] for reply in receipt["replies"]] == ["Debit-Notice"]
    assert (await web.balance("ann"), await web.balance("bob")) == (95, 5)


async def test_the_same_message_again_has_no_effect(web: Web) -> None:
    sent = web.transfer(5)
    first, again = (await web.post(sent))[2], (await web.post(sent))[2]
    assert again == {**first, "replayed": True}
    assert await web.balance("bob") == 5
    status, _, kept = await web.get(f"/message/{sent['Id']}")
    assert (status, kept["state"], kept["replies"]) == (200, "handled", first["replies"])


async def test_an_unknown_message_is_not_found(web: Web) -> None:
    status, _, body = await web.get("/message/none-such")
    assert (status, body["where"]) == (404, "id")


DEEP = b'{"Target":"x","Action":"y","Data":' + b"[" * 900 + b"]" * 900 + b"}"
MALFORMED = {
    "nothing": b"", "no JSON": b'{"Target":', "a list": b"[1]", "no UTF-8": b'{"Target":"\xff"}', "deep": DEEP,
    "very deep": b"[" * 200_000, "a field twice": b'{"Target":"x","Action":"y","Target":"z"}',
    "no Action": b'{"Target":"x"}', "no Target": b'{"Action":"y"}', "half a character": b'{"Target":"\\ud800"}',
    "a tag twice": b'{"Target":"x","Tags":[{"name":"Action","value":"a"},{"name":"Action","value":"b"}]}',
    "NaN": b'{"Target":"x","Action":"y","Data":NaN}',
}


@pytest.mark.parametrize("body", MALFORMED.values(), ids=MALFORMED.keys())
async def test_what_is_no_message(web: Web, body: bytes) -> None:
    status, _, said = await web.post(body)
    assert status == 400, said
    assert set(said) == {"error", "where", "todo"}
    assert said["error"]


CHANGES: Mapping[str, Mapping[str, object]] = {
    "Signature": {"Signature": "A" * 86}, "no Signature": {"Signature": None}, "no Owner": {"Owner": None},
    "From": {"From": named_key("bob").address}, "Owner": {"Owner": named_key("bob").sign("x", "y")["Owner"]},
    "Id": {"Id": "A" * 43}, "Data": {"Data": "more"}, "Target": {"Target": "pool"}, "Anchor": {"Anchor": "other"},
    "a tag": {"X-More": "1"}, "Timestamp": {"Timestamp": 2}, "Signature of a kind": {"Signature": 7},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
async def test_what_was_altered_is_not_believed(web: Web, change: Mapping[str, object]) -> None:
    status, _, said = await web.post({**web.transfer(5), **change})
    assert status == 401, said
    assert "sign it" in said["todo"]
    assert await web.balance("ann") == 100


async def test_what_is_refused_says_why(web: Web) -> None:
    for quantity in ("101", "-5", "1.5", "five", "9" * 40, ""):
        status, _, receipt = await web.post(web.transfer(quantity))
        assert (status, receipt["state"]) == (422, "refused"), quantity
        assert receipt["error"]
        assert [reply["Action"] for reply in receipt["replies"]] == ["Transfer-Error"]
    assert (await web.balance("ann"), await web.balance("bob")) == (100, 0)
    status, _, receipt = await web.post(named_key("ann").sign(web.token, "No-Such"))
    assert (status, receipt["state"]) == (422, "refused")


def _with_dataset(bench: Bench) -> None:
    bench.dataset("siqa")


async def test_a_path_over_http_is_refused_even_of_the_owner(tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"context":"c","question":"q","answerA":"a","answerB":"b","answerC":"c","result":"1"}\n')
    async with served(tmp_path / "w", _with_dataset) as web:
        from automate.pools.keys import GENESIS, load_key
        owner = load_key(web.places.key(GENESIS))
        target = {one["name"]: one["id"] for one in (await web.get("/processes"))[2]}["siqa"]
        status, _, receipt = await web.post(owner.sign(target, "Load-Data", json.dumps({"path": str(rows)})))
        assert (status, receipt["state"]) == (422, "refused"), receipt
        _, _, inline = await web.post(owner.sign(target, "Load-Data", "[" + rows.read_text().strip() + "]"))
        assert inline["state"] == "handled", inline


# --- sizes, rates, load -----------------------------------------------------------------------------
async def _parts(count: int) -> AsyncIterator[bytes]:
    for _ in range(count):
        yield b"x" * 1000


async def test_a_body_is_measured_while_it_comes(tmp_path: Path) -> None:
    async with served(tmp_path, message_bytes=4096) as web:
        async with web.session.post(web.url + "/message", data=_parts(50)) as response:  # no Content-Length
            assert response.status == 413
            assert "4096" in (await response.json())["error"]
        assert (await web.post(web.transfer(5)))[0] == 200


async def test_large_messages_share_their_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.pools.web import serving

    monkeypatch.setattr(serving, "MEMORY", 0)
    async with served(tmp_path) as web:
        large = named_key("ann").sign(web.token, "Balance", "x" * 100_000)
        status, headers, body = await web.post(large)
        assert (status, headers["Retry-After"]) == (503, "1"), body
        assert (await web.post(web.transfer(5)))[0] == 200


async def test_an_address_may_ask_so_often(tmp_path: Path) -> None:
    async with served(tmp_path, requests_per_second=2.0) as web:
        found = [await web.get("/health") for _ in range(8)]
        late = [one for one in found if one[0] == 429]
        assert [one[0] for one in found[:4]] == [200] * 4
        assert late
        assert int(late[0][1]["Retry-After"]) >= 1
        assert "too many" in late[0][2]["error"]


async def test_too_much_that_waits_is_turned_away(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clerk, "WAITING", 0)
    status, headers, said = await web.post(web.transfer(5))
    assert (status, headers["Retry-After"]) == (503, "1"), said
    monkeypatch.undo()
    assert await web.balance("bob") == 0


async def test_messages_that_come_together_share_a_commit(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    groups, real = list[int](), Exchange.receive

    def counted(self: Exchange, messages: Sequence[Message]) -> list[Receipt]:
        groups.append(len(messages))
        return real(self, messages)

    monkeypatch.setattr(Exchange, "receive", counted)
    found = await asyncio.gather(*(web.post(web.transfer(1)) for _ in range(60)))
    assert [one[0] for one in found] == [200] * 60
    assert sum(groups) == 60
    assert len(groups) < 60
    assert await web.balance("bob") == 60


async def test_who_asks_the_same_at_once_shares_an_answer(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, real = list[str](), reading.ask

    def counted(exchange: Exchange, what: str, now: int, given: Mapping[str, object]) -> object:
        asked.append(what)
        return real(exchange, what, now, given)

    monkeypatch.setattr(reading, "ask", counted)
    found = await asyncio.gather(*(web.get("/processes") for _ in range(50)))
    assert [one[0] for one in found] == [200] * 50
    assert all(one[2] == found[0][2] for one in found)
    assert len(asked) < 50
    missing = await asyncio.gather(*(web.get("/pools/none-such") for _ in range(20)))
    assert [one[0] for one in missing] == [404] * 20


async def test_a_fault_shows_no_traceback(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> object:
        raise RuntimeError("secret words")

    monkeypatch.setattr(reading, "ask", broken)
    status, _, said = await web.get("/pools")
    assert (status, set(said)) == (500, {"error", "where", "todo"})
    assert "secret" not in json.dumps(said)
    monkeypatch.undo()
    assert (await web.get("/pools"))[0] == 200


async def test_a_late_answer_names_the_message(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> object:
        raise TimeoutError

    sent = web.transfer(5)
    monkeypatch.setattr(clerk.Clerk, "send", never)
    status, _, said = await web.post(sent)
    assert (status, said["where"]) == (503, sent["Id"])


# --- what else there is -----------------------------------------------------------------------------
async def test_answers_say_little_of_the_server(web: Web) -> None:
    for path, status in (("/health", 200), ("/nothing", 404), ("/message", 405), ("/desk/ask", 404),
                         ("/leaderboard/none-such", 404), ("/pools/%00", 404), ("/pools/' OR 1=1 --", 404),
                         ("/leaderboard/x.exe", 404)):
        found, headers, body = await web.get(path)
        assert found == status, path
        assert "Server" not in headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Content-Security-Policy"].startswith("default-src 'none'")
        assert isinstance(body, dict)
        assert status == 200 or set(body) == {"error", "where", "todo"}


async def test_the_owners_deeds_are_not_to_be_had_over_http(web: Web) -> None:
    for verb, body in (("send", web.transfer(5)), ("ask", {"what": "pools", "given": {}}),
                       ("do", {"what": "tick", "given": {}})):
        status, _, said = await web.post(body, f"/desk/{verb}")
        assert status == 404, said
    assert await web.balance("bob") == 0


async def test_pages_and_json_by_what_is_asked_for(tmp_path: Path) -> None:
    async with served(tmp_path, _with_pool) as web:
        pool = (await web.get("/pools"))[2][0]["id"]
        html = {"Accept": "text/html,application/xhtml+xml,application/json;q=0.9,*/*;q=0.8"}
        kinds = {("", ""): "application/json", ("", "html"): "text/html", (".html", ""): "text/html",
                 (".json", "html"): "application/json"}
        for (ending, accept), kind in kinds.items():
            status, headers, body = await web.get(f"/leaderboard/{pool}{ending}", **(html if accept else {}))
            assert (status, headers["Content-Type"].partition(";")[0]) == (200, kind), body
        assert (await web.get("/"))[2].count(f'href="/leaderboard/{pool}"') == 1


def _with_pool(bench: Bench) -> None:
    dataset = bench.dataset("siqa")
    sent = bench.send("ann", "token", "Transfer", Recipient=bench.exchange.pool, Quantity="50", X_Dataset=dataset,
                      X_Allocation="Equal")
    assert sent.state == "handled", sent
    for name in ("m-1", "<img src=x onerror=alert(1)>"):
        bench.send("ann", "pool", "Add-Model", {"name": name, "inference_process": "", "data_tx": "owner/name"})
    joined = bench.send("ann", "pool", "Join-Pool", {"dataset": dataset, "model": "m-1"})
    assert joined.state == "handled", joined

