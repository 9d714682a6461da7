"""Mends answer and judgment files without asking any model: lines that don't count leave, what counts stays.

Never deletes: the old file is kept under superseded/. Works under the claim of whoever writes that file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from automate import claims
from automate.arena.answering import ledger
from automate.arena.apart import keep_old
from automate.arena.benchmark import Question
from automate.arena.context import load_answers
from automate.arena.games import Match
from automate.arena.ledger import ModelLedger
from automate.cluster.queue import job_alive
from automate.errors import ClaimedError, StorageError
from automate.journal import fresh_name, iter_lines
from automate.workspace import Workspace

ANSWERS = "model_answer"
KEPT = "the old file is"
SHOWN = 5
"""How many lines of a file are told of one by one."""
_LINE = re.compile(r"\.jsonl:\d+: ")


def mend_answers(workspace: Workspace, questions: Sequence[Question], model: str) -> list[str]:
    """Take bad, torn and doubled lines out of a model's answer file, and put in what only the journal has.

    Returns notes of what was done, or why not.
    """
    path = workspace.answer_file(model)
    before = _bytes(path)
    try:
        notes = ledger.mend_answers(workspace, questions, model)
    except ClaimedError as error:
        return [f"{model}: its answers can't be mended now: {error.what}"]
    if before and _bytes(path) != before and not any(KEPT in note for note in notes):
        old = keep_old(workspace, path, Path(ANSWERS) / path.name, before)
        notes.append(f"{model}: lines stood twice in {path.name}; {KEPT} {old}")
    return notes


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes() if path.is_file() else b""
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error


def mend_judgments(workspace: Workspace, match: Match, model: str) -> list[str]:
    """Take good games over into the journal and derive the judgment file anew; notes of what was done, or why not."""
    answers = load_answers(workspace, model)
    if answers is None:
        return [f"{model}: no answers, so its judgment file is left as it is until they are there"]
    try:
        claim = claims.take(workspace.claim(model), stale=workspace.settings.limits.claim_stale, job_alive=job_alive)
    except ClaimedError as error:
        return [f"{model}: its judgment file can't be mended now: {error.what}"]
    games = ModelLedger(workspace, model, match, answers, workspace.settings.limits.attempts)
    try:
        notes = _keep_doubles(workspace, model, games.rows_path)
        games.open(fresh_name("mended"))
        return [*notes, *_shortened(games.notes), f"{model}: its judgment file is as the records say"]
    finally:
        games.close()
        claim.release()


def _keep_doubles(workspace: Workspace, model: str, path: Path) -> list[str]:
    """Keep a judgment file in which lines stand twice: the ledger keeps it only where another line leaves it."""
    lines = [line for _, line, _ in iter_lines(path)] if path.is_file() else []
    if len(set(lines)) == len(lines):
        return []
    old = keep_old(workspace, path, path.relative_to(workspace.judgments))
    return [f"{model}: {len(lines) - len(set(lines))} lines stand twice in {path.name}; {KEPT} {old}"]


def _shortened(notes: Sequence[str]) -> list[str]:
    """Notes with at most a few of single lines of files, which may be many."""
    lines = [note for note in notes if _LINE.search(note)]
    more = [f"... and {len(lines) - SHOWN} more such lines"] if len(lines) > SHOWN else []
    return [*lines[:SHOWN], *more, *(note for note in notes if note not in lines)]
