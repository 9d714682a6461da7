"""Pools evaluated by the real commands' own parts: local jobs, rehearsal servers, an engine that is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from automate import claims
from automate.campaign.pools.evaluating import look, shares
from automate.campaign.pools.jobs import submissions_of, submit
from automate.campaign.pools.servers import served_by, start
from automate.cluster.local.executor import LocalCluster
from automate.errors import PoolError
from automate.fleets.jobs import AT_ONCE
from automate.pools.desk import open_desk
from automate.pools.keys import GENESIS, find_key
from automate.pools.round_records import read_spec
from tests.e2e.pool_rig import MODELS, Funded, assert_answered_once, now_ms, until
from tests.unit.pool_support import Bench

LETTERS = {"A": "1", "B": "2", "C": "3", "N": "0"}


@pytest.fixture
def funded(tmp_path: Path) -> Iterator[Callable[..., Funded]]:
    """Makes workspaces; no server of theirs is left at the end."""
    made: list[Funded] = []

    def make(questions: int, **given: Any) -> Funded:
        made.append(Funded(tmp_path / f"w{len(made)}", questions, **given))
        return made[-1]

    yield make
    for one in made:
        one.end()


def test_a_pool_is_evaluated_from_end_to_end(funded: Callable[..., Funded]) -> None:
    made = funded(20)
    looked = made.evaluate(submit=False, wait=False)
    assert (looked.due, looked.rounds) == (40, ())
    assert not made.places.rounds.exists(), "without --submit nothing is made"
    done = made.evaluate()
    assert done.done, made.said
    assert (done.answers, done.strays, done.due) == (40, 0, 0)
    assert_answered_once(made, 20)
    board = made.rows("SELECT answered, total FROM pool_models")
    assert board == [{"answered": 20, "total": 20}] * 2, "who waited sees it on the leaderboard, without the clock"
    letters = {record["reference"]: LETTERS[record["result"]] for record in made.records()}
    rows = made.rows("SELECT inference_reference AS reference, prediction FROM evaluations")
    assert {row["reference"]: row["prediction"] for row in rows} == letters
    until(made.fleets_over, "the fleet's end")
    again = made.evaluate()
    assert (again.answers, again.started, again.rounds, again.due) == (0, 0, (), 0)
    workers = made.rows("SELECT address, unregistered FROM workers ORDER BY address")
    assert [row["address"] for row in workers] == ["m1.1", "m2.1"]
    assert all(row["unregistered"] for row in workers)


def test_options_are_scored_where_the_data_set_says_so(funded: Callable[..., Funded]) -> None:
    made = funded(6, Method="loglikelihood")
    assert made.evaluate().done, made.said
    assert_answered_once(made, 6)
    records = made.records()
    assert all(len(record["scores"]) == 3 for record in records)
    assert all(record["scores"].index(max(record["scores"])) + 1 == int(record["result"]) for record in records)
    rows = made.rows("SELECT inference_reference AS reference, prediction FROM evaluations")
    assert {row["reference"]: row["prediction"] for row in rows} == {
        record["reference"]: record["result"] for record in records}


def test_a_killed_engine_goes_on_where_it_was(funded: Callable[..., Funded]) -> None:
    made = funded(60, rehearsal={"latency": 0.4, "kv_tokens": 1500})
    first = made.evaluate(wait=False)
    assert not first.done
    name = first.rounds[0].name
    until(lambda: len(made.records()) >= 10, "some answers")
    holder = claims.holder_of(made.places.round_claim(name))
    assert holder is not None
    os.kill(holder.pid, signal.SIGKILL)
    until(lambda: not look(made.workspace)[0].may_act, "the job's end")
    before = len(made.records())
    assert before < 120, "it was killed in the middle"
    done = made.evaluate()
    assert done.done, made.said
    assert len(submissions_of(made.workspace, name)) == 2
    assert_answered_once(made, 60)


def test_two_evaluations_at_once_ask_nothing_twice(funded: Callable[..., Funded]) -> None:
    made = funded(40, rehearsal={"latency": 0.3, "kv_tokens": 2000})
    first, second = made.evaluate(wait=False), made.evaluate(wait=False)
    assert [one.name for one in first.rounds] == [one.name for one in second.rounds]
    assert len(submissions_of(made.workspace, first.rounds[0].name)) == 1, "handed over once"
    assert made.evaluate().done
    assert_answered_once(made, 40)


def test_a_stopped_job_keeps_what_it_has(funded: Callable[..., Funded]) -> None:
    made = funded(60, rehearsal={"latency": 0.4, "kv_tokens": 1500})
    name = made.evaluate(wait=False).rounds[0].name
    until(lambda: len(made.records()) >= 5, "some answers")
    holder = claims.holder_of(made.places.round_claim(name))
    assert holder is not None
    os.kill(holder.pid, signal.SIGTERM)
    until(lambda: not look(made.workspace)[0].may_act, "the job's end")
    assert claims.holder_of(made.places.round_claim(name)) is None, "the claim was given up"
    assert made.evaluate().done
    assert_answered_once(made, 60)


def test_before_its_time_limit_a_job_goes_back_into_the_queue_for_the_rest(funded: Callable[..., Funded]) -> None:
    made = funded(60, rehearsal={"latency": 0.4, "kv_tokens": 1500})
    name = made.evaluate(wait=False).rounds[0].name
    until(lambda: len(made.records()) >= 5, "some answers")
    holder = claims.holder_of(made.places.round_claim(name))
    assert holder is not None
    os.kill(holder.pid, signal.SIGUSR2)
    until(lambda: len(list(made.places.answers(name).glob("*.jsonl"))) == 2, "its second start")
    assert len(made.records()) < 120, "it was told in the middle"
    assert made.evaluate().done
    assert len(submissions_of(made.workspace, name)) == 1, "the same job went on"
    assert_answered_once(made, 60)


def test_a_pools_limit_is_shared_by_its_models() -> None:
    assert shares({"a": 1, "b": 9, "c": 9}, 9) == {"a": 1, "b": 4, "c": 4}
    assert shares({"a": 5, "b": 5}, 1) == {"a": 1}
    assert shares({}, 4) == {}


def test_a_model_that_cannot_be_served_keeps_nobody_back(funded: Callable[..., Funded], tmp_path: Path) -> None:
    made = funded(5)
    with Bench(made.workspace.root) as bench:
        bench.clock.now = now_ms()
        gone = bench.send("owner", "pool", "Add-Model", {"name": "gone", "data_tx": str(tmp_path / "gone")})
        joined = bench.send("owner", "pool", "Join-Pool", {"dataset": made.pool, "model": "gone"})
        assert [gone.state, joined.state] == ["handled", "handled"], joined
    settings = made.workspace.settings
    vllm = settings.generate.model_copy(update={"kind": "vllm"})
    real = replace(made.workspace, settings=settings.model_copy(update={"generate": vllm}))
    able, problems = served_by(real, {"gone": str(tmp_path / "gone"), "hub": "owner/name", "bad": "../x"})
    assert able == ["hub"]
    assert len(problems) == 2
    assert made.evaluate().done
    assert made.rows("SELECT count(*) AS n FROM evaluations WHERE state = 'answered'") == [{"n": 15}]


def with_vllm(made: Funded) -> None:
    """Folders have to hold models from now on."""
    settings = made.workspace.settings
    generate = settings.generate.model_copy(update={"kind": "vllm"})
    made.workspace = replace(made.workspace, settings=settings.model_copy(update={"generate": generate}))


def test_folders_that_are_no_models_fail_with_the_reason_and_the_pool_goes_on(funded: Callable[..., Funded],
                                                                              tmp_path: Path) -> None:
    made = funded(3)
    with Bench(made.workspace.root) as bench:
        bench.clock.now = now_ms()
        bench.mint("ann", 100)
        bench.send("ann", "token", "Transfer", Recipient=bench.id("pool"), Quantity=60, X_Dataset="siqa",
                   X_Allocation="Equal")
        other = str(bench.one("SELECT id FROM pools WHERE id <> ?", made.pool))
        bench.send("owner", "pool", "Add-Model", {"name": "gone", "data_tx": str(tmp_path / "gone")})
        joined = bench.send("owner", "pool", "Join-Pool", {"dataset": other, "model": "gone"})
        assert joined.state == "handled", joined
    with_vllm(made)
    for turn in range(3):
        done = made.evaluate(pool=other)
        assert (done.started, done.done, done.rounds, done.due) == (3, False, (), 3 if turn < 2 else 0)
        assert "model gone can't be served" in done.notes[0]
    rows = made.rows("SELECT m.name, e.state, e.attempts, e.error FROM evaluations e JOIN models m ON m.id = model_id "
                     "WHERE e.state <> 'pending'")
    assert [(row["name"], row["state"], row["attempts"]) for row in rows] == [("gone", "failed", 3)] * 3
    assert all("gone" in row["error"] for row in rows), "the other pool's models were not asked"
    assert made.rows(f"SELECT failed, updated > 0 AS updated FROM pool_models WHERE pool = '{other}'") == [
        {"failed": 3, "updated": 1}]
    assert made.evaluate(pool=other).done


def test_a_round_whose_server_never_starts_is_given_up_with_the_reason(funded: Callable[..., Funded],
                                                                       tmp_path: Path) -> None:
    made = funded(2)
    folder = tmp_path / "broken"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json"):
        (folder / name).write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    (folder / "tokenizer_config.json").write_text('{"chat_template": "x"}')
    head = b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}'
    (folder / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + b"0000")
    with Bench(made.workspace.root) as bench:
        bench.clock.now = now_ms()
        bench.store.db.execute("DELETE FROM evaluations")
        added = bench.send("owner", "pool", "Add-Model", {"name": "broken", "data_tx": str(folder)})
        joined = bench.send("owner", "pool", "Join-Pool", {"dataset": made.pool, "model": "broken"})
        assert [added.state, joined.state] == ["handled", "handled"], joined
    (made.workspace.root / "flock-hpc.yaml").write_text(
        (made.workspace.root / "flock-hpc.yaml").read_text().replace("kind: rehearsal", "kind: vllm"))
    with_vllm(made)
    done = made.evaluate()
    assert (done.done, done.due) == (False, 2), made.said
    (view,) = done.rounds
    assert view.given_up is not None and "could not be started" in view.given_up
    rows = made.rows("SELECT state, attempts, error FROM evaluations")
    assert [(row["state"], row["attempts"]) for row in rows] == [("pending", 1)] * 2
    assert all("could not be started" in row["error"] for row in rows)


def test_a_data_set_that_can_not_pay_says_what_it_needs(funded: Callable[..., Funded]) -> None:
    made = funded(3, pools={"price": {"prompt": 7}})
    done = made.evaluate()
    assert (done.started, done.due) == (0, 6)
    (said,) = [line for line in made.said if "tokens" in line]
    assert "data set siqa has 0, and its next question costs" in said and "pool mint siqa" in said


def test_servers_that_ended_while_their_job_waited_come_again(funded: Callable[..., Funded]) -> None:
    made = funded(4, fleet={"idle": 1.0})
    with open_desk(made.places, clock=now_ms) as desk:
        desk.send(find_key(made.places, GENESIS).sign(made.dataset, "Evaluate"))
        name = desk.do("make_round", limit=None, models=None)["name"]  # type: ignore[index]
    spec = read_spec(made.places, name)
    cluster = LocalCluster(made.workspace.local_queue, made.workspace.root, AT_ONCE)
    start(made.workspace, cluster, spec, list(MODELS))
    until(made.fleets_over, "the end of servers that nobody uses")
    submit(made.workspace, cluster, spec)
    until(lambda: len(made.records()) == 8, "all answers")
    assert made.evaluate().done
    assert_answered_once(made, 4)


def test_models_that_have_no_room_come_into_another_round(funded: Callable[..., Funded]) -> None:
    made = funded(4)
    limits = made.workspace.settings.limits.model_copy(update={"max_submitted": 2})
    made.workspace = replace(made.workspace, settings=made.workspace.settings.model_copy(update={"limits": limits}))
    done = made.evaluate()
    assert done.done, made.said
    assert len(done.rounds) == 2
    assert any("limits.max_submitted has room for servers of 1 models" in line for line in made.said)
    assert_answered_once(made, 4)


def test_with_a_limit_of_none_only_what_waits_is_handed_over(funded: Callable[..., Funded]) -> None:
    made = funded(3)
    nothing = made.evaluate(limit=0)
    assert (nothing.started, nothing.rounds, nothing.notes, nothing.due) == (0, (), (), 6)
    some = made.evaluate(limit=4)
    assert (some.started, some.answers, some.due) == (4, 4, 2)


def test_evaluate_says_what_it_can_not_find(funded: Callable[..., Funded]) -> None:
    made = funded(1)
    with pytest.raises(PoolError):
        made.evaluate(pool="nothing-like-it")
