"""A scenario: what a rehearsed cluster is like, and what goes wrong on it. All times in rehearsed seconds.

Never acts on it; a file that can't be used is refused with file, line, key and what was expected."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core import ErrorDetails

from automate.durations import seconds_of
from automate.errors import ConfigError, ManyErrors
from automate.resources import configs_dir
from automate.settings_base import Strict
from automate.yamlfile import KeyPath, Value, YamlFile, read_yaml

Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_SHARE = re.compile(r"(\d+(?:\.\d+)?) ?%")
_TRIGGERS = ("at", "after_games", "random")
_TARGET = frozenset({"node", "batch"})


@dataclass(frozen=True)
class Kind:
    """What an event is: the keys that it needs, and those that it may have."""

    words: str
    needs: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()


KINDS: Mapping[str, Kind] = {
    "kill_server": Kind("a judge's server is killed", takes=_TARGET),
    "kill_engine": Kind("a job's own process is killed", takes=_TARGET),
    "kill_job": Kind("a job is killed with all that runs in it", takes=_TARGET),
    "preempt": Kind("a job is told to end, killed after the grace time, and put into the queue again", takes=_TARGET),
    "node_down": Kind("a node fails, and its jobs with it; they are put into the queue again",
                      takes=frozenset({"node", "for"})),
    "node_up": Kind("a node comes back", frozenset({"node"})),
    "bad_node": Kind("servers that load on a node die of its GPU", takes=frozenset({"node", "for"})),
    "cancel": Kind("a batch's job is cancelled, as scancel does", frozenset({"batch"})),
    "refuse_submits": Kind("no job is taken", frozenset({"for"})),
    "submit_limit": Kind("no more than so many jobs may wait or run", frozenset({"limit"}), frozenset({"for"})),
    "slow_disk": Kind("loading takes so many times as long", frozenset({"factor"}), frozenset({"for"})),
    "queue_silent": Kind("the queue does not answer", frozenset({"for"})),
}


def share_of(value: float | str, whole: float) -> float:
    """A number as it is, a share (`30%`) of `whole`, or a time in Slurm's format in seconds."""
    if isinstance(value, str):
        match = _SHARE.fullmatch(value)
        if match:
            return whole * float(match[1]) / 100
        return seconds_of(value) if value.strip("0:-") else 0.0  # a moment, where no time is the start
    return value


class Random(Strict):
    """Again and again by chance: on average once in `every` seconds, at most `times` times; the same for one seed."""

    every: Positive
    seed: int = 1
    times: Annotated[int, Field(ge=1)] | None = None


class Event(Strict):
    """Something that happens once at a time, once after so many games, or again and again."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    kind: str
    at: Seconds | None = None
    after_games: Annotated[int, Field(ge=0)] | str | None = None
    random: Random | None = None
    node: str | None = None
    batch: Annotated[int, Field(ge=1)] | None = None
    seconds: Positive | None = Field(default=None, alias="for")
    limit: Annotated[int, Field(ge=1)] | None = None
    factor: Positive | None = None

    @field_validator("kind")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in KINDS:
            near = difflib.get_close_matches(value, KINDS, n=1, cutoff=0.4)
            hint = f"did you mean '{near[0]}'? " if near else ""
            raise ValueError(f"unknown event '{value}'\0{hint}known events: {', '.join(KINDS)}")
        return value

    @field_validator("after_games")
    @classmethod
    def _games(cls, value: int | str | None) -> int | str | None:
        if isinstance(value, str) and not _SHARE.fullmatch(value):
            raise ValueError("expected a number of games, or a share of all games such as 30%")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Event:
        given = [name for name in _TRIGGERS if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"an event needs one of at, after_games, random; here: {', '.join(given) or 'none'}")
        kind, have = KINDS[self.kind], {name for name in ("node", "batch", "limit", "factor")
                                        if getattr(self, name) is not None}
        have |= {"for"} if self.seconds is not None else set()
        if missing := kind.needs - have:
            raise ValueError(f"{self.kind} needs {', '.join(sorted(missing))}")
        if extra := have - kind.needs - kind.takes:
            raise ValueError(f"{self.kind} takes no {', '.join(sorted(extra))}")
        return self


class Nodes(Strict):
    """The nodes of the cluster: their names, or how many; and how many jobs run on one at a time."""

    count: Annotated[int, Field(ge=1, le=10_000)] | None = None
    names: list[str] | None = None
    slots: Annotated[int, Field(ge=1)] = 1

    @field_validator("names")
    @classmethod
    def _names(cls, value: list[str] | None) -> list[str] | None:
        for name in value or ():
            if not _NODE.fullmatch(name):
                raise ValueError(f"'{name}' is no name for a node")
        if value is not None and (not value or len(set(value)) < len(value)):
            raise ValueError("expected names of nodes, each once")
        return value

    @model_validator(mode="after")
    def _one_way(self) -> Nodes:
        if self.count is not None and self.names is not None:
            raise ValueError("give names or count, not both")
        return self

    @property
    def all(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.names) if self.names else tuple(f"node{i + 1}" for i in range(self.count or 2))


class Scenario(Strict):
    """A rehearsed cluster. `scale`: rehearsed seconds in a second; rates: tokens/s of one judge server under load.

    `stream_tokens_per_second` is what one reply alone gets; `least_play` slows servers down until an average batch
    plays so many seconds, so that something can happen in a small example.
    """

    scale: Positive = 60.0
    nodes: Nodes = Nodes()
    queue_wait: Seconds = 0.0
    load_time: Positive = 300.0
    load_times: dict[str, Positive] = {}  # noqa: RUF012 - frozen
    prompt_tokens_per_second: Positive | None = None
    output_tokens_per_second: Positive | None = None
    stream_tokens_per_second: Positive = 30.0
    kv_tokens: Annotated[int, Field(ge=1)] = 130_000
    least_play: Seconds = 0.0
    time_limit: Positive | str | None = None
    requeue_delay: Seconds = 120.0
    grace: Seconds = 30.0
    kill_wait: Seconds = 30.0
    rounds: Annotated[int, Field(ge=1)] = 5
    events: list[Event] = []  # noqa: RUF012 - frozen

    @field_validator("time_limit")
    @classmethod
    def _limit(cls, value: float | str | None) -> float | str | None:
        if isinstance(value, str) and not 0 < share_of(value, 1.0) < float("inf"):
            raise ValueError("expected seconds, a time such as 02:00:00, or a share of an average batch such as 60%")
        return value

    def load_of(self, node: str) -> float:
        """Seconds from a job's start on a node until its judge answers."""
        return self.load_times.get(node, self.load_time)


def check_batches(events: list[Event], batches: int) -> None:
    """Raises ConfigError or ManyErrors for events that name a batch which a plan of so many doesn't have."""
    problems = [ConfigError(f"event {index} ({event.kind}): there is no batch {event.batch}",
                            where=f"events[{index - 1}].batch", todo=f"this plan has batches 1 to {batches}"
                            if batches > 1 else "this plan has one batch: 1")
                for index, event in enumerate(events, 1) if event.batch is not None and event.batch > batches]
    if problems:
        raise _one(problems)


def scenario_names() -> list[str]:
    """Names of the scenarios that ship with the package."""
    return sorted(path.stem for path in (configs_dir() / "scenarios").glob("*.yaml"))


def find_scenario(name: str, here: Path) -> Path:
    """The file of a scenario: a path to a YAML file, or the name of a shipped one. Raises ConfigError."""
    if name.endswith((".yaml", ".yml")) or "/" in name:
        return here / Path(name).expanduser()
    if name in scenario_names():
        return configs_dir() / "scenarios" / f"{name}.yaml"
    near = difflib.get_close_matches(name, scenario_names(), n=1, cutoff=0.5)
    raise ConfigError(f"no scenario named '{name}'", where="SCENARIO", todo=(
        f"did you mean '{near[0]}'? " if near else "")
        + f"shipped scenarios: {', '.join(scenario_names())}; or give a path to a .yaml file")


def read_scenario(path: Path) -> Scenario:
    """Read a scenario file. Raises ConfigError or ManyErrors with file, line and key."""
    return parse_scenario(read_yaml(path))


def parse_scenario(file: YamlFile) -> Scenario:
    """A scenario from parsed YAML. Raises ConfigError or ManyErrors."""
    try:
        scenario = Scenario.model_validate(file.value)
    except ValidationError as error:
        problems = {str(found): found for detail in error.errors() if (found := _problem(detail, file))}
        raise _one(list(problems.values())) from error
    problems = {str(found): found for found in _unknown_nodes(scenario, file)}
    if problems:
        raise _one(list(problems.values()))
    return scenario


def _one(problems: list[ConfigError]) -> ConfigError | ManyErrors:
    return problems[0] if len(problems) == 1 else ManyErrors(problems)


def _key(location: tuple[int | str, ...], root: Value) -> KeyPath:
    """Pydantic's location as far as it is one of the file."""
    path: list[int | str] = []
    data = root
    for part in location:
        if isinstance(data, dict) and part in data:
            data = data[str(part)]
        elif isinstance(data, list) and isinstance(part, int) and part < len(data):
            data = data[part]
        else:
            break
        path.append(part)
    return tuple(path)


def _dotted(path: KeyPath) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".") or "scenario"


def _known_keys(path: KeyPath) -> list[str]:
    if path[:1] == ("events",):
        names = list(Random.model_fields) if "random" in path[:-1] else list(Event.model_fields)
        return ["for" if name == "seconds" else name for name in names]
    return list(Nodes.model_fields) if len(path) > 1 and path[0] == "nodes" else list(Scenario.model_fields)


def _problem(detail: ErrorDetails, file: YamlFile) -> ConfigError:
    path = _key(detail["loc"], file.value)
    if detail["type"] == "extra_forbidden":
        known = _known_keys(path)
        near = difflib.get_close_matches(str(path[-1]), known, n=1, cutoff=0.5)
        return ConfigError(f"{_dotted(path)}: unknown key '{path[-1]}'", where=file.where(path),
                           todo=f"did you mean '{near[0]}'?" if near else f"known keys here: {', '.join(known)}")
    if detail["type"] == "model_type":
        return ConfigError(f"{_dotted(path)}: expected a mapping", where=file.where(path),
                           todo="events are written as {at: 600, kind: kill_server}" if "events" in path else None)
    text, _, todo = detail["msg"].removeprefix("Value error, ").partition("\0")
    given = detail.get("input")
    shown = f", found {given!r}" if isinstance(given, (int, float, str)) and not todo else ""
    return ConfigError(f"{_dotted(path)}: {text[0].lower()}{text[1:]}{shown}", where=file.where(path),
                       todo=todo or None)


def _unknown_nodes(scenario: Scenario, file: YamlFile) -> list[ConfigError]:
    known = scenario.nodes.all
    named: list[tuple[KeyPath, str]] = [(("load_times", name), name) for name in scenario.load_times]
    named += [(("events", i, "node"), event.node) for i, event in enumerate(scenario.events) if event.node]
    found = []
    for path, name in named:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
            found.append(ConfigError(f"{_dotted(path)}: no node '{name}' in this scenario",
                                     where=file.where(path), todo=f"{hint}its nodes: {some}"))
    return found
