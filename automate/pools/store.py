"""One SQLite file on a local disk, opened by one process at a time; a transaction for each message.

Never on a network file system, whose locks and order of writes can't be trusted."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from automate.filesystems import FileSystem
from automate.pool_places import PoolPlaces

Value = str | int | float | None
Row = sqlite3.Row


class Statements(Protocol):
    """What handlers and queries may do with the database: parameterised statements, and nothing else."""

    def execute(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor: ...

    def executemany(self, sql: str, values: Iterable[Sequence[Value]]) -> sqlite3.Cursor: ...


class Store:
    """The open database. `db` takes statements; writes go inside `transaction()`.

    WAL, synchronous=FULL, foreign keys on, exclusive. Context manager; closing gives the lock back.
    """

    db: Statements

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """BEGIN IMMEDIATE ... COMMIT; ROLLBACK where anything is raised."""
        raise NotImplementedError
        yield

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Inside a transaction: what is raised undoes this part only."""
        raise NotImplementedError
        yield

    def close(self) -> None:
        raise NotImplementedError


def open_store(places: PoolPlaces, *, now: int, wait: float | None = None, mounts: Sequence[FileSystem] | None = None,
               trap: Callable[[str], None] | None = None, make: bool = True) -> Store:
    """Open the database, made with its tables, genesis key and system processes (token, pool, router) where there is
    none and `make`.

    `trap` is called before each statement, COMMIT included (tests crash there). Raises ConfigError for a network file
    system, a database of another version or host (with which); ClaimedError naming the process that holds it;
    WorkspaceError where there is none and not `make`; StorageError.
    """
    raise NotImplementedError
