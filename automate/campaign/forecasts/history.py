"""Run records as the forecast reads them: typed, with what is absent or odd left out.

Never trusts a record: any key may be missing, and a job that was killed wrote no end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from automate.cluster.submit import Submission

FEW_GAMES = 20
"""A start that played fewer games says little about rates; its load time still counts."""
FIRST_SECONDS = 120.0
SERVED = ("args", "command", "load_format", "max_model_len", "tensor_parallel_size")
"""Settings of judge.server that change how fast it is."""


@dataclass(frozen=True)
class Load:
    """One server that became ready: seconds it took, and where its weights came from."""

    seconds: float
    disk_rate: float | None
    filesystem: str | None
    staged: bool


@dataclass(frozen=True)
class Start:
    """One start of one batch, as far as its record says. Usage: tokens of prompts, of replies, and from the cache."""

    judge: str
    plan: str
    batch: int
    job: str | None
    node: str | None
    gpu: str | None
    gpus: int | None
    models: tuple[str, ...]
    ended: bool
    failed: bool
    deaths: int
    started: float | None
    seconds: float | None
    play_seconds: float
    played: int
    usage: tuple[float, float, float] | None
    game_seconds: float | None
    last_game_seconds: float | None
    loads: tuple[Load, ...]
    way: str | None = None

    @property
    def teaches(self) -> bool:
        """Whether it says something about rates."""
        return self.ended and self.played >= FEW_GAMES and self.play_seconds > 0

    @property
    def trust(self) -> float:
        """1, or less where servers died in it or it ended by a failure: then its seconds are not all play."""
        return 0.1 if self.deaths else 0.25 if self.failed else 1.0

    @property
    def overhead(self) -> float | None:
        """Seconds that were neither loading nor play; None where that can't be told."""
        if not self.ended or self.failed or self.seconds is None or not self.play_seconds or self.deaths:
            return None
        return max(self.seconds - self.play_seconds - sum(load.seconds for load in self.loads), 0.0)


def number(value: object) -> float | None:
    """A finite number of at least 0, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _load(value: object) -> Load | None:
    if not isinstance(value, dict) or (seconds := number(value.get("seconds"))) is None:
        return None
    return Load(seconds, number(value.get("disk_rate")), _text(value.get("filesystem")), bool(value.get("staged")))


def _usage(value: object) -> tuple[float, float, float] | None:
    """Three counts, or two where the cache is not told; None where there are none or they make no sense."""
    counts = [number(item) for item in value] if isinstance(value, list | tuple) else []
    prompt, output, cached = (*counts, *[None] * 3)[:3]
    if not prompt or output is None:
        return None
    return prompt, output, min(cached or 0.0, prompt)


def _played(record: Mapping[str, Any]) -> int:
    """Games that ended: counted by outcome, as usage is; else the number that was last written."""
    outcomes = record.get("outcomes")
    counts = [number(count) for count in outcomes.values()] if isinstance(outcomes, dict) else []
    return int(max(sum(count or 0 for count in counts), number(record.get("played")) or 0))


def game_seconds(record: Mapping[str, Any], what: str) -> float | None:
    """Seconds of a game of this start: their median, p95 or max."""
    told = record.get("game_seconds")
    return number(told.get(what)) if isinstance(told, dict) else None


def pace(record: Mapping[str, Any]) -> tuple[float, float] | None:
    """(seconds a game, standard deviation of its logarithm) of a start that plays; None before its first games.

    Of its first two minutes of play: all of them, as its rate over the last minute would count loading too.
    """
    games, play = _played(record), number(record.get("play_seconds")) or 0.0
    rate = number(record.get("rate")) or 0.0
    if record.get("phase") not in ("playing", "draining") or not games:
        return None
    sigma = 0.08 + 1.5 / math.sqrt(games)
    if 0 < play < FIRST_SECONDS:
        return (play - min((game_seconds(record, "median") or 0.0) / 2, play / 2)) / games, sigma
    return (1 / rate, sigma) if rate else None


def _start(record: Mapping[str, Any], judge: str, way: str | None) -> Start:
    gpus, deaths = number(record.get("gpus")), record.get("deaths")
    loads = record.get("load")
    loads = loads if isinstance(loads, list) else []
    models = record.get("models")
    return Start(
        judge=judge, plan=str(record.get("plan")), batch=int(number(record.get("batch")) or 0),
        job=_text(record.get("job")), node=_text(record.get("node")), gpu=_text(record.get("gpu")),
        gpus=None if gpus is None else int(gpus),
        models=tuple(str(model) for model in models) if isinstance(models, list) else (),
        ended=record.get("phase") == "ended", failed=record.get("status") == 1,
        deaths=len(deaths) if isinstance(deaths, list) else 0,
        started=number(record.get("started")), seconds=number(record.get("seconds")),
        play_seconds=number(record.get("play_seconds")) or 0.0, played=_played(record),
        usage=_usage(record.get("usage")), game_seconds=game_seconds(record, "median"),
        last_game_seconds=game_seconds(record, "p95"), loads=tuple(found for item in loads if (found := _load(item))),
        way=way)


def starts_of(runs: Iterable[Mapping[str, Any]], plans: Mapping[str, Mapping[str, Any]]) -> list[Start]:
    """Typed records in their order; `plans`: stored settings by plan id, which name the judge where a record doesn't
    and say in what way it was served. An engine's starts on a fleet are left out: they are of many servers."""
    judges = {plan: judge_of(settings) for plan, settings in plans.items()}
    ways = {plan: way_of(settings) for plan, settings in plans.items()}
    found = []
    for record in runs:
        plan = str(record.get("plan"))
        judge = _text(record.get("judge")) or judges.get(plan)
        if judge and not isinstance(record.get("fleet"), Mapping):
            found.append(_start(record, judge, ways.get(plan)))
    return found


def loads_of_fleets(runs: Iterable[Mapping[str, Any]]) -> list[dict[str, object]]:
    """What starts of fleets' servers say of loading, as records of batches say it; nothing else of theirs is one's."""
    found: list[dict[str, object]] = []
    for run in runs:
        loads, place = run.get("loads"), run.get("load")
        where = place if isinstance(place, Mapping) else {}
        if isinstance(loads, list) and loads and _text(run.get("model")):
            found.append({"judge": run["model"], "gpus": run.get("gpus"), "node": run.get("node"),
                          "load": [{**where, "seconds": seconds} for seconds in loads]})
    return found


def _section(settings: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = settings.get(name)
    return value if isinstance(value, Mapping) else {}


def judge_of(settings: Mapping[str, Any]) -> str:
    """The judge's name in a stored plan's settings; empty where there is none."""
    return str(_section(settings, "judge").get("name", ""))


def way_of(settings: Mapping[str, Any]) -> str:
    """All settings that make one and the same judge faster or slower, as one text to compare."""
    judge = _section(settings, "judge")
    server = {name: _section(judge, "server").get(name) for name in SERVED}
    return repr([sorted(server.items()), judge.get("concurrency"), judge.get("max_tokens"), judge.get("engine"),
                 sorted(_section(judge, "rehearsal").items())])


def queue_wait(submissions: Iterable[Submission], starts: Sequence[Start]) -> float | None:
    """Median seconds from handing over to the first start; None without history.

    Of an array only its first task to start counts: the others may have waited for each other.
    """
    began: dict[str, float] = {}
    for start in starts:
        if start.job is not None and start.started is not None:
            began[start.job] = min(start.started, began.get(start.job, start.started))
    waits = []
    for submission in submissions:
        firsts = [began[job] for job in submission.jobs if job in began]
        if firsts and submission.after is None:
            waits.append(max(min(firsts) - submission.intended, 0.0))
    return statistics.median(waits) if waits else None
