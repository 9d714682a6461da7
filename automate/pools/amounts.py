"""Money in JSON: strings of decimal digits, as the token's Quantity, for readers whose numbers end at 2^53.

Pure; inside of the program money is int."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

FIELDS = frozenset({"amount", "balance", "dust", "funds", "ledger", "min_fund", "minted", "paid", "refund", "returned",
                    "reward"})
"""Fields that hold money, wherever they are in an answer."""
_DIGITS = re.compile("-?[0-9]{1,20}", re.ASCII)


def as_text(value: object) -> object:
    """A JSON value whose money is text; what a ledger's entry takes away begins with a minus."""
    return _changed(value, lambda amount: str(amount) if type(amount) is int else amount)


def as_whole(value: object) -> object:
    """A JSON value whose money is int again."""
    return _changed(value, whole)


def whole(amount: object) -> object:
    """Digits as int; anything else as it is."""
    return int(amount) if isinstance(amount, str) and _DIGITS.fullmatch(amount) else amount


def _changed(value: object, change: Callable[[object], object]) -> object:
    if isinstance(value, Mapping):
        return {name: change(one) if name in FIELDS and not isinstance(one, Mapping | list) else _changed(one, change)
                for name, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_changed(one, change) for one in value]
    return value
