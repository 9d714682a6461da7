"""`pool model add` and `pool model list`."""

from __future__ import annotations

import json
from pathlib import Path

import click

from automate.cli.pool.options import (
    IdCommand,
    answer,
    common_options,
    counter,
    names_of,
    rows_of,
    show_json,
)


@click.command(cls=IdCommand)
@common_options
@click.argument("name")
@click.option("--path", "data_tx", required=True, metavar="DIR|HF_ID",
              help="Where its weights lie: a folder here, or owner/name on the model hub.")
@click.option("--inference-process", metavar="ID", help="The router that answers for it (default: the one here).")
def add(workspace_dir: Path | None, key_name: str | None, url: str | None, name: str, data_tx: str,
        inference_process: str | None) -> None:
    """Tell of a model, under NAME. Who tells of it owns it: nobody else can join a pool with it."""
    from automate.pools.keys import GENESIS

    with counter(workspace_dir, key_name, url) as desk:
        given, key = {"name": name, "data_tx": _place(data_tx)}, desk.key()
        if url is None:
            _look(given["data_tx"])
        if inference_process is not None:
            given["inference_process"] = inference_process
        if Path(given["data_tx"]).is_absolute() and url is None:  # the workspace's owner answers for its folders
            key, given["owner"] = desk.key(GENESIS), key.address
        receipt = desk.must("pool", "Add-Model", json.dumps(given, ensure_ascii=False), key=key)
    click.echo(answer(receipt, "Add-Model-Response")["model"])
    click.echo(f"next: flock-hpc pool join POOL --model {name}", err=True)


def _place(given: str) -> str:
    """A folder as its whole path; anything else as it stands. Raises PoolError for a folder that isn't there."""
    from automate.errors import PoolError

    path = Path(given).expanduser()
    if path.is_dir():
        return str(path.resolve())
    if path.is_absolute() or given.startswith("."):
        raise PoolError(f"there is no folder {str(path.resolve())!r}",
                        todo="give a folder that is there, or the model's name on the hub: owner/name")
    return given


def _look(place: str) -> None:
    """Say what a place is taken for where that may not be what is meant: a folder without a model, a hub's name."""
    from automate.errors import visible

    if not Path(place).is_absolute():
        click.echo(visible(f"no folder {Path(place).resolve()}: {place} is taken for a name on the model hub"),
                   err=True)
    elif not any((Path(place) / name).is_file() for name in ("config.json", "adapter_config.json")):
        click.echo(visible(f"no model in {place} yet (neither config.json nor adapter_config.json): put it there, or "
                           "its questions fail when they are asked"), err=True)


@click.command("list")
@common_options
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def list_(workspace_dir: Path | None, key_name: str | None, url: str | None, as_json: bool) -> None:
    """Show all models, with who owns them and where they lie."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_models

    with counter(workspace_dir, key_name, url, make=False) as desk:
        found, names = rows_of(desk.desk.ask("models")), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_models(make_console(), found, names)
