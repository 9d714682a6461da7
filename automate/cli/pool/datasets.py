"""`pool dataset create`, `info`, `models` and `list`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from automate.cli.options import workspace_option
from automate.cli.pool.options import (
    Counter,
    IdCommand,
    answer,
    answer_of,
    counter,
    key_option,
    names_of,
    now_ms,
    rows_of,
    show_json,
)

BAD = 20
"""So many bad rows are named."""


@click.command()
@workspace_option
@key_option
@click.argument("kind")
@click.option("--from", "source", type=click.Path(exists=True, dir_okay=False, path_type=Path), metavar="FILE",
              help="Questions: JSON lines, a JSON array, or CSV.")
@click.option("--name", metavar="NAME", help="What it is called (default: as its kind).")
@click.option("--set", "pairs", multiple=True, metavar="KEY=VALUE",
              help="A setting, such as SystemPrompt=..., Method=loglikelihood, LlamaRouter, WrappedAR, DataTxID.")
@click.option("--columns", metavar="JSON", help='Which column of the file is what, as {"question": "prompt"}.')
@click.option("--title", metavar="TEXT", help="What it is, in a few words.")
@click.option("--quiet", is_flag=True, help="Don't print its id.")
def create(workspace_dir: Path | None, key_name: str | None, kind: str, source: Path | None, name: str | None,
           pairs: tuple[str, ...], columns: str | None, title: str | None, quiet: bool) -> None:
    """Make a data set of a KIND (siqa, multiple-choice, exact-match, your own), and load its questions.

    The same again makes nothing twice: a data set of this name is taken, and only rows that are new are loaded.
    """
    settings = settings_of(pairs, columns, title)
    with counter(workspace_dir, key_name) as desk:
        id = ensure(desk, name or kind, kind, settings)
        if not quiet:
            click.echo(id)
        ok = source is None or load(desk, id, source)
    if not ok:
        click.get_current_context().exit(1)


def settings_of(pairs: tuple[str, ...], columns: str | None, title: str | None) -> dict[str, Any]:
    """Settings as typed: values that are JSON are that, others are texts."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE", param_hint="--set")
        settings[key] = _value(value)
    if columns is not None:
        settings["Columns"] = _columns(columns)
    if title is not None:
        settings["Title"] = title
    return settings


def _value(text: str) -> object:
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(found, float) and found != found else found


def _columns(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"not JSON: {error}", param_hint="--columns") from None
    if not isinstance(found, dict):
        raise click.BadParameter("expected a JSON object", param_hint="--columns")
    return found


def ensure(desk: Counter, name: str, kind: str, settings: dict[str, Any]) -> str:
    """The id of the data set of this name, made and set up where it is not there. Raises PoolError."""
    from automate.errors import PoolError

    known = next((one for one in rows_of(desk.desk.ask("datasets")) if one["name"] == name), None)
    if known is not None and known["kind"] != kind:
        raise PoolError(f"there is a data set {name!r} already, of the kind {known['kind']}", where="--name",
                        todo="choose another name")
    if known is None:
        made = answer(desk.must("pool", "Spawn", json.dumps({"name": name, "kind": kind})), "Spawn-Response")
        id, ready = str(made.get("process", made.get("id", ""))), False
    else:
        id, ready = str(known["id"]), bool(known["ready"])
    if ready and not settings:
        return id
    try:
        desk.must(id, "Init", json.dumps(settings, ensure_ascii=False))
    except PoolError as error:
        if ready:
            raise
        goes_on = f"the data set {name} is made, and not set up yet: the same command with other settings goes on"
        raise PoolError(error.what, where=error.where,
                        todo=f"{error.todo}; {goes_on}" if error.todo else goes_on) from None
    return id


def load(desk: Counter, id: str, source: Path) -> bool:
    """Load a file's questions and say what came of it; False where rows can't be used."""
    from automate.errors import visible

    with waiting(f"loading {source.name}"):
        receipt = desk.must(id, "Load-Data", json.dumps({"path": str(source.resolve())}))
    found = answer(receipt, "Load-Data-Response")
    count, bad = int(found["bad"]), found["bad_rows"]
    click.echo(f"{found['added']:,} questions loaded, {found['known']:,} were there" +
               (f", {count:,} can't be used:" if count else ""))
    for one in bad[:BAD]:
        click.echo(visible(f"  row {one['number']}: {one['reason']}"), err=True)
    if count > BAD:
        click.echo(f"  and {count - BAD:,} more", err=True)
    return not count


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A moving bar with the time on a terminal; nothing elsewhere."""
    from automate.cli.checks import make_console

    console = make_console(stderr=True)
    if not console.is_terminal:
        yield
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn(), console=console,
                  transient=True) as bar:
        bar.add_task(text, total=None)
        yield


@click.command(cls=IdCommand)
@workspace_option
@key_option
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def info(workspace_dir: Path | None, key_name: str | None, name: str, as_json: bool) -> None:
    """Show the data set NAME: questions, settings, how far its evaluations are, its pools."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_dataset

    with counter(workspace_dir, key_name, make=False) as desk:
        found, names = answer_of(desk.desk.ask("dataset", id=name)), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_dataset(make_console(), found, names, now_ms())


@click.command(cls=IdCommand)
@workspace_option
@key_option
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def models(workspace_dir: Path | None, key_name: str | None, name: str, as_json: bool) -> None:
    """Show the models that are evaluated on the data set NAME, with how far each is."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_evaluated

    with counter(workspace_dir, key_name, make=False) as desk:
        found = rows_of(desk.desk.ask("models", dataset=name))
    if as_json:
        show_json(found)
    else:
        print_evaluated(make_console(), found)


@click.command("list")
@workspace_option
@key_option
@click.option("--json", "as_json", is_flag=True, help="The same as one JSON document.")
def list_(workspace_dir: Path | None, key_name: str | None, as_json: bool) -> None:
    """Show all data sets."""
    from automate.cli.checks import make_console
    from automate.cli.views.pools import print_datasets

    with counter(workspace_dir, key_name, make=False) as desk:
        found, names = rows_of(desk.desk.ask("datasets")), names_of(desk)
    if as_json:
        show_json(found)
    else:
        print_datasets(make_console(), found, names)
