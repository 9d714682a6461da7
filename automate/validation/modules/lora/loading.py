"""Tokenizer and model of a submission, from local folders, loaded and merged as the current client does it.

Runs on what strangers made: no pickles but weights only, and no code of a repository unless the settings allow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from automate.validation.inner import adapters, classify, evidence, symptoms
from automate.validation.modules.base import InvalidConfigValueException, RecoverableException, SubmissionFault
from automate.validation.modules.lora.adapter import need_weights

VERSION = "4.49"
"""The client's transformers."""
UNKNOWN_KIND = "does not recognize this architecture"
"""Words of transformers over a kind of model that its version doesn't know."""
GEMMA_TOKENS = ["<start_of_turn>", "<end_of_turn>"]


@dataclass(frozen=True)
class Precision:
    """Where a model runs and with what numbers. `autocast`: the client's mixed precision with float16."""

    device: str
    dtype: str
    autocast: bool


def precision(use_cpu: bool, fp16: bool) -> Precision:
    """float32 on a CPU; on a GPU float16 with autocast where the config says `fp16`, else bfloat16.

    Raises RecoverableException (cause `gpu`) where there is no GPU and the config doesn't say `use_cpu`.
    """
    if use_cpu:
        return Precision("cpu", "float32", False)
    import torch

    if not torch.cuda.is_available():
        raise RecoverableException("torch sees no GPU here; where the CPU shall do it, say \"use_cpu\": true in "
                                   "configs/lora.json", cause="gpu")
    return Precision("cuda", "float16", True) if fp16 else Precision("cuda", "bfloat16", False)


def need_version(any_version: bool) -> None:
    """Raises InvalidConfigValueException (cause `environment`) under another transformers than the client's.

    Others give other tokens and other bytes for some tokenizers: they ignore `clean_up_tokenization_spaces`, and treat
    old tokenizers' spaces otherwise. Source: transformers 5 next to 4.49.
    """
    found = metadata.version("transformers")
    if not any_version and not found.startswith(f"{VERSION}."):
        raise InvalidConfigValueException(
            f"transformers {found[:40]} is here, and the client's figures are those of {VERSION} "
            '("any_version": true in configs/lora.json runs all the same)', cause="environment")


@dataclass(frozen=True)
class Source:
    """A folder with a model, the name of its repository, and whether the submission made it."""

    folder: Path
    name: str
    submitted: bool

    def fault(self, what: str, error: BaseException) -> Exception | None:
        """Whose trouble it is that this folder can't be used; None: that of the libraries or of this code.

        A base model is never the submission's. Of the submission's own files only what is seen to be wrong with them
        is, and tensors that don't fit: an outdated library raises anything over good files.
        """
        if not self.submitted:
            return RecoverableException(self._said(what, error), cause=f"base-{what}")
        seen = evidence.of_adapter(self.folder) if what == "adapter" else evidence.of_model(self.folder)
        if seen is None and not (evidence.misfit(error) or isinstance(error, adapters.UnknownKind)):
            return None
        return SubmissionFault(f"{self._said(what, error)}{'; ' + seen if seen else ''}", cause=f"broken-{what}")

    def _said(self, what: str, error: BaseException) -> str:
        return f"{what} of {self.name[:120]!r} can't be loaded ({type(error).__name__}: {str(error)[:300]})"


@contextmanager
def _blame(source: Source, what: str) -> Iterator[None]:
    """Name whose trouble a loading error is. Memory, disk, GPU and libraries' trouble go through as they are."""
    try:
        yield
    except (InvalidConfigValueException, SubmissionFault):
        raise
    except ImportError as error:
        raise InvalidConfigValueException(
            f"the module's environment lacks what {source.name[:120]!r} needs: {str(error)[:300]}",
            cause="environment") from error
    except Exception as error:
        if any(symptoms.machine(one) or symptoms.absent(one) for one in classify.chain(error)):
            raise
        fault = source.fault(what, error)
        if fault is None and UNKNOWN_KIND in str(error):
            fault = InvalidConfigValueException(str(error)[:400], cause="environment")
        if fault is None:
            raise
        raise fault from error


def load_tokenizer(source: Source) -> Any:
    """The tokenizer of a folder with the client's fix-ups, which go by the repository's name."""
    from transformers import AutoTokenizer

    with _blame(source, "tokenizer"):
        tokenizer = AutoTokenizer.from_pretrained(str(source.folder), use_fast=True, trust_remote_code=False,
                                                  local_files_only=True)
        if "gemma" in source.name.lower():
            names = getattr(tokenizer, "SPECIAL_TOKENS_ATTRIBUTES", [])
            key = "additional_special_tokens" if "additional_special_tokens" in names else "extra_special_tokens"
            tokenizer.add_special_tokens({key: GEMMA_TOKENS})
        if type(tokenizer).__name__ == "QWenTokenizer":
            tokenizer.pad_token_id = tokenizer.bos_token_id = tokenizer.eos_token_id = tokenizer.eod_id
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
            raise ValueError("it has no token for padding or for the end of a text")
    return tokenizer


def _need_known(source: Source, remote_code: bool) -> None:
    """Raises InvalidConfigValueException for a model that only its repository's own code can load."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    if remote_code:
        return
    with _blame(source, "config"):
        config = json.loads((source.folder / "config.json").read_bytes())
        own, kind = "AutoModelForCausalLM" in (config.get("auto_map") or {}), config.get("model_type")
    if own and kind not in CONFIG_MAPPING:
        raise InvalidConfigValueException(
            f"{source.name[:120]!r} runs its own code: allow it with validation.remote_code, or leave it",
            cause="remote-code")


def load_whole(source: Source, dtype: str, remote_code: bool) -> Any:
    """A causal language model from a folder, on the CPU, for evaluation."""
    import torch
    from transformers import AutoModelForCausalLM

    _need_known(source, remote_code)
    with _blame(source, "model"):
        return AutoModelForCausalLM.from_pretrained(
            str(source.folder), torch_dtype=getattr(torch, dtype), use_cache=False, device_map=None,
            trust_remote_code=remote_code, local_files_only=True)


def load_merged(base: Source, adapter: Source, dtype: str, remote_code: bool) -> Any:
    """A base model with an adapter merged into it, on the CPU. The adapter's misfit is the submission's fault."""
    need_weights(adapter.folder)
    model = load_whole(base, dtype, remote_code)
    with _blame(adapter, "adapter"):
        if wrong := evidence.of_adapter(adapter.folder):
            raise SubmissionFault(f"the adapter can't be used: {wrong}", cause="broken-adapter")
        return adapters.merged(model, adapter.folder)


def prepare(model: Any) -> int:
    """Set the model up as the client does, and count its parameters (tied ones once)."""
    if "output_router_logits" in model.config.to_dict():
        model.config.output_router_logits = True
    model.eval()
    return sum(parameter.numel() for parameter in model.parameters())
