"""The stand-in itself: it must see every slip, give the same faults for the same seed, and lose nothing."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests

from automate.errors import ConfigError
from automate.settings_validation import Validation
from automate.validation.api import FlockApi
from automate.validation.api_errors import ApiRefused, ApiUnavailable, NoSubmissions, NotValidating, RateLimited
from automate.validation.audit import Audit
from automate.validation.replies import merged_input, parse_assignment
from automate.validation.standin import Content, Fault, Plan, StandIn, TaskPlan
from automate.validation.standin.plan import DATA_FAULTS, KINDS, REQUEST_FAULTS, UPDATE_FAULTS, plan_of
from automate.validation.standin.schedule import Schedule

KEY = "stand-in-test-key"
ROOT = Path(__file__).resolve().parents[2]


class Clock:
    def __init__(self) -> None:
        self.now = 1_795_273_200.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


Start = Callable[..., StandIn]


@pytest.fixture
def start(clock: Clock) -> Iterator[Start]:
    running: list[StandIn] = []

    def make(*tasks: TaskPlan, **values: Any) -> StandIn:
        server = StandIn(Plan(tasks or (TaskPlan(12),), key=KEY, **values), clock=clock)
        running.append(server.__enter__())
        return server

    yield make
    for server in running:
        server.stop()


def post(server: StandIn, call: str, which: str, body: object = None, **headers: str | None) -> requests.Response:
    sent = {"flock-api-key": KEY, "Content-Type": "application/json"} | {
        name.replace("_", "-"): value for name, value in headers.items()}
    data = body if isinstance(body, bytes) or body is None else json.dumps(body)
    return requests.post(f"{server.base_url}/tasks/{call}-validation-assignment/{which}", data=data, timeout=20,
                         headers={name: value for name, value in sent.items() if value is not None})


def given(server: StandIn, task: str = "12") -> dict[str, Any]:
    reply = post(server, "request", task)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


# --- strictness -----------------------------------------------------------------------------------
def test_what_keeps_to_the_protocol_is_no_breach(start: Start) -> None:
    server = start(TaskPlan(12, metrics=("score",)))
    one, two = given(server), given(server)
    assert post(server, "update", one["id"], {"status": "completed", "data": {"score": 1}}).status_code == 200
    assert post(server, "update", two["id"], {"status": "failed"}).status_code == 200
    assert server.violations == [] and [record.accepted for record in server.assignments.values()] == [1, 1]


@pytest.mark.parametrize(("body", "said"), [
    (b"{", "not JSON"), (b"[]", "no object"), (b'{"status": "completed", "data": {"score": NaN}}', "not JSON"),
    (b'{"status": "completed", "data": {"score": -Infinity}}', "not JSON"),
    (b'{"status": "completed", "data": {"score": 1e999}}', "not finite"),
    (b'{"status": "completed", "data": {"score": [1, {"x": 1e999}]}}', "not finite"),
    (b'{"status": "completed"}', "expected `status`"), (b'{"status": "done", "data": {}}', "expected `status`"),
    (b'{"status": "completed", "data": {}}', "empty"),
    (b'{"status": "completed", "data": {"other": 1}}', "lacks score"),
    (b'{"status": "failed", "reason": "x"}', "beside `status`"), (b"", "not JSON")])
def test_a_breach_is_noted_and_nothing_taken(start: Start, body: bytes, said: str) -> None:
    server = start(TaskPlan(12, metrics=("score",)))
    one = given(server)["id"]
    assert post(server, "update", one, body).status_code == 422
    assert len(server.violations) == 1 and said in server.violations[0]
    assert (server.assignments[str(one)].status, server.assignments[str(one)].accepted) == ("validating", 0)


def test_one_result_is_taken_and_no_second(start: Start) -> None:
    server = start()
    one = given(server)["id"]
    body = {"status": "completed", "data": {"a": 1}}
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: post(server, "update", one, body), range(8)))
    assert Counter(reply.status_code for reply in replies) == {200: 1, 400: 7}
    assert {reply.json()["detail"] for reply in replies if reply.status_code == 400} == {
        "Validation assignment is not in validating status"}
    assert server.assignments[str(one)].accepted == 1


def test_breaches_of_the_header_and_the_place(start: Start) -> None:
    server = start()
    assert post(server, "request", "12", flock_api_key=None).status_code == 403
    assert post(server, "request", "12", flock_api_key="wrong").status_code == 401
    assert len(server.violations) == 1 and not server.assignments
    post(server, "request", "12", b"{}")
    post(server, "request", "12", Content_Type="text/plain")
    post(server, "request", "999")
    post(server, "update", "999", {"status": "failed"})
    url = given(server)["data"]["validation_set_url"]
    assert requests.get(url, headers={"flock-api-key": KEY}, timeout=20).status_code == 200
    words = ["body", "type", "lookup of", "update of", "file store"]
    assert [word for breach in server.violations[1:] for word in words if word in breach] == words
    assert requests.get(f"{server.base_url}/tasks/list", timeout=20).status_code == 200


# --- rules ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("limit_by", "other"), [("task", 200), ("key", 429)])
def test_lookups_are_limited(start: Start, clock: Clock, limit_by: str, other: int) -> None:
    server = start(TaskPlan(12), TaskPlan(13), lookup_interval=180.0, limit_by=limit_by)
    assert [post(server, "request", "12").status_code for _ in range(2)] == [200, 429]
    assert post(server, "request", "13").status_code == other
    assert post(server, "request", "12").json() == {
        "detail": "Rate limit reached for validation assignment lookup: 1 per 3 minutes"}
    clock.now += 181
    assert post(server, "request", "12").status_code == 200
    assert server.books.rate_limited["12"] == 2


def test_a_lease_ends_and_the_submission_is_given_out_again(start: Start, clock: Clock) -> None:
    server = start(TaskPlan(12, submissions=1), lease=60.0)
    one = given(server)["id"]
    assert post(server, "request", "12").json()["detail"] == "No task submissions available to validate"
    clock.now += 61
    assert "not in validating" in post(server, "update", one, {"status": "failed"}).text
    two = given(server)["id"]
    assert two != one and post(server, "update", two, {"status": "failed"}).status_code == 200
    assert [record.status for record in server.assignments.values()] == ["expired", "failed"]


@pytest.mark.parametrize("fault", [Fault.DROP_AFTER, Fault.ERROR_AFTER, Fault.CUT])
def test_an_assignment_whose_reply_was_lost_comes_again(start: Start, fault: Fault) -> None:
    server = start(TaskPlan(12, submissions=2))
    server.inject("request", fault)
    post_quietly(server)
    assert [record.delivered for record in server.assignments.values()] == [False]
    assert {given(server)["id"], given(server)["id"]} == {1_200_000, 1_200_010}
    assert post(server, "request", "12").status_code != 200 and len(server.assignments) == 2


def test_an_assignment_that_was_lost_and_has_expired_is_given_out_once(start: Start, clock: Clock) -> None:
    server = start(TaskPlan(12, submissions=1), lease=60.0)
    server.inject("request", Fault.ERROR_AFTER)
    post(server, "request", "12")
    clock.now += 61
    assert given(server)["id"] == 1_200_001
    assert "No task submissions" in post(server, "request", "12").text


def test_a_client_that_is_gone_was_given_nothing(start: Start) -> None:
    server = start(TaskPlan(12, submissions=1), slow=0.3)
    server.inject("request", Fault.SLOW)
    with pytest.raises(requests.Timeout):
        requests.post(f"{server.base_url}/tasks/request-validation-assignment/12", timeout=0.05,
                      headers={"flock-api-key": KEY, "Content-Type": "application/json"})
    server.stopping.wait(0.6)
    assert [record.delivered for record in server.assignments.values()] == [False]
    assert given(server)["id"] == 1_200_000


def test_addresses_die_and_are_not_forged(start: Start, clock: Clock) -> None:
    server = start(url_expires=3600)
    url = given(server)["data"]["validation_set_url"]
    assert requests.get(url, timeout=20).status_code == 200
    assert requests.get(url[:-1] + ("0" if url[-1] != "0" else "1"), timeout=20).status_code == 403
    assert requests.get(url.split("?")[0], timeout=20).status_code == 403
    assert requests.get(url.replace("Expires=3600", "Expires=x"), timeout=20).status_code == 403
    clock.now += 3600
    assert requests.get(url, timeout=20).status_code == 403
    assert server.assignments["1200000"].downloads == 1 and server.violations == []


def test_it_goes_on_where_one_has_ended(clock: Clock) -> None:
    with StandIn(Plan((TaskPlan(12),), key=KEY), clock=clock) as first:
        one, port = given(first)["id"], int(first.origin.rpartition(":")[2])
    with pytest.raises(requests.ConnectionError):
        post(first, "update", one, {"status": "failed"})
    with StandIn(port=port, books=first.books) as second:
        assert post(second, "update", one, {"status": "failed"}).status_code == 200
    assert second.assignments[str(one)].status == "failed"


def test_it_hangs_up_when_it_ends(clock: Clock) -> None:
    with requests.Session() as session:
        with StandIn(Plan((TaskPlan(12),), key=KEY), clock=clock) as server:
            session.get(f"{server.base_url}/tasks/list", timeout=20)
        with pytest.raises(requests.ConnectionError):
            session.get(f"{server.base_url}/tasks/list", timeout=20)


# --- contents -------------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", KINDS)
def test_sets_have_the_shape_of_their_kind(start: Start, kind: str) -> None:
    server = start(TaskPlan(12, kind=kind, rows=5, repo="org/model"))
    reply = post(server, "request", "12").content
    found = parse_assignment(reply, "12", kind, 0.0, None)
    merged = merged_input(reply)
    assert found.problem is None and found.needs_data and found.needs_model
    assert {"validation_set_url", "max_params", "hg_repo_id", "revision"} <= set(merged)
    data = requests.get(merged["validation_set_url"], timeout=20).content
    if kind == "rl":
        import numpy

        arrays = numpy.load(io.BytesIO(data))
        assert arrays["X"].shape == (5, 8) and arrays["Info"].shape == (5, 15) and merged["model_filename"]
        return
    rows = [json.loads(line) for line in data.decode().splitlines()]
    assert len(rows) == 5 and data == requests.get(merged["validation_set_url"], timeout=20).content
    if kind == "example":
        assert all(isinstance(row["value"], float) for row in rows)
    else:
        assert all(row["conversations"][-1]["role"] == "assistant" for row in rows)


@pytest.mark.parametrize(("content", "problem"), [
    (Content.EXTRA, None), (Content.TEXT_ID, None), (Content.OWN_FAULT, None), (Content.NO_DATA, "`data`"),
    (Content.NO_SUBMISSION, "`task_submission`"), (Content.BAD_URL, "validation_set_url")])
def test_odd_replies(start: Start, content: Content, problem: str | None) -> None:
    server = start(TaskPlan(12, submissions=2, repo="org/model"), deal=True, contents=(content,))
    bodies = [post(server, "request", "12").content for _ in range(8) if not server.assignments or len(
        server.assignments) < 2]
    odd = [parse_assignment(body, "12", "example", 0.0, None) for body in bodies if b'"id"' in body]
    said = [one.problem for one in odd]
    assert any(problem in (text or "") for text in said) if problem else not any(said)


def test_odd_sets(start: Start) -> None:
    from automate.validation.standin.datasets import validation_set

    task = TaskPlan(12, rows=5)
    broken = validation_set(task, 0, Content.BROKEN_ROW).splitlines()
    assert [i for i, line in enumerate(broken) if not line.endswith(b"}")] == [2] and len(broken) == 5
    assert validation_set(task, 0, Content.EMPTY_SET) == b""
    server = start(TaskPlan(12, submissions=40), deal=True, contents=(Content.NO_SET, Content.SHORT_URL))
    codes: Counter[int] = Counter()
    for _ in range(200):
        reply = post_quietly(server)
        if reply is not None and b'"id"' in reply:
            codes[requests.get(json.loads(reply)["data"]["validation_set_url"], timeout=20).status_code
                  if set_goes_well(server, reply) else 0] += 1
    assert codes[404] == 1 and codes[403] == 1 and codes[200] > 20


def post_quietly(server: StandIn) -> bytes | None:
    try:
        return post(server, "request", "12").content
    except requests.RequestException:
        return None


def set_goes_well(server: StandIn, reply: bytes) -> bool:
    return not server.assignments[str(json.loads(reply)["id"])].data_faults


# --- the schedule ---------------------------------------------------------------------------------
def test_the_same_seed_gives_the_same_faults() -> None:
    plan = Plan(tuple(TaskPlan(number, submissions=60) for number in (1, 2, 3)), rate=0.3, seed=7, deal=True)
    one, two = Schedule(plan), Schedule(plan)
    forwards = [one.trouble(task, number) for task in (1, 2, 3) for number in range(60)]
    backwards = [two.trouble(task, number) for task in (3, 2, 1) for number in reversed(range(60))]
    assert forwards == list(reversed(backwards)) and [one.list_fault(n) for n in range(9)] == [
        two.list_fault(n) for n in range(9)]
    other = Schedule(Plan(plan.tasks, rate=0.3, seed=8, deal=True))
    assert forwards != [other.trouble(task, number) for task in (1, 2, 3) for number in range(60)]


@pytest.mark.parametrize(("each", "seed"), [(14, 0), (14, 1), (67, 2)])
def test_dealing_leaves_no_fault_out(each: int, seed: int) -> None:
    plan = Plan(tuple(TaskPlan(number, submissions=each) for number in (1, 2, 3)), rate=0.1, seed=seed, deal=True)
    covered = Schedule(plan).covered()
    for place, faults in (("request", REQUEST_FAULTS), ("update", UPDATE_FAULTS), ("data", DATA_FAULTS)):
        assert all(covered[f"{place}:{fault}"] for fault in faults)
    assert all(covered[f"content:{content}"] for content in Content)


def test_no_rate_and_no_deal_means_no_fault() -> None:
    assert set(Schedule(Plan((TaskPlan(1),), seed=3)).covered()) == {"content:plain"}


def test_a_client_that_keeps_to_the_rules_ends_as_expected(tmp_path: Path) -> None:
    plan = Plan(tuple(TaskPlan(number, submissions=16) for number in (1, 2, 3)), key=KEY, rate=0.25, seed=5, deal=True,
                slow=0.01)
    with StandIn(plan) as server:
        api = FlockApi(Validation(base_url=server.base_url), KEY, Audit(tmp_path), sleep=lambda _: None)
        held = [one for task in ("1", "2", "3") for one in drain(api, task)]
        for assignment_id, bad in held:
            report(api, assignment_id, bad)
        books = server.assignments
    assert server.violations == []
    expected = Schedule(plan).expected()
    ends = Counter(record.status for record in books.values())
    assert all(record.accepted == (record.status in ("completed", "failed")) for record in books.values())
    assert ends["expired"] == expected["lost"] > 0
    assert all(ends[status] > 0 for status in ("completed", "failed", "validating"))
    met = {fault for record in books.values() for fault in record.faults}
    assert {f"update:{fault}" for fault in UPDATE_FAULTS} <= met


def drain(api: FlockApi, task: str) -> Iterator[tuple[str, bool]]:
    """(id, whether the reply is odd) of all assignments of a task."""
    quiet = 0
    while quiet < 4:
        try:
            found = parse_assignment(api.request_assignment(task), task, "example", 0.0, None)
            quiet = 0
            yield found.id, found.problem is not None
        except NoSubmissions:
            quiet += 1
        except (ApiUnavailable, RateLimited):
            quiet = 0


def report(api: FlockApi, assignment_id: str, bad: bool) -> None:
    for _ in range(0 if bad else 9):
        try:
            if int(assignment_id) % 3:
                api.complete(assignment_id, {"score": 0.5})
            else:
                api.fail(assignment_id)
            return
        except NotValidating:
            return
        except (ApiUnavailable, RateLimited):
            continue


# --- as a program ---------------------------------------------------------------------------------
def test_plans_from_a_file() -> None:
    plan = plan_of({"tasks": [{"id": 5, "kind": "rl", "metrics": ["a"]}], "rate": 0.5, "contents": ["extra"]})
    assert plan.tasks == (TaskPlan(5, kind="rl", metrics=("a",)),) and plan.contents == (Content.EXTRA,)
    wrong: list[object] = [{"task": []}, [], {"tasks": [{"id": 1, "knd": "x"}]}, {"contents": ["odd"]}, {"tasks": 5},
                           {"tasks": [{"kind": "rl"}]}, {"tasks": [{"id": 1, "kind": "vla"}]}]
    for bad in wrong:
        with pytest.raises(ConfigError):
            plan_of(bad)


def test_the_program_serves_until_it_is_ended_and_writes_its_books(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"tasks": [{"id": 77, "submissions": 1}]}')
    command = [sys.executable, "-m", "automate.validation.standin", "--plan", str(tmp_path / "plan.json"),
               "--books", str(tmp_path / "books.json")]
    environ = {**os.environ, "FLOCK_API_KEY": KEY, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ, cwd=tmp_path) as process:
        try:
            assert process.stdout is not None
            api = FlockApi(Validation(base_url=process.stdout.readline().strip()), KEY, Audit(tmp_path / "audit"))
            assert [task.id for task in api.tasks()] == ["77"]
            api.fail(parse_assignment(api.request_assignment("77"), "77", "example", 0.0, None).id)
            with pytest.raises(ApiRefused):
                api.request_assignment("1")
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    books = json.loads((tmp_path / "books.json").read_text())
    assert books["assignments"]["7700000"]["status"] == "failed" and books["waiting"] == {"77": 0}
    assert books["violations"] == ["lookup of a task that there is not: 1"] and KEY not in json.dumps(books)


def test_the_program_says_what_it_lacks(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if name != "FLOCK_API_KEY"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "automate.validation.standin"]
    assert "set FLOCK_API_KEY" in subprocess.run(command, env=environ, capture_output=True, text=True).stderr
    done = subprocess.run([*command, "--plan", str(tmp_path / "none")], env={**environ, "FLOCK_API_KEY": KEY},
                          capture_output=True, text=True)
    assert done.returncode == 1 and "Traceback" not in done.stderr and "none" in done.stderr
