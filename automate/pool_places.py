"""Every path of benchmark pools in a workspace; nobody else joins these names.

Never reads or writes what it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automate.names import check_name
from automate.settings_pools import Pools


@dataclass(frozen=True)
class PoolPlaces:
    """Folders and files of pools under `root`, the workspace's folder (absolute). Mode 0700 as a whole."""

    root: Path
    settings: Pools

    @property
    def home(self) -> Path:
        return self.root / ".flock-hpc" / "pools"

    # --- the state: on a local disk -----------------------------------------------------------------
    @property
    def database(self) -> Path:
        """The SQLite file of all processes."""
        named = self.settings.database
        return self.home / "state.sqlite" if named is None else self.root / Path(named).expanduser()

    @property
    def lock(self) -> Path:
        """Held by the one process that has the database open; beside it, on its local disk."""
        return self.database.with_name(self.database.name + ".lock")

    @property
    def socket(self) -> Path:
        """Where the process that serves the database answers this user's other commands."""
        return self.database.with_name(self.database.name + ".sock")

    @property
    def note(self) -> Path:
        """Host and path of the database, for commands on another machine that see the workspace only."""
        return self.home / "database.json"

    # --- keys, mode 0600 ----------------------------------------------------------------------------
    @property
    def keys(self) -> Path:
        return self.home / "keys"

    def key(self, name: str) -> Path:
        return self.keys / f"{check_name(name, 'key')}.pem"

    # --- evaluation rounds: on the shared file system -----------------------------------------------
    @property
    def rounds(self) -> Path:
        """A folder for each round of evaluation."""
        return self.home / "rounds"

    def round(self, name: str) -> Path:
        return self.rounds / check_name(name, "round")

    def work(self, name: str) -> Path:
        """What a round is to answer: JSON lines, written once."""
        return self.round(name) / "work.jsonl"

    def round_spec(self, name: str) -> Path:
        """Which models, fleet, job and method a round has."""
        return self.round(name) / "round.json"

    def answers(self, name: str) -> Path:
        """Record files of a round's jobs, one a writer."""
        return self.round(name) / "answers"

    def handed(self, name: str) -> Path:
        """How far a round's record files were handed in: a hint that saves reading; its loss loses nothing."""
        return self.round(name) / "handed.json"

    def done(self, name: str) -> Path:
        """Made when all of a round is handed in or given up."""
        return self.round(name) / "done.json"

    def round_claim(self, name: str) -> Path:
        """Held by the one job that answers a round."""
        return self.round(name) / "claim"

    @property
    def rounds_claim(self) -> Path:
        """Held by the one command that hands rounds over."""
        return self.home / "rounds-claim"

    def script(self, name: str) -> Path:
        return self.round(name) / "evaluate.sh"

    @property
    def submissions(self) -> Path:
        """The submission book of rounds' jobs."""
        return self.home / "submissions"

    @property
    def runs(self) -> Path:
        return self.home / "runs"

    @property
    def logs(self) -> Path:
        return self.root / "logs" / "pools"
