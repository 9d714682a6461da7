"""Models to batches; the YAML and the script of each. Pure: plans come in, texts go out.

Never decides what is due and never submits; the same plan always gives the same bytes."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from automate import __version__
from automate.arena.context import judge_path
from automate.arena.engine_job import FleetUse, engine_settings
from automate.arena.prompts import Prompts
from automate.arena.verdict import PATTERNS
from automate.cluster.script import directives, log_pattern, render
from automate.durations import seconds_of
from automate.settings import Settings
from automate.workspace import Workspace
from automate.yamlfile import is_text

MARGIN = 15.0
"""Seconds for flushing, stopping the server and asking Slurm, at the end of a job."""


PlanKind = Literal["judge", "generate"]
"""What the jobs of a plan do: play games, or generate answers."""


@dataclass(frozen=True)
class Batch:
    """One job's worth of models, and the games (or answers) that were due when it was planned."""

    number: int
    models: tuple[str, ...]
    games: int


@dataclass(frozen=True)
class Plan:
    """Batches that were planned together, of one kind of work. `id` is the timestamp in their log names.

    Numbers count for each kind apart: there may be a judging batch 1 and a generation batch 1 at once. `use`: the fleet
    on which the games are played; None: each batch starts a server of its own.
    """

    id: str
    tag: str
    baseline: str
    batches: tuple[Batch, ...]
    limit_questions: int | None = None
    kind: PlanKind = "judge"
    use: FleetUse | None = None

    @property
    def fleet(self) -> str | None:
        """The name of the fleet on which it is played, if any."""
        return self.use.name if self.use is not None else None

    @property
    def word(self) -> str:
        """How the names of its jobs and logs begin: judge or answer."""
        return "answer" if self.kind == "generate" else "judge"

    def job_name(self, batch: Batch) -> str:
        return f"{self.word}-batch-{batch.number}-{self.tag}"

    def array_name(self, part: int) -> str:
        return f"{self.word}-array-{self.tag}" + (f"-{part}" if part > 1 else "")


def balance(due: Mapping[str, int], size: int, first: int = 1) -> tuple[Batch, ...]:
    """Spread models over ceil(n / size) batches of at most `size` models, evening out the games due.

    Longest first, each to the batch with the fewest games that has room; models in a batch keep the list's order.
    """
    order = {model: index for index, model in enumerate(due)}
    waiting = [model for model, games in due.items() if games > 0]
    count = math.ceil(len(waiting) / size)
    groups: list[list[str]] = [[] for _ in range(count)]
    loads = [0] * count
    for model in sorted(waiting, key=lambda name: (-due[name], order[name])):
        index = min((i for i in range(count) if len(groups[i]) < size), key=lambda i: (loads[i], i))
        groups[index].append(model)
        loads[index] += due[model]
    return tuple(
        Batch(first + index, tuple(sorted(group, key=order.__getitem__)), load)
        for index, (group, load) in enumerate(zip(groups, loads, strict=True))
    )


def plan_tag(workspace: Workspace, plan_id: str) -> str:
    """Six characters that make the job names of one plan of one workspace unlike all others."""
    return hashlib.sha256(f"{workspace.root}\0{plan_id}".encode()).hexdigest()[:6]


class _Dumper(yaml.SafeDumper):
    """Block style, with texts of several lines as literal blocks."""


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value and not any(line.endswith(" ") for line in value.split("\n")) else None
    if not is_text(value):
        style = "'"  # it would be read as a number or the like
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def dump(config: Mapping[str, object]) -> str:
    """YAML in block style, its keys in order."""
    return yaml.dump(dict(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


def batch_config(workspace: Workspace, plan: Plan, batch: Batch, prompts: Prompts) -> str:
    """The batch's YAML: upstream's keys, and under `flock_hpc` what the job needs to be repeated exactly."""
    settings = workspace.settings
    own: dict[str, Any] = {
        "version": __version__, "plan": plan.id, "batch": batch.number, "games": batch.games,
        "prompts": prompts.source if prompts.upstream else f"{prompts.source} ({prompts.notice})",
        "default_baseline": workspace.default_baseline, "limit_questions": plan.limit_questions,
        "settings": settings.model_dump(mode="json"),
    }
    if plan.use is not None:
        own["fleet"] = plan.use.as_json()
    config: dict[str, Any] = {
        "judge_model": settings.judge.name,
        "temperature": settings.judge.temperature,
        "max_tokens": settings.judge.max_tokens,
        "bench_name": settings.bench,
        "baseline": settings.baseline,
        "reference": None,
        "regex_patterns": list(PATTERNS),
        "prompt_template": prompts.template,
        "model_list": list(batch.models),
        "flock_hpc": own,
    }
    head = (f"# Arena-Hard judgment, batch {batch.number} of plan {plan.id}. Upstream's gen_judgment.py takes it as it "
            "is;\n# the key flock_hpc is read by flock-hpc only. Don't edit: the job checks this file's hash.\n")
    return head + dump(config)


def server_command(workspace: Workspace, python: str) -> list[str]:
    """The command that starts the judge's server, without its address."""
    judge = workspace.settings.judge
    if judge.kind == "rehearsal":
        command = [python, "-m", "automate.serving.rehearsal", "--model", judge.name]
        for name, value in judge.rehearsal.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                command.append(flag)
            elif value is not False and value is not None:
                command += [flag, str(value)]
        return command
    folder = judge_path(workspace.settings, workspace.root)
    command = [*judge.server.command, str(folder or judge.path or judge.name), "--served-model-name", judge.name]
    if judge.server.tensor_parallel_size:
        command += ["--tensor-parallel-size", str(judge.server.tensor_parallel_size)]
    if judge.server.max_model_len:
        command += ["--max-model-len", str(judge.server.max_model_len)]
    if judge.server.load_format:
        command += ["--load-format", judge.server.load_format]
    return [*command, "--enable-prompt-tokens-details", *judge.server.args]


def server_context(workspace: Workspace, python: str) -> dict[str, object] | None:
    """What the templates need to know of the judge's server and its environment; None where somebody else serves it."""
    settings = workspace.settings
    if settings.judge.kind == "openai":
        return None
    around = settings.judge.environment if settings.judge.kind == "vllm" else type(settings.judge.environment)()
    return {
        "modules": around.modules, "venv": _full(workspace, around.venv), "conda": around.conda,
        "container": around.container if "://" in (around.container or "") else _full(workspace, around.container),
        "setup": around.setup, "variables": sorted(around.variables.items()),
        "command": server_command(workspace, python),
        "judge_at": len(settings.judge.server.command) if settings.judge.kind == "vllm" else None,
    }


def _full(workspace: Workspace, path: str | None) -> str | None:
    """A path as a job needs it: absolute, from the workspace."""
    return None if path is None else str(workspace.root / Path(path).expanduser())


def needs_gpu(settings: Settings) -> bool:
    """Whether a job of these settings asks for GPUs."""
    return settings.judge.kind == "vllm"


def drain_lead(drain: float, time_limit: float, longest_game: float, stop_timeout: float) -> int:
    """Seconds before the time limit in which no more games are started.

    Long enough for the longest game that was measured and for ending the server, at least `drain`, and at most half of
    the time limit, so that something is played.
    """
    wanted = max(drain, 1.25 * longest_game + stop_timeout + min(MARGIN, stop_timeout))
    return max(1, int(min(wanted, time_limit / 2, 65535)))


def drain_signal(settings: Settings, longest_game: float = 0.0) -> str:
    """When Slurm tells a job that its time is nearly over, in --signal's words.

    Not USR1, which NCCL may take. `longest_game`: seconds, as earlier starts measured.
    """
    lead = drain_lead(settings.limits.drain, seconds_of(settings.slurm.time), longest_game,
                      settings.judge.server.stop_timeout)
    return f"B:USR2@{lead}"


def _job_settings(workspace: Workspace, plan: Plan) -> Settings:
    """By which settings the jobs of a plan run."""
    return engine_settings(workspace.settings) if plan.use is not None else workspace.settings


def batch_script(workspace: Workspace, plan: Plan, batch: Batch, config: str, python: str,
                 longest_game: float = 0.0) -> str:
    """The text of a batch's job script; `config` is the text of its YAML, `python` the engine's interpreter."""
    settings = _job_settings(workspace, plan)
    logs = {
        kind: log_pattern(workspace.logs, f"judge-batch-{batch.number}_%j_{plan.id}.{suffix}")
        for kind, suffix in (("output", "out"), ("error", "err"))
    }
    context = {
        "directives": directives(settings.slurm, name=plan.job_name(batch), gpus=needs_gpu(settings),
                                 signal=drain_signal(settings, longest_game), **logs),
        "number": batch.number, "plan": plan.id, "games": batch.games, "version": __version__,
        "models": batch.models, "server": None if plan.use is not None else server_context(workspace, python),
        "environment": sorted(settings.environment.items()), "python": python,
        "workspace": workspace.root, "config": workspace.batch_config(batch.number),
        "sha256": hashlib.sha256(config.encode()).hexdigest(), "script": workspace.batch_script(batch.number),
    }
    return render("judge_batch.sh.j2", context, workspace.templates)


def array_script(workspace: Workspace, plan: Plan, part: int, offset: int, indexes: Sequence[str],
                 parallel: int | None, longest_game: float = 0.0) -> str:
    """The text of an array job's script. `indexes` is what --array takes; batch number = index + offset."""
    settings = _job_settings(workspace, plan)
    spec = ",".join(indexes) + (f"%{parallel}" if parallel else "")
    logs = {
        kind: log_pattern(workspace.logs, f"judge-batch-%a_%A_%a_{plan.id}.{suffix}")
        for kind, suffix in (("output", "out"), ("error", "err"))
    }
    context = {
        "directives": directives(settings.slurm, name=plan.array_name(part), array=spec, gpus=needs_gpu(settings),
                                 signal=drain_signal(settings, longest_game), **logs),
        "plan": plan.id, "version": __version__, "offset": offset, "scripts": workspace.scripts,
        "script": workspace.array_script(part),
    }
    return render("judge_array.sh.j2", context, workspace.templates)
