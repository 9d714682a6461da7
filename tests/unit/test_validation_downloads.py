"""Validation sets come to disk whole or not at all; what a store refuses is said, and never with the address's key."""

from __future__ import annotations

import errno
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from automate.settings_validation import Validation
from automate.validation import downloads
from automate.validation.assignments import DataFile
from automate.validation.troubles import PersonNeeded, Trouble, TryLater
from tests.unit.validation_files_rig import ROWS, Reply, Store, serve

SECRET = "X-Amz-Signature=0123456789abcdef"


@pytest.fixture
def store() -> Iterator[Store]:
    with serve() as served:
        yield served


def get(store: Store, folder: Path, path: str = f"/set.jsonl?{SECRET}", **values: float) -> DataFile:
    settings = Validation.model_validate({"retries": 2, "min_free_gb": 0, **values})
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
                                 "http://169.254.169.254/latest"])
def test_addresses_that_are_never_asked(tmp_path: Path, url: str) -> None:
    with requests.Session() as session, pytest.raises(TryLater) as caught:
        downloads.download(url, tmp_path, Validation(), session, sleep=lambda seconds: None)
    assert caught.value.cause == "data-url"


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
