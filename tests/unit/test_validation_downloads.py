"""Validation sets come to disk whole or not at all; what a store refuses is said, and never with the address's key."""

from __future__ import annotations

import errno
import gzip
import hashlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from automate.errors import ClaimedError
from automate.settings_validation import Validation
from automate.validation import downloads
from automate.validation.assignments import DataFile
from automate.validation.troubles import PersonNeeded, Trouble, TryLater
from tests.unit.validation_files_rig import HERE, ROWS, Reply, Store, serve

SECRET = "X-Amz-Signature=0123456789abcdef"


@pytest.fixture
def store() -> Iterator[Store]:
    with serve() as served:
        yield served


def get(store: Store, folder: Path, path: str = f"/set.jsonl?{SECRET}", **values: float) -> DataFile:
    settings = Validation.model_validate({"base_url": HERE, "retries": 2, "min_free_gb": 0, **values})
    with requests.Session() as session:
        return downloads.download(store.url + path, folder, settings, session, sleep=lambda seconds: None)


def refusal(store: Store, folder: Path, **values: float) -> Trouble:
    with pytest.raises(Trouble) as caught:
        get(store, folder, f"/set.jsonl?{SECRET}", **values)
    assert "0123456789abcdef" not in str(caught.value)
    assert not [path for path in folder.rglob("*") if path.is_file()], "nothing is left behind"
    return caught.value


def test_a_set_is_whole_sized_and_hashed(store: Store, tmp_path: Path) -> None:
    found = get(store, tmp_path)
    assert found == DataFile("data/validation-set.jsonl", len(ROWS), hashlib.sha256(ROWS).hexdigest())
    assert (tmp_path / found.path).read_bytes() == ROWS
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["validation-set.jsonl"]


@pytest.mark.parametrize(("path", "name"), [
    ("/a/b/set.npz?x=1", "validation-set.npz"), ("/set", "validation-set"), ("/x.sh", "validation-set"),
    ("/..%2F..%2Fetc/x.jsonl", "validation-set.jsonl"), ("/?file=../../x.jsonl", "validation-set")])
def test_the_name_on_disk_is_our_own(store: Store, tmp_path: Path, path: str, name: str) -> None:
    assert get(store, tmp_path, path).path == f"data/{name}"


def test_a_body_that_is_cut_is_fetched_again(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(cut=100), Reply()]
    assert get(store, tmp_path).size == len(ROWS)
    assert len(store.asked) == 2


def test_a_body_that_is_always_cut_is_refused(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(cut=100)]
    assert refusal(store, tmp_path).cause == "data-truncated"
    assert len(store.asked) == 3


def test_a_length_that_nobody_says_is_refused(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(no_length=True)]
    assert refusal(store, tmp_path).cause == "data-truncated"


def test_a_chunked_body_has_an_end_of_its_own(store: Store, tmp_path: Path) -> None:
    chunked = {"Transfer-Encoding": "chunked"}
    store.replies = [Reply(body=b"4\r\nabcd\r\n", headers=chunked, no_length=True),
                     Reply(body=b"4\r\nabcd\r\n0\r\n\r\n", headers=chunked, no_length=True)]
    assert get(store, tmp_path).size == 4
    assert len(store.asked) == 2


def test_a_packed_body_is_unpacked_and_its_length_is_that_on_the_wire(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(body=gzip.compress(ROWS), headers={"Content-Encoding": "gzip"})]
    found = get(store, tmp_path)
    assert (found.size, found.sha256) == (len(ROWS), hashlib.sha256(ROWS).hexdigest())


def test_an_empty_set_is_refused(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(body=b"")]
    assert refusal(store, tmp_path).cause == "data-empty"


@pytest.mark.parametrize(("reply", "cause", "word"), [
    (Reply(403, b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"), "url-expired",
     "has expired"),
    (Reply(400, b"<Error><Code>ExpiredToken</Code></Error>"), "url-expired", "has expired"),
    (Reply(403, b"<Error><Code>SignatureDoesNotMatch</Code></Error>"), "url-expired", "or is not valid"),
    (Reply(404, b"<Error><Code>NoSuchKey</Code></Error>"), "data-url", "no such file"),
    (Reply(500, b""), "network", "500"), (Reply(429, b""), "network", "429"),
    (Reply(302, b"", headers={"Location": "http://example.invalid/x"}), "data-url", "not https"),
    (Reply(302, b"", headers={"Location": "file:///etc/passwd"}), "data-url", "not https")])
def test_what_a_store_refuses_is_told_apart(store: Store, tmp_path: Path, reply: Reply, cause: str, word: str) -> None:
    store.replies = [reply]
    found = refusal(store, tmp_path)
    assert isinstance(found, TryLater)
    assert found.cause == cause
    assert word in found.what


def test_an_expired_address_is_not_asked_again(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(403, b"Request has expired")]
    refusal(store, tmp_path)
    assert len(store.asked) == 1


def test_a_redirection_is_followed(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(307, b"", headers={"Location": "/moved.jsonl"}), Reply()]
    assert get(store, tmp_path).size == len(ROWS)
    store.replies = [Reply(307, b"", headers={"Location": "/ring"})]
    assert refusal(store, tmp_path / "ring").what.endswith("in a ring")


def test_no_store_at_all(tmp_path: Path) -> None:
    with serve() as gone:
        pass
    assert refusal(gone, tmp_path).cause == "network"


@pytest.mark.parametrize("url", ["ftp://x/y", "http://example.invalid/x", "file:///etc/passwd", "https://", "http://[x",
                                 "http://169.254.169.254/latest", "http://127.0.0.1/x", "http://localhost:22/"])
def test_addresses_that_are_never_asked(tmp_path: Path, url: str) -> None:
    with requests.Session() as session, pytest.raises(TryLater) as caught:
        downloads.download(url, tmp_path, Validation(), session, sleep=lambda seconds: None)
    assert caught.value.cause == "data-url"


# --- addresses that are not of the internet -------------------------------------------------------
def refused(url: str, folder: Path, **values: str) -> PersonNeeded:
    with requests.Session() as session, pytest.raises(PersonNeeded) as caught:
        downloads.download(url, folder, Validation.model_validate({"retries": 0, "min_free_gb": 0, **values}), session)
    assert caught.value.cause == "data-url"
    return caught.value


PRIVATE = ["https://169.254.169.254/latest/meta-data", "https://10.0.0.1/x", "https://192.168.1.1/x", "https://[::1]/",
           "https://127.1/x", "https://0x7f000001/x", "https://2130706433/x", "https://[::ffff:10.0.0.1]/x",
           "https://[fe80::1%25eth0]/x", "https://100.64.0.1/x", "https://0.0.0.0/x", "https://224.0.0.1/x",
           "https://localhost/x", "https://a.localhost./x"]


@pytest.mark.parametrize("url", PRIVATE)
@pytest.mark.parametrize("proxy", ["", "http://127.0.0.1:9"])
def test_addresses_of_private_networks_are_never_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str,
                                                       proxy: str) -> None:
    monkeypatch.setenv("HTTPS_PROXY", proxy)
    refused(url, tmp_path)
    if "127" not in url and "::1]" not in url and "localhost" not in url and "0x7f" not in url and "2130" not in url:
        refused(url, tmp_path, base_url=HERE)


def resolving(monkeypatch: pytest.MonkeyPatch, *addresses: str) -> list[str]:
    """Names lead to these addresses, one for each time that they are looked up, the last one for ever."""
    left, asked = list(addresses), []
    real = socket.getaddrinfo

    def look(host: Any, port: Any, *given: Any, **named: Any) -> Any:
        if host in ("127.0.0.1", "::1"):
            return real(host, port, *given, **named)
        asked.append(host)
        found = left.pop(0) if len(left) > 1 else left[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (found, port))]

    monkeypatch.setattr("socket.getaddrinfo", look)
    return asked


def test_a_name_that_leads_to_a_private_address_is_not_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    asked = resolving(monkeypatch, "10.1.2.3")
    refused("https://store.example/x", tmp_path)
    assert asked == ["store.example"], "it is not connected to"


def test_a_name_is_looked_at_again_once_connected(store: Store, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    asked = resolving(monkeypatch, "93.184.216.34", "127.0.0.1")
    port = store.url.rpartition(":")[2]
    refused(f"https://store.example:{port}/x", tmp_path)
    assert asked == ["store.example", "store.example"] and store.asked == []


def test_a_redirection_into_a_private_network_is_not_followed(store: Store, tmp_path: Path) -> None:
    store.replies = [Reply(302, b"", headers={"Location": "https://10.0.0.1/admin"})]
    refused(f"{store.url}/x", tmp_path, base_url=HERE)
    assert len(store.asked) == 1


def test_a_proxy_resolves_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    asked = resolving(monkeypatch, "10.1.2.3")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setenv("https_proxy", store.url)
    with requests.Session() as session, pytest.raises(TryLater) as caught:
        downloads.download("https://store.example/x", tmp_path, Validation(retries=0, min_free_gb=0), session)
    assert caught.value.cause == "network" and asked == []


# --- a set that trickles --------------------------------------------------------------------------
def drip(store: Store, folder: Path, **more: Any) -> DataFile:
    store.replies = [Reply(body=b"x" * 100, drip=0.01)]
    settings = Validation.model_validate({"base_url": HERE, "retries": 2, "min_free_gb": 0})
    with requests.Session() as session:
        return downloads.download(f"{store.url}/x", folder, settings, session, sleep=lambda seconds: None, **more)


def test_a_set_that_trickles_is_left_when_told_to_stop(store: Store, tmp_path: Path) -> None:
    ticks, beats = iter(range(10**6)), []

    def beat() -> None:
        beats.append(1)
        if len(beats) == 5:
            raise ClaimedError("told to stop")

    with pytest.raises(ClaimedError, match="told to stop"):
        drip(store, tmp_path, beat=beat, clock=lambda: float(next(ticks)))
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_set_that_trickles_for_long_is_tried_later(store: Store, tmp_path: Path) -> None:
    ticks = iter(range(0, 10**9, 60))
    with pytest.raises(TryLater, match="too slowly") as caught:
        drip(store, tmp_path, clock=lambda: float(next(ticks)))
    assert caught.value.cause == "network" and len(store.asked) == 1
    assert drip(store, tmp_path, clock=lambda: 0.0).size == 100


def test_a_head_that_does_not_come_is_left_when_told_to_stop(store: Store, tmp_path: Path,
                                                             monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.validation.downloads.EVERY", 0.02)
    store.replies = [Reply(silent=1.0)]
    settings = Validation.model_validate({"base_url": HERE, "min_free_gb": 0})

    def beat() -> None:
        raise ClaimedError("told to stop")

    with requests.Session() as session, pytest.raises(ClaimedError, match="told to stop"):
        downloads.download(f"{store.url}/x", tmp_path, settings, session, beat=beat)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_what_is_too_slow() -> None:
    assert not downloads.too_slow(0, 100) and downloads.too_slow(0, 121)
    assert not downloads.too_slow(10**9, 3600) and downloads.too_slow(10**8, 3600)


def test_what_netrc_holds_is_not_sent(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    get(store, tmp_path)
    assert "Authorization" not in store.asked[0]
    with requests.Session() as session:
        session.get(store.url)
    assert "Authorization" in store.asked[1], "the file is one that requests would use"


def test_a_huge_set_is_for_a_person(store: Store, tmp_path: Path) -> None:
    with pytest.raises(PersonNeeded) as caught:
        get(store, tmp_path, max_download_gb=1e-6)
    assert caught.value.cause == "huge"
    store.replies = [Reply(cut=10, length="900000000000")]
    with pytest.raises(PersonNeeded, match=r"larger than 200 GB"):
        get(store, tmp_path)
    chunked = Reply(body=b"4\r\nabcd\r\n0\r\n\r\n", headers={"Transfer-Encoding": "chunked"}, no_length=True)
    store.replies = [chunked]
    with pytest.raises(PersonNeeded):
        get(store, tmp_path, max_download_gb=1e-9)


def test_bytes_are_counted_where_the_library_does_not(store: Store, tmp_path: Path,
                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    import urllib3

    monkeypatch.setattr(urllib3.HTTPResponse, "_init_length", lambda self, method: None)
    store.replies = [Reply(cut=100)]
    found = refusal(store, tmp_path)
    assert found.cause == "data-truncated" and f"100 of {len(ROWS)} bytes" in found.what


def test_a_full_disk_is_said_before_a_byte_comes(store: Store, tmp_path: Path) -> None:
    found = refusal(store, tmp_path, min_free_gb=1e9)
    assert found.cause == "disk"
    assert "validation.min_free_gb" in found.what


def test_a_disk_that_fills_up_meanwhile(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("automate.validation.downloads.os.fsync", full)
    assert refusal(store, tmp_path).cause == "disk"


def test_room_counts_what_will_come(tmp_path: Path) -> None:
    settings = Validation(min_free_gb=5)
    assert downloads.room_problem(tmp_path / "not" / "there", settings, 0, lambda folder: 5.0) is None
    assert downloads.room_problem(tmp_path, settings, 0, lambda folder: 4.9)
    assert downloads.room_problem(tmp_path, settings, 2_000_000_000, lambda folder: 7.0) is None
    assert "2.0 GB are needed" in (downloads.room_problem(tmp_path, settings, 2_000_000_000, lambda folder: 6.9) or "")
    assert downloads.free_gb(tmp_path / "not" / "there") > 0
