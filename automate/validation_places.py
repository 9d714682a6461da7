"""Every path of Flock validation in a workspace; nobody else joins these names.

Never reads or writes what it names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from automate.names import check_name
from automate.settings_validation import Validation


@dataclass(frozen=True)
class ValidationPlaces:
    """Folders and files of validation under `root`, the workspace's folder (absolute)."""

    root: Path
    settings: Validation

    @property
    def home(self) -> Path:
        return self.root / ".flock-hpc" / "validation"

    # --- the spool ------------------------------------------------------------------------------
    @property
    def spool(self) -> Path:
        """A folder for each state; in it a folder for each assignment."""
        return self.home / "spool"

    def state(self, state: str) -> Path:
        return self.spool / state

    def assignment(self, state: str, assignment_id: str) -> Path:
        return self.state(state) / check_name(assignment_id, "assignment")

    @property
    def incoming(self) -> Path:
        """Raw replies that are not assignments of the spool yet."""
        return self.spool / "incoming"

    # --- who works on what ----------------------------------------------------------------------
    def claim(self, what: str) -> Path:
        """Claims of `loop`, `fetch`, `submit` and `run`, of which there is one a workspace."""
        return self.home / "claims" / check_name(what, "claim")

    def assignment_claim(self, assignment_id: str) -> Path:
        return self.home / "claims" / "assignments" / check_name(assignment_id, "assignment")

    # --- jobs and logs --------------------------------------------------------------------------
    @property
    def jobs(self) -> Path:
        """submitit's folder: scripts, pickles and logs of array jobs."""
        return self.home / "jobs"

    @property
    def audit(self) -> Path:
        """A line for every call of the API; one file a process."""
        return self.home / "audit"

    @property
    def debug(self) -> Path:
        """Requests and replies of runs with --debug, without secrets."""
        return self.home / "debug"

    @property
    def rates(self) -> Path:
        """What was learned of each task's rate limit, and when it was last asked."""
        return self.home / "rates.json"

    @property
    def reserve(self) -> Path:
        """Room that is given up when results must be reported on a full disk."""
        return self.home / "reserve"

    # --- environments, models, configs ----------------------------------------------------------
    @property
    def environments(self) -> Path:
        named = self.settings.environments
        return self.home / "environments" if named is None else self.root / named

    def environment_claim(self, module: str) -> Path:
        """The claim of who builds a module's environment; beside the environments, which workspaces may share."""
        return self.environments / ".claims" / check_name(module, "module")

    @property
    def models(self) -> Path:
        """Snapshots of repositories, a folder for each repository and commit."""
        named = self.settings.models.folder
        return self.home / "models" if named is None else self.root / named

    @property
    def configs(self) -> Path:
        return self.root / "configs"

    @property
    def module_folders(self) -> tuple[Path, ...]:
        return tuple(self.root / folder for folder in self.settings.module_folders)

    @property
    def rehearsal(self) -> Path:
        """Workspaces in which the circle was rehearsed."""
        return self.home / "rehearsals"
