"""What `repair` hands over after the mending: answers first, then games, each batch when its answers are there.

Asks for nothing that is not missing or invalid; without --submit it only writes scripts."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from automate.arena.preflight.check import Report
    from automate.campaign.chain import HandedIn, Links
    from automate.campaign.generating import GenerationPrepared
    from automate.campaign.handing import Request
    from automate.campaign.repairing import Repair
    from automate.cluster.base import Cluster
    from automate.workspace import Workspace


COMMAND = "flock-hpc repair --submit"


def carry_out(console: Console, workspace: Workspace, cluster: Cluster, plan: Repair, limit_questions: int | None, *,
              submit: bool, wait: bool) -> int:
    """Plan what a repair lacks and write its files; submit and follow it where asked. The exit status."""
    from automate.campaign.handing import Request
    from automate.campaign.repairing import with_attempts
    from automate.cli.judging import run

    answers = bool(plan.answers or plan.later)
    touched = {*plan.answers, *plan.judgments, *plan.later}
    models = [model.model for model in plan.audit.models if model.model in touched]
    if not models and not plan.answers:
        return 0
    workspace = with_attempts(workspace, plan.attempts)
    report = _checked(console, workspace, cluster, models, limit_questions, answers=answers)
    if report.fatal or (models and not report.ready):
        console.print("\n[red]Nothing was planned:[/] mend the errors (✘) above.")
        return 1
    request = Request(report.ready, limit_questions, None, workspace.settings.array)
    if answers:
        done = _chain(console, workspace, cluster, request, submit=submit, wait=wait)
    else:
        done = run(console, workspace, cluster, request, submit=submit, wait=wait, command=COMMAND)
    return max(done, 0 if report.ok else 1)


def _checked(console: Console, workspace: Workspace, cluster: Cluster, models: Sequence[str],
             limit_questions: int | None, *, answers: bool) -> Report:
    """Preflight of these models; answers that are going to be generated are not missing."""
    from automate.campaign.chain_checks import with_answers_to_come
    from automate.campaign.selection import Selection
    from automate.cli.checks import preflight, print_report

    report = preflight(workspace, cluster, Selection(tuple(models), (), "repair"), limit_questions)
    report = with_answers_to_come(workspace, report) if answers else report
    if not report.ok:
        print_report(console, report)
    return report


def _chain(console: Console, workspace: Workspace, cluster: Cluster, request: Request, *, submit: bool,
           wait: bool) -> int:
    """Answers, then games: planned together, handed in with the games waiting for their answers."""
    from rich.markup import escape

    from automate.campaign.chain import answers_first, hand_in_all, link
    from automate.campaign.handing import submit_claim
    from automate.cli.running import may_generate
    from automate.cli.views.chain_screen import print_lost

    claim = submit_claim(workspace)
    try:
        with console.status("counting answers and games..."):
            prepared = answers_first(workspace, cluster, request)
        if not may_generate(console, workspace, cluster, prepared):
            return 1
        links = link(workspace, cluster, request, prepared)
        for note in [*prepared.notes, *links.notes]:
            console.print(escape(note))
        print_lost(console, links)
        for model, why in links.without.items():
            console.print(f"[yellow]{escape(model)} is left out[/]: no answers, and none can be generated: "
                          f"{escape(why)}")
        if not submit:
            return _print_written(console, workspace, prepared, links)
        done = hand_in_all(workspace, cluster, request, prepared, links)
        _print_done(console, cluster, done)
    finally:
        claim.release()
    left_out = bool(done.refused or links.without)
    if wait:
        return max(int(left_out), _follow(console, workspace, cluster, request, prepared, links, done))
    return int(left_out)


def _print_written(console: Console, workspace: Workspace, prepared: GenerationPrepared, links: Links) -> int:
    for stored, folder, things in ((prepared.stored, workspace.answer_scripts, "answers"),
                                   (links.stored, workspace.scripts, "games")):
        for batch in stored.plan.batches if stored else ():
            console.print(f"batch {batch.number}: {batch.games:,} {things} of {len(batch.models)} model(s)")
        if stored is not None:
            console.print(f"{folder}/ was written", markup=False, soft_wrap=True)
    console.print("Nothing was submitted. Submit with:  [bold]flock-hpc repair --submit[/]  "
                  "(and the options that you gave)")
    return 0


def _print_done(console: Console, cluster: Cluster, done: HandedIn) -> None:
    from automate.cli.submitted import print_submitted, print_waiting

    for title, part in (("Answers:", done.answers), ("Games:", done.now), ("Games that wait for answers:", done.then)):
        if part.accepted or part.refused or part.waiting:
            console.print(title)
            print_submitted(console, cluster, part)
            print_waiting(console, part, "--wait hands them in when there is room; so does 'flock-hpc repair --submit'")
    if done.held:
        console.print(f"{len(done.held)} judging batch(es) wait for answers that have no job yet: --wait hands them "
                      "in, and so does 'flock-hpc repair --submit'", soft_wrap=True)


def _follow(console: Console, workspace: Workspace, cluster: Cluster, request: Request,
            prepared: GenerationPrepared, links: Links, done: HandedIn) -> int:
    from automate.campaign.follow import Follower
    from automate.campaign.late import LateProgress
    from automate.cli.submitted import wait_for

    plans = {view.stored.plan.id for view in (*prepared.busy.values(), *links.busy.values())}
    plans |= {stored.plan.id for stored in (prepared.stored, links.stored) if stored is not None}
    if not plans:
        return 0
    late = LateProgress(workspace, request.models, request.limit_questions)
    no_room = next((part.why for part in done.parts if part.why), "")
    follower = Follower(workspace, cluster, late, frozenset(plans), request, prepared.counts, no_room=no_room,
                        command=COMMAND)
    return wait_for(console, workspace, cluster, follower)
