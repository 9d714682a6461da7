"""Opens a pool for money that comes with X-Dataset and X-Allocation, and sends back what can't open one.

Never keeps money without a pool: each credit opens a pool of its own, and never changes one that is there."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from automate.errors import PoolError
from automate.pools.allocation import RULES
from automate.pools.exchange import Context, in_a_line
from automate.pools.ledger import quantity_of
from automate.pools.lookup import dataset_process
from automate.pools.messages import Message, Outgoing

DAY = 86_400_000
"""Milliseconds."""
LONGEST = 36_500
"""Days."""

_DAYS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,9})?")
_TIME = re.compile(r"[0-9]{1,16}")


@dataclass(frozen=True)
class Terms:
    """What a pool is opened with; `end` in ms."""

    dataset: str
    dataset_name: str
    allocation: str
    end: int


def credit_notice(context: Context, message: Message) -> Sequence[Outgoing]:
    """Create-Pool: tags Sender, Quantity, X-Dataset, X-Allocation, and X-Days or X-End-Time (ms since 1970).

    The pool's id is this message's. The funder gets Create-Pool-Response, or the money and Create-Pool-Error. Raises
    PoolError where it isn't the token that sends it.
    """
    check_token(context, message)
    funder, funds = message.tags.get("Sender", ""), quantity_of(message.tags.get("Quantity"))
    if funder in ("", context.me.id):
        raise PoolError("a Credit-Notice must name another Sender")
    try:
        terms = terms_of(context, message.tags, funds)
    except PoolError as error:
        return _sent_back(context, message, funder, funds, error)
    context.db.execute(
        "INSERT INTO pools (id, dataset, funder, funds, allocation, winners, grace, start_time, end_time)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (message.id, terms.dataset, funder, funds, terms.allocation, context.settings.winners,
         round(context.settings.grace * 1000), context.now, terms.end))
    data = {"pool": message.id, "dataset": terms.dataset, "dataset_name": terms.dataset_name, "funder": funder,
            "funds": str(funds), "allocation": terms.allocation, "startTime": context.now, "endTime": terms.end}
    tags = {"Message-Id": message.cause or message.id, "Pool": message.id}
    return (Outgoing(funder, "Create-Pool-Response", json.dumps(data, ensure_ascii=False), tags),)


def create_pool(context: Context, message: Message) -> Sequence[Outgoing]:
    """Raises PoolError: it says how a pool is opened."""
    raise PoolError(
        "a pool is opened by the money that comes for it, not by this message",
        todo=f"send the token {context.token}: Action = Transfer, Recipient = {context.me.id}, Quantity = the funds,"
        f" X-Dataset = a data set's process id, X-Allocation = one of {', '.join(RULES)}; X-Days or X-End-Time (ms)"
        " where it is not for the usual time")


def check_token(context: Context, message: Message) -> None:
    """Raises PoolError unless the token sent it."""
    if message.sender != context.token:
        raise PoolError(f"a {message.action} counts only where it comes from the token",
                        todo=f"send a Transfer to the token {context.token} instead")


def terms_of(context: Context, tags: Mapping[str, str], funds: int) -> Terms:
    """What the funder asked for. Raises PoolError: no or an unknown data set or rule, too little money, a bad time."""
    if not tags.get("X-Dataset"):
        raise PoolError("X-Dataset is missing", todo="name the data set's process")
    dataset = dataset_process(context, tags["X-Dataset"])
    if not dataset.ready:
        raise PoolError(f"data set {dataset.name} is not ready", todo="its owner sends it Init and Load-Data first")
    rule = tags.get("X-Allocation", "")
    if rule not in RULES:
        raise PoolError(f"there is no rule {rule[:60]!r}" if rule else "X-Allocation is missing",
                        todo=f"choose one of {', '.join(RULES)}")
    if funds < context.settings.min_fund:
        raise PoolError(f"{funds} is too little: a pool is opened with {context.settings.min_fund} or more")
    return Terms(dataset.id, dataset.name, rule, _end(context, tags.get("X-Days"), tags.get("X-End-Time")))


def _end(context: Context, days: str | None, end: str | None) -> int:
    if days is not None and end is not None:
        raise PoolError("X-Days and X-End-Time can't both be given", todo="leave one of them away")
    if end is not None:
        return _end_time(context.now, end)
    if days is None:
        return context.now + max(1, round(context.settings.days * DAY))
    if not _DAYS.fullmatch(days) or not 0 < float(days) <= LONGEST:
        raise PoolError(f"X-Days {days[:60]!r} is no number of days from just above 0 to {LONGEST}")
    return context.now + max(1, round(float(days) * DAY))


def _end_time(now: int, end: str) -> int:
    if not _TIME.fullmatch(end):
        raise PoolError(f"X-End-Time {end[:60]!r} is no time", todo="give milliseconds since 1970 as digits")
    if not now < int(end) <= now + LONGEST * DAY:
        raise PoolError(f"X-End-Time {end} is not within the next {LONGEST} days; now it is {now}",
                        todo="give milliseconds since 1970, after now")
    return int(end)


def _sent_back(context: Context, message: Message, funder: str, funds: int, error: PoolError) -> Sequence[Outgoing]:
    """All of the money to who sent it, with the reason."""
    money = {"Recipient": funder, "Quantity": str(funds), "X-Reason": error.what}
    told = {"Message-Id": message.cause or message.id, "Error": in_a_line(error)}
    return (Outgoing(context.token, "Transfer", "", money), Outgoing(funder, "Create-Pool-Error", str(error), told))
