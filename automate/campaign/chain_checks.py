"""What preflight says of a chain: answers that are going to be generated are not missing, nor is what they need not.

Never drops a finding about anything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from automate.arena.answering.candidates import Problem, candidates, path_of
from automate.arena.context import baseline_map
from automate.arena.preflight.check import Report
from automate.arena.preflight.findings import Finding, Level, note
from automate.campaign.generating import with_baselines
from automate.workspace import Workspace

ABSENT = {"FH103": "no answer file", "FH104": "no answer to ", "FH201": "no answer"}
"""Findings of answers that are not there, by code, and what of their text says so."""


def with_answers_to_come(workspace: Workspace, report: Report) -> Report:
    """A report of `judge`'s checks as a chain needs it: answers that can be generated are no error."""
    names = with_baselines(workspace, (*report.ready, *report.blocked))
    good, bad = candidates(workspace, names)
    report = replace(report, findings=tuple(
        replace(one, level=Level.NOTE) if one.code == "FH102" and one.model and _lies(workspace, one.model) else one
        for one in report.findings))
    return relax(report, {one.model for one in good}, {one.model: one for one in bad},
                 set(baseline_map(workspace.settings.baseline).values()))


def _lies(workspace: Workspace, model: str) -> bool:
    """Whether the settings say where a model lies, and it lies there: it needs no entry in api_config.yaml."""
    folder = path_of(workspace, model)
    return model in workspace.settings.generate.models or (folder is not None and folder.is_dir())


def relax(report: Report, servable: Collection[str], problems: Mapping[str, Problem],
          baselines: Collection[str]) -> Report:
    """Drop findings of absent answers of `servable` models; of others say in their place why none can be had."""
    kept: list[Finding] = []
    coming = 0
    for finding in report.findings:
        if not _absent(finding):
            kept.append(finding)
        elif finding.subject in servable:
            coming += finding.subject not in baselines
        elif (problem := problems.get(finding.subject)) is not None:
            why = f"it can't be generated: {problem.where}: {problem.what}; {problem.todo}"
            kept.append(replace(finding, todo=why))
        else:
            kept.append(finding)
    bad = {finding.model for finding in kept if finding.level is Level.ERROR and finding.model is not None}
    names = [*report.ready, *report.blocked]
    ready = tuple(name for name in names if name not in bad)
    if ready:
        kept = [finding for finding in kept if finding.code != "FH110"]
    if coming:
        kept.append(note("FH104", "answers", f"{coming} model(s) lack answers, which are generated first"))
    return Report(tuple(sorted(kept, key=lambda one: one.code)), ready, tuple(name for name in names if name in bad))


def _absent(finding: Finding) -> bool:
    """Whether an error says that answers are not there, and nothing else."""
    return finding.level is Level.ERROR and ABSENT.get(finding.code, "\0") in finding.what
