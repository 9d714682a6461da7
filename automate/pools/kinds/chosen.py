"""The kind of a data set's process, with its settings; what dataset.py and evaluation.py both build on.

Never reads questions and never changes a setting."""

from __future__ import annotations

from automate.errors import PoolError
from automate.pools.exchange import Context
from automate.pools.kinds.base import Kind
from automate.pools.kinds.finding import kind_class


def kind_of(context: Context) -> Kind:
    """The kind of the data set that `context.me` is. Raises ConfigError where its class can't be used, PoolError where
    its settings can't."""
    me = context.me
    try:
        return kind_class(me.module, context.settings.kinds)(me.settings or {})
    except ValueError as error:
        raise PoolError(f"its settings can't be used: {error}", where=f"data set {me.name}",
                        todo="send Init with settings that can") from error
