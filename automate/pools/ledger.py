"""The token: double entry, nothing created but by Mint, nothing lost.

Never holds a balance below zero; every entry names the message that caused it."""

from __future__ import annotations

from automate.pools.exchange import Handler
from automate.pools.store import Statements

SUPPLY = 9_000_000_000_000_000_000
"""The most that can ever be minted: sums stay exact in SQLite's 64 bits."""


def quantity_of(text: str | None) -> int:
    """A Quantity: decimal digits of a positive integer. Raises PoolError: negative, fractional, huge, words, none."""
    raise NotImplementedError


def balance(db: Statements, account: str) -> int:
    """What an account has; 0 where it was never used."""
    raise NotImplementedError


HANDLERS: dict[str, Handler] = {}
"""Transfer (Debit-Notice to the sender, Credit-Notice to the recipient with all X- tags; Transfer-Error with Message-Id
and Error; none of the notices with tag Cast), Balance, Mint (genesis key only), Info."""
