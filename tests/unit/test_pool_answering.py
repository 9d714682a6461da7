"""Answering a round: requests and what they mean, addresses of workers, records, the engine over a real small fleet."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest

from automate.errors import ServerError, StorageError
from automate.journal import write_json
from automate.pools.answering import requests
from automate.pools.answering.asking import Asker
from automate.pools.answering.engine import Engine, Part
from automate.pools.answering.journal import Journal, due, recorded
from automate.pools.answering.requests import Told
from automate.pools.answering.workers import Roster, stem_of
from automate.pools.round_records import Answer, Work, WorkerLine, answer_of, answer_record, check_worker
from automate.serving.client import JudgeClient, Reply, RequestRefused, TransportFailed
from automate.serving.limiter import Limiter
from automate.serving.rehearsal_behaviour import Behaviour
from tests.rigs.fleet import JUDGE, rig_of, until, usable
from tests.unit.pool_support import pool_places

T = TypeVar("T")
CHAT = ({"role": "system", "content": "One letter."}, {"role": "user", "content": "Which?"})


def line(number: int = 1, method: str = "generate", choices: tuple[str, ...] = ("A", "B", "C"),
         tokens: int | None = None, model: str = JUDGE) -> Work:
    chat = (CHAT[0], {"role": "user", "content": f"Question {number}?"})
    return Work(f"r{number}", model, chat, method, choices, tokens)


# --- requests -----------------------------------------------------------------------------------------
def test_a_workers_word_goes_before_the_data_sets() -> None:
    asked = line(tokens=3)
    assert requests.tokens_of(asked, Told(), 1) == 3
    assert requests.tokens_of(asked, Told(max_tokens=7), 1) == 7
    assert requests.tokens_of(line(), Told(), 5) == 5
    assert list(requests.messages_of(asked, Told())) == list(asked.messages)
    other = requests.messages_of(asked, Told(system_prompt="Sing."))
    assert other == [{"role": "system", "content": "Sing."}, asked.messages[1]]


@pytest.mark.parametrize(("said", "told"), [
    ({"max_tokens": 4, "system_prompt": "x"}, Told(4, "x")), ({}, Told()), ({"max_tokens": True}, Told()),
    ({"max_tokens": "4"}, Told()), ({"max_tokens": 0, "system_prompt": 3}, Told()),
    ({"system_prompt": ""}, Told(None, "")),
])
def test_what_was_said_of_a_worker_is_read_as_it_is(said: dict[str, object], told: Told) -> None:
    assert Told.of(said) == told


def test_a_choice_is_asked_for_as_vllm_takes_it() -> None:
    assert requests.extra_of(line(), switch=False) == {"structured_outputs": {"choice": ["A", "B", "C"]}}
    assert requests.extra_of(line(choices=()), switch=True) == requests.NO_THINKING


@pytest.mark.parametrize(("reply", "said"), [
    (Reply("B", "stop", 1, 1, 0), "B"), (Reply(None, "length", 1, 1, 0, reasoning="B"), "B"),
    (Reply("", "stop", 1, 1, 0, reasoning="I think of B"), ""), (Reply(None, "length", 1, 1, 0), ""),
])
def test_a_reply_is_its_text(reply: Reply, said: str) -> None:
    assert requests.said_in(reply, ("A", "B")) == said


def scored(*values: float, token: int = 7) -> dict[str, object]:
    return {"prompt_logprobs": [None, {"1": {"logprob": -50.0}}, *({str(token): {"logprob": one}} for one in values)]}


def test_scores_are_sums_over_an_options_own_tokens() -> None:
    answer = {"choices": [{"index": 1, **scored(-1.0)}, {"index": 0, **scored(-0.5, -0.25)}]}
    assert requests.read_scores(answer, 2, [[7, 7], [7]]) == (-0.75, -1.0)
    assert requests.best_of((-0.75, -1.0)) == "1"
    assert requests.best_of((-2.0, -1.0, -1.0)) == "2", "the first among equals"


@pytest.mark.parametrize("answer", [
    None, [], {}, {"choices": []}, {"choices": [{"index": 0, "prompt_logprobs": None}]},
    {"choices": [{"index": 0, **scored(-1.0)}]}, {"choices": [{"index": 0, **scored(-1.0, -1.0, token=8)}]},
    {"choices": [{"index": 0, **scored(-1.0, -1.0)}, {"index": 1, **scored(-1.0)}]},
])
def test_an_answer_that_lacks_log_probabilities_is_no_answer(answer: object) -> None:
    with pytest.raises(TransportFailed):
        requests.read_scores(answer, 2, [[7, 7]])


@pytest.mark.parametrize("answer", [None, {}, {"tokens": None}, {"tokens": ["a"]}, {"tokens": [True]}])
def test_tokens_that_are_none_are_no_answer(answer: object) -> None:
    with pytest.raises(TransportFailed):
        requests.read_tokens(answer)


# --- workers ------------------------------------------------------------------------------------------
def test_addresses_are_free_again_when_a_server_has_left() -> None:
    said: list[WorkerLine] = []
    roster = Roster("tulu", said.append)
    assert [roster.address("a"), roster.address("b"), roster.address("a")] == ["tulu.1", "tulu.2", "tulu.1"]
    roster.look(["b"], ["b"])
    assert roster.address("c") == "tulu.1"
    roster.close()
    assert [(one.state, one.worker) for one in said] == [
        ("joined", "tulu.1"), ("joined", "tulu.2"), ("left", "tulu.1"), ("joined", "tulu.1"), ("left", "tulu.2"),
        ("left", "tulu.1")]


@pytest.mark.parametrize("model", ["tulu", "a b", "模型", "x" * 180, "-x", "a\"b'", "A" * 41])
def test_every_model_has_addresses_that_can_be_handed_in(model: str) -> None:
    assert check_worker(Roster(model, lambda one: None).address("server"))
    assert stem_of(model) == stem_of(model)


# --- records ------------------------------------------------------------------------------------------
def test_what_is_left_is_wanted_minus_recorded(tmp_path: Path) -> None:
    places = pool_places(tmp_path)
    journal = Journal(places, "one")
    journal.answer(Answer("r1", "A", "m.1", 1, 2))
    journal.answer(Answer("r2", None, "m.1", 1, 2, error="refused"))
    journal.worker(WorkerLine("m.1", "m", "joined"))
    journal.close()
    torn = places.answers("one") / "20990101-torn.jsonl"
    torn.write_bytes(orjson.dumps({"kind": "answer", "reference": "r3", "result": "A", "worker": "m.1"})
                     + b"\n" + b'{"kind": "answer", "refe')
    assert recorded(places, "one") == {"r1", "r2"}, "a record without times is none, and a torn one isn't either"
    work = [line(number) for number in (1, 2, 3, 4, 3)]
    assert [one.reference for one in due(work, recorded(places, "one"))] == ["r3", "r4"]


def test_a_record_is_as_those_who_hand_it_in_expect_it(tmp_path: Path) -> None:
    places, answer = pool_places(tmp_path), Answer("r1", None, "m.1", 1, 2, (-1.5, -2.0), "refused")
    journal = Journal(places, "one")
    journal.answer(answer)
    journal.close()
    line = orjson.loads(next(places.answers("one").glob("*.jsonl")).read_bytes())
    assert line == orjson.loads(orjson.dumps(answer_record(answer)))
    assert answer_of(line) == answer


# --- asking -------------------------------------------------------------------------------------------
class Fake:
    """Servers that fail as they are told, then answer."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[dict[str, Any]] = []

    async def ask_worker(self, call: Callable[[JudgeClient, str], Awaitable[T]], question: str | None = None) -> T:
        return await call(self, f"server-{len(self.asked)}")  # type: ignore[arg-type]

    async def chat(self, messages: Any, **given: Any) -> Reply:
        self.asked.append({"messages": messages, **given})
        if self.errors:
            raise self.errors.pop(0)
        return Reply("B\0", "stop", 1, 1, 0)


def asker(servers: Any, **given: Any) -> Asker:
    return Asker(servers, Roster(JUDGE, lambda one: None), lambda: 5, **{"retries": 2, "longest_wait": 0.01, **given})


async def test_a_request_without_an_answer_is_sent_again() -> None:
    servers = Fake(TransportFailed("gone"), TransportFailed("busy", status=503))
    found = await asker(servers).answer(line())
    assert (found.result, found.error, found.worker) == ("B\N{REPLACEMENT CHARACTER}", None, "judge.3")
    assert answer_of(orjson.loads(orjson.dumps({"kind": "answer", **vars(found)}))) == found


async def test_after_the_last_try_it_is_an_error_of_that_line() -> None:
    servers = Fake(*(TransportFailed(f"gone {number}") for number in range(9)))
    found = await asker(servers).answer(line())
    assert (found.result, found.error, len(servers.asked)) == (None, "gone 2", 3)


async def test_a_refusal_is_asked_once_more_without_the_switch_and_never_with_it_again() -> None:
    servers = Fake(RequestRefused("HTTP 400: no template arguments"))
    one = asker(servers)
    assert (await one.answer(line())).error is None
    assert (await one.answer(line())).error is None
    assert ["chat_template_kwargs" in asked["extra"] for asked in servers.asked] == [True, False, False]


async def test_what_is_refused_without_the_switch_too_keeps_the_switch() -> None:
    servers = Fake(RequestRefused("too long"), RequestRefused("too long"))
    one = asker(servers)
    assert (await one.answer(line())).error == "too long"
    assert one.switch


async def test_settings_of_one_worker_and_of_all_of_a_model() -> None:
    servers = Fake()
    told = {"judge.2": Told(max_tokens=9), "judge/*": Told(max_tokens=4)}
    one = asker(servers, told=told)
    for number in range(3):
        await one.answer(line(number))
    assert [asked["max_tokens"] for asked in servers.asked] == [4, 9, 4]


# --- the engine ---------------------------------------------------------------------------------------
async def test_a_round_over_two_servers_answers_each_line_once(tmp_path: Path) -> None:
    behaviour = Behaviour(answers=True, latency=0.002)
    async with rig_of(tmp_path, "a", "b", behaviour=behaviour) as rig, rig.serving(routing="least") as serving:
        await usable(serving, 2)
        found: list[Answer] = []
        said: list[WorkerLine] = []
        work = [line(number, ("generate", "loglikelihood")[number % 2]) for number in range(60)]
        part = Part(JUDGE, Asker(serving, Roster(JUDGE, said.append), lambda: 1), serving.limiter, work)
        await Engine([part], found.append).play()
    assert sorted(one.reference for one in found) == sorted(one.reference for one in work)
    assert (part.done, part.left, part.errors, part.failed) == (60, 0, 0, None)
    assert {one.worker for one in found} == {"judge.1", "judge.2"}
    assert {one.worker for one in said} == {"judge.1", "judge.2"}
    assert all(len(one.scores) == (3 if int(one.reference[1:]) % 2 else 0) for one in found)
    assert all(math.isfinite(score) and score < 0 for one in found for score in one.scores)
    assert {one.result for one in found if not one.scores} == {"A", "B", "C"}
    assert {one.result for one in found if one.scores} == {"1", "2", "3"}


async def test_faults_of_servers_are_asked_again_and_answers_are_the_same(tmp_path: Path) -> None:
    async def play(behaviour: Behaviour, folder: Path) -> dict[str, str | None]:
        folder.mkdir()
        async with rig_of(folder, "a", "b", behaviour=behaviour) as rig, rig.serving(routing="least") as serving:
            found: list[Answer] = []
            work = [line(number, ("generate", "loglikelihood")[number % 2]) for number in range(40)]
            one = Asker(serving, Roster(JUDGE, lambda line: None), lambda: 1, longest_wait=0.05)
            await Engine([Part(JUDGE, one, serving.limiter, work)], found.append).play()
        assert [answer.error for answer in found] == [None] * 40
        return {answer.reference: answer.result for answer in found}

    sound = await play(Behaviour(answers=True), tmp_path / "sound")
    faulty = await play(Behaviour(answers=True, status_500=0.2, drop=0.2, status_429=0.2), tmp_path / "faulty")
    assert sound == faulty


class Stuck:
    """Servers that never answer."""

    async def ask_worker(self, call: Any, question: str | None = None) -> Any:
        await asyncio.Event().wait()


class Lost:
    """Servers of which none will come."""

    async def ask_worker(self, call: Any, question: str | None = None) -> Any:
        raise ServerError("no worker will come")


async def test_a_stop_waits_no_longer_than_its_grace_and_leaves_the_rest() -> None:
    found: list[Answer] = []
    stuck = Part("m", asker(Stuck()), Limiter(2), [line(number) for number in range(5)])
    engine = Engine([stuck], found.append)
    playing = asyncio.create_task(engine.play())
    await until(lambda: stuck.in_flight == 2, "two in flight")
    engine.stop(0.0)
    await asyncio.wait_for(playing, 5)
    assert (found, stuck.started, stuck.left) == ([], 2, 3)


async def test_an_error_after_the_word_to_stop_is_no_answer() -> None:
    found: list[Answer] = []
    servers = Fake(*(TransportFailed("gone") for _ in range(9)))
    part = Part("m", asker(servers, retries=0), Limiter(1), [line()])
    engine = Engine([part], found.append)
    engine._take(part, Answer("r1", None, "m.1", 1, 1, error="gone"))
    engine.stop(5.0)
    engine._take(part, Answer("r2", None, "m.1", 1, 1, error="gone"))
    engine._take(part, Answer("r3", "A", "m.1", 1, 1))
    assert [one.reference for one in found] == ["r1", "r3"]


async def test_a_model_without_servers_does_not_keep_the_others_back() -> None:
    found: list[Answer] = []
    lost = Part("lost", asker(Lost()), Limiter(2), [line(number) for number in range(3)])
    sound = Part("sound", asker(Fake()), Limiter(2), [line(number) for number in range(10, 15)])
    await Engine([lost, sound], found.append).play()
    assert len(found) == 5
    assert isinstance(lost.failed, ServerError)
    assert lost.left == 0
    assert sound.failed is None


async def test_a_full_disk_ends_the_whole() -> None:
    def full(answer: Answer) -> None:
        raise StorageError("no space left")

    part = Part("m", asker(Fake()), Limiter(1), [line(number) for number in range(9)])
    with pytest.raises(StorageError):
        await Engine([part], full).play()
    assert part.done == 0


async def test_a_wish_without_lines_waits_for_its_server() -> None:
    waited = []

    async def loaded() -> None:
        waited.append(1)

    await Engine([Part("m", asker(Fake()), Limiter(1), [], loaded)], lambda one: None).play()
    assert waited == [1]


def test_a_done_round_has_its_own_file(tmp_path: Path) -> None:
    places = pool_places(tmp_path)
    write_json(places.done("one"), {})
    assert places.done("one").parent == places.round_claim("one").parent
