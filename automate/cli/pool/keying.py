"""`pool keygen`: make a key."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.pool.options import KEY_VARIABLE, open_pools


@click.command()
@workspace_option
@click.option("--name", default="default", show_default=True, metavar="NAME", help="What the key is called here.")
def keygen(workspace_dir: Path | None, name: str) -> None:
    """Make an Ed25519 key, and print the address that is derived from it: who one is.

    The key never leaves its file, and is never written over.
    """
    from automate.errors import ConfigError
    from automate.names import check_name
    from automate.pools.keys import DEFAULT, GENESIS, make_key

    try:
        check_name(name, "key")
    except ValueError as error:
        raise ConfigError(str(error), where="--name", todo="choose a plain name") from None
    if name in (GENESIS, "me"):
        raise ConfigError(f"the name {name!r} is taken: " + (
            "the genesis key is made with the database" if name == GENESIS else "it stands for whoever asks"),
            where="--name", todo="choose another name")
    _, places = open_pools(workspace_dir, make=True)
    path = places.key(name)
    key = make_key(path)
    click.echo(key.address)
    click.echo(f"the key: {path} (mode 0600; keep a copy, and show it to nobody)", err=True)
    if name != DEFAULT:
        click.echo(f"use it: --key {name}, or {KEY_VARIABLE}={name}", err=True)
