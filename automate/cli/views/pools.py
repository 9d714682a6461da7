"""Benchmark pools as tables that a person reads: pools, one pool, a leaderboard, models, data sets, money.

Pure but for the console that it prints to; every name is cleaned of what a terminal would obey."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from automate.cli.views.cells import clean, fold
from automate.cli.views.grids import WIDE, Cell, name, number, show, word

if TYPE_CHECKING:
    from rich.console import Console

Answer = Mapping[str, Any]
SHORT = 10
"""So many characters of an id are shown in a table; commands take them."""
STYLES = {"open": "green", "over": "yellow", "paid": "cyan", "refunded": "magenta"}


def brief(id: object) -> str:
    """The beginning of an id."""
    text = clean(str(id))
    return text if len(text) <= SHORT + 6 else text[:SHORT]


def who(address: object, names: Mapping[str, str]) -> str:
    """A name for an address where there is one, else its beginning."""
    return clean(names.get(str(address), "")) or brief(address)


def money(amount: object) -> str:
    """An amount, also as digits, with its thousands apart; nothing where there is none."""
    amount = int(amount) if isinstance(amount, str) and amount.isascii() and amount.isdigit() else amount
    return f"{amount:,}" if isinstance(amount, int) else ""


def span(ms: float) -> str:
    """A length of time such as 40s, 12m, 3h 20m, 29d 4h."""
    seconds = int(abs(ms) // 1000)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if days:
        return f"{days}d {hours % 24}h"
    return f"{hours}h {minutes % 60}m" if hours else f"{minutes}m" if minutes else f"{seconds}s"


def at(ms: object) -> str:
    """A time as this machine's clock has it: 2026-05-04 13:20."""
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(ms / 1000)) if isinstance(ms, int) else "never"


def ago(ms: object, now: int) -> str:
    """A time as its distance from now."""
    return "never" if not isinstance(ms, int) else f"{span(now - ms)} ago" if ms <= now else f"in {span(ms - now)}"


def ends(pool: Answer, now: int) -> str:
    """When a pool is over, or since when."""
    end = pool.get("endTime", pool.get("end_time"))
    return ago(end, now)


def print_pools(console: Console, pools: Sequence[Answer], now: int) -> None:
    """A line for each pool, and what to do with them."""
    if not pools:
        _say(console, "No pools yet. Open one: flock-hpc pool create --dataset NAME --fund N")
        return
    show(console, (word("pool"), name("data set"), number("funds"), word("allocation", 1), number("models", 2),
                   word("state"), word("end")),
         [(brief(pool["id"]), pool["dataset_name"], money(pool["funds"]), pool["allocation"], money(pool["models"]),
           (pool["state"], STYLES.get(pool["state"], "")), ends(pool, now)) for pool in pools])


def print_pool(console: Console, pool: Answer, names: Mapping[str, str], now: int) -> None:
    """One pool: its fields, models and payouts."""
    from rich.text import Text

    console.print(Text.assemble("pool ", (clean(pool["id"]), "bold"), "  ",
                                (pool["state"], STYLES.get(pool["state"], ""))))
    pairs(console, {
        "data set": f"{clean(pool['dataset_name'])}  ({clean(pool['dataset'])})",
        "funder": _owner(pool["funder"], names),
        "funds": _funds(pool), "allocation": clean(pool["allocation"]), "start": at(pool["startTime"]),
        "end": f"{at(pool['endTime'])}, {ends(pool, now)}",
        "leaderboard": "not updated yet" if pool["updated"] is None else f"updated {ago(pool['updated'], now)}"})
    console.print()
    if not pool["models"]:
        _say(console, f"No model has joined. Join: flock-hpc pool join {brief(pool['id'])} --model NAME")
    else:
        print_joined(console, pool["models"], names)
    if pool["payouts"]:
        console.print()
        show(console, (word("payout"), number("rank"), name("model"), word("to"), number("amount")),
             [(one["kind"], money(one["rank"]), one["model"] or "", who(one["account"], names), money(one["amount"]))
              for one in pool["payouts"]])


def _owner(address: object, names: Mapping[str, str]) -> str:
    known = names.get(str(address))
    return clean(str(address)) + (f"  ({clean(known)})" if known else "")


def _funds(pool: Answer) -> str:
    settled = f"; {money(pool['paid'])} paid, {money(pool['returned'])} returned" if pool["settled"] else ""
    return money(pool["funds"]) + settled


def print_joined(console: Console, models: Sequence[Answer], names: Mapping[str, str]) -> None:
    """The models of a pool, in the order of joining."""
    counts = ("correct", "answered", "failed", "total")
    show(console, (name("model"), word("participant", 2), number("score"), number("progress"),
                   *(number(count, 1) for count in counts)),
         [(one["model"], who(one["participant"], names), percent(one["score"]), percent(one["progress"]),
           *(money(one[count]) for count in counts)) for one in models])


def percent(part: object) -> str:
    """A share between 0 and 1 in percent; 100 % only where all is done."""
    if not isinstance(part, (int, float)):
        return ""
    return f"{min(99.9, 100 * part) if part < 1 else 100:.1f}%"


def print_board(console: Console, board: Answer, names: Mapping[str, str], now: int) -> None:
    """A pool's leaderboard: best first, with 95 % intervals."""
    from rich.text import Text

    console.print(Text.assemble((clean(board["dataset_name"]), "bold"), f"  pool {brief(board['pool'])}  ",
                                f"{money(board['funds'])} by {clean(board['allocation'])}  ",
                                (board["state"], STYLES.get(board["state"], "")), f"  end {ends(board, now)}"))
    if not board["places"]:
        _say(console, f"No model has joined. Join: flock-hpc pool join {brief(board['pool'])} --model NAME")
        return
    paid = any(place["reward"] is not None for place in board["places"])
    stale = any(place["updated"] is None for place in board["places"])
    show(console, (number("rank"), name("model", 20), word("participant", 2), number("value"), number("score", 1),
                   word("95 % of score", 3), number("progress"), *([number("reward")] if paid else []),
                   *([word("updated")] if stale else [])),
         [[*_place(place, names, paid), *([ago(place["updated"], now)] if stale else [])] for place in board["places"]])
    failed = sum(place["failed"] for place in board["places"])
    updated = "not updated yet" if board["updated"] is None else f"updated {ago(board['updated'], now)}"
    _say(console, f"{updated}; value = correct / all, score = correct / answered" +
         (f"; {failed:,} questions without an answer after all attempts" if failed else ""))


def _place(place: Answer, names: Mapping[str, str], paid: bool) -> list[Cell]:
    """A row of a leaderboard."""
    interval = f"{100 * place['low']:.1f}-{100 * place['high']:.1f}" if place["answered"] else ""
    return [str(place["rank"]), place["model"], who(place["participant"], names), percent(place["value"]),
            percent(place["score"]), interval, percent(place["progress"]), *([money(place["reward"])] if paid else [])]


def print_models(console: Console, models: Sequence[Answer], names: Mapping[str, str]) -> None:
    """All models."""
    if not models:
        _say(console, "No models yet. Tell of one: flock-hpc pool model add NAME --path DIR_OR_HF_ID")
        return
    show(console, (number("no."), name("name", 16), word("process"), word("owner", 2), number("pools", 1),
                   name("where it lies", 16)),
         [(str(one["number"]), one["name"], brief(one["process"]), who(one["owner"], names), money(one["pools"]),
           one["data_tx"]) for one in models])


def print_evaluated(console: Console, models: Sequence[Answer]) -> None:
    """The models of a data set, with how far each is."""
    if not models:
        _say(console, "No model is evaluated on it yet: models come by joining a pool.")
        return
    counts = ("rows", "pending", "started", "answered", "correct", "failed")
    show(console, (number("no.", 1), name("name", 16), word("process", 2), *(number(count) for count in counts)),
         [(str(one["number"]), one["name"], brief(one["process"]), *(money(one[count] or 0) for count in counts))
          for one in models])


def print_processes(console: Console, processes: Sequence[Answer], names: Mapping[str, str]) -> None:
    """Name and whole id of each process."""
    kinds = [one["kind"] if one["kind"] != "dataset" else f"data set ({one['module']})" for one in processes]
    show(console, (name("name"), word("id"), word("kind", 1), word("owner", 2)),
         [(one["name"], one["id"], kind, who(one["owner"], names))
          for one, kind in zip(processes, kinds, strict=True)])


def print_datasets(console: Console, datasets: Sequence[Answer], names: Mapping[str, str]) -> None:
    """A line for each data set."""
    if not datasets:
        _say(console, "No data sets yet. Make one: flock-hpc pool dataset create KIND --from FILE")
        return
    show(console, (name("name"), word("kind", 1), word("id"), word("owner", 2), number("questions"),
                   number("models", 1), number("open pools", 1), number("balance")),
         [(one["name"], one["kind"], brief(one["id"]), who(one["owner"], names),
           money(one["questions"]) if one["ready"] else "not set up",
           *(money(one[count]) for count in ("models", "open_pools", "balance"))) for one in datasets])


def print_dataset(console: Console, one: Answer, names: Mapping[str, str], now: int) -> None:
    """One data set: its fields, settings, evaluations and pools."""
    from rich.text import Text

    console.print(Text.assemble("data set ", (clean(one["name"]), "bold"), f"  {clean(one['kind'])}"))
    options = ", ".join(f"{money(count)} with {size} options" if size != "0" else f"{money(count)} to answer exactly"
                        for size, count in one["options"].items())
    states = ", ".join(f"{money(count)} {state}" for state, count in one["evaluations"].items() if count)
    pairs(console, {
        "id": clean(one["id"]), "owner": _owner(one["owner"], names),
        "questions": f"{money(one['questions'])} ({options})" if options else "none" if one["ready"] else "not set up",
        "evaluations": states or "none yet", "balance": money(one["balance"]), "made": at(one["created"]),
        **{clean(str(key)): clean(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
           for key, value in one["settings"].items()}})
    if one["pools"]:
        console.print()
        print_pools(console, one["pools"], now)


def print_balance(console: Console, found: Answer, names: Mapping[str, str], now: int) -> None:
    """A balance and its last entries."""
    from rich.text import Text

    console.print(Text.assemble(_owner(found["account"], names), "  ", (money(found["balance"]), "bold")))
    if not found["entries"]:
        return
    console.print()
    show(console, (number("amount"), word("from or to"), word("by", 1), word("when"), word("message", 2)),
         [((f"{one['amount']:+,}", "green" if one["amount"] > 0 else "red"), who(one["other"], names),
           one["action"] or "", ago(one["time"], now), brief(one["message"])) for one in found["entries"]])


def pairs(console: Console, fields: Mapping[str, str]) -> None:
    """Names and values, one below the other; long values go on below themselves."""
    from rich.text import Text

    width = console.width if console.is_terminal else WIDE
    start = max(map(len, fields)) + 4
    for field, value in fields.items():
        for line in fold(value, width, " " * start, f"  {field}".ljust(start)) or [f"  {field}"]:
            text = Text(line)
            text.stylize("dim", 0, start)
            console.print(text, soft_wrap=True)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, style="dim" if text[:2].islower() else None)
