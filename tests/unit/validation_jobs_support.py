"""What the tests of validation jobs share: a spool with assignments of the example module, and modules made of a
few lines of shell or Python."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from automate.validation.assignments import Assignment, DataFile, Handed
from automate.validation.inner import files
from automate.validation.jobs.one import InnerCall, Place, Stop
from automate.validation.spool import Spool
from automate.workspace import Workspace, open_workspace

JOB = Handed("7_0", "flock-validation-example-abc", "slurm", 5.0)


def make(root: Path, *, stale: float = 0.5, settings: Mapping[str, Any] | None = None,
         **validation: Any) -> tuple[Workspace, Spool]:
    """A workspace on disk whose modules run in this very Python, and its spool."""
    root.mkdir(parents=True, exist_ok=True)
    own = {"manager": "current", **validation}
    (root / "flock-hpc.yaml").write_text(yaml.safe_dump({"cluster": "generic", "validation": own, **(settings or {})}))
    workspace = open_workspace(root)
    return workspace, Spool(workspace.validation, stale=stale)


def put(spool: Spool, assignment_id: str, rows: Sequence[object] = ({"value": 2}, {"value": 4}),
        module: str = "example", **more: Any) -> Assignment:
    """An assignment that is ready for a job."""
    reply = {"id": assignment_id, "task_id": "1", "task_submission": {"data": {}},
             "data": {"validation_set_url": "http://127.0.0.1:9/rows"}}
    kept = spool.keep(json.dumps(reply).encode(), "1", module)
    made = spool.admit(kept, Assignment(id=assignment_id, task_id="1", module=module, fetched_at=1.0,
                                        folder=Path(), needs_data=True, **more))
    data = made.folder / files.DATA / "rows.jsonl"
    data.parent.mkdir()
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return spool.save(replace(made, data=DataFile("data/rows.jsonl", data.stat().st_size,
                                              hashlib.sha256(data.read_bytes()).hexdigest())))


def python(code: str) -> InnerCall:
    """An inner layer that is a piece of Python; `FOLDER` in it is the assignment's folder."""
    def call(assignment: Assignment, arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
        text = f"from pathlib import Path\nFOLDER = Path({arguments[0]!r})\nID = {assignment.id!r}\n{RESULT}\n{code}"
        return [sys.executable, "-c", text, *arguments], {}
    return call


RESULT = """
import json, os, signal, sys, time
def result(outcome='completed', **more):
    whole = {'assignment_id': ID, 'outcome': outcome, 'module': 'example', 'payload': {'score': 1.0}, **more}
    (FOLDER / 'result.json').write_text(json.dumps(whole))
"""


def place(workspace: Workspace, scratch: Path, inner: InnerCall, **more: Any) -> Place:
    """Where a start happens in a test; `said` of it lists what it said."""
    scratch.mkdir(exist_ok=True)
    values: dict[str, Any] = {"settings": workspace.settings, "environ": {"PATH": "/usr/bin:/bin"},
                              "scratch_root": scratch, "job": JOB, "inner": inner, "stop": Stop(),
                              "say": lambda line: None}
    return Place(**(values | more))
