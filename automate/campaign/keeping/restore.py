"""Takes an archive into a workspace, a new one or one that is there: records by name, nothing counted twice.

Never changes anything before the whole archive is checked, and never overwrites a record, an answer or a setting."""

from __future__ import annotations

import hashlib
import re
import secrets
import shutil
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from automate.arena.batches import plan_tag
from automate.campaign.handing import submit_claim
from automate.campaign.keeping.archive import CHECKOUT, MODELS, folders_of
from automate.campaign.keeping.replaced import close_submissions, fitted_plan, fitted_submission, merged_rows
from automate.campaign.keeping.unpack import Staged, stage
from automate.campaign.state import look
from automate.cluster.submit import SubmissionBook
from automate.errors import DataError, StorageError, WorkspaceError
from automate.journal import parse_object, replace_file
from automate.settings import Settings
from automate.workspace import SETTINGS_FILE, Workspace, open_workspace

Rules = dict[str, Callable[[str], None]]


@dataclass
class Restored:
    """What was done: counts of files by what became of them, and what is to be said."""

    new: int = 0
    same: int = 0
    merged: int = 0
    kept: int = 0
    notes: list[str] = field(default_factory=list)


def restore(archive: Path, root: Path) -> Restored:
    """Take `archive` into the workspace at `root` (absolute). Raises FlockError; then nothing was changed."""
    fresh = not root.exists()
    staging = root / f".flock-hpc-import-{secrets.token_hex(4)}"
    with ExitStack() as stack:
        if fresh:
            stack.callback(_remove_if_empty, root)
        try:
            staging.mkdir(parents=True)
        except OSError as error:
            raise StorageError.of(error, staging, "unpack the archive") from error
        stack.callback(shutil.rmtree, staging, ignore_errors=True)
        staged = stage(archive, staging)
        own = (root / SETTINGS_FILE).is_file()
        restoring = Restoring(staged, *_own(root, stack) if own else _theirs(staged, root))
        restoring.prepare()
        try:
            restoring.apply()
        except OSError as error:
            raise StorageError.of(error, error.filename or root, "move a file to its place; run the same command again"
                                  ) from error
        return restoring.done


def _remove_if_empty(root: Path) -> None:
    with suppress(OSError):
        root.rmdir()


def _own(root: Path, stack: ExitStack) -> tuple[Workspace, bool]:
    """The workspace that is there, held so that nobody plans or submits meanwhile."""
    workspace = open_workspace(root)
    claim = submit_claim(workspace)
    stack.callback(claim.release)
    active = look(workspace).active
    if active:
        raise WorkspaceError(f"{len(active)} job(s) of this workspace wait or run; nothing was changed",
                             where=str(root),
                             todo="wait for them, or 'flock-hpc cancel', then run the same command again")
    return workspace, True


def _theirs(staged: Staged, root: Path) -> tuple[Workspace, bool]:
    """The workspace that the archive makes: its own places, as far as they lie inside."""
    texts = {key: str(staged.header.get(key) or "") for key in ("arena_hard", "models_file")}
    inside = {key: text for key, text in texts.items() if text and _inside(root, text)}
    return Workspace(root, Settings.model_validate(inside), "-"), False


def _inside(root: Path, text: str) -> bool:
    path = Path(text)
    return not path.is_absolute() and ".." not in path.parts and (root / path).resolve().is_relative_to(root.resolve())


@dataclass
class Restoring:
    """One archive on its way into `workspace`; `own` says that the workspace was there before."""

    staged: Staged
    workspace: Workspace
    own: bool
    done: Restored = field(default_factory=Restored)
    moves: dict[str, Path] = field(default_factory=dict)
    writes: dict[Path, bytes] = field(default_factory=dict)
    conflicts: list[Path] = field(default_factory=list)
    tags: dict[str, tuple[str, str]] = field(default_factory=dict)
    foreign_jobs: set[str] = field(default_factory=set)

    # --- decide ---------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Decide for every file what becomes of it. Raises DataError where records are at odds."""
        self._learn()
        rules = self._rules()
        for name in sorted(self.staged.files):
            rules[name.split("/")[0]](name)
        if self.conflicts:
            names = ", ".join(str(path) for path in self.conflicts[:5])
            more = f" and {len(self.conflicts) - 5} more" if len(self.conflicts) > 5 else ""
            raise DataError(f"{len(self.conflicts)} file(s) of the archive are there with other contents: {names}"
                            f"{more}; nothing was changed", where=str(self.workspace.root),
                            todo="import into an empty folder, or move those files away")

    def _rules(self) -> Rules:
        strict: Rules = {"journal": self._record, "answers": self._record, "superseded": self._strict}
        mild: Rules = dict.fromkeys(folders_of(self.workspace), self._mild)
        return {**mild, **strict, "plans": self._state, "submissions": self._state, "runs": self._state,
                "settings": self._settings, CHECKOUT: self._checkout}

    def _target(self, name: str) -> Path:
        first, _, rest = name.partition("/")
        return folders_of(self.workspace)[first] / rest

    def _data(self, name: str) -> bytes:
        return self.staged.files[name].read_bytes()

    def _move(self, name: str, target: Path) -> None:
        self.moves[name] = target
        self.done.new += 1

    def _same(self, name: str, target: Path) -> bool:
        """Whether the file is there as it is in the archive; counts it."""
        with target.open("rb") as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == self.staged.sha256[name]
        self.done.same += same
        return same

    def _strict(self, name: str) -> None:
        self._place(name, self._target(name), strict=True)

    def _mild(self, name: str) -> None:
        self._place(name, self._target(name), strict=False)

    def _place(self, name: str, target: Path, *, strict: bool) -> None:
        """A new file is moved in; another one of its name is a conflict, or stays where it is no record."""
        if not target.exists():
            self._move(name, target)
        elif not self._same(name, target):
            if strict:
                self.conflicts.append(target)
            else:
                self.done.kept += 1
                self.done.notes.append(f"{target}: stays as it is; the archive's is another")

    def _record(self, name: str) -> None:
        """A record file; one that has only grown since is the same one."""
        target = self._target(name)
        if not name.endswith(".jsonl"):
            if not target.exists():
                self._move(name, target)  # derived: which records a judgment file was made from
            elif not self._same(name, target):
                self.done.kept += 1
            return
        if target.exists() and not self._same(name, target):
            here, there = target.read_bytes(), self._data(name)
            if here.startswith(there):
                self.done.same += 1
                return
            if there.startswith(here):
                self.moves[name] = target
                self.done.merged += 1
                return
            self.conflicts.append(target)
        elif not target.exists():
            self._move(name, target)

    # --- plans, submissions, runs ---------------------------------------------------------------
    def _learn(self) -> None:
        """Job names of this place, and jobs of the archive whose ids are taken here."""
        for name in self.staged.files:
            if name.startswith("plans/") and name.endswith(".json"):
                plan = self._object(name) or {}
                if isinstance(plan.get("id"), str) and isinstance(plan.get("tag"), str):
                    self.tags[plan["id"]] = (plan["tag"], plan_tag(self.workspace, plan["id"]))
        here = {sub.id: sub for sub in SubmissionBook(self.workspace.submissions).all()}
        taken = {sub.job for sub in here.values() if sub.job}
        for name in self.staged.files:
            if name.startswith("submissions/") and name.endswith(".json"):
                record = self._object(name) or {}
                if record.get("job") in taken and record.get("id") not in here:
                    self.foreign_jobs.add(str(record["job"]))

    def _object(self, name: str) -> dict[str, Any] | None:
        try:
            return parse_object(self._data(name))
        except ValueError:
            return None

    def _state(self, name: str) -> None:
        """A plan, submission or run: what is here stays, as it may be newer; a new one is fitted to this place."""
        target, record = self._target(name), self._object(name) if name.endswith(".json") else None
        job = str((record or {}).get("job") or "").partition("_")[0]
        if job in self.foreign_jobs:
            self.done.kept += 1
            self.done.notes.append(f"{name}: left out: job {job} is another one here")
        elif target.exists():
            self.done.same += 1
        elif record is None or name.startswith("runs/"):
            self._move(name, target)
        else:
            fit = fitted_plan if name.startswith("plans/") else fitted_submission
            fitted = fit(record, self.tags)
            self.writes[target] = orjson.dumps(fitted, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            self.done.new += 1

    # --- settings, and the checkout -------------------------------------------------------------
    def _settings(self, name: str) -> None:
        if name == MODELS:
            self._place(name, self.workspace.models_file, strict=False)
        elif self.own:
            self._place(name, self.workspace.settings_file, strict=False)
        else:
            self.writes[self.workspace.settings_file] = self._relocated(self._data(name))
            self.done.new += 1

    def _relocated(self, text: bytes) -> bytes:
        """Settings whose places outside of the workspace become places inside, where nothing is there any more."""
        for key in ("arena_hard", "models_file"):
            old, new = str(self.staged.header.get(key) or ""), str(getattr(self.workspace.settings, key))
            if old and old != new and not self._outside(key):
                line = re.compile(rf"(?m)^{key}:.*$".encode())
                text, count = line.subn(f"{key}: {new}".encode(), text)
                self.done.notes.append(f"{key} was {old}, outside of the workspace; it is {new} now" if count else
                                       f"{key} was {old}, outside of the workspace: set it to {new}")
        return text

    def _outside(self, key: str) -> bool:
        """Whether the archive's own place is outside of the workspace, and still there."""
        old = str(self.staged.header.get(key) or "")
        return not self.own and bool(old) and not _inside(self.workspace.root, old) and \
            (self.workspace.root / old).exists()

    def _checkout(self, name: str) -> None:
        rest = name.removeprefix(f"{CHECKOUT}/")
        target = self.workspace.arena_hard / rest
        if self._outside("arena_hard"):
            note = f"{self.staged.header['arena_hard']} is there: nothing was written to it; judgments are derived anew"
            if note not in self.done.notes:
                self.done.notes.append(note)
            self.done.kept += 1
        elif "/model_judgment/" in name and target.exists():
            self._rows(name, target)
        else:
            self._place(name, target, strict=name.endswith(".jsonl"))

    def _rows(self, name: str, target: Path) -> None:
        """Judgments of both places: a question's line that is here stays, others are added."""
        if self._same(name, target):
            return
        here = target.read_bytes()
        both = merged_rows(here, self._data(name))
        if both is not None:
            self.writes[target] = both
            self.done.merged += 1
        else:
            self.done.kept += 1

    # --- do -------------------------------------------------------------------------------------
    def apply(self) -> None:
        """Move everything to its place: records first, the settings last, so that half of it is no workspace."""
        records = ("journal/", "answers/")
        for name, target in sorted(self.moves.items(), key=lambda item: not item[0].startswith(records)):
            target.parent.mkdir(parents=True, exist_ok=True)
            self.staged.files[name].replace(target)
        last = self.workspace.settings_file
        close_submissions(self.workspace, {path: data for path, data in self.writes.items()
                                           if path.parent == self.workspace.submissions})
        for path in sorted(self.writes, key=lambda path: path == last):
            replace_file(path, self.writes[path])
