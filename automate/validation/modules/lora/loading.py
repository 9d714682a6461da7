"""Tokenizer and model of a submission, from local folders, loaded and merged as the current client does it.

Runs on what strangers made: no pickles but weights only, and no code of a repository unless the settings allow it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

from automate.validation.modules.base import InvalidConfigValueException, RecoverableException, SubmissionFault
from automate.validation.modules.lora.adapter import need_weights

_PARSERS = {"SafetensorError", "Exception"}
"""Names of what the readers of tensors and of tokenizers raise over a broken file."""
GEMMA_TOKENS = ["<start_of_turn>", "<end_of_turn>"]


@dataclass(frozen=True)
class Precision:
    """Where a model runs and with what numbers. `autocast`: the client's mixed precision with float16."""

    device: str
    dtype: str
    autocast: bool


def precision(use_cpu: bool, fp16: bool) -> Precision:
    """float32 on a CPU; on a GPU float16 with autocast where the config says `fp16`, else bfloat16."""
    import torch

    if use_cpu or not torch.cuda.is_available():
        return Precision("cpu", "float32", False)
    return Precision("cuda", "float16", True) if fp16 else Precision("cuda", "bfloat16", False)


@dataclass(frozen=True)
class Source:
    """A folder with a model, the name of its repository, and whether the submission made it."""

    folder: Path
    name: str
    submitted: bool

    def fault(self, what: str, error: BaseException) -> Exception:
        """Whose trouble it is that this folder can't be used: a base model is never the submission's."""
        reason = f"{what} of {self.name[:120]!r} can't be loaded ({type(error).__name__}: {str(error)[:300]})"
        if self.submitted:
            return SubmissionFault(reason, cause=f"broken-{what}")
        return RecoverableException(reason, cause=f"base-{what}")


@contextmanager
def _blame(source: Source, what: str) -> Iterator[None]:
    """Name whose trouble a loading error is. Memory, disk and GPU trouble go through as they are."""
    try:
        yield
    except ImportError as error:
        raise InvalidConfigValueException(
            f"the module's environment lacks what {source.name[:120]!r} needs: {str(error)[:300]}",
            cause="environment") from error
    except OSError as error:
        if error.errno is not None:
            raise
        raise source.fault(what, error) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, UnpicklingError) as error:
        raise source.fault(what, error) from error
    except RuntimeError as error:
        if "size mismatch" not in str(error):
            raise
        raise source.fault(what, error) from error
    except Exception as error:
        if type(error).__name__ not in _PARSERS:
            raise
        raise source.fault(what, error) from error


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
    from peft import PeftModel

    with _blame(adapter, "adapter"):
        return PeftModel.from_pretrained(model, str(adapter.folder), device_map=None).merge_and_unload()


def prepare(model: Any) -> int:
    """Set the model up as the client does, and count its parameters (tied ones once)."""
    if "output_router_logits" in model.config.to_dict():
        model.config.output_router_logits = True
    model.eval()
    return sum(parameter.numel() for parameter in model.parameters())
