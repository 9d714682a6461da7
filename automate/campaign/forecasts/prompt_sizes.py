"""How long the prompts of due games are: bytes counted, tokens by the judge's tokenizer or by what was seen.

Never renders a prompt that it doesn't sample, and never needs a tokenizer."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from automate.arena.benchmark import Answers
from automate.arena.context import judge_path, load_answers
from automate.arena.counting.progress import Progress
from automate.arena.games import Match
from automate.campaign.forecasts.rates import BYTES_A_TOKEN, Guess, Rates
from automate.workspace import Workspace

SAMPLE = 300
Count = Callable[[str], int]


@dataclass(frozen=True)
class PromptSizes:
    """Due games and bytes of their prompts by model; bytes of a mean game by model; bytes a token."""

    games: dict[str, int]
    bytes: dict[str, int]
    mean: dict[str, float]
    per_token: Guess


def text_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="replace"))


def prompt_sizes(workspace: Workspace, progress: Progress, models: Iterable[str], rates: Rates) -> PromptSizes:
    """Count the due games of models. Reads their answers; a model without answers has no games."""
    match = progress.match
    fixed = _fixed_sizes(match)
    games: dict[str, int] = {}
    sizes: dict[str, int] = {}
    mean: dict[str, float] = {}
    kept: list[Answers] = []
    for model in dict.fromkeys(models):
        answers = load_answers(workspace, model)
        if answers is None or model not in progress.models:
            continue
        if len(kept) < 3:
            kept.append(answers)
        whole = {uid: fixed[uid] + text_size(text) for uid, text in answers.texts.items() if uid in fixed}
        due = progress.models[model].due_uids
        games[model], sizes[model] = len(due), sum(whole.get(uid, 0) for uid in due)
        mean[model] = sum(whole.values()) / len(whole) if whole else 0.0
    return PromptSizes(games, sizes, mean, _bytes_per_token(workspace, progress, kept, mean, rates))


def _fixed_sizes(match: Match) -> dict[str, int]:
    """By question: bytes of a prompt without the model's own answer; only where the baseline has one."""
    words: dict[str, int] = {}
    found: dict[str, int] = {}
    for question in match.questions:
        category = question.category
        if category not in words:
            words[category] = sum(text_size(str(message["content"]))
                                  for message in match.prompts.render(category, "", "", ""))
        theirs = match.baseline_answers[match.baseline_of(category)].texts.get(question.uid)
        if theirs is not None:
            found[question.uid] = words[category] + text_size(question.prompt) + text_size(theirs)
    return found


def _bytes_per_token(workspace: Workspace, progress: Progress, answers: Sequence[Answers],
                     mean: dict[str, float], rates: Rates) -> Guess:
    """As recorded usage says of these models; else by the tokenizer; else 4."""
    size, tokens, games = 0.0, 0.0, 0
    for models, played, counted in rates.prompts:
        known = [mean[model] for model in models if mean.get(model)]
        if known:
            size, tokens, games = size + played * sum(known) / len(known), tokens + counted, games + played
    if not tokens and rates.batches and mean:  # other models than these: games of a mean size
        known = [value for value in mean.values() if value]
        games = sum(played for _, played, _ in rates.prompts)
        size, tokens = sum(known), len(known) * sum(counted for _, _, counted in rates.prompts) / max(games, 1)
    if tokens and size:
        return Guess(size / tokens, 0.03, f"usage of {games:,} games played")
    count = tokenizer_of(judge_path(workspace.settings, workspace.root))
    if count is not None and (found := _sampled(progress, answers, count)):
        return Guess(found, 0.03, "the judge's tokenizer on a sample of prompts")
    return Guess(BYTES_A_TOKEN, 0.15, "assumed")


def _sampled(progress: Progress, answers: Sequence[Answers], count: Count) -> float | None:
    """Bytes a token over a few hundred prompts, spread over all questions."""
    match = progress.match
    step = max(1, len(match.questions) * len(answers) // SAMPLE)
    size = tokens = 0
    for one in answers:
        for question in match.questions[::step]:
            if question.uid not in one.texts or question.uid not in match.baseline_answers[
                    match.baseline_of(question.category)].texts:
                continue
            for message in match.messages(one, question, 1):
                size += text_size(str(message["content"]))
                tokens += count(str(message["content"]))
    return size / tokens if tokens else None


def tokenizer_of(folder: Path | None) -> Count | None:
    """A counter of tokens from tokenizer.json in the judge's folder; None without it or the package `tokenizers`."""
    file = folder / "tokenizer.json" if folder else None
    if file is None or not file.is_file():
        return None
    try:
        module: Any = importlib.import_module("tokenizers")
        tokenizer = module.Tokenizer.from_file(str(file))
    except Exception:  # it is optional, and what it raises is not documented
        return None
    return lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids)
