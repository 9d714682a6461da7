"""`pool create` and `pool join`: open a pool with money; let a model compete in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import Finite
from automate.cli.pool.options import Counter, IdCommand, answer, common_options, counter, fine, problem_of

if TYPE_CHECKING:
    from automate.errors import PoolError

INSUFFICIENT = "Insufficient Balance!"
"""The token's own words, as the spec's token says it."""


@click.command(cls=IdCommand)
@common_options
@click.option("--dataset", required=True, metavar="NAME", help="The data set: its name or id.")
@click.option("--fund", required=True, metavar="N", help="What goes into the pool, in the token's smallest unit.")
@click.option("--allocation", default="ArithmeticDecrease", show_default=True, metavar="RULE",
              help="Who gets what: ArithmeticDecrease, Equal, WinnerTakesAll, Proportional.")
@click.option("--days", type=Finite(min=0, min_open=True, max=36_500), metavar="N",
              help="How long it is open (default: pools.days of the settings).")
def create(workspace_dir: Path | None, key_name: str | None, url: str | None, dataset: str, fund: str,
           allocation: str, days: float | None) -> None:
    """Open a pool: transfer money to it, for a data set, under a rule. Prints the pool's id.

    Where it can't be opened the money comes back, with the reason.
    """
    from automate.cli.views.pools import at, money

    with counter(workspace_dir, key_name, url) as desk:
        tags = {"Recipient": desk.find("account", "pool"), "Quantity": fund,
                "X-Dataset": desk.find("dataset", dataset), "X-Allocation": allocation}
        if days is not None:
            tags["X-Days"] = f"{days:.9f}".rstrip("0").rstrip(".")
        receipt = desk.send("token", "Transfer", tags=tags)
        if problem_of(receipt) == INSUFFICIENT:
            raise too_little(desk, fund)
        found = answer(fine(receipt), "Create-Pool-Response")
    click.echo(found["pool"])
    click.echo(f"{money(found['funds'])} on {found['dataset_name']} by {found['allocation']}, open until "
               f"{at(found['endTime'])}", err=True)


def too_little(desk: Counter, fund: str) -> PoolError:
    """Why a pool can't be opened by who hasn't the money."""
    from automate.errors import PoolError

    address = desk.key().address
    has = desk.held(address)
    return PoolError(f"{address} has {has}: too little for {fund}", where="--fund",
                     todo=f"the workspace's owner makes tokens: flock-hpc pool mint {address} QUANTITY")


@click.command(cls=IdCommand)
@common_options
@click.argument("pool")
@click.option("--model", required=True, metavar="NAME", help="The model: its name, number or process id.")
def join(workspace_dir: Path | None, key_name: str | None, url: str | None, pool: str, model: str) -> None:
    """Let a model of yours compete in POOL. Every question of the data set is then due for it."""
    with counter(workspace_dir, key_name, url) as desk:
        given = {"dataset": desk.find("pool", pool), "model": desk.find("model", model)}
        receipt = desk.must("pool", "Join-Pool", json.dumps(given))
    found = answer(receipt, "Join-Pool-Response")
    click.echo(f"{model} has joined {given['dataset']}" + (" already" if found.get("already") else ""))
    click.echo(f"next: flock-hpc pool evaluate {given['dataset'][:10]} --submit", err=True)
