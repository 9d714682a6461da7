"""`monitor --watch`: looks, draws, waits, until somebody ends it.

Never ends for what it sees: an error becomes a line of the view, and the next look may succeed."""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from automate.cli.views.monitor_text import UNLIMITED, short_line

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.monitoring.monitor import Snapshot, Watch
    from automate.workspace import Workspace

QUIT = frozenset("qQ\x03\x04")


def text_width() -> int:
    """Columns for plain text: the terminal's, or COLUMNS; without both, lines are as long as they are."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdigit():
        return max(20, shutil.get_terminal_size().columns)
    return UNLIMITED


def run_watch(reopen: Callable[[], Workspace], interval: float) -> None:
    """Follow a campaign until Ctrl-C, `q` or a signal. Raises FlockError only where there is no workspace at all."""
    from rich.console import Console

    from automate.campaign.monitoring.monitor import Watch

    watch = Watch(reopen)
    console = Console(highlight=False)
    if console.is_terminal and not console.is_dumb_terminal and sys.stdout.isatty():
        last = _live(watch, console, interval)
    else:
        last = _plain(watch, interval)
    click.echo((f"{short_line(last)}\n" if last else "") + "The view has ended; the jobs go on.", err=last is None)


def _look(watch: Watch, last: Snapshot | None) -> tuple[Snapshot | None, list[str]]:
    """A look, or the last one with what went wrong."""
    try:
        return watch.look(), []
    except Exception as error:  # a view that is left open for a day outlives what it can't read
        return last, [f"this look failed: {error or type(error).__name__}; trying again"]


def _plain(watch: Watch, interval: float) -> Snapshot | None:
    """One line each interval, for logs and pipes."""
    last: Snapshot | None = None
    try:
        while True:
            last, trouble = _look(watch, last)
            for line in [*([short_line(last)] if last else []), *trouble]:
                click.echo(line)
            time.sleep(interval)
    except KeyboardInterrupt:
        return None


def _live(watch: Watch, console: Console, interval: float) -> Snapshot | None:
    from rich.text import Text

    from automate.cli.views.cells import clean, cut
    from automate.cli.views.dashboard import view
    from automate.cli.views.marks import marks_for
    from automate.cli.views.screen import Screen

    marks = marks_for(console.encoding)
    last: Snapshot | None = None
    screen = Screen(console)
    try:
        with screen.on():
            while True:
                last, trouble = _look(watch, last)
                due = time.monotonic() + interval
                while (left := due - time.monotonic()) > 0:
                    width, height = screen.size
                    screen.draw(view(last, width, height, marks, trouble) if last is not None
                                else [Text(cut(clean(line), width)) for line in trouble])
                    key = screen.wait(left)
                    if set(key) & QUIT:
                        return last
                    if key:
                        break  # any other key: look now
    except (KeyboardInterrupt, EOFError):
        return last
