"""How the rehearsal judge behaves: how slow, how small and how faulty, as options of a command line.

Never acts on it; it is read by the judge and by its replies."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import TypeVar

T = TypeVar("T")

LABEL_FAULTS = ("no_label", "wrong_label", "short_label")
"""What may be wrong with the label of a prompt's reply; at most one of them is."""

THOUGHTS = ("think", "think_apart", "think_only_close", "think_unclosed", "think_cut")
"""How a prompt's reply may be thought about first; at most one of them it is. Each thought names another label."""


class Fault(Enum):
    """What becomes of a request that gets no verdict at its first try."""

    STATUS_400 = "status_400"
    STATUS_429 = "status_429"
    STATUS_500 = "status_500"
    HANG = "hang"
    DROP = "drop"
    EMPTY = "empty"


def _at_least(least: float, kind: Callable[[str], float]) -> Callable[[str], float]:
    def number(text: str) -> float:
        value = kind(text)
        if not least <= value < math.inf:
            raise argparse.ArgumentTypeError(f"{text} is not a number of at least {least:g}")
        return value

    return number


def _share(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share between 0 and 1")
    return value


def _option(default: T, kind: Callable[[str], float] | None, text: str) -> T:
    return field(default=default, metadata={"kind": kind, "help": text})


_SECONDS = _at_least(0, float)
_COUNT = _at_least(1, int)


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How slow, how small and how faulty the judge is; the defaults are a judge without fault."""

    latency: float = _option(0.0, _SECONDS, "seconds that every completion takes")
    latency_per_token: float = _option(0.0, _SECONDS, "further seconds for each token of the reply")
    prompt_rate: float | None = _option(None, _at_least(0.01, float), "prompt tokens a second of the whole server")
    output_rate: float | None = _option(None, _at_least(0.01, float), "tokens of replies a second of the whole server")
    reply_tokens: int | None = _option(
        None, _COUNT, "count a reply as about so many tokens (half to one and a half of it), however short it is")
    load_seconds: float = _option(0.0, _SECONDS, "seconds until /health answers 200")
    context: int = _option(1 << 20, _COUNT, "context length in tokens")
    kv_tokens: int | None = _option(None, _COUNT, "tokens held at once; what does not fit waits")
    bytes_per_token: float = _option(4.0, _at_least(0.01, float), "UTF-8 bytes counted as one token")
    no_label: float = _option(0.0, _share, "share of prompts answered without a label")
    wrong_label: float = _option(0.0, _share, "share of prompts answered with [[C]] or code like arr[b]")
    short_label: float = _option(0.0, _share, "share of prompts answered with [[A]] or [[B]]")
    think: float = _option(0.0, _share, "share of prompts whose verdict follows a <think> with another label")
    think_apart: float = _option(0.0, _share, "share of prompts thought about in a field of its own, as reasoning "
                                 "parsers of vLLM give it, under its old or its new name")
    think_only_close: float = _option(0.0, _share, "share of prompts whose reply begins in a thought: </think> alone")
    think_unclosed: float = _option(0.0, _share, "share of prompts whose <think> never ends, cut for length")
    think_cut: float = _option(0.0, _share, "share of prompts with null content, cut for length in a field of thoughts")
    think_always: bool = _option(False, None, "think also where a request switches thinking off (enable_thinking)")
    think_misplaced: bool = _option(
        False, None, "give a choice that was not thought about as a thought, as some versions of vLLM do")
    refuse_switch: bool = _option(False, None, "refuse requests with chat_template_kwargs with 400")
    refusal: float = _option(0.0, _share, "share of prompts answered with null content and a refusal")
    parts: float = _option(0.0, _share, "share of prompts whose reply's content is a list of parts")
    empty: float = _option(0.0, _share, "share of first tries that get null content, cut for length")
    status_400: float = _option(0.0, _share, "share of prompts that are refused with 400 at every try")
    status_429: float = _option(0.0, _share, "share of first tries that get 429 with Retry-After: 0")
    status_500: float = _option(0.0, _share, "share of first tries that get 500")
    hang: float = _option(0.0, _share, "share of first tries that are never answered")
    drop: float = _option(0.0, _share, "share of first tries whose connection closes without an answer")
    die_after: int | None = _option(None, _COUNT, "exit with 1 once so many completions are answered")
    die_while_loading: bool = _option(False, None, "exit with 1 where --load-seconds end; never healthy")
    health_fails_after: int | None = _option(
        None, _at_least(0, int), "/health answers 503 once so many completions are answered")
    sticky: bool = _option(False, None, "transient faults strike every try, not only the first")
    answers: bool = _option(False, None, "answer as a candidate: text, and no verdict")
    ignore_structured: bool = _option(False, None, "answer as if structured choices had not been asked for")

    def __post_init__(self) -> None:
        for names in ([fault.value for fault in Fault], LABEL_FAULTS, THOUGHTS):
            if sum(map(self.share, names)) > 1 + 1e-9:
                raise ValueError(f"the shares of {', '.join(names)} add up to more than 1")

    def share(self, name: str) -> float:
        """The share of requests that a fault strikes."""
        value = getattr(self, name)
        return float(value)

    @property
    def has_faults(self) -> bool:
        """Whether any request may meet a `Fault`."""
        return any(self.share(fault.value) for fault in Fault)

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> Behaviour:
        """The behaviour that the parsed options of `add_behaviour_arguments` ask for."""
        return cls(**{option.name: getattr(args, option.name) for option in fields(cls)})


def add_behaviour_arguments(parser: argparse.ArgumentParser) -> None:
    """One option for each field of `Behaviour`."""
    for option in fields(Behaviour):
        name, kind, text = "--" + option.name.replace("_", "-"), option.metadata["kind"], option.metadata["help"]
        if kind is None:
            parser.add_argument(name, action="store_true", help=text)
        else:
            metavar = {_share: "SHARE", _SECONDS: "SECONDS"}.get(kind, "N")
            parser.add_argument(name, type=kind, default=option.default, metavar=metavar, help=text)
