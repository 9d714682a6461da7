"""The model hub: pins a revision to a commit, lists a repository, brings its files to disk.

The only place that asks it, and the only one that has its token; never blames a submission for an outage."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_exponential

from automate.settings_validation import Validation
from automate.validation import snapshots
from automate.validation.assignments import Snapshot
from automate.validation.repositories import Listing, RepoFile, parse_listing, repo_problem, total
from automate.validation.secrets import scrub
from automate.validation.troubles import SYSTEM, PersonNeeded, SubmissionAtFault, Trouble, TryLater, of_system

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

T = TypeVar("T")
_BAD_TOKEN = "Invalid credentials in Authorization header"  # noqa: S105 - what the hub says of a token


class Hub:
    """The hub at `validation.hub_url` (none: huggingface.co), with `token` or as nobody.

    Without a token none is looked for: what others left in the home folder is not used. `sleep` is for tests.
    """

    def __init__(self, settings: Validation, token: str | None, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._settings = settings
        self._token = token
        self._sleep = sleep

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

        return self._asked(ask, repo)

    def download(self, repo: str, commit: str, folder: Path, files: Sequence[RepoFile], *, revision: str = "",
                 beat: Callable[[], object] = bool) -> Snapshot:
        """These files of a commit on disk, below `folder`/<repo>/<commit>; `beat` is called before each.

        What is there already is not fetched again, nor what an interrupted download finished. Raises Trouble,
        ClaimedError.
        """
        def fetch(file: RepoFile, into: Path) -> None:
            beat()
            self._asked(lambda: self._fetch(repo, commit, file, into), repo)

        path = snapshots.build(folder, repo, commit, files, fetch)
        return Snapshot(repo, revision or commit, commit, str(path), total(files))

    def _fetch(self, repo: str, commit: str, file: RepoFile, into: Path) -> None:
        self._api.hf_hub_download(repo, file.name, revision=commit, local_dir=into)

    def _asked(self, ask: Callable[[], T], repo: str) -> T:
        """What `ask` gives, tried again where that may help soon. Raises Trouble."""
        def once() -> T:
            try:
                return ask()
            except Trouble:
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
                return _of_reply(cause, repo, self._token)
            if isinstance(cause, errors.OfflineModeIsEnabled):
                return TryLater("the model hub was not asked: HF_HUB_OFFLINE is set", cause="offline", where=repo,
                                todo="unset HF_HUB_OFFLINE on the login node; jobs get it by themselves")
            if isinstance(cause, OSError) and cause.errno in SYSTEM:
                return of_system(cause, cause.filename or repo, "write a model's files")
            cause = cause.__cause__
        said = scrub(str(error).partition("\n")[0], [self._token or ""])[:200]
        return TryLater(f"the model hub can't be reached, or broke off ({type(error).__name__}): {said}",
                        cause="network", where=repo, soon=True)


def _soon(error: BaseException) -> bool:
    return isinstance(error, TryLater) and error.soon


def _wait(state: RetryCallState) -> float:
    return wait_exponential(multiplier=1, max=20)(state)


def _of_reply(error: HfHubHTTPError, repo: str, token: str | None) -> Trouble:
    """What the hub's refusal means. A reply without the hub's own words blames nobody: a proxy can make a 404 too."""
    from huggingface_hub import errors

    response: Any = error.response
    status, said = response.status_code, scrub(str(response.headers.get("X-Error-Message") or ""), [token or ""])[:200]
    if said == _BAD_TOKEN:
        return PersonNeeded("the model hub refuses the token", cause="hub-token", where=repo,
                            todo="give a valid token in the variable that validation.hf_token_env names")
    if isinstance(error, errors.GatedRepoError):
        why = "the token has no access to it" if token else "there is no token"
        return PersonNeeded(f"the repository is gated, and {why}", cause="gated", where=repo,
                            todo="accept its terms on the hub's page of it, with the account of the token in the "
                            "variable that validation.hf_token_env names")
    if isinstance(error, errors.DisabledRepoError):
        return PersonNeeded("the hub disabled the repository", cause="disabled", where=repo,
                            todo="decide whether that is the submission's fault")
    if isinstance(error, errors.RepositoryNotFoundError):
        return SubmissionAtFault("there is no such repository, or it is private", cause="repository-gone", where=repo)
    if isinstance(error, errors.RevisionNotFoundError):
        return SubmissionAtFault("the repository has no such revision", cause="revision-gone", where=repo)
    soon = status in (408, 429) or status >= 500
    return TryLater(f"the model hub answered {status}{': ' + said if said else ''}", where=repo, soon=soon,
                    cause="hub" if soon else "hub-refused")
