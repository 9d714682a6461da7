"""What is learned of a judge from run records: by median, by GPU, with little trust in little data."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from automate.campaign.forecasts.history import Start, queue_wait, starts_of
from automate.campaign.forecasts.rates import (
    OVERHEAD,
    PER_OUTPUT,
    PER_PROMPT,
    UNKNOWN,
    Guess,
    assumed,
    learn,
)
from automate.cluster.submit import Submission
from tests.unit.support import make_settings

JUDGE = "neuralmagic-llama3.1-70b-instruct-fp8"
GAME = 2450 * PER_PROMPT + 700 * PER_OUTPUT


def record(games: int = 1500, slower: float = 1.0, **more: Any) -> dict[str, Any]:
    """The record of a start whose judge takes `slower` times what is assumed of one."""
    play = games * GAME * slower
    return {
        "plan": "p", "batch": 1, "judge": JUDGE, "job": "7_1", "node": "n1", "gpus": 1, "gpu": "NVIDIA H200",
        "phase": "ended", "status": 0, "started": 1000.0, "seconds": play + 150, "play_seconds": play, "played": games,
        "outcomes": {"verdict": games}, "usage": [2450 * games, 700 * games, 0], "models": ["m"],
        "game_seconds": {"median": 0.0, "p95": 0.0, "max": 0.0},
        "load": [{"seconds": 120.0, "weights": 70_000_000_000, "disk_rate": 1.4e9, "filesystem": "lustre"}], **more,
    }


def starts(*records: dict[str, Any]) -> list[Start]:
    return starts_of(records, {})


def settings(**values: Any) -> Any:
    return make_settings(**{"judge": {"name": JUDGE}, "gpu": {"name": "H200"}, **values})


def factor(*records: dict[str, Any], **values: Any) -> float:
    """How much slower than assumed the judge is taken to be."""
    return learn(starts(*records), settings(**values)).per_output / PER_OUTPUT


# --- without history -------------------------------------------------------------------------------


def test_without_history_the_constants_hold_and_the_interval_is_wide() -> None:
    rates = learn([], settings())
    assert (rates.per_prompt, rates.per_output, rates.batches) == (PER_PROMPT, PER_OUTPUT, 0)
    assert rates.spread == UNKNOWN
    assert "H200" in rates.source
    one = Guess(10.0, rates.spread, "").interval()
    assert one.high / one.low > 8


def test_rates_of_the_settings_come_before_the_constants_and_are_trusted_more() -> None:
    rates = assumed(settings(gpu={"prompt_tokens_per_second": 1000, "output_tokens_per_second": 200}))
    assert (rates.per_prompt, rates.per_output) == (1e-3, 5e-3)
    assert rates.spread < UNKNOWN
    half = assumed(settings(gpu={"output_tokens_per_second": 200}))
    assert (half.per_prompt, half.per_output, half.spread) == (PER_PROMPT, 5e-3, UNKNOWN)


def test_the_load_time_is_that_of_the_weights_where_nobody_has_loaded_them() -> None:
    assert assumed(settings()).load.value == 300
    assert assumed(settings(), 70_000_000_000).load.value == pytest.approx(130)


def test_a_disk_that_other_judges_were_loaded_from_is_known() -> None:
    other = record(judge="another", load=[{"seconds": 50.0, "disk_rate": 5e9, "filesystem": "lustre"}])
    rates = learn(starts(other), settings(), weight_bytes=100_000_000_000)
    assert rates.load.value == pytest.approx(80)
    assert rates.batches == 0


def test_a_rehearsal_judge_is_as_fast_as_its_options_say() -> None:
    pool = {"latency": 2.0, "kv_tokens": 100_000, "load_seconds": 9}
    rates = assumed(make_settings(judge={"kind": "rehearsal", "rehearsal": pool}))
    assert rates.work(1000, 1000 * 2450, 1000 * 31) == pytest.approx(1000 * 2.0 * (2450 + 31) / 100_000)
    assert rates.load.value == pytest.approx(10)
    few = make_settings(judge={"kind": "rehearsal", "concurrency": 4, "rehearsal": {"latency": "0.5"}})
    assert assumed(few).work(100, 0, 0) == pytest.approx(100 * 0.5 / 4)


def test_a_paid_judge_is_bound_by_its_requests_a_minute() -> None:
    paid = make_settings(judge={"kind": "openai", "base_url": "https://host/v1", "requests_per_minute": 30})
    assert assumed(paid).work(10, 1, 1) == pytest.approx(20)


# --- learning --------------------------------------------------------------------------------------


def test_one_long_start_nearly_settles_the_rate_and_a_short_one_does_not() -> None:
    assert factor(record(15_000, 2.0)) == pytest.approx(2.0, rel=0.05)
    short = factor(record(30, 2.0))
    assert 1.2 < short < 1.9, "few games: between what was assumed and what was seen"
    assert learn(starts(record(15_000)), settings()).spread < learn(starts(record(30)), settings()).spread < UNKNOWN


def test_a_very_fast_judge_is_not_held_back_by_the_constants() -> None:
    assert factor(*[record(5000, 0.001)] * 3) == pytest.approx(0.001, rel=0.1)


def test_one_stray_start_moves_nothing() -> None:
    assert factor(*[record(1500, 1.5)] * 5, record(1500, 20.0)) == pytest.approx(1.5, rel=0.06)


def test_starts_that_differ_widen_the_interval() -> None:
    even = learn(starts(*[record(1500, 1.5)] * 6), settings())
    uneven = learn(starts(*(record(1500, slow) for slow in (1.0, 1.2, 1.4, 1.6, 1.9, 2.3))), settings())
    assert uneven.noise > 1.5 * even.noise


@pytest.mark.parametrize("other", [
    {"judge": "another"}, {"judge": f"{JUDGE}-rehearsal"}, {"gpus": 2}, {"gpu": "NVIDIA A100"},
    {"phase": "playing"}, {"played": 3, "outcomes": {"verdict": 3}}, {"play_seconds": 0}, {"play_seconds": None}])
def test_other_judges_other_gpus_and_what_has_not_ended_teach_no_rates(other: dict[str, Any]) -> None:
    rates = learn(starts(record(1500, 3.0, **other)), settings())
    assert (rates.batches, rates.per_output) == (0, PER_OUTPUT)


def test_a_gpu_is_the_same_whatever_its_name_is_written_like() -> None:
    assert factor(record(15_000, 2.0), gpu={"name": "nvidia-h200"}) > 1.9
    assert factor(record(15_000, 2.0, gpu=None)) > 1.9
    assert factor(record(15_000, 2.0), gpu={}) > 1.9


def test_few_games_and_failed_starts_still_tell_the_load_time() -> None:
    few = record(3, played=3, outcomes={}, load=[{"seconds": 900.0}])
    assert learn(starts(few), settings()).load.value == 900
    assert learn(starts(few), settings()).batches == 0


def test_a_start_with_dead_servers_or_a_failure_counts_for_less() -> None:
    good = [record(1500, 1.0)] * 2
    died = [record(1500, 9.0, deaths=[{"cause": "oom"}])] * 3
    assert factor(*good, *died) == pytest.approx(1.0, rel=0.05)
    failed = [record(1500, 9.0, status=1)] * 3
    assert factor(*good, *failed) == pytest.approx(1.0, rel=0.05)


def test_loads_of_the_file_system_used_last_count() -> None:
    slow = [record(load=[{"seconds": 900.0, "filesystem": "nfs"}])] * 5
    staged = record(load=[{"seconds": 30.0, "filesystem": "xfs", "staged": True}])
    assert learn(starts(*slow, staged), settings()).load.value == 30
    assert learn(starts(staged, *slow), settings()).load.value == 900


def test_after_a_change_of_how_the_judge_is_served_only_starts_of_the_new_way_count() -> None:
    old, new = settings(), settings(judge={"name": JUDGE, "server": {"args": ["--kv-cache-dtype", "fp8"]}})
    plans = {"old": old.model_dump(mode="json"), "new": new.model_dump(mode="json")}
    before = [record(1500, 3.0, plan="old")] * 9
    assert learn(starts_of(before, plans), new).batches == 9, "better than nothing"
    rates = learn(starts_of([*before, record(1500, 1.0, plan="new", load=[{"seconds": 60.0}])], plans), new)
    assert (rates.batches, rates.load.value) == (1, 60)
    assert rates.per_output / PER_OUTPUT == pytest.approx(1.0, rel=0.05)
    moved = settings(judge={"name": JUDGE, "server": {"load_timeout": 1}}, limits={"drain": 300})
    assert learn(starts_of(before, plans), moved).batches == 9


def test_what_is_neither_load_nor_play_is_overhead() -> None:
    assert learn(starts(record()), settings()).overhead.value == pytest.approx(30, abs=0.1)
    assert learn(starts(record(seconds=None)), settings()).overhead.value == OVERHEAD


def test_tokens_from_the_cache_cost_nothing() -> None:
    rates = learn(starts(record(usage=[2450 * 1500, 700 * 1500, 1225 * 1500])), settings())
    assert rates.cached == pytest.approx(0.5)
    ratio = (1225 * PER_PROMPT + 700 * PER_OUTPUT) / GAME
    assert rates.per_output / PER_OUTPUT == pytest.approx(1 / ratio, rel=0.05)
    assert rates.work(1, 2450, 700) == pytest.approx(GAME, rel=0.05)


def test_the_length_of_verdicts_is_the_mean_of_what_was_written() -> None:
    rates = learn(starts(record(usage=[1000 * 1500, 100 * 1500, 0]), record(usage=[1000 * 1500, 300 * 1500, 0])),
                  settings())
    assert rates.output.value == pytest.approx(200)
    assert rates.prompt_tokens == pytest.approx(1000)
    assert rates.output.sigma > learn(starts(record(), record()), settings()).output.sigma


def test_the_tail_of_the_last_games_is_no_slowness() -> None:
    """40 games of 30 s side by side take 30 s however fast the server is."""
    rates = learn(starts(record(15_000), record(40, play_seconds=30.0, game_seconds={"median": 30.0})), settings())
    assert rates.play(rates.work(40, 40 * 2450, 40 * 700)) == pytest.approx(37, rel=0.2)


@given(st.dictionaries(st.sampled_from(["judge", "plan", "gpus", "gpu", "played", "play_seconds", "usage", "load",
                                        "deaths", "seconds", "phase", "outcomes", "game_seconds", "models", "status",
                                        "started", "job", "batch"]),
                       st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3),
                                 st.just(JUDGE), st.just("ended"), st.lists(st.integers() | st.floats() | st.none()),
                                 st.just([{"seconds": 3}]), st.just([{"seconds": "x"}]), st.just({"median": "x"}))))
def test_no_record_breaks_learning(found: dict[str, Any]) -> None:
    rates = learn(starts_of([{**record(), **found}], {"p": {"judge": {"name": JUDGE}}}), settings())
    for value in (rates.per_prompt, rates.per_output, rates.load.value, rates.overhead.value, rates.output.value,
                  rates.spread, rates.noise):
        assert math.isfinite(value)
        assert value >= 0


@given(st.lists(st.tuples(st.integers(20, 20_000), st.floats(0.05, 20)), min_size=1, max_size=12))
def test_what_is_learned_lies_between_what_was_assumed_and_what_was_seen(seen: list[tuple[int, float]]) -> None:
    found = factor(*(record(games, slow) for games, slow in seen))
    slows = [slow for _, slow in seen]
    assert min(*slows, 1.0) * 0.999 <= found <= max(*slows, 1.0) * 1.001


def test_more_starts_that_agree_narrow_the_doubt() -> None:
    spreads = [learn(starts(*[record(1500, 2.0)] * count), settings()).spread for count in (0, 1, 3, 10, 30)]
    assert spreads == sorted(spreads, reverse=True)


def test_noisy_starts_are_averaged() -> None:
    chance = random.Random(5)
    found = factor(*(record(1500, 1.7 * math.exp(chance.gauss(0, 0.2))) for _ in range(40)))
    assert found == pytest.approx(1.7, rel=0.1)


# --- the queue --------------------------------------------------------------------------------------


def submission(job: str, at: float, after: str | None = None) -> Submission:
    return Submission("s", "p", "n", "x.sh", "slurm", {1: 1, 2: 2}, True, None, after, at, job)


def test_the_wait_in_the_queue_is_that_of_an_arrays_first_task() -> None:
    began = starts(record(job="7_1", started=1300.0), record(job="7_2", started=9000.0),
                   record(job="7_1", started=5000.0), record(job="8_2", started=2100.0))
    assert queue_wait([submission("7", 1000.0), submission("8", 2000.0), submission("9", 0.0)], began) == 200
    assert queue_wait([], began) is None
    assert queue_wait([submission("8", 0.0, after="7")], began) is None
