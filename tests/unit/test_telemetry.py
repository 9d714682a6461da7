"""What a running batch says of itself: rates, tokens, its server, its GPUs."""

from __future__ import annotations

from automate.arena.running.telemetry import Telemetry, deaths_of, quantile
from automate.serving.gpus import Gpu, parse_gpus
from automate.serving.metrics import ServerMetrics
from automate.serving.server import Death

SMI = """0, GPU-aaaa-1, NVIDIA H200, 120000, 143771, 98
1, GPU-bbbb-2, NVIDIA H200, [N/A], 143771, [Not Supported]
"""


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def record(seconds: float, outcome: str = "verdict") -> dict[str, object]:
    return {"outcome": outcome, "seconds": seconds, "usage": [100, 20, 30]}


def test_games_tokens_and_rate() -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    clock.now = 10
    telemetry.playing()
    for number in range(10):
        clock.now += 1
        telemetry.add(record(number + 1.0, "unparsed" if number == 0 else "verdict"))
    found = telemetry.values()
    assert (found["played"], found["seconds"], found["play_seconds"], found["rate"]) == (10, 20.0, 10.0, 0.5)
    assert found["outcomes"] == {"unparsed": 1, "verdict": 9}
    assert found["usage"] == [1000, 200, 300]
    assert found["game_seconds"] == {"median": 6.0, "p95": 10.0, "max": 10.0}
    assert telemetry.longest() == 10.0


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    for second in range(0, 300, 5):
        clock.now = second
        if second < 120:
            telemetry.add(record(1))
        telemetry.values()
    assert telemetry.values()["rate"] == 0.0


def test_token_rates_are_differences_of_the_servers_counters() -> None:
    clock = Clock()
    telemetry = Telemetry(clock)
    telemetry.take_server(ServerMetrics(prompt_tokens=1000, output_tokens=100))
    assert telemetry.values()["server"]["prompt_rate"] is None
    clock.now = 10
    telemetry.take_server(ServerMetrics(running=3, waiting=1, kv_usage=0.5, prompt_tokens=3000, output_tokens=150,
                                        prefix_queries=1000, prefix_hits=250))
    server = telemetry.values()["server"]
    assert (server["prompt_rate"], server["output_rate"], server["prefix_hits"]) == (200.0, 5.0, 0.25)
    clock.now = 20
    telemetry.take_server(ServerMetrics(prompt_tokens=10, output_tokens=1))  # a new server counts from 0
    assert telemetry.values()["server"]["prompt_rate"] is None


def test_nothing_is_said_of_what_is_not_known() -> None:
    assert set(Telemetry().values()) == {"seconds", "played", "outcomes", "usage", "rate"}


def test_quantiles_of_few_values() -> None:
    assert quantile([1.0], 0.95) == 1.0
    assert quantile([1.0, 2.0], 0.5) == 2.0


def test_gpus_of_this_job() -> None:
    both = parse_gpus(SMI)
    assert both[0] == Gpu(0, "NVIDIA H200", 120000, 143771, 98)
    assert both[1] == Gpu(1, "NVIDIA H200", None, 143771, None)
    assert parse_gpus(SMI, "1") == [both[1]]
    assert parse_gpus(SMI, "GPU-aaaa") == [both[0]]
    assert parse_gpus(SMI, "7") == both  # numbered in another way: better all than none
    assert parse_gpus("No devices were found\n") == []


def test_deaths_name_their_node() -> None:
    death = Death(1.0, "the node's fault", "ended", True)
    assert deaths_of([death], "n1") == [
        {"time": 1.0, "cause": "the node's fault", "what": "ended", "node_fault": True, "node": "n1"}]
