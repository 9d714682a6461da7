"""Every attempt to report an assignment: a line before the POST and one after it, in the assignment's folder.

Says what is known of earlier attempts; never posts and never moves an assignment."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from automate.errors import StorageError
from automate.journal import Record, RecordWriter, fresh_name, mend, read_jsonl
from automate.validation.inner import files

ACCEPTED, UNSURE, REFUSED, AWAY, LOST = "accepted", "unsure", "refused", "unavailable", "not-validating"
"""Outcomes of a POST: taken; it may have been taken; refused with a detail; not taken; not in validating status."""
MARK = "post-under-way"
"""An empty file that stands for the line before a POST where the disk has no room for a line."""


@dataclass(frozen=True)
class Posts:
    """What is known of earlier attempts.

    `accepted`: one was taken. `unsure`: one may have been (no reply came, or the process died meanwhile).
    `refusals`: how many were refused; `tries`: how many there were; `last`: when the last one of the file ended (0:
    never), whatever times a clock that was wrong gave earlier ones.
    """

    accepted: bool = False
    unsure: bool = False
    refusals: int = 0
    tries: int = 0
    last: float = 0.0


def summary(records: list[Record], bad: int = 0, *, marked: bool = False) -> Posts:
    """What lines say together. `bad` lines that are no records may have been anything, so they leave doubt."""
    outcomes = {str(one.get("n")): str(one.get("outcome")) for one in records if one.get("event") == "outcome"}
    intents = [str(one.get("n")) for one in records if one.get("event") == "intent"]
    known = list(outcomes.values())
    return Posts(
        accepted=ACCEPTED in known,
        unsure=marked or bad > 0 or UNSURE in known or any(one not in outcomes for one in intents),
        refusals=known.count(REFUSED), tries=len(intents),
        last=_time(records[-1].get("when")) if records else 0.0,
    )


def _time(value: object) -> float:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else 0.0


def read(folder: Path) -> Posts:
    """What is known of the attempts to report the assignment in `folder`. Raises StorageError."""
    path = folder / files.POSTS
    marked = (folder / MARK).exists()
    if not path.exists():
        return Posts(unsure=marked)
    lines = read_jsonl(path)
    return summary([record for _, record in lines.records], sum(not one.torn for one in lines.bad), marked=marked)


def body_hash(body: Mapping[str, Any]) -> str:
    """The sha256 of what is sent, in hex."""
    return hashlib.sha256(orjson.dumps(body, option=orjson.OPT_SORT_KEYS)).hexdigest()


class Attempt:
    """One attempt. `begin` before the POST, `end` after it; a crash in between leaves the doubt on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = fresh_name()
        self._marked = False

    def begin(self, when: float, kind: str, digest: str) -> None:
        """Note that it is about to be sent. Raises StorageError where nothing can be noted: then it must not be."""
        try:
            self._append({"event": "intent", "n": self.name, "when": when, "kind": kind, "sha256": digest})
        except StorageError:
            self._mark()

    def end(self, when: float, outcome: str, detail: str = "") -> None:
        """Note what became of it. What can't be noted stays in doubt, which is safe: it is asked again."""
        try:
            self._append({"event": "outcome", "n": self.name, "when": when, "outcome": outcome, "detail": detail})
        except StorageError:
            if outcome == ACCEPTED:
                return
        if self._marked and outcome != UNSURE:
            (self.folder / MARK).unlink(missing_ok=True)

    def _append(self, record: Record) -> None:
        path = self.folder / files.POSTS
        if path.exists():
            mend(path)
        writer = RecordWriter(path, exclusive=False)
        try:
            writer.append(record)
        finally:
            writer.close()

    def _mark(self) -> None:
        mark = self.folder / MARK
        if mark.exists():
            return  # an earlier one is in doubt already, and stays so
        try:
            mark.touch(exist_ok=False)
        except OSError as error:
            raise StorageError.of(error, mark, "note that a report is about to be sent") from error
        self._marked = True
