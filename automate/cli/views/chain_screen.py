"""A chain on the screen: its jobs before they are handed in, what became of that, and the results at its end.

No logic: what is known comes in, lines go out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from automate.campaign.chain import HandedIn, Links
    from automate.campaign.generating import GenerationPrepared
    from automate.campaign.handing import Request, Submitted
    from automate.campaign.plans import StoredPlan
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


def print_chain(console: Console, workspace: Workspace, prepared: GenerationPrepared, links: Links,
                models: int) -> None:
    """Every job of the chain with what it waits for, and which models are left out."""
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    from automate.cli.views.chain_text import chain_lines, some
    from automate.errors import visible

    kinds = {"rehearsal"} & {workspace.settings.judge.kind, workspace.settings.generate.kind}
    if kinds:
        console.print("[yellow]rehearsal: what it makes means nothing[/]")
    for note in [*prepared.notes, *links.notes]:
        console.print(escape(note))
    for model, why in links.without.items():
        console.print(f"[yellow]{escape(model)} is left out[/]: it has no answers, and none can be generated: "
                      + escape(visible(why)))
    print_lost(console, links)
    whole = [model for model in links.complete if model not in links.lost]
    if whole:
        console.print(f"{len(whole)} model(s) complete, left out: {escape(some(whole))}")
    lines = chain_lines(prepared, links, models, str(workspace.results.relative_to(workspace.root)) + "/")
    if not lines:
        console.print("[green]Nothing to generate or to judge.[/]")
        return
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    table.add_column("job", no_wrap=True)
    table.add_column("models", overflow="fold")
    table.add_column("makes", justify="right", no_wrap=True)
    table.add_column("starts", overflow="fold")
    for line in lines:
        table.add_row(*(escape(text) for text in (line.job, line.models, line.work, line.starts)))
    console.print(table)


def print_lost(console: Console, links: Links) -> None:
    """Models that were asked questions in vain, and are judged without these."""
    from rich.markup import escape

    for model, causes in links.lost.items():
        rest = "its other games are played" if model in links.complete else "judged without them"
        console.print(f"[yellow]{escape(model)}[/]: answers given up ({escape(causes)}); {rest}", soft_wrap=True)


def print_how(console: Console, workspace: Workspace, prepared: GenerationPrepared, links: Links) -> None:
    """Where the scripts are, and how they are submitted."""
    from rich.markup import escape

    folders = [folder for folder, stored in ((workspace.answer_scripts, prepared.stored),
                                             (workspace.scripts, links.stored)) if stored is not None]
    if folders:
        names = " and ".join(escape(str(folder.relative_to(workspace.root))) + "/" for folder in folders)
        console.print(f"\nScripts were written into {names}; nothing was submitted.")
        console.print("Submit with:  [bold]flock-hpc run --submit[/]  (and the options that you gave).")


def print_done(console: Console, workspace: Workspace, cluster: Cluster, prepared: GenerationPrepared, links: Links,
               request: Request, done: HandedIn, *, wait: bool, who: str = "") -> None:
    """What was accepted, refused, and waits, with who goes on, where that is not known yet."""
    from rich.markup import escape

    from automate.cli.submitted import print_submitted, print_waiting

    for title, part, stored in (("Answers:", done.answers, prepared.stored), ("Games:", done.now, links.stored),
                                ("Games that wait for answers:", done.then, links.stored)):
        if stored is None or not (part.accepted or part.refused or part.waiting or part.notes):
            continue
        console.print(title)
        print_submitted(console, cluster, part)
        alone = stored is prepared.stored or not links.waits  # the small job knows nothing of answers that are awaited
        print_waiting(console, part, who or _who_goes_on(workspace, cluster, stored, request, part, alone=alone,
                                                         wait=wait))
    if done.held:
        left = "this command hands them in" if wait else "run the same command again to hand them in"
        console.print(f"{len(done.held)} judging batch(es) wait for answers that have no job yet: "
                      + (escape(who) if who else f"{left} when the answers are there"),
                      soft_wrap=True)


def _who_goes_on(workspace: Workspace, cluster: Cluster, stored: StoredPlan, request: Request, part: Submitted, *,
                 alone: bool, wait: bool) -> str:
    from automate.campaign.refill import wanted as small_job
    from automate.campaign.state import look
    from automate.cli.submitted import who_goes_on

    if not part.waiting:
        return ""
    if alone and small_job(workspace, cluster):
        return who_goes_on(workspace, cluster, stored, request, look(workspace), part, wait)
    if wait:
        return "this command hands them in when there is room"
    first = "raise it (--max-gpu-hours), or " if part.why.startswith("limits.max_gpu_hours") else ""
    return f"{first}run the same command again when jobs have ended, or use --wait; nothing is submitted twice"


def print_place(console: Console, workspace: Workspace) -> None:
    """Where the results are, and which."""
    from rich.markup import escape

    from automate.cli.views.chain_text import some

    console.print(f"The results are in {escape(str(workspace.results))}/: {some(_files(workspace), 9)}.",
                  soft_wrap=True)


def _files(workspace: Workspace) -> list[str]:
    names = ("report.html", "leaderboard.txt", "leaderboard.csv", "leaderboard.md", "curves.txt", "curves.csv")
    return [name for name in names if (workspace.results / name).is_file()]


def print_results(console: Console, workspace: Workspace) -> int:
    """The leaderboard as the report job wrote it, what is missing, and where everything is."""
    from rich.markup import escape

    from automate.campaign.chain_results import are_fresh, what_failed

    missing, failed = what_failed(workspace)
    board = workspace.results / "leaderboard.txt"
    if board.is_file() and "leaderboard" not in failed:
        console.print(escape(board.read_text(encoding="utf-8", errors="replace")), soft_wrap=True)
    for line in missing:
        console.print(f"[yellow]missing[/]: {escape(line)}", soft_wrap=True)
    for what in failed:
        console.print(f"[red]not made[/]: {escape(what)}; see {escape(str(workspace.logs))}/report-*.out",
                      soft_wrap=True)
    if not are_fresh(workspace):
        console.print(f"[red]no report of all games[/]: see {escape(str(workspace.logs))}/report-*.err, or run "
                      "'flock-hpc report'", soft_wrap=True)
        return 1
    print_place(console, workspace)
    return 1 if failed else 0
