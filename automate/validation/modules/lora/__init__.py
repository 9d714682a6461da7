"""The module `lora`: the loss of a submitted language model over a set of conversations, as the current client has it.

Works on local files only; never asks the network, and never scores what is the validator's own trouble."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from automate.validation.modules.base import BaseConfig, BaseInputData, BaseValidationModule, Job, Revision
from automate.validation.modules.lora.adapter import base_of, need_whole
from automate.validation.modules.lora.bases import SUPPORTED_BASE_MODELS
from automate.validation.modules.lora.checkout import complete, tool_prompt
from automate.validation.modules.lora.figures import LoraMetrics, metrics_of, old_payload, worst
from automate.validation.modules.lora.rows import Row, count, read_rows
from automate.validation.modules.lora.templates import find

if TYPE_CHECKING:
    from automate.validation.modules.lora.loading import Precision, Source


class LoraConfig(BaseConfig):
    """The client's four keys, and our own.

    `per_device_eval_batch_size` is 1 for every validator: with another value the client's figure is another one. Rows
    are batched by `token_budget` (tokens of a batch, padding counted), which does not change the figure; None: what
    suits a CPU's cache or a GPU. `output_dir` and `remove_unused_columns` are read and mean nothing here.
    `supported_base_models` takes the place of the client's list. `any_version`: run under another transformers than
    the client's, whose tokens and figures may be others.
    """

    per_device_eval_batch_size: Literal[1] = 1
    fp16: bool = True
    output_dir: str = "outputs"
    remove_unused_columns: bool = False
    use_cpu: bool = False
    lora_only: bool = True
    token_budget: int | None = Field(default=None, ge=1)
    supported_base_models: tuple[str, ...] = SUPPORTED_BASE_MODELS
    any_version: bool = False


class LoraInput(BaseInputData):
    """What an assignment says. `base_model` is the name of a template, not of a model."""

    hg_repo_id: str
    revision: Revision = "main"
    base_model: str
    context_length: int = Field(ge=1)
    max_params: int
    validation_set_url: str
    gpu_type: str | None = None


class LoraModule(BaseValidationModule):
    """Loss and bits a byte of an adapter over its base model, or of a whole model."""

    config_schema = LoraConfig
    input_data_schema = LoraInput
    metrics_schema = LoraMetrics
    task_type = "training"

    def __init__(self, config: LoraConfig, **kwargs: Any) -> None:
        self.config = config
        self._model: Any = None

    def validate(self, data: LoraInput, **kwargs: Any) -> LoraMetrics:
        """In the client's order: adapter, base, tokenizer, data set, counts, model, parameters, loss."""
        from automate.validation.modules.lora import loading

        job: Job = kwargs["job"]
        loading.need_version(self.config.any_version)
        folder = job.need("model")
        base = base_of(folder, self.config.supported_base_models)
        submitted = loading.Source(folder, data.hg_repo_id, submitted=True)
        if base is None:
            need_whole(folder, self.config.lora_only)
            return self._measure(data, job, submitted, partial(loading.load_whole, submitted))
        source = loading.Source(job.need("base"), base, submitted=False)
        return self._measure(data, job, source, partial(loading.load_merged, source, submitted))

    def _measure(self, data: LoraInput, job: Job, source: Source, load: Callable[..., Any]) -> LoraMetrics:
        """Tokenizer of `source`, rows and counts, then the model, its parameters and its loss."""
        from automate.validation.modules.lora import loading

        precision = loading.precision(self.config.use_cpu, self.config.fp16)
        template = complete(find(data.base_model), job.templates)
        tokenizer = loading.load_tokenizer(source)
        prompt = cache(partial(tool_prompt, job.templates))
        rows = read_rows(job.need("data"), template, tokenizer, data.context_length, prompt)
        counts = count(rows, tokenizer)
        print(f"{len(rows)} rows, {counts.tokens} target tokens, {counts.bytes} bytes of targets")
        self._model = load(dtype=precision.dtype, remote_code=job.remote_code)
        parameters = loading.prepare(self._model)
        print(f"{parameters} parameters (at most {data.max_params}), {precision.dtype} on {precision.device}")
        if parameters > data.max_params or counts.bytes == 0:
            return worst()
        return metrics_of(self._loss(rows, tokenizer.pad_token_id, precision), counts)

    def _loss(self, rows: Sequence[Row], pad: int, precision: Precision) -> float:
        from automate.validation.modules.lora.loss import Place, budget_for, mean_loss

        self._model.to(precision.device)
        place = Place(precision.device, precision.autocast, pad)
        vocabulary = self._model.get_input_embeddings().num_embeddings
        budget = self.config.token_budget or budget_for(precision.device, vocabulary)
        loss = mean_loss(self._model, rows, place, budget)
        print(f"loss {loss} (mean over {len(rows)} rows of each row's token mean)")
        return loss

    def payload(self, metrics: LoraMetrics, *, job: Job, gpu_type: str) -> dict[str, Any]:
        """The metrics by their own names, or by those of the client of before (setting `validation.metrics`)."""
        return old_payload(metrics, gpu_type) if job.metrics == "old" else metrics.model_dump()

    def cleanup(self) -> None:
        """Let go of the model and of the GPU's memory."""
        if self._model is None:
            return
        import torch

        self._model = None
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


MODULE = LoraModule
