"""What a vLLM server says of itself on /metrics, as numbers.

Never talks to a server; text comes in."""

from __future__ import annotations

import re
from dataclasses import dataclass

_LINE = re.compile(r"^(?P<name>[A-Za-z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class ServerMetrics:
    """Counters and gauges of one server; None where it doesn't report them. Tokens, requests, shares 0..1."""

    running: float | None = None
    waiting: float | None = None
    preemptions: float | None = None
    kv_usage: float | None = None
    kv_tokens: int | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    prefix_queries: float | None = None
    prefix_hits: float | None = None


_NAMES = {
    "vllm:num_requests_running": "running", "vllm:num_requests_waiting": "waiting",
    "vllm:num_preemptions_total": "preemptions", "vllm:kv_cache_usage_perc": "kv_usage",
    "vllm:gpu_cache_usage_perc": "kv_usage", "vllm:prompt_tokens_total": "prompt_tokens",
    "vllm:generation_tokens_total": "output_tokens", "vllm:prefix_cache_queries_total": "prefix_queries",
    "vllm:prefix_cache_hits_total": "prefix_hits",
}


def _kv_tokens(labels: str) -> int | None:
    found = dict(_LABEL.findall(labels))
    try:
        return int(found["num_gpu_blocks"]) * int(found["block_size"])
    except (KeyError, ValueError):
        return None


def parse_metrics(text: str) -> ServerMetrics:
    """Read Prometheus text; several engines' values are summed (usage: the highest)."""
    values: dict[str, float] = {}
    kv_tokens = 0
    for line in text.split("\n"):
        match = None if line.startswith("#") else _LINE.match(line)
        if match is None:
            continue
        name, labels = match["name"], match["labels"] or ""
        if name == "vllm:cache_config_info":
            kv_tokens += _kv_tokens(labels) or 0
        field = _NAMES.get(name)
        if field is None:
            continue
        try:
            value = float(match["value"])
        except ValueError:
            continue
        old = values.get(field, 0.0)
        values[field] = max(old, value) if field == "kv_usage" else old + value
    return ServerMetrics(**values, kv_tokens=kv_tokens or None)
