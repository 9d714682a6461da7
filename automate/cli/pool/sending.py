"""`pool send`: any message, as the spec shows them."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.pool.options import Counter, IdCommand, common_options, counter, problem_of, rows_of, show_json


@click.command(cls=IdCommand)
@common_options
@click.option("--action", required=True, metavar="NAME", help="The Action: Join-Pool, Leaderboard, Transfer, ...")
@click.option("--target", metavar="NAME|ID",
              help="token, pool, router, a data set's name, or an id (default: whose Action it is).")
@click.option("--data", default="", metavar="TEXT|@FILE", help="Data: a text, mostly JSON; @FILE takes a file's.")
@click.option("--tag", "tags", multiple=True, metavar="KEY=VALUE", help="A tag: Recipient=..., Quantity=..., X-...=...")
@click.pass_context
def send(ctx: click.Context, workspace_dir: Path | None, key_name: str | None, url: str | None, action: str,
         target: str | None, data: str, tags: tuple[str, ...]) -> None:
    """Sign a message, send it, and print what became of it, with all replies, as JSON.

    The exit status is 1 where it was refused, or answered with an error.
    """
    from automate.pools.deeds import receipt_json

    given, text = tags_of(tags), _data(data)
    with counter(workspace_dir, key_name, url) as desk:
        receipt = desk.send(target or target_of(desk, action), action, text, given)
    show_json(receipt_json(receipt))
    ctx.exit(1 if problem_of(receipt) else 0)


def tags_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Tags as typed. Raises BadParameter."""
    tags: dict[str, str] = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name or name in tags or name == "Action":
            why = "is given twice" if name in tags else "goes by --action" if name == "Action" else "is not KEY=VALUE"
            raise click.BadParameter(f"{pair!r} {why}", param_hint="--tag")
        tags[name] = value
    return tags


def _data(given: str) -> str:
    """Data as typed, or the text of a file."""
    from automate.errors import DataError, StorageError

    if not given.startswith("@"):
        return given
    file = Path(given[1:])
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise StorageError.of(error, file, "read it") from None
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 at byte {error.start}", where=str(file), todo="save it as UTF-8") from None


def target_of(desk: Counter, action: str) -> str:
    """The process that has a handler for an Action; of the data sets the only one. Raises PoolError."""
    from automate.errors import PoolError
    from automate.pools.exchange import handlers_of

    kinds = [kind for kind in ("token", "pool", "router", "dataset") if action in handlers_of(kind)]
    if not kinds or action == "Info":
        raise PoolError(f"whose {action!r} is meant?" if kinds else f"no process here has a handler for {action!r}",
                        where="--target", todo="name it: token, pool, router, a data set's name, or an id")
    if kinds[0] != "dataset":
        return kinds[0]
    names = [str(one["name"]) for one in rows_of(desk.desk.ask("processes")) if one["kind"] == "dataset"]
    if len(names) == 1:
        return names[0]
    raise PoolError(f"{action} goes to a data set, and there are {len(names)}" if names else "there is no data set yet",
                    where="--target", todo=f"name one of {', '.join(names[:9])}" if names
                    else "make one: flock-hpc pool dataset create KIND --from FILE")
