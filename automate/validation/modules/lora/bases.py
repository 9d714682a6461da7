"""The base models that the current client takes adapters for, by their exact names on the hub.

Data only: nothing here is downloaded or loaded. Source: the current client, version 1.1.2."""

from __future__ import annotations


def _with(names: tuple[str, ...], suffix: str) -> tuple[str, ...]:
    return tuple(name + tail for name in names for tail in ("", suffix))


SUPPORTED_BASE_MODELS: tuple[str, ...] = (
    *_with(tuple(f"Qwen/Qwen2.5-{size}B" for size in ("0.5", "1.5", "3", "7", "14", "32", "72")), "-Instruct"),
    *_with(tuple(f"01-ai/Yi-1.5-{size}B" for size in (6, 9, 34)), "-Chat"),
    "mistralai/Mistral-7B-v0.3",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "mistralai/Ministral-8B-Instruct-2410",
    *_with(tuple(f"google/gemma-2-{size}b" for size in (2, 9, 27)), "-it"),
    *_with(tuple(f"meta-llama/Meta-Llama-3-{size}B" for size in (8, 70)), "-Instruct"),
    *_with(tuple(f"meta-llama/Meta-Llama-3.1-{size}B" for size in (8, 70)), "-Instruct"),
    "microsoft/Phi-3.5-mini-instruct",
    "microsoft/Phi-3-mini-4k-instruct",
    "microsoft/Phi-3-medium-4k-instruct",
    "microsoft/Phi-4-mini-instruct",
    "microsoft/phi-4",
)
"""Compared as they are written: another spelling of the same model is not supported."""
