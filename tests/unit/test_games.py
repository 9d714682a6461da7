"""Games: which are wanted, which of them are due, and what makes a played game count no more."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.arena.benchmark import Question
from automate.arena.games import Game, Match, Recorded, count, due_games, prompt_sha
from automate.arena.judge import question_major
from automate.errors import ConfigError
from automate.journal import Record
from tests.unit.support import (
    BASELINE,
    IDENTITY,
    make_answers,
    make_match,
    make_prompts,
    make_questions,
    record_of,
)

QUESTIONS = make_questions(4)
UIDS = [question.uid for question in QUESTIONS]
ATTEMPTS = 2


def wanted(match: Match | None = None, **texts: str) -> list[Game]:
    return (match or make_match()).wanted(make_answers("m", UIDS, **texts))


def recorded(records: Iterable[Record]) -> Recorded:
    found = Recorded()
    for record in records:
        found.add(record)
    return found


def imported(game: Game, **more: object) -> Record:
    """A row of another program; without a prompt it can't be verified."""
    record: Record = {"source": "import", "uid": game.uid, "order": game.order, "baseline": game.baseline,
                      "outcome": "verdict", "label": "B>A", "prompt_sha": None, "judgment": "[[B>A]]"}
    return {**record, **more}


# Wanted


def test_every_question_is_played_twice() -> None:
    games = wanted()
    assert [game.slot for game in games] == [(uid, order) for uid in UIDS for order in (1, 2)]
    assert {game.baseline for game in games} == {BASELINE}
    assert [game.category for game in games[::2]] == [question.category for question in QUESTIONS]
    assert len({game.key for game in games}) == len(games)


def test_order_1_shows_the_baseline_first() -> None:
    match, answers = make_match(), make_answers("m", UIDS)
    first, second = (match.messages(answers, QUESTIONS[0], order) for order in (1, 2))
    assert first == [
        {"role": "system", "content": "Judge hard_prompt."},
        {"role": "user", "content": "Question: prompt 0\nFirst: base on q0\nSecond: m on q0"},
    ]
    assert second[1]["content"] == "Question: prompt 0\nFirst: m on q0\nSecond: base on q0"


def test_answers_with_braces_are_no_fields() -> None:
    match, answers = make_match(), make_answers("m", UIDS, q0="{QUESTION} {0} {")
    assert match.messages(answers, QUESTIONS[0], 1)[1]["content"].endswith("Second: {QUESTION} {0} {")


def test_without_both_answers_there_is_no_game() -> None:
    match = make_match(answers={BASELINE: make_answers(BASELINE, ["q0", "q1", "q2"])})
    games = match.wanted(make_answers("m", ["q1", "q2", "q3", "unknown"]))
    assert [game.slot for game in games] == [("q1", 1), ("q1", 2), ("q2", 1), ("q2", 2)]


def test_an_empty_answer_is_an_answer() -> None:
    assert len(wanted(q0="")) == 8


def test_each_category_has_its_own_baseline() -> None:
    match = make_match(baselines={"hard_prompt": "x", "creative_writing": "y"})
    assert [game.baseline for game in wanted(match)[::2]] == ["x", "y", "x", "y"]
    with pytest.raises(ConfigError, match="no baseline for the category 'creative_writing'"):
        wanted(make_match(baselines={"hard_prompt": "x"}))


def test_a_category_without_a_prompt_is_an_error() -> None:
    with pytest.raises(ConfigError, match="no judge prompt for the category 'other'"):
        make_match([Question("q0", "other", "p")]).wanted(make_answers("m", ["q0"]))


# Keys


def changed(change: Callable[[], list[Game]]) -> list[bool]:
    return [old.key != new.key for old, new in zip(wanted(), change(), strict=True)]


ONE_OF_FOUR = [True, True, *[False] * 6]
HALF = [True, True, False, False] * 2


@pytest.mark.parametrize(("name", "change", "which"), [
    ("answer", lambda: wanted(q0="other"), ONE_OF_FOUR),
    ("baseline's answer", lambda: wanted(make_match(answers={BASELINE: make_answers(BASELINE, UIDS, q0="other")})),
     ONE_OF_FOUR),
    ("question", lambda: wanted(make_match([replace(QUESTIONS[0], prompt="other"), *QUESTIONS[1:]])), ONE_OF_FOUR),
    ("system prompt", lambda: wanted(make_match(prompts=make_prompts(hard_prompt="Other."))), HALF),
    ("template", lambda: wanted(make_match(prompts=make_prompts("{QUESTION}{ANSWER_A}{ANSWER_B}"))), [True] * 8),
    ("judge's name", lambda: wanted(make_match(judge=replace(IDENTITY, name="other"))), [True] * 8),
    ("weights", lambda: wanted(make_match(judge=replace(IDENTITY, weights="other"))), [True] * 8),
    ("temperature", lambda: wanted(make_match(judge=replace(IDENTITY, temperature=0.5))), [True] * 8),
    ("max_tokens", lambda: wanted(make_match(judge=replace(IDENTITY, max_tokens=1))), [True] * 8),
    ("baseline's name", lambda: wanted(make_match(
        baselines={"*": "x"}, answers={"x": replace(make_answers(BASELINE, UIDS), model="x")})), [True] * 8),
    ("model's name", lambda: make_match().wanted(replace(make_answers("m", UIDS), model="n")), [True] * 8),
])
def test_the_key_follows_what_decides_a_verdict(name: str, change: Callable[[], list[Game]], which: list[bool]) -> None:
    assert changed(change) == which, name


@pytest.mark.parametrize("change", [
    wanted,
    lambda: wanted(make_match(judge=replace(IDENTITY, temperature=0))),
    lambda: wanted(make_match(baselines={"hard_prompt": BASELINE, "creative_writing": BASELINE})),
    lambda: wanted(make_match(prompts=replace(make_prompts(), source="elsewhere", upstream=False))),
    lambda: make_match().wanted(replace(make_answers("m", UIDS), row_model="path/to/m")),
])
def test_nothing_else_changes_the_key(change: Callable[[], list[Game]]) -> None:
    assert changed(change) == [False] * 8


def test_the_order_of_questions_changes_no_key() -> None:
    again = {game.slot: game.key for game in wanted(make_match(list(reversed(QUESTIONS))))}
    assert again == {game.slot: game.key for game in wanted()}


def test_a_prompts_hash_tells_roles_and_contents_apart() -> None:
    one = [{"role": "system", "content": "ab"}, {"role": "user", "content": "c"}]
    two = [{"role": "system", "content": "a"}, {"role": "user", "content": "bc"}]
    assert len({prompt_sha(messages) for messages in (one, two, one[::-1], one[:1], [])}) == 5
    assert prompt_sha(one) == prompt_sha([{"content": "ab", "role": "system", "more": 1}, one[1]])


# Due


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["verdict", "unparsed", "too_long", "refused"]))))
def test_due_is_wanted_minus_recorded(played: list[tuple[int, str]]) -> None:
    games = wanted()
    due = due_games(games, recorded(record_of(games[number], outcome) for number, outcome in played), ATTEMPTS)
    expected = []
    for number, game in enumerate(games):
        outcomes = [outcome for which, outcome in played if which == number]
        if "verdict" not in outcomes and len(outcomes) < ATTEMPTS:
            expected.append(game)
    assert due == expected


def test_failures_are_final_after_some_attempts_and_a_verdict_wins() -> None:
    game, *_ = games = wanted()
    failed = record_of(game, "unparsed", reason="first")
    again = record_of(game, "refused", reason="second")
    once, twice = recorded([failed]).state(game, ATTEMPTS), recorded([failed, again]).state(game, ATTEMPTS)
    assert (once.done, once.attempts, once.failure) == (False, 1, failed)
    assert (twice.done, twice.attempts, twice.record) == (True, 2, again)
    assert not recorded([failed, again]).state(game, 3).done
    verdict = record_of(game)
    for records in ([failed, again, verdict], [verdict, failed, again]):
        assert recorded(records).state(game, ATTEMPTS).record == verdict
    assert len(due_games(games, recorded([failed, again]), ATTEMPTS)) == 7


def test_records_that_count_for_nothing() -> None:
    games = wanted()
    records = [
        record_of(games[0], label="A"), record_of(games[1], label=None), record_of(games[2], "unknown outcome"),
        record_of(games[3], key=None), record_of(replace(games[4], key="other")), {},
    ]
    assert due_games(games, recorded(records), ATTEMPTS) == games


def test_the_first_verdict_of_a_game_stands() -> None:
    game = wanted()[0]
    found = recorded([record_of(game, label="A>B"), record_of(game, label="B>A")])
    assert (found.state(game, ATTEMPTS).record or {})["label"] == "A>B"


def test_games_of_another_prompt_are_due_again() -> None:
    before = wanted()
    found = recorded(map(record_of, before))
    assert due_games(before, found, ATTEMPTS) == []
    after = wanted(q1="changed")
    assert [game.slot for game in due_games(after, found, ATTEMPTS)] == [("q1", 1), ("q1", 2)]


# Rows of other programs


@pytest.mark.parametrize(("more", "done"), [
    ({}, True), ({"prompt_sha": "other"}, False), ({"baseline": "other"}, False), ({"baseline": None}, False),
    ({"order": 2}, False), ({"uid": "q1"}, False),
])
def test_an_imported_game_counts_for_its_slot_baseline_and_prompt(more: dict[str, object], done: bool) -> None:
    game = wanted()[0]
    assert recorded([imported(game, **more)]).state(game, ATTEMPTS).done is done
    verified = {"prompt_sha": game.prompt_sha, **more}
    assert recorded([imported(game, **verified)]).state(game, ATTEMPTS).done is done


def test_an_own_verdict_wins_over_an_imported_one() -> None:
    game = wanted()[0]
    own = record_of(game)
    assert recorded([imported(game), own]).state(game, ATTEMPTS).record == own


def test_an_imported_game_wins_over_failures() -> None:
    game = wanted()[0]
    found = recorded([record_of(game, "unparsed"), record_of(game, "unparsed"), imported(game)])
    assert (found.state(game, ATTEMPTS).record or {})["source"] == "import"


def test_a_verified_row_wins_over_an_unverified_one() -> None:
    game = wanted()[0]
    found = recorded([imported(game), imported(game, prompt_sha=game.prompt_sha)])
    assert (found.state(game, ATTEMPTS).record or {})["prompt_sha"] == game.prompt_sha


# Counting


def test_counting_a_model() -> None:
    games = wanted()
    short = record_of(games[0], short=True)
    nulls = [record_of(games[1], "too_long"), record_of(games[1], "too_long"), record_of(games[2], "unparsed")]
    found = recorded([short, *nulls, imported(games[3]), imported(games[4], prompt_sha="old"),
                      record_of(replace(games[5], key="of another judge"))])
    status = count("m", games, found, ATTEMPTS)
    assert (status.model, status.wanted, status.done, status.due, status.final) == ("m", 8, 2, 5, 1)
    assert status.nulls == {"too_long": 1}
    assert (status.questions_done, status.unverified, status.short_labels) == (1, 1, 1)
    assert (status.stale, status.retrying) == (2, 1)


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["verdict", "unparsed", "import"]))))
def test_counts_add_up(played: list[tuple[int, str]]) -> None:
    games = wanted()
    found = recorded(imported(games[n]) if what == "import" else record_of(games[n], what) for n, what in played)
    status = count("m", games, found, ATTEMPTS)
    assert status.done + status.final + status.due == status.wanted == len(games)
    assert status.due == len(due_games(games, found, ATTEMPTS))


def test_nothing_wanted_is_nothing_due() -> None:
    status = count("m", [], Recorded(), ATTEMPTS)
    assert (status.wanted, status.done, status.due, status.questions_done) == (0, 0, 0, 0)


# Order of play


def test_games_are_played_question_by_question_over_all_models() -> None:
    match = make_match()
    by_model = [match.wanted(make_answers(model, uids)) for model, uids in
                (("x", UIDS), ("y", ["q2", "q0"]), ("z", ["q0"]))]
    played = [(game.uid, game.order, game.model) for game in question_major(by_model, UIDS)]
    assert played == [
        ("q0", 1, "x"), ("q0", 1, "y"), ("q0", 1, "z"), ("q0", 2, "x"), ("q0", 2, "y"), ("q0", 2, "z"),
        ("q1", 1, "x"), ("q1", 2, "x"), ("q2", 1, "x"), ("q2", 1, "y"), ("q2", 2, "x"), ("q2", 2, "y"),
        ("q3", 1, "x"), ("q3", 2, "x"),
    ]


@settings(deadline=None)
@given(st.lists(st.sets(st.integers(0, 7))))
def test_every_due_game_is_played_once(picked: list[set[int]]) -> None:
    match = make_match()
    by_model = [[match.wanted(make_answers(f"m{index}", UIDS))[number] for number in sorted(numbers)]
                for index, numbers in enumerate(picked)]
    played = question_major(by_model, UIDS)
    assert sorted(game.key for game in played) == sorted(game.key for games in by_model for game in games)
    assert [UIDS.index(game.uid) * 2 + game.order for game in played] == sorted(
        UIDS.index(game.uid) * 2 + game.order for game in played)
