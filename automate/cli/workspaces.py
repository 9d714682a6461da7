"""`init`: make a workspace, or adopt a folder."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
@click.option("--cluster", default="generic", metavar="PROFILE",
              help="Cluster profile: local, generic, capella, or a path to a .yaml file.  [default: generic]")
@click.option("--adopt", "adopt_", is_flag=True,
              help="Take the folder's Arena-Hard checkout, models file, judgments and constants as they are.")
def init(directory: Path, cluster: str, adopt_: bool) -> None:
    """Make a workspace in DIRECTORY (default: here). Files that are there are never overwritten."""
    from automate.campaign.adopt import adopt
    from automate.campaign.setup import make_workspace

    root = directory.resolve()
    values: dict[str, object] = {}
    notes: list[str] = []
    if adopt_:
        found = adopt(root) if root.is_dir() else None
        values, notes = (found.values, found.notes) if found else ({}, [])
        click.echo(f"found in {root}:" if notes else f"nothing of an Arena-Hard run was found in {root}")
        for note in notes:
            click.echo(f"  {note}")
    for made in make_workspace(root, values, cluster):
        click.echo(f"made {made}")
    click.echo("\nNext:")
    if not (root / str(values.get("arena_hard", "arena-hard-auto"))).is_dir():
        click.echo("  put your Arena-Hard checkout at arena-hard-auto/ (or name it in flock-hpc.yaml: arena_hard)")
    if "judge_path" not in values:
        click.echo("  set judge.path in flock-hpc.yaml to the judge's model folder")
    if "models_file" not in values:
        click.echo("  list your models in arena_hard_models_to_test.txt")
    click.echo("  flock-hpc validate-only")
