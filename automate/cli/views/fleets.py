"""A fleet's table: what it is, its workers, what their time went into, and what went wrong.

Pure; for a terminal of any width. Names, reasons and causes are shown as text, never as markup."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from automate.cli.views.blocks import table
from automate.cli.views.cells import Column, clean, cut, fold
from automate.cli.views.marks import UNICODE, Marks, marks_for
from automate.cli.views.numbers import NONE, clock, share, short
from automate.cli.views.words import count
from automate.durations import in_words

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions

    from automate.fleets.rows import WorkerRow
    from automate.fleets.status import FleetStatus, ModelRow

STYLES = {"ready": "green", "loading": "cyan", "draining": "yellow", "refused": "red", "silent": "red",
          "unknown": "magenta", "waiting": "", "ended": "dim"}
MOST_ENDED = 5
"""Rows of ended starts in a table; the others are counted."""
MOST_FAILURES = 6
BAR = 24
KINDS = (("work", "green"), ("load", "yellow"), ("idle", "dim"))
"""What servers' time goes into, in the order of the bar."""


class FleetTable:
    """A fleet as a rich renderable: as wide as there is room."""

    def __init__(self, status: FleetStatus) -> None:
        self.status = status

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[Text]:
        yield from fleet_lines(self.status, options.max_width, marks_for(console.encoding))


def fleet_table(status: FleetStatus) -> FleetTable:
    """For `Console.print`."""
    return FleetTable(status)


def fleet_lines(status: FleetStatus, width: int, marks: Marks = UNICODE, *, short: bool = False) -> Iterator[Text]:
    """Every line of the table, none wider than `width` cells. `short`: only what it is and what it used."""
    workers = () if short else worker_lines(status, width)
    for line in (*_head(status, width, marks), *workers, spent_line(status, width, marks),
                 *failure_lines(status, width)):
        line.truncate(width, overflow="ellipsis")
        yield line


def headline(status: FleetStatus, marks: Marks = UNICODE) -> str:
    """`Fleet main: up · 3 of 4 servers ready · router http://127.0.0.1:8100`."""
    servers = f"{status.ready} of {count(status.wanted, 'server')} ready"
    parts = [status.state, servers if status.state == "up" else f"{status.ready} ready" if status.ready else ""]
    parts += [f"router {status.router}" if status.router else ""]
    using = status.users if status.state != "over" else {}
    parts += ["used by " + ", ".join(count(many, who) for who, many in using.items()) if using else ""]
    return clean(f"Fleet {status.name}: " + f" {marks.dot} ".join(part for part in parts if part))


def _head(status: FleetStatus, width: int, marks: Marks) -> Iterator[Text]:
    for at, line in enumerate(fold(headline(status, marks), width, "  ", "")):
        yield Text(line, "bold" if at == 0 else "")
    for model in status.models if status.state != "over" else ():
        yield from (Text(line) for line in fold(clean(model_words(model)), width, "    ", "  "))
    for problem in status.problems:
        yield from (Text(line, "yellow") for line in fold(clean(f"! {problem}"), width, "    ", "  "))


def model_words(model: ModelRow) -> str:
    """`judge-70b: 2 of 4 ready, 1 loading (between 2 and 8)`."""
    more = [f"{many} {state}" for state, many in model.states.items() if state not in ("ready", "ended")]
    also = f" (and {count(len(model.also), 'adapter')}: {', '.join(model.also)})" if model.also else ""
    bounds = f" (between {model.least} and {model.most})" if model.least != model.most else ""
    ready = f"{model.ready} of {model.wanted} ready" if model.wanted or not model.ready else f"{model.ready} ready"
    return f"{model.model}{also}: " + ", ".join([ready, *more]) + bounds


# --- workers -----------------------------------------------------------------------------------------
def worker_lines(status: FleetStatus, width: int) -> Iterator[Text]:
    """A title and a line for each worker, its remark below where there is no room beside."""
    shown, left_out = _shown(status.workers)
    if not shown:
        yield Text("  no server waits or runs", "dim")
        return
    several = len(status.models) > 1
    columns = _columns(several)
    cells = [_cells(row, several) for row in shown]
    title, lines = table(columns, cells, width)
    yield Text(title, "dim")
    for row, line in zip(shown, lines, strict=True):
        text = Text(line, "dim" if row.state == "ended" else "")
        text.highlight_words([row.state], STYLES.get(row.state, ""))
        yield text
        if row.note:
            style = "dim" if row.state == "ended" else "yellow"
            yield from (Text(one, style) for one in fold(clean(row.note), width, "      ", "    "))
    if left_out:
        yield Text(cut(f"  and {left_out} more that ended", width), "dim")


def _shown(rows: Sequence[WorkerRow]) -> tuple[list[WorkerRow], int]:
    ended = [row for row in rows if row.state == "ended"]
    return [row for row in rows if row.state != "ended"] + ended[:MOST_ENDED], max(0, len(ended) - MOST_ENDED)


def _columns(several: bool) -> list[Column]:
    model = [Column("model", least=10, most=32, drop=2, how="middle")] if several else []
    return [Column("worker", least=8, most=24, how="middle", drop=7), *model, Column("job", least=8, most=18),
            Column("node", least=6, most=20, how="middle", drop=3), Column("state"), Column("running", "right"),
            Column("waiting", "right"), Column("hits", "right", drop=1), Column("done", "right", drop=6),
            Column("age", "right", drop=5), Column("left", "right")]


def _cells(row: WorkerRow, several: bool) -> list[str]:
    running = row.running if row.running is not None else row.in_flight
    return [clean(row.worker) or NONE, *([clean(row.model)] if several else []), clean(row.job or NONE),
            clean(row.node or NONE), row.state, short(running), short(row.waiting), share(row.prefix_hits),
            short(row.served) if row.served else NONE, clock(row.age), clock(row.left)]


# --- what it cost, and what went wrong ---------------------------------------------------------------
def spent_words(status: FleetStatus) -> str:
    """`3 h 05 min of servers' time: work 80%, load 12%, idle 8%`; with GPU-hours where the servers have GPUs."""
    if not status.shares:
        return "no server's time was used yet"
    what = ", ".join(f"{name} {100 * status.shares.get(name, 0.0):.0f}%" for name, _ in KINDS)
    gpus = f" ({status.gpu_seconds / 3600:.2f} GPU-hours)" if status.gpu_seconds else ""
    past = f" ({in_words(status.earlier.total)} of it before the fleet was made anew)" if status.earlier.total else ""
    return f"{in_words(status.spent.total)} of servers' time{gpus}: {what}{past}"


def spent_line(status: FleetStatus, width: int, marks: Marks = UNICODE) -> Text:
    """The same with a bar."""
    line = Text("  ")
    said = spent_words(status)
    if status.shares and width >= len(said) + BAR + 4:
        for sign, style in _bar(status, marks):
            line.append(sign, style)
        line.append("  ")
    return line.append(cut(said, max(1, width - 2)))


def _bar(status: FleetStatus, marks: Marks) -> Iterator[tuple[str, str]]:
    """Pieces of the bar: BAR cells in all, one at least for what is not nothing."""
    signs = {"work": marks.full, "load": "=" if marks.full == "#" else "╍", "idle": marks.empty}
    left = BAR
    for name, style in KINDS[:2]:
        part = status.shares.get(name, 0.0)
        cells = min(left, max(1, round(part * BAR))) if part > 0 else 0
        left -= cells
        yield signs[name] * cells, style
    yield signs["idle"] * left, "dim"


def failure_lines(status: FleetStatus, width: int) -> Iterator[Text]:
    """A line for each of the first failures, and its next step below; the others are counted."""
    for one in status.failures[:MOST_FAILURES]:
        where = f" on {one.node}" if one.node else ""
        named = one.job and one.kind != "refused"  # such a record may name another's job
        who = f"job {one.job}{where}" if named else f"worker {one.worker}{where}"
        yield from (Text(line, "red") for line in fold(clean(f"{who}: {one.cause}"), width, "    ", "  "))
        yield from (Text(line, "dim") for line in fold(clean(one.todo), width, "      ", "    -> "))
    if len(status.failures) > MOST_FAILURES:
        yield Text(cut(f"  and {len(status.failures) - MOST_FAILURES} more failures", width), "red")
