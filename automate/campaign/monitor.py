"""The monitor's picture of a campaign: jobs, models, failures, logs.

Only looks: one squeue call, no submission, no change. What can't be known is shown as unknown, with its reason."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from automate.arena.benchmark import read_models_file
from automate.arena.context import baseline_map, load_answers, load_match
from automate.arena.games import ModelStatus
from automate.arena.progress import ModelProgress, Progress
from automate.campaign.state import BatchView, CampaignState, log_files, look
from automate.errors import FlockError
from automate.names import baseline_tag
from automate.serving import causes
from automate.workspace import Workspace

SCHEMA = 1
ICONS = {"complete": "✅", "partial": "🟡", "waiting": "🟡", "unknown": "❔", "no answers": "❌", "incomplete": "🟠"}


@dataclass(frozen=True)
class JobLine:
    """A job that waits or runs, or of which nobody can tell."""

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


@dataclass(frozen=True)
class Failure:
    """A batch whose newest job ended with games due, its class, and what to do."""

    batch: int
    plan: str
    job: str
    state: str
    cause: str
    todo: str
    evidence: str
    log: str | None


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

    def as_json(self) -> dict[str, Any]:
        """One JSON document; docs/monitor.md describes its keys."""
        done = sum(1 for model in self.models if model.state == "complete")
        totals = {
            "models": len(self.models), "with_answers": sum(1 for m in self.models if m.answers),
            "with_judgments": sum(1 for m in self.models if m.games), "complete": done,
            "games": sum(m.games for m in self.models), "wanted": sum(m.wanted for m in self.models),
            "due": sum(m.due for m in self.models),
            "nulls": sum(sum(m.nulls.values()) for m in self.models),
        }
        logs = [{"path": path, "bytes": size, "modified": modified} for path, size, modified in self.logs]
        return {"schema": SCHEMA, **asdict(self), "totals": totals, "logs": logs}


def _job_line(view: BatchView) -> JobLine:
    status = view.status
    if status is None:
        raise ValueError("a batch without a job")
    return JobLine(
        status.job, view.batch.number, view.stored.plan.id, status.name or view.stored.plan.job_name(view.batch),
        view.state, status.reason, status.evidence, status.elapsed, status.nodes, status.node_count,
        status.partition, status.user)


def _state(status: ModelStatus | None, answers: int, missing: int) -> str:
    if answers == 0:
        return "no answers"
    if status is None:
        return "unknown"
    if missing:
        return "incomplete"
    if status.due == 0 and status.wanted > 0:
        return "complete"
    return "partial" if status.wanted > status.due else "waiting"


def _line(model: str, entry: ModelProgress, batch: int | None) -> ModelLine:
    status = entry.status
    return ModelLine(
        model, _state(status, entry.answers, entry.missing), entry.answers, entry.empty, entry.missing,
        status.questions_done, status.wanted - status.due, status.wanted, status.due, dict(status.nulls),
        status.unverified, status.other_prompt, status.short_labels, status.stale, status.retrying,
        batch, tuple(entry.problems[:5]))


def _bare_line(workspace: Workspace, model: str) -> ModelLine:
    """A model's line where games can't be counted, as the baseline or the questions can't be read."""
    try:
        answers = load_answers(workspace, model)
    except FlockError:
        answers = None
    count = len(answers.texts) if answers else 0
    return ModelLine(model, _state(None, count, 0), count, answers.empty if answers else 0, 0, 0, 0, 0, 0, {}, 0, 0, 0,
                     0, 0, None)


def _failure(workspace: Workspace, view: BatchView, due: int) -> Failure:
    run = view.run or {}
    logs = log_files(workspace, view)
    server_logs = [path for path in logs if path.name.endswith(".server.log") and (view.job or "") in path.name]
    cause, todo = "unknown", f"see 'flock-hpc logs {view.batch.number}'"
    by_state = {
        "timeout": ("time limit", "raise slurm.time, or lower --batch-size; then submit again: it goes on from here"),
        "out_of_memory": ("host memory", "raise slurm.mem, then submit again"),
        "node_fail": ("node failure", "submit again: it goes on from here"),
        "preempted": ("preempted", "submit again: it goes on from here"),
        "cancelled": ("cancelled", "submit again when you want it to go on"),
    }
    if view.state in by_state:
        cause, todo = by_state[view.state]
    elif run.get("error"):
        cause, _, advice = str(run["error"]).partition("\n  -> ")
        cause, todo = cause.split("\n")[0], advice or todo
    elif view.state == "completed" or run.get("status") == 3:
        cause, todo = f"ended with {due} games due", "submit again: it plays just those"
    if server_logs and view.state == "failed":
        found = causes.classify(causes.tail(server_logs[-1]))
        if found is not causes.UNKNOWN:
            cause, todo = f"judge server: {found.name}", found.todo
    evidence = view.status.evidence if view.status else ""
    return Failure(view.batch.number, view.stored.plan.id, view.job or "", view.state, cause, todo, evidence,
                   str(logs[-1]) if logs else None)


def _failures(workspace: Workspace, state: CampaignState, due: Mapping[str, int]) -> tuple[Failure, ...]:
    latest: dict[str, BatchView] = {}
    for view in state.batches:
        for model in view.batch.models:
            if view.status is not None:
                latest[model] = view
    found: dict[tuple[str, int], Failure] = {}
    for view in latest.values():
        games = sum(due.get(model, 0) for model in view.batch.models)
        if not view.may_act and view.state != "planned" and games:
            key = (view.stored.plan.id, view.batch.number)
            found.setdefault(key, _failure(workspace, view, games))
    return tuple(found.values())


def _logs(folder: Path, most: int = 5) -> tuple[tuple[str, int, float], ...]:
    if not folder.is_dir():
        return ()
    stats = []
    for path in folder.iterdir():
        try:
            stat = path.stat()
        except OSError:
            continue
        stats.append((str(path), stat.st_size, stat.st_mtime))
    return tuple(sorted(stats, key=lambda item: -item[2])[:most])


def _models(workspace: Workspace, state: CampaignState, problems: list[str]) -> list[str]:
    """The models file's names, and those of batches that are not in it."""
    names: list[str] = []
    try:
        listed = read_models_file(workspace.models_file)
        names = list(listed.names)
        problems += listed.problems
    except FlockError as error:
        problems.append(str(error))
    extra = [model for view in state.batches if view.submissions or view.status for model in view.batch.models]
    return [name for name in dict.fromkeys([*names, *extra]) if name != workspace.settings.baseline]


def _of_this(workspace: Workspace, state: CampaignState) -> CampaignState:
    """Without ended batches of other baselines, judges or benches; whatever may still act is always shown."""
    settings, tag = workspace.settings, baseline_tag(workspace.settings.baseline)

    def mine(view: BatchView) -> bool:
        theirs = view.stored.settings
        return (view.stored.plan.baseline, theirs.get("bench"), theirs.get("judge", {}).get("name")) == (
            tag, settings.bench, settings.judge.name)

    return replace(state, batches=tuple(view for view in state.batches if view.may_act or mine(view)))


def snapshot(workspace: Workspace) -> Snapshot:
    """Look at everything once."""
    problems: list[str] = []
    notices: list[str] = []
    state = _of_this(workspace, look(workspace))
    names = _models(workspace, state, problems)
    batch_of = {model: view.batch.number for view in state.batches if view.status for model in view.batch.models}
    due: dict[str, int] = {}
    baseline: dict[str, int | None] = {}
    for model in sorted(set(baseline_map(workspace.settings.baseline).values())):
        answers = load_answers(workspace, model)
        baseline[model] = len(answers.texts) if answers else None
    try:
        match = load_match(workspace)
        if match.prompts.notice:
            notices.append(f"{match.prompts.notice} ({match.prompts.source})")
        progress = Progress(workspace, match, names)
        lines = [_line(model, entry, batch_of.get(model)) for model, entry in progress.models.items()]
        due = progress.due
    except FlockError as error:
        problems.append(str(error))
        lines = [_bare_line(workspace, model) for model in names]
    if workspace.settings.judge.kind == "rehearsal":
        notices.append("rehearsal judge: its verdicts mean nothing")
    jobs = [(view, _job_line(view)) for view in state.batches if view.may_act]
    return Snapshot(
        time=time.time(), judge=workspace.settings.judge.name, judge_kind=workspace.settings.judge.kind,
        bench=workspace.settings.bench, notices=tuple(notices), problems=tuple(problems),
        baseline=baseline_tag(workspace.settings.baseline), baseline_answers=baseline,
        running=tuple(line for view, line in jobs if view.state == "running"),
        pending=tuple(line for view, line in jobs if view.state == "queued"),
        unknown=tuple(line for view, line in jobs if view.state not in ("running", "queued")),
        models=tuple(lines), failures=_failures(workspace, state, due), logs=_logs(workspace.logs))
