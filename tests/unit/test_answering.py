"""Answers of models: what counts as answered, what is due, the rows that are written, and how they are counted."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import types
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate.arena.answering import tokens
from automate.arena.answering.author import Answer, read_reply
from automate.arena.answering.candidates import REHEARSAL, Candidate, candidates
from automate.arena.answering.due import AnswerStatus, answer_status
from automate.arena.answering.effective import generation_settings, longest_answer
from automate.arena.answering.ledger import AnswerLedger, make_row, mend_answers
from automate.arena.answering.recorded import counts_for, due_of, prompt_sha
from automate.arena.answering.style_counts import counts
from automate.arena.answering.tokens import SERVED, Counter, counter, found_file
from automate.arena.benchmark import Question, read_answers, read_questions
from automate.campaign.keeping.archive import entries
from automate.errors import ClaimedError
from automate.journal import Record
from automate.serving.client import Reply
from automate.workspace import Workspace
from tests.unit.support import make_questions, make_settings, make_workspace, real_data, write_lines

QUESTIONS = make_questions(4)
MODEL = "m"
UPSTREAM_KEYS = ["uid", "ans_id", "model", "messages", "tstamp", "metadata"]


def row(uid: str, text: str = "an answer", *, prompt: str | None = None, **more: Any) -> dict[str, Any]:
    """A row as upstream writes it."""
    asked = f"prompt {uid[1:]}" if prompt is None else prompt
    return {"uid": uid, "ans_id": "x", "model": MODEL, "messages": [
        {"role": "user", "content": asked}, {"role": "assistant", "content": {"answer": text}}], "tstamp": 1.0, **more}


def record(question: Question, weights: str | None = REHEARSAL, **more: Any) -> Record:
    """A record as the engine writes it."""
    due = due_of(MODEL, question, weights)
    return {"source": "engine", "key": due.key, "model": MODEL, "uid": due.uid, "category": due.category,
            "prompt_sha": due.prompt_sha, "outcome": "answer", "answer": f"said to {due.uid}", "token_len": 3,
            "tokenizer": SERVED, "weights": weights, "ans_id": "id", "time": 2.0, "finish": "stop", **more}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    made = make_workspace(tmp_path, generate={"kind": "rehearsal"})
    write_lines(made.questions, [{"uid": q.uid, "category": q.category, "prompt": q.prompt} for q in QUESTIONS])
    return made


def ledger(workspace: Workspace, weights: str | None = REHEARSAL) -> AnswerLedger:
    return AnswerLedger(workspace, Candidate(MODEL, None, weights=weights), QUESTIONS, 2)


def status(workspace: Workspace, limit: int | None = None) -> AnswerStatus:
    return answer_status(workspace, QUESTIONS, MODEL, limit)


def file_rows(workspace: Workspace) -> list[dict[str, Any]]:
    file = workspace.answer_file(MODEL)
    return [json.loads(line) for line in file.read_bytes().split(b"\n") if line] if file.exists() else []


# --- style -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "part", "wanted"), [
    ("# a\n## b\n### c\n #d\n#e", "header_count", {"h1": 1, "h2": 1, "h3": 1, "h4": 0, "h5": 0, "h6": 0}),
    ("1. a\n  2. b\n- c\n* d\n+ e\n1) f\n-g", "list_count", {"ordered": 2, "unordered": 3}),
    ("**a** __b__ **c\nd****", "bold_count", {"**": 1, "__": 1}),
    ("```\n# no\n- no\n```\n# yes", "header_count", {"h1": 1, "h2": 0, "h3": 0, "h4": 0, "h5": 0, "h6": 0}),
    ("", "bold_count", {"**": 0, "__": 0}),
])
def test_style_is_counted_as_upstream_does(text: str, part: str, wanted: dict[str, int]) -> None:
    assert counts(text, 7)[part] == wanted


def test_what_stands_in_a_code_block_is_taken_out_wherever_it_stands() -> None:
    assert counts("```- x\n```\n- x\n", 0)["list_count"] == {"ordered": 0, "unordered": 0}
    assert list(counts("", 0)) == ["token_len", "header_count", "list_count", "bold_count"]


def test_the_real_answers_are_counted_as_their_files_say() -> None:
    folder = real_data("arena-hard-auto", "data", "arena-hard-v2.0", "model_answer")
    seen = 0
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                found = json.loads(line)
                said = found["metadata"]
                ours = counts(found["messages"][-1]["content"]["answer"], said["token_len"])
                assert json.dumps(ours) == json.dumps(said), f"{path.name}: {found['uid']}"
                seen += 1
    assert seen == 3000


# --- tokens ------------------------------------------------------------------------------------------------------


def test_tokens_are_the_servers_where_no_tokenizer_is_there(tmp_path: Path) -> None:
    found = counter("o200k_base", None, tmp_path, {})
    assert (found.name, found.count("four words of text", 5), found.count("", 1)) == (SERVED, 5, 0)
    assert "generate.tokenizer_folder" in str(found.notice)
    assert "no whole file" in str(counter("o200k_base", str(tmp_path), tmp_path, {}).notice)
    assert "not known" in str(counter("p50k_base", str(tmp_path), tmp_path, {}).notice)


def test_a_broken_tokenizer_file_is_never_used(tmp_path: Path) -> None:
    name = hashlib.sha1(b"https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken",
                        usedforsecurity=False).hexdigest()
    (tmp_path / name).write_bytes(b"IQ== 0\n")
    assert found_file("o200k_base", tmp_path) is None
    assert counter("o200k_base", None, tmp_path, {"TIKTOKEN_CACHE_DIR": str(tmp_path)}).name == SERVED


def test_a_tokenizer_that_is_there_counts_and_nothing_is_left_behind(tmp_path: Path,
                                                                      monkeypatch: pytest.MonkeyPatch) -> None:
    name, seen = tokens._FILES["o200k_base"][0], list[str]()
    (tmp_path / "o200k_base.tiktoken").write_bytes(b"the file")
    monkeypatch.setitem(tokens._FILES, "o200k_base", (name, hashlib.sha256(b"the file").hexdigest()))

    class Encoding:
        def encode(self, text: str, *, disallowed_special: tuple[str, ...]) -> list[str]:
            assert disallowed_special == ()
            return text.split()

    def get_encoding(encoding: str) -> Encoding:
        seen.append((Path(os.environ["TIKTOKEN_CACHE_DIR"]) / name).read_text())
        return Encoding()

    stand_in = types.ModuleType("tiktoken")
    stand_in.get_encoding = get_encoding  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tiktoken", stand_in)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "/users/own")
    found = counter("o200k_base", str(tmp_path), tmp_path)
    assert (found.name, found.count("four words of text", 99), found.notice) == ("o200k_base", 4, None)
    assert seen == ["the file"]
    assert os.environ["TIKTOKEN_CACHE_DIR"] == "/users/own"


# --- replies -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("content", "reasoning", "finish", "wanted"), [
    ("  kept as it is \n", None, "stop", Answer("  kept as it is \n", "")),
    (None, None, "stop", Answer("", "")),
    ("yes", "why", "stop", Answer("yes", "why")),
    ("<think>why</think>\nyes", None, "stop", Answer("yes", "why")),
    ("<think>never ends", None, "length", Answer("", "never ends")),
    ("why</think>yes", None, "stop", Answer("yes", "why", headless=True)),
])
def test_thoughts_are_set_apart_from_the_answer(content: str | None, reasoning: str | None, finish: str,
                                                wanted: Answer) -> None:
    assert read_reply(Reply(content, finish, 1, 1, 0, reasoning=reasoning)) == wanted


def test_a_thought_without_a_beginning_that_is_cut_off_is_no_answer() -> None:
    reply = Reply("thinking on and on", "length", 1, 1, 0)
    assert read_reply(reply).text == "thinking on and on"
    assert read_reply(reply, headless=True) == Answer("", "thinking on and on", headless=True)


# --- what counts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("made", "now", "counted"), [
    (None, "w", True), ("w", "w", True), ("v", "w", False), ("w", None, True), (None, None, True),
    (REHEARSAL, "w", False), (REHEARSAL, None, False), (REHEARSAL, REHEARSAL, True), ("w", REHEARSAL, True),
])
def test_answers_count_for_the_weights_that_made_them(made: str | None, now: str | None, counted: bool) -> None:
    assert counts_for(made, now) is counted


def test_rows_of_other_programs_count_and_the_rest_is_due(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [
        row("q0"), row("q1", ""), row("q1", "twice"), row("q2", prompt="another text"), row("q9"), b"{torn"])
    found = status(workspace)
    assert (found.wanted, found.done, found.due, found.stale) == (4, 2, 2, 1)
    assert (found.empty, found.duplicates, found.unknown, len(found.problems)) == (0, 1, 1, 1)
    assert found.why_stale == {"another question text": 1}
    assert status(workspace, 2).due == 0
    assert status(workspace, 2).wanted == 2


def test_rows_of_the_older_format_count(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [
        {"question_id": "q0", "model_id": MODEL, "choices": [{"index": 0, "turns": [{"content": ""}]}]}])
    assert (status(workspace).done, status(workspace).empty) == (1, 1)


def test_a_model_without_a_file_is_due_as_a_whole(workspace: Workspace) -> None:
    assert (status(workspace).done, status(workspace).due) == (0, 4)


def test_rehearsed_answers_are_due_to_a_real_model(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [row("q0", flock_hpc={"rehearsal": True}), row("q1")])
    assert (status(workspace).done, status(workspace).rehearsed) == (2, 1)
    real = replace(workspace, settings=make_settings(generate={"kind": "vllm"}))
    assert (status(real).done, status(real).why_stale) == (1, {"rehearsed": 1})
    assert read_answers(workspace.answer_file(MODEL), MODEL).rehearsed == 1


# --- the ledger --------------------------------------------------------------------------------------------------


def test_a_row_is_upstreams_with_its_provenance_behind(workspace: Workspace) -> None:
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[0], REHEARSAL), record(QUESTIONS[0], thought="hm", system="be brief",
                                                           rehearsal=True))
    found = file_rows(workspace)[0]
    assert list(found) == [*UPSTREAM_KEYS, "flock_hpc"]
    assert found["messages"] == [
        {"role": "system", "content": "be brief"}, {"role": "user", "content": "prompt 0"},
        {"role": "assistant", "content": {"answer": "said to q0", "thought": "hm"}}]
    assert found["metadata"]["token_len"] == 3
    assert found["flock_hpc"]["tokenizer"] == SERVED
    assert found["flock_hpc"]["rehearsal"] is True
    own.close()


def test_the_answer_file_is_in_the_order_of_the_questions_at_the_end(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [row("q2"), row("q9")])
    own = ledger(workspace)
    own.open("w1")
    for index in (3, 0, 1):
        own.add(due_of(MODEL, QUESTIONS[index], REHEARSAL), record(QUESTIONS[index]))
    assert [one["uid"] for one in file_rows(workspace)] == ["q2", "q9", "q3", "q0", "q1"]
    own.close()
    assert [one["uid"] for one in file_rows(workspace)] == ["q0", "q1", "q2", "q3", "q9"]
    assert not workspace.superseded.exists()


def test_a_row_that_counts_stays_byte_for_byte(workspace: Workspace) -> None:
    line = json.dumps(row("q1", "mine \u2028 own"), ensure_ascii=False).encode() + b"\n"
    write_lines(workspace.answer_file(MODEL), [line])
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[0], REHEARSAL), record(QUESTIONS[0]))
    own.close()
    assert workspace.answer_file(MODEL).read_bytes().split(b"\n")[1] + b"\n" == line


def test_what_does_not_count_leaves_and_the_old_file_is_kept(workspace: Workspace) -> None:
    rows: list[dict[str, Any] | bytes] = [row("q0", "kept"), row("q1", "old", prompt="another text"), b"not JSON\n"]
    write_lines(workspace.answer_file(MODEL), rows)
    before = workspace.answer_file(MODEL).read_bytes()
    own = ledger(workspace)
    own.open("w1")
    assert [one["uid"] for one in file_rows(workspace)] == ["q0"]
    assert [due.uid for due in own.due({"q0", "q1"})] == ["q1"]
    own.close()
    kept = list(workspace.superseded.glob("*/model_answer/m.jsonl"))
    assert [path.read_bytes() for path in kept] == [before]


def test_the_journal_fills_what_the_answer_file_lost(workspace: Workspace) -> None:
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[1], REHEARSAL), record(QUESTIONS[1]))
    own.close()
    whole = workspace.answer_file(MODEL).read_bytes()
    workspace.answer_file(MODEL).write_bytes(whole[:-20])  # as a crash leaves it
    found = status(workspace)
    assert (found.done, found.unwritten, found.due) == (1, 1, 3)
    mend_answers(workspace, QUESTIONS, MODEL)
    assert workspace.answer_file(MODEL).read_bytes() == whole
    assert status(workspace).unwritten == 0


def test_a_torn_record_is_due_again(workspace: Workspace) -> None:
    own = ledger(workspace)
    own.open("w1")
    for question in QUESTIONS[:2]:
        own.add(due_of(MODEL, question, REHEARSAL), record(question))
    own.close()
    file = workspace.answer_journal(MODEL) / "w1.jsonl"
    file.write_bytes(file.read_bytes()[:-9])
    workspace.answer_file(MODEL).unlink()
    again = ledger(workspace)
    again.open("w2")
    assert [due.uid for due in again.due({"q0", "q1"})] == ["q1"]
    assert any("mended" in note for note in again.notes)
    assert file.read_bytes().endswith(b"\n")
    again.close()


def test_mending_takes_double_rows_out_and_leaves_what_is_to_be_replaced(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [row("q0", "first"), row("q0", "last"), row("q1", prompt="other")])
    assert mend_answers(workspace, QUESTIONS, MODEL)
    assert [(one["uid"], one["messages"][-1]["content"]["answer"]) for one in file_rows(workspace)] == [
        ("q0", "last"), ("q1", "an answer")]
    assert mend_answers(workspace, QUESTIONS, MODEL) == []


def test_mending_leaves_a_model_alone_that_is_being_written(workspace: Workspace) -> None:
    from automate import claims

    with_claim = claims.take(workspace.answer_claim(MODEL), stale=90, job_alive=lambda job: None)
    with pytest.raises(ClaimedError):
        mend_answers(workspace, QUESTIONS, MODEL)
    with_claim.release()


def test_a_linked_answer_file_is_written_where_it_lies(workspace: Workspace, tmp_path: Path) -> None:
    real, file = tmp_path / "elsewhere" / "mine.jsonl", workspace.answer_file(MODEL)
    write_lines(real, [row("q2"), row("q0", prompt="another text")])
    before = real.read_bytes()
    file.parent.mkdir(parents=True)
    file.symlink_to(real)
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[1], REHEARSAL), record(QUESTIONS[1]))
    own.close()
    assert file.is_symlink()
    assert [json.loads(line)["uid"] for line in real.read_bytes().splitlines()] == ["q1", "q2"]
    assert [path.name for path in real.parent.iterdir()] == ["mine.jsonl"]
    assert [path.read_bytes() for path in workspace.superseded.glob("*/model_answer/m.jsonl")] == [before]


def test_a_byte_order_mark_never_gets_into_the_middle_and_windows_lines_stay_valid(workspace: Workspace) -> None:
    lines = [json.dumps(row(uid, f"said {uid}")).encode() + b"\r\n" for uid in ("q3", "q1")]
    write_lines(workspace.answer_file(MODEL), [b"\xef\xbb\xbf" + lines[0], lines[1]])
    assert (status(workspace).done, status(workspace).problems) == (2, ())
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[2], REHEARSAL), record(QUESTIONS[2]))
    own.close()
    assert b"\xef\xbb\xbf" not in workspace.answer_file(MODEL).read_bytes()
    assert [one["uid"] for one in file_rows(workspace)] == ["q1", "q2", "q3"]
    assert not workspace.superseded.exists(), "no answer left the file"
    assert mend_answers(workspace, QUESTIONS, MODEL) == []


def test_a_byte_order_mark_that_is_in_the_middle_is_mended(workspace: Workspace) -> None:
    write_lines(workspace.answer_file(MODEL), [row("q0"), b"\xef\xbb\xbf" + json.dumps(row("q1")).encode() + b"\n"])
    assert mend_answers(workspace, QUESTIONS, MODEL)
    assert [one["uid"] for one in file_rows(workspace)] == ["q0", "q1"]


def test_a_job_that_got_no_answer_leaves_no_empty_file(workspace: Workspace) -> None:
    for number, rows in enumerate(([], [row("q0", prompt="another text")])):
        if rows:
            write_lines(workspace.answer_file(MODEL), rows)
        own = ledger(workspace)
        own.open(f"w{number}")
        assert workspace.answer_file(MODEL).read_bytes() == b""
        own.close()
        assert not workspace.answer_file(MODEL).exists()
    assert list(workspace.superseded.glob("*/model_answer/m.jsonl")), "what was there is kept"


def test_an_answer_file_that_somebody_removed_ends_no_job(workspace: Workspace) -> None:
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[0], REHEARSAL), record(QUESTIONS[0]))
    workspace.answer_file(MODEL).unlink()
    own.close()
    assert [one["uid"] for one in file_rows(workspace)] == ["q0"]


def test_a_folder_in_place_of_the_answer_file_is_named(workspace: Workspace) -> None:
    workspace.answer_file(MODEL).mkdir(parents=True)
    found = status(workspace)
    assert (found.done, found.due, len(found.problems)) == (0, 4, 1)
    assert str(workspace.answer_file(MODEL)) in found.problems[0]
    good, bad = candidates(workspace, [MODEL, "other"])
    assert [one.model for one in good] == ["other"]
    assert [(one.model, one.where) for one in bad] == [(MODEL, str(workspace.answer_file(MODEL)))]


@pytest.mark.parametrize(("tries", "failed", "due"), [(1, {}, 4), (2, {"too_long": 1}, 3)])
def test_a_question_is_given_up_after_its_attempts(workspace: Workspace, tries: int, failed: dict[str, int],
                                                   due: int) -> None:
    for number in range(tries):
        own = ledger(workspace)
        own.open(f"w{number}")
        own.add(due_of(MODEL, QUESTIONS[2], REHEARSAL), record(QUESTIONS[2], outcome="too_long", answer=None))
        own.close()
    found = status(workspace)
    assert (dict(found.failed), found.due, found.done) == (failed, due, 0)
    assert file_rows(workspace) == []


def test_an_answer_of_other_weights_is_due_again(workspace: Workspace) -> None:
    own = ledger(workspace, "old weights")
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[0], "old weights"), record(QUESTIONS[0], "old weights"))
    own.close()
    new = ledger(workspace, "new weights")
    new.open("w2")
    assert [due.uid for due in new.due({"q0"})] == ["q0"]
    assert file_rows(workspace) == []
    new.close()
    back = ledger(workspace, "old weights")
    back.open("w3")
    assert back.due({"q0"}) == []
    assert [one["uid"] for one in file_rows(workspace)] == ["q0"]
    back.close()


def test_a_row_of_a_record_needs_nothing_but_the_record() -> None:
    question = Question("q", "c", "text with \u2028 and \U0001f600")
    line = make_row(record(question), question.prompt)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert json.loads(line)["messages"][0]["content"] == question.prompt
    assert prompt_sha(question.prompt) != prompt_sha(question.prompt + " ")


# --- settings ----------------------------------------------------------------------------------------------------


def test_a_generation_job_has_its_own_settings_in_the_usual_places() -> None:
    settings = make_settings(
        batch_size=10, slurm={"time": "02:00:00", "gpus": 4, "gres": "gpu:h100:4", "mem": "64G"},
        judge={"name": "j", "staging": {"folder": "/scratch"}, "environment": {"venv": "/judge"}},
        generate={"batch_size": 3, "slurm": {"time": "08:00:00", "gpus": 1}, "server": {"max_model_len": 4096},
                  "max_tokens": 100, "kind": "vllm"})
    own = generation_settings(settings)
    assert (own.slurm.time, own.slurm.gpus, own.slurm.gres, own.slurm.mem) == ("08:00:00", 1, None, "64G")
    assert (own.batch_size, own.judge.server.max_model_len, own.judge.max_tokens) == (3, 4096, 100)
    assert (own.judge.environment.venv, own.judge.staging.folder, own.judge.name) == ("/judge", None, "j")
    assert generation_settings(own) == own
    assert generation_settings(make_settings(judge={"kind": "rehearsal"})).judge.kind == "vllm"


def test_a_rehearsal_enters_no_environment() -> None:
    own = generation_settings(make_settings(judge={"environment": {"venv": "/x"}}, generate={"kind": "rehearsal"}))
    assert (own.judge.kind, own.judge.environment.venv) == ("rehearsal", None)


def test_the_longest_answer_is_learnt_from_generation_jobs_only() -> None:
    runs: list[dict[str, Any]] = [{"kind": "generate", "game_seconds": {"p95": 4.0}}, {"game_seconds": {"p95": 9.0}},
            {"kind": "generate"}, {"kind": "generate", "game_seconds": {"p95": 6.0}}]
    assert longest_answer(runs) == 6.0
    assert longest_answer([]) == 0.0


def test_all_real_answers_count_as_answered() -> None:
    folder = real_data("arena-hard-auto")
    own = make_workspace(folder.parent)
    questions = read_questions(own.questions, "arena-hard-v2.0")
    found = answer_status(own, questions, "tulu3-8b-rank64-alpha1e5-001-step48000")
    assert (found.done, found.due, found.empty, found.stale, found.problems) == (750, 0, 169, 0, ())


def test_a_counter_counts_nothing_in_an_empty_answer() -> None:
    assert Counter("x", len).count("", 9) == 0
    assert Counter("x", len).count("abc", 9) == 3


def test_an_archive_holds_the_records_of_answers(workspace: Workspace) -> None:
    own = ledger(workspace)
    own.open("w1")
    own.add(due_of(MODEL, QUESTIONS[0], REHEARSAL), record(QUESTIONS[0]))
    own.close()
    names = {entry.name for entry in entries(workspace, answers=False)}
    assert "answers/arena-hard-v2.0/m/w1.jsonl" in names
