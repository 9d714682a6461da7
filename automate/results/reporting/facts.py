"""Where a report's numbers come from: judge, prompts, server, jobs, statistics. What is not known is said to be so.

Reads a workspace's settings and records; never a secret, and never asks Slurm."""

from __future__ import annotations

import hashlib
import platform
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from automate import __version__
from automate.arena.answering.effective import generation_settings
from automate.arena.context import judge_identity
from automate.arena.prompts import load_prompts
from automate.arena.running.gpu_hours import cards, lived, number, of_campaign
from automate.arena.running.runlog import read_runs
from automate.errors import FlockError
from automate.results.boards import Board, Options
from automate.results.reporting.content import Fact, FactGroup, Provenance
from automate.settings import Settings
from automate.workspace import Workspace

Hide = Callable[[str], str]
Run = Mapping[str, Any]
REHEARSED = "The judge is a rehearsal: its verdicts mean nothing, and so do all scores here."
NO_SETTINGS = "judgments without settings"
_VLLM = re.compile(rb"(?:LLM engine \(v|vLLM API server version )([0-9][\w.+-]{0,40})")
_LOGS, _LOG_BYTES = 200, 1 << 18
_PACKAGES = ("numpy", "scipy", "pandas", "matplotlib")


def of_data(judges: Sequence[str]) -> Provenance:
    """What is known of judgments that come without a workspace: the judges' names, and what is missing."""
    unknown = [Fact(name, None, NO_SETTINGS) for name in ("weights", "prompts", "server", "dates", "GPU-hours")]
    group = FactGroup("Judge", (Fact("name", ", ".join(judges)), *unknown))
    return Provenance((group,), _rehearsed(judges))


def of_workspace(workspace: Workspace, judges: Sequence[str] = (), *, hide: Hide = str) -> Provenance:
    """What a workspace knows of its judge, prompts and jobs. `hide` takes secrets out of the settings' own words.

    Other judges than the workspace's own are named, with what is not known of them.
    """
    settings = workspace.settings
    prompts, notices = _prompts(workspace)
    others = [judge for judge in judges if judge != settings.judge.name]
    groups = [_judge(workspace, hide), *_other_judges(others), prompts, _bench(settings), *_jobs(workspace, hide)]
    return Provenance(tuple(groups), (*_rehearsed([settings.judge.name, *others]), *notices))


def _rehearsed(judges: Iterable[str]) -> tuple[str, ...]:
    return (REHEARSED,) if any("rehearsal" in judge for judge in judges) else ()


def _judge(workspace: Workspace, hide: Hide) -> FactGroup:
    settings = workspace.settings
    judge, server = settings.judge, settings.judge.server
    try:
        weights = Fact("weights", judge_identity(settings, workspace.root).weights, "fingerprint")
    except (FlockError, OSError, ValueError) as error:
        weights = Fact("weights", None, str(error).split("\n")[0])
    facts = [Fact("name", judge.name), Fact("kind", judge.kind), weights, Fact("temperature", f"{judge.temperature:g}"),
             Fact("max. tokens", f"{judge.max_tokens:,}")]
    if judge.path:
        facts.insert(2, Fact("path", hide(judge.path)))
    if judge.kind == "vllm":
        facts += [Fact("server", hide(shlex.join([*server.command, *server.args]))), *_server_options(settings)]
    if judge.kind == "openai":
        facts += [Fact("address", hide(judge.base_url or "")), Fact("model", judge.model or judge.name)]
    return FactGroup("Judge", tuple(facts))


def _server_options(settings: Settings) -> list[Fact]:
    server = settings.judge.server
    given = {"tensor parallel": server.tensor_parallel_size, "max. model length": server.max_model_len,
             "load format": server.load_format}
    return [Fact(name, f"{value:,}" if isinstance(value, int) else str(value))
            for name, value in given.items() if value is not None]


def _other_judges(judges: Sequence[str]) -> list[FactGroup]:
    return [FactGroup(f"Judge {judge}", (Fact("weights, server", None, "the workspace has no settings of this judge"),))
            for judge in judges]


def _sha(text: str) -> str:
    return f"sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _prompts(workspace: Workspace) -> tuple[FactGroup, tuple[str, ...]]:
    try:
        prompts = load_prompts(workspace.bench_settings, workspace.judge_utils)
    except FlockError as error:
        return FactGroup("Prompts", (Fact("prompts", None, error.what),)), ()
    facts = [Fact("whose", "Arena-Hard's, of the checkout" if prompts.upstream else prompts.source),
             Fact("template", _sha(prompts.template)),
             *(Fact(f"system prompt of {', '.join(names)}", _sha(text))
               for text, names in _by_text(prompts.system).items())]
    notice = (f"The judge's prompt is {prompts.notice}: scores can't be compared with published ones.",)
    return FactGroup("Prompts", tuple(facts)), notice if prompts.notice else ()


def _by_text(system: Mapping[str, str]) -> dict[str, list[str]]:
    """Categories by their prompt's text, as several share one."""
    found: dict[str, list[str]] = {}
    for category, text in sorted(system.items()):
        found.setdefault(text, []).append(category)
    return found


def _bench(settings: Settings) -> FactGroup:
    baseline = settings.baseline
    text = baseline if isinstance(baseline, str) else ", ".join(f"{kind}: {name}" for kind, name in baseline.items())
    return FactGroup("Bench", (Fact("name", settings.bench), Fact("baseline of the settings", text)))


def _jobs(workspace: Workspace, hide: Hide) -> list[FactGroup]:
    """What jobs said of themselves, of answers and of judgments."""
    runs = read_runs(workspace.runs)
    answers = [run for run in runs if run.get("kind") == "generate"]
    judged = of_campaign([run for run in runs if run.get("kind") != "generate"], workspace.settings)
    groups = [_job_group("Judging", judged, workspace.settings, workspace.logs)]
    if not answers:
        return groups
    settings = generation_settings(workspace.settings)
    found = _job_group("Answers", answers, settings, workspace.answer_logs)
    server = Fact("server", hide(shlex.join([*settings.judge.server.command, *settings.judge.server.args])))
    return [replace(found, facts=(server, *found.facts)), *groups]


def server_versions(logs: Path) -> list[str]:
    """Versions of vLLM that the newest server logs of a folder name in their first lines."""
    found = set()
    for path in sorted(logs.glob("*.server.log"))[-_LOGS:] if logs.is_dir() else []:
        try:
            with path.open("rb") as file:
                found |= {match.decode("ascii", "replace") for match in _VLLM.findall(file.read(_LOG_BYTES))}
        except OSError:
            continue
    return sorted(found)


def _job_group(title: str, runs: Sequence[Run], settings: Settings, logs: Path) -> FactGroup:
    if not runs:
        return FactGroup(title, (Fact("jobs", None, "no job of this workspace has a record"),))
    hours = sum(cards(run, settings) * lived(run) for run in runs) / 3600
    started = [value for run in runs if (value := number(run, "started")) is not None]
    ended = [value for run in runs if (value := number(run, "ended") or number(run, "updated")) is not None]
    gpus = Counter(str(run["gpu"]) for run in runs if run.get("gpu"))
    facts = [Fact("starts of jobs", f"{len(runs):,}"), Fact("GPU-hours", f"{hours:,.2f}"),
             Fact("GPUs", ", ".join(f"{name} ({count} starts)" for name, count in sorted(gpus.items())) or None,
                  "" if gpus else "no start found one"),
             Fact("first start", _date(min(started, default=None))), Fact("last word", _date(max(ended, default=None))),
             *_counted(runs)]
    if settings.judge.kind == "vllm":
        versions = server_versions(logs)
        facts.append(Fact("vLLM", ", ".join(versions) or None, "" if versions else "no server log names its version"))
    return FactGroup(title, tuple(facts))


def _counted(runs: Sequence[Run]) -> list[Fact]:
    usage = [sum(value) for value in zip(*(_usage(run) for run in runs), strict=True)]
    played = sum(int(number(run, "played") or 0) for run in runs)
    versions = sorted({str(run["version"]) for run in runs if run.get("version")})
    facts = [Fact("games or answers", f"{played:,}"), Fact("prompt tokens", f"{usage[0]:,}"),
             Fact("reply tokens", f"{usage[1]:,}")]
    return [*facts, Fact("version of the jobs", ", ".join(versions))] if versions else facts


def _usage(run: Run) -> tuple[int, int]:
    usage = run.get("usage")
    whole = [int(value) for value in usage[:2] if isinstance(value, (int, float))] if isinstance(usage, list) else []
    return (whole[0], whole[1]) if len(whole) == 2 else (0, 0)


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"


def statistics(options: Options, style: Sequence[str], styled: Board | None) -> tuple[FactGroup, ...]:
    """How the scores were computed, and with which versions."""
    facts = [Fact("mode", options.mode), Fact("intervals", f"{options.confidence:g} %, questions resampled"),
             Fact("rounds", f"{options.rounds:,}"), Fact("seed", str(options.seed)),
             Fact("weight of strong votes", f"{options.strong_weight:g}"),
             Fact("category", options.category or "all"),
             Fact("style control", ", ".join(style) if styled else "none")]
    versions = [Fact("flock-hpc", __version__), Fact("Python", platform.python_version()),
                *(Fact(name, _version(name)) for name in _PACKAGES)]
    return FactGroup("Scores", tuple(facts)), FactGroup("Made with", tuple(versions))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
