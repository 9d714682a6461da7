"""An audit of a pool as a person reads it: where the money came from and went, what became of the answers.

Pure but for the console that it prints to; `--json` has every row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from automate.cli.views.cells import clean
from automate.cli.views.pools import add, at, brief, money, pairs, table, who

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
        "refund": money(gold["refund"]), "held": money(left) + (f", until {at(pool['end_time'])}" if left else ""),
        "all accounts": f"{money(gold['minted'])} minted; the entries sum to {money(gold['ledger'])}"})
    console.print()
    _entries(console, gold["entries"], names, now)
    _answers(console, answers)
    _verdict(console, found["problems"])


def _entries(console: Console, entries: list[Answer], names: Mapping[str, str], now: int) -> None:
    made = table(("amount", "right"), "account", "from or to", ("message", "whole"))
    for one in entries:
        add(made, f"{one['amount']:+,}", who(one["account"], names), who(one["other"], names), brief(one["message"]))
    if entries:
        console.print(made)
        console.print()


def _answers(console: Console, answers: Answer) -> None:
    made = table(("model", "fold"), *((name, "right") for name in (
        "questions", "answered", "right", "failed", "open", "attempts")))
    by_model: dict[str, list[Answer]] = {}
    for row in answers["evaluations"]:
        by_model.setdefault(str(row["model"]), []).append(row)
    for model, rows in by_model.items():
        states = Counter(row["state"] for row in rows)
        right = sum(row["state"] == "answered" and row["prediction"] == row["correct_answer"] for row in rows)
        add(made, clean(model), money(len(rows)), money(states["answered"]), money(right), money(states["failed"]),
            money(len(rows) - states["answered"] - states["failed"]), money(sum(len(row["tries"]) for row in rows)))
    if by_model:
        console.print(made)
    strays = Counter(str(one["reason"]) for one in answers["strays"])
    for reason, count in strays.most_common():
        console.print(f"{count:,} answers not taken: {clean(reason)}", markup=False)
    console.print()


def _verdict(console: Console, problems: list[str]) -> None:
    if not problems:
        console.print("Sound: all money and all answers are accounted for.", style="green")
        return
    console.print(f"Not sound: {len(problems)} finding{'s' if len(problems) > 1 else ''}", style="red")
    for problem in problems:
        console.print(f"  {clean(str(problem))}", markup=False)
