"""The database: made whole or not at all, opened by one, never on a network file system, never silently anew."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from automate.errors import ClaimedError, ConfigError, PoolError, StorageError, WorkspaceError
from automate.filesystems import FileSystem
from automate.pool_places import PoolPlaces
from automate.pools.founding import SYSTEM, statements
from automate.pools.keys import GENESIS, load_key
from automate.pools.schema import TABLES, VERSION
from automate.pools.store import DatabaseDamagedError, DatabaseStorageError, Store, open_store
from tests.unit.pool_support import START, Bench, Crash, Trap, pool_places


def opened(places: PoolPlaces, trap: Trap | None = None, *, make: bool = True, wait: float | None = None) -> Store:
    return open_store(places, now=START, mounts=(), trap=trap, make=make, wait=wait)


def names(store: Store) -> list[str]:
    return [row["name"] for row in store.db.execute("SELECT name FROM processes ORDER BY rowid").fetchall()]


class TestMaking:
    def test_tables_owner_and_system_processes(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        with opened(places) as store:
            assert names(store) == list(SYSTEM)
            owner = load_key(places.key(GENESIS)).address
            assert {row["owner"] for row in store.db.execute("SELECT owner FROM processes").fetchall()} == {owner}
            pragmas = {name: store.db.execute(f"PRAGMA {name}").fetchone()[0]
                       for name in ("journal_mode", "synchronous", "foreign_keys", "locking_mode", "user_version")}
        assert pragmas == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "locking_mode": "exclusive",
                           "user_version": VERSION}

    def test_is_this_users_alone(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        places.rounds.mkdir(parents=True)
        places.home.chmod(0o755)
        with opened(places):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in places.home.iterdir() if path.is_file()}
        assert stat.S_IMODE(places.home.stat().st_mode) == 0o700
        assert set(modes.values()) == {0o600}
        assert {"state.sqlite", "state.sqlite-wal", "state.sqlite.lock", "database.json"} <= set(modes)
        places.database.chmod(0o644)
        with opened(places):
            assert stat.S_IMODE(places.database.stat().st_mode) == 0o600

    def test_ids_differ_between_databases_of_one_owner(self, tmp_path: Path) -> None:
        one, other = pool_places(tmp_path / "a"), pool_places(tmp_path / "b")
        with opened(one) as store:
            first = {row["id"] for row in store.db.execute("SELECT id FROM processes").fetchall()}
        other.keys.mkdir(parents=True)
        other.key(GENESIS).touch(0o600)
        other.key(GENESIS).write_bytes(one.key(GENESIS).read_bytes())
        with opened(other) as store:
            assert not first & {row["id"] for row in store.db.execute("SELECT id FROM processes").fetchall()}

    def test_crash_before_any_statement_is_mended(self, tmp_path: Path) -> None:
        count = 0
        for at in range(1, 200):
            places, trap = pool_places(tmp_path / str(at)), Trap()
            trap.set(at)
            try:
                opened(places, trap).close()
            except Crash:
                count += 1
            else:
                break
            with opened(places) as store:
                assert names(store) == list(SYSTEM)
        assert count > len(list(statements(TABLES)))

    def test_not_made_where_it_should_be_there(self, tmp_path: Path) -> None:
        with pytest.raises(WorkspaceError, match="no pools here"):
            opened(pool_places(tmp_path), make=False)
        assert list(tmp_path.iterdir()) == []
        places = pool_places(tmp_path)
        places.home.mkdir(parents=True)
        places.database.touch()
        with pytest.raises(WorkspaceError, match="no pools here"):
            opened(places, make=False)

    def test_statements(self) -> None:
        assert list(statements("CREATE TABLE a (b);\n\nSELECT ';\n';\n")) == ["CREATE TABLE a (b);", "SELECT ';\n';"]


class TestTransactions:
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return opened(pool_places(tmp_path))

    def put(self, store: Store, key: str) -> None:
        store.db.execute("INSERT INTO meta VALUES (?, '')", (key,))

    def keys(self, store: Store) -> list[str]:
        rows = store.db.execute("SELECT key FROM meta WHERE key NOT IN ('owner', 'database') ORDER BY key").fetchall()
        return [row["key"] for row in rows]

    def test_all_or_nothing(self, store: Store) -> None:
        with store.transaction():
            self.put(store, "a")
        with pytest.raises(ValueError, match="x"), store.transaction():
            self.put(store, "b")
            raise ValueError("x")
        assert self.keys(store) == ["a"]

    def test_a_savepoint_undoes_its_part(self, store: Store) -> None:
        with store.transaction():
            self.put(store, "a")
            with pytest.raises(PoolError), store.savepoint():
                self.put(store, "b")
                with store.savepoint():
                    self.put(store, "c")
                raise PoolError("x")
            with store.savepoint():
                self.put(store, "d")
        assert self.keys(store) == ["a", "d"]

    def test_foreign_keys_hold(self, store: Store) -> None:
        with pytest.raises(sqlite3.IntegrityError), store.transaction():
            store.db.execute("INSERT INTO entries (message, account, other, amount) VALUES ('none', 'a', 'b', 1)")

    def test_a_full_disk(self, store: Store) -> None:
        pages = store.db.execute("PRAGMA page_count").fetchone()[0]
        store.db.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(DatabaseStorageError, match="disk is full"), store.transaction():
            self.put(store, "a")
            self.put(store, "x" * 1_000_000)
        assert not store.in_transaction
        store.db.execute("PRAGMA max_page_count = 1000000")
        assert self.keys(store) == []
        with store.transaction():
            self.put(store, "b")
        assert self.keys(store) == ["b"]

    def test_many_rows_at_once(self, store: Store) -> None:
        with store.transaction():
            store.db.executemany("INSERT INTO meta VALUES (?, '')", ((str(number),) for number in range(3)))
        assert self.keys(store) == ["0", "1", "2"]


class TestOneAtATime:
    def test_a_second_is_refused_and_told_by_whom(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        with opened(places):
            with pytest.raises(ClaimedError, match=rf"process {os.getpid()} on {socket.gethostname()}"):
                opened(places, wait=0)
            with pytest.raises(ClaimedError):
                opened(places, wait=0.1)
        opened(places).close()

    def test_a_holder_that_dies_gives_it_back(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        code = ("import sys; from pathlib import Path; from tests.unit.pool_support import Bench\n"
                "bench = Bench(Path(sys.argv[1]))\n"
                "bench.store.db.execute('BEGIN IMMEDIATE')\n"
                "bench.store.db.execute(\"INSERT INTO meta VALUES ('half', '')\")\n"
                "print('ready', flush=True); sys.stdin.read()")
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            with pytest.raises(ClaimedError, match=f"process {process.pid} on"):
                opened(places, wait=0)
            process.kill()
        with opened(places, wait=20) as store:
            assert store.db.execute("SELECT count(*) FROM meta WHERE key = 'half'").fetchone()[0] == 0

    def test_what_was_answered_outlives_a_process_that_is_killed(self, tmp_path: Path) -> None:
        code = ("import sys; from pathlib import Path; from tests.unit.pool_support import Bench\n"
                "bench = Bench(Path(sys.argv[1]))\n"
                "while True: print(bench.send('ann', 'token', 'Nothing').id, flush=True)")
        with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE,
                              text=True) as process:
            assert process.stdout is not None
            told = [process.stdout.readline().strip() for _ in range(20)]
            process.kill()
        with Bench(tmp_path) as bench:
            rows = {row["id"]: row["state"] for row in bench.rows("SELECT id, state FROM messages")}
            assert {rows.get(one) for one in told} == {"refused"}

    def test_another_thread_may_use_it(self, tmp_path: Path) -> None:
        with opened(pool_places(tmp_path)) as store, ThreadPoolExecutor() as threads:
            assert threads.submit(names, store).result() == list(SYSTEM)

    def test_another_program_that_has_it_open(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        other = sqlite3.connect(places.database, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        try:
            with pytest.raises(ClaimedError, match="another program"):
                opened(places)
        finally:
            other.close()
        opened(places).close()

    def test_closing_twice_is_closing_once(self, tmp_path: Path) -> None:
        store = opened(pool_places(tmp_path))
        store.close()
        store.close()

    def test_failing_to_open_gives_the_lock_back(self, tmp_path: Path) -> None:
        places, trap = pool_places(tmp_path), Trap()
        trap.set(1)
        with pytest.raises(Crash):
            opened(places, trap)
        opened(places).close()


class TestPlaces:
    @pytest.mark.parametrize("kind", ["nfs", "nfs4", "lustre", "gpfs", "beegfs", "cifs", "fuse.sshfs",
                                      "fuse.glusterfs"])
    def test_network_file_systems_are_refused_with_the_reason(self, tmp_path: Path, kind: str) -> None:
        mounts = [FileSystem("ext4", "/", "disk"), FileSystem(kind, str(tmp_path), "server:/x")]
        with pytest.raises(ConfigError, match="network file system") as caught:
            open_store(pool_places(tmp_path), now=START, mounts=mounts)
        assert "locks" in caught.value.what
        assert kind in caught.value.what
        assert "pools.database" in str(caught.value.todo)
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("kind", ["ext4", "xfs", "overlay", "tmpfs", "btrfs", "zfs"])
    def test_local_ones_are_taken(self, tmp_path: Path, kind: str) -> None:
        open_store(pool_places(tmp_path), now=START, mounts=[FileSystem(kind, "/", "disk")]).close()

    def test_a_local_database_of_a_workspace_on_a_network(self, tmp_path: Path) -> None:
        mounts = [FileSystem("lustre", str(tmp_path / "shared"), "x"), FileSystem("xfs", str(tmp_path / "local"), "y")]
        places = pool_places(tmp_path / "shared", database=str(tmp_path / "local" / "pools.sqlite"))
        open_store(places, now=START, mounts=mounts).close()
        assert json.loads(places.note.read_text())["path"] == str(tmp_path / "local" / "pools.sqlite")

    def note(self, places: PoolPlaces, **change: str) -> None:
        places.note.write_text(json.dumps(json.loads(places.note.read_text()) | change))

    def test_on_another_machine(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        self.note(places, host="login7", path="/var/tmp/x/pools.sqlite")
        places.database.unlink()
        for make in (True, False):
            with pytest.raises(ConfigError, match=r"on login7, at /var/tmp/x/pools\.sqlite"):
                opened(places, make=make)
        assert not places.database.exists()

    def test_a_database_of_the_same_path_on_another_machine(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        self.note(places, host="login7", id="another")
        with pytest.raises(ConfigError, match="on login7"):
            opened(places)

    def test_a_machine_that_was_renamed(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        self.note(places, host="old-name")
        opened(places).close()
        assert json.loads(places.note.read_text())["host"] == socket.gethostname()

    def test_one_that_is_gone_is_never_made_anew(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        places.database.unlink()
        with pytest.raises(ConfigError, match="is gone"):
            opened(places)
        places.database.touch()
        with pytest.raises(ConfigError, match="is gone"):
            opened(places)

    def test_a_setting_that_names_another_file(self, tmp_path: Path) -> None:
        opened(pool_places(tmp_path)).close()
        with pytest.raises(ConfigError, match=r"the database is .*state\.sqlite"):
            opened(pool_places(tmp_path, database="other.sqlite"))

    def test_another_database_than_the_workspaces(self, tmp_path: Path) -> None:
        places, other = pool_places(tmp_path / "a"), pool_places(tmp_path / "b")
        opened(places).close()
        opened(other).close()
        places.database.write_bytes(other.database.read_bytes())
        with pytest.raises(ConfigError, match="not the database of this workspace"):
            opened(places)

    def test_a_note_that_is_lost_or_torn_is_written_again(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        for text in (None, "", '{"host'):
            opened(places).close()
            whole = places.note.read_text()
            places.note.unlink() if text is None else places.note.write_text(text)
            opened(places).close()
            assert places.note.read_text() == whole


class TestWhatCantBeUsed:
    def test_no_database(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        places.home.mkdir(parents=True)
        places.database.write_bytes(b"not a database, by any means" * 100)
        with pytest.raises(DatabaseDamagedError, match="not a whole database"):
            opened(places)

    def test_a_damaged_one(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        data = places.database.read_bytes()
        places.database.write_bytes(data[:100] + b"\xff" * 4000 + data[4100:])
        with pytest.raises(ConfigError, match="not a whole database"):
            opened(places)

    def test_of_another_program(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        places.home.mkdir(parents=True)
        other = sqlite3.connect(places.database)
        other.execute("CREATE TABLE bookmarks (url)")
        other.close()
        with pytest.raises(ConfigError, match="another program"):
            opened(places)

    def test_of_another_version(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        with opened(places) as store:
            store.db.execute(f"PRAGMA user_version = {VERSION + 1}")
        with pytest.raises(ConfigError, match=f"version {VERSION + 1}; this flock-hpc knows version {VERSION}"):
            opened(places)

    def test_an_old_sqlite(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
        with pytest.raises(ConfigError, match=r"3\.38 or newer"):
            opened(pool_places(tmp_path))

    def test_of_another_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        places = pool_places(tmp_path)
        opened(places).close()
        other = os.geteuid() + 1
        monkeypatch.setattr(os, "geteuid", lambda: other)
        with pytest.raises(ConfigError, match="another user"):
            opened(places)

    def test_a_folder_in_which_others_may_write(self, tmp_path: Path) -> None:
        folder = tmp_path / "open"
        folder.mkdir()
        for mode in (0o777, 0o1777, 0o770):
            folder.chmod(mode)
            with pytest.raises(ConfigError, match=rf"may be written by others \(mode {mode:04o}\)"):
                opened(pool_places(tmp_path, database=str(folder / "pools.sqlite")))
            assert list(folder.iterdir()) == []
        folder.chmod(0o755)
        opened(pool_places(tmp_path, database=str(folder / "pools.sqlite"))).close()

    def test_a_link_or_a_folder_in_its_place(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        places.database.mkdir(parents=True)
        with pytest.raises(ConfigError, match="not a file"):
            opened(places)
        places.database.rmdir()
        places.database.symlink_to(tmp_path / "elsewhere")
        with pytest.raises(ConfigError, match="not a file"):
            opened(places)

    def test_a_log_without_its_database(self, tmp_path: Path) -> None:
        places = pool_places(tmp_path)
        places.home.mkdir(parents=True)
        places.database.with_name("state.sqlite-wal").write_bytes(b"x")
        with pytest.raises(ConfigError, match="without its main file"):
            opened(places)

    def test_a_folder_that_cant_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StorageError):
            opened(pool_places(tmp_path, database="file/x/pools.sqlite"))


def test_bench_crash_goes_back_to_before(tmp_path: Path) -> None:
    with Bench(tmp_path) as bench:
        for at in range(1, 100):
            if not bench.crash(at, lambda: bench.bare_dataset("one")):
                break
            assert bench.rows("SELECT 1 FROM processes WHERE kind = 'dataset'") == []
        assert at == 4
