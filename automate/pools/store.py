"""One SQLite file on a local disk, opened by one process at a time; a transaction for each message.

Never on a network file system, whose locks and order of writes can't be trusted."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from automate.errors import ClaimedError, ConfigError, FlockError, StorageError, WorkspaceError
from automate.filesystems import FileSystem
from automate.pool_places import PoolPlaces
from automate.pools.locking import Lock, check_folder, check_local, check_note, private_folder, take_lock, write_note

Value = str | int | float | None
Row = sqlite3.Row
Trap = Callable[[str], None]

_OLDEST = (3, 38)
"""The SQLite that knows strict tables and ->>."""
_CACHE_KIB, _LOG_BYTES = 64 * 1024, 64 * 1024 * 1024
_FULL, _BUSY = {sqlite3.SQLITE_FULL}, {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_REFUSED = {sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
            sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOLFS}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


class Statements(Protocol):
    """What handlers and queries may do with the database: parameterised statements, and nothing else."""

    def execute(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor: ...

    def executemany(self, sql: str, values: Iterable[Sequence[Value]]) -> sqlite3.Cursor: ...


class DatabaseStorageError(StorageError):
    """The disk under the database refused: no fault of any message."""


class DatabaseDamagedError(ConfigError):
    """What lies there is no database, or no whole one."""


def translated(error: sqlite3.Error, path: Path) -> FlockError | None:
    """What a user can mend of an error of SQLite; None for a fault of this program."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in _FULL:
        return DatabaseStorageError("the disk is full: nothing of this was kept", where=str(path),
                                    todo="make room there (df, quota), then run the same command again")
    if code in _REFUSED:
        return DatabaseStorageError(f"can't use the database: {error}", where=str(path),
                                    todo="check the disk, and who may read and write there (ls -l), then run the same "
                                         "command again")
    if code in _BUSY:
        return ClaimedError("another program has the database open", where=str(path),
                            todo="close it (a sqlite3 shell, a backup?), then run the same command again")
    if code in _DAMAGED:
        return DatabaseDamagedError(f"not a whole database: {error}", where=str(path),
                                    todo="put it back from a copy, with no other file that begins with its name")
    return None


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        found = translated(error, path)
        if found is None:
            raise
        raise found from error


class _Trapped:
    """The statements of a connection; each is shown to the trap before."""

    def __init__(self, connection: sqlite3.Connection, path: Path, trap: Trap | None) -> None:
        self._connection, self._path, self._trap = connection, path, trap

    def execute(self, sql: str, values: Sequence[Value] = ()) -> sqlite3.Cursor:
        if self._trap is not None:
            self._trap(sql)
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise translated(error, self._path) or error from error

    def executemany(self, sql: str, values: Iterable[Sequence[Value]]) -> sqlite3.Cursor:
        if self._trap is not None:
            self._trap(sql)
        try:
            return self._connection.executemany(sql, values)
        except sqlite3.Error as error:
            raise translated(error, self._path) or error from error


class Store:
    """The open database. `db` takes statements; writes go inside `transaction()`. One thread at a time.

    WAL, synchronous=FULL, foreign keys on, exclusive. Context manager; closing gives the lock back.
    """

    db: Statements

    def __init__(self, connection: sqlite3.Connection, path: Path, lock: Lock, trap: Trap | None) -> None:
        self._connection, self._path, self._lock = connection, path, lock
        self._open = True
        self.db = _Trapped(connection, path, trap)

    @property
    def path(self) -> Path:
        return self._path

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def _undo(self, *statements: str) -> None:
        """Untrapped: after a crash nothing of the program runs; SQLite has ended the transaction itself at times."""
        if self._connection.in_transaction:
            with _explained(self._path):
                for statement in statements:
                    self._connection.execute(statement)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """BEGIN IMMEDIATE ... COMMIT; ROLLBACK where anything is raised."""
        self.db.execute("BEGIN IMMEDIATE")
        try:
            with _explained(self._path):
                yield
            self.db.execute("COMMIT")
        except BaseException:
            self._undo("ROLLBACK")
            raise

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        """Inside a transaction: what is raised undoes this part only."""
        self.db.execute("SAVEPOINT message")
        try:
            with _explained(self._path):
                yield
            self.db.execute("RELEASE message")
        except BaseException:
            self._undo("ROLLBACK TO message", "RELEASE message")
            raise

    def close(self) -> None:
        """Twice is once."""
        if self._open:
            self._open = False
            try:
                with _explained(self._path):
                    self._connection.close()
            finally:
                self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.close()


# --- opening ------------------------------------------------------------------------------------------
def _file(path: Path, make: bool) -> bool:
    """Whether the database's file is there, for this user alone (0600); made empty where it isn't and `make`."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        for rest in (path.with_name(path.name + "-wal"), path.with_name(path.name + "-journal")):
            if rest.exists() and rest.stat().st_size:
                raise ConfigError("a part of a database without its main file", where=str(rest), todo="put the main "
                                  f"file back beside it ({path.name}); or move this one away") from None
        if make:
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        return False
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("not a file", where=str(path), todo="set pools.database to a file on a local disk")
    if found.st_uid != os.geteuid():
        raise ConfigError(f"this database belongs to another user (uid {found.st_uid})", where=str(path),
                          todo="set pools.database to a file of your own; or send messages to 'flock-hpc pool serve'")
    if stat.S_IMODE(found.st_mode) & 0o077:
        path.chmod(0o600)
    return True


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=0.0, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        for statement in ("PRAGMA locking_mode = EXCLUSIVE", "PRAGMA journal_mode = WAL",
                          "PRAGMA synchronous = FULL", "PRAGMA foreign_keys = ON", "PRAGMA temp_store = MEMORY",
                          f"PRAGMA cache_size = -{_CACHE_KIB}", f"PRAGMA journal_size_limit = {_LOG_BYTES}"):
            connection.execute(statement).fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _id_of(store: Store) -> str | None:
    """The id of the database; None where it has no tables yet. Raises ConfigError: another version, another program's.
    """
    from automate.pools.schema import VERSION
    version = int(store.db.execute("PRAGMA user_version").fetchone()[0])
    if version == 0 and store.db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
        return None
    rows = store.db.execute("SELECT count(*) FROM sqlite_master WHERE name IN ('meta', 'processes', 'messages')")
    if rows.fetchone()[0] != 3:
        raise ConfigError("a database of another program", where=str(store.path), todo="set pools.database to "
                          "another file")
    if version != VERSION:
        raise ConfigError(f"a database of version {version}; this flock-hpc knows version {VERSION}",
                          where=str(store.path), todo="use the flock-hpc that made it, or a newer one")
    found = store.db.execute("SELECT value FROM meta WHERE key = 'database'").fetchone()
    return str(found[0])


def _check_version() -> None:
    if sqlite3.sqlite_version_info < _OLDEST:
        raise ConfigError(f"this Python has SQLite {sqlite3.sqlite_version}; pools need "
                          f"{'.'.join(map(str, _OLDEST))} or newer", where="python",
                          todo="install flock-hpc with a newer Python (uv brings one)")


def open_store(places: PoolPlaces, *, now: int, wait: float | None = None, mounts: Sequence[FileSystem] | None = None,
               trap: Callable[[str], None] | None = None, make: bool = True) -> Store:
    """Open the database, made with its tables, genesis key and system processes (token, pool, router) where there is
    none and `make`.

    `trap` is called before each statement, COMMIT included (tests crash there). Raises ConfigError for a network file
    system, a database of another version or host (with which); ClaimedError naming the process that holds it;
    WorkspaceError where there is none and not `make`; StorageError.
    """
    path = places.database
    _check_version()
    check_local(path, mounts)
    if not os.path.lexists(path):
        check_note(places, None)
        if not make:
            raise WorkspaceError("there are no pools here yet", where=str(path),
                                 todo="make a key and a data set first: 'flock-hpc pool keygen'")
    private_folder(places.home, enforce=True)
    private_folder(path.parent)
    check_folder(path.parent)
    lock = take_lock(places.lock, places.settings.lock_wait if wait is None else wait)
    try:
        return _opened(places, now, lock, trap, make)
    except BaseException:
        lock.release()
        raise


def _opened(places: PoolPlaces, now: int, lock: Lock, trap: Trap | None, make: bool) -> Store:
    path = places.database
    try:
        if not _file(path, make=False):
            check_note(places, None)
            _file(path, make=True)
    except OSError as error:
        raise StorageError.of(error, path, "make the database") from error
    with _explained(path):
        connection = _connect(path)
    try:
        with _explained(path):
            store = Store(connection, path, lock, trap)
            database = _id_of(store)
            if database is None:
                if not make:
                    raise WorkspaceError("there are no pools here yet", where=str(path),
                                         todo="make a key and a data set first: 'flock-hpc pool keygen'")
                check_note(places, None)
                from automate.pools.founding import found
                database = found(store, places, now)
            check_note(places, database)
            write_note(places, database)
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.close()
        raise
    return store
