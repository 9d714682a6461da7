"""What can be known of a machine and a cluster before answers are generated: the judge's checks, where they apply.

Never looks at models (`candidates` does), never needs the judge or the baseline, and never submits a job."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace

from automate.arena.preflight.check import Report
from automate.arena.preflight.cluster import cluster_findings
from automate.arena.preflight.findings import Finding, Level, Run, error, run_command, warning
from automate.arena.preflight.machine import machine_findings, nearest
from automate.arena.preflight.time_limit import time_findings
from automate.arena.running.runlog import read_runs
from automate.campaign.kinds import runs_of, under
from automate.cluster.base import Cluster
from automate.workspace import Workspace

BYTES_AN_ANSWER = 12_000
"""Record and row of an answer of some 700 tokens, with its question."""
WORDS = (("judge.environment", "generate.environment"), ("judge.server", "generate.server"),
         ("loading the judge", "loading a model"), ("the judge's", "the model's"))


def check(workspace: Workspace, models: Sequence[str], *, answers: int, cluster: Cluster | None, executor: str,
          problems: Sequence[str] = (), run: Run = run_command) -> Report:
    """What keeps `answers` answers of these models from being generated. `problems`: lines on the list of models."""
    mine = under(workspace, "generate")
    runs = runs_of(read_runs(workspace.runs), "generate")
    found = [_of_list(text) for text in problems]
    found += [one for one in machine_findings(mine, (), 0, cluster, executor, run) if one.code != "FH507"]
    found += time_findings(mine.settings, mine.root, runs) if executor == "slurm" else ()
    found += cluster_findings(mine.settings, len(models), executor)
    found += _disk(workspace, answers)
    return Report(tuple(sorted(map(_reworded, found), key=lambda one: one.code)), tuple(models), ())


def _of_list(text: str) -> Finding:
    counts = text.endswith("it counts once")
    return (warning if counts else error)("FH101", "models list", text, "mend the list", None if counts else text)


def _reworded(finding: Finding) -> Finding:
    """The same about the model's server, which the judge's checks call the judge's."""
    texts = [finding.subject, finding.what, finding.todo]
    for old, new in WORDS:
        texts = [text.replace(old, new) for text in texts]
    return replace(finding, subject=texts[0], what=texts[1], todo=texts[2])


def _disk(workspace: Workspace, answers: int) -> Iterator[Finding]:
    needed = answers * BYTES_AN_ANSWER
    for place in sorted({nearest(folder) for folder in (workspace.state, workspace.answers)}):
        if not os.access(place, os.W_OK):
            yield error("FH504", str(place), "can't be written", "check its rights and your quota (df, quota)")
            continue
        free = shutil.disk_usage(place).free
        if free < 3 * needed:
            yield (error if free < needed else warning)(
                "FH505", str(place), f"{free / 1e6:,.0f} MB are free; {answers} answers take about "
                f"{math.ceil(needed / 1e6):,} MB", "make room, or generate answers of fewer models at a time")


def fatal(report: Report, *, skip: bool) -> bool:
    """Whether something stands in the way; with `skip` not what concerns single names of the list."""
    return any(one.level is Level.ERROR and not (skip and one.model is not None) for one in report.findings)
