"""Has the repository of an assignment on disk, and the base model of an adapter, each at the commit that was pinned.

Only for who holds the assignment's claim; what is too large, gated or wants code of its own to run is left alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from automate.validation import snapshots
from automate.validation.assignments import Assignment, Snapshot
from automate.validation.caches import note_workspace
from automate.validation.downloads import GB, need_room
from automate.validation.hub import Hub
from automate.validation.repositories import (
    ADAPTER,
    CONFIGS,
    MAX_JSON,
    Listing,
    RepoFile,
    base_of,
    model_files,
    own_code,
    policy_files,
    total,
)
from automate.validation.spool import Spool
from automate.validation.troubles import PersonNeeded, SubmissionAtFault
from automate.validation.wants import Wants, wants
from automate.validation_places import ValidationPlaces

JSON = Any
WHOLE_AT_DEFAULT = frozenset({"lora", "llm_judge"})
"""Modules whose current clients load a whole model without its revision; scores must agree with theirs."""
NAME_NO_FILE = WHOLE_AT_DEFAULT
"""Modules that read adapters and models by what is in them: a `model_filename` in their assignments says nothing."""


@dataclass
class Work:
    """One assignment whose claim is held; `now` is what is known and saved of it."""

    now: Assignment
    spool: Spool
    places: ValidationPlaces
    hub: Hub
    clock: Callable[[], float]
    beat: Callable[[], object]

    def save(self, **changes: Any) -> None:  # noqa: ANN401 - fields of Assignment
        """Change what is known, and write it down."""
        self.now = self.spool.save(replace(self.now, **changes))

    def noted(self, what: str, cause: str = "") -> None:
        """Add an event, written down with the next change."""
        self.now = self.now.noted(self.clock(), what, cause)


def has_model(now: Assignment) -> bool:
    """Whether all that is known to be needed of its model is on disk."""
    return not now.needs_model or (_there(now.model) and (now.base is None or _there(now.base)))


def have_model(work: Work, fields: Mapping[str, JSON]) -> None:
    """Have it on disk. `fields`: the module's input. Raises Trouble, ClaimedError, StorageError."""
    now = work.now
    if has_model(now):
        return
    repo, revision = str(fields.get("hg_repo_id")), str(fields.get("revision") or "main")
    listing = work.hub.listing(repo, now.model_commit or revision)
    if now.model_commit is None and revision != "main" and _read_at_default(now.module, listing):
        work.noted(f"a whole model: the protocol reads its default revision, not {revision}")
        revision = "main"
        listing = work.hub.listing(repo, revision)
    if now.model_commit is None:
        work.noted(f"{repo} at {revision} is commit {listing.commit}")
        work.save(model_commit=listing.commit)
    wanted, base = _parts(work, listing, fields)
    model = _get(work, listing, wanted, revision)
    work.noted(f"{repo} at {model.commit} on disk: {model.size} bytes")
    work.save(model=model, base=base)


def _read_at_default(module: str, listing: Listing) -> bool:
    """Whether the current clients would leave the submission's revision aside: they do for whole models."""
    return module in WHOLE_AT_DEFAULT and not listing.adapter


def _there(snapshot: Snapshot | None) -> bool:
    return snapshot is not None and snapshots.whole(Path(snapshot.path), snapshot.size)


def _parts(work: Work, listing: Listing, fields: Mapping[str, JSON]) -> tuple[list[RepoFile], Snapshot | None]:
    """The files of the repository itself, and the base model, which is on disk then."""
    named = fields.get("model_filename")
    if work.now.module not in NAME_NO_FILE and isinstance(named, str) and named:
        return policy_files(listing, named), None
    takes = wants(work.now.module, work.now.task_id, work.places.configs)
    if listing.adapter:
        return model_files(listing), _base(work, listing, takes)
    if takes.adapters_only:
        raise SubmissionAtFault(f"the repository has no {ADAPTER}, and only adapters are validated",
                                cause="missing-adapter", where=listing.repo)
    return _of_model(work, listing), None


def _base(work: Work, listing: Listing, takes: Wants) -> Snapshot:
    """The adapter's base model on disk. Who names one that is not there is at fault, unless it is a supported one."""
    repo = base_of(_read(work, listing, ADAPTER), listing.repo)
    if not takes.takes(repo):
        raise SubmissionAtFault(f"the adapter's base model {repo!r} is not supported", cause="unsupported-base",
                                where=listing.repo)
    try:
        found = work.hub.listing(repo, work.now.base_commit or "main")
    except SubmissionAtFault as fault:
        if takes.bases is not None or not takes.known:
            raise PersonNeeded(f"the adapter's base model, which may be a supported one: {fault.what}",
                               cause="base-gone", where=repo, todo="look at its page on the hub") from fault
        raise SubmissionAtFault(f"the adapter's base model: {fault.what}", cause="missing-base",
                                where=repo) from fault
    if work.now.base_commit is None:
        work.save(base_commit=found.commit)
    return _get(work, found, _of_model(work, found, known=takes.bases is not None), "main")


def _of_model(work: Work, listing: Listing, *, known: bool = False) -> list[RepoFile]:
    """The files of a whole model. Raises PersonNeeded where it wants code of its own to run and may not.

    `known`: one of a list of well-known models, which the libraries load with code of theirs.
    """
    allowed = work.places.settings.remote_code
    named = [] if allowed or known else [name for config in listing.some(CONFIGS) if config.size <= MAX_JSON
                                for name in own_code(_read(work, listing, config.name))]
    if named:
        raise PersonNeeded(f"the model runs code of its own ({', '.join(sorted(set(named)))[:200]})", cause="own-code",
                           where=f"{listing.repo} at {listing.commit}",
                           todo="read that code, and set validation.remote_code: true if jobs may run such code")
    return model_files(listing, code=allowed)


def _read(work: Work, listing: Listing, name: str) -> bytes:
    """A small file of a repository, which is fetched for it. Raises SubmissionAtFault where it is no small file."""
    file = listing.file(name)
    if file is None or file.size > MAX_JSON:
        raise SubmissionAtFault(f"{name} is larger than {MAX_JSON} bytes", cause="bad-config", where=listing.repo)
    need_room(work.places.models, work.places.settings)
    note_workspace(work.places)
    folder = Path(work.hub.download(listing.repo, listing.commit, work.places.models, [file], beat=work.beat).path)
    return (folder / name).read_bytes()


def _get(work: Work, listing: Listing, wanted: list[RepoFile], revision: str) -> Snapshot:
    """These files on disk. Raises PersonNeeded, before a byte comes, where they are more than the settings allow."""
    settings, size = work.places.settings, total(wanted)
    if size > settings.max_download_gb * GB:
        raise PersonNeeded(f"its files take {size / GB:.1f} GB", cause="huge", where=f"{listing.repo} at "
                           f"{listing.commit}", todo="raise validation.max_download_gb, or leave the assignment")
    have = snapshots.present(snapshots.folder_of(work.places.models, listing.repo, listing.commit))
    missing = sum(one.size for one in wanted if have.get(one.name) != one.size)
    if missing:
        need_room(work.places.models, settings, missing)
        note_workspace(work.places)
    return work.hub.download(listing.repo, listing.commit, work.places.models, wanted, revision=revision,
                             beat=work.beat)
