"""What the monitor shows, as data: one snapshot of a campaign, and its JSON form.

Pure; docs/monitor.md describes every key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from automate.campaign.monitoring.failures import Failure
from automate.campaign.monitoring.vitals import GpuLine, Rates, ServerLine
from automate.fleets.status import FleetStatus

SCHEMA = 1
ICONS = {"complete": "✅", "partial": "🟡", "waiting": "🟡", "unknown": "❔", "no answers": "❌", "incomplete": "🟠"}


@dataclass(frozen=True)
class JobLine:
    """A job that waits or runs, or of which nobody can tell, with what it says of itself.

    `kind`: judge or generate; `rate`, `played`, `due` and `unanswered` are of games or of answers.
    """

    job: str
    batch: int
    plan: str
    name: str
    state: str
    reason: str
    evidence: str
    elapsed: str
    nodes: str
    node_count: str
    partition: str
    user: str
    words: str = ""
    advice: str = ""
    never: bool = False
    begins: str = ""
    phase: str = ""
    phase_seconds: float | None = None
    load_expected: float | None = None
    age: float | None = None
    rate: float | None = None
    played: int | None = None
    due: int | None = None
    in_flight: int | None = None
    unanswered: int | None = None
    starts: int = 0
    server: ServerLine | None = None
    gpu_use: tuple[GpuLine, ...] = ()
    note: str = ""
    kind: str = "judge"


@dataclass(frozen=True)
class ModelLine:
    """A model: counts of answers, questions and games; `state` is one of ICONS."""

    model: str
    state: str
    answers: int
    empty_answers: int
    missing_answers: int
    questions: int
    games: int
    wanted: int
    due: int
    nulls: Mapping[str, int]
    unverified: int
    other_prompt: int
    short_labels: int
    stale: int
    retrying: int
    batch: int | None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class BatchLine:
    """A batch with its newest job and its models' games; `why` says why it is not handed in, where it isn't.
    `counted`: whether the games of all its models could be counted. Of a `kind` generate they are answers."""

    batch: int
    plan: str
    state: str
    job: str | None
    models: tuple[str, ...]
    games: int
    wanted: int
    due: int
    why: str = ""
    counted: bool = True
    kind: str = "judge"


@dataclass(frozen=True)
class AnswerLine:
    """A model whose answers are or were generated: of `wanted` questions `done` have an answer and `due` lack one.

    `failed`: questions that were given up, by reason; `problem`: why its answers can't be counted.
    """

    model: str
    wanted: int
    done: int
    due: int
    empty: int = 0
    stale: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    batch: int | None = None
    problem: str = ""


@dataclass(frozen=True)
class BadNode:
    """A node on which servers died of the node's own fault."""

    node: str
    deaths: int
    cause: str


@dataclass(frozen=True)
class Finish:
    """When the campaign is expected to end, in seconds since 1970, with the range that should hold it."""

    at: float
    earliest: float
    latest: float
    why: str = ""


@dataclass(frozen=True)
class Queue:
    """When the cluster last answered (seconds since 1970), and why it can't be asked, where it can't."""

    asked: float | None = None
    problem: str = ""


@dataclass(frozen=True)
class Snapshot:
    """Everything that the monitor shows, at one moment. Its JSON form carries `schema`."""

    time: float
    judge: str
    judge_kind: str
    bench: str
    notices: tuple[str, ...]
    problems: tuple[str, ...]
    baseline: str
    baseline_answers: Mapping[str, int | None]
    running: tuple[JobLine, ...]
    pending: tuple[JobLine, ...]
    unknown: tuple[JobLine, ...]
    models: tuple[ModelLine, ...]
    failures: tuple[Failure, ...]
    logs: tuple[tuple[str, int, float], ...]
    batches: tuple[BatchLine, ...] = ()
    rates: Rates = field(default_factory=Rates)
    finish: Finish | None = None
    bad_nodes: tuple[BadNode, ...] = ()
    gpu_hours: float | None = None
    gpu_hours_set_aside: float | None = None
    max_gpu_hours: float | None = None
    queue: Queue = field(default_factory=Queue)
    answers: tuple[AnswerLine, ...] = ()
    report: str = ""
    fleets: tuple[FleetStatus, ...] = ()

    def jobs(self, kind: str) -> tuple[tuple[JobLine, ...], tuple[JobLine, ...], tuple[JobLine, ...]]:
        """Jobs of a kind of work: running, pending, unknown."""
        one, two, three = (tuple(job for job in jobs if job.kind == kind)
                           for jobs in (self.running, self.pending, self.unknown))
        return one, two, three

    @property
    def totals(self) -> dict[str, int]:
        """Sums over the models."""
        return {
            "models": len(self.models), "with_answers": sum(1 for m in self.models if m.answers),
            "with_judgments": sum(1 for m in self.models if m.games),
            "complete": sum(1 for model in self.models if model.state == "complete"),
            "games": sum(m.games for m in self.models), "wanted": sum(m.wanted for m in self.models),
            "due": sum(m.due for m in self.models),
            "nulls": sum(sum(m.nulls.values()) for m in self.models),
            "answers": sum(one.done for one in self.answers), "answers_wanted": sum(one.wanted for one in self.answers),
            "answers_due": sum(one.due for one in self.answers),
        }

    @property
    def nulls(self) -> dict[str, int]:
        """Final nulls of all models by reason."""
        found: dict[str, int] = {}
        for model in self.models:
            for why, count in model.nulls.items():
                found[why] = found.get(why, 0) + count
        return found

    def as_json(self) -> dict[str, Any]:
        """One JSON document; docs/monitor.md describes its keys."""
        logs = [{"path": path, "bytes": size, "modified": modified} for path, size, modified in self.logs]
        return {"schema": SCHEMA, **asdict(self), "nulls": self.nulls, "totals": self.totals, "logs": logs}
