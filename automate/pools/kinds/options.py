"""Options of a multiple-choice row, in the shapes that sets come in, and which of them is right.

Never reorders unless asked, and never takes an answer that fits two options."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.pools.kinds.base import LETTERS, no_field, text_of
from automate.pools.kinds.files import decoded

ANSWERS = ("letter", "0", "1", "text", "label")
"""How the right answer is given: a letter, a number from 0 or from 1 on, the option's text, or the option's label."""


@dataclass(frozen=True)
class Options:
    """Texts, and their labels where the row has them."""

    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


def of_columns(raw: Mapping[str, object], names: Sequence[str]) -> Options:
    """A column for each option; the last ones may be empty. Raises ValueError."""
    values = [raw.get(name) for name in names]
    while values and (values[-1] is None or values[-1] == ""):
        values.pop()
    return Options(tuple(text_of(value, name) for value, name in zip(values, names, strict=False)))


def of_column(raw: Mapping[str, object], name: str) -> Options:
    """One column: a list of texts, a list of {text, label}, {text: [...], label: [...]}, or one of these as JSON text.

    Raises ValueError.
    """
    if name not in raw:
        raise no_field(raw, name)
    value = raw[name]
    if isinstance(value, str):
        try:
            value = decoded(value)
        except ValueError as error:
            raise ValueError(f"{name!r} is no list of options: {error}") from error
    if isinstance(value, dict):
        return Options(_texts(value.get("text"), f"{name}.text"),
                       _texts(value["label"], f"{name}.label") if "label" in value else ())
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        labels = [item.get("label") for item in value]
        return Options(_texts([item.get("text") for item in value], f"{name}.text"),
                       _texts(labels, f"{name}.label") if any(label is not None for label in labels) else ())
    return Options(_texts(value, name))


def _texts(values: object, name: str) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{name!r} is no list of options")
    return tuple(text_of(value, f"{name}[{number}]") for number, value in enumerate(values))


def checked(options: Options) -> Options:
    """Raises ValueError: fewer than 2, more than 26, labels that don't fit or are one label twice."""
    if not 2 <= len(options.texts) <= len(LETTERS):
        raise ValueError(f"{len(options.texts)} options: from 2 to {len(LETTERS)} are taken")
    if options.labels and len(options.labels) != len(options.texts):
        raise ValueError(f"{len(options.texts)} options but {len(options.labels)} labels")
    if len(set(options.labels)) != len(options.labels):
        raise ValueError("two options have the same label")
    return options


def place(answer: str, options: Options, how: str) -> int:
    """Which option is right, from 0 on. A letter is a label where there are labels. Raises ValueError."""
    answer = answer if how == "text" else answer.strip()
    if how in ("0", "1"):
        number = int(answer) - int(how) if answer.isascii() and answer.isdigit() and len(answer) < 9 else -1
    elif how == "text":
        if options.texts.count(answer) > 1:
            raise ValueError("the answer is the text of more than one option")
        number = options.texts.index(answer) if answer in options.texts else -1
    else:
        names = options.labels if options.labels else tuple(LETTERS) if how == "letter" else ()
        number = names.index(answer) if answer in names else -1
    if not 0 <= number < len(options.texts):
        raise ValueError(f"the answer {answer!r:.80} is none of the {len(options.texts)} options (given as: {how})")
    return number


def shuffled(question: str, texts: Sequence[str], right: int) -> tuple[tuple[str, ...], int]:
    """Options in an order that only the row's content decides, so that it is the same each time."""
    seed = hashlib.sha256("\0".join((question, *texts)).encode("utf-8", "surrogatepass")).digest()
    order = sorted(range(len(texts)), key=[random.Random(seed + bytes([at])).random() for at in range(len(texts))]
                   .__getitem__)
    return tuple(texts[at] for at in order), order.index(right)
