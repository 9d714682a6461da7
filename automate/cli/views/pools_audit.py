"""An audit of a pool as a person reads it: where the money came from and went, what became of the answers.

Pure but for the console that it prints to; `--json` has every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from automate.cli.views.cells import clean
from automate.cli.views.grids import name, number, show, word
from automate.cli.views.pools import at, brief, money, pairs, who

if TYPE_CHECKING:
    from rich.console import Console

Answer = Mapping[str, Any]


def print_audit(console: Console, found: Answer, names: Mapping[str, str], now: int) -> None:
    """Money, answers, and what doesn't hold."""
    from rich.text import Text

    pool, gold, answers = found["pool"], found["money"], found["answers"]
    console.print(Text.assemble("pool ", (clean(pool["id"]), "bold"),
                                f"  {clean(pool['dataset_name'])}  {pool['state']}"))
    left = gold["funds"] - gold["paid"] - gold["dust"] - gold["refund"]
    pairs(console, {
        "funds": money(gold["funds"]), "paid": money(gold["paid"]), "dust": money(gold["dust"]),
        "refund": money(gold["refund"]), "held": money(left) + _until(left, pool["end_time"], now),
        "all accounts": f"{money(gold['minted'])} minted; the entries sum to {money(gold['ledger'])}"})
    console.print()
    _entries(console, gold["entries"], names)
    _answers(console, answers)
    _verdict(console, found["problems"])


def _until(left: int, end: int, now: int) -> str:
    if not left:
        return ""
    return f", until {at(end)}" if now < end else ", to be settled by the next tick"


def _entries(console: Console, entries: list[Answer], names: Mapping[str, str]) -> None:
    if not entries:
        return
    show(console, (number("amount"), word("account"), word("from or to"), word("message")),
         [(f"{one['amount']:+,}", who(one["account"], names), who(one["other"], names), brief(one["message"]))
          for one in entries])
    console.print()


def _answers(console: Console, answers: Answer) -> None:
    by_model: dict[str, list[Answer]] = {}
    for row in answers["evaluations"]:
        by_model.setdefault(str(row["model"]), []).append(row)
    if by_model:
        show(console, (name("model", 16), number("questions"), number("answered"), number("right"), number("failed"),
                       number("open"), number("attempts", 1)),
             [_counts(model, rows) for model, rows in by_model.items()])
    strays = Counter(str(one["reason"]) for one in answers["strays"])
    for reason, count in strays.most_common():
        console.print(f"{count:,} answers not taken: {clean(reason)}", markup=False)
    console.print()


def _counts(model: str, rows: list[Answer]) -> list[str]:
    """A model's row: what became of its questions."""
    states = Counter(row["state"] for row in rows)
    right = sum(row["state"] == "answered" and row["prediction"] == row["correct_answer"] for row in rows)
    left = len(rows) - states["answered"] - states["failed"]
    return [model, *map(money, (len(rows), states["answered"], right, states["failed"], left,
                                sum(len(row["tries"]) for row in rows)))]


def _verdict(console: Console, problems: list[str]) -> None:
    if not problems:
        console.print("Sound: all money and all answers are accounted for.", style="green")
        return
    console.print(f"Not sound: {len(problems)} finding{'s' if len(problems) > 1 else ''}", style="red")
    for problem in problems:
        console.print(f"  {clean(str(problem))}", markup=False)
