"""From a judge's text to a score, from scores to the metric, from a requested name to the fields of a request.

Pure; keeps the current client's rules, odd ones too, as peers are paid for agreeing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

UNREADABLE = (5.0, 0.0)
"""Score and confidence of a reply in which no JSON object with a score can be read: it counts, with nothing."""
ITEM_DEFAULT = (5.0, 0.5)
"""Score and confidence, once, of a conversation that could not be judged for what it is or what was replied."""
_KIMI = ("kimi-k2.5", "kimi-k2.6")


class ReplyFault(Exception):
    """A reply over which the current client trips, so that its whole conversation counts as `ITEM_DEFAULT`."""


def read_reply(text: str | None) -> tuple[float, float]:
    """(score, confidence) of a judge's reply.

    The first flat object (no `}` inside) with the text `"score"` in it is read. Numbers are taken as they are: a score
    of 11 or -3 is not clamped, and a missing confidence is 0. What is unreadable, and NaN and infinity, which can't be
    sent, are `UNREADABLE`; a confidence that is no number leaves the score with confidence 0. Raises ReplyFault where
    there is no text, or a value is neither number nor text.
    """
    if text is None:
        raise ReplyFault("no text")
    score, confidence = UNREADABLE
    found = _flat_object(text)
    if found is None:
        return UNREADABLE
    try:
        parsed = json.loads(found)
        score = float(parsed.get("score", score))
        confidence = float(parsed.get("confidence", confidence))
    except ValueError:
        pass
    except (TypeError, OverflowError, RecursionError) as error:
        raise ReplyFault(type(error).__name__) from error
    return (score, confidence) if math.isfinite(score) and math.isfinite(confidence) else UNREADABLE


def _flat_object(text: str) -> str | None:
    """The same as the first match of `{[^}]*"score"[^}]*}`, in linear time."""
    start = 0
    while (end := text.find("}", start)) >= 0:
        opening = text.find("{", start, end)
        if opening >= 0 and text.find('"score"', opening, end) >= 0:
            return text[opening:end + 1]
        start = end + 1
    return None


def final_score(judged: Iterable[Sequence[tuple[float, float]]]) -> float:
    """The mean of score x confidence over all replies of all conversations, over 10.

    A low confidence therefore lowers the score, and a conversation at `ITEM_DEFAULT` weighs as one reply. Where no
    reply was asked for (`eval_require` 0), 0.5.
    """
    weighted = [score * confidence for item in judged for score, confidence in item]
    return (sum(weighted) / len(weighted) if weighted else UNREADABLE[0]) / 10.0


def request_fields(requested: str, temperature: float) -> dict[str, Any]:
    """`model`, `temperature` and what else a requested judge's name stands for.

    Parts between hyphens, wherever they stand, are taken out of the name: `low` and `high` become `reasoning_effort`,
    `thinking` switches thinking on. The field is `extra_body` in the body itself: the current client nests it once
    more than its library expects. Two Kimi models have temperatures of their own, and thinking off unless asked for.
    """
    fields: dict[str, Any] = {}
    thinking: str | None = None
    kept = []
    for part in requested.split("-"):
        if part in ("low", "high"):
            fields["reasoning_effort"] = part
        elif part == "thinking":
            thinking = "enabled"
        else:
            kept.append(part)
    model = "-".join(kept) if kept else requested
    if model in _KIMI and thinking is None:
        thinking = "disabled"
    if thinking is not None:
        fields["extra_body"] = {"thinking": {"type": thinking}}
    return {"model": model, "temperature": _temperature(requested, temperature), **fields}


def _temperature(requested: str, asked: float) -> float:
    if requested in _KIMI:
        return 0.6
    return 1 if requested.removesuffix("-thinking") in _KIMI else asked
