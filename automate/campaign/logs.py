"""A batch's logs: where they are, their ends, and what is added to them.

Reads by polling, as shared file systems tell nobody of changes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from automate.campaign.state import BatchView, log_files, look
from automate.errors import DataError
from automate.serving.causes import tail
from automate.workspace import Workspace

POLL = 1.0
Echo = Callable[[str], None]


def newest(workspace: Workspace, batch: int, answers: bool = False) -> BatchView:
    """The batch of this number that was submitted last, else planned last. Raises DataError.

    One that judges, where there is any and not `answers` of a batch that generates them are asked for.
    """
    views = [view for view in look(workspace).batches if view.batch.number == batch]
    judging = [view for view in views if view.kind == "judge"]
    views = judging if judging and not answers else [view for view in views if view.kind == "generate"]
    if not views:
        what = f"no batch {batch} of answers" if answers else f"no batch {batch}"
        raise DataError(f"{what} was ever planned here", where=str(workspace.plans),
                        todo="see the batches with 'flock-hpc monitor' or 'flock-hpc judge --dry-run'")
    return next((view for view in reversed(views) if view.status is not None or log_files(workspace, view)), views[-1])


def show(workspace: Workspace, batch: int, echo: Echo, *, follow: bool, count: int, paths_only: bool,
         answers: bool = False) -> None:
    """Print the ends of a batch's logs, and with `follow` what is added, until its job has ended."""
    view = newest(workspace, batch, answers)
    job = f", job {view.job}" if view.job else ""
    what = "answers batch" if view.kind == "generate" else "batch"
    echo(f"{what} {batch} of plan {view.stored.plan.id}: {view.state}{job}")
    seen: dict[Path, int] = {}
    for path in log_files(workspace, view):
        seen[path] = path.stat().st_size
        echo(f"==> {path} <==")
        if not paths_only:
            echo(tail(path, count))
    if not seen:
        echo("no logs yet")
    if follow and not paths_only:
        _follow(workspace, batch, view, echo, seen)


def _follow(workspace: Workspace, batch: int, view: BatchView, echo: Echo, seen: dict[Path, int]) -> None:
    asked = time.monotonic()
    last: Path | None = None
    while True:
        added = False
        for path in log_files(workspace, view):
            start, size = seen.get(path, 0), path.stat().st_size
            if size > start:
                with path.open("rb") as file:
                    file.seek(start)
                    data = file.read(size - start)
                seen[path], added = start + len(data), True
                if path != last:
                    echo(f"==> {path} <==")
                    last = path
                echo(data.decode("utf-8", "replace").rstrip("\n"))
        if not added and not view.may_act:
            return
        if time.monotonic() - asked > 10 * POLL:
            asked, view = time.monotonic(), newest(workspace, batch, view.kind == "generate")
        time.sleep(POLL)
