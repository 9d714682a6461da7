"""One play from money to rewards, step by step, the same each time: two models, lost and late answers, a refund.

Steps are made from what the database holds when it is their turn."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from automate.pools.keys import process_id
from automate.pools.messages import Message
from tests.unit.pool_support import DAY, HOUR, Bench

Make = Callable[[Bench], Message]


def signed(who: str, target: str, action: str, data: object = "", **tags: object) -> Make:
    """`Recipient="@ann"` is Ann's address; a process is meant by its name."""
    def made(bench: Bench) -> Message:
        given = {name: bench.address(str(value)[1:]) if str(value).startswith("@") else bench.id(str(value))
                 for name, value in tags.items()}
        return bench.message(who, target, action, data, via="http", anchor=f"{who} {action} {data} {tags}", **given)
    return made


def clock(target: str, action: str, data: object = "") -> Make:
    return lambda bench: unsigned(bench, "clock", bench.owner.address, target, action, data)


def unsigned(bench: Bench, via: str, sender: str, target: str, action: str, data: object) -> Message:
    text = data if isinstance(data, str) else json.dumps(data)
    return Message(process_id("test", sender, target, action, text, str(bench.clock.now)), sender, bench.id(target),
                   {"Action": action}, text, "", bench.clock.now, via)  # type: ignore[arg-type]


def answer(number: int, letter: str) -> Make:
    def made(bench: Bench) -> Message:
        row = bench.rows("SELECT reference, model FROM inferences ORDER BY received, model, rowid")[number]
        return unsigned(bench, "job", f"{row['model']}.w", "router", "Inference-Response",
                        {"id": row["reference"], "result": letter})
    return made


def wait(milliseconds: int) -> Callable[[Bench], None]:
    def waited(bench: Bench) -> None:
        bench.clock.forward(milliseconds)
    return waited


def worker(model: str, fleet: str) -> Make:
    return lambda bench: unsigned(bench, "job", bench.owner.address, "router", "Register-Worker",
                                  {"model": model, "worker": f"{model}.w", "fleet": fleet})


def a_round(name: str) -> Make:
    """All that waits is given to a round's job."""
    def made(bench: Bench) -> Message:
        waiting = bench.rows("SELECT reference FROM inferences WHERE state = 'queued' ORDER BY rowid")
        return unsigned(bench, "job", bench.owner.address, "router", "Round-Made",
                        {"round": name, "references": [row["reference"] for row in waiting]})
    return made


PLAY: list[Make | Callable[[Bench], None]] = [
    signed("owner", "token", "Mint", Recipient="@ann", Quantity=1000),
    signed("owner", "token", "Mint", Recipient="siqa", Quantity=50),
    signed("ann", "token", "Transfer", Recipient="pool", Quantity=100, X_Dataset="siqa",
           X_Allocation="ArithmeticDecrease", X_Days=2),
    signed("ann", "token", "Transfer", Recipient="pool", Quantity=7, X_Dataset="siqa", X_Allocation="Wrong"),
    signed("ben", "pool", "Add-Model", {"name": "ben-1", "data_tx": "ben/model"}),
    signed("cleo", "pool", "Add-Model", {"name": "cleo-1", "data_tx": "cleo/model"}),
    signed("ben", "pool", "Join-Pool", {"dataset": "siqa", "model": "ben-1"}),
    signed("cleo", "pool", "Join-Pool", {"dataset": "siqa", "model": "cleo-1"}),
    wait(HOUR), clock("siqa", "Evaluate"), a_round("r1"), worker("ben-1", "r1"), worker("cleo-1", "r1"),
    *[answer(number, "A") for number in (0, 1, 2, 3, 1)], wait(3 * HOUR),
    clock("siqa", "Evaluate"), a_round("r2"), worker("ben-1", "r2"), worker("cleo-1", "r2"),
    *[answer(number, "A") for number in (4, 6, 7)], clock("pool", "Update-Leaderboard", {"dataset": "siqa"}),
    wait(4 * DAY), clock("pool", "Allocate-Rewards", {"dataset": "siqa"}),
    signed("ann", "pool", "Allocate-Rewards", {"dataset": "siqa"}),
]


def opened(root: Path) -> Bench:
    return Bench(root, attempts=2, inference_timeout=7200, price={"prompt": 2}, grace=DAY / 1000)


def played(bench: Bench, steps: int | None = None) -> Bench:
    """The play, or its first steps, without a crash."""
    for step in PLAY[:steps]:
        made = step(bench)
        if made is not None:
            bench.exchange.receive([made])
    return bench
