"""The judge before a run: its folder, its memory, its context and its options.

Never starts a server, never shows a key."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from pathlib import Path

from automate.arena.context import judge_path
from automate.arena.preflight.findings import Finding, Run, error, from_error, note, passed, warning
from automate.arena.running.serve import api_key
from automate.arena.weights import ModelFolder, read_model_folder
from automate.errors import FlockError
from automate.serving.rehearsal_behaviour import Behaviour, add_behaviour_arguments
from automate.serving.staging import MARGIN
from automate.serving.staging_folder import NotStaged, expand, refusal_of
from automate.settings import Settings, Slurm
from automate.settings_base import Scalar
from automate.workspace import Workspace

GIB = 1 << 30
MEAN_GAME = 3150
"""Tokens of a mean Arena-Hard v2.0 game, prompt and verdict together."""
FEW_GAMES = 8
TENSOR = "judge.server.tensor_parallel_size"
_HUB_ID = re.compile(r"\w[\w.-]*/[\w.-]+")
_SIZE = re.compile(r"(?<![a-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)b(?![a-z0-9])")
_BYTES_A_WEIGHT = ((0.5, r"4bit|int4|awq|gptq|w4a16|fp4"), (1.0, r"fp8|int8|8bit|w8a8"))


def option(settings: Settings, *names: str) -> str | None:
    """The value of an option in judge.server.args (`--x v` or `--x=v`; the last one wins), or None."""
    found = None
    for word, following in pairwise([*settings.judge.server.args, ""]):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in names:
            found = value if equals else following
    return found


def parallel(settings: Settings) -> tuple[int, int, int]:
    """The server's tensor, pipeline and data parallel sizes; one copy lies on the first two's product of GPUs."""
    def size(kind: str, given: int | None = None) -> int:
        text = option(settings, f"--{kind}-parallel-size", f"-{kind[0]}p") or ""
        return int(text) if text.isdigit() else given or 1

    return size("tensor", settings.judge.server.tensor_parallel_size), size("pipeline"), size("data")


def asked_gpus(slurm: Slurm) -> int | None:
    """GPUs that a job asks Slurm for; None where sbatch options of the user's own say it."""
    if slurm.gres:
        parts = [part.partition("(")[0].split(":") for part in slurm.gres.split(",")]
        return sum(int(part[-1]) if part[-1].isdigit() else 1 for part in parts if part[0] == "gpu")
    return None if any(name.startswith("gpus") for name in slurm.options) else slurm.gpus


def context_of(settings: Settings, folder: ModelFolder | None) -> int | None:
    """The judge's context in tokens, or None where only its server will know it."""
    judge, given = settings.judge, option(settings, "--max-model-len")
    if judge.kind == "rehearsal":
        context = judge.rehearsal.get("context", Behaviour().context)
        return context if isinstance(context, int) else None
    if judge.kind == "openai" or given is not None:
        return judge.context if given is None else int(given) if given.isdigit() else None
    return judge.server.max_model_len or (folder.context if folder else None) or judge.context


def estimated_weights(name: str) -> int | None:
    """Bytes of weights by a model's name ('70b', '8x7b', 'fp8', 'awq'), or None where it doesn't say."""
    size = _SIZE.search(name.lower())
    width = next((width for width, pattern in _BYTES_A_WEIGHT if re.search(pattern, name.lower())), 2.0)
    return int(float(size[2]) * int(size[1] or 1) * 1e9 * width) if size else None


def judge_findings(workspace: Workspace, executor: str, run: Run) -> tuple[list[Finding], int | None]:
    """What is to be said of the judge, and its context in tokens where that is known."""
    settings = workspace.settings
    if settings.judge.kind != "vllm":
        other = _rehearsal(settings.judge.rehearsal) if settings.judge.kind == "rehearsal" else _openai(workspace)
        return list(other), context_of(settings, None)
    found: list[Finding] = []
    folder = _folder(workspace, found)
    if folder and not folder.weight_bytes:
        found.append(error("FH303", str(folder.path), "no weights in it (.safetensors, .bin, .pt or .gguf)",
                           "finish the judge's download"))
    context = context_of(settings, folder)
    if folder and context and context > (folder.context or context):
        found.append(warning("FH313", "judge.server.max_model_len", f"it is {context}; the judge's config.json names "
                             f"{folder.context}", "lower it: vLLM refuses more unless it is told otherwise"))
    gpus = asked_gpus(settings.slurm) if executor == "slurm" else None
    if executor == "local":
        status, out = run(["nvidia-smi", "-L"])
        gpus = sum(line.startswith("GPU ") for line in out.split("\n")) or None if status == 0 else None
        if gpus is None:
            found.append(warning("FH506", "nvidia-smi", "shows no GPU of this machine, and vLLM is to serve the judge",
                                 "go on if that is a build for the CPU; judge.kind rehearsal needs no GPU"))
    found += [*_gpus(settings, folder, gpus), *_memory(settings, folder if folder and folder.weight_bytes else None)]
    return [*found, *_staging(settings, folder, executor)], context


def _staging(settings: Settings, judge: ModelFolder | None, executor: str) -> Iterator[Finding]:
    """What this machine can know of the staging folder; only a job sees its node's disk."""
    staging, where = settings.judge.staging, "judge.staging.folder"
    if staging.folder is None:
        if staging.when == "always":
            yield warning("FH314", where, "not given, so nothing is staged", "set it, or judge.staging.when to never")
        return
    elsewhere = "jobs say in their logs whether they staged the weights; where they can't, they load the original"
    if staging.when == "never" or "$" in staging.folder:
        if staging.when != "never":
            yield note("FH314", where, f"'{staging.folder}' is known to jobs only", elsewhere)
        return
    try:
        folder = expand(staging.folder, {})
    except NotStaged as problem:
        yield warning("FH314", where, f"{problem.what}: jobs load the original", "write a path of the nodes from / on")
        return
    if executor == "slurm" and not folder.is_dir():
        yield note("FH314", where, f"there is no {folder} on this machine; the nodes may have it", elsewhere)
        return
    why = refusal_of(folder, judge.path if judge else None, int(judge.weight_bytes * MARGIN) if judge else 0)
    if why:
        yield warning("FH314", where, f"on this machine: {why}", elsewhere)


def _folder(workspace: Workspace, found: list[Finding]) -> ModelFolder | None:
    path = None
    try:
        path = judge_path(workspace.settings, workspace.root)
        found += _path(workspace, path)
        return read_model_folder(path) if path else None
    except (OSError, ValueError, ArithmeticError) as problem:
        found.append(error("FH303", str(path or "judge.path"), f"the judge's config.json can't be read: {problem}",
                           "judge.path must be a model's folder as transformers writes it"))
        return None


def _path(workspace: Workspace, folder: Path | None) -> Iterator[Finding]:
    judge = workspace.settings.judge
    todo = "set judge.path to a model's folder that compute nodes see (in a hub cache: .../snapshots/ID)"
    if judge.path is None:
        yield error("FH301", "judge.path", "not given, so no server can load the judge", todo)
    elif folder and not Path(judge.path).is_absolute():
        yield warning("FH302", "judge.path", f"'{judge.path}' is not an absolute path; a job may look elsewhere",
                      f"write {folder}")
    elif not folder and _HUB_ID.fullmatch(judge.path) and not os.access(workspace.root / judge.path, os.F_OK):
        variables = {**workspace.settings.environment, **judge.environment.variables}
        online = variables.get("HF_HUB_OFFLINE", "1").lower() in ("0", "false", "no", "off")
        says = "every job asks the hub for it" if online else "jobs run with HF_HUB_OFFLINE=1"
        yield (warning if online else error)(
            "FH302", "judge.path", f"no folder '{judge.path}' here; if that is a name on the hub: {says}",
            todo + ("" if online else "; where nodes have internet, set HF_HUB_OFFLINE: \"0\" under 'environment'"))
    elif not folder:
        yield error("FH302", "judge.path", f"'{judge.path}' is not a folder on this machine", todo)


def _gpus(settings: Settings, folder: ModelFolder | None, gpus: int | None) -> Iterator[Finding]:
    tensor, needed = parallel(settings)[0], math.prod(parallel(settings))
    if gpus == 0 and needed == 1:
        yield warning("FH306", "slurm.gpus", "a job gets no GPU; only a server's build for the CPU can run there",
                      "set slurm.gpus to 1 or more")
    elif gpus is not None and gpus < needed:
        yield error("FH306", TENSOR, f"the judge is spread over {needed} GPUs, but a job has {gpus}",
                    f"set slurm.gpus to {needed}, or {TENSOR} to {max(gpus, 1)}")
    elif gpus is not None and gpus > needed:
        yield warning("FH306", TENSOR, f"the judge uses {needed} of a job's {gpus} GPUs; the rest stand idle",
                      f"set {TENSOR} to {gpus}, or ask for fewer")
    if folder and folder.heads and folder.heads % tensor:
        fits = next(size for size in range(tensor, 0, -1) if folder.heads % size == 0)
        yield error("FH306", TENSOR, f"{folder.heads} attention heads can't be split by {tensor}", f"set it to {fits}")


def _memory(settings: Settings, folder: ModelFolder | None) -> Iterator[Finding]:
    """Whether weights and one context of KV cache fit, and how many mean games fit beside the weights."""
    card, copy = settings.gpu.memory_gb, math.prod(parallel(settings)[:2])
    if card is None:
        yield note("FH307", "gpu.memory_gb", "not given: nobody checked that the judge fits", "set it")
        return
    text = option(settings, "--gpu-memory-utilization") or ""
    share = float(text) if re.fullmatch(r"0?\.\d+|1(\.0*)?", text) else 0.9
    budget = card * GIB * share * copy
    room = f"{copy} GPU{'s' * (copy > 1)} of {card:g} GB give{'s' * (copy == 1)} {budget / GIB:.1f} GiB (x {share:g})"
    more = f"more GPUs (slurm.gpus and {TENSOR})"
    if folder is None:
        guess = estimated_weights(Path(settings.judge.path or "").name) or estimated_weights(settings.judge.name) or 0
        if guess > budget * 0.9:
            yield warning("FH309", "judge", f"by its name its weights take about {guess / GIB:.0f} GiB, too much to "
                          f"leave room for games: {room}", f"use {more}, or a smaller judge")
        return
    kv, context, weights = folder.kv_bytes_per_token or 0, context_of(settings, folder) or 0, folder.weight_bytes
    kv = kv // 2 if (option(settings, "--kv-cache-dtype") or "").startswith("fp8") else kv
    one = f", KV cache of one context of {context} tokens {kv * context / GIB:.1f} GiB" if kv and context else ""
    sums = f"weights {weights / GIB:.1f} GiB{one}; {room}"
    if weights + kv * context > budget:
        left = int((budget - weights) // kv) // 16 * 16 if kv else 0
        lower = f"judge.server.max_model_len of at most {left}, or an FP8 KV cache" if left > 0 else "a quantised judge"
        unsure = option(settings, "--quantization", "-q", "--cpu-offload-gb") is not None
        yield (warning if unsure else error)("FH304", "judge", f"it does not fit: {sums}", f"use {more}, or {lower}")
        return
    yield passed("FH304", "judge", f"it fits: {sums}")
    if kv:
        games = int((budget - weights) // (kv * MEAN_GAME))
        what = f"at most {games} mean games ({MEAN_GAME} tokens each) fit beside its weights at once"
        yield note("FH305", "judge", what) if games >= FEW_GAMES else warning(
            "FH305", "judge", what, f"use {more}, an FP8 KV cache (judge.server.args: --kv-cache-dtype fp8), or a "
            "smaller judge.server.max_model_len")


def _openai(workspace: Workspace) -> Iterator[Finding]:
    judge = workspace.settings.judge
    if not re.fullmatch(r"https?://[^\s/?#]+(/\S*)?", judge.base_url or ""):
        yield error("FH310", "judge.base_url", "not an http or https address with a host", "write it as https://host/v1")
    try:
        if api_key(judge, workspace.secrets) == "":
            yield error("FH310", "judge.api_key_env", f"the key kept for {judge.api_key_env} is empty",
                        f"export {judge.api_key_env}")
    except FlockError as problem:
        yield from_error("FH310", "judge.api_key_env", problem)


def _rehearsal(options: Mapping[str, Scalar]) -> Iterator[Finding]:
    yield note("FH311", "judge", "this is a rehearsal: its verdicts mean nothing")
    known, words = [field.name for field in fields(Behaviour)], list[str]()
    parser = argparse.ArgumentParser(exit_on_error=False, add_help=False, allow_abbrev=False)
    add_behaviour_arguments(parser)
    for name, value in options.items():
        where, plain = f"judge.rehearsal.{name}", name.replace("-", "_")
        flag = [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
        if plain not in known:
            near = difflib.get_close_matches(plain, known, n=1, cutoff=0.5)
            yield error("FH312", where, "the rehearsal judge has no such option",
                        f"did you mean '{near[0]}'?" if near else f"it has: {', '.join(known)}")
        elif value is not None and value is not False:
            try:
                strange = parser.parse_known_args(flag)[1]
            except argparse.ArgumentError as problem:
                yield error("FH312", where, problem.message, "see: python -m automate.serving.rehearsal --help")
                continue
            if strange:
                yield error("FH312", where, "it is a switch", "write true or false")
            words += [] if strange else flag
    try:
        Behaviour.from_args(parser.parse_args(words))
    except ValueError as problem:
        yield error("FH312", "judge.rehearsal", str(problem), "lower them")
