"""The audit: counts of small files made by hand, cause by cause; the records decide what counts."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from automate.arena import audit_words
from automate.arena.audit import CHANGED, NOT_JUDGED, TO_RETRY, Audit, GamesAudit, ModelAudit, audit
from automate.arena.audit_answers import AnswersAudit, State
from automate.arena.audit_lists import LISTS, list_text, write_lists
from automate.arena.audit_mend import mend_answers, mend_judgments
from automate.arena.audit_rows import BAD_LABEL, NULLS, ONE_GAME, OTHER
from automate.arena.audit_words import answers_faults, games_faults
from automate.arena.benchmark import read_models_file, read_questions
from automate.arena.context import load_answers, load_match
from automate.arena.games import Game
from automate.arena.ledger import ModelLedger
from automate.journal import fresh_name
from automate.names import baseline_tag
from automate.workspace import Workspace
from tests.unit.audit_support import read_rows, write_rows
from tests.unit.support import CATEGORIES, ROOT, make_settings, real_data, record_of, write_lines

TAG = "base"
UIDS = [f"q{number}" for number in range(6)]
Scores = tuple[object, object]


def answer_row(model: str, uid: str, said: str = "says", asked: str | None = None) -> dict[str, Any]:
    question = f"prompt {uid}" if asked is None else asked
    return {"uid": uid, "model": model, "messages": [
        {"role": "user", "content": question},
        {"role": "assistant", "content": {"answer": f"{model} {said} {uid}" if said else ""}}]}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """A model, a baseline and six questions."""
    settings = make_settings(bench="arena-hard-v2.0", baseline=TAG, judge={"kind": "rehearsal", "name": "j"},
                             limits={"claim_stale": 1})
    found = Workspace(tmp_path, settings, TAG)
    write_lines(found.questions, [{"uid": uid, "category": CATEGORIES[place % 2], "prompt": f"prompt {uid}"}
                                  for place, uid in enumerate(UIDS)])
    for model in (TAG, "m"):
        write_lines(found.answer_file(model), [answer_row(model, uid) for uid in UIDS])
    return found


def row(workspace: Workspace, uid: str, scores: Sequence[object] = ("A>B", "B>A"), **more: object) -> dict[str, Any]:
    """A row as Arena-Hard's program writes it; a score that is a dict is the whole game."""
    match, answers = load_match(workspace), load_answers(workspace, "m")
    assert answers is not None
    question = next(question for question in match.questions if question.uid == uid)
    prompts = [match.messages(answers, question, order) for order in (1, 2)]
    games = [None if score == "null" else score if isinstance(score, dict) else
             {"score": score, "judgment": {"answer": f"[[{score}]]"}, "prompt": prompt}
             for score, prompt in zip(scores, prompts, strict=False)]
    return {"uid": uid, "category": question.category, "judge": workspace.settings.judge.name, "model": "m",
            "baseline": TAG, "games": games, **more}


def rows_path(workspace: Workspace) -> Path:
    return workspace.rows_file("m", TAG, TAG)


def put(workspace: Workspace, *rows: dict[str, Any], tail: bytes = b"") -> bytes:
    """Write the model's judgment file; its bytes."""
    write_rows(rows_path(workspace), rows, tail)
    return rows_path(workspace).read_bytes()


def games(workspace: Workspace, limit: int | None = None) -> GamesAudit:
    """The model's games; what they add up to always holds."""
    found = audit(workspace, ["m"], limit).models[0].games
    assert found.done + found.final + found.due + found.unanswered == found.wanted
    assert sum(found.causes.values()) == found.due
    return found


def answers(workspace: Workspace, model: str = "m") -> AnswersAudit:
    found = audit(workspace, [model]).models[0].answers
    assert found.done + found.due + found.given_up == found.wanted
    return found


def play(workspace: Workspace, outcome: str = "verdict", times: int = 1, uids: Sequence[str] = UIDS) -> list[Game]:
    """Play what is due of these questions, as a job does."""
    match, mine = load_match(workspace), load_answers(workspace, "m")
    assert mine is not None
    ledger = ModelLedger(workspace, "m", match, mine, workspace.settings.limits.attempts)
    ledger.open(fresh_name("played"))
    due = ledger.due(set(uids))
    for game in due:
        for _ in range(times):
            ledger.add(game, {**record_of(game, outcome), "reason": "so it was", "seconds": 1.0})
    ledger.close()
    return due


def superseded(workspace: Workspace) -> set[bytes]:
    return {path.read_bytes() for path in workspace.superseded.rglob("*.jsonl")}


def mended(workspace: Workspace) -> list[str]:
    return mend_judgments(workspace, load_match(workspace), "m")


# --- games ----------------------------------------------------------------------------------------------
def test_nothing_judged_is_missing(workspace: Workspace) -> None:
    found = games(workspace)
    assert (found.state, found.due, found.causes, found.file) == ("missing", 12, {"not judged": 12}, {})
    assert games_faults(found) == ["no judgments"]


def test_whole_rows_of_another_program_are_complete(workspace: Workspace) -> None:
    put(workspace, *(row(workspace, uid) for uid in UIDS))
    found = games(workspace)
    assert (found.state, found.done, found.due, found.file) == ("complete", 12, 0, {})


NO_LABEL = {"score": None, "judgment": {"answer": "who knows"}}
CASES: list[tuple[str, Scores, dict[str, int], dict[str, int]]] = [
    ("null", ("null", "A>B"), {"null": 1}, {"null": 1}),
    ("both null", ("null", "null"), {"null": 2}, {"null": 2}),
    ("a score without a judgment", ({"score": None}, "A>B"), {"null": 1}, {"null": 1}),
    ("unparsed", (NO_LABEL, "A>B"), {"unparsed": 1}, {"unparsed": 1}),
    ("unparsed, v0.1", ({"score": None, "judgment": "hm", "user_prompt": "?"}, "A>B"), {"unparsed": 1},
     {"unparsed": 1}),
    ("too long", ({"score": None, "judgment": {"answer": "", "reason": "too_long: 9 of 8"}}, "A>B"),
     {"too_long": 1}, {"too_long": 1}),
    ("refused", ({"score": None, "judgment": {"answer": "", "reason": "refused: no"}}, "A>B"), {"refused": 1},
     {"refused": 1}),
    ("label A", ("A", "A>B"), {"wrong label": 1}, {"wrong label": 1}),
    ("a label that is a number", (3, "A>B"), {"wrong label": 1}, {"wrong label": 1}),
    ("a game that is text", ({"score": "A<<<B"}, "A>B"), {"wrong label": 1}, {"wrong label": 1}),
]


@pytest.mark.parametrize(("scores", "causes", "file"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_game_without_a_good_label_is_due_and_said(workspace: Workspace, scores: Scores, causes: dict[str, int],
                                                     file: dict[str, int]) -> None:
    old = put(workspace, row(workspace, "q0", scores), *(row(workspace, uid) for uid in UIDS[1:]))
    found = games(workspace)
    assert (found.state, found.causes, found.file) == ("invalid", causes, file)
    mended(workspace)
    again = games(workspace)
    assert (again.state, again.file, again.due) == ("incomplete", {}, found.due)
    assert old in superseded(workspace)
    assert [line["uid"] for line in read_rows(rows_path(workspace))] == UIDS[1:]


def test_a_row_with_one_game_lacks_the_other(workspace: Workspace) -> None:
    put(workspace, row(workspace, "q0", ("A>B",)), row(workspace, "q1", ()), row(workspace, "q2"))
    found = games(workspace)
    assert found.file == {"one-game row": 2}
    assert found.causes == {"one-game row": 3, "not judged": 6}
    assert found.done == 3


def test_rows_that_are_none_of_this_campaign_are_counted_by_why(workspace: Workspace) -> None:
    old = put(workspace, row(workspace, "q0"), row(workspace, "q0"), row(workspace, "q0", ("null", "null")),
              row(workspace, "q1", baseline="other"), row(workspace, "q2", judge="somebody"),
              row(workspace, "q3", model="else"), {**row(workspace, "q4"), "uid": "of-another-set"},
              {"no": "row"}, tail=b'{"uid": "q5", "games": [')
    found = games(workspace)
    assert found.file == {"duplicate uid": 2, "other baseline": 1, "unknown uid": 1, "other model or judge": 2,
                          "bad line": 1, "torn line": 1}
    assert found.causes == {"other baseline": 2, "not judged": 8}
    assert found.done == 2
    mended(workspace)
    assert games(workspace).file == {}
    assert old in superseded(workspace)
    assert [line["uid"] for line in read_rows(rows_path(workspace))] == ["q0"]
    assert [line["uid"] for line in read_rows(workspace.rows_file("m", "other", TAG))] == ["q1"]


def test_a_row_of_a_folder_that_the_incumbent_made_counts_and_its_file_is_left_alone(workspace: Workspace) -> None:
    folder = workspace.judgments / "compared_with_base_old"
    write_rows(folder / "m.jsonl", [row(workspace, "q0"), row(workspace, "q1", ("null", "A>B"))])
    before = (folder / "m.jsonl").read_bytes()
    found = games(workspace)
    assert (found.done, found.causes) == (3, {"not judged": 8, "null": 1})
    assert found.file == {"not in the file": 1}
    mended(workspace)
    assert games(workspace).file == {}
    assert [line["uid"] for line in read_rows(rows_path(workspace))] == ["q0"]
    assert (folder / "m.jsonl").read_bytes() == before


def test_rows_that_say_no_baseline_count_in_the_models_own_file_only(workspace: Workspace) -> None:
    old = row(workspace, "q0", ("A", "A>B"))
    del old["baseline"]
    write_rows(workspace.judgments / "compared_with_somebody" / "m.jsonl", [old])
    assert games(workspace).causes == {"not judged": 12}
    put(workspace, old)
    found = games(workspace)
    assert (found.causes, found.done) == ({"not judged": 10, "wrong label": 1}, 1)


def test_against_another_baseline_than_the_settings_nothing_is_judged_yet(workspace: Workspace) -> None:
    put(workspace, *(row(workspace, uid) for uid in UIDS))
    write_rows(workspace.answer_file("else"), [answer_row("else", uid) for uid in UIDS])
    other = replace(workspace, settings=workspace.settings.model_copy(update={"baseline": "else"}))
    found = games(other)
    assert (found.state, found.causes, found.file) == ("missing", {"not judged": 12}, {})


def test_each_category_may_have_a_baseline_of_its_own(workspace: Workspace) -> None:
    write_rows(workspace.answer_file("else"), [answer_row("else", uid) for uid in UIDS])
    baselines = dict(zip(CATEGORIES, (TAG, "else"), strict=True))
    settings = workspace.settings.model_copy(update={"baseline": baselines})
    both = Workspace(workspace.root, settings, baseline_tag(baselines))
    against = [TAG, "else", TAG, "else", TAG, TAG]
    write_rows(both.rows_file("m", both.default_baseline, both.default_baseline),
               [row(both, uid, baseline=name) for uid, name in zip(UIDS, against, strict=True)])
    found = audit(both, ["m"])
    assert [one.model for one in found.baselines] == [TAG, "else"]
    assert (found.models[0].games.causes, found.models[0].games.done) == ({"other baseline": 2}, 10)
    assert found.models[0].games.file == {"other baseline": 1}


def test_a_question_with_one_game_played_needs_no_row_yet(workspace: Workspace) -> None:
    match, mine = load_match(workspace), load_answers(workspace, "m")
    assert mine is not None
    ledger = ModelLedger(workspace, "m", match, mine, 2)
    ledger.open("one")
    ledger.add(ledger.games[0], {**record_of(ledger.games[0]), "seconds": 1.0})
    ledger.close()
    found = games(workspace)
    assert (found.state, found.done, found.file) == ("incomplete", 1, {})


def test_a_changed_answer_makes_its_games_stale(workspace: Workspace) -> None:
    play(workspace)
    assert games(workspace).state == "complete"
    write_rows(workspace.answer_file("m"),
               [answer_row("m", uid, "changed" if uid == "q3" else "says") for uid in UIDS])
    found = games(workspace)
    assert (found.state, found.due, found.causes, found.done) == ("stale", 2, {"changed since": 2}, 10)


@pytest.mark.parametrize(("reason", "times"), [("unparsed", 2), ("too_long", 2), ("refused", 2)])
def test_final_nulls_of_our_own_are_no_fault_of_the_file(workspace: Workspace, reason: str, times: int) -> None:
    play(workspace, reason, times, ["q0"])
    play(workspace, uids=UIDS[1:])
    found = games(workspace)
    assert (found.state, found.nulls, found.file, found.due) == ("complete", {reason: 2}, {}, 0)
    rows_path(workspace).write_bytes(rows_path(workspace).read_bytes().replace(b"\n", b" \n"))  # by another hand
    found = games(workspace)
    assert (found.state, found.file) == ("complete", {})


def test_games_with_attempts_left_are_asked_again(workspace: Workspace) -> None:
    play(workspace, "unparsed", 1, ["q0"])
    found = games(workspace)
    assert found.causes == {"to ask again": 2, "not judged": 10}
    assert found.state == "incomplete"


def test_a_file_that_lost_rows_of_the_journal_is_derived_anew(workspace: Workspace) -> None:
    play(workspace)
    rows = read_rows(rows_path(workspace))
    put(workspace, *rows[2:])
    found = games(workspace)
    assert (found.state, found.done, found.file) == ("invalid", 12, {"not in the file": 2})
    mended(workspace)
    assert games(workspace).state == "complete"
    assert read_rows(rows_path(workspace)) == rows
    rows_path(workspace).unlink()
    assert games(workspace).file == {"not in the file": 6}


def test_rows_that_stand_twice_word_for_word_leave_and_the_old_file_is_kept(workspace: Workspace) -> None:
    play(workspace)
    rows = read_rows(rows_path(workspace))
    old = put(workspace, *rows, rows[1])
    assert games(workspace).file == {"duplicate uid": 1}
    assert any("stand twice" in note for note in mended(workspace))
    assert games(workspace).state == "complete"
    assert superseded(workspace) == {old}


def test_a_torn_journal_is_mended(workspace: Workspace) -> None:
    play(workspace)
    file = next(workspace.journal("m", TAG).glob("*.jsonl"))
    with file.open("ab") as end:
        end.write(b'{"source": "eng')
    assert games(workspace).file == {"torn line": 1}
    mended(workspace)
    assert games(workspace).state == "complete"


def test_only_the_first_questions_are_wanted_with_a_limit(workspace: Workspace) -> None:
    put(workspace, row(workspace, "q0"), row(workspace, "q5", ("A", "A>B")))
    found = games(workspace, 2)
    assert (found.wanted, found.done, found.due, found.file) == (4, 2, 2, {})
    assert audit(workspace, ["m"], 2).models[0].answers.wanted == 2


# --- answers --------------------------------------------------------------------------------------------
def test_answers_are_counted_line_by_line(workspace: Workspace) -> None:
    path = workspace.answer_file("m")
    write_rows(path, [answer_row("m", "q0"), answer_row("m", "q0", "says again"), answer_row("m", "q1", ""),
                      answer_row("m", "q2", asked="another text"), answer_row("m", "of-another-set"),
                      {"uid": "q4", "messages": [{"role": "assistant", "content": None}]}], b'{"uid": "q3", "mes')
    found = answers(workspace)
    assert (found.done, found.missing, found.empty) == (2, 3, 1)
    assert (found.stale, found.duplicates, found.unknown) == ({"another question text": 1}, 1, 1)
    assert (found.bad, found.torn, found.state) == (2, 1, "invalid")
    before = path.read_bytes()
    questions = read_questions(workspace.questions, "arena-hard-v2.0")
    assert any("the old file is" in note for note in mend_answers(workspace, questions, "m"))
    assert [one["uid"] for one in read_rows(path)] == ["q0", "q1", "q2", "of-another-set"]
    assert "says again" in path.read_text()
    assert superseded(workspace) == {before}
    assert answers(workspace).state == "incomplete"
    assert mend_answers(workspace, questions, "m") == []


def test_answers_that_stand_twice_word_for_word_leave_and_the_old_file_is_kept(workspace: Workspace) -> None:
    path = workspace.answer_file("m")
    rows = read_rows(path)
    write_rows(path, [*rows, rows[0]])
    before, questions = path.read_bytes(), read_questions(workspace.questions, "arena-hard-v2.0")
    assert answers(workspace).duplicates == 1
    mend_answers(workspace, questions, "m")
    assert read_rows(path) == rows
    assert superseded(workspace) == {before}
    assert mend_answers(workspace, questions, "m") == []


def test_no_answers_are_missing_and_judged_rows_are_told(workspace: Workspace) -> None:
    put(workspace, *(row(workspace, uid) for uid in UIDS))
    workspace.answer_file("m").unlink()
    found = audit(workspace, ["m"]).models[0]
    assert (found.answers.state, answers_faults(found.answers)) == ("missing", ["no answers"])
    assert (found.games.unanswered, found.games.done) == (12, 0)
    before = rows_path(workspace).read_bytes()
    assert "no answers" in mended(workspace)[0]
    assert rows_path(workspace).read_bytes() == before


def test_answers_that_can_not_be_read_are_unknown_not_complete(workspace: Workspace) -> None:
    workspace.answer_file("m").unlink()
    workspace.answer_file("m").mkdir()
    found = audit(workspace, ["m"]).models[0]
    assert not found.complete


def test_without_the_baseline_answers_are_shown_and_files_are_counted(workspace: Workspace) -> None:
    put(workspace, row(workspace, "q0"), row(workspace, "q1", ("A", "null")))
    workspace.answer_file(TAG).unlink()
    found = audit(workspace, ["m", "nobody"])
    assert found.problem is not None
    assert "no answers of the baseline 'base'" in found.problem
    assert [model.answers.state for model in found.models] == ["complete", "missing"]
    assert found.models[0].games.file == {"null": 1, "wrong label": 1}
    assert [model.games.state for model in found.models] == ["invalid", "missing"]
    assert found.baselines[0].state == "missing"
    assert not found.complete
    put(workspace, {"uid": "q0", "model": "m", "judge": workspace.settings.judge.name, "baseline": TAG,
                    "games": [{"score": "A>B"}] * 2})
    assert audit(workspace, ["m"]).models[0].games.state == "unknown"


# --- lists ----------------------------------------------------------------------------------------------
def listed(folder: Path) -> dict[str, tuple[str, ...]]:
    return {name: read_models_file(folder / name).names for name in LISTS}


def test_lists_name_models_by_what_they_lack(workspace: Workspace, tmp_path: Path) -> None:
    put(workspace, row(workspace, "q0"), row(workspace, "q1", ("A", "A>B")))
    write_rows(workspace.answer_file("half"), [answer_row("half", "q0")])
    found = audit(workspace, ["m", "half", "none"])
    counts = write_lists(tmp_path / "lists", found, "arena-hard-v2.0")
    assert listed(tmp_path / "lists") == {
        "missing_models_list.txt": ("none",), "incomplete_models_list.txt": ("half",),
        "missing_judgments_list.txt": ("half",), "incomplete_judgments_list.txt": ("m",),
        "invalid_judgments_list.txt": ("m",)}
    assert {path.name: count for path, count in counts.items()} == dict.fromkeys(LISTS, 1)
    text = (tmp_path / "lists" / "invalid_judgments_list.txt").read_text()
    assert text.startswith("# arena-hard-v2.0: 1 model with lines in their judgment files that must be mended\n# ")
    assert "1 wrong label (A 1)" in text


def test_lists_of_nothing_are_comments_and_replace_what_was_there(workspace: Workspace, tmp_path: Path) -> None:
    play(workspace)
    (tmp_path / "missing_models_list.txt").write_text("old\n")
    write_lists(tmp_path, audit(workspace, ["m"]), "arena-hard-v2.0")
    assert set(listed(tmp_path).values()) == {()}
    assert (tmp_path / "missing_models_list.txt").read_text() == "# arena-hard-v2.0: 0 models without any answer\n"


def test_a_name_that_a_list_can_not_hold_stands_in_a_comment(tmp_path: Path) -> None:
    text = list_text("x", "bench", [
        ("good", ["a", "b"]), ("#hash", ["c"]), ("a #b", ["d\ninjected"]), ("../up", ["e"])])
    (tmp_path / "list").write_text(text)
    assert [line for line in text.split("\n") if not line.startswith("#")] == ["good", ""]
    assert read_models_file(tmp_path / "list").names == ("good",)


def test_a_complete_audit_is_one_without_problems(workspace: Workspace) -> None:
    play(workspace)
    found = audit(workspace, ["m"])
    assert found.complete
    assert Audit(6, found.models, found.baselines, "no baseline").complete is False
    bad = ModelAudit("x", AnswersAudit("x", 6, missing=6), GamesAudit("x", 12, 12))
    assert Audit(6, (*found.models, bad), found.baselines).complete is False


# --- what is said ---------------------------------------------------------------------------------------
def test_the_page_on_status_has_every_state_cause_and_list() -> None:
    page = (ROOT / "docs" / "status.md").read_text(encoding="utf-8")
    cells = {name.strip("` ").replace("_", " ") for line in page.split("\n") if line.startswith("| ")
             for name in line.split("|")[1].split(",")}
    causes = {NOT_JUDGED, TO_RETRY, CHANGED, BAD_LABEL, ONE_GAME, OTHER, *NULLS, *audit_words.ROWS} - {"unwritten"}
    assert {cause.replace("_", " ") for cause in (*causes, *get_args(State), *LISTS)} <= cells


def test_causes_are_said_with_one_or_more() -> None:
    one, more = GamesAudit("m", 4, due=1, causes={OTHER: 1}), GamesAudit("m", 4, due=4, causes={OTHER: 2, NULLS[0]: 2})
    assert games_faults(one) == ["1 game judged against another baseline only"]
    assert games_faults(more) == ["2 games judged against another baseline only", "2 nulls"]
    both = GamesAudit("m", 4, 3, due=1, causes={BAD_LABEL: 1}, file={BAD_LABEL: 1}, labels={"\x1b[31mA": 1})
    assert games_faults(both) == ["1 wrong label (?[31mA 1)"]
    assert answers_faults(AnswersAudit("m", 4, 1, 1, {"other weights": 1}, {"too_long": 1}, unwritten=1)) == [
        "1 answer missing", "1 stale answer (other weights)", "1 answer given up (too long)",
        "1 answer not in the file yet"]


# --- real files -----------------------------------------------------------------------------------------
V01 = [("DeepSeek-R1-Distill-Llama-70B", "bagel-8b-v1.0", 181, 8),
       ("gpt-3.5-turbo-0125", "Nexusflow__Athene-V2-Chat", 108, 2)]
MARKS = ("<|User Prompt|>\n", "\n\n<|The Start of Assistant A's Answer|>\n",
         "\n<|The End of Assistant A's Answer|>\n\n<|The Start of Assistant B's Answer|>\n",
         "\n<|The End of Assistant B's Answer|>")


def parts_of(prompt: str) -> tuple[str, str, str]:
    """Question and both answers that a v0.1 judge was shown."""
    _, rest = prompt.split(MARKS[0], 1)
    question, rest = rest.split(MARKS[1], 1)
    first, rest = rest.split(MARKS[2], 1)
    return question, first, rest.rsplit(MARKS[3], 1)[0]


@pytest.mark.parametrize(("judge", "model", "rows", "nulls"), V01, ids=[case[1] for case in V01])
def test_real_unfinished_judgments_of_the_older_format(tmp_path: Path, judge: str, model: str, rows: int,
                                                       nulls: int) -> None:
    source = real_data("v01-judgments", judge, f"{model}.jsonl")
    settings = make_settings(bench="arena-hard-v0.1", baseline=TAG, judge={
        "kind": "openai", "base_url": "http://127.0.0.1:9/v1", "name": judge})
    workspace = Workspace(tmp_path, settings, TAG)
    workspace.judgments.mkdir(parents=True)
    shutil.copyfile(source, rows_path_of(workspace, model))
    found = read_rows(source)
    texts = {line["question_id"]: parts_of(line["games"][0]["user_prompt"]) for line in found}
    more = {f"unasked{number}": ("?", "theirs", "ours") for number in range(500 - rows)}
    write_lines(workspace.questions, [{"question_id": uid, "turns": [{"content": question}]}
                                      for uid, (question, _, _) in (texts | more).items()])
    for name, place in ((TAG, 1), (model, 2)):
        write_lines(workspace.answer_file(name), [
            {"question_id": uid, "model_id": name, "choices": [{"index": 0, "turns": [{"content": said[place]}]}]}
            for uid, said in (texts | more).items()])
    one = audit(workspace, [model]).models[0]
    assert (one.answers.state, one.games.in_file) == ("complete", rows)
    assert one.games.done == 2 * rows - nulls
    assert one.games.causes == {"not judged": 2 * (500 - rows), "unparsed": nulls}
    assert (one.games.state, one.games.file) == ("invalid", {"unparsed": nulls})
    mend_judgments(workspace, load_match(workspace), model)
    again = audit(workspace, [model]).models[0].games
    assert (again.done, again.due, again.file) == (one.games.done, one.games.due, {})
    bad = sum(any(game["score"] is None for game in line["games"]) for line in found)
    assert len(read_rows(rows_path_of(workspace, model))) == rows - bad
    assert superseded(workspace) == {source.read_bytes()}


def rows_path_of(workspace: Workspace, model: str) -> Path:
    return workspace.rows_file(model, TAG, TAG)
