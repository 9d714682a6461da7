"""`pool`: funded benchmark pools: keys, tokens, data sets, models, leaderboards, rewards.

Imports click only; each command's module is imported when it is called."""

from __future__ import annotations

import click

from automate.cli.main import LazyGroup

POOL: dict[str, tuple[str, str]] = {
    "keygen": ("keying", "Make a key: who one is."),
    "mint": ("money", "Make tokens, by the workspace owner's genesis key."),
    "balance": ("money", "What an address has, and its last entries."),
    "dataset": ("dataset", "Make a data set, load its questions, look at it."),
    "create": ("funding", "Open a pool: put money on a data set."),
    "model": ("model", "Tell of a model; list models."),
    "join": ("funding", "Let a model compete in a pool."),
    "list": ("looking", "The pools."),
    "show": ("looking", "One pool: its money, time, models and payouts."),
    "leaderboard": ("looking", "A pool's leaderboard, also as JSON, CSV or a page."),
    "evaluate": ("evaluating", "Ask what is due, on the cluster, through the fleet."),
    "tick": ("evaluating", "Do what a clock would do now; safe to repeat, quiet when nothing is due."),
    "schedule": ("evaluating", "The lines that make a real clock tick: cron, scrontab, systemd."),
    "processes": ("looking", "The ids of token, pool, router and data sets."),
    "send": ("sending", "Any message, as the spec shows them."),
    "serve": ("serve", "Messages over HTTP, and the leaderboards as pages."),
    "audit": ("looking", "Every unit of money and every answer of a pool, traced."),
}


@click.group(cls=LazyGroup, table=POOL, package="automate.cli.pool",
             context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
def pool() -> None:
    """Funded benchmark pools: who has the best model on a data set gets the pool's money.

    A funder puts money and a data set into a pool, anyone joins with a model, every model is evaluated on the
    data set, and when the pool is over its rewards are paid by rule. Begin with 'flock-hpc pool keygen'.
    """
