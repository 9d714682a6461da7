"""Validation sets of a stand-in, made up from a seed: what each kind of task has, whole or broken.

Pure; means nothing, but has the shapes that modules read."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Sequence
from typing import Any

from automate.validation.standin.plan import Content, TaskPlan

_WORDS = ("river", "stone", "count", "light", "paper", "seven", "green", "sum", "table", "north", "glass", "often",
          "quiet", "letter", "bridge", "copper", "winter", "field", "early", "number")
RL_FEATURES = 8
RL_VENUES = 3


def file_name(kind: str) -> str:
    """The name of a kind's validation set in its address."""
    return "validation_set.npz" if kind == "rl" else "validation_set.jsonl"


def validation_set(task: TaskPlan, number: int, content: Content = Content.PLAIN) -> bytes:
    """The set of a task's assignment `number`: the same bytes each time."""
    if content is Content.EMPTY_SET:
        return b""
    dice = random.Random(f"set/{task.id}/{number}")
    if task.kind == "rl":
        whole = _npz(dice, task.rows)
        return whole[:len(whole) // 2] if content is Content.BROKEN_ROW else whole
    lines = [json.dumps(_row(task.kind, dice), ensure_ascii=False).encode() for _ in range(task.rows)]
    if content is Content.BROKEN_ROW and lines:
        middle = len(lines) // 2
        lines[middle] = lines[middle][:len(lines[middle]) // 2]
    return b"".join(line + b"\n" for line in lines)


def _text(dice: random.Random, most: int) -> str:
    return " ".join(dice.choice(_WORDS) for _ in range(dice.randint(3, most))) + "."


def _row(kind: str, dice: random.Random) -> dict[str, Any]:
    if kind == "example":
        return {"value": round(dice.uniform(-1, 1), 6)}
    said = [{"role": ("user", "assistant")[turn % 2], "content": _text(dice, 60 if turn % 2 else 20)}
            for turn in range(2 * dice.randint(1, 3))]
    row: dict[str, Any] = {"conversations": said}
    if kind == "llm_judge" or dice.random() < 0.3:
        row["system"] = _text(dice, 8)
    return row


def _npz(dice: random.Random, rows: int) -> bytes:
    import numpy

    source = numpy.random.default_rng(dice.getrandbits(32))
    head: Sequence[Any] = (source.uniform(1, 100, (rows, 1)), source.uniform(0.1, 5, (rows, 1)), numpy.zeros((rows, 1)))
    venue: list[Any] = []
    for _ in range(RL_VENUES):
        venue += [source.uniform(0, 1, (rows, 1)), source.uniform(-3, 3, (rows, 1)), source.uniform(-1, 0, (rows, 1)),
                  source.uniform(1, 100, (rows, 1))]
    out = io.BytesIO()
    numpy.savez(out, X=source.normal(size=(rows, RL_FEATURES)).astype("float32"),
                Info=numpy.hstack([*head, *venue]).astype("float32"))
    return out.getvalue()
