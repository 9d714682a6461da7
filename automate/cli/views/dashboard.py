"""The live view: a snapshot as lines that fit a terminal, its width and its height.

Pure; names and Slurm's words are shown as text, never as markup. What doesn't fit is summed up in a line."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.text import Text

from automate.campaign.monitoring.vitals import PLAYING
from automate.cli.views import words
from automate.cli.views.blocks import Block, beside, fit, ranges, table, titled
from automate.cli.views.cells import Column, clean, cut, fold, middle
from automate.cli.views.fleet_blocks import fleet_blocks
from automate.cli.views.marks import Marks
from automate.cli.views.numbers import NONE, moment, percent, short, size

if TYPE_CHECKING:
    from automate.campaign.monitoring.picture import JobLine, ModelLine, Snapshot

WIDE = 150
"""From this width on, models stand beside the rest."""
STYLES = {"complete": "green", "partial": "cyan", "waiting": "", "unknown": "magenta", "no answers": "red",
          "incomplete": "yellow"}


def view(snap: Snapshot, width: int, height: int, marks: Marks, trouble: Sequence[str] = ()) -> list[Text]:
    """The whole view: at most `height` lines, none wider than `width` cells. `trouble`: lines about the view itself."""
    head = _head(snap, width, height, marks, trouble)[:height]
    left = height - len(head)
    if width >= WIDE:
        gap = 3
        one = (width - gap) * 11 // 20
        other = width - gap - one
        pair = (fit([block for block in _blocks(snap, one, marks) if block.rank != MODELS], one, left),
                fit([_models(snap, other, marks)], other, left))
        return [*head, *beside(*pair, one, gap)]
    return [*head, *fit(_blocks(snap, width, marks), width, left)]


RUNNING, FAILURES, MODELS, PENDING, UNKNOWN, NODES, WAITING, PROBLEMS, LOGS, ANSWERS = 1, 2, 3, 4, 0, 5, 6, 7, 8, 2


def _blocks(snap: Snapshot, width: int, marks: Marks) -> list[Block]:
    found = [_running(snap, width, marks), *fleet_blocks(snap.fleets, width, marks, RUNNING), _pending(snap, width),
             *_generation(snap, width, marks), _unknown(snap, width), _waiting(snap, width), _failures(snap, width),
             _nodes(snap, width), _models(snap, width, marks), _problems(snap, width), _logs(snap, width)]
    return [block for block in found if block.rows or block.rank in (RUNNING, MODELS)]


# --- the head ----------------------------------------------------------------------------------------


def _head(snap: Snapshot, width: int, height: int, marks: Marks, trouble: Sequence[str]) -> list[Text]:
    when = time.strftime("%H:%M:%S", time.localtime(snap.time))
    right = ", ".join(part for part in (when, "" if snap.queue.problem else words.queue(snap)) if part)
    right = right if cell_len(right) + 30 <= width else when
    judge = clean(snap.judge) + ("" if snap.judge_kind == "vllm" else f" ({snap.judge_kind})")
    room, about = width - cell_len(right) - 2, f"judge {judge}, baseline {clean(snap.baseline)}"
    name = f"Arena Hard Judgment Monitor {marks.dot} {about}"
    name = name if cell_len(name) <= room else middle(about if cell_len(about) <= room else judge, room)
    first = Text(name, "bold")
    first.append(" " * max(1, width - cell_len(name) - cell_len(right)), "")
    first.append(right, "dim")
    out = [first, _whole(snap, width, marks)]
    out += [Text(line) for line in _facts(snap, width, marks)[:3 if height < 30 else 6]]
    notices = [words.queue(snap)] if snap.queue.problem else []
    out += [Text(cut(f"! {clean(notice)}", width), "yellow") for notice in [*notices, *snap.notices]]
    out += [Text(cut(clean(words.sentence(snap.report)), width), "dim")] if snap.report else []
    out += [Text(cut(f"! {clean(line)}", width), "red") for line in trouble]
    return [*out, Text()]


def _whole(snap: Snapshot, width: int, marks: Marks) -> Text:
    """The bar over all games; over all answers where no game can be counted yet."""
    totals = snap.totals
    games, wanted = totals["games"], totals["wanted"]
    if not wanted and totals["answers_wanted"]:
        return _bar(totals["answers"], totals["answers_wanted"], "answers", width, marks)
    end = words.ends(snap)
    return _bar(games, wanted, "games" + (f", {end}" if end else ""), width, marks)


def _bar(done: int, wanted: int, things: str, width: int, marks: Marks) -> Text:
    about = cut(f" {percent(done, wanted)}  {done}/{wanted} {things}", max(10, width - 10))
    return Text.assemble(*marks.bar(done, wanted, max(5, min(60, width - cell_len(about)))), about)


def _facts(snap: Snapshot, width: int, marks: Marks) -> list[str]:
    """Speed, batches, nulls and GPU-hours on as few lines as they need, in the order of their weight."""
    speed = [f"{name} {value}" for name, value in words.speed(snap.rates)]
    more = [words.batches(snap.batches), words.silent(snap.rates), words.nulls(snap.nulls), words.gpu_hours(snap)]
    out: list[str] = []
    for part in [clean(part) for part in [*speed[:3], *more, *speed[3:]] if part]:
        place = next((i for i, line in enumerate(out) if cell_len(line) + cell_len(part) + 3 <= width), None)
        if place is None:
            out.append(cut(part, width))
        else:
            out[place] += f" {marks.dot} {part}"
    return out


# --- jobs --------------------------------------------------------------------------------------------


def _generation(snap: Snapshot, width: int, marks: Marks) -> list[Block]:
    """Jobs that make answers, and the models that lack some."""
    if not (any(snap.jobs("generate")) or snap.totals["answers_due"]):
        return []
    lacking = sorted((line for line in snap.answers if line.due or line.problem), key=lambda line: -line.due)
    columns = [Column("model", least=24, how="middle"), Column("", drop=1), Column("done", "right"),
               Column("answers", "right", drop=2), Column("batch", "right", drop=3), Column("", drop=4, most=60)]
    cells = [[clean(line.model), marks.flat(line.done, line.wanted, 10),
              percent(line.done, line.wanted), f"{line.done}/{line.wanted}",
              str(line.batch or ""), clean(words.answer_note(line))] for line in lacking]
    title, lines = table(columns, cells, width)
    models = Block(titled("Answers", len(lacking), words.answers(snap), width),
                   [marks.paint(Text(line)) for line in lines], ANSWERS, 2,
                   lambda kept: f"and {len(lines) - kept} more models that lack answers", Text(title, "dim"))
    return [_running(snap, width, marks, "generate"), _pending(snap, width, "generate"), models]


def _running(snap: Snapshot, width: int, marks: Marks, kind: str = "judge") -> Block:
    jobs, about = snap.jobs(kind)[0], f"Running {words.title(kind)} Jobs"
    things = words.things(kind)
    games = {(batch.plan, batch.batch): batch for batch in snap.batches}
    columns = [Column("job", least=12, most=16), Column("batch", "right", drop=6), Column("phase", least=28, most=34),
               Column("node", drop=4, least=6, most=16, how="middle"), Column(things, "right", drop=7),
               Column("", drop=2), Column("done", "right"), Column(f"{things}/s", "right", drop=1),
               Column("tok/s out", "right", drop=8), Column("req", "right", drop=9), Column("KV", "right", drop=9),
               Column("GPU", "right", drop=10)]
    cells = []
    for job in jobs:
        batch = games.get((job.plan, job.batch))
        done, wanted = (batch.games, batch.wanted) if batch else (0, 0)
        cells.append([clean(job.job), str(job.batch), clean(words.doing(job)),
                      clean(job.nodes), f"{done}/{wanted}", marks.flat(done, wanted, 10), percent(done, wanted),
                      short(job.rate if job.phase in PLAYING else None), *_server_cells(job)])
    if not cells:
        return Block(titled(f"{about}: None", 0), [], RUNNING)
    title, lines = table(columns, cells, width)
    rows = []
    for job, line in zip(jobs, lines, strict=True):
        rows.append(marks.paint(Text(line, "dim" if words.old(job.age) else "")))
        note = "; ".join(part for part in (words.old(job.age), job.note) if part)
        if note:
            rows.append(Text(cut(f"    {clean(note)}", width), "yellow"))
    return Block(titled(about, len(jobs)), rows, RUNNING, 4, lambda kept: f"and more: {len(jobs)} jobs in all",
                 Text(title, "dim"))


def _server_cells(job: JobLine) -> list[str]:
    server = job.server
    if server is None:
        return [NONE, NONE, NONE, _gpu(job)]
    kv = NONE if server.kv_usage is None else f"{100 * server.kv_usage:.0f}%"
    requests = NONE if server.running is None else f"{server.running:.0f}" + (
        f"+{server.waiting:.0f}" if server.waiting else "")
    return [short(server.output_rate), requests, kv, _gpu(job)]


def _gpu(job: JobLine) -> str:
    used = [gpu.memory_used_mb for gpu in job.gpu_use if gpu.memory_used_mb is not None]
    busy = [gpu.utilization for gpu in job.gpu_use if gpu.utilization is not None]
    parts = [f"{sum(used) / 1024:.0f} GB"] if used else []
    parts += [f"{sum(busy) / len(busy):.0f}%"] if busy else []
    return " ".join(parts) or NONE


def _pending(snap: Snapshot, width: int, kind: str = "judge") -> Block:
    """Pending jobs of a kind of work, those that wait for the same reason on one line."""
    mine = snap.jobs(kind)[1]
    groups: dict[tuple[str, str, str], list[JobLine]] = {}
    for job in mine:
        groups.setdefault((words.waits(job), job.advice, job.note), []).append(job)
    rows = []
    for (why, advice, note), jobs in groups.items():
        numbers = ranges([job.batch for job in jobs])
        line = Text(cut(f"  batch {numbers}: {clean(why)}", width), "red" if jobs[0].never else "")
        rows.append(line)
        if note:
            rows += [Text(line, "yellow") for line in fold(clean(note), width, "      ", "    ")]
        if advice:
            rows.append(Text(cut(f"    -> {clean(advice)}", width), "dim"))
    return Block(titled(f"Pending {words.title(kind)} Jobs", len(mine)), rows, PENDING, 1,
                 lambda kept: f"and more: {len(mine)} jobs in all")


def _unknown(snap: Snapshot, width: int) -> Block:
    rows = [Text(cut(f"  {clean(job.job)} ({words.batch_name(job.kind, job.batch)}): {clean(job.evidence)}", width),
                 "magenta") for job in snap.unknown]
    return Block(titled("Jobs in an unknown state", len(rows)), rows, UNKNOWN, 1,
                 lambda kept: f"and {len(rows) - kept} more")


def _waiting(snap: Snapshot, width: int) -> Block:
    groups: dict[tuple[str, str], list[int]] = {}
    for batch in snap.batches:
        if batch.state == "planned":
            groups.setdefault((batch.kind, batch.why), []).append(batch.batch)
    rows = [Text(cut(f"  {words.batch_name(kind, ranges(numbers))}: {clean(why)}", width))
            for (kind, why), numbers in groups.items()]
    return Block(titled("Batches not handed in yet", sum(map(len, groups.values()))), rows, WAITING, 1,
                 lambda kept: f"and {len(rows) - kept} more reasons")


def _failures(snap: Snapshot, width: int) -> Block:
    rows = []
    for failure in snap.failures:
        where = f" on {failure.node}" if failure.node else ""
        noun = f"{words.things(failure.work)} due"
        due = "" if noun in failure.cause or not failure.due else f", {failure.due} {noun}"
        head = f"  {words.batch_name(failure.work, failure.batch)}, job {failure.job}{where}: {failure.cause}{due}"
        rows.append(Text(cut(clean(head), width), "red"))
        if failure.next:
            rows.append(Text(cut(f"    the job {clean(failure.next)}", width)))
        rows.append(Text(cut(f"    -> {clean(failure.todo)}", width), "dim"))
    return Block(titled("Failures", len(snap.failures)), rows, FAILURES, 2,
                 lambda kept: f"and more: {len(snap.failures)} failures in all; 'flock-hpc monitor' lists them")


def _nodes(snap: Snapshot, width: int) -> Block:
    rows = [Text(cut(f"  {clean(words.bad_node(node))}", width), "yellow") for node in snap.bad_nodes]
    return Block(titled("Bad Nodes", len(rows), "'flock-hpc nodes' forgives", width), rows, NODES, 1,
                 lambda kept: f"and {len(rows) - kept} more")


# --- models, problems, logs --------------------------------------------------------------------------

_ORDER = {"partial": 1, "incomplete": 2, "waiting": 3, "unknown": 4, "no answers": 5, "complete": 6}


def _moving(snap: Snapshot) -> list[ModelLine]:
    """Models with those first that move: in a running batch, then begun, then waiting, complete last."""
    running = {name for batch in snap.batches if batch.state == "running" and batch.kind == "judge"
               for name in batch.models}
    return sorted(snap.models, key=lambda m: (0 if m.model in running and m.due else _ORDER.get(m.state, 9),
                                              -m.games if m.due else 0))


def _models(snap: Snapshot, width: int, marks: Marks) -> Block:
    models = _moving(snap)
    columns = [Column("", drop=0), Column("model", least=34, how="middle"), Column("", drop=1), Column("done", "right"),
               Column("games", "right", drop=2), Column("nulls", "right", drop=3), Column("batch", "right", drop=4),
               Column("", least=12, most=60, drop=5)]
    cells = []
    for model in models:
        nulls = sum(model.nulls.values())
        state = [] if model.state in ("complete", "partial") else [model.state]
        cells.append([marks.state(model.state), clean(model.model),
                      marks.flat(model.games, model.wanted, 10 if width < 100 else 16) if model.wanted else "",
                      percent(model.games, model.wanted), f"{model.games}/{model.wanted}",
                      str(nulls) if nulls else "", str(model.batch or ""),
                      clean(", ".join([*state, *words.model_note(model)]))])
    if not any(cell[7] for cell in cells):
        columns, cells = columns[:7], [cell[:7] for cell in cells]
    title, lines = table(columns, cells, width)
    rows = []
    for model, line in zip(models, lines, strict=True):
        rows.append(marks.paint(Text(line), STYLES.get(model.state, "")))
    totals = snap.totals
    about = f"{totals['complete']} complete, {totals['with_answers']} with answers"
    return Block(titled("Models", len(models), about, width), rows, MODELS, 3, lambda kept: _rest(models[kept:]),
                 Text(title, "dim"))


def _rest(models: Sequence[ModelLine]) -> str:
    """What is left out, by state: and 87 complete, 12 waiting."""
    counts: dict[str, int] = {}
    for model in models:
        counts[model.state] = counts.get(model.state, 0) + 1
    return "and " + ", ".join(f"{count} {state}" for state, count in counts.items())


def _problems(snap: Snapshot, width: int) -> Block:
    found = [*snap.problems, *(problem for model in snap.models for problem in model.problems)]
    rows = [Text(cut(f"  {clean(problem)}", width), "yellow") for problem in found]
    return Block(titled("Problems in files", len(rows)), rows, PROBLEMS, 1, lambda kept: f"and {len(rows) - kept} more")


def _logs(snap: Snapshot, width: int) -> Block:
    rows = []
    for path, count, modified in snap.logs:
        about = f"  {size(count)}, {moment(modified, snap.time)}"
        name = middle(clean(path.rpartition("/")[2]), width - 2 - len(about))
        rows.append(Text(f"  {name}{about}", "dim"))
    return Block(titled("Recent Judgment Logs", len(rows)), rows, LOGS, 1, lambda kept: f"and {len(rows) - kept} more")
