"""Rounds: work goes out whole, answers come back once, and a crash anywhere loses and repeats nothing."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from automate.errors import DataError, PoolError
from automate.journal import read_json
from automate.pools.round_records import (
    Answer,
    answer_record,
    check_worker,
    line_of,
    work_of,
    work_record,
    worker_record,
)
from automate.pools.rounds import Work, fail_unserved, give_up, hand_in, make_round, open_rounds, read_spec, read_work
from tests.unit.pool_rounds_support import add_model, append, begun, handled, job, states
from tests.unit.pool_support import HOUR, Bench, opened


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with opened(tmp_path) as bench:
        yield bench


def test_a_round_goes_out_and_comes_back(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert spec == read_spec(bench.places, spec.name)
    assert (spec.count, spec.models) == (3, {"tiny": "org/tiny"})
    assert states(bench, "inferences") == {"sent": 3}
    assert make_round(bench.exchange, bench.places) is None
    job(bench, spec)
    (back,) = hand_in(bench.exchange, bench.places)
    assert (back.answers, back.strays, back.left, back.broken) == (3, 0, 0, 0)
    assert states(bench) == {"answered": 3}
    assert bench.rows("SELECT prediction, answer, worker FROM evaluations")[0] == {
        "prediction": "1", "answer": "A", "worker": "tiny.1"}
    assert json.loads(bench.places.done(spec.name).read_text())["state"] == "answered"
    assert hand_in(bench.exchange, bench.places) == []
    assert bench.one("SELECT count(*) FROM workers WHERE unregistered IS NULL") == 0


def test_the_work_says_how_to_ask(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    first = read_work(bench.places, spec.name)[0]
    assert first.method == "generate"
    assert first.max_tokens == 1
    assert [one["role"] for one in first.messages] == ["system", "user"]
    assert "Tracy didn't go home" in first.messages[1]["content"]
    assert first.reference == bench.rows("SELECT inference_reference AS r FROM evaluations ORDER BY id")[0]["r"]


def test_records_that_come_bit_by_bit(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    path = job(bench, spec, only=1)
    assert hand_in(bench.exchange, bench.places)[0].left == 2
    whole = json.dumps(answer_record(Answer(read_work(bench.places, spec.name)[1].reference, "B", "tiny.1", 1, 2)))
    with path.open("a") as out:
        out.write(whole[:20])
    (torn,) = hand_in(bench.exchange, bench.places)
    assert (torn.answers, torn.broken, torn.left) == (0, 0, 2)
    with path.open("a") as out:
        out.write(whole[20:] + "\n")
    assert hand_in(bench.exchange, bench.places)[0].answers == 1
    bench.places.handed(spec.name).unlink()
    (again,) = hand_in(bench.exchange, bench.places)
    assert (again.answers, again.strays, again.left) == (0, 0, 1)


def test_broken_records_are_named_and_the_rest_is_taken(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    reference = read_work(bench.places, spec.name)[0].reference
    path = bench.places.answers(spec.name) / "0.jsonl"
    good: dict[str, object] = {"kind": "answer", "reference": reference, "result": "A", "worker": "tiny.1",
                               "started": 1, "ended": 2}
    router, lone = bench.exchange.router, "\\ud800"
    path.write_text("\n".join(["no JSON", "[]", "{}", json.dumps(good | {"worker": router}), "\0\0\0",
                               json.dumps(good | {"worker": "a b"}), json.dumps(good | {"started": "x"}),
                               json.dumps(good | {"result": 3}), json.dumps(good | {"result": "x" * 300_000}),
                               json.dumps(good | {"kind": "money"}), json.dumps(good | {"result": None}),
                               json.dumps(worker_record("w", "tiny", "joined") | {"state": "gone"}),
                               json.dumps(worker_record("w", "nobody", "joined")),
                               json.dumps(good | {"scores": [float("nan")]}),
                               '{"reference": "' + lone + '", "result": "A", "worker": "w", "started": 1, "ended": 1}',
                               "[" * 100_000, ""]))
    job(bench, spec)
    (back,) = hand_in(bench.exchange, bench.places)
    assert back.broken == 16
    assert any("no key" in one or "shape of a key" in one for one in back.bad)
    assert (back.answers, back.strays, back.left) == (3, 0, 0)
    assert states(bench) == {"answered": 3}


def test_what_is_no_file_is_named(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    folder = bench.places.answers(spec.name)
    (folder / "a.jsonl").mkdir()
    (folder / "b.jsonl").symlink_to("nowhere")
    os.mkfifo(folder / "c.jsonl")
    job(bench, spec)
    (back,) = hand_in(bench.exchange, bench.places)
    assert (back.answers, back.broken) == (3, 3)
    assert all("no ordinary file" in one for one in back.bad)


def test_a_line_too_long_to_read_is_skipped(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.pools.handing.LONGEST", 400)
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    append(bench, spec.name, ["x" * 1000], "0.jsonl")
    job(bench, spec)
    (back,) = hand_in(bench.exchange, bench.places)
    assert (back.broken, back.answers) == (1, 3)


def test_the_same_answer_twice_counts_once(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    job(bench, spec, only=2)
    job(bench, spec, says="B", worker="tiny.2", only=2, file="2.jsonl")
    (back,) = hand_in(bench.exchange, bench.places)
    assert (back.answers, back.strays, back.left) == (2, 2, 1)
    assert [row["reason"] for row in bench.rows("SELECT reason FROM strays")] == ["twice", "twice"]
    assert [row["answer"] for row in bench.rows("SELECT answer FROM evaluations ORDER BY id")] == ["A", "A", None]


def test_answers_of_nobody_and_of_another_model(bench: Bench) -> None:
    begun(bench, "tiny", "other", rows=1)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    tiny, other = sorted(read_work(bench.places, spec.name), key=lambda one: one.model != "tiny")
    append(bench, spec.name, [answer_record(Answer("nothing", "A", "tiny.1", 1, 2)),
                              worker_record("tiny.1", "tiny", "joined"),
                              answer_record(Answer(tiny.reference, "A", "tiny.1", 1, 2)),
                              answer_record(Answer(other.reference, "A", "tiny.1", 1, 2))])
    (back,) = hand_in(bench.exchange, bench.places)
    assert (back.answers, back.strays, back.left) == (1, 2, 1)
    assert [row["reason"] for row in bench.rows("SELECT reason FROM strays ORDER BY id")] == ["unknown", "elsewhere"]


def test_a_round_given_up_is_asked_again(bench: Bench) -> None:
    begun(bench)
    first = make_round(bench.exchange, bench.places)
    assert first is not None
    job(bench, first, only=1)
    assert give_up(bench.exchange, bench.places, first.name) == 2
    assert states(bench) == {"answered": 1, "started": 2}
    assert give_up(bench.exchange, bench.places, first.name) == 0
    second = make_round(bench.exchange, bench.places)
    assert second is not None
    assert (second.count, second.name == first.name) == (2, False)
    job(bench, second)
    hand_in(bench.exchange, bench.places)
    assert states(bench) == {"answered": 3}
    with pytest.raises(PoolError, match="no round"):
        give_up(bench.exchange, bench.places, "never")


def test_a_prompt_that_kills_every_job_fails_in_the_end(bench: Bench) -> None:
    begun(bench, rows=1)
    for _ in range(bench.settings.attempts):
        spec = make_round(bench.exchange, bench.places)
        assert spec is not None
        append(bench, spec.name, [worker_record("tiny.1", "tiny", "joined")])
        hand_in(bench.exchange, bench.places)
        give_up(bench.exchange, bench.places, spec.name)
    assert states(bench, "inferences") == {"failed": 1}
    assert states(bench) == {"pending": 1}
    assert "jobs ended" in bench.one("SELECT error FROM evaluations")


def test_a_model_whose_server_never_starts_fails_with_the_reason(bench: Bench) -> None:
    begun(bench, "tiny", "other", rows=1)
    for turn in range(bench.settings.attempts):
        spec = make_round(bench.exchange, bench.places)
        assert spec is not None
        if turn == 0:
            job(bench, spec, worker="other.1")
            hand_in(bench.exchange, bench.places)
        give_up(bench.exchange, bench.places, spec.name, why="no hope", hopeless={"tiny": "config.json is missing"})
        assert read_json(bench.places.done(spec.name)) == {"round": spec.name, "state": "given up", "why": "no hope"}
        handled(bench.send("owner", "siqa", "Evaluate"))
    assert states(bench) == {"answered": 1, "failed": 1}
    assert bench.one("SELECT error FROM evaluations WHERE state = 'failed'") == "config.json is missing"
    assert make_round(bench.exchange, bench.places) is None, "and is tried no more"


def test_what_waits_for_a_model_that_is_nowhere_fails_with_the_reason(bench: Bench, monkeypatch: pytest.MonkeyPatch,
                                                                      ) -> None:
    monkeypatch.setattr("automate.pools.router.PAGE", 2)
    begun(bench, "tiny", "other", rows=3)
    for _ in range(bench.settings.attempts):
        assert fail_unserved(bench.exchange, {"tiny": "no such folder", "unheard-of": "x"}) == 3
        assert fail_unserved(bench.exchange, {"tiny": "no such folder"}) == 0
        handled(bench.send("owner", "siqa", "Evaluate"))
    assert states(bench) == {"failed": 3, "started": 3}
    assert bench.one("SELECT DISTINCT error FROM evaluations WHERE state = 'failed'") == "no such folder"
    assert states(bench, "inferences") == {"failed": 9, "queued": 3}


def test_a_job_that_never_began_is_no_try(bench: Bench) -> None:
    begun(bench, rows=1)
    for _ in range(5):
        spec = make_round(bench.exchange, bench.places)
        assert spec is not None
        give_up(bench.exchange, bench.places, spec.name)
    assert states(bench, "inferences") == {"queued": 1}
    assert bench.one("SELECT tries FROM inferences") == 0


def test_a_folder_that_is_gone_gives_its_work_back(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    shutil.rmtree(bench.places.round(spec.name))
    (back,) = hand_in(bench.exchange, bench.places)
    assert "gone" in back.bad[0]
    assert states(bench, "inferences") == {"queued": 3}


def test_limit_and_models(bench: Bench) -> None:
    begun(bench, "tiny", "other")
    spec = make_round(bench.exchange, bench.places, limit=2, models=["other"])
    assert spec is not None
    assert spec.models == {"other": "org/other"}
    assert {one.model for one in read_work(bench.places, spec.name)} == {"other"}
    assert states(bench, "inferences") == {"queued": 4, "sent": 2}
    with pytest.raises(PoolError, match="no model"):
        make_round(bench.exchange, bench.places, models=["'; DROP TABLE inferences --"])


def test_a_round_that_could_not_be_sent_is_done_with(bench: Bench) -> None:
    begun(bench)
    (bench.places.rounds / "orphan").mkdir(parents=True)
    (bench.places.rounds / "a folder & more").mkdir()
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert bench.places.done("orphan").exists()
    assert open_rounds(bench.exchange, bench.places) == [spec.name]


def test_what_was_said_of_workers_is_in_the_round(bench: Bench) -> None:
    begun(bench)
    handled(bench.send("owner", "router", "Register-Worker", {"model": "tiny", "worker": "tiny.1"}))
    handled(bench.send("owner", "router", "setMaxTokens", "7", Worker="tiny.1"))
    handled(bench.send("owner", "router", "setSystemPrompt", "Say A.", Model="tiny"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert spec.workers == {"tiny.1": {"model": "tiny", "max_tokens": 7, "system_prompt": "Say A."},
                            "tiny/*": {"model": "tiny", "system_prompt": "Say A."}}


@pytest.mark.parametrize("what", ["make_round", "hand_in", "give_up"])
def test_a_crash_anywhere_loses_and_repeats_nothing(tmp_path: Path, what: str) -> None:
    at = 1
    while True:
        with opened(tmp_path / str(at)) as bench:
            begun(bench, rows=3)
            spec = None
            if what != "make_round":
                spec = make_round(bench.exchange, bench.places)
                assert spec is not None
                job(bench, spec, only=2)

            def doing(bench: Bench = bench, name: str = spec.name if spec else "") -> None:
                if what == "make_round":
                    make_round(bench.exchange, bench.places)
                elif what == "hand_in":
                    hand_in(bench.exchange, bench.places)
                else:
                    give_up(bench.exchange, bench.places, name)

            crashed = bench.crash(at, doing)
            _finish(bench)
            assert states(bench) == {"answered": 3}
            assert states(bench, "inferences") == {"answered": 3}
            assert bench.one("SELECT count(*) FROM strays") == 0
            assert bench.one("SELECT count(*) FROM attempts") == 3
            assert bench.one("SELECT sum(workload) FROM workers") == 0
            if not crashed:
                return
        at += 3


def _finish(bench: Bench) -> None:
    """As commands after the crash would: all open rounds are given up, and what is left is asked again."""
    hand_in(bench.exchange, bench.places)
    for name in open_rounds(bench.exchange, bench.places):
        give_up(bench.exchange, bench.places, name)
    spec = make_round(bench.exchange, bench.places)
    if spec is not None:
        job(bench, spec, worker="tiny.2")
        hand_in(bench.exchange, bench.places)
    assert make_round(bench.exchange, bench.places) is None


def test_waiting_for_a_job_is_no_attempt(bench: Bench) -> None:
    begun(bench)
    for _ in range(9):
        bench.clock.forward(3 * HOUR)
        handled(bench.send("owner", "siqa", "Evaluate"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    bench.clock.forward(30 * HOUR)
    handled(bench.send("owner", "siqa", "Evaluate"))
    job(bench, spec)
    assert hand_in(bench.exchange, bench.places)[0].answers == 3
    assert {row["attempts"] for row in bench.rows("SELECT attempts FROM evaluations")} == {1}


def test_a_job_that_began_and_hangs_times_out(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    path = job(bench, spec, only=1)
    hand_in(bench.exchange, bench.places)
    bench.clock.forward(3 * HOUR)
    handled(bench.send("owner", "siqa", "Evaluate"))
    assert states(bench, "inferences") == {"answered": 1, "cancelled": 2, "queued": 2}
    path.unlink()
    job(bench, spec, file="9.jsonl")
    hand_in(bench.exchange, bench.places)
    assert states(bench) == {"answered": 1, "started": 2}


def test_a_model_that_was_asked_for_gets_a_round(bench: Bench) -> None:
    add_model(bench)
    handled(bench.send("owner", "router", "loadModel", "tiny"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert (spec.count, spec.models) == (0, {"tiny": "org/tiny"})
    assert make_round(bench.exchange, bench.places) is None
    hand_in(bench.exchange, bench.places)
    assert open_rounds(bench.exchange, bench.places) == [spec.name]
    append(bench, spec.name, [worker_record("tiny.1", "tiny", "joined")])
    hand_in(bench.exchange, bench.places)
    assert open_rounds(bench.exchange, bench.places) == []
    assert bench.one("SELECT outcome FROM wishes") == "worker tiny.1"


def test_a_model_that_was_asked_for_in_vain(bench: Bench) -> None:
    add_model(bench)
    handled(bench.send("owner", "router", "loadModel", "tiny"))
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    assert give_up(bench.exchange, bench.places, spec.name) == 0
    assert "without a server" in bench.one("SELECT outcome FROM wishes")
    assert make_round(bench.exchange, bench.places) is None


def test_files_that_were_changed(bench: Bench) -> None:
    begun(bench)
    spec = make_round(bench.exchange, bench.places)
    assert spec is not None
    bench.places.work(spec.name).write_text('{"reference": 1}\n')
    with pytest.raises(DataError, match="messages is no chat"):
        read_work(bench.places, spec.name)
    bench.places.round_spec(spec.name).write_text("{")
    with pytest.raises(DataError, match="round"):
        read_spec(bench.places, spec.name)


def test_lines_say_what_they_said() -> None:
    work = Work("r", "m", ({"role": "user", "content": "q"},), "loglikelihood", ("a", "b"), None)
    assert work_of(json.loads(json.dumps(work_record(work)))) == work
    answer = Answer("r", None, "w", 1, 2, (-1.5, -2.0), "boom")
    assert line_of(json.loads(json.dumps(answer_record(answer)))) == answer
    assert check_worker("http://host:80/v1".replace("http://", ""))
    for bad in ("", " ", "a" * 43, "a b", "é", "-x", "a\n"):
        with pytest.raises(ValueError, match="worker"):
            check_worker(bad)
