"""The pool process ("Benchmark"): pools, who joined, leaderboards, rewards.

Never pays twice, and never keeps money that is nobody's."""

from __future__ import annotations

from automate.pools.exchange import Context, Handler, Process
from automate.pools.store import Row, Statements

HANDLERS: dict[str, Handler] = {}
"""Credit-Notice (Create-Pool), Create-Pool (explains), Join-Pool, Get-Pools, Update-Leaderboard, Score-Response,
Leaderboard, Allocate-Rewards, Add-Model (model upload), Get-Models, Spawn (a data set process), Debit-Notice,
Transfer-Error, Info."""


def pool_of(context: Context, given: str, *, open_only: bool = False) -> Row:
    """The pool that a `dataset` field means: a pool id, or a data set (id or name) while that has one open pool.

    Raises PoolError naming the choices.
    """
    raise NotImplementedError


def model_of(db: Statements, given: str) -> Row:
    """The model by process id, name or number. Raises PoolError."""
    raise NotImplementedError


def spawn_dataset(context: Context, name: str, kind: str, owner: str, message_id: str) -> Process:
    """A new data set process, owned by who asked. Raises PoolError: name taken or unusable, unknown kind."""
    raise NotImplementedError
