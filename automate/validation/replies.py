"""What the Flock API's replies mean: tasks, assignments, the input that a module gets.

Pure. Trusts no field: what is missing or of a wrong type is named, and only a reply without an id is refused whole."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import orjson

from automate.errors import DataError, visible
from automate.names import name_problem
from automate.validation.assignments import Assignment

JSON = Any
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
_REPO = re.compile(r"[A-Za-z0-9][\w.-]{0,95}(/[A-Za-z0-9_][\w.-]{0,95})?", re.ASCII)
_DATE = "%Y%m%dT%H%M%SZ"
SHOWN = 120
"""Characters of a reply's text that a message shows."""


@dataclass(frozen=True)
class Task:
    """A task of the list. Ids are text here; `ends_at` is when its last known phase ends, epoch seconds.

    `max_params` and `context_length` are counts; None: the list does not say.
    """

    id: str
    title: str = ""
    task_type: str = ""
    status: str = ""
    ends_at: float | None = None
    max_params: int | None = None
    context_length: int | None = None


def wire_id(value: JSON) -> str | None:
    """An id of the wire, number or text, as text; None for what can't be one (or can't be a file name)."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        return None
    text = str(value).strip()
    return text if _ID.fullmatch(text) and name_problem(text) is None and "--" not in text else None


def shown(value: object, most: int = SHOWN) -> str:
    """A hostile text on one line, cut to `most` characters."""
    text = " ".join(visible(str(value)).split())
    return text if len(text) <= most else f"{text[:most]}..."


def load(body: bytes) -> JSON:
    """A JSON value. Raises DataError that says what the body is instead."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise DataError(f"{describe(body)}: {shown(error)}") from error


def describe(body: bytes) -> str:
    """What a body is that isn't JSON."""
    if not body.strip():
        return "the reply is empty"
    start = body.lstrip()[:200].decode("utf-8", errors="replace")
    if start.startswith("<"):
        return f"the reply is HTML or XML, not JSON ({shown(start, 60)!r})"
    return f"the reply is not JSON ({shown(start, 60)!r})"


def parse_time(value: JSON) -> float | None:
    """Epoch seconds of an ISO-8601 text; without a zone it is UTC. None for anything else."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        moment = datetime.fromisoformat(value.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def _count(value: JSON) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _text(value: JSON) -> str:
    return shown(value, 300) if isinstance(value, str) else ""


def _task(row: Mapping[str, JSON], task_id: str) -> Task:
    data = row.get("data")
    inner: Mapping[str, JSON] = data if isinstance(data, dict) else {}
    ends = [parse_time(row.get(name)) for name in ("submission_phase_ends_at", "final_validation_ends_at")]
    return Task(task_id, _text(row.get("title")), _text(row.get("task_type")), _text(row.get("status")),
                max((one for one in ends if one is not None), default=None), _count(inner.get("max_params")),
                _count(inner.get("context_length")))


def parse_tasks(body: bytes) -> list[Task]:
    """The tasks of a list, in its order; rows without an id are left out. Raises DataError for any other shape."""
    rows = load(body)
    if not isinstance(rows, list):
        raise DataError(f"expected a list of tasks, found {type(rows).__name__}: {shown(rows)}")
    found = {}
    for row in rows:
        task_id = wire_id(row.get("id")) if isinstance(row, dict) else None
        if task_id is not None:
            found[task_id] = _task(row, task_id)
    return list(found.values())


def _members(value: Mapping[str, JSON]) -> dict[str, JSON]:
    submission = value.get("task_submission")
    theirs = submission.get("data") if isinstance(submission, dict) else None
    ours = value.get("data")
    return {**(theirs if isinstance(theirs, dict) else {}), **(ours if isinstance(ours, dict) else {})}


def merged_input(body: bytes | Mapping[str, JSON]) -> dict[str, JSON]:
    """What a module's input is made of: the submission's fields, and over them the assignment's.

    Parts that are missing or no objects count as empty. Raises DataError where the reply is no JSON object.
    """
    value = load(body) if isinstance(body, bytes) else body
    if not isinstance(value, Mapping):
        raise DataError(f"expected an object, found {type(value).__name__}")
    return _members(value)


def _url_problem(url: JSON) -> str | None:
    if not isinstance(url, str):
        return f"`validation_set_url` is {type(url).__name__}, expected text"
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and url.isprintable() and " " not in url
        _ = parts.port
    except ValueError:
        good = False
    return None if good else "`validation_set_url` is no http(s) address"


def _repo_problem(repo: JSON) -> str | None:
    if isinstance(repo, str) and _REPO.fullmatch(repo) and ".." not in repo and "--" not in repo:
        return None
    return f"`hg_repo_id` is no name of a repository: {shown(repo, 60)!r}"


def _problem(value: Mapping[str, JSON], task_id: str, merged: Mapping[str, JSON]) -> str | None:
    """The first thing that keeps a reply from being an assignment as it is documented."""
    submission = value.get("task_submission")
    if not isinstance(submission, dict) or not isinstance(submission.get("data"), dict):
        return "`task_submission` with its `data` is missing, or no object"
    if not isinstance(value.get("data"), dict):
        return "`data` is missing, or no object"
    theirs = wire_id(submission.get("task_id"))
    if "task_id" in submission and theirs != task_id:
        return f"it belongs to task {shown(submission.get('task_id'), 40)}, not to task {task_id}"
    if value.get("status", "validating") != "validating":
        return f"its status is {shown(value.get('status'), 40)!r}, not 'validating'"
    if "validation_set_url" in merged and (problem := _url_problem(merged["validation_set_url"])):
        return problem
    if "hg_repo_id" in merged and (problem := _repo_problem(merged["hg_repo_id"])):
        return problem
    revision = merged.get("revision", "main")
    return None if revision is None or isinstance(revision, str) else "`revision` is no text"


def url_expiry(url: JSON, now: float) -> float | None:
    """When a presigned URL dies, epoch seconds; None where it does not say. Source: its X-Amz (or Expires) fields."""
    try:
        asked = {name.lower(): values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        if "x-amz-expires" not in asked:
            return float(int(asked["expires"])) if asked.get("expires", "").isdigit() else None
        start = now
        if "x-amz-date" in asked:
            start = datetime.strptime(asked["x-amz-date"], _DATE).replace(tzinfo=UTC).timestamp()
        return start + int(asked["x-amz-expires"])
    except (ValueError, TypeError, AttributeError, OverflowError):
        return None


def parse_assignment(body: bytes, task_id: str, module: str, now: float, lease: float | None) -> Assignment:
    """The assignment in a reply to the lookup of `task_id`; its `folder` is a placeholder until the spool has it.

    `lease`: seconds that an assignment lives, counted from `assigned_at` (from `now` where that is missing or later);
    None: not known. What is missing or wrong is its `problem`, cause `reply`. Raises DataError without a usable id.
    """
    value = load(body)
    if not isinstance(value, dict):
        raise DataError(f"expected an assignment, found {type(value).__name__}: {shown(value)}")
    assignment_id = wire_id(value.get("id"))
    if assignment_id is None:
        raise DataError(f"the reply holds no usable assignment id: {shown(value.get('id'), 60)!r}",
                        todo="the raw reply is kept; ask FLock with it")
    merged = _members(value)
    problem = _problem(value, task_id, merged)
    assigned = value.get("assigned_at")
    since = parse_time(assigned)
    start = now if since is None else min(since, now)
    url = merged.get("validation_set_url")
    return Assignment(
        id=assignment_id, task_id=task_id, module=module, fetched_at=now, folder=Path(),
        assigned_at=shown(assigned, 64) if isinstance(assigned, str) else None,
        deadline=None if lease is None else start + lease, url_expires=url_expiry(url, now),
        needs_data=url is not None, needs_model=merged.get("hg_repo_id") is not None,
        problem=problem, cause=None if problem is None else "reply")
