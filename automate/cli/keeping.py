"""`export` and `import`: a campaign in one file, and back."""

from __future__ import annotations

from pathlib import Path

import click

from automate.cli.options import open_here, workspace_option


@click.command()
@workspace_option
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--with-answers", is_flag=True, help="Also questions, answers and the checkout's configuration.")
def export(workspace_dir: Path | None, file: Path, with_answers: bool) -> None:
    """Put the campaign into FILE (.tar.gz or .tar.zst): records, judgments, settings, plans, and their hashes.

    What .flock-hpc/secrets holds is not in it; settings and plans are in it as they
    are. While jobs run it holds what was recorded until now.
    """
    from automate.campaign.keeping.archive import pack_workspace

    workspace = open_here(workspace_dir)
    done = pack_workspace(workspace, file, answers=with_answers)
    for note in done.notes:
        click.echo(note)
    for note in done.suspects[:20]:
        click.secho(note, fg="yellow")
    if len(done.suspects) > 20:
        click.secho(f"and {len(done.suspects) - 20} files more seem to hold one", fg="yellow")
    if done.active:
        click.echo(f"{len(done.active)} job(s) wait or run ({', '.join(done.active[:5])}): the archive holds what was "
                   "recorded until now", err=True)
    click.echo(f"{file}: {len(done.files)} files, {done.bytes / 1e6:.1f} MB")
    if not with_answers:
        click.echo("Questions and answers are not in it (--with-answers); keep the Arena-Hard checkout.")
    click.echo(f"Take it in elsewhere with:  flock-hpc import {file.name} NEW_FOLDER")


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False, exists=True))
@click.argument("directory", type=click.Path(path_type=Path, file_okay=False), default=".")
def import_(file: Path, directory: Path) -> None:
    """Take the archive FILE into DIRECTORY (default: here): a new workspace, or one that is there.

    Records are merged by name; settings and answers that are there stay. Only take archives of people you trust:
    settings and templates become job scripts.
    """
    from automate.campaign.keeping.restore import restore

    root = directory.resolve()
    done = restore(file, root)
    for note in done.notes[:20]:
        click.echo(note)
    if len(done.notes) > 20:
        click.echo(f"and {len(done.notes) - 20} notes more")
    click.echo(f"{root}: {done.new} files are new, {done.same} were there, {done.merged} were merged, "
               f"{done.kept} were left as they are here")
    click.echo("Next:\n  flock-hpc validate-only\n  flock-hpc monitor")
