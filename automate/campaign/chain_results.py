"""What the report job does: leaderboard, curves and report into `results/`, and a list of what is missing for them.

Never stops at the first thing that fails, and never hides one; computes nothing that commands don't."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from automate.campaign.answer_counts import AnswerCounts
from automate.campaign.chain_report import Wanted, report_jobs
from automate.campaign.late import LateProgress
from automate.campaign.state import CampaignState
from automate.errors import FlockError, StorageError, visible
from automate.journal import read_json, replace_file, write_json
from automate.names import baseline_tag
from automate.workspace import Workspace

if TYPE_CHECKING:
    from automate.arena.counting.progress import ModelProgress
    from automate.campaign.awaited import Awaited

Say = Callable[[str], None]
Run = Callable[[Sequence[str]], tuple[int, str, str]]
"""Runs `flock-hpc ARGUMENTS`; (exit status, what it printed, what it said beside)."""

WIDTH = "120"
SHOWN = 12
CLOCKS = 5.0
"""Seconds by which clocks of machines may differ."""


@dataclass(frozen=True)
class Step:
    """One command of flock-hpc, and the file that takes what it prints, if any."""

    what: str
    arguments: tuple[str, ...]
    into: Path | None = None


def steps_of(workspace: Workspace, wanted: Wanted) -> list[Step]:
    """The commands that make the results. Raises ConfigError where the pattern of checkpoints' names is not one."""
    folder, where = workspace.results, ("--workspace", str(workspace.root))
    against = ("--baseline", wanted.baseline) if wanted.baseline is not None else ()
    found = [
        Step("leaderboard", ("leaderboard", *where, *against, "--csv", str(folder / "leaderboard.csv")),
             folder / "leaderboard.txt"),
        Step("leaderboard as Markdown", ("leaderboard", *where, *against, "--markdown"), folder / "leaderboard.md")]
    if _has_checkpoints(workspace, wanted):
        found.append(Step("curves", ("curves", *where, *against, "--csv", str(folder / "curves.csv"),
                                     "--output", str(folder)), folder / "curves.txt"))
    return found


def _has_checkpoints(workspace: Workspace, wanted: Wanted) -> bool:
    from automate.results.training.checkpoints import parse

    return len(parse(wanted.models, workspace.settings.curves.pattern)[0]) > 1


def run_here(arguments: Sequence[str]) -> tuple[int, str, str]:
    """Run a command with this interpreter, as wide as a page."""
    done = subprocess.run([sys.executable, "-m", "automate", *arguments], capture_output=True, text=True, check=False,
                          errors="replace", stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": WIDTH})
    return done.returncode, done.stdout, done.stderr


def write_results(workspace: Workspace, wanted: Wanted, say: Say, run: Run = run_here) -> int:
    """Write all results anew; 0 where each could be made, 1 else.

    `results/report.json` says when that was begun, what is missing, and what could not be made.
    """
    began, failed = _begin(workspace), list[str]()
    missing = missing_lines(workspace, wanted)
    text = "".join(f"{line}\n" for line in missing) or "Nothing: every game of these models was played.\n"
    replace_file(workspace.results / "missing.txt", text.encode())
    for line in missing:
        say(line)
    for step in steps_of(workspace, wanted):
        if _make(step, say, run) != 0:
            failed.append(step.what)
    failed.append("report")
    try:
        say(f"report: {page(workspace, wanted, missing)}")
        failed.remove("report")
    except FlockError as error:
        say(f"report: not made: {error}")
    finally:  # also where the page broke off in a way that nobody foresaw
        write_json(workspace.results / "report.json", {
            "began": began, "models": list(wanted.models), "missing": missing, "failed": failed})
    say(f"results are in {workspace.results}" + (f"; not made: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def _begin(workspace: Workspace) -> float:
    """Make the folder; the time now by the clock of its file system, with which files' times can be compared."""
    mark = workspace.results / "missing.txt"
    try:
        mark.parent.mkdir(parents=True, exist_ok=True)
        replace_file(mark, b"It is being counted.\n")
        return mark.stat().st_mtime
    except OSError as error:
        raise StorageError.of(error, mark.parent, "make the folder of results") from error


def _make(step: Step, say: Say, run: Run) -> int:
    status, out, err = run(step.arguments)
    if status == 0 and step.into is not None:
        replace_file(step.into, out.encode())
    said = [line for line in (err if step.into else f"{out}\n{err}").split("\n") if line.strip()]
    for line in said:
        say(f"{step.what}: {visible(line)}")
    if status != 0:
        say(f"{step.what}: not made (exit status {status})")
    return status


def page(workspace: Workspace, wanted: Wanted, missing: Sequence[str]) -> Path:
    """The report with what is missing said at its top; its path. Raises DataError where there is nothing to report."""
    from automate.campaign.keeping.redact import Redactor, kept_secrets, secret_values
    from automate.campaign.reporting import FILE, options_of
    from automate.results.reading.folder import of_workspace
    from automate.results.reporting.facts import of_workspace as facts_of_workspace
    from automate.results.reporting.report import Extent, write_report

    folder = of_workspace(workspace)
    judges = folder.chosen_judges((workspace.settings.judge.name,))
    facts = facts_of_workspace(workspace, judges, hide=Redactor(secret_values(os.environ)
                                                                | kept_secrets(workspace.secrets)))
    facts = replace(facts, notices=(*facts.notices, *notices_of(missing)))
    extent = Extent(baseline=wanted.baseline, curves=workspace.settings.curves)
    return write_report(folder, judges, workspace.results / FILE, options_of(workspace), facts, extent=extent)


def notices_of(missing: Sequence[str]) -> list[str]:
    """What is missing, for the head of a page: the first lines, and how many there are beside."""
    rest = len(missing) - SHOWN
    return [*missing[:SHOWN], *([f"and {rest} more, see missing.txt"] if rest > 0 else [])]


# --- what is missing ------------------------------------------------------------------------------------
def missing_lines(workspace: Workspace, wanted: Wanted) -> list[str]:
    """What a table of these models lacks, a line each: answers that are not there, games that were not played."""
    try:
        return list(_missing(workspace, wanted))
    except FlockError as error:
        return [f"what is missing can't be counted: {error.what}"]


def _missing(workspace: Workspace, wanted: Wanted) -> Iterator[str]:
    from automate.campaign.awaited import Awaited  # the engine's room: the monitor, which reads this, needs none of it
    from automate.campaign.generating import with_baselines

    counts = AnswerCounts(workspace, wanted.models, wanted.limit_questions)
    games = LateProgress(workspace, wanted.models, wanted.limit_questions)
    if games.why:
        yield f"no game could be counted: {games.why.partition(chr(10))[0]}"
    names = with_baselines(workspace, wanted.models)
    awaited = Awaited(workspace, counts.asked[:wanted.limit_questions], {
        name for name in names if name not in counts.statuses or counts.due[name]})
    for model in wanted.models:
        answers, entry = counts.statuses[model], games.models.get(model)
        there = answers.done + answers.stale if answers is not None else 0
        if there == 0 or (entry is not None and entry.answers == 0):
            yield f"{model}: no answers, so it was not judged" + _score_of_old(workspace, model)
            continue
        if there < counts.questions:
            failed = ", ".join(f"{count} {why}" for why, count in sorted(answers.failed.items())) if answers else ""
            yield (f"{model}: {there} of {counts.questions} answers" + (f"; given up: {failed}" if failed else "")
                   + "; judged as far as they go")
        if entry is not None:
            yield from _old(entry, awaited)
        if entry is not None and entry.status.due > entry.status.stale:
            played = entry.status.wanted - entry.status.due
            yield f"{model}: {played} of {entry.status.wanted} games were played"


def _score_of_old(workspace: Workspace, model: str) -> str:
    """What to add where a model without answers has games of answers that it had before."""
    rows = workspace.rows_file(model, baseline_tag(workspace.settings.baseline), workspace.default_baseline)
    return "; its score in the table rests on earlier answers" if rows.is_file() and rows.stat().st_size else ""


def _old(entry: ModelProgress, awaited: Awaited) -> Iterator[str]:
    """That the table may show a score of games that do not count any more, a line for each reason."""
    of, told = f"of {entry.status.wanted} games were judged", "; its score in the table may rest on them"
    questions = awaited.questions
    answered = {questions[place].uid for place in entry.wanted.positions if place < len(questions)}
    if (going := awaited.going(entry.model, answered, entry.due_uids)) > 0:
        yield f"{entry.model}: {going} {of} with answers that are due again (of its own or of the baseline){told}"
    if entry.status.stale:
        yield f"{entry.model}: {entry.status.stale} {of} before its answers, the judge or the prompt changed{told}"


# --- how fresh they are ---------------------------------------------------------------------------------
def results_since(workspace: Workspace) -> float | None:
    """When the results that are there were begun (epoch seconds); None where there are none."""
    began = (read_json(workspace.results / "report.json") or {}).get("began")
    return float(began) if isinstance(began, (int, float)) else None


def are_fresh(workspace: Workspace) -> bool:
    """Whether the results were begun after the last answer and the last game were written."""
    began = results_since(workspace)
    return began is not None and _newest(workspace) <= began


def _newest(workspace: Workspace) -> float:
    """When an answer, a game or a record of either was last written (epoch seconds, by the file system's clock)."""
    newest = 0.0
    games = workspace.journal("any", baseline_tag(workspace.settings.baseline)).parent
    for folder in (workspace.answers, workspace.judgments, workspace.answer_journal("any").parent, games):
        for path in folder.rglob("*.jsonl") if folder.is_dir() else ():
            with contextlib.suppress(OSError):
                newest = max(newest, path.stat().st_mtime)
    return newest


def what_failed(workspace: Workspace) -> tuple[list[str], list[str]]:
    """(what is missing for the results that are there, what of them could not be made)."""
    said = read_json(workspace.results / "report.json") or {}
    lists = [said.get(key) for key in ("missing", "failed")]
    missing, failed = ([str(one) for one in found] if isinstance(found, list) else [] for found in lists)
    return missing, failed


def report_words(workspace: Workspace, state: CampaignState) -> str:
    """What the newest report job is about to do or has done, in a line; empty where there was none. Asks no Slurm."""
    jobs = report_jobs(state)
    if not jobs or (workspace.submissions / f"{jobs[-1].job}.cancelled").exists():
        return ""
    newest, began = jobs[-1], results_since(workspace)
    if began is not None and began >= newest.intended - CLOCKS:
        missing, failed = what_failed(workspace)
        odd = [f"missing.txt has {len(missing)} line(s)"] * bool(missing)
        odd += [f"not made: {', '.join(failed)}"] * bool(failed)
        return f"the report was written into {workspace.results.name}/ by job {newest.job}" + (
            f" ({'; '.join(odd)})" if odd else "")
    waits = any(view.kind == "judge" for view in state.active)
    return f"job {newest.job} writes the report" + (" when all games have ended" if waits else "")
