"""A data set's process: its handlers. Questions are read by its kind, kept in `questions`.

Never opens a path that came over HTTP, and never loads a row twice."""

from __future__ import annotations

from pathlib import Path

from automate.pools.exchange import Context, Handler
from automate.pools.kinds.base import BadRow, Kind

HANDLERS: dict[str, Handler] = {}
"""Init, Load-Data, Info, Get-Models, Benchmark, Evaluate, Score, Inference-Response, Transfer-Error (the spec's
LlamaHerder.Transfer-Error), Debit-Notice, Credit-Notice. Those on evaluations live in evaluation.py."""


def kind_of(context: Context) -> Kind:
    """The kind of the data set that `context.me` is, with its settings."""
    raise NotImplementedError


def load(context: Context, source: Path, message_id: str) -> tuple[int, int, list[BadRow]]:
    """Load a file: rows added, rows that were there, rows that can't be used. The same content again adds nothing;
    equal rows within one source are told apart by their occurrence. 100,000 rows within 3 s is the goal."""
    raise NotImplementedError
