"""`monitor`, `cancel`, `logs`: look at a campaign, end it, read what its jobs wrote."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from automate.cli.options import open_here, workspace_option

if TYPE_CHECKING:
    from collections.abc import Iterable

    from automate.campaign.monitor import JobLine, ModelLine, Snapshot

NAME_WIDTH = 50


@click.command()
@workspace_option
@click.option("--baseline", help="Progress against this baseline instead of the settings'.")
@click.option("--json", "as_json", is_flag=True, help="One JSON document instead of the tables.")
def monitor(workspace_dir: Path | None, baseline: str | None, as_json: bool) -> None:
    """Show jobs, progress of each model, logs and failures. Changes nothing."""
    from automate.campaign.monitor import snapshot

    picture = snapshot(open_here(workspace_dir, baseline=baseline))
    if as_json:
        import json

        click.echo(json.dumps(picture.as_json(), indent=2, ensure_ascii=False))
        return
    for line in lines(picture):
        click.echo(line)


def lines(picture: Snapshot) -> Iterable[str]:
    """The monitor's text, section by section."""
    yield "=== Arena Hard Judgment Monitor ==="
    for notice in picture.notices:
        yield f"⚠️  {notice}"
    yield ""
    yield from _jobs("🏃 Running Judgment Jobs", picture.running)
    yield from _jobs("⏳ Pending Judgment Jobs", picture.pending)
    if picture.unknown:
        yield from _jobs("❔ Jobs in an unknown state", picture.unknown)
    yield ""
    for model, answers in picture.baseline_answers.items():
        found = f"{answers} answers" if answers else "NOT FOUND"
        yield f"{'✅' if answers else '❌'} Baseline Model ({model}): {found}"
    yield ""
    yield "📊 Judgment Progress:"
    yield f"Judge Model: {picture.judge}" + ("" if picture.judge_kind == "vllm" else f" ({picture.judge_kind})")
    yield f"Total models in config: {len(picture.models)}"
    yield f"Models with answers: {sum(1 for model in picture.models if model.answers)}"
    yield f"Models with judgments: {sum(1 for model in picture.models if model.games)}"
    games, wanted = sum(m.games for m in picture.models), sum(m.wanted for m in picture.models)
    yield f"Games: {games} of {wanted}" + (f" ({games / wanted:.1%})" if wanted else "")
    yield ""
    yield from _models(picture.models)
    if picture.failures:
        yield ""
        yield f"💥 Failures ({len(picture.failures)}):"
        for failure in picture.failures:
            yield f"  batch {failure.batch}, job {failure.job}: {failure.state}: {failure.cause}"
            yield f"    → {failure.todo}"
    if picture.problems or any(model.problems for model in picture.models):
        yield ""
        yield "🔎 Problems in files:"
        for problem in [*picture.problems, *(p for model in picture.models for p in model.problems)][:20]:
            yield f"  {problem}"
    if picture.logs:
        yield ""
        yield f"📄 Recent Judgment Logs ({len(picture.logs)}):"
        for path, size, modified in picture.logs:
            yield f"  {path} ({_size(size)}, {time.strftime('%Y-%m-%d %H:%M', time.localtime(modified))})"


def _size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} GB"


def _jobs(title: str, jobs: tuple[JobLine, ...]) -> Iterable[str]:
    if not jobs:
        yield f"{title}: None"
        return
    yield f"{title} ({len(jobs)}):"
    for job in jobs:
        short = {"running": "R", "queued": "PD", "unknown": "?"}.get(job.state, job.state)
        where = job.nodes or (f"({job.reason})" if job.reason else "")
        why = f"  [{job.evidence}]" if job.state == "unknown" else ""
        yield (f"  {job.job}  {job.partition} judge-batch-{job.batch}  {job.user}  {short}  {job.elapsed}  "
               f"{job.node_count}  {where}{why}")


def _models(models: tuple[ModelLine, ...]) -> Iterable[str]:
    from automate.campaign.monitor import ICONS

    yield "📈 Detailed Model Status:"
    yield f"{'Model Name':<{NAME_WIDTH}} | Answers | Judgments (Q/G) | Nulls | State"
    yield "-" * 100
    for model in models:
        note = model.state
        if model.missing_answers:
            note += f", {model.missing_answers} answers missing"
        if model.stale:
            note += f", {model.stale} due again after a change"
        if model.retrying:
            note += f", {model.retrying} to retry"
        if model.unverified:
            note += f", {model.unverified} unverified"
        if model.other_prompt:
            note += f", {model.other_prompt} judged with another prompt"
        if model.batch and model.state in ("partial", "waiting"):
            note += f", batch {model.batch}"
        nulls = sum(model.nulls.values())
        reasons = f" ({', '.join(f'{n} {why}' for why, n in model.nulls.items())})" if nulls else ""
        name, judged = f"{ICONS[model.state]} {model.model:<{NAME_WIDTH - 3}}", f"{model.questions}/{model.games}"
        yield f"{name} | {model.answers:>7} | {judged:>15} | {nulls:>5} | {note}{reasons}"


@click.command()
@workspace_option
@click.option("--dry-run", is_flag=True, help="Only say which jobs would be cancelled.")
@click.pass_context
def cancel(ctx: click.Context, workspace_dir: Path | None, dry_run: bool) -> None:
    """Cancel every job of this workspace that waits or runs. No other job of yours is touched."""
    from automate.campaign.judging import cancel as cancel_jobs
    from automate.campaign.state import look

    workspace = open_here(workspace_dir)
    state = look(workspace)
    if not state.active:
        click.echo("no job of this workspace waits or runs")
        return
    if dry_run:
        for view in state.active:
            click.echo(f"would cancel job {view.job}: batch {view.batch.number}, {view.state}")
        return
    jobs, problems = cancel_jobs(workspace, state)
    for job in jobs:
        click.echo(f"cancelled job {job}")
    for problem in problems:
        click.echo(problem, err=True)
    click.echo("What was played is kept; 'flock-hpc judge --submit' goes on from there.")
    ctx.exit(1 if problems else 0)


@click.command()
@workspace_option
@click.argument("batch", type=click.IntRange(min=1))
@click.option("-f", "--follow", "follow_", is_flag=True, help="Go on showing what is written, until the batch ends.")
@click.option("-n", "--lines", "count", default=40, show_default=True, help="Lines of each log to begin with.")
@click.option("--paths", is_flag=True, help="Only the logs' paths.")
def logs(workspace_dir: Path | None, batch: int, follow_: bool, count: int, paths: bool) -> None:
    """Show the logs of BATCH (its number): output, errors and the judge server's own."""
    from automate.campaign.logs import show

    workspace = open_here(workspace_dir)
    show(workspace, batch, click.echo, follow=follow_, count=count, paths_only=paths)
