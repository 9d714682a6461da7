"""Validation sets: fetched from their presigned address to disk, whole, checked and hashed; and the room for them.

Never shows an address's query, which is a key for an hour; never sends keys, and asks no private network."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import requests
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_exponential
from urllib3.exceptions import HTTPError

from automate.journal import fresh_name
from automate.settings_validation import Validation
from automate.validation import addresses
from automate.validation.assignments import DataFile
from automate.validation.beside import beside
from automate.validation.inner import files
from automate.validation.troubles import PersonNeeded, TryLater, of_system

CHUNK = 1 << 18
GB = 1_000_000_000
PATIENCE, SLOWEST = 120.0, 100_000
"""Seconds after which a download must have brought so many bytes for each second since; a trickle ends there."""
EVERY = 1.0
"""Seconds between two beats, at least: each is a call of the file system."""
Beat = Callable[[], object]
"""Called between pieces of a download: shows that the holder lives; what it raises ends the download."""
_SUFFIXES = {".jsonl", ".json", ".npz", ".npy", ".csv", ".parquet", ".zip"}
_HOPS = 5
_GONE = {400, 401, 403, 404, 410}


def free_gb(folder: Path) -> float:
    """Free space (10^9 bytes) where a folder is or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free / GB


def room_problem(folder: Path, settings: Validation, needed: int = 0,
                 free: Callable[[Path], float] = free_gb) -> str | None:
    """Why `needed` bytes can't be put there: `validation.min_free_gb` must be left. None where they can."""
    try:
        there = free(folder)
    except OSError as error:
        return f"can't tell how much is free in {folder}: {error.strerror}"
    if there - needed / GB >= settings.min_free_gb:
        return None
    wanted = f"{needed / GB:.1f} GB are needed and " if needed else ""
    return (f"{there:.1f} GB are free in {folder}; {wanted}{settings.min_free_gb:g} GB must stay free "
            "(validation.min_free_gb)")


def need_room(folder: Path, settings: Validation, needed: int = 0) -> None:
    """Raises TryLater, cause `disk`, where there is no room."""
    problem = room_problem(folder, settings, needed)
    if problem:
        raise TryLater(problem, cause="disk", todo="make room there (df, quota); it goes on by itself then")


def too_slow(got: int, seconds: float, patience: float = PATIENCE) -> bool:
    """Whether `got` bytes in so many seconds are a trickle that nobody waits for."""
    return got < (seconds - patience) * SLOWEST


def download(url: str, folder: Path, settings: Validation, session: requests.Session, *,
             sleep: Callable[[float], None] = time.sleep, clock: Callable[[], float] = time.monotonic,
             beat: Beat = bool) -> DataFile:
    """Put a validation set into `folder`/data, whole or not at all. `beat` is called for each piece that comes.

    Raises TryLater, PersonNeeded (too large; an address of a private network), and what `beat` raises.
    """
    here = addresses.of_this_machine(settings.base_url)

    def once() -> DataFile:
        pace = _Pace(clock, beat)
        with _opened(url, settings, session, pace, here) as response:
            return _received(response, folder, settings, pace)

    addresses.host_of(url, here=here)
    addresses.guard(session, here=here)
    name = _name(url)
    found = Retrying(stop=stop_after_attempt(settings.retries + 1), wait=wait_exponential(max=20), sleep=sleep,
                     retry=retry_if_exception(lambda error: isinstance(error, TryLater) and error.soon),
                     reraise=True)(once)
    whole = folder / files.DATA / name
    try:
        (folder / found.path).replace(whole)
    except OSError as error:
        raise of_system(error, whole, "put the validation set there") from error
    return DataFile(f"{files.DATA}/{name}", found.size, found.sha256)


class _Pace:
    """Watches one download from its beginning on."""

    def __init__(self, clock: Callable[[], float], beat: Beat) -> None:
        self.clock, self.beat, self.began = clock, beat, clock()
        self.due = self.began

    def check(self, got: int, host: str) -> None:
        """A piece came; `got` bytes so far. Raises TryLater where they trickle, and what `beat` raises."""
        now = self.clock()
        if now >= self.due:
            self.due = now + EVERY
            self.beat()
        if too_slow(got, now - self.began):
            raise TryLater(f"{host} sends the validation set too slowly: {got} bytes in {now - self.began:.0f} s",
                           cause="network")


def _name(url: str) -> str:
    """A name of our own; of the address's only a well-known ending is kept, as modules may look at it."""
    suffix = os.path.splitext(urlsplit(url).path)[1].lower()  # noqa: PTH122 - a path of an address
    return f"validation-set{suffix if suffix in _SUFFIXES else ''}"


def _plain(request: requests.PreparedRequest) -> requests.PreparedRequest:
    """Authorization that adds nothing: without it requests would send what ~/.netrc holds for the host."""
    return request


@contextmanager
def _opened(url: str, settings: Validation, session: requests.Session, pace: _Pace,
            here: bool) -> Iterator[requests.Response]:
    """The reply that holds the set, after redirections, each of which is looked at. Raises TryLater, PersonNeeded."""
    for _ in range(_HOPS):
        host = addresses.host_of(url, here=here)
        try:
            response = beside(partial(_asked, url, settings, session, here), partial(pace.check, 0, host), EVERY)
        except (requests.RequestException, OSError, ValueError) as error:  # their texts hold the address
            raise _network(error, host) from None
        with closing(response):
            if response.is_redirect:
                url = urljoin(url, response.headers["Location"])
                continue
            if response.status_code != 200:
                raise _refused(response, host)
            yield response
            return
    raise TryLater("the validation set's address leads in a ring", cause="data-url")


def _asked(url: str, settings: Validation, session: requests.Session, here: bool) -> requests.Response:
    """The reply's head. Raises PersonNeeded, requests' errors, OSError."""
    addresses.look_up(url, session, here=here)
    return session.get(url, stream=True, allow_redirects=False, auth=_plain, headers={"Accept-Encoding": "identity"},
                       timeout=(settings.connect_timeout, settings.read_timeout))


def _network(error: Exception, host: str) -> TryLater:
    return TryLater(f"the validation set could not be fetched from {host} ({type(error).__name__})", cause="network",
                    soon=True)


def _refused(response: requests.Response, host: str) -> TryLater:
    """What a store's refusal means: 400 and 403 are what it says of an address that has expired."""
    status = response.status_code
    if status not in _GONE:
        return TryLater(f"{host} answered {status} for the validation set", cause="network", soon=True)
    try:
        said = next(_pieces(response, 2000), b"").decode("utf-8", "replace")
    except Exception:
        said = ""
    expired = "expired" in said.lower() or "ExpiredToken" in said
    why = "its address has expired" if expired else "its address has expired, or is not valid" if status != 404 \
        else "the store has no such file"
    return TryLater(f"{host} answered {status} for the validation set: {why}", todo="the API may give a new address",
                    cause="url-expired" if expired or status in (400, 403) else "data-url")


def _received(response: requests.Response, folder: Path, settings: Validation, pace: _Pace) -> DataFile:
    """The body in a file beside its place. Raises TryLater where it is cut, empty or can't be written."""
    host = urlsplit(response.url).hostname or ""
    length = response.headers.get("Content-Length", "")
    if not length.isdigit() and response.headers.get("Transfer-Encoding", "").lower() != "chunked":
        raise TryLater(f"{host} does not say how long the validation set is", cause="data-truncated", soon=True)
    _not_huge(int(length) if length.isdigit() else 0, settings)
    need_room(folder, settings, int(length) if length.isdigit() else 0)
    part = folder / files.DATA / f".{fresh_name()}.part"
    try:
        part.parent.mkdir(exist_ok=True)
        for old in part.parent.glob(".*.part"):
            old.unlink(missing_ok=True)
        return _written(response, part, host, length, settings, pace)
    except (HTTPError, requests.RequestException) as error:
        part.unlink(missing_ok=True)
        raise TryLater(f"{host} broke off while sending the validation set ({type(error).__name__})",
                       cause="data-truncated", soon=True) from None
    except OSError as error:
        part.unlink(missing_ok=True)
        raise of_system(error, part, "write the validation set") from error
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _written(response: requests.Response, part: Path, host: str, length: str, settings: Validation,
             pace: _Pace) -> DataFile:
    digest, size = hashlib.sha256(), 0
    with part.open("xb") as file:
        for chunk in _pieces(response, CHUNK):
            pace.check(size, host)
            digest.update(chunk)
            size += len(chunk)
            _not_huge(size, settings)
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())
    wire = response.raw.tell()
    if length.isdigit() and wire != int(length):
        raise TryLater(f"{host} sent {wire} of {length} bytes of the validation set", cause="data-truncated", soon=True)
    if size == 0:
        raise TryLater("the validation set is empty", cause="data-empty")
    return DataFile(str(part.relative_to(part.parents[1])), size, digest.hexdigest())


def _pieces(response: requests.Response, most: int) -> Iterator[bytes]:
    """The unpacked body in pieces, each as soon as it comes: `iter_content` would wait until a piece is full."""
    read = getattr(response.raw, "read1", None)
    if read is None:  # an older urllib3
        yield from response.iter_content(min(most, 1024))
        return
    while data := read(most, decode_content=True):
        yield data


def _not_huge(size: int, settings: Validation) -> None:
    if size > settings.max_download_gb * GB:
        raise PersonNeeded(f"the validation set is larger than {settings.max_download_gb:g} GB", cause="huge",
                           todo="raise validation.max_download_gb, or leave the assignment")
