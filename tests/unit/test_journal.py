"""Record files: whatever was cut, broken or refused, every whole record is found again."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.errors import StorageError
from automate.journal import (
    RecordWriter,
    fresh_name,
    mend,
    parse_object,
    read_journal,
    read_json,
    read_jsonl,
    record_files,
    replace_file,
    write_json,
)
from tests.unit.support import ROOT

Records = list[dict[str, Any]]
TEXT = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["\u2028", "\u2029", "\x85", "\r\n", '"quoted" \\ back', "🐑 flock", "\x00", "\ufeff", "", "a\nb"])
LEAVES = TEXT | st.integers(-(2**63), 2**64 - 1) | st.booleans() | st.none()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=5)
RECORDS = st.lists(st.dictionaries(TEXT, VALUES, max_size=4), max_size=6)


def write(path: Path, records: Records) -> bytes:
    writer = RecordWriter(path)
    for record in records:
        writer.append(record)
    writer.close()
    return path.read_bytes()


def read(path: Path) -> Records:
    return [record for _, record in read_jsonl(path).records]


def check_cut(path: Path, records: Records, whole: bytes, cut: int) -> None:
    kept = whole[:cut]
    path.write_bytes(kept)
    count, tail = kept.count(b"\n"), len(kept) - (kept.rfind(b"\n") + 1)
    found = read_jsonl(path)
    assert [record for _, record in found.records] == records[:count]
    assert [number for number, _ in found.records] == list(range(1, count + 1))
    assert [(bad.line, bad.torn) for bad in found.bad] == ([(count + 1, True)] if tail else [])
    assert mend(path) == tail
    assert path.read_bytes() == kept[: len(kept) - tail]
    assert mend(path) == 0
    again = RecordWriter(path, exclusive=False)
    again.append({"next": 1})
    again.close()
    assert read(path) == [*records[:count], {"next": 1}]


@settings(deadline=None)
@given(RECORDS, st.floats(0, 1))
def test_a_file_cut_anywhere_keeps_the_whole_records_before_the_cut(records: Records, share: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.jsonl"
        whole = write(path, records)
        assert whole.count(b"\n") == len(records)
        assert read(path) == records
        check_cut(path, records, whole, round(share * len(whole)))


def test_a_file_cut_at_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    records: Records = [{"a": "\u2028 🐑"}, {}, {"b": '"quoted" \\ back', "c": ["\n", "\x85", None]}, {"d": "é" * 9}]
    whole = write(path, records)
    for cut in range(len(whole) + 1):
        check_cut(path, records, whole, cut)


@pytest.mark.parametrize("tail", [1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 200_000])
def test_a_long_torn_tail_is_cut_off_exactly(tmp_path: Path, tail: int) -> None:
    path = tmp_path / "a.jsonl"
    for head in (b"", b'{"a":1}\n', b'{"a":1}\n' + b'{"b":"' + b"x" * 70_000 + b'"}\n'):
        path.write_bytes(head + b"x" * tail)
        assert mend(path) == tail
        assert path.read_bytes() == head


@pytest.mark.parametrize(("garbage", "why"), [
    (b"not json", "not JSON"), (b"[1]", "expected a JSON object, found list"), (b'{"a": 1} {"b": 2}', "not JSON"),
    (b'{"a": "\xff"}', "not valid UTF-8"), (b'{"a": "\\ud800"}', "not valid UTF-8"), (b"\0" * 64, "not JSON"),
    (b'{"a":' * 5000, "not JSON"), (b"null", "expected a JSON object, found NoneType"), (b'{"a": 1', "not JSON"),
])
def test_a_garbage_line_loses_nothing_else(tmp_path: Path, garbage: bytes, why: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\n' + garbage + b'\n\n{"n":2}\n')
    found = read_jsonl(path)
    assert found.records == [(1, {"n": 1}), (4, {"n": 2})]
    (bad,) = found.bad
    assert (bad.line, bad.torn) == (2, False)
    assert str(bad).startswith(f"{path}:2: {why}")
    assert mend(path) == 0


def test_a_last_line_without_newline_counts_where_others_wrote_it(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"n":1}\r\n{"n":2}')
    assert [record for _, record in read_jsonl(path, need_newline=False).records] == [{"n": 1}, {"n": 2}]
    assert read(path) == [{"n": 1}]
    path.write_bytes(b'{"n":1}\n{"n":2')
    found = read_jsonl(path, need_newline=False)
    assert [(bad.line, bad.torn) for bad in found.bad] == [(2, True)]


def test_what_json_takes_and_orjson_refuses_is_refused_or_read() -> None:
    assert parse_object(b'\xef\xbb\xbf{"a": 1}') == {"a": 1}
    assert parse_object('{"a": "\u2028"}'.encode()) == {"a": "\u2028"}


def test_a_record_file_is_made_by_one_writer_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "folder" / "a.jsonl"
    writer = RecordWriter(path)
    with pytest.raises(StorageError, match="File exists"):
        RecordWriter(path)
    writer.append({"a": 1})
    assert read(path) == [{"a": 1}]
    writer.close()
    writer.close()


def test_a_journal_is_read_in_the_order_of_its_files(tmp_path: Path) -> None:
    write(tmp_path / "2.jsonl", [{"n": 2}])
    write(tmp_path / "1.jsonl", [{"n": 0}, {"n": 1}])
    (tmp_path / "1.jsonl").open("ab").write(b'{"torn')
    (tmp_path / "other.txt").write_text("{}\n")
    found = read_journal(tmp_path)
    assert [record["n"] for _, record in found.records] == [0, 1, 2]
    assert [str(bad) for bad in found.bad] == [f"{tmp_path}/1.jsonl:3: torn last line: the write was cut off"]
    assert record_files(tmp_path / "none") == []
    assert read_journal(tmp_path / "none").records == []


def test_names_of_record_files_differ_and_sort_by_time() -> None:
    names = [fresh_name("job-1") for _ in range(500)]
    assert len(set(names)) == len(names)
    stamps = [name.partition("-")[0] for name in names]
    assert stamps == sorted(stamps)
    assert {len(stamp) for stamp in stamps} == {len("20260101T000000000Z")}


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from automate.errors import StorageError
from automate.journal import RecordWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path, limit = Path(sys.argv[1]), int(sys.argv[2])
writer = RecordWriter(path)
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
written = 0
try:
    for number in range(1000):
        writer.append({"n": number, "text": "x" * (number % 37)})
        written += 1
except StorageError as error:
    assert "append a record" in error.what and str(path) in str(error), error
    size = path.stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    writer.append({"n": written, "text": "x" * (written % 37)})
    writer.close()
    print(written, size)
else:
    sys.exit("no error")
"""


@pytest.mark.parametrize("limit", [1, 100, 1000, 1017])
def test_a_full_disk_leaves_whole_records_only(tmp_path: Path, limit: int) -> None:
    path = tmp_path / "a.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(path), str(limit)], cwd=ROOT, check=False,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    written, size = map(int, done.stdout.split())
    assert size <= limit
    found = read_jsonl(path)
    assert found.bad == []
    assert [record["n"] for _, record in found.records] == list(range(written + 1))
    lines = path.read_bytes().split(b"\n")
    assert sum(len(line) + 1 for line in lines[:written]) == size


def test_a_closed_writer_is_an_error_not_a_loss(tmp_path: Path) -> None:
    writer = RecordWriter(tmp_path / "a.jsonl")
    writer.close()
    with pytest.raises(StorageError):
        writer.append({})


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.json"
    write_json(path, {"a": [1, "\u2028"]})
    before = path.open("rb")
    replace_file(path, (b"x", b"y"))
    assert path.read_bytes() == b"xy"
    with before:
        assert orjson.loads(before.read()) == {"a": [1, "\u2028"]}
    assert [entry.name for entry in path.parent.iterdir()] == ["a.json"]


def test_json_that_is_absent_or_no_object_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert read_json(path) is None
    for content in (b"", b"[]", b'{"a": ', b"\xff"):
        path.write_bytes(content)
        assert read_json(path) is None
    write_json(path, {"a": 1})
    assert read_json(path) == {"a": 1}


def test_what_the_file_system_refuses_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for action in (
        lambda: RecordWriter(tmp_path / "file" / "a.jsonl"), lambda: mend(tmp_path / "none"),
        lambda: read_json(tmp_path), lambda: read_jsonl(tmp_path), lambda: replace_file(tmp_path, b""),
    ):
        with pytest.raises(StorageError):
            action()


def test_a_replacement_where_a_file_stands_in_the_way_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(StorageError):
        replace_file(tmp_path / "file" / "a.json", b"")
