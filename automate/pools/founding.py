"""Makes a new database: its tables, the key of its owner, the token, the pool and the router.

Never changes a database that is there."""

from __future__ import annotations

import secrets
import sqlite3
from collections.abc import Iterator

from automate.pool_places import PoolPlaces
from automate.pools.keys import GENESIS, Key, load_key, make_key, process_id
from automate.pools.schema import TABLES, VERSION
from automate.pools.store import Store

SYSTEM = ("token", "pool", "router")
"""Names and kinds of the processes that each database has."""


def statements(script: str) -> Iterator[str]:
    """The single statements of a script."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text.strip()
            text = ""


def genesis_key(places: PoolPlaces) -> Key:
    """The workspace owner's key, made where there is none. Raises StorageError, ConfigError."""
    path = places.key(GENESIS)
    return load_key(path) if path.exists() else make_key(path)


def found(store: Store, places: PoolPlaces, now: int) -> str:
    """Make all in one transaction; the new database's id."""
    owner = genesis_key(places).address
    database = secrets.token_hex(16)
    with store.transaction():
        for statement in statements(TABLES):
            store.db.execute(statement)
        for key, value in (("database", database), ("owner", owner)):
            store.db.execute("INSERT INTO meta (key, value) VALUES (?, ?)", (key, value))
        for name in SYSTEM:
            store.db.execute("INSERT INTO processes (id, kind, name, owner, ready, created) VALUES (?, ?, ?, ?, 1, ?)",
                             (process_id(owner, database, name), name, name, owner, now))
        store.db.execute(f"PRAGMA user_version = {VERSION:d}")
    return database
