"""Who uses a fleet now: a file for each engine and router, with a heartbeat.

Never counts one that died without a word as a user for longer than its heartbeat may be missed."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from automate.claims import Holder, JobAlive, alive, myself, no_jobs
from automate.errors import FlockError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet.files import age_of, lost, put, read


@dataclass(frozen=True)
class Using:
    """Somebody who uses the fleet: what it is (`engine`, `router`), and the process.

    `left`, `in_flight`: an engine's requests that it has not started, and that it waits for; `model`: of whom.
    """

    who: str
    holder: Holder
    left: int = 0
    in_flight: int = 0
    model: str | None = None


class User:
    """That this process uses the fleet; `beat()` it often, `release()` it at the end."""

    def __init__(self, places: FleetPlaces, who: str, holder: Holder) -> None:
        self.path = places.users / f"{holder.nonce}.json"
        self._word: dict[str, object] = {"who": who, "holder": asdict(holder)}
        self._holder = holder

    def beat(self, *, left: int = 0, in_flight: int = 0, model: str | None = None) -> None:
        """Show that it lives, and what it has to do (see `Using`). Raises StorageError (the folder is lost)."""
        self._word.update(left=left, in_flight=in_flight, model=model)
        put(self.path, self._word, self._holder.nonce)

    def release(self) -> None:
        """It uses the fleet no more. A second call does nothing."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.release()


def use(places: FleetPlaces, who: str, *, me: Holder | None = None) -> User:
    """Say that this process uses the fleet from now on. Raises StorageError (the folder is lost)."""
    user = User(places, who, me or myself())
    user.beat()
    return user


def users(places: FleetPlaces, *, job_alive: JobAlive = no_jobs, stale: float = 30.0,
          me: Holder | None = None) -> list[Using]:
    """Who uses the fleet now: those that beat within `stale` seconds, and silent ones whose process or job lives.

    A silent one that is gone is removed; one of which nobody can tell isn't counted. Raises StorageError (lost).
    """
    mine = me or myself()
    try:
        paths = sorted(path for path in places.users.iterdir() if path.suffix == ".json" and path.name[0] != ".")
    except OSError as error:
        raise lost(places.users) from error
    found = [_user(path, mine, job_alive, stale) for path in paths]
    return [one for one in found if one]


def _user(path: Path, me: Holder, job_alive: JobAlive, stale: float) -> Using | None:
    try:
        word = read(path)
        model = word.get("model")
        using = Using(str(word["who"]), Holder(**word["holder"]), max(0, int(word.get("left", 0))),
                      max(0, int(word.get("in_flight", 0))), None if model is None else str(model))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if _beats(path, stale):
        return using
    try:
        life = alive(using.holder, me, job_alive)
    except FlockError:
        life = None
    if life is False:
        with contextlib.suppress(OSError):
            path.unlink()
    return using if life else None


def _beats(path: Path, stale: float) -> bool:
    """Whether the file is young; taken for young where the file system can't say."""
    try:
        age = age_of(path)
    except StorageError:
        return True
    return age is not None and abs(age) < stale
