"""Records without their texts: what is read of a line is what a full reading gives, whatever the texts hold."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.arena.benchmark import Answers
from automate.arena.context import load_answers
from automate.arena.counting.board import Board
from automate.arena.counting.keys import Wanted, compute, match_digest, wanted_by
from automate.arena.counting.slim import TEXTS, slim_record, take_lines
from automate.arena.counting.tails import FileTail, JournalTail
from automate.arena.games import FAILURES, Match, Recorded, count
from automate.arena.verdict import ACCEPTED
from automate.journal import Record, parse_object
from tests.unit.support import (
    BASELINE,
    IDENTITY,
    LINE_SEPARATOR,
    make_answers,
    make_match,
    make_prompts,
    make_questions,
    make_workspace,
    record_of,
    write_lines,
)

QUESTIONS = make_questions(3)
UIDS = [question.uid for question in QUESTIONS]
MATCH = make_match(QUESTIONS)
ANSWERS = make_answers("m", UIDS)
GAMES = MATCH.wanted(ANSWERS)
PLACES = {uid: place for place, uid in enumerate(UIDS)}
MARKS = ['","judgment":"', ',"judgment":"', '","seconds":', ',"reasoning":"', '"short":true', ',"short":true', "}", "{",
         '"', "\\", "\\\"", '"}', '","', '{"source":"engine","key":"', '","outcome":"verdict","label":"', "[[A>B]]",
         "\n", "\0", '","outcome":"verdict","label":"A>B","judgment":"', LINE_SEPARATOR, "é", "🦢", "x" * 400]
hostile = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=5)), max_size=8).map("".join)
games = st.sampled_from(GAMES)


@st.composite
def engine_records(draw: st.DrawFn) -> Record:
    """What a referee writes, with texts that try to look like the rest."""
    outcome = draw(st.sampled_from(["verdict", *FAILURES]))
    known = record_of(draw(games))
    label = draw(st.sampled_from(sorted(ACCEPTED))) if outcome == "verdict" else None
    record: dict[str, Any] = {**known, "outcome": outcome, "label": label, "judgment": draw(hostile),
                              "seconds": draw(st.floats(0, 1e4)), "time": draw(st.floats(0, 2e9))}
    if draw(st.booleans()):  # a key of another judge or prompt: it still says which game it was
        slot = f"{known['uid'][1:]}{known['order']}"
        record["key"] = slot + draw(st.one_of(st.just("f" * 30), hostile))
    for name, value in (("short", True), ("reason", draw(hostile)), ("asked_twice", True), ("finish", "stop"),
                        ("usage", [1200, 300, 0]), ("reasoning", draw(hostile))):
        if draw(st.booleans()) and (name != "short" or outcome == "verdict"):
            record[name] = value
    return record


@st.composite
def imported_records(draw: st.DrawFn) -> Record:
    """A row of another program, as the journal keeps it."""
    game = draw(games)
    return {
        "source": "import", "model": "m", "judge": "judge", "uid": game.uid, "order": game.order,
        "baseline": draw(st.sampled_from([BASELINE, "other"])), "category": game.category, "outcome": "verdict",
        "label": "A>B", "judgment": draw(hostile),
        "prompt_sha": draw(st.sampled_from([None, game.prompt_sha, "0" * 32])),
        **draw(st.sampled_from([{}, {"texts_sha": game.texts_sha}, {"texts_sha": "1" * 32}])),
        "game": {"score": "A>B", "judgment": {"answer": draw(hostile)}, "seconds": draw(hostile)}, "from": "m.jsonl:1",
    }


records = st.lists(st.one_of(engine_records(), imported_records()), max_size=12)


def without_texts(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in TEXTS}


def board_of(lines: bytes, attempts: int = 2, match: Match = MATCH, wanted: Wanted | None = None) -> Board:
    board = Board(wanted or compute(MATCH, ANSWERS), match, PLACES, attempts)
    take_lines(board, lines, len(lines))
    return board


@settings(deadline=None)
@given(st.one_of(engine_records(), imported_records()))
def test_a_slim_record_is_the_record_without_its_texts(record: Record) -> None:
    line = orjson.dumps(record)
    assert slim_record(line) == without_texts(parse_object(line))


@settings(deadline=None, max_examples=300)
@given(records, st.integers(1, 3))
def test_the_board_counts_as_count_does(found: list[Record], attempts: int) -> None:
    recorded = Recorded()
    for record in found:
        recorded.add(record)
    board = board_of(b"".join(orjson.dumps(record) + b"\n" for record in found), attempts)
    assert board.status == count("m", GAMES, recorded, attempts)
    assert board.due == [game.uid for game in GAMES if not recorded.state(game, attempts).done]


@settings(deadline=None)
@given(records)
def test_the_tails_are_given_to_who_asks(found: list[Record]) -> None:
    lines = b"".join(orjson.dumps(record) + b"\n" for record in found)
    told: list[Record] = []
    take_lines(Board(compute(MATCH, ANSWERS), MATCH, PLACES, 2), lines, len(lines), told.append)
    assert [record.get("time") for record in told] == [record.get("time") for record in found]
    assert [record.get("usage") for record in told] == [record.get("usage") for record in found]


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_garbage_is_named_or_ignored(data: bytes) -> None:
    lines = data + b"\n"
    number, bad = take_lines(Board(compute(MATCH, ANSWERS), MATCH, PLACES, 2), lines, len(lines))
    assert number == lines.count(b"\n")
    assert all(1 <= line <= number and why for line, why in bad)


@pytest.mark.parametrize("change", [
    lambda line: line[:-1], lambda line: line[:-40], lambda line: b"x" + line,
    lambda line: line.replace(b'"key"', b'key'),
    lambda line: line.replace(b"verdict is", b"\0\0\0"), lambda line: line[:60], lambda line: b"[" + line + b"]",
])
def test_a_broken_line_is_no_verdict(change: Any) -> None:
    line = orjson.dumps({**record_of(GAMES[0]), "seconds": 1.0, "time": 2.0})
    board = Board(compute(MATCH, ANSWERS), MATCH, PLACES, 2)
    good = orjson.dumps({**record_of(GAMES[1]), "seconds": 1.0, "time": 2.0})
    data = change(line) + b"\n" + good + b"\n"
    number, bad = take_lines(board, data, len(data))
    assert (number, [place for place, _ in bad], board.status.done) == (2, [1], 1)


def test_plain_verdicts_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [{**record_of(game, label=label, judgment='"x" {y}\n' * 100), "seconds": 1.0, "time": 2.0, **more}
             for game, label in zip(GAMES, sorted(ACCEPTED), strict=False)
             for more in ({}, {"short": True}, {"reasoning": "z" * 500})]
    monkeypatch.setattr("automate.arena.counting.slim.slim_record", lambda line: pytest.fail("a line was decoded"))
    status = board_of(b"".join(orjson.dumps(record) + b"\n" for record in found)).status
    assert (status.done, status.short_labels) == (len(GAMES), 0)


def test_a_key_that_only_begins_like_a_wanted_one_is_another() -> None:
    record = {**record_of(GAMES[0], key=GAMES[0].key + "0"), "seconds": 1.0}
    assert board_of(orjson.dumps(record) + b"\n").status.done == 0


def test_a_verdict_in_an_inner_object_is_none() -> None:
    inner = record_of(GAMES[0])
    line = b'{"source":"engine","key":"%s","x":{"a":"b","outcome":"verdict","label":"A>B","judgment":"","seconds":1}}\n'
    assert board_of(line % inner["key"].encode()).status.done == 0


# Keys


texts = st.text(max_size=20)


@settings(deadline=None)
@given(st.lists(texts, min_size=3, max_size=3), st.sampled_from([
    "{QUESTION}{ANSWER_A}{ANSWER_B}", "é{{{ANSWER_B}}}{QUESTION}\n{ANSWER_A}{ANSWER_A}",
    "{ANSWER_A} {QUESTION} {ANSWER_B}!"]))
def test_keys_are_those_of_the_games(said: list[str], template: str) -> None:
    match = make_match(QUESTIONS, prompts=make_prompts(template))
    answers = make_answers("m", UIDS, **dict(zip(UIDS, said, strict=True)))
    wanted = compute(match, answers)
    assert wanted.games(match, 3) == match.wanted(answers)
    assert wanted.games(match, 1) == match.wanted(answers)[:2]
    assert {key.decode(): slot for key, slot in wanted.index(3).items()} == {
        game.key: 2 * PLACES[game.uid] + game.order - 1 for game in match.wanted(answers)}


def test_keys_of_a_model_that_lacks_answers() -> None:
    answers = make_answers("m", ["q2", "q0", "elsewhere"])
    wanted = compute(MATCH, answers)
    assert wanted.games(MATCH, 3) == MATCH.wanted(answers)
    assert (wanted.answers, wanted.missing, list(wanted.positions)) == (3, 1, [0, 2])
    assert wanted.shas(2, 2) == (GAMES[5].prompt_sha, GAMES[5].texts_sha)


def answers_file(root: Path, said: str = "said") -> Any:
    workspace = make_workspace(root)
    rows = [{"uid": uid, "model": "m", "messages": [{"role": "assistant", "content": {"answer": f"{said} {uid}"}}]}
            for uid in UIDS]
    write_lines(workspace.answer_file("m"), rows)
    return workspace


def long_ago(workspace: Any) -> None:
    """Make the kept keys as if they had been written long after the answers."""
    path = workspace.keys_file("m", "base")
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 60_000_000_000))


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    workspace = answers_file(tmp_path)
    object.__setattr__(workspace, "settings", workspace.settings.model_copy(update={"baseline": "base"}))
    wanted_by(workspace, MATCH, match_digest(MATCH), "m")
    return workspace


def reads_answers(workspace: Any, match: Match, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the keys had to be computed; they are right in any case."""
    asked: list[str] = []

    def noted(there: Any, model: str) -> Answers | None:
        asked.append(model)
        return load_answers(there, model)

    monkeypatch.setattr("automate.arena.counting.keys.load_answers", noted)
    found, _ = wanted_by(workspace, match, match_digest(match), "m")
    answers = load_answers(workspace, "m")
    assert answers is not None
    assert found.games(match, 3) == match.wanted(answers)
    monkeypatch.undo()
    return bool(asked)


def test_kept_keys_are_used_when_nothing_is_in_doubt(kept: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert reads_answers(kept, MATCH, monkeypatch), "the answers were written a moment before the keys"
    long_ago(kept)
    assert not reads_answers(kept, MATCH, monkeypatch)


@pytest.mark.parametrize("change", ["answers", "same size", "judge", "prompt", "baseline", "torn", "garbage"])
def test_kept_keys_of_something_else_are_not_used(kept: Any, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    long_ago(kept)
    match, path = MATCH, kept.keys_file("m", "base")
    if change in ("answers", "same size"):
        answers_file(kept.root, "other words" if change == "answers" else "dias")
    elif change == "judge":
        match = make_match(QUESTIONS, judge=replace(IDENTITY, max_tokens=1))
    elif change == "prompt":
        match = make_match(QUESTIONS, prompts=make_prompts(hard_prompt="Other."))
    elif change == "baseline":
        match = make_match(QUESTIONS, answers={BASELINE: make_answers(BASELINE, UIDS, q1="other")})
    else:
        data = path.read_bytes()
        path.write_bytes(data[:-5] if change == "torn" else b"\0" * len(data))
        long_ago(kept)
    assert reads_answers(kept, match, monkeypatch)


# Files that grow


def read(tail: FileTail, *, last: bool = False) -> bytes:
    return b"".join(data[:end] for data, end in tail.blocks(last=last))


@settings(deadline=None)
@given(st.lists(st.binary(max_size=30), max_size=6))
def test_a_file_is_read_once_in_whole_lines(tmp_path_factory: pytest.TempPathFactory, pieces: list[bytes]) -> None:
    path = tmp_path_factory.mktemp("tail") / "a.jsonl"
    tail, got, whole = FileTail(path), b"", b""
    path.touch()
    for piece in pieces:
        with path.open("ab") as file:
            file.write(piece)
        whole += piece
        got += read(tail)
        assert got == whole[:whole.rfind(b"\n") + 1]
        assert tail.torn == (len(got) < len(whole))
    assert got + read(tail, last=True) == whole + (b"" if whole.endswith(b"\n") or not whole else b"\n")


def test_lines_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.arena.counting.tails.BLOCK", 8)
    data = b"a" * 50 + b"\n" + b"b" * 5 + b"\n" + b"c" * 9
    (tmp_path / "a").write_bytes(data)
    tail = FileTail(tmp_path / "a")
    assert read(tail) == data[:57]
    assert read(tail, last=True) == b"c" * 9 + b"\n"


def test_files_that_vanish_shrink_or_are_replaced_are_noticed(tmp_path: Path) -> None:
    for change in ("vanish", "shrink", "replace"):
        folder = tmp_path / change
        path = write_lines(folder / "a.jsonl", [b"one\n", b"two\n"])
        tail = JournalTail(folder)
        grown = tail.grown()
        assert grown is not None
        assert [read(file) for file in grown] == [b"one\ntwo\n"]
        assert tail.grown() == []
        if change == "vanish":
            path.unlink()
        elif change == "shrink":
            path.write_bytes(b"one\n")
        else:
            other = write_lines(folder / "b", [b"one\n", b"two\n", b"three\n"])
            other.replace(path)
        assert tail.grown() is None


def test_a_torn_end_that_is_mended_is_no_new_file(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "j" / "a.jsonl", [b"one\n", b"tw"])
    tail = JournalTail(path.parent)
    assert [read(file) for file in tail.grown() or []] == [b"one\n"]
    path.write_bytes(b"one\n")
    grown = tail.grown()
    assert grown is not None
    assert [(read(file), file.torn) for file in grown] == [(b"", False)]


def test_no_folder_has_no_files(tmp_path: Path) -> None:
    assert JournalTail(tmp_path / "none").grown() == []
