"""The token: double entry, nothing created but by Mint, nothing lost.

Never holds a balance below zero; every entry names the message that caused it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from automate.errors import PoolError
from automate.pools.exchange import Context, Handler
from automate.pools.messages import Message, Outgoing, reply
from automate.pools.store import Statements

SUPPLY = 9_000_000_000_000_000_000
"""The most that can ever be minted: sums stay exact in SQLite's 64 bits."""
GENESIS_ACCOUNT = "genesis"
"""What was minted is its debt, so that all balances sum to 0; it is no address, so nobody can pay or own it."""
TICKER = "wAR"
DENOMINATION = 12
INSUFFICIENT = "Insufficient Balance!"

_ADDRESS = re.compile(r"[A-Za-z0-9_-]{43}")
_DIGITS = re.compile(r"[0-9]{1,40}")


def quantity_of(text: str | None) -> int:
    """A Quantity: decimal digits of a positive integer. Raises PoolError: negative, fractional, huge, words, none."""
    todo = "give the amount in the token's smallest unit, as decimal digits: Quantity = \"1000\""
    if text is None or text == "":
        raise PoolError("Quantity is missing", todo=todo)
    if not _DIGITS.fullmatch(text):
        raise PoolError(f"Quantity {text[:60]!r} is no whole number", todo=todo)
    amount = int(text)
    if amount == 0:
        raise PoolError("Quantity must be greater than 0", todo=todo)
    if amount > SUPPLY:
        raise PoolError(f"Quantity {text} is more than there can ever be ({SUPPLY})", todo=todo)
    return amount


def is_address(text: str) -> bool:
    """Whether a text has the shape of an address: 43 characters of base64url."""
    return _ADDRESS.fullmatch(text) is not None


def balance(db: Statements, account: str) -> int:
    """What an account has; 0 where it was never used."""
    row = db.execute("SELECT amount FROM balances WHERE account = ?", (account,)).fetchone()
    return 0 if row is None else int(row["amount"])


def supply(db: Statements) -> int:
    """How much was minted."""
    return -balance(db, GENESIS_ACCOUNT)


def transfer(context: Context, message: Message) -> Sequence[Outgoing]:
    """Move Quantity from the sender to Recipient; Debit-Notice and Credit-Notice, unless there is a tag Cast.

    Raises PoolError (the exchange answers it as Transfer-Error): a bad Quantity or Recipient, too little money.
    """
    amount = quantity_of(message.tags.get("Quantity"))
    recipient = recipient_of(context, message.tags.get("Recipient"))
    silent = "Cast" in message.tags
    if silent and recipient in (context.pool, context.router):
        raise PoolError("a transfer with the tag Cast tells its recipient nothing, so this one would be for nothing",
                        todo="leave Cast away")
    if not _debit(context.db, message.sender, amount):
        raise PoolError(INSUFFICIENT)
    _credit(context.db, recipient, amount)
    _enter(context.db, message.id, message.sender, recipient, amount)
    return () if silent else (_debit_notice(message, recipient, amount), _credit_notice(message, recipient, amount))


def mint(context: Context, message: Message) -> Sequence[Outgoing]:
    """Make Quantity for Recipient (the sender, where there is none). Raises PoolError: not the genesis key, more than
    there may be."""
    if message.sender != context.owner:
        raise PoolError("only the workspace owner's genesis key mints",
                        todo="ask the owner for tokens: flock-hpc pool mint ADDRESS QUANTITY")
    amount = quantity_of(message.tags.get("Quantity"))
    recipient = recipient_of(context, message.tags.get("Recipient", message.sender))
    minted = supply(context.db)
    if minted + amount > SUPPLY:
        raise PoolError(f"there can be {SUPPLY} at most; {minted} are minted", todo=f"mint {SUPPLY - minted} or less")
    _credit(context.db, GENESIS_ACCOUNT, -amount)
    _credit(context.db, recipient, amount)
    _enter(context.db, message.id, GENESIS_ACCOUNT, recipient, amount)
    answer = reply(message, {"account": recipient, "quantity": str(amount), "supply": str(minted + amount)},
                   Recipient=recipient, Quantity=str(amount))
    return answer, _credit_notice(message, recipient, amount)


def tell_balance(context: Context, message: Message) -> Sequence[Outgoing]:
    """What an account has: tag Recipient (or Target, Account) by address or process name, else the sender's own."""
    asked = next((message.tags[name] for name in ("Recipient", "Target", "Account") if message.tags.get(name)), None)
    account = message.sender if asked is None else address_of(context, asked)
    amount = str(balance(context.db, account))
    return (reply(message, amount, Balance=amount, Ticker=TICKER, Account=account),)


def info(context: Context, message: Message) -> Sequence[Outgoing]:
    """Name, Ticker, Denomination and how much there is."""
    minted = str(supply(context.db))
    data = {"name": context.me.name, "ticker": TICKER, "denomination": DENOMINATION, "supply": minted,
            "process": context.me.id}
    return (reply(message, data, Name=context.me.name, Ticker=TICKER, Denomination=str(DENOMINATION), Supply=minted),)


def address_of(context: Context, text: str) -> str:
    """An address as it is, else the process of this name. Raises PoolError: neither."""
    if is_address(text):
        return text
    process = context.process(text)
    if process is None:
        raise PoolError(f"{text[:60]!r} is no address and no process here",
                        todo="give 43 characters of A-Z, a-z, 0-9, - and _, or a process's name")
    return process.id


def recipient_of(context: Context, text: str | None) -> str:
    """Who gets money. Raises PoolError: none, no address, or the token itself, where money would lie for ever."""
    if not text:
        raise PoolError("Recipient is missing", todo="name the address that the tokens go to")
    recipient = address_of(context, text)
    if recipient == context.token:
        raise PoolError("the token itself can't hold tokens", todo="name another Recipient")
    return recipient


def _debit(db: Statements, account: str, amount: int) -> bool:
    done = db.execute("UPDATE balances SET amount = amount - ? WHERE account = ? AND amount >= ?",
                      (amount, account, amount))
    return done.rowcount == 1


def _credit(db: Statements, account: str, amount: int) -> None:
    db.execute("INSERT INTO balances (account, amount) VALUES (?, ?) "
               "ON CONFLICT (account) DO UPDATE SET amount = amount + excluded.amount", (account, amount))


def _enter(db: Statements, message_id: str, giver: str, recipient: str, amount: int) -> None:
    """Both sides of one movement."""
    for account, other, signed in ((giver, recipient, -amount), (recipient, giver, amount)):
        db.execute("INSERT INTO entries (message, account, other, amount) VALUES (?, ?, ?, ?)",
                   (message_id, account, other, signed))


def _forwarded(tags: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in tags.items() if name.startswith("X-")}


def _debit_notice(message: Message, recipient: str, amount: int) -> Outgoing:
    tags = {"Message-Id": message.id, "Recipient": recipient, "Quantity": str(amount), **_forwarded(message.tags)}
    return Outgoing(message.sender, "Debit-Notice", f"You transferred {amount} to {recipient}", tags)


def _credit_notice(message: Message, recipient: str, amount: int) -> Outgoing:
    tags = {"Sender": message.sender, "Quantity": str(amount), **_forwarded(message.tags)}
    return Outgoing(recipient, "Credit-Notice", f"You received {amount} from {message.sender}", tags)


HANDLERS: dict[str, Handler] = {"Transfer": transfer, "Balance": tell_balance, "Mint": mint, "Info": info}
"""Transfer (Debit-Notice to the sender, Credit-Notice to the recipient with all X- tags; Transfer-Error with Message-Id
and Error; none of the notices with tag Cast), Balance, Mint (genesis key only), Info."""
