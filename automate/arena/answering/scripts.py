"""The YAML and the script of a batch of answers. Pure but for a look at the models' folders: plans in, texts out.

Never decides what is due and never submits; the same plan and folders always give the same bytes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from automate import __version__
from automate.arena.answering.candidates import ServerGroup, candidates, groups
from automate.arena.answering.effective import ANSWERS, generation_settings
from automate.arena.batches import Batch, Plan, drain_signal, dump, needs_gpu, server_context
from automate.cluster.script import directives, log_pattern, render
from automate.workspace import Workspace

RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Ranks that vLLM takes for --max-lora-rank, smallest first."""


def effective(workspace: Workspace) -> Workspace:
    """The workspace with the settings of generation jobs."""
    return replace(workspace, settings=generation_settings(workspace.settings))


def groups_of(workspace: Workspace, models: Sequence[str]) -> tuple[ServerGroup, ...]:
    """The servers that a batch's models need, without the models that can't be served."""
    return groups(candidates(workspace, models)[0], workspace.settings.generate.max_loras)


def answer_config(workspace: Workspace, plan: Plan, batch: Batch) -> str:
    """The batch's YAML: upstream's keys, and under `flock_hpc` what the job needs to be repeated exactly."""
    own: dict[str, Any] = {
        "version": __version__, "kind": ANSWERS, "plan": plan.id, "batch": batch.number, "games": batch.games,
        "default_baseline": workspace.default_baseline, "limit_questions": plan.limit_questions,
        "groups": [list(group.models) for group in groups_of(workspace, batch.models)],
        "settings": workspace.settings.model_dump(mode="json"),
    }
    config = {"bench_name": workspace.settings.bench, "model_list": list(batch.models), "flock_hpc": own}
    head = (f"# Arena-Hard answers, batch {batch.number} of plan {plan.id}. Upstream's gen_answer.py takes it as it "
            "is;\n# the key flock_hpc is read by flock-hpc only. Don't edit: the job checks this file's hash.\n")
    return head + dump(config)


def group_command(workspace: Workspace, group: ServerGroup, python: str) -> list[str]:
    """The command that starts one group's server, without its address."""
    generate, first = workspace.settings.generate, group.candidates[0]
    if generate.kind == "rehearsal":
        command = [python, "-m", "automate.serving.rehearsal", "--model", group.served, "--answers"]
        for one in group.adapters:
            command += ["--also", one.model]
        for name, value in generate.rehearsal.items():
            flag = f"--{name.replace('_', '-')}"
            command += [flag] if value is True else [] if value is False or value is None else [flag, str(value)]
        return command
    server = generate.server
    command = [*server.command, str(group.folder), "--served-model-name", group.served]
    for flag, given in (("--tensor-parallel-size", server.tensor_parallel_size),
                        ("--max-model-len", server.max_model_len), ("--load-format", server.load_format),
                        ("--chat-template", first.chat_template), ("--tokenizer", first.tokenizer)):
        command += [] if given is None else [flag, str(given)]
    return [*command, *_adapters(group), "--enable-prompt-tokens-details", *server.args, *first.args]


def _adapters(group: ServerGroup) -> list[str]:
    """vLLM's options for the group's adapters; as JSON, because names and paths may hold '=' and ','."""
    if not group.adapters:
        return []
    wanted = max(one.rank for one in group.adapters)
    rank = next((size for size in RANKS if size >= wanted), wanted)
    modules = [json.dumps({"name": one.model, "path": str(one.path), "base_model_name": group.served})
               for one in group.adapters]
    return ["--enable-lora", "--max-loras", str(len(modules) + group.spare), "--max-lora-rank", str(rank),
            "--lora-modules", *modules]


def answer_script(workspace: Workspace, plan: Plan, batch: Batch, config: str, python: str,
                  longest_answer: float = 0.0) -> str:
    """The text of a batch's job script; `config` is the text of its YAML, `python` the engine's interpreter."""
    own = effective(workspace)
    settings = own.settings
    logs = {kind: log_pattern(workspace.answer_logs, f"answer-batch-{batch.number}_%j_{plan.id}.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    servers = [{"number": number, "models": group.models, "command": group_command(workspace, group, python)}
               for number, group in enumerate(groups_of(workspace, batch.models), 1)]
    context = {
        "directives": directives(settings.slurm, name=plan.job_name(batch), gpus=needs_gpu(settings),
                                 signal=drain_signal(settings, longest_answer), **logs),
        "number": batch.number, "plan": plan.id, "answers": batch.games, "version": __version__,
        "models": batch.models, "server": server_context(own, python), "groups": servers,
        "environment": sorted(settings.environment.items()), "python": python,
        "workspace": workspace.root, "config": workspace.answer_config(batch.number),
        "sha256": hashlib.sha256(config.encode()).hexdigest(), "script": workspace.answer_script(batch.number),
    }
    return render("answer_batch.sh.j2", context, workspace.templates)


def answer_array_script(workspace: Workspace, plan: Plan, part: int, offset: int, indexes: Sequence[str],
                        parallel: int | None, longest_answer: float = 0.0) -> str:
    """The text of an array job's script. `indexes` is what --array takes; batch number = index + offset."""
    settings = generation_settings(workspace.settings)
    spec = ",".join(indexes) + (f"%{parallel}" if parallel else "")
    logs = {kind: log_pattern(workspace.answer_logs, f"answer-batch-%a_%A_%a_{plan.id}.{suffix}")
            for kind, suffix in (("output", "out"), ("error", "err"))}
    context = {
        "directives": directives(settings.slurm, name=plan.array_name(part), array=spec, gpus=needs_gpu(settings),
                                 signal=drain_signal(settings, longest_answer), **logs),
        "plan": plan.id, "version": __version__, "offset": offset, "scripts": workspace.answer_scripts,
        "script": workspace.answer_array_script(part),
    }
    return render("answer_array.sh.j2", context, workspace.templates)
