"""What a plan may take: tokens, GPU-hours, money; with the assumptions by name.

Pure arithmetic over counted games; measures nothing."""

from __future__ import annotations

from dataclasses import dataclass

from automate.arena.batches import needs_gpu
from automate.arena.context import load_answers
from automate.arena.progress import Progress
from automate.campaign.plans import StoredPlan
from automate.durations import seconds_of
from automate.workspace import Workspace


@dataclass(frozen=True)
class Cost:
    """What a plan may take: games, prompt tokens, GPU-hours reserved at most and expected, money."""

    games: int
    prompt_tokens: int
    gpu_hours_at_most: float
    gpu_hours_expected: float
    money: float | None


SECONDS_PER_PROMPT_TOKEN, SECONDS_PER_OUTPUT_TOKEN = 1.18e-4, 3.82e-4
"""A 70B FP8 judge on one H200, fitted to published TensorRT-LLM throughput; other judges and cards differ."""
OUTPUT_TOKENS, LOAD_SECONDS = 700, 300


def estimate(workspace: Workspace, stored: StoredPlan | None, progress: Progress) -> Cost:
    """The cost of a plan. Prompt tokens are counted as bytes / 4; see the constants for the rest."""
    settings = workspace.settings
    games = sum(batch.games for batch in stored.plan.batches) if stored else 0
    tokens = sum(_prompt_bytes(progress, model) for batch in (stored.plan.batches if stored else ())
                 for model in batch.models) // 4
    gpus = settings.slurm.gpus if needs_gpu(settings) else 0
    batches = len(stored.plan.batches) if stored else 0
    seconds = tokens * SECONDS_PER_PROMPT_TOKEN + games * OUTPUT_TOKENS * SECONDS_PER_OUTPUT_TOKEN
    price = settings.judge.price
    money = (tokens * price.input_per_million + games * OUTPUT_TOKENS * price.output_per_million) / 1e6
    return Cost(games, tokens, gpus * batches * seconds_of(settings.slurm.time) / 3600,
                gpus * (seconds + batches * LOAD_SECONDS) / 3600, money if settings.judge.kind == "openai" else None)


def _prompt_bytes(progress: Progress, model: str) -> int:
    """Bytes of the prompts of a model's due games."""
    entry = progress.models[model]
    answers = load_answers(progress.workspace, model)
    if answers is None:
        return 0
    match, total = progress.match, 0
    questions = {question.uid: question for question in match.questions}
    for game in entry.games:
        if not entry.recorded.state(game, progress.attempts).done:
            question = questions[game.uid]
            theirs = match.baseline_answers[game.baseline].texts[game.uid]
            fixed = len(match.prompts.template) + len(match.prompts.system.get(game.category, ""))
            texts = (question.prompt, theirs, answers.texts[game.uid])
            total += fixed + sum(len(text.encode()) for text in texts)
    return total
