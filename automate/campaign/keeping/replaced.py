"""Records of another place fitted to this one: job names, job ids, and judgments of both places.

Pure, but for `close_submissions`, which writes down that jobs of another place are gone from here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from automate.cluster.local.executor import LocalQueue
from automate.cluster.queue import JobState, JobStatus
from automate.journal import Record, parse_object, write_json
from automate.workspace import Workspace

ELSEWHERE = "handed over in another place; taken over from an archive"
Tags = Mapping[str, tuple[str, str]]
"""Plan -> the mark of its job names in the other place, and here."""


def fitted_plan(record: Record, tags: Tags) -> Record:
    """A plan with job names of this workspace, so that jobs of the other place are never taken for its own."""
    _, new = tags.get(str(record.get("id")), ("", ""))
    return {**record, "tag": new or record.get("tag")}


def fitted_submission(record: Record, tags: Tags) -> Record:
    """A submission with job names of this workspace; one that was open is never looked for here."""
    old, new = tags.get(str(record.get("plan")), ("", ""))
    name = str(record.get("name", ""))
    fitted = {**record, "name": name.replace(f"-{old}", f"-{new}") if old else name}
    if fitted.get("job") is None and fitted.get("refused") is None:
        fitted["refused"] = f"{ELSEWHERE}, where nobody knew yet whether it was accepted"
    return fitted


def close_submissions(workspace: Workspace, new: Mapping[Path, bytes]) -> None:
    """Jobs of another place are neither asked for here nor mixed up with jobs of this one."""
    numbers = [0]
    for path, data in new.items():
        jobs = _jobs(parse_object(data))
        numbers += [int(found[1]) for job in jobs if (found := re.match(r"local-(\d+)", job))]
        ended = path.with_suffix(".ended")
        if jobs and not ended.exists():
            status = [asdict(JobStatus(job, JobState.UNKNOWN, ELSEWHERE, gone=True)) for job in jobs]
            write_json(ended, {"jobs": status})
    if max(numbers):
        LocalQueue(workspace.local_queue).reserve(max(numbers))


def _jobs(record: Mapping[str, Any]) -> list[str]:
    tasks = record.get("tasks")
    if not record.get("job") or not isinstance(tasks, dict):
        return []
    return [f"{record['job']}_{index}" if record.get("array") else str(record["job"]) for index in tasks or {"0": 0}]


def merged_rows(here: bytes, there: bytes) -> bytes | None:
    """A judgment file of both places: a question's line that is here stays, others are added; None: there are none."""
    known = set(_by_uid(here))
    added = [line for uid, line in _by_uid(there).items() if uid not in known]
    if not added:
        return None
    end = b"" if here.endswith(b"\n") or not here else b"\n"
    return here + end + b"".join(line + b"\n" for line in added)


def _by_uid(data: bytes) -> dict[str, bytes]:
    """Lines of a judgment file by their question; what is no row is left out."""
    found = {}
    for line in data.split(b"\n"):
        if line.strip():
            with suppress(ValueError):
                row = parse_object(line)
                found[str(row.get("uid", row.get("question_id")))] = line.rstrip(b"\r")
    return found
