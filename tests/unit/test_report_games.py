"""Texts of games for the report: read from every dialect, packed so that they fit, nothing lost on the way."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from automate.results.reporting.content import PackedGames
from automate.results.reporting.games import read_answer_texts, read_duels, read_question_texts, verdict_of
from automate.results.reporting.pack import MAX_TEXT, Sources, gzip_lines, pack_games
from tests.unit.report_support import BASE, DOWN, HOSTILE, LEVEL, SPLIT, UP, lines_of, write_bench, write_rows


def _sources(root: Path, labels: Sequence[tuple[str | None, str | None]], **more: object) -> Sources:
    folder = write_bench(root, {"one": list(labels), "two": list(labels[::-1])}, **more)  # type: ignore[arg-type]
    files = {name: [(0, folder.judgments / "the-judge" / f"{name}.jsonl")] for name in ("one", "two")}
    return Sources(folder, ("the-judge",), files, (BASE,))


@pytest.mark.parametrize(("label", "first", "second"), [
    ("A>>B", -2, 2), ("A>B", -1, 1), ("A=B", 0, 0), ("B>A", 1, -1), ("B>>A", 2, -2), ("B<<A", -2, 2), ("A<<B", 2, -2),
    ("B=A", 0, 0), ("A", -1, 1), ("B", 1, -1), ("C", None, None), (None, None, None), (3, None, None)])
def test_a_label_is_seen_from_the_model(label: object, first: int | None, second: int | None) -> None:
    assert (verdict_of(label, 1), verdict_of(label, 2)) == (first, second)


def test_rows_of_all_dialects(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    write_rows(file, [
        {"uid": "agree", "baseline": "b", "category": "c", "games": [{"score": "B>A", "judgment": {"answer": "new"}},
                                                                      {"score": "A>B", "judgment": "shipped"}]},
        {"question_id": "old", "games": [{"score": "A>B", "user_prompt": "p", "judgment": "first"},
                                         {"score": "A>B", "user_prompt": "p", "judgment": "second"}]},
        {"uid": 7, "games": [None, {"score": None, "judgment": {"answer": "", "reason": "too long"}}]},
        {"uid": "one game", "games": [{"score": "A=B"}]}, {"uid": "no games"}, {"games": []},
    ])
    with file.open("a") as out:
        out.write("[1]\nnot json\n{\"uid\": \"torn")
    duels = read_duels([(3, file)])
    assert [duel.uid for duel in duels] == ["old", "7", "one game", "agree"]
    old, seven, single, agree = (duel.told[0] for duel in duels)
    assert (old.verdicts, old.words) == ((-1, 1), ("first", "second"))
    assert (seven.verdicts, seven.words) == ((None, None), ("", "too long"))
    assert single.labels == ("A=B", None)
    assert (agree.judge, agree.words, agree.verdicts) == (3, ("new", "shipped"), (1, 1))


def test_only_games_against_the_baseline_and_of_the_category(tmp_path: Path) -> None:
    file = tmp_path / "m.jsonl"
    write_rows(file, [{"uid": f"{kind}-{base}", "category": kind, "baseline": base, "games": [{"score": "A=B"}] * 2}
                      for kind in ("x", "y") for base in ("b", "other")])
    assert [duel.uid for duel in read_duels([(0, file)], "b", "y")] == ["y-b"]
    assert len(read_duels([(0, file)])) == 4


def test_without_answers_what_the_judge_was_given_is_kept(tmp_path: Path) -> None:
    sources = _sources(tmp_path, [UP, SPLIT], answers=False)
    (_, file), = sources.files["one"]
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "both answers"}]
    write_rows(file, [{"uid": "new", "games": [{"score": "A>B", "prompt": messages}, {"score": "A>B"}]},
                      {"question_id": "old", "games": [{"score": "A=B", "user_prompt": "old prompt"}]},
                      {"uid": "none", "games": [None, {"score": "A=B"}]}])
    given = {entry["u"]: entry.get("p") for entry in lines_of(pack_games(sources).models[0].data)}
    assert given == {"new": "both answers", "old": "old prompt", "none": None}
    write_rows(sources.folder.answers / "one.jsonl", [{"uid": "new", "messages": [{"content": "an answer"}]}])
    assert all("p" not in entry for entry in lines_of(pack_games(sources).models[0].data))


def test_of_two_rows_the_last_whole_one_counts(tmp_path: Path) -> None:
    labels = [("A>B", "A>B"), ("B>A", "A>B"), ("B>A", None)]
    write_rows(tmp_path / "m.jsonl", [{"uid": "q", "games": [{"score": label} for label in both]} for both in labels])
    (duel,) = read_duels([(0, tmp_path / "m.jsonl")])
    assert [told.labels for told in duel.told] == [("B>A", "A>B")]


def test_several_judges_stand_beside_each_other(tmp_path: Path) -> None:
    for name, label in (("a", "A>B"), ("b", "B>A")):
        write_rows(tmp_path / f"{name}.jsonl", [{"uid": "q", "baseline": "b", "games": [{"score": label}] * 2}])
    (duel,) = read_duels([(0, tmp_path / "a.jsonl"), (1, tmp_path / "b.jsonl")])
    assert [told.judge for told in duel.told] == [0, 1]


def test_texts_of_both_dialects(tmp_path: Path) -> None:
    write_rows(tmp_path / "a.jsonl", [{"question_id": "q", "choices": [{"turns": [{"content": "old"}]}]},
                                      {"uid": "r", "messages": [{"content": {"answer": "new"}}]},
                                      {"uid": "s", "messages": [{"content": "plain"}]}, {"uid": "t", "messages": []}])
    write_rows(tmp_path / "q.jsonl", [{"question_id": "q", "turns": [{"content": "old?"}]},
                                      {"uid": "r", "prompt": "?"}])
    assert read_answer_texts(tmp_path / "a.jsonl") == {"q": "old", "r": "new", "s": "plain"}
    assert read_question_texts(tmp_path / "q.jsonl") == {"q": "old?", "r": "?"}
    assert read_answer_texts(tmp_path / "none.jsonl") == {}


def test_every_text_comes_back_as_it_was(tmp_path: Path) -> None:
    packed = pack_games(_sources(tmp_path, [UP] * len(HOSTILE), texts=HOSTILE))
    shared = {entry["u"]: entry for entry in lines_of(packed.shared)}
    for number, entry in enumerate(sorted(lines_of(packed.models[0].data), key=lambda entry: str(entry["u"]))):
        assert entry["a"] == HOSTILE[number]
        assert shared[entry["u"]]["p"] == f"{entry['u']} {HOSTILE[number]}"
        assert shared[entry["u"]]["a"] == [HOSTILE[number]]
        assert entry["g"][0]["w"] == [f"{HOSTILE[number]} [[{label}]]" for label in UP]
        assert entry["g"][0]["v"] == [1, 1]


def test_disagreements_come_first_and_are_counted(tmp_path: Path) -> None:
    packed = pack_games(_sources(tmp_path, [UP, DOWN, (None, "A>B"), LEVEL, SPLIT, ("A=B", "A>B")]), limit=3)
    one = packed.models[0]
    assert [entry["u"] for entry in lines_of(one.data)] == ["u004", "u005", "u002"]
    assert (one.included, one.questions, one.disagreements, one.included_disagreements) == (3, 6, 1, 1)
    assert (packed.included, packed.questions) == (6, 12)
    needed = {entry["u"] for model in packed.models for entry in lines_of(model.data)}
    assert {entry["u"] for entry in lines_of(packed.shared)} == needed


def _size(packed: PackedGames) -> int:
    return sum(len(model.data) for model in packed.models) + len(packed.shared)


def test_what_has_no_room_is_left_out(tmp_path: Path) -> None:
    noise = random.Random(0)
    texts = ["".join(noise.choices("abcdefghijklmnopqrstuvwxyz ", k=3000)) for _ in range(120)]
    sources = _sources(tmp_path, [UP] * 60 + [SPLIT] * 60, texts=texts)
    whole = pack_games(sources, room=None)
    room = _size(whole) * 3 // 4  # of base64: a little more than half of it fits
    part = pack_games(sources, room=room)
    assert whole.included == 240
    assert 60 < part.included < 180
    assert _size(part) <= room * 3 // 4
    assert all(model.included_disagreements == min(60, model.included) for model in part.models)
    assert pack_games(sources, room=0).included == 0


def test_a_long_text_is_cut_and_says_so(tmp_path: Path) -> None:
    packed = pack_games(_sources(tmp_path, [UP], texts=["x" * (MAX_TEXT + 5)], answers=True))
    (entry,) = lines_of(packed.models[0].data)
    assert entry["a"].startswith("x" * MAX_TEXT + "\n")
    assert f"of {MAX_TEXT + 5:,} characters" in entry["a"]
    assert packed.cut == 8  # of two models: answer and both verdicts; of all: question and baseline's answer


def test_data_without_texts_says_so(tmp_path: Path) -> None:
    sources = _sources(tmp_path, [UP, SPLIT], answers=False)
    assert not pack_games(sources).answers
    for files in sources.files.values():
        write_rows(files[0][1], [{"uid": "u000", "games": [{"score": "A>B"}, {"score": "A>B"}]}])
    packed = pack_games(sources)
    assert not packed.texts
    assert packed.included == 2
    assert pack_games(sources, limit=0).models == ()


def test_the_same_texts_give_the_same_bytes(tmp_path: Path) -> None:
    sources = _sources(tmp_path, [UP, SPLIT] * 20, texts=HOSTILE)
    assert pack_games(sources) == pack_games(sources)


def test_lines_end_where_the_room_ends() -> None:
    data, count = gzip_lines([b"a" * 100 + b"\n"] * 50, room=120)
    assert 0 < count < 50
    assert len(lines_of(gzip_lines([b'{"a":1}\n'] * 3)[0])) == 3
    assert len(data) < 120
