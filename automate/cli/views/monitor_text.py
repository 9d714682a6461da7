"""The monitor's plain text, section by section: for terminals of any width, for pipes, files and scripts.

Never reads a file. Its titles stay as they are: people's scripts look for them."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len

from automate.campaign.monitoring.picture import ICONS
from automate.cli.views import words
from automate.cli.views.cells import Column, clean, cut, fold, row, widths
from automate.cli.views.fleets import fleet_lines
from automate.cli.views.numbers import moment, size

if TYPE_CHECKING:
    from automate.campaign.monitoring.picture import JobLine, ModelLine, Snapshot

UNLIMITED = 10_000
MOST_PROBLEMS = 20
NAME = 47
"""Cells of a model's name beside its sign, where there is room: the width that it always had."""


def lines(snap: Snapshot, width: int = UNLIMITED) -> Iterator[str]:
    """The text, no line of it wider than `width` cells."""
    for part in (_head, _jobs, _fleets, _generation, _baseline, _answers, _progress, _models, _failures,
                 _nodes, _waiting, _problems, _logs):
        for line in part(snap, width):
            yield cut(clean(line), width)


def _head(snap: Snapshot, width: int) -> Iterable[str]:
    yield "=== Arena Hard Judgment Monitor ==="
    for notice in snap.notices:
        yield from fold(clean(notice), width, "   ", "⚠️  ")
    if snap.queue.problem:
        yield from fold(clean(words.queue(snap)), width, "   ", "⚠️  ")
    if snap.report:
        yield from fold(clean(words.sentence(snap.report)), width, "   ", "📄 ")
    yield ""


def _jobs(snap: Snapshot, width: int) -> Iterable[str]:
    running, pending, _ = snap.jobs("judge")
    yield from _section("🏃 Running Judgment Jobs", running, width)
    yield from _section("⏳ Pending Judgment Jobs", pending, width)
    if snap.unknown:
        yield from _section("❔ Jobs in an unknown state", snap.unknown, width)
    yield ""


def _fleets(snap: Snapshot, width: int) -> Iterable[str]:
    """Fleets of model servers, where there are any; of one that is over what it came to."""
    for fleet in snap.fleets:
        first, *rest = [line.plain for line in fleet_lines(fleet, width, short=fleet.state == "over")]
        yield f"🛰  {first}"
        yield from rest
        yield ""


def _generation(snap: Snapshot, width: int) -> Iterable[str]:
    """Jobs that make answers, where there are any, or answers are due."""
    running, pending, _ = snap.jobs("generate")
    if running or pending or snap.totals["answers_due"]:
        yield from _section("🏃 Running Generation Jobs", running, width)
        yield from _section("⏳ Pending Generation Jobs", pending, width)
        yield ""


def _answers(snap: Snapshot, width: int) -> Iterable[str]:
    """Answers of the models that were in a batch that generates them; those that are complete in one line."""
    if not snap.answers:
        return
    yield "📝 Answer Progress:"
    yield from fold(clean(words.answers(snap)), width, "  ", "")
    for line in snap.answers:
        note = words.answer_note(line)
        if line.due or note:
            about = f"{line.model}: {line.done} of {line.wanted}" + (f", {note}" if note else "")
            yield from fold(clean(about), width, "      ", "  🟡 " if line.due else "  ✅ ")
    yield ""


def _section(title: str, jobs: Sequence[JobLine], width: int) -> Iterable[str]:
    if not jobs:
        yield f"{title}: None"
        return
    yield f"{title} ({len(jobs)}):"
    for job in jobs:
        short = {"running": "R", "queued": "PD", "unknown": "?"}.get(job.state, job.state)
        where = job.nodes or (f"({job.reason})" if job.reason else "")
        yield (f"  {job.job}  {job.partition} {_word(job)}-batch-{job.batch}  {job.user}  {short}  {job.elapsed}  "
               f"{job.node_count}  {where}").rstrip()
        for about in _about(job):
            yield from fold(clean(about), width, "      ", "    " if about.startswith("→") else "    · ")


def _word(job: JobLine) -> str:
    return "answer" if job.kind == "generate" else "judge"


def _about(job: JobLine) -> Iterable[str]:
    """What is to be said of a job below its line."""
    if job.state == "running":
        yield "; ".join(part for part in (words.doing(job), words.played(job), words.old(job.age)) if part)
    elif job.state == "queued":
        yield words.waits(job)
        if job.advice:
            yield f"→ {job.advice}"
    else:
        yield job.evidence
    if job.note:
        yield job.note


def _baseline(snap: Snapshot, width: int) -> Iterable[str]:
    lacking = {line.model: line.due for line in snap.answers if line.due}
    for model, answers in snap.baseline_answers.items():
        found = f"{answers} answers" if answers else "NOT FOUND"
        due = f"; {lacking[model]} are still to be generated, their games don't count yet" if model in lacking else ""
        yield f"{'✅' if answers and not due else '❌'} Baseline Model ({model}): {found}{due}"
    yield ""


def _progress(snap: Snapshot, width: int) -> Iterable[str]:
    totals = snap.totals
    yield "📊 Judgment Progress:"
    yield f"Judge Model: {snap.judge}" + ("" if snap.judge_kind == "vllm" else f" ({snap.judge_kind})")
    yield f"Total models in config: {totals['models']}"
    yield f"Models with answers: {totals['with_answers']}"
    yield f"Models with judgments: {totals['with_judgments']}"
    games, wanted = totals["games"], totals["wanted"]
    share = f" ({min(games / wanted, 0.999) if games < wanted else 1:.1%})" if wanted else ""
    end = words.ends(snap)
    more = [f"Games: {games} of {wanted}{share}" + (f", {end}" if end else ""),
            ", ".join(f"{value} {name}" if name.endswith("/s") else f"{name} {value}"
                      for name, value in words.speed(snap.rates)),
            words.silent(snap.rates), words.nulls(snap.nulls), words.batches(snap.batches), words.gpu_hours(snap)]
    for line in more:
        yield from fold(clean(line), width, "  ", "") if line else ()
    yield ""


def _models(snap: Snapshot, width: int) -> Iterable[str]:
    yield "📈 Detailed Model Status:"
    names = max([cell_len(clean(model.model)) for model in snap.models], default=0)
    columns = [Column("Model Name", least=20, most=NAME + 3 if names <= NAME else UNLIMITED, how="middle"),
               Column("Answers", "right"), Column("Judgments (Q/G)", "right"), Column("Nulls", "right"),
               Column("State", least=12)]
    table = [_cells(model) for model in snap.models]
    beside = width >= 100
    if not beside:
        columns, table = columns[:4], [cells[:4] for cells in table]
    title = [column.title for column in columns]
    sizes = widths(columns, table, width, gap=3)
    if names <= NAME:
        sizes[0] = max(sizes[0], min(NAME + 3, width - sum(sizes[1:]) - 3 * (len(sizes) - 1)))
    yield " | ".join(row(columns, sizes, title)).rstrip()
    yield "-" * min(width, max(80, sum(sizes) + 3 * (len(sizes) - 1)) if beside else 80)
    for model, cells in zip(snap.models, table, strict=True):
        yield " | ".join(row(columns, sizes, cells)).rstrip()
        notes = words.model_note(model)
        if notes and not beside:
            yield from fold(clean(", ".join(notes)), width, "     ", "   ↳ ")


def _cells(model: ModelLine) -> list[str]:
    note = ", ".join([model.state, *words.model_note(model),
                      *([f"batch {model.batch}"] if model.batch and model.state in ("partial", "waiting") else [])])
    nulls = sum(model.nulls.values())
    reasons = f" ({', '.join(f'{n} {why}' for why, n in model.nulls.items())})" if nulls else ""
    return [f"{ICONS[model.state]} {clean(model.model)}", str(model.answers), f"{model.questions}/{model.games}",
            str(nulls), clean(note + reasons)]


def _failures(snap: Snapshot, width: int) -> Iterable[str]:
    if not snap.failures:
        return
    yield ""
    yield f"💥 Failures ({len(snap.failures)}):"
    for failure in snap.failures:
        yield from fold(clean(f"{words.batch_name(failure.work, failure.batch)}, job {failure.job}: "
                              f"{words.ended(failure.state, failure.cause)}"), width, "    ", "  ")
        for fact in failure.facts:
            yield from fold(clean(fact), width, "      ", "    · ")
        if failure.next:
            yield from fold(clean(f"the job {failure.next}"), width, "      ", "    · ")
        yield from fold(clean(failure.todo), width, "      ", "    → ")


def _nodes(snap: Snapshot, width: int) -> Iterable[str]:
    if snap.bad_nodes:
        yield ""
        yield f"🧯 Bad Nodes ({len(snap.bad_nodes)}):"
        for node in snap.bad_nodes:
            yield from fold(clean(words.bad_node(node)), width, "    ", "  ")
        yield from fold("→ 'flock-hpc nodes' shows why and forgives a node", width, "      ", "    ")


def _waiting(snap: Snapshot, width: int) -> Iterable[str]:
    waiting = [batch for batch in snap.batches if batch.state == "planned"]
    if not waiting:
        return
    yield ""
    yield f"📭 Batches not handed in yet ({len(waiting)}):"
    for (kind, why), numbers in _by_reason([((batch.kind, batch.why), batch.batch) for batch in waiting]).items():
        named = ", ".join(map(str, numbers[:10])) + (f" and {len(numbers) - 10} more" if len(numbers) > 10 else "")
        yield from fold(clean(f"{words.batch_name(kind, named)}: {why}"), width, "    ", "  ")


def _by_reason(pairs: Iterable[tuple[tuple[str, str], int]]) -> dict[tuple[str, str], list[int]]:
    """Numbers by (kind, reason)."""
    found: dict[tuple[str, str], list[int]] = {}
    for why, number in pairs:
        found.setdefault(why, []).append(number)
    return found


def _problems(snap: Snapshot, width: int) -> Iterable[str]:
    found = [*snap.problems, *(problem for model in snap.models for problem in model.problems)]
    if found:
        yield ""
        yield "🔎 Problems in files:"
        for problem in found[:MOST_PROBLEMS]:
            yield from fold(clean(problem), width, "    ", "  ")
        if len(found) > MOST_PROBLEMS:
            yield f"  and {len(found) - MOST_PROBLEMS} more: 'flock-hpc monitor --json' has them all"


def _logs(snap: Snapshot, width: int) -> Iterable[str]:
    if snap.logs:
        yield ""
        yield f"📄 Recent Judgment Logs ({len(snap.logs)}):"
        found = [(path, f" ({size(count)}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(modified))})")
                 for path, count, modified in snap.logs]
        whole = all(cell_len(path + about) + 2 <= width for path, about in found)
        for path, about in found:
            yield from fold(clean(path if whole else _from_here(path)) + about, width, "    ", "  ")


def _from_here(path: str) -> str:
    """A path as it is called from the current folder, where that is shorter."""
    try:
        return min(path, os.path.relpath(path), key=len)
    except (OSError, ValueError):
        return path  # the current folder is gone


def short_line(snap: Snapshot) -> str:
    """The campaign in one line, for a watch without a terminal."""
    totals = snap.totals
    parts = [f"{totals['games']} of {totals['wanted']} games", *([words.answers(snap)] if snap.answers else []),
             f"{len(snap.running)} running, {len(snap.pending)} pending"
             + (f", {len(snap.unknown)} unknown" if snap.unknown else "")]
    parts += [f"fleet {one.name}: {one.ready} of {one.wanted} ready" for one in snap.fleets if one.state != "over"]
    speed = dict(words.speed(snap.rates))
    parts += [f"{speed['games/s']} games/s"] if "games/s" in speed and snap.running else []
    parts += [part for part in (words.ends(snap), words.nulls(snap.nulls)) if part]
    parts += [words.count(len(snap.failures), "failure")] if snap.failures else []
    parts += [words.queue(snap)] if snap.queue.problem else []
    parts += [f"{words.count(len(snap.problems), 'problem')}: {snap.problems[0]}"] if snap.problems else []
    return clean(f"{time.strftime('%Y-%m-%d')} {moment(snap.time, snap.time)} " + "; ".join(parts))
