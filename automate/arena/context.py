"""Reads what a campaign needs of a workspace: questions, prompts, answers, the judge's identity.

Never writes."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Mapping
from pathlib import Path

from automate.arena.benchmark import Answers, read_answers, read_api_config, read_questions
from automate.arena.games import JudgeIdentity, Match
from automate.arena.prompts import load_prompts
from automate.arena.weights import fingerprint
from automate.errors import DataError
from automate.settings import Settings
from automate.workspace import Workspace


def judge_path(settings: Settings, root: Path) -> Path | None:
    """The judge's folder on disk, or None where its path is a hub id or not given."""
    if settings.judge.path is None:
        return None
    path = Path(settings.judge.path).expanduser()
    path = path if path.is_absolute() else root / path
    return path if path.is_dir() else None


def judge_identity(settings: Settings, root: Path) -> JudgeIdentity:
    """What of the judge decides verdicts: its weights' fingerprint, not their place or the server's address."""
    judge = settings.judge
    folder = judge_path(settings, root)
    if judge.kind == "rehearsal":
        weights = "rehearsal"
    elif judge.kind == "openai":
        weights = f"api:{judge.model or judge.name}"
    else:
        weights = fingerprint(folder) if folder else f"named:{judge.path}"
    return JudgeIdentity(judge.name, weights, judge.temperature, judge.max_tokens)


def baseline_map(baseline: str | Mapping[str, str]) -> dict[str, str]:
    """Baseline by category; `*` stands for every category."""
    return {"*": baseline} if isinstance(baseline, str) else dict(baseline)


def load_match(workspace: Workspace) -> Match:
    """Questions, prompts, baselines and their answers. Raises DataError or ConfigError naming the file."""
    settings = workspace.settings
    questions = read_questions(workspace.questions, settings.bench)
    prompts = load_prompts(workspace.bench_settings, workspace.judge_utils)
    baselines = baseline_map(settings.baseline)
    answers: dict[str, Answers] = {}
    for model in sorted(set(baselines.values())):
        path = workspace.answer_file(model)
        if not path.is_file():
            raise DataError(f"no answers of the baseline '{model}'", where=str(path),
                            todo="generate the baseline's answers first, or name another with --baseline")
        answers[model] = read_answers(path, model)
    match = Match(questions, prompts, baselines, answers, judge_identity(settings, workspace.root))
    for category in sorted({question.category for question in questions}):
        match.baseline_of(category)
    return match


def load_answers(workspace: Workspace, model: str) -> Answers | None:
    """A model's answers, or None where it has no answer file."""
    path = workspace.answer_file(model)
    return read_answers(path, model) if path.is_file() else None


def api_models(workspace: Workspace, pattern: str) -> list[str]:
    """Names in api_config.yaml that match a glob, without the judge and the baselines. Raises DataError."""
    entries = read_api_config(workspace.api_config)
    if entries is None:
        raise DataError("no api_config.yaml", where=str(workspace.api_config),
                        todo="use the models file or --models instead of --from-api-config")
    settings = workspace.settings
    judge = settings.judge.name
    apart = {judge, judge.removesuffix("-rehearsal"), *baseline_map(settings.baseline).values()}
    return [name for name in entries if name not in apart and fnmatch.fnmatchcase(name, pattern)]


def known_models(workspace: Workspace) -> Iterable[str]:
    """Names of all models that have an answer file, sorted."""
    folder = workspace.answers
    return sorted(path.stem for path in folder.glob("*.jsonl")) if folder.is_dir() else []
