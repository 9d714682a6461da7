"""Progress: the same counts as a full reading of all files, cold and after every change."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson
import pytest

from automate.arena import records
from automate.arena.benchmark import Answers
from automate.arena.context import load_answers, load_match
from automate.arena.counting.covered import covered, stamp_file
from automate.arena.counting.progress import Progress
from automate.arena.counting.slim import take_lines
from automate.arena.games import Game, Match, ModelStatus, count
from automate.arena.ledger import ModelLedger, rows_are_current
from automate.journal import RecordWriter
from automate.workspace import Workspace
from tests.unit.support import CATEGORIES, make_settings, record_of, write_lines

UIDS = [f"q{number}" for number in range(6)]
TAG = "base"


def write_answers(workspace: Workspace, model: str, said: str = "says", uids: list[str] | None = None) -> None:
    rows = []
    for uid in uids or UIDS:
        reply = {"role": "assistant", "content": {"answer": f"{model} {said} {uid}"}}
        rows.append({"uid": uid, "model": model, "messages": [{"role": "user", "content": "?"}, reply]})
    write_lines(workspace.answer_file(model), rows)


@pytest.fixture(params=["kept at once", "kept seldom"])
def workspace(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """Two models, a baseline and six questions; with what was counted kept after each record, or never so soon."""
    if request.param == "kept at once":
        monkeypatch.setattr("automate.arena.counting.kept.KEEP_EVERY", 1)
    settings = make_settings(bench="arena-hard-v2.0", baseline=TAG, judge={"kind": "rehearsal", "name": "j"})
    found = Workspace(tmp_path, settings, TAG)
    write_lines(found.questions, [{"uid": uid, "category": CATEGORIES[place % 2], "prompt": f"prompt {uid}"}
                                  for place, uid in enumerate(UIDS)])
    for model in (TAG, "m", "n"):
        write_answers(found, model)
    return found


def answers_of(workspace: Workspace, model: str) -> Answers:
    found = load_answers(workspace, model)
    assert found is not None
    return found


def full(workspace: Workspace, model: str) -> ModelStatus:
    """The counts by reading everything whole, as a job does."""
    match, answers = load_match(workspace), answers_of(workspace, model)
    loaded = records.load(workspace, answers, match, TAG)
    return count(model, match.wanted(answers), loaded.recorded, workspace.settings.limits.attempts)


def games_of(workspace: Workspace, model: str) -> list[Game]:
    return load_match(workspace).wanted(answers_of(workspace, model))


def progress_of(workspace: Workspace, *models: str) -> Progress:
    return Progress(workspace, load_match(workspace), models or ("m", "n"))


def check(progress: Progress) -> None:
    """A progress that followed, a new one and a full reading say the same."""
    fresh = progress_of(progress.workspace, *progress.models)
    for model, entry in progress.models.items():
        assert entry.status == full(progress.workspace, model), model
        assert fresh.models[model].status == entry.status
        due = [game.uid for game in entry.games if not entry.recorded.state(game, progress.attempts).done]
        assert entry.due_uids == due
    assert progress.due == {model: entry.status.due for model, entry in progress.models.items()}


def played(game: Game, outcome: str = "verdict", **more: object) -> dict[str, Any]:
    return {**record_of(game, outcome), "seconds": 1.5, "time": time.time(), "usage": [100, 20, 5], **more}


def row(workspace: Workspace, games: list[Game], scores: tuple[object, object], **more: object) -> dict[str, Any]:
    """A row as Arena-Hard's program writes it."""
    match = load_match(workspace)
    questions = {question.uid: question for question in match.questions}
    answers = answers_of(workspace, games[0].model)
    objects = [{"score": score, "judgment": {"answer": f"[[{score}]]"},
                "prompt": match.messages(answers, questions[game.uid], game.order)}
               for game, score in zip(games, scores, strict=True)]
    return {"uid": games[0].uid, "category": games[0].category, "judge": workspace.settings.judge.name,
            "model": games[0].model, "baseline": TAG, "games": objects, **more}


def append(path: Path, *lines: Mapping[str, Any] | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.writelines(line if isinstance(line, bytes) else orjson.dumps(line) + b"\n" for line in lines)


def rows_path(workspace: Workspace, model: str = "m") -> Path:
    return workspace.rows_file(model, TAG, TAG)


class Ledger:
    """A job's ledger of one model."""

    def __init__(self, workspace: Workspace, model: str, name: str) -> None:
        match: Match = load_match(workspace)
        self.ledger = ModelLedger(workspace, model, match, answers_of(workspace, model), 2)
        self.ledger.open(name)

    def play(self, *places: int, outcome: str = "verdict") -> None:
        for place in places:
            game = self.ledger.games[place]
            self.ledger.render(game.uid, game.order)
            self.ledger.add(game, played(game, outcome))


def test_nothing_played(workspace: Workspace) -> None:
    progress = progress_of(workspace, "m", "n", "nobody")
    assert (progress.wanted, progress.finished, progress.due) == (24, 0, {"m": 12, "n": 12, "nobody": 0})
    entry = progress.models["m"]
    assert (entry.answers, entry.empty, entry.missing, entry.problems) == (6, 0, 0, [])
    nobody = progress.models["nobody"]
    assert (nobody.answers, nobody.missing, nobody.status.wanted) == (0, 6, 0)
    assert not progress.refresh(inputs=True)


def test_a_job_is_followed_record_by_record(workspace: Workspace) -> None:
    progress = progress_of(workspace)
    job = Ledger(workspace, "m", "one")
    progress.refresh()
    for place in range(12):
        job.play(place, outcome="verdict" if place % 5 else "unparsed")
        assert progress.refresh()
        check(progress)
    job.ledger.close()
    progress.refresh()
    check(progress)
    again = Ledger(workspace, "m", "two")
    again.play(0, 5, outcome="refused")
    again.ledger.close()
    assert progress.refresh()
    check(progress)
    assert progress.nulls == {"refused": 2}


def test_limits_and_missing_answers(workspace: Workspace) -> None:
    write_answers(workspace, "n", uids=["q0", "q3", "q5"])
    progress = Progress(workspace, load_match(workspace), ("m", "n"), limit_questions=4)
    assert progress.due == {"m": 8, "n": 4}
    assert [game.uid for game in progress.models["n"].games] == ["q0", "q0", "q3", "q3"]
    assert progress.models["n"].missing == 3


def test_rows_of_a_finished_model_are_not_read(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(*range(12))
    job.ledger.close()
    path = rows_path(workspace)
    size = path.stat().st_size
    assert covered(path, size, workspace.journal("m", TAG), stamp_file(workspace, "m", TAG)) == size
    counts = "automate.arena.counting.watched_rows.WatchedRows._counts"
    monkeypatch.setattr(counts, lambda *_: pytest.fail("a row was read"))
    assert progress_of(workspace).due == {"m": 0, "n": 12}


def test_rows_of_another_baseline_are_not_read_again(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    other = Workspace(workspace.root, workspace.settings.model_copy(update={"baseline": "n"}), TAG)
    job = Ledger(workspace, "m", "one")
    job.play(*range(12))
    job.ledger.close()
    counts = "automate.arena.counting.watched_rows.WatchedRows._counts"
    monkeypatch.setattr(counts, lambda *_: pytest.fail("a row was read"))
    assert Progress(other, load_match(other), ("m",)).due == {"m": 12}


def test_rows_behind_the_mark_are_found(workspace: Workspace) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(*range(8))
    job.ledger.close()
    games = games_of(workspace, "m")
    progress = progress_of(workspace)
    append(rows_path(workspace), row(workspace, games[8:10], ("A>B", "B>A")))
    assert progress.refresh()
    check(progress)
    assert progress.due["m"] == 2
    append(rows_path(workspace), row(workspace, games[10:12], (None, "A=B")))
    assert progress.refresh()
    check(progress)
    assert progress.due["m"] == 1


@pytest.mark.parametrize("more", [
    {}, {"model": "other"}, {"judge": "other"}, {"baseline": "other"}, {"uid": "nobody"}, {"uid": 7},
])
def test_rows_of_other_programs_count_as_for_a_job(workspace: Workspace, more: dict[str, object]) -> None:
    games = games_of(workspace, "m")
    append(rows_path(workspace), row(workspace, games[:2], ("A>B", "B>A"), **more), b"no row\n",
           row(workspace, games[2:4], (None, None)), orjson.dumps(row(workspace, games[4:6], ("A>B", "bad"))))
    progress = progress_of(workspace)
    check(progress)
    loaded = records.load(workspace, answers_of(workspace, "m"), load_match(workspace), TAG)
    assert progress.models["m"].problems == loaded.problems


def test_a_null_that_another_program_finished_counts(workspace: Workspace) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(0, 0, 1, outcome="unparsed")
    job.ledger.close()
    again = Ledger(workspace, "m", "two")
    again.play(1, outcome="unparsed")
    again.ledger.close()
    progress = progress_of(workspace)
    assert progress.nulls == {"unparsed": 2}
    append(rows_path(workspace), row(workspace, games_of(workspace, "m")[:2], ("A>B", "B>A")))
    progress.refresh()
    check(progress)
    assert progress.nulls == {}


def test_rows_that_somebody_took_away_again(workspace: Workspace) -> None:
    append(rows_path(workspace), row(workspace, games_of(workspace, "m")[:2], ("A>B", "B>A")))
    progress = progress_of(workspace)
    assert progress.due["m"] == 10
    rows_path(workspace).unlink()
    assert progress.refresh()
    check(progress)
    assert progress.due["m"] == 12


def test_rows_taken_over_by_a_job_are_counted_once(workspace: Workspace) -> None:
    append(rows_path(workspace), row(workspace, games_of(workspace, "m")[:2], ("A>B", "B>A")))
    progress = progress_of(workspace)
    job = Ledger(workspace, "m", "one")
    job.play(2, 3)
    progress.refresh()
    check(progress)
    job.ledger.close()
    progress.refresh()
    check(progress)
    assert progress.due["m"] == 8


def test_a_journal_that_was_replaced_or_is_gone(workspace: Workspace) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(*range(4))
    job.ledger.close()
    progress = progress_of(workspace)
    (file,) = workspace.journal("m", TAG).glob("*.jsonl")
    rows_path(workspace).unlink()
    data = file.read_bytes().split(b"\n")
    file.write_bytes(data[0] + b"\n")
    assert progress.refresh()
    check(progress)
    assert progress.due["m"] == 11
    file.unlink()
    progress.refresh()
    check(progress)
    assert progress.due["m"] == 12


def test_changed_answers_and_questions_are_followed_on_request(workspace: Workspace) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(*range(12))
    job.ledger.close()
    progress = progress_of(workspace)
    write_answers(workspace, "m", "says now")
    assert not progress.refresh()
    assert progress.refresh(inputs=True)
    check(progress)
    assert (progress.due["m"], progress.models["m"].status.stale) == (12, 12)
    questions = workspace.questions.read_bytes().split(b"\n")
    workspace.questions.write_bytes(b"\n".join(questions[:3]) + b"\n")
    assert progress.refresh(inputs=True)
    check(progress)
    assert progress.wanted == 12


def test_bad_and_torn_lines_are_named(workspace: Workspace) -> None:
    folder = workspace.journal("m", TAG)
    path = folder / "a.jsonl"
    append(path, played(games_of(workspace, "m")[0]), b"no record\n", b"\n", b'{"source":"eng')
    progress = progress_of(workspace)
    first, second = progress.models["m"].problems
    assert first.startswith(f"{path}:2: not JSON")
    assert second == f"{path}:4: torn last line: the write was cut off"
    append(path, b'ine"}\n', b"again\n")
    progress.refresh()
    assert [line.partition(": ")[0] for line in progress.models["m"].problems] == [f"{path}:2", f"{path}:5"]
    check(progress)


def test_what_was_played_of_late(workspace: Workspace) -> None:
    games = games_of(workspace, "m")
    now = time.time()
    progress = progress_of(workspace)
    writer = RecordWriter(workspace.journal("m", TAG) / "a.jsonl")
    for place, age in enumerate((5000.0, 300.0, 30.0, 0.0)):
        writer.append(played(games[place], time=now - age))
    writer.append(played(games[4], "too_long", usage=None, time=now))
    progress.refresh()
    recent = progress.recent(100)
    assert (recent.games, recent.prompt_tokens, recent.output_tokens, recent.cached_tokens) == (3, 200, 40, 10)
    assert progress.recent(400).games == 4
    writer.append(played(games[5], time=now))
    progress.refresh()
    assert progress.recent(100).games == 4
    writer.close()


# What was counted, kept


def keep(workspace: Workspace) -> Path:
    """Count a model whose games are half played, and keep the counts; where they are."""
    job = Ledger(workspace, "m", "one")
    job.play(*range(6))
    job.play(6, outcome="unparsed")
    job.ledger.close()
    assert progress_of(workspace).due["m"] == 6
    return workspace.counts_file("m", TAG)


@pytest.fixture
def journal(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record file whose counts are kept."""
    monkeypatch.setattr("automate.arena.counting.kept.KEEP_EVERY", 1)
    assert keep(workspace).is_file()
    (file,) = workspace.journal("m", TAG).glob("*.jsonl")
    return file


def lines_read(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many lines a new process reads of the journals; it counts as a job does."""
    read: list[int] = []

    def noted(*arguments: Any) -> Any:
        told = take_lines(*arguments)
        read.append(told[0])
        return told

    monkeypatch.setattr("automate.arena.counting.progress.take_lines", noted)
    check(progress_of(workspace))
    monkeypatch.setattr("automate.arena.counting.progress.take_lines", take_lines)
    return read[0] if read else 0


def test_kept_counts_spare_the_reading(workspace: Workspace, journal: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lines_read(workspace, monkeypatch) == 0
    append(journal, played(games_of(workspace, "m")[7]), b"no record\n")
    assert lines_read(workspace, monkeypatch) == 2
    assert lines_read(workspace, monkeypatch) == 0
    assert progress_of(workspace).models["m"].problems[0].startswith(f"{journal}:9: not JSON")
    append(journal.with_name("two.jsonl"), played(games_of(workspace, "m")[6], "unparsed"))
    assert lines_read(workspace, monkeypatch) == 1
    assert progress_of(workspace).nulls == {"unparsed": 1}


@pytest.mark.parametrize("change", ["touched", "cut", "other file", "edited and longer", "gone", "garbage", "torn",
                                    "answers", "attempts", "judge"])
def test_kept_counts_in_doubt_are_not_used(workspace: Workspace, journal: Path, monkeypatch: pytest.MonkeyPatch,
                                           change: str) -> None:
    data, counts = journal.read_bytes(), workspace.counts_file("m", TAG)
    whole = len(data.splitlines())
    if change == "touched":
        os.utime(journal, (1e9, 1e9))
    elif change == "cut":
        journal.write_bytes(b"".join(data.splitlines(keepends=True)[:3]))
        whole = 3
    elif change == "other file":
        other = journal.with_suffix(".new")
        other.write_bytes(data)
        other.replace(journal)
    elif change == "edited and longer":
        journal.write_bytes(data.replace(b'"order":1', b'"order":7') + data)
        whole *= 2
    elif change == "gone":
        journal.rename(journal.with_name("elsewhere.jsonl"))
    elif change in ("garbage", "torn"):
        kept = counts.read_bytes()
        counts.write_bytes(b"\0" * len(kept) if change == "garbage" else kept[:-9])
    elif change == "answers":
        write_answers(workspace, "m", "says now")
    else:
        settings = workspace.settings
        part: dict[str, Any] = {"limits": settings.limits.model_copy(update={"attempts": 1})}
        if change == "judge":
            part = {"judge": settings.judge.model_copy(update={"max_tokens": 77})}
        workspace = Workspace(workspace.root, settings.model_copy(update=part), TAG)
    assert lines_read(workspace, monkeypatch) == whole


def test_counts_of_some_questions_only_are_not_kept(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.arena.counting.kept.KEEP_EVERY", 1)
    job = Ledger(workspace, "m", "one")
    job.play(*range(6))
    job.ledger.close()
    Progress(workspace, load_match(workspace), ("m",), limit_questions=2)
    assert not workspace.counts_file("m", TAG).exists()


def test_who_may_only_look_counts_by_himself(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.arena.counting.kept.KEEP_EVERY", 1)
    workspace.cache.parent.mkdir(parents=True)
    workspace.cache.write_text("a file where the folder would be")
    job = Ledger(workspace, "m", "one")
    job.play(*range(6))
    progress = progress_of(workspace)
    job.play(6)
    progress.refresh()
    check(progress)


# The mark of what comes from the journal


def test_a_running_job_marks_its_rows(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.arena.ledger.MARK_EVERY", 1)
    job = Ledger(workspace, "m", "one")
    job.play(*range(4))
    job.ledger.sync()
    path = rows_path(workspace)
    size = path.stat().st_size
    arguments = workspace.journal("m", TAG), stamp_file(workspace, "m", TAG)
    assert covered(path, size, *arguments) == size > 0
    assert not rows_are_current(workspace, "m", job.ledger.games, job.ledger.recorded)
    append(path, row(workspace, job.ledger.games[8:10], ("A>B", "B>A")))
    job.play(4, 5)
    job.ledger.sync()
    assert covered(path, path.stat().st_size, *arguments) == size
    check(progress_of(workspace))
    job.ledger.close()
    assert covered(path, path.stat().st_size, *arguments) == 0
    check(progress_of(workspace))


@pytest.mark.parametrize("change", ["cut", "edited", "no journal", "older mark", "foreign"])
def test_in_doubt_nothing_is_known_of_rows(workspace: Workspace, change: str) -> None:
    job = Ledger(workspace, "m", "one")
    job.play(*range(12))
    job.ledger.close()
    path, mark, journal = rows_path(workspace), stamp_file(workspace, "m", TAG), workspace.journal("m", TAG)
    names = None
    if change == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif change == "edited":
        path.write_bytes(path.read_bytes().replace(b"A>B", b"B>A"))
    elif change == "no journal":
        for file in journal.glob("*.jsonl"):
            file.unlink()
    elif change == "older mark":
        mark.write_bytes(orjson.dumps({"stamp": "x", "bytes": path.stat().st_size}))
    else:
        names = {TAG}
    assert covered(path, path.stat().st_size, journal, mark, names) == 0
