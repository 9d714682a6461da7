"""`pool mint` and `pool balance`: make tokens; what an address has."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.pool.options import (
    Counter,
    IdCommand,
    answer_of,
    common_options,
    counter,
    key_option,
    names_of,
    now_ms,
    show_json,
)


def address_of(desk: Counter, given: str) -> str:
    """An address: `me`, a key's name here, a process by its name, or an address as it stands.

    Raises ConfigError, PoolError."""
    from automate.errors import PoolError
    from automate.pools.keys import is_address

    if given == "me":
        return desk.key().address
    try:
        known = desk.places.key(given).exists()
    except ValueError:
        known = False
    if known:
        return desk.key(given).address
    found = desk.find("account", given)
    if not is_address(found):
        raise PoolError(f"{given!r} is no address, and no key and no process here is called so", where="ADDRESS",
                        todo="give an address (43 characters), 'me', a key's name, or a data set's name")
    return found


@click.command(cls=IdCommand)
@workspace_option
@click.argument("address")
@click.argument("quantity")
@key_option
def mint(workspace_dir: Path | None, address: str, quantity: str, key_name: str | None) -> None:
    """Make QUANTITY new tokens for ADDRESS: an address, 'me', a key's name, or a data set's name.

    Signed by the workspace owner's genesis key; --key says who 'me' is. QUANTITY is a whole number, in the token's
    smallest unit.
    """
    from automate.pools.keys import GENESIS

    with counter(workspace_dir, key_name, signs=False) as desk:
        to = address_of(desk, address)
        desk.must("token", "Mint", tags={"Recipient": to, "Quantity": quantity}, key=desk.key(GENESIS))
        found = answer_of(desk.desk.ask("balance", account=to, last=0))
    click.echo(f"minted {int(quantity):,} for {to}; balance {found['balance']:,}")


@click.command(cls=IdCommand)
@common_options
@click.argument("address", default="me")
@click.option("--last", type=click.IntRange(min=0), default=10, show_default=True, help="So many entries.")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def balance(workspace_dir: Path | None, key_name: str | None, url: str | None, address: str, last: int,
            as_json: bool) -> None:
    """What ADDRESS has ('me' unless given; also a key's name, a data set's name), and its last entries."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_balance

    with counter(workspace_dir, key_name, url, make=False) as desk:
        found = answer_of(desk.desk.ask("balance", account=address_of(desk, address), last=last))
        names = names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_balance(make_console(), found, names, now_ms())
