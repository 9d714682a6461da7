"""Every path of one fleet of model servers in a workspace; nobody else joins these names.

Never reads or writes what it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automate.names import check_name


def fleets_folder(root: Path) -> Path:
    """Where the fleets of the workspace at `root` lie, a folder each."""
    return root / ".flock-hpc" / "fleets"


@dataclass(frozen=True)
class FleetPlaces:
    """Folders and files of the fleet `name` under `root`, the workspace's folder (absolute). Mode 0700 as a whole."""

    root: Path
    name: str

    @property
    def home(self) -> Path:
        return fleets_folder(self.root) / check_name(self.name, "fleet")

    @property
    def spec(self) -> Path:
        """What the fleet is; written once, replaced when it is made anew."""
        return self.home / "fleet.json"

    @property
    def wish(self) -> Path:
        """How many workers of each model are wanted, and whether the fleet is to stop; replaced by rename."""
        return self.home / "wish.json"

    # --- secrets, mode 0600 ---------------------------------------------------------------------
    @property
    def key(self) -> Path:
        """The key that workers and the router ask for."""
        return self.home / "key"

    @property
    def authority_key(self) -> Path:
        """The private key of the fleet's own certificate authority."""
        return self.home / "authority.key"

    @property
    def authority(self) -> Path:
        """The certificate by which a worker is known as the fleet's own."""
        return self.home / "authority.pem"

    # --- the registry ---------------------------------------------------------------------------
    @property
    def workers(self) -> Path:
        """A file for each registered worker, replaced by rename at each heartbeat."""
        return self.home / "workers"

    def worker(self, worker: str) -> Path:
        return self.workers / f"{check_name(worker, 'worker')}.json"

    @property
    def gone(self) -> Path:
        """The last word of workers that unregistered, or were dropped."""
        return self.home / "gone"

    def retired(self, worker: str) -> Path:
        """That a worker is asked to finish what it has, and to end."""
        return self.home / "retired" / check_name(worker, "worker")

    @property
    def users(self) -> Path:
        """A file for each engine or router that uses the fleet, with a heartbeat."""
        return self.home / "users"

    # --- jobs -----------------------------------------------------------------------------------
    @property
    def runs(self) -> Path:
        """What each start of a worker says of itself; never removed."""
        return self.home / "runs"

    @property
    def submissions(self) -> Path:
        return self.home / "submissions"

    @property
    def control_claim(self) -> Path:
        """Who alone submits and retires workers of this fleet."""
        return self.home / "claims" / "control"

    @property
    def logs(self) -> Path:
        return self.root / "logs" / "fleets" / check_name(self.name, "fleet")

    def script(self, group: int) -> Path:
        """The array job of the servers of one model."""
        return self.home / f"worker_{group}.sh"

    @property
    def router(self) -> Path:
        """What the running router says of itself: its address and process."""
        return self.home / "router.json"
