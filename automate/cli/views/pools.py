"""Benchmark pools as tables that a person reads: pools, one pool, a leaderboard, models, data sets, money.

Pure but for the console that it prints to; every name is cleaned of what a terminal would obey."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from automate.cli.views.cells import clean

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

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
    """An amount with its thousands apart; nothing where there is none."""
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


def table(*columns: str | tuple[str, str]) -> Table:
    """An empty table; a column's name, or its name and `right`, `fold` or `whole`."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in columns:
        name, how = column if isinstance(column, tuple) else (column, "")
        made.add_column(name, justify="right" if how == "right" else "left", no_wrap=how in ("right", "whole"),
                        overflow="fold" if how == "fold" else "ellipsis")
    return made


def add(made: Table, *cells: object, style: str = "", styles: Mapping[int, str] | None = None) -> None:
    """A row of plain texts, whatever is in them."""
    from rich.text import Text

    made.add_row(*(Text(str(cell), style=(styles or {}).get(place, "")) for place, cell in enumerate(cells)),
                 style=style or None)


def print_pools(console: Console, pools: Sequence[Answer], now: int) -> None:
    """A line for each pool, and what to do with them."""
    if not pools:
        _say(console, "No pools yet. Open one: flock-hpc pool create --dataset NAME --fund N")
        return
    made = table(("pool", "whole"), ("data set", "fold"), ("funds", "right"), "allocation", ("models", "right"),
                 ("state", "whole"), ("end", "whole"))
    for pool in pools:
        add(made, brief(pool["id"]), clean(pool["dataset_name"]), money(pool["funds"]), clean(pool["allocation"]),
            money(pool["models"]), pool["state"], ends(pool, now), styles={5: STYLES.get(pool["state"], "")})
    console.print(made)


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
        made = table("payout", ("rank", "right"), ("model", "fold"), "to", ("amount", "right"))
        for one in pool["payouts"]:
            add(made, one["kind"], one["rank"] or "", clean(one["model"] or ""), who(one["account"], names),
                money(one["amount"]))
        console.print(made)


def _owner(address: object, names: Mapping[str, str]) -> str:
    name = names.get(str(address))
    return clean(str(address)) + (f"  ({clean(name)})" if name else "")


def _funds(pool: Answer) -> str:
    settled = f"; {money(pool['paid'])} paid, {money(pool['returned'])} returned" if pool["settled"] else ""
    return money(pool["funds"]) + settled


def print_joined(console: Console, models: Sequence[Answer], names: Mapping[str, str]) -> None:
    """The models of a pool, in the order of joining."""
    made = table(("model", "fold"), "participant", ("score", "right"), ("progress", "right"), ("correct", "right"),
                 ("answered", "right"), ("failed", "right"), ("total", "right"))
    for one in models:
        add(made, clean(one["model"]), who(one["participant"], names), percent(one["score"]), percent(one["progress"]),
            *(money(one[name]) for name in ("correct", "answered", "failed", "total")))
    console.print(made)


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
    made = table(("rank", "right"), ("model", "fold"), "participant", ("value", "right"), ("score", "right"),
                 ("95 % of score", "whole"), ("progress", "right"), *([("reward", "right")] if paid else []))
    for place in board["places"]:
        interval = f"{100 * place['low']:.1f}-{100 * place['high']:.1f}" if place["answered"] else ""
        add(made, place["rank"], clean(place["model"]), who(place["participant"], names), percent(place["value"]),
            percent(place["score"]), interval, percent(place["progress"]), *([money(place["reward"])] if paid else []))
    console.print(made)
    failed = sum(place["failed"] for place in board["places"])
    updated = "not updated yet" if board["updated"] is None else f"updated {ago(board['updated'], now)}"
    _say(console, f"{updated}; value = correct / all, score = correct / answered" +
         (f"; {failed:,} questions without an answer after all attempts" if failed else ""))


def print_models(console: Console, models: Sequence[Answer], names: Mapping[str, str]) -> None:
    """All models."""
    if not models:
        _say(console, "No models yet. Tell of one: flock-hpc pool model add NAME --path DIR_OR_HF_ID")
        return
    made = table(("no.", "right"), ("name", "fold"), ("process", "whole"), "owner", ("pools", "right"),
                 ("where it lies", "fold"))
    for one in models:
        add(made, one["number"], clean(one["name"]), brief(one["process"]), who(one["owner"], names),
            money(one["pools"]), clean(one["data_tx"]))
    console.print(made)


def print_evaluated(console: Console, models: Sequence[Answer]) -> None:
    """The models of a data set, with how far each is."""
    if not models:
        _say(console, "No model is evaluated on it yet: models come by joining a pool.")
        return
    made = table(("no.", "right"), ("name", "fold"), ("process", "whole"), *(
        (name, "right") for name in ("rows", "pending", "started", "answered", "correct", "failed")))
    for one in models:
        add(made, one["number"], clean(one["name"]), brief(one["process"]),
            *(money(one[name] or 0) for name in ("rows", "pending", "started", "answered", "correct", "failed")))
    console.print(made)


def print_processes(console: Console, processes: Sequence[Answer], names: Mapping[str, str]) -> None:
    """Name and whole id of each process."""
    made = table(("name", "fold"), ("id", "whole"), "kind", "owner")
    for one in processes:
        kind = one["kind"] if one["kind"] != "dataset" else f"data set ({clean(one['module'])})"
        add(made, clean(one["name"]), clean(one["id"]), kind, who(one["owner"], names))
    console.print(made)


def print_datasets(console: Console, datasets: Sequence[Answer], names: Mapping[str, str]) -> None:
    """A line for each data set."""
    if not datasets:
        _say(console, "No data sets yet. Make one: flock-hpc pool dataset create KIND --from FILE")
        return
    made = table(("name", "fold"), "kind", ("id", "whole"), "owner", ("questions", "right"), ("models", "right"),
                 ("open pools", "right"), ("balance", "right"))
    for one in datasets:
        add(made, clean(one["name"]), clean(one["kind"]), brief(one["id"]), who(one["owner"], names),
            *(money(one[name]) for name in ("questions", "models", "open_pools", "balance")))
    console.print(made)


def print_dataset(console: Console, one: Answer, names: Mapping[str, str], now: int) -> None:
    """One data set: its fields, settings, evaluations and pools."""
    from rich.text import Text

    console.print(Text.assemble("data set ", (clean(one["name"]), "bold"), f"  {clean(one['kind'])}"))
    options = ", ".join(f"{money(count)} with {size} options" if size != "0" else f"{money(count)} to answer exactly"
                        for size, count in one["options"].items())
    states = ", ".join(f"{money(count)} {name}" for name, count in one["evaluations"].items() if count)
    pairs(console, {
        "id": clean(one["id"]), "owner": _owner(one["owner"], names),
        "questions": money(one["questions"]) + (f" ({options})" if options else ""),
        "evaluations": states or "none yet", "balance": money(one["balance"]), "made": at(one["created"]),
        **{clean(str(name)): clean(str(value)) for name, value in one["settings"].items()}})
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
    made = table(("amount", "right"), "from or to", "by", ("when", "whole"), ("message", "whole"))
    for one in found["entries"]:
        add(made, f"{one['amount']:+,}", who(one["other"], names), clean(one["action"] or ""), ago(one["time"], now),
            brief(one["message"]), styles={0: "green" if one["amount"] > 0 else "red"})
    console.print(made)


def pairs(console: Console, fields: Mapping[str, str]) -> None:
    """Names and values, one below the other; long values go on below themselves."""
    from rich.table import Table
    from rich.text import Text

    made = Table.grid(padding=(0, 2))
    for name, value in fields.items():
        made.add_row(Text(f"  {name}", style="dim"), Text(value, overflow="fold"))
    console.print(made)


def _say(console: Console, text: str) -> None:
    console.print(text, markup=False, style="dim" if text[:2].islower() else None)
