"""The report of a workspace: its bench folder, its settings, and what is known of its judge and jobs.

Writes the page only; secrets are taken out of what the settings say."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from automate.campaign.keeping.redact import Redactor, kept_secrets, secret_values
from automate.results.boards import Options
from automate.results.reading.folder import of_workspace
from automate.results.reporting.facts import of_workspace as facts_of_workspace
from automate.results.reporting.report import Extent, write_report
from automate.workspace import Workspace

FILE = "report.html"


def options_of(workspace: Workspace) -> Options:
    """How scores are computed by the workspace's settings."""
    results = workspace.settings.results
    return Options(confidence=results.confidence, rounds=results.rounds, seed=results.seed,
                   strong_weight=results.strong_weight)


def report_of_workspace(workspace: Workspace, output: Path | None = None, *, judges: Sequence[str] = (),
                        options: Options | None = None, extent: Extent | None = None,
                        made: datetime | None = None) -> Path:
    """Write the workspace's report (default: results/report.html) and return its path.

    Raises DataError where there is nothing to report yet, StorageError where the page can't be written.
    """
    folder = of_workspace(workspace)
    chosen = folder.chosen_judges(tuple(judges) or (workspace.settings.judge.name,))
    hide = Redactor(secret_values(os.environ) | kept_secrets(workspace.secrets))
    extent = extent or Extent(curves=workspace.settings.curves)
    return write_report(folder, chosen, output or workspace.results / FILE, options or options_of(workspace),
                        facts_of_workspace(workspace, chosen, hide=hide), extent=extent, made=made)
