"""The pool process ("Benchmark"): pools, who joined, leaderboards, rewards.

Never pays twice, and never keeps money that is nobody's."""

from __future__ import annotations

from collections.abc import Sequence

from automate.pools import funding, joining, models, rewards, spawning
from automate.pools.allocation import RULES
from automate.pools.exchange import Context, Handler
from automate.pools.leaderboard import board, rows
from automate.pools.lookup import model_of, pool_data, pool_of, state_of
from automate.pools.messages import Message, Outgoing, reply
from automate.pools.spawning import spawn_dataset

__all__ = ["HANDLERS", "model_of", "pool_of", "spawn_dataset"]

_POOLS = """
SELECT pools.*, processes.name AS dataset_name,
  (SELECT COUNT(*) FROM pool_models WHERE pool = pools.id) AS models
FROM pools JOIN processes ON processes.id = pools.dataset ORDER BY start_time, pools.rowid"""


def get_pools(context: Context, message: Message) -> Sequence[Outgoing]:
    """All pools, oldest first, with the spec's fields; `models` is how many joined. Times in ms, funds as digits."""
    found = [{"id": row["id"], "dataset": row["dataset"], "dataset_name": row["dataset_name"], "funder": row["funder"],
              "funds": str(row["funds"]), "allocation": row["allocation"], "startTime": row["start_time"],
              "endTime": row["end_time"], "state": state_of(row, context.now), "models": row["models"]}
             for row in context.db.execute(_POOLS)]
    return (reply(message, found),)


def leaderboard(context: Context, message: Message) -> Sequence[Outgoing]:
    """Data: a pool's id as the spec has it, or {"dataset"}. The rows of leaderboard.rows, best first."""
    pool = pool_of(context, pool_data(message))
    shown = board(context.db, pool["id"], context.now)
    return (reply(message, rows(shown), Pool=shown.pool, State=shown.state),)


def info(context: Context, message: Message) -> Sequence[Outgoing]:
    """Who the processes are, the data sets, the rules, and what a pool needs."""
    datasets = context.db.execute("SELECT id, name, module AS kind, owner, ready FROM processes WHERE kind = 'dataset' "
                                  "ORDER BY created, rowid").fetchall()
    settings = context.settings
    data = {"name": context.me.name, "process": context.me.id, "token": context.token, "router": context.router,
            "rules": list(RULES), "min_fund": str(settings.min_fund), "days": settings.days,
            "winners": settings.winners, "grace": settings.grace, "datasets": [dict(row) for row in datasets]}
    return (reply(message, data),)


HANDLERS: dict[str, Handler] = {
    "Credit-Notice": funding.credit_notice,
    "Create-Pool": funding.create_pool,
    "Join-Pool": joining.join_pool,
    "Get-Pools": get_pools,
    "Update-Leaderboard": joining.update_leaderboard,
    "Score-Response": joining.score_response,
    "Leaderboard": leaderboard,
    "Allocate-Rewards": rewards.allocate_rewards,
    rewards.SETTLE: rewards.settle_pool,
    "Add-Model": models.add_model,
    "Get-Models": models.get_models,
    "Spawn": spawning.spawn,
    "Debit-Notice": rewards.debit_notice,
    "Transfer-Error": rewards.transfer_error,
    "Benchmark-Response": joining.taken,
    "Benchmark-Error": joining.benchmark_error,
    "Score-Error": joining.taken,
    "Info": info,
}
"""Credit-Notice (Create-Pool), Create-Pool (explains), Join-Pool, Get-Pools, Update-Leaderboard, Score-Response,
Leaderboard, Allocate-Rewards, Add-Model (model upload), Get-Models, Spawn (a data set process), Debit-Notice,
Transfer-Error, Info."""
