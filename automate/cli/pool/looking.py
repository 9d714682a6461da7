"""`pool list`, `show`, `leaderboard` and `audit`: what there is. They change nothing."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.pool.options import (
    IdCommand,
    answer_of,
    common_options,
    counter,
    key_option,
    names_of,
    now_ms,
    rows_of,
    show_json,
)


def _no_option(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a file that looks like the next option: its own value was forgotten."""
    if value is not None and len(str(value)) > 1 and str(value).startswith("-"):
        raise click.BadParameter(f"{str(value)!r} begins with a dash: name a file, such as ./{value}")
    return value


@click.command()
@common_options
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def processes(workspace_dir: Path | None, key_name: str | None, url: str | None, as_json: bool) -> None:
    """Show the processes that messages can be sent to: token, pool, router, data sets."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_processes

    with counter(workspace_dir, key_name, url, make=False) as desk:
        found, names = rows_of(desk.desk.ask("processes")), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_processes(make_console(), found, names)


@click.command("list")
@common_options
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def list_(workspace_dir: Path | None, key_name: str | None, url: str | None, as_json: bool) -> None:
    """Show the pools, the newest first."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_pools

    with counter(workspace_dir, key_name, url, make=False) as desk:
        found = rows_of(desk.desk.ask("pools"))
    if as_json:
        show_json(found)
    else:
        print_pools(make_console(), found, now_ms())


@click.command(cls=IdCommand)
@common_options
@click.argument("pool")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def show(workspace_dir: Path | None, key_name: str | None, url: str | None, pool: str, as_json: bool) -> None:
    """Show POOL (its id, the beginning of it, or its data set): money, time, models, payouts."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_pool

    with counter(workspace_dir, key_name, url, make=False) as desk:
        found, names = answer_of(desk.desk.ask("pool", id=pool)), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_pool(make_console(), found, names, now_ms())


@click.command(cls=IdCommand)
@common_options
@click.argument("pool")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the table.")
@click.option("--csv", "as_csv", is_flag=True, help="CSV instead of the table.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path, allow_dash=True), metavar="FILE",
              callback=_no_option, help="One self-contained page, into FILE.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              callback=_no_option, help="JSON or CSV into FILE, not to the screen.")
def leaderboard(workspace_dir: Path | None, key_name: str | None, url: str | None, pool: str, as_json: bool,
                as_csv: bool, page: Path | None, out: Path | None) -> None:
    """Show the leaderboard of POOL: rank, score with its interval, progress, reward."""
    from automate.cli.checks import make_console
    from automate.cli.views import pools_files as files
    from automate.cli.views.pools import print_board

    if sum((as_json, as_csv, page is not None)) > 1:
        raise click.UsageError("--json, --csv and --html: choose one")
    if out is not None and not (as_json or as_csv):
        raise click.UsageError("--out needs --json or --csv")
    with counter(workspace_dir, key_name, url, make=False) as desk:
        found = answer_of(desk.desk.ask("leaderboard", id=pool))
        names = names_of(desk)
    if page is not None:
        _write(page, files.as_html(found, now_ms()))
    elif as_json or as_csv:
        _write(out, files.as_csv(found) if as_csv else files.as_json(found))
    else:
        print_board(make_console(), found, names, now_ms())


def _write(file: Path | None, text: str) -> None:
    """A text into a file, whole or not at all, or to the screen."""
    from automate.errors import StorageError
    from automate.journal import replace_file

    if file is None or str(file) == "-":
        click.echo(text, nl=not text.endswith("\n"))
        return
    if not file.absolute().parent.is_dir():
        raise StorageError(f"there is no folder {file.absolute().parent}", where=str(file),
                           todo="make it first, or name a file in a folder that is there")
    try:
        replace_file(file, text.encode())
    except OSError as error:
        raise StorageError.of(error, file, "write it") from None
    click.echo(f"wrote {file}", err=True)


@click.command(cls=IdCommand)
@workspace_option
@key_option
@click.argument("pool")
@click.option("--json", "as_json", is_flag=True, help="Everything as one JSON document.")
@click.pass_context
def audit(ctx: click.Context, workspace_dir: Path | None, key_name: str | None, pool: str, as_json: bool) -> None:
    """Trace every unit of money and every answer of POOL. The exit status is 1 where something doesn't hold."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools_audit import print_audit

    with counter(workspace_dir, key_name, make=False) as desk:
        found, names = answer_of(desk.desk.ask("audit", id=pool)), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_audit(make_console(), found, names, now_ms())
    ctx.exit(1 if found.get("problems") else 0)
