"""A submitted model in memory: adapter merged into its base, or a full model; its parameters counted.

Blames the submission only for what its own files bring about; never goes to the network."""

from __future__ import annotations

import gc
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from automate.validation.inner import adapters, classify, evidence, symptoms, words
from automate.validation.modules.base import InvalidConfigValueException, Job, RecoverableException
from automate.validation.modules.llm_judge.schemas import SUPPORTED_BASES

ADAPTER = "adapter_config.json"
_WEIGHTS = ("adapter_model.safetensors", "adapter_model.bin")
DEVICE = Path("/dev/nvidia0")
LARGEST_CONFIG = 10_000_000


class TooManyParameters(Exception):
    """More than the task allows."""


class Unloadable(Exception):
    """The submission's own files can't be loaded, or ask for a base model that the protocol doesn't take."""


@dataclass(frozen=True)
class Loaded:
    """A causal language model in eval mode and its tokenizer (left-padding)."""

    model: Any
    tokenizer: Any


def load(job: Job, max_params: int) -> Loaded:
    """The model of an assignment: BF16 where the GPU has it, else FP16; FP32 on a CPU.

    Raises TooManyParameters and Unloadable (the submission's), RecoverableException (the validator's own trouble, a
    base model that doesn't load too), InvalidConfigValueException (environment; own code that isn't allowed).
    """
    _need_gpu(os.environ)
    folder = job.need("model")
    adapter = (folder / ADAPTER).exists()
    if adapter:
        _check_adapter(folder)
    elif not (folder / "config.json").exists():
        raise Unloadable("its repository has neither adapter_config.json nor config.json")
    source = job.need("base") if adapter else folder
    with _blamed(None if adapter else folder, job.remote_code):
        _count(_skeleton(source, job.remote_code), max_params)
        tokenizer, model = _pretrained(source, job.remote_code)
    if adapter:
        with _blamed(folder, job.remote_code):
            model = _merged(model, folder)
    _count(model, max_params)
    return Loaded(model.eval(), tokenizer)


def release() -> None:
    """Give back the memory of what is not referred to any more."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _check_adapter(folder: Path) -> None:
    try:
        if (folder / ADAPTER).stat().st_size > LARGEST_CONFIG:
            raise Unloadable(f"its {ADAPTER} is too large")
        config = json.loads((folder / ADAPTER).read_bytes())
        base = config["base_model_name_or_path"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Unloadable(f"its {ADAPTER} is malformed ({type(error).__name__})") from error
    if not isinstance(base, str) or base not in SUPPORTED_BASES:
        raise Unloadable(f"its base model {words.plain(str(base), 120)!r} is not one of the supported ones")
    if not any((folder / name).exists() for name in _WEIGHTS):
        raise Unloadable(f"its repository has no {_WEIGHTS[0]}")
    if wrong := evidence.of_adapter(folder):
        raise Unloadable(f"its adapter can't be used: {wrong}")


@contextmanager
def _blamed(folder: Path | None, remote_code: bool) -> Iterator[None]:
    """Turn what loading raises into whose fault it is. `folder`: the submission's files; None: only ours are read."""
    try:
        yield
    except (TooManyParameters, Unloadable, RecoverableException):
        raise
    except Exception as error:
        _blame(error, folder, remote_code)


def _blame(error: Exception, folder: Path | None, remote_code: bool) -> NoReturn:
    said = f"{type(error).__name__}: {words.of(error)}"
    for one in classify.chain(error):
        cause, absent = symptoms.machine(one), symptoms.absent(one)
        if cause is None and absent is not None and Path(absent).is_absolute():
            cause = None if folder is not None and Path(absent).is_relative_to(folder) else "missing-path"
        if cause is not None:
            raise RecoverableException(said, cause=cause) from error
    if not remote_code and "trust_remote_code" in str(error):
        raise InvalidConfigValueException("the repository runs code of its own: validation.remote_code allows it, in "
                                          "jobs without keys", cause="remote-code") from error
    if isinstance(error, ImportError):
        raise InvalidConfigValueException(f"the module's environment lacks a library: {said}",
                                          cause="environment") from error
    if folder is None:
        raise RecoverableException(f"the base model on disk doesn't load: {said}", cause="base-model") from error
    seen = evidence.of_adapter(folder) if (folder / ADAPTER).exists() else evidence.of_model(folder)
    if seen is not None or evidence.misfit(error) or isinstance(error, adapters.UnknownKind):
        raise Unloadable(f"{said}{'; ' + seen if seen else ''}") from error
    if "does not recognize this architecture" in str(error):
        raise InvalidConfigValueException(f"the module's environment is too old for this model: {said}",
                                          cause="environment") from error
    raise RecoverableException(f"a library failed over files in which nothing wrong is seen: {said}",
                               cause=classify.UNEXPECTED) from error


def _need_gpu(environ: Mapping[str, str]) -> None:
    """Raises RecoverableException (cause `gpu`) where this machine or job has a GPU that torch doesn't see."""
    import torch

    if torch.cuda.is_available():
        return
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if DEVICE.exists() if given is None else given.strip() not in ("", "-1", "NoDevFiles"):
        raise RecoverableException("there is a GPU here, and torch doesn't see it", cause="gpu")


def _skeleton(source: Path, remote_code: bool) -> Any:
    """The model without weights or memory, to count its parameters; None where that can't be had.

    So a model that is far over the limit is told before it fills the GPU.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(str(source), trust_remote_code=remote_code, local_files_only=True)
    try:
        with torch.device("meta"):
            return AutoModelForCausalLM.from_config(config, trust_remote_code=remote_code)
    except Exception:
        return None  # the loading itself tells what is wrong with it


def _count(model: Any, most: int) -> None:
    """Parameters after the merge, shared ones once."""
    if model is not None:
        total = sum(one.numel() for one in model.parameters())
        if total > most:
            raise TooManyParameters(f"{total} parameters, allowed are {most}")


def _pretrained(source: Path, remote_code: bool) -> tuple[Any, Any]:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(source), trust_remote_code=remote_code, use_fast=True,
                                              padding_side="left", local_files_only=True)
    gpu = torch.cuda.is_available()
    exact = torch.bfloat16 if gpu and torch.cuda.is_bf16_supported() else torch.float16 if gpu else torch.float32
    model = AutoModelForCausalLM.from_pretrained(str(source), dtype=exact, device_map="auto" if gpu else None,
                                                 trust_remote_code=remote_code, local_files_only=True)
    return tokenizer, model


def _merged(model: Any, folder: Path) -> Any:
    return adapters.merged(model, folder)
