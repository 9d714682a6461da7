"""Loading: each row once by whatever way it comes, bad rows by number, none lost."""

from __future__ import annotations

import csv
import json
import random
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.pools.kinds.base import BadRow, Question
from automate.pools.kinds.exact_match import ExactMatch
from automate.pools.kinds.siqa import Siqa
from automate.pools.loading import CHUNK, Digests, parcels, question_of, take
from automate.pools.messages import Receipt
from tests.unit.pool_support import ROWS, Bench, opened, reply_named

NAMES = ("context", "question", "answerA", "answerB", "answerC", "result")
LONGEST = 256 * 1024


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path / "work") as made:
        made.send("owner", "pool", "Spawn", {"name": "set", "kind": "siqa"})
        assert made.send("owner", "set", "Init").state == "handled"
        yield made


def siqa_rows() -> list[dict[str, Any]]:
    """1,954 rows of SIQA's shape: 605 with an apostrophe, 3 not ASCII, 24 repeats, of which 5 with another label."""
    chance, made = random.Random(7), []
    for at in range(1930):
        name = ("Kim's friend", "Riley")[at >= 605]
        more = " 小明 Zoë ع" if at < 3 else ""
        made.append({"context": f"{name} said \"no\" {at} times; DROP TABLE questions;--{more}",
                     "question": f"Why did they do it, number {at}?", "answerA": "to rest", "answerB": f"it is {at}",
                     "answerC": "nil", "result": str(chance.randint(1, 3))})
    repeats = [dict(row) for row in chance.sample(made, 24)]
    for row in repeats[:5]:
        row["result"] = str(int(row["result"]) % 3 + 1)
    made += repeats
    chance.shuffle(made)
    return [{"id": at, **row} for at, row in enumerate(made)]


def write(folder: Path, rows: list[dict[str, Any]], ending: str) -> Path:
    path = folder / f"rows.{ending}"
    if ending == "csv":
        with path.open("w", newline="", encoding="utf-8-sig") as file:
            writer = csv.DictWriter(file, ["id", *NAMES])
            writer.writeheader()
            writer.writerows(rows)
    elif ending == "json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\r\n" for row in rows), encoding="utf-8")
    return path


def answer(receipt: Receipt) -> Mapping[str, Any]:
    assert receipt.state == "handled", receipt
    found: dict[str, Any] = json.loads(reply_named(receipt, "Load-Data-Response")["Data"])
    return found


@pytest.mark.parametrize("ending", ["jsonl", "json", "csv"])
def test_a_whole_siqa_loads_whole_and_again_without_change(bench: Bench, tmp_path: Path, ending: str) -> None:
    rows = siqa_rows()
    path = write(tmp_path, rows, ending)
    first = answer(bench.send("owner", "set", "Load-Data", str(path)))
    assert (first["added"], first["known"], first["bad"], first["num_samples"]) == (1954, 0, 0, 1954)
    before = bench.dump("messages", "processes")
    again = answer(bench.send("owner", "set", "Load-Data", str(path)))
    assert (again["added"], again["known"], again["num_samples"]) == (0, 1954, 1954)
    assert bench.dump("messages", "processes") == before
    view = bench.rows("SELECT * FROM datasets ORDER BY id")
    shown, given = ([{name: row[name] for name in NAMES} for row in part] for part in (view, rows))
    assert shown == given


def test_a_row_is_the_same_by_file_by_message_and_in_parcels(bench: Bench, tmp_path: Path) -> None:
    rows = siqa_rows()
    assert answer(bench.send("owner", "set", "Load-Data", rows))["added"] == 1954
    bad: list[BadRow] = []
    for ending in ("csv", "json", "jsonl"):
        path = write(tmp_path, rows, ending)
        assert answer(bench.send("owner", "set", "Load-Data", str(path)))["added"] == 0
        sent = list(parcels(Siqa({}), path, size=20_000, longest=LONGEST, bad=bad))
        assert len(sent) > 10
        for data in sent:
            assert len(data.encode()) <= 20_000 + 2
            assert answer(bench.send("owner", "set", "Load-Data", data))["added"] == 0
    assert bad == []
    assert bench.one("SELECT count(*) FROM questions") == 1954


def test_parcels_alone_load_all_repeats_and_name_bad_rows_by_the_files_numbers(bench: Bench, tmp_path: Path) -> None:
    rows = [ROWS[0]] * 50 + [{"context": "x"}] + [ROWS[1]] * 2
    bad: list[BadRow] = []
    for data in parcels(Siqa({}), write(tmp_path, rows, "jsonl"), size=1000, longest=LONGEST, bad=bad):
        bench.send("owner", "set", "Load-Data", data)
    assert bench.one("SELECT count(*) FROM questions") == 52
    assert [row.number for row in bad] == [51]


def test_good_rows_load_and_bad_ones_are_told_by_number(bench: Bench) -> None:
    good = ROWS[0]
    bad: list[object] = [{**good, "result": "4"}, {"context": "x"}, 5, None, [],
                         {**good, "question": "x" * (LONGEST + 1)},
                         {**good, "answerA": "a\0b"}, {**good, "occurrence": 0}, {**good, "occurrence": "1"},
                         {**good, "occurrence": True}, {**good, "context": "   "}]
    said = answer(bench.send("owner", "set", "Load-Data", [good, *bad, ROWS[1]]))
    assert (said["added"], said["known"], said["bad"], said["num_samples"]) == (2, 0, len(bad), 2)
    assert [row["number"] for row in said["bad_rows"]] == list(range(2, 2 + len(bad)))
    reasons = [row["reason"] for row in said["bad_rows"]]
    for reason, words in zip(reasons, ["not 1, 2 or 3", "no field", *["no JSON object"] * 3,
                                       "262,145 bytes long", "NUL", "occurrence", "occurrence", "occurrence", "empty"],
                             strict=True):
        assert words in reason


def test_of_many_bad_rows_the_first_twenty_are_shown_and_all_are_counted(bench: Bench) -> None:
    said = answer(bench.send("owner", "set", "Load-Data", {"rows": [ROWS[0], *[{"context": "x" * 9000}] * 500]}))
    assert (said["added"], said["bad"], len(said["bad_rows"])) == (1, 500, 20)


@pytest.mark.parametrize(("data", "why"), [
    ([{"context": "x"}], "row 1: no field 'question'"), ([], "no rows"), ({"rows": []}, "no rows"),
    ({"rows": 5}, "holds no rows"), ({"row": []}, "holds no rows"), ({"path": 5}, "holds no rows"),
    ({"rows": [], "path": "/x"}, "holds no rows"), ("[{}", "not JSON"), ('{"rows": [}', "not JSON"),
    ("[" * 10_000, "not JSON"), ("", "no Data"), ("rows.jsonl", "not absolute"), ("~/rows.jsonl", "not absolute"),
    ("/nowhere/rows.jsonl", "can't read the data set"), ({"path": "/dev/zero"}, "no plain file"),
    ([{"context": "x" * 10_000_000, **dict.fromkeys(NAMES[1:], "1")}], "10,000,000 bytes long")])
def test_what_can_not_be_loaded_is_refused_and_changes_nothing(bench: Bench, data: object, why: str) -> None:
    before = bench.dump("messages")
    receipt = bench.send("owner", "set", "Load-Data", data)
    assert receipt.state == "refused"
    assert why in str(receipt.error)
    assert bench.dump("messages") == before
    assert "Load-Data-Error" in [reply["Action"] for reply in receipt.replies]


def test_a_path_is_taken_from_this_machines_user_only(bench: Bench, tmp_path: Path) -> None:
    path = write(tmp_path, [ROWS[0]], "jsonl")
    for data in (str(path), {"path": str(path)}, "/etc/passwd"):
        receipt = bench.send("owner", "set", "Load-Data", data, via="http")
        assert receipt.state == "refused"
        assert "this machine's own user only" in str(receipt.error)
        assert "root:" not in str(receipt)
    assert bench.one("SELECT count(*) FROM questions") == 0
    assert answer(bench.send("owner", "set", "Load-Data", {"path": str(path)}))["added"] == 1


def test_a_file_that_breaks_in_the_middle_leaves_nothing(bench: Bench, tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([{**ROWS[0], "context": str(at)} for at in range(CHUNK + 10)])[:-5])
    receipt = bench.send("owner", "set", "Load-Data", str(path))
    assert receipt.state == "refused"
    assert "a JSON array that is broken" in str(receipt.error)
    assert bench.one("SELECT count(*) FROM questions") == 0


def test_a_crash_at_any_statement_loads_all_or_nothing(bench: Bench) -> None:
    rows = [{**ROWS[0], "context": str(at)} for at in range(CHUNK + 3)]
    for at in range(1, 100):
        message = bench.message("owner", "set", "Load-Data", rows, anchor=f"a{at}")
        crashed = bench.crash(at, lambda message=message: bench.exchange.receive([message]))  # type: ignore[misc]
        count = bench.one("SELECT count(*) FROM questions")
        assert count in (0, len(rows))
        if not crashed:
            break
    assert count == len(rows)


def test_only_owners_load_and_only_after_init(bench: Bench) -> None:
    assert "only its owner" in str(bench.send("eve", "set", "Load-Data", ROWS).error)
    bench.send("ann", "pool", "Spawn", {"name": "anns", "kind": "siqa"})
    assert "send Init first" in str(bench.send("ann", "anns", "Load-Data", ROWS).error)
    bench.send("ann", "anns", "Init")
    assert bench.send("ann", "anns", "Load-Data", ROWS).state == "handled"
    assert bench.send("owner", "anns", "Load-Data", ROWS).state == "handled"
    assert bench.send("ann", "set", "Load-Data", ROWS).state == "refused"
    assert bench.one("SELECT count(*) FROM questions") == len(ROWS)


def test_two_data_sets_keep_the_same_rows_apart(bench: Bench) -> None:
    bench.dataset("other")
    assert answer(bench.send("owner", "set", "Load-Data", ROWS))["added"] == len(ROWS)
    assert bench.one("SELECT count(*) FROM questions") == 2 * len(ROWS)


# --- digests --------------------------------------------------------------------------------------------
def test_the_digest_of_a_row_is_of_its_content_and_occurrence() -> None:
    digests, row = Digests(LONGEST), Question("c", "q", ("a", "b"), "1")
    first, second = digests.of(row), digests.of(row)
    assert first != second
    assert Digests(LONGEST).of(row) == first == Digests(LONGEST).of(row, 1)
    assert Digests(LONGEST).of(row, 2) == second
    others = [Question("c", "q", ("a", "b"), "2"), Question("c", "q", ("b", "a"), "1"),
              Question("cq", "", ("a", "b"), "1"),
              Question("c", "q", ("a,b",), "1"), Question("c", "q", (), "1")]
    assert len({Digests(LONGEST).of(one) for one in others} | {first, second}) == len(others) + 2


def test_a_backslash_before_u0000_is_no_nul() -> None:
    Digests(LONGEST).of(Question("\\u0000", "q", (), "1"))
    with pytest.raises(ValueError, match="the question has a NUL"):
        Digests(LONGEST).of(Question("\\u0000", "q\0", (), "1"))


def test_the_longest_field_is_counted_in_bytes() -> None:
    Digests(16).of(Question("é" * 8, "é" * 8, ("é" * 8, "x" * 16), "1"))
    with pytest.raises(ValueError, match="option 2 is 17 bytes long; 16 is the most"):
        Digests(16).of(Question("", "", ("", "é" * 8 + "x"), "1"))
    with pytest.raises(ValueError, match="not valid Unicode"):
        Digests(16).of(Question("", "\udcff", (), "1"))


def test_line_ends_do_not_make_a_row_another_row(bench: Bench) -> None:
    rows = [{"question": f"one{ending}two", "answer": "x"} for ending in ("\n", "\r\n", "\r")]
    dataset = bench.bare_dataset("exact", "exact-match")
    with bench.store.transaction():
        for row in rows:
            take(bench.store.db, dataset, ExactMatch({}), [row], LONGEST, now=0)
    assert bench.one("SELECT count(*) FROM questions") == 1


TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(
    lambda text: not text.isspace())


@given(st.lists(st.fixed_dictionaries({**dict.fromkeys(NAMES[:-1], TEXTS), "result": st.sampled_from("123")}),
                min_size=1, max_size=5))
@settings(max_examples=60, deadline=None)
def test_any_text_is_the_same_row_in_every_format(rows: list[dict[str, Any]]) -> None:
    kind, seen = Siqa({}), []
    with tempfile.TemporaryDirectory() as folder:
        for ending in ("jsonl", "json", "csv"):
            digests = Digests(LONGEST)
            read = kind.read(write(Path(folder), [{"id": at, **row} for at, row in enumerate(rows)], ending))
            seen.append([digests.of(question_of(kind, raw)) for raw in read])
    digests = Digests(LONGEST)
    assert seen == [[digests.of(question_of(kind, row)) for row in rows]] * 3
    assert len(set(seen[0])) == len(rows)
