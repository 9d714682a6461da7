"""The second step of `llm_judge` against a judge on loopback: what is scored, what waits, what a person must mend."""

from __future__ import annotations

import json
import logging
import random
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from automate.validation.modules.base import InvalidConfigValueException, Job, RecoverableException
from automate.validation.modules.llm_judge import MODULE
from automate.validation.modules.llm_judge.client import Misconfigured
from automate.validation.modules.llm_judge.kept import FILE, KeptReplies, call_key
from automate.validation.modules.llm_judge.schemas import LLMJudgeConfig
from automate.validation.standin.judge import KEY, Judge, Reply, failing, said, scored
from tests.unit.llm_judge_support import make_input, make_job, make_partial


def no_sleep(seconds: float) -> None:
    """Waits are counted elsewhere."""


def finish(job: Job, judge: Judge, partial: Mapping[str, Any] | None = None, *, parallel: int = 4,
           environ: Mapping[str, str] | None = None, sleep: Callable[[float], None] = no_sleep,
           **eval_args: Any) -> float:
    module = MODULE(LLMJudgeConfig(eval_batch_size=parallel), job=job)
    try:
        metrics = module.finish(make_input(**eval_args), partial or make_partial("one", "two"), job=job,
                                environ=judge.environ if environ is None else environ, sleep=sleep,
                                seeds=random.Random(1))
    finally:
        module.cleanup()
    return metrics.score


def by_answer(**replies: Reply) -> Callable[[int, Mapping[str, Any]], Reply]:
    """Replies chosen by the answer that the prompt shows."""
    def choose(number: int, body: Mapping[str, Any]) -> Reply:
        shown = body["messages"][0]["content"].rsplit("A=", 1)[1]
        return replies[shown]
    return choose


def test_every_answer_goes_before_every_judge_as_often_as_asked(tmp_path: Path) -> None:
    with Judge([scored(8, 0.5)]) as judge:
        score = finish(make_job(tmp_path), judge, eval_require=3, temperature=0.3)
    assert score == pytest.approx(0.4)
    assert len(judge.calls) == 2 * 2 * 3
    first = judge.calls[0]
    assert set(first) == {"model", "messages", "temperature", "seed"}
    assert [message["role"] for message in first["messages"]] == ["user", "system"]
    assert {call["model"] for call in judge.calls} == {"judge-a", "judge-b"}
    assert {call["temperature"] for call in judge.calls} == {0.3}
    seeds = [call["seed"] for call in judge.calls]
    assert all(0 <= seed <= 10_000 for seed in seeds) and len(set(seeds)) > 6


def test_several_generations_are_judged_each(tmp_path: Path) -> None:
    partial = make_partial("a", "b") | {"answers": [["a", "b"], ["c", "d"]]}
    replies = by_answer(a=scored(1, 1), b=scored(2, 1), c=scored(3, 1), d=scored(10, 1))
    with Judge(replies) as judge:
        assert finish(make_job(tmp_path), judge, partial, eval_model_list=["judge-a"]) == pytest.approx(0.4)


def test_names_of_judges_become_fields_on_the_wire(tmp_path: Path) -> None:
    with Judge() as judge:
        finish(make_job(tmp_path), judge, make_partial("x"), eval_model_list=["kimi-k2.6-thinking", "o9-high"])
    kimi, other = judge.calls
    assert (kimi["model"], kimi["temperature"]) == ("kimi-k2.6", 1)
    assert kimi["extra_body"] == {"thinking": {"type": "enabled"}}
    assert (other["model"], other["reasoning_effort"]) == ("o9", "high")


def test_what_judges_reply_is_scored_by_the_protocol(tmp_path: Path) -> None:
    """Junk counts as nothing; a reply that the client trips over makes its whole answer count as 5 x 0.5 once."""
    replies = by_answer(good=scored(10, 1), junk=said("I'd rather not"), none=said(None), null=scored(None))
    job = make_job(tmp_path)
    with Judge(replies) as judge:
        score = finish(job, judge, make_partial("good", "junk", "none", "null"))
    assert score == pytest.approx((10 + 10 + 0 + 0 + 2.5 + 2.5) / 6 / 10)
    assert len(job.notes) == 1 and job.notes[0].startswith("2 of 4 answers count as 5 x 0.5")


@pytest.mark.parametrize(("prompt", "partial", "expected", "calls"), [
    (2, make_partial("x"), 0.25, 0), (3, make_partial("x", reference="r"), 0.25, 0),
    (2, make_partial("x", reference="r"), 0.8, 2), (3, make_partial("x", reference="r", tools="[]"), 0.8, 2),
    (0, make_partial("x"), 0.8, 2), (17, make_partial("x"), 0.8, 2)])
def test_prompts_without_what_they_need_fall_to_the_default(tmp_path: Path, prompt: int, partial: dict[str, Any],
                                                            expected: float, calls: int) -> None:
    with Judge([scored(8, 1)]) as judge:
        assert finish(make_job(tmp_path), judge, partial, prompt_id=prompt) == pytest.approx(expected)
    assert len(judge.calls) == calls


@pytest.mark.parametrize("trouble", [failing(429, retry_after="7"), failing(500), failing(503), failing(408),
                                     failing(402), Reply("x", drop="before"), Reply("x" * 99, drop="middle"),
                                     Reply(body=b"<html>gateway</html>"), Reply(body=b"[]"),
                                     Reply(body=b'{"choices": []}'),
                                     Reply(body=b'{"error": {"message": "overloaded"}}')])
def test_trouble_that_passes_is_asked_through(tmp_path: Path, trouble: Reply) -> None:
    waits: list[float] = []
    with Judge([trouble, trouble, scored(6, 1)]) as judge:
        assert finish(make_job(tmp_path), judge, make_partial("x"), parallel=1, sleep=waits.append,
                      eval_model_list=["judge-a"]) == pytest.approx(0.6)
    assert waits == ([7.0, 7.0] if trouble.headers else [1.0, 2.0])


@pytest.mark.parametrize(("trouble", "cause"), [
    (failing(500), "judge-unavailable"), (failing(429), "judge-limits"),
    (Reply("x", drop="before"), "judge-unavailable"),
    (Reply(body=b"junk"), "judge-unavailable"), (failing(402), "judge-limits")])
def test_an_outage_is_never_a_score_and_nobody_pays_twice(tmp_path: Path, trouble: Reply, cause: str) -> None:
    job, partial = make_job(tmp_path), make_partial(*(f"answer {number}" for number in range(10)))
    with Judge(lambda number, _: scored(9, 1) if number < 8 else trouble) as judge:
        with pytest.raises(RecoverableException) as found:
            finish(job, judge, partial, parallel=1, eval_model_list=["judge-a"])
        assert not isinstance(found.value, InvalidConfigValueException)
    assert found.value.cause == cause
    asked = len(judge.calls)
    assert asked == 8 + 5  # nothing is begun after the first call that met trouble to its end
    with Judge([scored(4, 1)]) as judge:
        assert finish(job, judge, partial, parallel=4, eval_model_list=["judge-a"]) == pytest.approx(8.0 / 10)
    assert len(judge.calls) == 2


def test_a_process_killed_while_it_wrote_loses_one_reply_at_most(tmp_path: Path) -> None:
    job, partial = make_job(tmp_path), make_partial("a", "b", "c")
    with Judge() as judge:
        finish(job, judge, partial, parallel=1, eval_model_list=["judge-a"])
    assert job.folder is not None
    path = job.folder / FILE
    path.write_bytes(path.read_bytes()[:-20])
    for expected in (1, 0):
        with Judge() as judge:
            finish(job, judge, partial, eval_model_list=["judge-a"])
        assert len(judge.calls) == expected
    rows = [line for line in path.read_bytes().split(b"\n") if line]
    assert len(rows) == 4 and json.loads(rows[-1])["model"] == "judge-a"


def test_kept_replies_are_for_the_same_question_only(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    for answer, calls in (("x", 1), ("x", 0), ("y", 1)):
        with Judge() as judge:
            finish(job, judge, make_partial(answer), eval_model_list=["judge-a"])
        assert len(judge.calls) == calls
    assert call_key(0, 0, "a", {"x": 1}) != call_key(0, 1, "a", {"x": 1}) != call_key(1, 1, "a", {"x": 1})


def test_without_a_folder_replies_are_kept_in_memory_only(tmp_path: Path) -> None:
    job = Job(scratch=tmp_path, judge_prompts=make_job(tmp_path).judge_prompts)
    for _ in range(2):
        with Judge() as judge:
            finish(job, judge, make_partial("x"))
        assert len(judge.calls) == 2


def test_lines_that_are_no_replies_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / FILE
    good = json.dumps({"key": "k", "model": "m", "text": None}).encode()
    path.write_bytes(b'\n[]\n{"key": 1, "model": "m", "text": ""}\n\xff\n{"key": "q"}\n' + good)
    kept = KeptReplies(path)
    assert len(kept) == 1 and "k" in kept and kept.text("k") is None and kept.models == {"m"}
    kept.add("l", "n", "text")
    assert len(KeptReplies(path)) == 2


# --- refusals ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("status", [400, 403, 413, 422])
def test_a_judge_that_refuses_one_answer_gives_it_the_default(tmp_path: Path, status: int) -> None:
    job = make_job(tmp_path)
    with Judge(by_answer(fine=scored(10, 1), bad=failing(status, "filtered"))) as judge:
        score = finish(job, judge, make_partial("bad", "fine"), eval_model_list=["judge-a"])
    assert score == pytest.approx((2.5 + 10) / 2 / 10)
    assert "filtered" in job.notes[0]


def test_a_judge_that_refuses_everything_is_a_persons_matter(tmp_path: Path) -> None:
    """One judge answers, the other takes no temperature, say: it isn't scored as if the answers were poor."""
    def choose(number: int, body: Mapping[str, Any]) -> Reply:
        return scored() if body["model"] == "judge-a" else failing(400, "temperature is not supported")
    refused = r"judge-b.*temperature is not supported"
    with Judge(choose) as judge, pytest.raises(InvalidConfigValueException, match=refused) as found:
        finish(make_job(tmp_path), judge, make_partial(*"abcdefghijklmnopqrstuvwxyz"), parallel=1)
    assert found.value.cause == "judge-refuses"
    assert len(judge.calls) == 2 * 8


def test_few_refusals_and_no_answer_are_a_persons_matter_too(tmp_path: Path) -> None:
    with Judge([failing(422, "no")]) as judge, pytest.raises(InvalidConfigValueException) as found:
        finish(make_job(tmp_path), judge, make_partial("a", "b"), eval_model_list=["judge-a"])
    assert found.value.cause == "judge-refuses"


def test_the_trouble_is_told_and_not_who_stopped_for_it(tmp_path: Path) -> None:
    replies = by_answer(slow=Reply('{"score": 1}', wait=1.0), broken=failing(404, "no such model"))
    with Judge(replies) as judge, pytest.raises(Misconfigured, match="no such model"):
        finish(make_job(tmp_path), judge, make_partial("slow", "broken"))
    assert len(judge.calls) == 2


@pytest.mark.parametrize(("status", "cause"), [(401, "judge-key"), (404, "judge-config"), (307, "judge-config")])
def test_a_wrong_key_address_or_model_is_not_asked_again(tmp_path: Path, status: int, cause: str) -> None:
    reply = failing(status, "no such model", location="http://127.0.0.1:9/")
    with Judge([reply]) as judge, pytest.raises(Misconfigured) as found:
        finish(make_job(tmp_path), judge, make_partial("x"), parallel=1)
    assert (found.value.cause, len(judge.calls)) == (cause, 1)


@pytest.mark.parametrize("environ", [
    {}, {"OPENAI_API_KEY": " "}, {"OPENAI_API_KEY": "a\nb"}, {"OPENAI_API_KEY": "kéy"}, {"OPENAI_BASE_URL": ""},
    {"OPENAI_BASE_URL": "http://judge.example/v1"}, {"OPENAI_BASE_URL": "https://user:secret-word@judge.example/v1"},
    {"OPENAI_BASE_URL": "ftp://127.0.0.1/"}, {"OPENAI_BASE_URL": "https://judge.example/v1?key=secret-word"},
    {"OPENAI_BASE_URL": "https://[::1/v1"}])
def test_keys_and_addresses_that_can_not_be_are_named_and_not_shown(tmp_path: Path, environ: dict[str, str]) -> None:
    with Judge() as judge:
        given = judge.environ | environ if environ else {}
        with pytest.raises(Misconfigured, match="OPENAI_") as found:
            finish(make_job(tmp_path), judge, environ=given)
    assert "secret-word" not in str(found.value) and "kéy" not in str(found.value)
    assert judge.calls == []


def test_a_refused_key_is_found_before_anything_is_asked(tmp_path: Path) -> None:
    with Judge() as judge, pytest.raises(Misconfigured) as found:
        finish(make_job(tmp_path), judge, environ=judge.environ | {"OPENAI_API_KEY": "wrong-key-77"})
    assert found.value.cause == "judge-key" and judge.calls == []
    assert "wrong-key-77" not in str(found.value)


def test_the_key_is_in_no_file_log_or_note(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = make_job(tmp_path)
    caplog.set_level(logging.DEBUG)
    replies = by_answer(a=said(f'{{"score": 8, "confidence": 1, "reasoning": "{KEY}"}}'),
                        b=failing(400, f"your key {KEY} may not"))
    with Judge(replies) as judge:
        finish(job, judge, make_partial("a", "b"), eval_model_list=["judge-a"])
    with Judge([failing(500, f"your key {KEY}")]) as judge, pytest.raises(RecoverableException) as found:
        finish(job, judge, make_partial("c"))
    assert job.folder is not None
    everything = b"".join(path.read_bytes() for path in job.folder.rglob("*") if path.is_file())
    assert everything and KEY.encode() not in everything
    assert KEY not in str(found.value) and KEY not in "".join(job.notes) and KEY not in caplog.text


def test_a_netrc_does_not_replace_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with Judge() as judge:
        finish(make_job(tmp_path), judge)
    assert judge.calls


def test_judges_that_the_provider_does_not_list_are_asked_and_named(tmp_path: Path) -> None:
    job = make_job(tmp_path)
    with Judge(models=("judge-a",)) as judge:
        finish(job, judge, eval_model_list=["judge-a-high", "other"])
    assert {call["model"] for call in judge.calls} == {"judge-a", "other"}
    assert job.notes == ["the provider doesn't list other; asked all the same"]


def test_calls_run_side_by_side(tmp_path: Path) -> None:
    barrier = threading.Barrier(4)

    def choose(number: int, body: Mapping[str, Any]) -> Reply:
        barrier.wait(20)
        return scored(7, 1)
    with Judge(choose) as judge:
        assert finish(make_job(tmp_path), judge, make_partial(*"abcd"), eval_model_list=["j"]) == pytest.approx(0.7)


def test_a_judge_that_takes_too_long_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("automate.validation.modules.llm_judge.client.READ_TIMEOUT", 0.2)
    with Judge([Reply(wait=60)]) as judge, pytest.raises(RecoverableException, match="ReadTimeout") as found:
        finish(make_job(tmp_path), judge, make_partial("x"), parallel=1)
    assert (found.value.cause, len(judge.calls)) == ("judge-unavailable", 5)


def test_a_full_disk_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: KeptReplies, line: bytes) -> None:
        raise OSError(28, "No space left on device")
    monkeypatch.setattr(KeptReplies, "_append", full)
    with Judge() as judge, pytest.raises(OSError, match="No space"):
        finish(make_job(tmp_path), judge)


def test_without_prompts_or_judges_nothing_is_asked(tmp_path: Path) -> None:
    with Judge() as judge:
        with pytest.raises(InvalidConfigValueException, match=r"validation\.judge_prompts"):
            finish(Job(scratch=tmp_path), judge)
        with pytest.raises(InvalidConfigValueException, match="eval_model_list"):
            finish(make_job(tmp_path), judge, eval_model_list=[])
    assert judge.calls == [] and judge.listed == 0
