"""A scenario made into numbers for one campaign: the judge's speed, the limits, and settings with time scaled down.

Pure: counted games and settings come in, numbers and settings go out."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from automate.campaign.forecasts.rates import PER_OUTPUT, PER_PROMPT, Guess, Rates, assumed
from automate.cluster.rehearsed.scenario import Scenario, share_of
from automate.durations import in_words, seconds_of
from automate.errors import ConfigError
from automate.settings import Settings

FEW_IN_FLIGHT = 32
SHARE_IN_FLIGHT = 8
"""No more than this part of a batch's games is asked at once, so that a small example has a middle."""
START_COST, END_COST = 1.5, 0.4
"""Real seconds that a job takes to start and to end here, about; its load time is counted from its start."""
BUSY_GAMES = 150.0
"""Games a second that a small machine plays without effort, all jobs together."""


@dataclass(frozen=True)
class Load:
    """What there is to do: games, batches, mean tokens of a prompt and of a verdict, UTF-8 bytes a token."""

    games: int
    batches: int
    prompt_tokens: float
    output_tokens: float
    bytes_per_token: float = 4.0


@dataclass(frozen=True)
class Stage:
    """One rehearsal in numbers. Rates in tokens and seconds in rehearsed time; `slower`: for the example's sake."""

    scale: float
    load: Load
    prompt_rate: float
    output_rate: float
    slower: float
    in_flight: int
    few: bool
    load_time: float
    time_limit: float
    drain: float

    @property
    def game_seconds(self) -> float:
        """Seconds of the whole server for a mean game."""
        return self.load.prompt_tokens / self.prompt_rate + self.load.output_tokens / self.output_rate

    @property
    def play(self) -> float:
        """Seconds that an average batch plays."""
        return self.load.games / max(self.load.batches, 1) * self.game_seconds


def stage_of(scenario: Scenario, settings: Settings, load: Load) -> Stage:
    """The numbers of a rehearsal. Raises ConfigError where no game could ever be played."""
    prompt_rate = scenario.prompt_tokens_per_second or settings.gpu.prompt_tokens_per_second or 1 / PER_PROMPT
    output_rate = scenario.output_tokens_per_second or settings.gpu.output_tokens_per_second or 1 / PER_OUTPUT
    a_batch = load.games / max(load.batches, 1)
    play = a_batch * (load.prompt_tokens / prompt_rate + load.output_tokens / output_rate)
    slower = max(1.0, scenario.least_play / play) if play > 0 else 1.0
    fits = scenario.kv_tokens / max(load.prompt_tokens + load.output_tokens, 1.0)
    in_flight = max(2, int(min(fits, max(2.0, a_batch / SHARE_IN_FLIGHT))))
    load_time = sum(map(scenario.load_of, scenario.nodes.all)) / len(scenario.nodes.all)
    whole = load_time + play * slower
    limit = seconds_of(settings.slurm.time) if scenario.time_limit is None else share_of(scenario.time_limit, whole)
    if not math.isinf(limit):
        limit = math.ceil(limit / scenario.scale) * scenario.scale  # a script's seconds are whole ones
    stage = Stage(scenario.scale, load, prompt_rate / slower, output_rate / slower, slower, in_flight,
                  in_flight < FEW_IN_FLIGHT, load_time, limit, settings.limits.drain)
    _check(scenario, stage)
    return stage


def _check(scenario: Scenario, stage: Stage) -> None:
    quickest = min(map(scenario.load_of, scenario.nodes.all))
    if stage.time_limit <= quickest + shortest_drain(stage):
        raise ConfigError(
            f"this scenario could never finish: a job's time limit is {in_words(stage.time_limit)}, loading a judge "
            f"takes {in_words(quickest)}, and in the last {in_words(shortest_drain(stage))} no game is started",
            where="time_limit", todo="raise time_limit (or slurm.time), or lower load_time or the scale")


def shortest_drain(stage: Stage) -> float:
    """The drain as it is rehearsed: what a job does at its end is not scaled, so it gets some real seconds."""
    return max(stage.drain, 3.0 * stage.scale)


def rates_of(settings: Settings, stage: Stage) -> Rates:
    """The scenario's rates as the forecast takes them."""
    game = max(stage.in_flight * stage.game_seconds, 1e-3)
    return replace(
        assumed(settings), per_game=0.0, per_prompt=1 / stage.prompt_rate, per_output=1 / stage.output_rate,
        spread=0.05, noise=0.05, source="the scenario", cached=0.0, prompt_tokens=stage.load.prompt_tokens,
        output=Guess(max(stage.load.output_tokens, 1e-3), 0.02, "judge.expected_output_tokens"),
        load=Guess(stage.load_time, 0.05, "the scenario"),
        overhead=Guess(END_COST * stage.scale, 0.5, f"about {END_COST:g} s of this machine's own"),
        game_seconds=min(game, stage.play or game), last_game_seconds=min(game, stage.play or game), batches=0, games=0,
        wait=None)


def real_limit(stage: Stage) -> str:
    """The time limit in real seconds, as Slurm writes it."""
    if math.isinf(stage.time_limit):
        return "UNLIMITED"
    seconds = math.ceil(stage.time_limit / stage.scale)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def notes(scenario: Scenario, stage: Stage) -> list[str]:
    """What the reader should know of how this differs from the real thing."""
    found = []
    jobs = min(stage.load.batches, len(scenario.nodes.all) * scenario.nodes.slots)
    pace = jobs * stage.scale / stage.game_seconds if stage.game_seconds else 0.0
    if pace > BUSY_GAMES:
        found.append(f"at scale {stage.scale:g} this machine would have to play {pace:,.0f} games a second; it may not "
                     f"keep up: --scale {max(1, int(stage.scale * BUSY_GAMES / pace))}, or --limit-questions")
    if stage.slower > 1.01:
        found.append(f"judges are {stage.slower:,.3g} times slower than the rates, so that a batch plays "
                     f"{in_words(stage.play)} (least_play): this campaign is small")
    shortest = min(map(scenario.load_of, scenario.nodes.all))
    if shortest / stage.scale < START_COST:
        found.append(f"loading takes {in_words(shortest)}, {shortest / stage.scale:.1f} s here; starting a job takes "
                     f"this machine longer: use --scale {max(1, int(shortest / START_COST))} or less")
    return found


def scaled(settings: Settings, scenario: Scenario, stage: Stage) -> dict[str, Any]:
    """The user's settings as a rehearsed workspace has them: a rehearsal judge, this machine, real seconds."""
    data = settings.model_dump(mode="json")
    scale, judge, limits = stage.scale, data["judge"], data["limits"]
    context = judge["server"]["max_model_len"]
    data |= {"executor": "local", "cluster": "generic"}
    data["slurm"] |= {"time": real_limit(stage), "exclude": None}
    judge |= {
        "kind": "rehearsal", "path": None, "engine": "builtin", "base_url": None, "model": None, "api_key_env": None,
        "context": None, "requests_per_minute": None, "max_cost": None, "staging": {}, "environment": {},
        "request_timeout": max(judge["request_timeout"] / scale, 60.0),
        "rehearsal": {**_faults(settings), **_behaviour(scenario, stage, context)},
    }
    judge["name"] += "" if "rehearsal" in judge["name"] else "-rehearsal"
    if judge["concurrency"] == "auto" and stage.few:
        judge["concurrency"] = stage.in_flight
    server = judge["server"]
    server |= {"transport": "uds", "load_timeout": max(server["load_timeout"] / scale, 20.0),
               "stop_timeout": max(server["stop_timeout"] / scale, 1.0)}
    limits |= {"claim_stale": max(limits["claim_stale"] / scale, 2.0), "poll": max(limits["poll"] / scale, 0.3),
               "drain": shortest_drain(stage) / scale, "stall": max(limits["stall"] / scale, 20.0),
               "max_gpu_hours": None, "refill": "wait"}
    return data


def _faults(settings: Settings) -> dict[str, Any]:
    """What a user's own rehearsal judge gets wrong; how slow it is comes from the scenario."""
    if settings.judge.kind != "rehearsal":
        return {}
    return {name: value for name, value in settings.judge.rehearsal.items() if name not in ("latency", "load_seconds")}


def _behaviour(scenario: Scenario, stage: Stage, context: int | None) -> dict[str, Any]:
    """Options of the rehearsal judge; load times come from the cluster's nodes."""
    scale = stage.scale
    return {
        "prompt_rate": round(stage.prompt_rate * scale, 6), "output_rate": round(stage.output_rate * scale, 6),
        "latency_per_token": round(1 / scenario.stream_tokens_per_second / scale, 9),
        "reply_tokens": round(stage.load.output_tokens), "kv_tokens": scenario.kv_tokens,
        "bytes_per_token": round(stage.load.bytes_per_token, 4),
        "load_seconds": round(stage.load_time / scale, 4), **({"context": context} if context else {}),
    }
