"""Forecasts: monotone, with the truth in the interval, and near what came out of simulated and recorded campaigns."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from automate.arena.batches import Batch, Plan
from automate.campaign.forecasts.estimates import (
    BatchSize,
    Forecast,
    JobLimits,
    forecast_batch,
    forecast_batches,
    schedule,
    schedule_starts,
)
from automate.campaign.forecasts.forecast import expected_end
from automate.campaign.forecasts.history import starts_of
from automate.campaign.forecasts.proposals import propose
from automate.campaign.forecasts.rates import PER_OUTPUT, PER_PROMPT, Guess, Rates, assumed, learn
from automate.campaign.plans import StoredPlan
from automate.campaign.state import BatchView, CampaignState
from automate.cluster.queue import JobState, JobStatus
from automate.settings import Settings
from tests.unit.support import make_settings, make_workspace

JUDGE = "neuralmagic-llama3.1-70b-instruct-fp8"
RECORDED = Path(__file__).resolve().parents[1] / "data" / "forecast_runs.json"
FREE = JobLimits(math.inf, 120, 1)


def rates(**values: Any) -> Rates:
    """A judge that has been measured: 0.5 s a game, 300 s of load."""
    known = replace(assumed(make_settings(judge={"name": JUDGE})), spread=0.05, noise=0.1, game_seconds=30.0,
                    last_game_seconds=60.0, load=Guess(300.0, 0.1, "seen"), overhead=Guess(30.0, 0.1, "seen"))
    return replace(known, **values)


def sizes(*games: int) -> list[BatchSize]:
    return [BatchSize(number, max(1, count // 1500), count, 2450.0 * count, 700.0 * count)
            for number, count in enumerate(games, 1)]


def whole(games: Sequence[int], limits: JobLimits = FREE, **values: Any) -> Forecast:
    return forecast_batches(sizes(*games), rates(**values), limits)


# --- properties -------------------------------------------------------------------------------------

GAMES = st.lists(st.integers(0, 30_000), min_size=1, max_size=12)
LIMITS = st.builds(JobLimits, st.sampled_from([600.0, 3600.0, 7200.0, math.inf]), st.sampled_from([60.0, 120.0, 300.0]),
                   st.integers(0, 4), st.none() | st.integers(1, 8))
RATES = st.builds(lambda spread, noise, load, game: rates(spread=spread, noise=noise, load=Guess(load, 0.3, ""),
                                                          game_seconds=game, last_game_seconds=game),
                  st.floats(0, 1), st.floats(0, 0.5), st.floats(0.1, 3000), st.floats(0, 300))


@given(GAMES, LIMITS, RATES)
@settings(max_examples=200)
def test_low_is_never_above_mid_nor_mid_above_high(games: list[int], limits: JobLimits, known: Rates) -> None:
    found = forecast_batches(sizes(*games), known, limits)
    for one in (found.seconds, found.gpu_hours, *(batch.seconds for batch in found.batches)):
        assert 0 <= one.low <= one.mid * (1 + 1e-9)
        assert one.mid <= one.high * (1 + 1e-9)
        assert math.isfinite(one.high)


@given(GAMES, LIMITS, RATES, st.integers(1, 5000), st.data())
@settings(max_examples=200)
def test_more_games_never_take_less_time(games: list[int], limits: JobLimits, known: Rates, more: int,
                                         data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(games) - 1))
    less = forecast_batch(sizes(games[place])[0], known, limits)
    grown = forecast_batch(sizes(games[place] + more)[0], known, limits)
    assert grown.alone.mid >= less.alone.mid * (1 - 1e-9)
    if less.starts is not None and grown.starts is not None:
        assert all(b >= a * (1 - 1e-9) for a, b in zip(less.seconds.three, grown.seconds.three, strict=True))


@given(st.lists(st.floats(0, 1e5), min_size=1, max_size=15), st.integers(1, 10))
def test_more_places_never_end_later(seconds: list[float], places: int) -> None:
    one, two = schedule(seconds, places), schedule(seconds, places + 1)
    assert two <= one * (1 + 1e-9)
    assert schedule(seconds, 1) == pytest.approx(sum(seconds))
    assert schedule(seconds, len(seconds)) == pytest.approx(max(seconds))


@given(GAMES, LIMITS, RATES)
def test_the_cost_is_not_batches_times_the_time_limit(games: list[int], limits: JobLimits, known: Rates) -> None:
    found = forecast_batches(sizes(*games), known, limits)
    doubled = forecast_batches(sizes(*games), known, replace(limits, time_limit=limits.time_limit * 2))
    if all(batch.starts == (1, 1, 1) for batch in found.batches if batch.size.games):
        assert doubled.gpu_hours == found.gpu_hours


# --- what a batch takes ------------------------------------------------------------------------------


def test_a_batch_takes_loading_starting_and_its_games() -> None:
    [batch] = whole([3000]).batches
    work = 3000 * (2450 * PER_PROMPT + 700 * PER_OUTPUT)
    assert batch.seconds.mid == pytest.approx(work + 15 + 300 + 30)
    assert batch.starts == (1, 1, 1)
    assert whole([3000]).gpu_hours.mid == pytest.approx(batch.seconds.mid / 3600)


def test_a_limit_that_ends_a_batch_in_the_middle_costs_another_load_and_the_wait_for_the_requeue() -> None:
    hour = JobLimits(3600, 120, 2)
    [batch] = whole([9000], hour).batches
    assert batch.starts is not None
    work = 3600 - 300 - 120 + 30  # games in flight at the drain still finish
    assert batch.starts[1] == math.ceil((batch.play.mid - 15) / work)
    assert batch.seconds.mid == pytest.approx(batch.play.mid + batch.starts[1] * 330 + (batch.starts[1] - 1) * 15)
    found = whole([9000], hour)
    assert found.gpu_hours.mid == pytest.approx(2 * batch.seconds.mid / 3600)
    assert found.seconds.mid == pytest.approx(batch.seconds.mid + (batch.starts[1] - 1) * 120)
    assert found.gpu_hours_at_most == 2 * batch.starts[2]
    assert not found.problems


def test_a_limit_shorter_than_loading_is_said_and_not_counted_with() -> None:
    found = whole([9000], JobLimits(360, 120, 1))
    assert found.batches[0].starts is None
    [problem] = found.problems
    assert problem.startswith("the time limit (6 min) is too short: loading takes about 5 min")
    assert found.gpu_hours.mid == pytest.approx(found.batches[0].alone.mid / 3600)


def test_batches_without_games_take_nothing() -> None:
    found = whole([0, 1500])
    assert found.batches[0].seconds.high == 0
    assert found.seconds.mid == found.batches[1].seconds.mid
    assert whole([0]).seconds.mid == 0


def test_doubt_about_rates_stays_and_noise_averages_out() -> None:
    one, many = whole([1500], noise=0.3).gpu_hours, whole([1500] * 50, noise=0.3).gpu_hours
    assert many.high / many.mid < one.high / one.mid
    doubt = whole([1500] * 50, noise=0.0, spread=0.8).gpu_hours
    assert doubt.high / doubt.mid > 1.5


def test_another_batch_runs_on_a_place_while_one_waits_for_its_requeue() -> None:
    assert schedule_starts([(100, 100), (100,)], 1, 60) == 300, "the second takes the place, the first comes back after"
    assert schedule_starts([(100, 100)], 1, 60) == 260
    assert schedule_starts([(770, 770)] * 3, 2, 120) == 2430


def test_games_in_flight_at_the_limit_spare_a_start() -> None:
    limits = JobLimits(780, 180, 0, 2, 120)
    known = rates(per_prompt=0.0, per_output=0.0, per_game=37.5, game_seconds=112.5, spread=0.05, noise=0.05,
                  load=Guess(240.0, 0.05, ""), overhead=Guess(24.0, 0.5, ""))
    found = forecast_batches([BatchSize(number, 1, 24, 0, 0) for number in (1, 2, 3)], known, limits)
    assert [batch.starts for batch in found.batches] == [(2, 2, 3)] * 3
    assert 38 * 60 < found.seconds.mid < 46 * 60


def test_time_and_places_are_proposed_for_the_proposed_batch_size() -> None:
    def batches(size: int) -> Forecast:
        return whole([1500 * size] * math.ceil(12 / size), JobLimits(7200, 120, 1))

    first = propose(batches(1), JobLimits(7200, 120, 1), again=batches)
    assert first is not None
    assert first.batch_size == 3
    then = propose(batches(3), JobLimits(7200, 120, 1), again=batches)
    assert then is not None
    assert (then.time, then.batch_size, then.parallel) == (first.time, first.batch_size, first.parallel)
    assert first.finishes[-1][0] == 4


# --- proposals ---------------------------------------------------------------------------------------


def test_the_proposed_time_holds_the_longest_batch_at_the_upper_end_with_its_drain() -> None:
    found = whole([15_000, 3000])
    proposal = propose(found, FREE)
    assert proposal is not None
    high = max(batch.alone.high for batch in found.batches)
    hours, minutes, seconds = map(int, proposal.time.split(":"))
    asked = hours * 3600 + minutes * 60 + seconds
    assert high + 120 <= asked < high + 120 + 300
    assert asked % 300 == 0
    short = propose(found, FREE, longest=3600)
    assert short is not None
    assert short.time == "01:00:00"
    assert "another start" in short.notes[0]


def test_batches_are_proposed_so_large_that_loading_is_a_small_share() -> None:
    small = propose(whole([1500] * 20), FREE)
    assert small is not None
    assert small.batch_size == 3, "330 s before 834 s a model: three of them are 12 % fixed"
    slow = rates(per_output=5e-3, load=Guess(3000.0, 0.1, "seen"))
    long = propose(forecast_batches([BatchSize(1, 10, 15_000, 36e6, 10e6)], slow, FREE), FREE)
    assert long is not None
    assert long.batch_size == 2, "a model takes 90 min: four would be 12 % fixed, two stay under four hours"
    kept = propose(forecast_batches([BatchSize(1, 4, 6000, 14.7e6, 4.2e6)], rates(), FREE), FREE)
    assert kept is not None
    assert kept.batch_size == 4, "what is good already stays"


def test_no_more_batches_at_once_are_proposed_than_bring_something() -> None:
    proposal = propose(whole([1500] * 9), FREE)
    assert proposal is not None
    assert [count for count, _ in proposal.finishes] == [1, 2, 4, 8, 9]
    assert proposal.parallel == 9
    uneven = propose(whole([15_000, 1500, 1500, 1500]), FREE)
    assert uneven is not None
    assert uneven.parallel == 2
    capped = propose(whole([1500] * 9), replace(FREE, parallel=3))
    assert capped is not None
    assert capped.parallel == 3
    assert propose(whole([0]), FREE) is None


# --- back-tests --------------------------------------------------------------------------------------


def simulate(seed: int, count: int) -> list[dict[str, Any]]:
    """Run records of a cluster unlike the constants: 1.8 times slower with a noise of 12 % from batch to batch,
    verdicts of 420 tokens, a fifth of the prompts from the cache, loads of 480 s with a noise of 20 %."""
    chance, found = random.Random(seed), []
    for number in range(count):
        games = chance.choice((750, 1500, 3000, 15_000))
        prompt, output = 2900 * games * chance.uniform(0.95, 1.05), 420 * games * chance.uniform(0.92, 1.08)
        work = (0.8 * prompt * PER_PROMPT + output * PER_OUTPUT) * 1.8 * math.exp(chance.gauss(0, 0.12))
        load, rest, game = 480 * math.exp(chance.gauss(0, 0.2)), chance.uniform(30, 60), chance.uniform(35, 50)
        found.append({
            "plan": "p", "batch": number, "judge": JUDGE, "gpus": 1, "gpu": "H200", "phase": "ended", "status": 0,
            "played": games, "outcomes": {"verdict": games}, "usage": [prompt, output, 0.2 * prompt], "due": games,
            "models": ["m"], "play_seconds": work + game / 2, "seconds": work + game / 2 + load + rest,
            "game_seconds": {"median": game, "p95": 2 * game}, "load": [{"seconds": load, "filesystem": "lustre"}]})
    return found


def back_test(records: Sequence[dict[str, Any]], known: Settings, least: int) -> tuple[list[float], list[bool]]:
    """Forecast each start from those before it alone; (errors, whether the interval held it), from `least` on."""
    errors, held = [], []
    for number in range(least, len(records)):
        learned, truth = learn(starts_of(records[:number], {}), known), records[number]
        games = truth["due"]
        size = BatchSize(1, 1, games, games * learned.prompt_tokens, games * learned.output.value)
        found = forecast_batch(size, learned, JobLimits(math.inf, 1, 1)).seconds
        errors.append(abs(found.mid / truth["seconds"] - 1))
        held.append(found.low <= truth["seconds"] <= found.high)
    return errors, held


@pytest.mark.parametrize("seed", range(5))
def test_simulated_batches_come_out_as_forecast_from_those_before(seed: int) -> None:
    errors, held = back_test(simulate(seed, 40), make_settings(judge={"name": JUDGE}, gpu={"name": "H200"}), 3)
    assert statistics.median(errors) < 0.12, "the noise itself is 12 %"
    assert 0.65 <= sum(held) / len(held) <= 0.98, "the interval is one of 80 %"


def test_without_history_the_interval_holds_even_a_judge_1_8_times_slower() -> None:
    errors, held = back_test(simulate(1, 1), make_settings(judge={"name": JUDGE}), 0)
    assert held == [True]
    assert errors[0] > 0.2, "it is not known better"


def test_recorded_batches_come_out_as_forecast_from_those_before() -> None:
    """Run records of campaigns of benchmarks/forecast.py, by two rehearsal judges whose options nobody is told."""
    errors: list[float] = []
    for judge, records in orjson.loads(RECORDED.read_bytes()).items():
        errors += back_test(records, make_settings(judge={"name": judge}, slurm={"gpus": 0}), 1)[0]
    assert len(errors) >= 18
    assert statistics.median(errors) < 0.10
    assert statistics.quantiles(errors, n=10)[8] < 0.30


# --- what is in the queue ----------------------------------------------------------------------------

NOW = 1_000_000.0


def view(number: int, state: JobState, run: dict[str, Any] | None = None, **slurm: Any) -> BatchView:
    known = make_settings(judge={"name": JUDGE}, slurm=slurm).model_dump(mode="json")
    batch = Batch(number, (f"m{number}",), 1500)
    stored = StoredPlan(Plan("p", "tag", "base", (batch,)), (), known)
    return BatchView(stored, batch, f"7_{number}", JobStatus(f"7_{number}", state, "squeue"), run, 1)


def end(views: Sequence[BatchView], due: dict[str, int], runs: Sequence[dict[str, Any]] = (), **values: Any) -> Any:
    workspace = make_workspace(judge={"name": JUDGE}, **values)
    return expected_end(workspace, CampaignState(tuple(views), ()), due, runs, NOW)


def playing(rate: float, **more: Any) -> dict[str, Any]:
    return {"phase": "playing", "rate": rate, "started": NOW - 600, "play_seconds": 500.0, "judge": JUDGE,
            "outcomes": {"verdict": int(500 * rate)}, **more}


def test_nothing_is_expected_of_nothing_nor_where_nothing_is_known() -> None:
    assert end([], {}) is None
    assert end([view(1, JobState.COMPLETED)], {"m1": 5}) is None
    assert end([view(1, JobState.PENDING)], {"m1": 1500}) is None


def test_a_batch_that_plays_ends_by_its_own_rate() -> None:
    found = end([view(1, JobState.RUNNING, playing(2.0), time="UNLIMITED")], {"m1": 600})
    assert found.mid - NOW == pytest.approx(300, abs=16)
    assert NOW < found.low < found.mid < found.high


def test_the_pace_of_the_first_minutes_does_not_count_loading() -> None:
    """A start that loaded for 50 s and has played 100 games in 10 s: its rate of the last minute is far too low."""
    young = playing(1.7, play_seconds=10.0, outcomes={"verdict": 100}, started=NOW - 60, game_seconds={"median": 2.0})
    found = end([view(1, JobState.RUNNING, young, time="UNLIMITED")], {"m1": 1000})
    assert found.mid - NOW == pytest.approx(1000 * 9 / 100 + 1)


def test_the_own_pace_wins_over_the_learned_one_as_games_come_in() -> None:
    history = simulate(3, 10)
    ends = [end([view(1, JobState.RUNNING, playing(20.0, play_seconds=games / 20, outcomes={"verdict": games}),
                      time="UNLIMITED")], {"m1": 1500}, history).mid for games in (0, 10, 100, 1000, 50_000)]
    assert ends == sorted(ends, reverse=True)
    assert ends[0] - NOW > 700
    assert ends[-1] - NOW < 200


def test_those_in_the_queue_follow_on_the_places_of_those_that_run() -> None:
    views = [view(1, JobState.RUNNING, playing(2.0), time="UNLIMITED"), view(2, JobState.PENDING, time="UNLIMITED")]
    history = simulate(3, 10)
    alone, both = end(views[:1], {"m1": 600}, history), end(views, {"m1": 600, "m2": 1500}, history)
    learned = learn(starts_of(history, {}), make_settings(judge={"name": JUDGE}))
    wanted = learned.load.value + learned.overhead.value + learned.play(1500 * learned.seconds_a_game())
    assert both.mid - alone.mid == pytest.approx(wanted, rel=0.02)
    side_by_side = end(views, {"m1": 600, "m2": 1500}, history, limits={"max_parallel": 2})
    assert side_by_side.mid - NOW == pytest.approx(wanted, rel=0.02)


def test_a_batch_that_still_loads_has_its_load_before_it() -> None:
    history = simulate(3, 10)
    loading = {"phase": "loading", "started": NOW - 100}
    played = end([view(1, JobState.RUNNING, {"phase": "playing", "rate": 0}, time="UNLIMITED")], {"m1": 1500}, history)
    found = end([view(1, JobState.RUNNING, loading, time="UNLIMITED")], {"m1": 1500}, history)
    learned = learn(starts_of(history, {}), make_settings(judge={"name": JUDGE}))
    assert found.mid - played.mid == pytest.approx(learned.load.value + learned.overhead.value - 100, rel=0.02)


def test_a_time_limit_on_the_way_costs_another_start() -> None:
    history = simulate(3, 10)
    due = {"m1": 4000}
    free = end([view(1, JobState.RUNNING, playing(1.0), time="UNLIMITED")], due, history)
    cut = end([view(1, JobState.RUNNING, playing(1.0, time_limit=3600), time="01:00:00")], due, history)
    assert cut.mid > free.mid + 480


def test_a_running_batch_without_due_games_is_about_to_end() -> None:
    found = end([view(1, JobState.RUNNING, playing(2.0))], {"m1": 0})
    assert found.three == (NOW, NOW, NOW)
