"""The model hub: pins a revision to a commit, lists a repository, brings its files to disk.

The only place that asks it, and the only one that has its token; never blames a submission for an outage."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from automate.errors import FlockError
from automate.settings_validation import Validation
from automate.validation import snapshots
from automate.validation.assignments import Snapshot
from automate.validation.beside import beside
from automate.validation.downloads import EVERY, too_slow
from automate.validation.repositories import Listing, RepoFile, parse_listing, repo_problem, total
from automate.validation.secrets import scrub
from automate.validation.troubles import SYSTEM, PersonNeeded, SubmissionAtFault, Trouble, TryLater, of_system

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")
BUFFERED = 300.0
"""Seconds that a file of the hub may take before its bytes are counted: the library holds some back."""


class Hub:
    """The hub at `validation.hub_url` (none: huggingface.co), with `token` or as nobody.

    Without a token none is looked for: what others left in the home folder is not used. `sleep`, `clock` and `every`
    (seconds between two looks at a download) are for tests.
    """

    def __init__(self, settings: Validation, token: str | None, *, sleep: Callable[[float], None] = time.sleep,
                 clock: Callable[[], float] = time.monotonic, every: float = EVERY) -> None:
        self._settings = settings
        self._token = token
        self._sleep, self._clock, self._every = sleep, clock, every

    @cached_property
    def _api(self) -> HfApi:
        from huggingface_hub import HfApi, constants
        from huggingface_hub.utils.tqdm import disable_progress_bars

        logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its warnings show signed addresses
        disable_progress_bars()
        constants.HF_HUB_DISABLE_TELEMETRY = True  # or it asks huggingface.co who is calling, whatever the address
        return HfApi(endpoint=self._settings.hub_url, token=self._token or False, library_name="flock-hpc")

    def pin(self, repo: str, revision: str) -> str:
        """The commit that a revision is now, 40 hex digits. Raises Trouble."""
        return self.listing(repo, revision).commit

    def listing(self, repo: str, revision: str) -> Listing:
        """The files of a revision, with sizes, and its commit. Raises Trouble: whose it is says its class."""
        problem = repo_problem(repo)
        if problem:
            raise SubmissionAtFault(problem, cause="bad-repository")

        def ask() -> Listing:
            timeout = self._settings.connect_timeout + self._settings.read_timeout
            info = self._api.model_info(repo, revision=revision, files_metadata=True, timeout=timeout)
            rows = [(one.rfilename, one.size, one.lfs.sha256 if one.lfs else None) for one in info.siblings or ()]
            return parse_listing(repo, info.sha, rows)

        longest = 3 * (self._settings.connect_timeout + self._settings.read_timeout)
        return self._asked(lambda: beside(ask, self._until(longest), self._every, _cut_off), repo)

    def download(self, repo: str, commit: str, folder: Path, files: Sequence[RepoFile], *, revision: str = "",
                 beat: Callable[[], object] = bool) -> Snapshot:
        """These files of a commit on disk, below `folder`/<repo>/<commit>; `beat` is called while they come.

        What is there already is not fetched again, nor what an interrupted download finished. Raises Trouble,
        ClaimedError.
        """
        def fetch(file: RepoFile, into: Path) -> None:
            beat()
            self._asked(lambda: self._fetch(repo, commit, file, into, beat), repo)

        path = snapshots.build(folder, repo, commit, files, fetch)
        return Snapshot(repo, revision or commit, commit, str(path), total(files))

    def _fetch(self, repo: str, commit: str, file: RepoFile, into: Path, beat: Callable[[], object]) -> None:
        """One file. The library gives no word while it waits for bytes, so it works beside, and is left where it
        takes too long."""
        began = self._clock()

        def look() -> None:
            beat()
            if too_slow(_bytes(into), self._clock() - began, BUFFERED):
                raise TryLater(f"{file.name} comes too slowly", cause="network", where=repo)

        beside(lambda: self._api.hf_hub_download(repo, file.name, revision=commit, local_dir=into), look, self._every,
               _cut_off)

    def _until(self, seconds: float) -> Callable[[], None]:
        """A look that ends the waiting after so many seconds."""
        ends = self._clock() + seconds

        def look() -> None:
            if self._clock() > ends:
                raise TryLater("the model hub takes too long", cause="hub", soon=True)
        return look

    def _asked(self, ask: Callable[[], T], repo: str) -> T:
        """What `ask` gives, tried again where that may help soon. Raises Trouble."""
        def once() -> T:
            try:
                return ask()
            except FlockError:
                raise
            except Exception as error:  # the library's tree of errors is another one with each of its HTTP libraries
                raise self._told(error, repo) from None  # its text may hold addresses that are secrets

        return Retrying(stop=stop_after_attempt(self._settings.retries + 1), wait=_wait, sleep=self._sleep,
                        retry=retry_if_exception(_soon), reraise=True)(once)

    def _told(self, error: Exception, repo: str) -> Trouble:
        from huggingface_hub import errors

        cause: BaseException | None = error
        while cause is not None:  # LocalEntryNotFoundError and others wrap what happened
            if isinstance(cause, errors.HfHubHTTPError):
                return self._of_reply(cause, repo)
            if isinstance(cause, errors.OfflineModeIsEnabled):
                return TryLater("the model hub was not asked: HF_HUB_OFFLINE is set", cause="offline", where=repo,
                                todo="unset HF_HUB_OFFLINE on the login node; jobs get it by themselves")
            if isinstance(cause, OSError) and cause.errno in SYSTEM:
                return of_system(cause, cause.filename or repo, "write a model's files")
            cause = cause.__cause__
        said = scrub(str(error).partition("\n")[0], [self._token or ""])[:200]
        return TryLater(f"the model hub can't be reached, or broke off ({type(error).__name__}): {said}",
                        cause="network", where=repo, soon=True)

    def _of_reply(self, error: HfHubHTTPError, repo: str) -> Trouble:
        """What the hub's refusal means. Only its own code says that something is gone: a proxy can make a 401 or 404
        too, and the library takes any 401 for a repository that is not there."""
        from huggingface_hub import errors

        response: Any = error.response
        status, code = response.status_code, str(response.headers.get("X-Error-Code") or "")
        if isinstance(error, errors.GatedRepoError):
            why = "the token has no access to it" if self._token else "there is no token"
            return PersonNeeded(f"the repository is gated, and {why}", cause="gated", where=repo,
                                todo="accept its terms on the hub's page of it, with the account of the token in the "
                                "variable that validation.hf_token_env names")
        if isinstance(error, errors.DisabledRepoError):
            return PersonNeeded("the hub disabled the repository", cause="disabled", where=repo,
                                todo="decide whether that is the submission's fault")
        ours = status == 401 and not self._heard()
        if code in _GONE and status in (401, 404) and not ours:
            what, cause = _GONE[code]
            return SubmissionAtFault(what, cause=cause, where=repo)
        said = scrub(str(response.headers.get("X-Error-Message") or ""), [self._token or ""])[:200]
        told = f": {said}" if said else ""
        if ours:
            return TryLater(f"the model hub, or a proxy before it, does not take the token{told}", cause="hub-token",
                            where=repo, todo="give a valid token in the variable that validation.hf_token_env names")
        soon = status in (408, 429) or status >= 500
        return TryLater(f"the model hub answered {status}{told}", where=repo, soon=soon,
                        cause="hub" if soon else "hub-refused")

    def _heard(self) -> bool:
        """Whether a 401 can be about the repository: there is no token, or the hub knows whose it is."""
        if not self._token:
            return True
        try:
            beside(self._api.whoami, self._until(self._settings.connect_timeout + self._settings.read_timeout),
                   self._every, _cut_off)
        except Exception:  # a bad token, an outage: then nothing is known of the repository
            return False
        return True



def _soon(error: BaseException) -> bool:
    return isinstance(error, TryLater) and error.soon


def _wait(state: RetryCallState) -> float:
    return wait_exponential(multiplier=1, max=20)(state)


_GONE = {"RepoNotFound": ("there is no such repository, or it is private", "repository-gone"),
         "RevisionNotFound": ("the repository has no such revision", "revision-gone")}
"""What the hub says in X-Error-Code of what is not there: sentence and cause."""


def _cut_off() -> None:
    """Close the library's connections, so that a thread that was left soon ends."""
    with contextlib.suppress(Exception):
        import huggingface_hub

        getattr(huggingface_hub, "close_session", bool)()


def _bytes(folder: Path) -> int:
    """Bytes below a folder, unfinished files too."""
    found = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            found += path.lstat().st_size if not path.is_dir() else 0
    return found
