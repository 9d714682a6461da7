"""`validation test`: a module on local files."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import workspace_option
from automate.cli.validation.options import open_validation

FOLDER = click.Path(path_type=Path, exists=True)


def _fields(ctx: click.Context, param: click.Parameter, values: tuple[str, ...]) -> dict[str, object]:
    import json

    out: dict[str, object] = {}
    for value in values:
        name, equals, text = value.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{value!r}: expected NAME=VALUE", ctx, param)
        try:
            out[name] = json.loads(text)
        except ValueError:
            out[name] = text
    return out


@click.command()
@workspace_option
@click.argument("module")
@click.option("--model", type=FOLDER, help="The submission: a folder with a model or an adapter, or a file.")
@click.option("--data", type=FOLDER, required=True, help="The validation set.")
@click.option("--base", type=FOLDER, help="The folder of the adapter's base model.")
@click.option("--field", "fields", multiple=True, metavar="NAME=VALUE", callback=_fields,
              help="A field of the assignment, such as max_params=8000000000. Repeat it for more.")
@click.option("--task_id", "--task-id", "task_id", metavar="ID", help="Use this task's config as well.")
@click.option("--json", "as_json", is_flag=True, help="The result as one JSON document.")
@click.pass_context
def test(ctx: click.Context, workspace_dir: Path | None, module: str, model: Path | None, data: Path,
         base: Path | None, fields: dict[str, object], task_id: str | None, as_json: bool) -> None:
    """Try MODULE on local files, in its own environment: no API, no key, nothing is reported."""
    from automate.campaign.validation.trying import try_module

    ctx.exit(try_module(open_validation(workspace_dir).validation, module, model=model, data=data, base=base,
                        fields=fields, task_id=task_id, as_json=as_json, say=click.echo))
