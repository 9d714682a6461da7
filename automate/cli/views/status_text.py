"""The audit as a table, as lines and as JSON; and a repair's plan in words.

Only words: nothing is counted or decided here."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from automate.arena.audit_words import (
    answers_due,
    answers_faults,
    answers_in_file,
    answers_remarks,
    games_due,
    games_faults,
    games_in_file,
    joined,
    nulls,
    plain,
)
from automate.errors import visible

if TYPE_CHECKING:
    from rich.console import Console

    from automate.arena.audit import Audit, GamesAudit, ModelAudit
    from automate.arena.audit_answers import AnswersAudit
    from automate.campaign.repairing import Repair
    from automate.campaign.state import BatchView
    from automate.workspace import Workspace

SCHEMA = 1
COLOURS = {"complete": "green", "missing": "red", "incomplete": "yellow", "invalid": "red", "stale": "yellow",
           "unknown": "magenta"}
Busy = Mapping[str, "tuple[BatchView, ...]"]
Step = tuple[str, Sequence[str], Callable[[str], list[str]]]
"""A step of a repair: its title, its models, and what is to be done for each."""


def as_document(workspace: Workspace, found: Audit, busy: Busy, problems: Sequence[str]) -> dict[str, Any]:
    """The audit as one JSON document; see docs/status.md."""
    settings = workspace.settings
    return {
        "schema": SCHEMA, "time": round(time.time(), 3), "bench": settings.bench, "judge": settings.judge.name,
        "baseline": settings.baseline, "questions": found.questions, "complete": found.complete,
        "problem": found.problem, "problems": list(problems), "baselines": [_answers(one) for one in found.baselines],
        "models": [{"model": one.model, "answers": _answers(one.answers), "judgments": _games(one.games),
                    "at_work": [f"batch {view.batch.number} ({view.kind})" for view in busy.get(one.model, ())]}
                   for one in found.models],
        "totals": totals(found),
    }


def _answers(found: AnswersAudit) -> dict[str, Any]:
    return {**asdict(found), "state": found.state, "due": found.due, "causes": answers_faults(found)}


def _games(found: GamesAudit) -> dict[str, Any]:
    return {**asdict(found), "state": found.state, "why": games_faults(found)}


def totals(found: Audit) -> dict[str, Any]:
    """Models by state, and what is due in all."""
    models = found.models
    return {
        "models": len(models), "complete": sum(model.complete for model in models),
        "answers": dict(Counter(model.answers.state for model in models)),
        "judgments": dict(Counter(model.games.state for model in models)),
        "answers_due": sum(model.answers.due for model in models),
        "games_wanted": sum(model.games.wanted for model in models),
        "games_done": sum(model.games.done for model in models),
        "games_due": sum(model.games.due for model in models),
        "games_unanswered": sum(model.games.unanswered for model in models),
        "nulls": _summed(model.games.nulls for model in models),
    }


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    out: Counter[str] = Counter()
    for one in counts:
        out.update(one)
    return dict(out)


def print_audit(console: Console, found: Audit, busy: Busy) -> None:
    """A row a model: states and counts of answers and judgments, and what lacks or is wrong."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    longest = max((len(model.model) for model in found.models), default=0)
    table.add_column("model", overflow="fold", min_width=min(longest, 60))
    for name in ("answers", "judgments"):
        table.add_column(name, no_wrap=True)
    table.add_column("what lacks or is wrong", overflow="fold")
    for model in found.models:
        answers, games = model.answers, model.games
        parts = [*answers_faults(answers), *games_faults(games)]
        parts += [f"[dim]{escape(text)}[/]" for text in remarks(model, busy)]
        said = [part if part.startswith("[dim]") else escape(part) for part in parts]
        table.add_row(escape(visible(model.model)), _cell(answers.state, answers.done, answers.wanted),
                      _cell(games.state, games.done + games.final, games.wanted), joined(said))
    console.print(table)


def remarks(model: ModelAudit, busy: Busy) -> list[str]:
    """What is not wrong with a model, but good to know."""
    out = answers_remarks(model.answers)
    out += [f"final without a label: {nulls(model.games.nulls)}"] if model.games.nulls else []
    odd = () if model.games.file else model.games.problems
    out += [f"{plain('odd line', 'odd lines', len(odd))}, such as {visible(odd[0])}"] if odd else []
    return out + [f"batch {view.batch.number} is at work on its {'answers' if view.kind == 'generate' else 'games'}"
                  for view in busy.get(model.model, ())]


def _cell(state: str, done: int, wanted: int) -> str:
    count = f"{wanted:,}" if done == wanted else f"{done:,}/{wanted:,}"
    return f"[{COLOURS[state]}]{state}[/] {count}"


def print_totals(console: Console, found: Audit, problems: Sequence[str], at_work: int) -> None:
    """Totals, what else is odd, and what to do next."""
    from rich.markup import escape

    sums = totals(found)
    states = [f"{kind}: " + ", ".join(f"{count} {state}" for state, count in sums[kind].items())
              for kind in ("answers", "judgments")]
    if found.models:
        console.print(f"\n{plain('model', 'models', sums['models'])}, {sums['complete']} complete  "
                      f"({'; '.join(states)})", soft_wrap=True)
    for one in found.baselines:
        if faults := answers_faults(one):
            console.print(f"[red]baseline {escape(one.model)}[/]: {escape(joined(faults))}", soft_wrap=True)
    for problem in (*([found.problem] if found.problem else []), *problems):
        console.print(f"[yellow]{escape(visible(problem))}[/]", soft_wrap=True)
    if at_work:
        console.print(f"{plain('batch is', 'batches are', at_work)} waiting or running: these numbers may move.")
    if not found.models:
        console.print("No models are named.")
    elif found.complete:
        console.print("[green]Nothing is missing.[/]")
    elif not found.to_do:
        lost = sum(one.given_up for one in (*(model.answers for model in found.models), *found.baselines))
        console.print(f"Nothing is left to do. {plain('answer was', 'answers were', lost)} given up after "
                      "limits.attempts tries, and their games can't be judged.", soft_wrap=True)
    else:
        console.print("Next: [bold]flock-hpc repair --dry-run[/] says what would run, "
                      "[bold]flock-hpc repair --submit[/] does it.")


def print_repair(console: Console, repair: Repair) -> None:
    """What a repair does: mend, generate, judge; which models, how much, and why."""
    from rich.markup import escape

    models = {model.model: model for model in repair.audit.models}
    answers = {one.model: one for one in (*repair.audit.baselines, *(m.answers for m in repair.audit.models))}
    for model, views in repair.busy.items():
        numbers = ", ".join(f"{view.batch.number} ({view.state})" for view in views)
        console.print(f"{escape(model)}: left alone, batch {numbers} is at work on it", soft_wrap=True)
    steps: tuple[Step, ...] = (
        ("Mend answer files, without any model", repair.mend_answers, lambda name: answers_in_file(answers[name])),
        ("Mend judgment files, without any model", repair.mend_judgments,
         lambda name: games_in_file(models[name].games)),
        ("Generate answers", repair.answers, lambda name: _asked(repair, answers[name])),
        ("Judge", repair.judgments, lambda name: _judged(repair, models[name])),
        ("Judge when the answers are there", repair.later, lambda name: _judged(repair, models[name])),
    )
    for title, names, why in steps:
        if names:
            console.print(f"[bold]{title}[/]: {plain('model', 'models', len(names))}")
        for name in names:
            console.print(f"  {escape(visible(name))}: {escape(joined(why(name)))}", soft_wrap=True)
    _print_sums(console, repair)


def _asked(repair: Repair, found: AnswersAudit) -> list[str]:
    return [f"{plain('question', 'questions', repair.questions[found.model])}: {joined(answers_due(found))}"]


def _judged(repair: Repair, model: ModelAudit) -> list[str]:
    due, games = repair.games[model.model], model.games
    parts, more = games_due(replace(games, unanswered=0)) if games.due or games.state == "missing" else [], due
    more -= games.due if games.known else 0
    again = min(more, games.final) if model.model in repair.again else 0
    if again > 0:
        parts.append(f"{again:,} asked again that ended without a label ({nulls(games.nulls)})")
    if more > again and parts != ["no judgments"]:
        parts.append(f"{plain('game', 'games', more - again)} with answers to come")
    return [f"{plain('game', 'games', due)}: {joined(parts)}"]


def _print_sums(console: Console, repair: Repair) -> None:
    if repair.nothing:
        console.print("[green]Nothing to do:[/] nothing is missing or invalid."
                      if not repair.busy else "Nothing else to do.")
        return
    questions = sum(repair.questions[name] for name in repair.answers)
    games = sum(repair.games[name] for name in (*repair.judgments, *repair.later))
    console.print(f"\nIn all: {plain('question', 'questions', questions)} to answer, "
                  f"{plain('game', 'games', games)} to judge.")
