"""The module `llm_judge`: answers on the compute node, judges on the login node, the protocol's score.

Never scores the validator's own trouble: memory, GPU, disk, network and the judges' outages come again later."""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Mapping
from typing import Any

from automate.validation.modules.base import BaseValidationModule, Job
from automate.validation.modules.llm_judge.dataset import read_items
from automate.validation.modules.llm_judge.prompts import read_prompts
from automate.validation.modules.llm_judge.schemas import (
    LOWEST_SCORE,
    LLMJudgeConfig,
    LLMJudgeInput,
    LLMJudgeMetrics,
    eval_arguments,
    read_partial,
)

_log = logging.getLogger(__name__)


class LLMJudgeModule(BaseValidationModule):
    """Two steps: `validate` generates, `finish` asks the judges.

    | what happens | what comes of it |
    |---|---|
    | more parameters than `max_params`; the submission's own files can't be loaded; unsupported base | -999 |
    | out of memory, GPU, disk, network, a missing base model, files gone | again later |
    | a library that fails over files in which nothing wrong is seen | again later, then a person |
    | a judge's reply without a readable score | 5 with confidence 0, as the client |
    | a reply without text or with a score that is neither number nor text; prompt 2 without reference, 3 without | |
    | reference or tools; a judge that refuses this one answer (400, 403, 413, 422) but answers others | 5 x 0.5, once |
    | the judge is away, limits, trickles, breaks off, replies 5xx or not JSON | again later, only what is left |
    | no key, bad key, bad address, unknown model | again later: the answers wait for a start that has the right ones |
    | a judge that refuses everything, no prompts, bad `eval_args`, a chat template that fails | a person |

    Oddities of the current client that change the score, kept: a reply counts as score x confidence, so that a low
    confidence lowers it; scores and confidences out of range are not clamped; a reasoning with `}` in it makes the
    reply unreadable; an answer at 5 x 0.5 weighs as one reply however many were due; `prompt_id` 0 or unknown is 1;
    the prompt goes as user before the system text; a row without system text has a system message of None for the
    chat template and `None` for the judge; judges see neither tool results nor what is in function calls; tools in
    prompt 3 are written as Python shows them; a blank last answer cuts off the turn before it; parts `low`, `high`,
    `thinking` anywhere in a judge's name are taken for options; `extra_body` is sent nested; `context_length` and
    `base_model` change nothing; sampling has no seed; no reply asked for (`eval_require` 0) is 0.5.
    Not kept: another judge where the list is empty (nothing is scored), NaN (it counts as unreadable), a full model's
    place on the CPU.
    """

    config_schema = LLMJudgeConfig
    input_data_schema = LLMJudgeInput
    metrics_schema = LLMJudgeMetrics
    task_type = "llm_evaluation"
    two_steps = True

    def __init__(self, config: LLMJudgeConfig, **kwargs: Any) -> None:
        self.config = config
        self._loaded: Any = None
        self._client: Any = None
        self._stop = threading.Event()

    def validate(self, data: LLMJudgeInput, **kwargs: Any) -> LLMJudgeMetrics | Mapping[str, Any]:
        """The answers, as `Partial` in JSON; or metrics at once, of -999, where the submission can't be scored.

        What a person must mend (arguments, prompts) is found before a model is loaded.
        """
        job: Job = kwargs["job"]
        arguments = eval_arguments(data.eval_args)
        prompts = read_prompts(job.judge_prompts)
        items = read_items(job.need("data"), prompts.render_call)
        from automate.validation.modules.llm_judge import generation, loading

        try:
            self._loaded = loading.load(job, data.max_params)
        except (loading.TooManyParameters, loading.Unloadable) as error:
            job.need("model")  # not where a file went away meanwhile
            _log.warning("scored %s: %s", LOWEST_SCORE, error)
            job.note(f"scored {LOWEST_SCORE:g}: {error}")
            return LLMJudgeMetrics(score=LOWEST_SCORE)
        writer = generation.Writer(self._loaded, temperature=self.config.gen_temperature,
                                   batch=self.config.gen_batch_size, say=_log.info)
        return {"conversations": [list(item.messages) for item in items],
                "references": [item.reference for item in items], "tools": [item.tools for item in items],
                "answers": [writer.answers(items) for _ in range(arguments.generations)],
                "eval_args": data.eval_args}

    def finish(self, data: LLMJudgeInput, partial: Mapping[str, Any], **kwargs: Any) -> LLMJudgeMetrics:
        """Judge what the first step left. Replies are kept in `job.folder`, so that a second start asks for the rest.

        `environ` (with the key), `sleep` and `seeds` may come as keywords; else the process's own.
        """
        from automate.validation.modules.llm_judge.client import JudgeClient
        from automate.validation.modules.llm_judge.judging import Judging
        from automate.validation.modules.llm_judge.kept import FILE, KeptReplies

        job: Job = kwargs["job"]
        sleep: Callable[[float], None] = kwargs.get("sleep", self._pause)
        arguments, left = eval_arguments(data.eval_args), read_partial(partial)
        prompts = read_prompts(job.judge_prompts)
        self._client = JudgeClient(kwargs.get("environ", os.environ), sleep=sleep,
                                   connections=self.config.eval_batch_size)
        self._note_absent(arguments.models, job)
        kept = KeptReplies(None if job.folder is None else job.folder / FILE)
        judged = Judging(self._client, kept, arguments, prompts, stop=self._stop,
                         seeds=kwargs.get("seeds", random.SystemRandom()), say=_log.info
                         ).judge(left, parallel=self.config.eval_batch_size)
        if judged.defaults:
            job.note(f"{judged.defaults} of {len(judged.items)} answers count as 5 x 0.5: {judged.why}")
        return LLMJudgeMetrics(score=judged.score)

    def _pause(self, seconds: float) -> None:
        """Wait between two tries of a call, but no longer than until the first trouble that ends them all."""
        from automate.validation.modules.llm_judge.judging import Stopped

        if self._stop.wait(seconds):
            raise Stopped

    def _note_absent(self, requested: tuple[str, ...], job: Job) -> None:
        """Say which judges the provider doesn't list; they are asked all the same. Raises for a key it refuses."""
        from automate.validation.modules.llm_judge.scoring import request_fields

        offered = set(self._client.models())
        absent = [name for name in requested if not {name, request_fields(name, 0.0)["model"]} & offered]
        if offered and absent:
            job.note(f"the provider doesn't list {', '.join(absent)[:300]}; asked all the same")

    def cleanup(self) -> None:
        """Let go of the model and the connections."""
        self._stop.set()
        if self._client is not None:
            self._client.close()
        if self._loaded is not None:
            from automate.validation.modules.llm_judge import loading

            self._loaded = None
            loading.release()
