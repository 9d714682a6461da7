"""Files of rows: JSON lines, JSON arrays and CSV, whole and broken."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest

from automate.errors import DataError, StorageError
from automate.pools.kinds import arrays, files, tables
from automate.pools.kinds.base import BadRow
from automate.pools.kinds.files import rows

ROWS = [{"a": "O'Neil said \"no\"", "b": "one\ntwo"}, {"a": "小明, Zoë", "b": "3.50"}, {"a": "x; y\tz", "b": "\\ 'q'"}]


def written(folder: Path, name: str, data: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(data if isinstance(data, bytes) else data.encode())
    return path


def as_csv(delimiter: str = ",", ending: str = "\r\n") -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, ["a", "b"], delimiter=delimiter, lineterminator=ending)
    writer.writeheader()
    writer.writerows(ROWS)
    return text.getvalue()


LINES = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)


@pytest.mark.parametrize(("name", "text"), [
    ("rows.jsonl", LINES), ("rows.jsonl", LINES.replace("\n", "\r\n")), ("rows.jsonl", LINES.rstrip("\n")),
    ("rows", LINES), ("rows.json", LINES), ("rows.jsonl", "\n\n" + LINES.replace("\n", "\n \n")),
    ("rows.json", json.dumps(ROWS)), ("rows.json", json.dumps(ROWS, indent=4)),
    ("rows.txt", f" \n{json.dumps(ROWS)}\n"),
    ("rows.csv", as_csv()), ("rows.csv", as_csv(ending="\n")), ("rows.tsv", as_csv("\t")), ("rows.txt", as_csv()),
    ("rows.CSV", as_csv().rstrip("\r\n"))])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_the_same_rows_come_out_of_every_format(tmp_path: Path, name: str, text: str, mark: bytes) -> None:
    assert list(rows(written(tmp_path, name, mark + text.encode()))) == ROWS


def test_another_delimiter(tmp_path: Path) -> None:
    assert list(rows(written(tmp_path, "rows.csv", as_csv(";")), ";")) == ROWS


def test_fractions_stay_the_text_that_they_are(tmp_path: Path) -> None:
    big = 10**40
    for name, text in (("l.jsonl", f'{{"a": 3.50, "b": {big}}}'), ("a.json", f'[{{"a": 3.50, "b": {big}}}]')):
        assert list(rows(written(tmp_path, name, text))) == [{"a": "3.50", "b": big}]


def test_broken_lines_are_told_by_number_and_the_rest_is_read(tmp_path: Path) -> None:
    broken = [b'{"a": "\xff"}', b"[1]", b'"text"', b"nonsense", b'{"a": NaN}', b'{"a": "\\ud800"}', b"[" * 100_000,
              b'{"a": ' + b"9" * 5000 + b"}", b'{"a": "\x01"}', b'{"a": 1} 2']
    found = list(rows(written(tmp_path, "r.jsonl", b'{"a": 0}\n\n' + b"\n".join(broken) + b'\n{"a": 1}\n{"a": "cut o')))
    assert found[0] == {"a": 0}
    bad = found[1:11] + found[12:]
    assert [row.number for row in bad if isinstance(row, BadRow)] == [*range(2, 12), 13]
    assert found[11] == {"a": 1}
    reasons = [row.reason for row in bad if isinstance(row, BadRow)]
    assert "line 3: not UTF-8" in reasons[0]
    assert "no JSON object" in reasons[1]
    assert "line 14" in reasons[-1]
    assert all(len(reason) < 300 for reason in reasons)


def test_broken_rows_of_a_table_are_told_by_number_and_the_rest_is_read(tmp_path: Path) -> None:
    text = b'a,b\n1\n2,3,4\n"5"x,6\n7,8\n\xff,9\n10,"cut o'
    found = list(rows(written(tmp_path, "r.csv", text)))
    assert [row.number for row in found if isinstance(row, BadRow)] == [1, 2, 3, 6]
    assert found[3] == {"a": "7", "b": "8"}
    assert found[4] == {"a": "\udcff", "b": "9"}
    assert "within quotes" in found[5].reason  # type: ignore[union-attr]
    assert "the header has 2" in found[0].reason  # type: ignore[union-attr]


@pytest.mark.parametrize("text", [
    "[", '[{"a": 1},', '[{"a": 1}', '[{"a": 1},]', '[{"a": 1} {"a": 2}]', '[{"a": 1}]]', '[{"a": 1', "[NaN]",
    "[" * 100_000, '[{"a": 1}] [', '[{"a": "x}]'])
def test_a_broken_array_is_refused_with_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"broken: .*near character \d+"):
        list(rows(written(tmp_path, "r.json", text)))


def test_an_array_that_is_longer_than_what_is_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_WINDOW", 7)
    made = [{"a": "x" * (at % 40), "b": [at, {"c": "ü"}]} for at in range(200)]
    assert list(rows(written(tmp_path, "r.json", json.dumps(made, indent=1, ensure_ascii=False)))) == made
    assert list(rows(written(tmp_path, "e.json", "  [   ]  "))) == []
    assert list(rows(written(tmp_path, "n.json", "[12345678901, {}]"))) == [BadRow(1, "it is no JSON object"), {}]


def test_what_is_too_long_is_not_read_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (files, tables, arrays):
        monkeypatch.setattr(module, "LINE", 100)
    monkeypatch.setattr(arrays, "_WINDOW", 50)
    long = json.dumps({"a": "x" * 250})
    found = list(rows(written(tmp_path, "r.jsonl", f'{{"a": 1}}\n{long}\n{{"a": 2}}\n{long}')))
    assert [found[0], found[2]] == [{"a": 1}, {"a": 2}]
    assert [row.number for row in found if isinstance(row, BadRow)] == [2, 4]
    with pytest.raises(DataError, match="broken"):
        list(rows(written(tmp_path, "r.json", f"[{long}]")))
    try:
        found = list(rows(written(tmp_path, "r.csv", f'a\n"{"x" * 250}"\n2\n')))
    finally:
        csv.field_size_limit(131072)
    assert isinstance(found[0], BadRow)
    assert found[-1] == {"a": "2"}


@pytest.mark.parametrize(("data", "why"), [
    (b"", "empty"), (b" \n\n", "empty"), (b"\xef\xbb\xbf", "empty"), ("a,b\n1,2\n".encode("utf-16"), "UTF-16"),
    (b"\x1f\x8b\x08", "gzip"), (b"PK\x03\x04", "zip"), (b"PAR1....", "Parquet"), (b"a,a\n1,2\n", "two columns")])
def test_a_file_of_another_kind_is_refused(tmp_path: Path, data: bytes, why: str) -> None:
    with pytest.raises(DataError, match=why):
        list(rows(written(tmp_path, "rows.csv", data)))


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for place in (pipe, Path("/dev/zero")):
        with pytest.raises(DataError, match="no plain file"):
            list(rows(place))
    for place in (tmp_path, tmp_path / "nothing", tmp_path / "rows" / "below", tmp_path / ("x" * 300)):
        with pytest.raises((StorageError, DataError)):
            list(rows(place))
