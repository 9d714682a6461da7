"""The registry of a fleet: a file for each worker, by rename; what the fleet is, and what is wished of it.

Never takes silence alone for death: a worker is dropped when its heartbeat is missed and Slurm (or the process table)
says that it is gone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from automate.errors import DataError, StorageError
from automate.fleet_places import FleetPlaces
from automate.journal import parse_object, write_json
from automate.serving.fleet.files import bury, lost, put
from automate.serving.fleet.records import FleetSpec, Wish, WorkerRecord
from automate.serving.fleet.users import User, use, users
from automate.serving.fleet.watch import Life, Seen, Watch

__all__ = ["Life", "Seen", "User", "Watch", "is_retired", "read_spec", "read_wish", "register", "retire",
           "unregister", "use", "users", "write_wish"]


# --- the worker's side --------------------------------------------------------------------------------
def register(places: FleetPlaces, record: WorkerRecord) -> None:
    """Register-Worker, and each heartbeat: put the record in its place. Raises StorageError (the folder is lost)."""
    put(places.worker(record.id), record.as_json(), record.nonce[:16])


def unregister(places: FleetPlaces, record: WorkerRecord, why: str) -> None:
    """Unregister-Worker: the record leaves the registry for the folder of those gone, with the reason. Idempotent.

    Raises StorageError where the file system refuses; nothing where the registry is lost.
    """
    bury(places, record, why)


# --- everybody's side ---------------------------------------------------------------------------------
def _document(path: Path) -> Mapping[str, Any] | None:
    """A JSON document; None where it is absent. Raises DataError, StorageError."""
    try:
        return parse_object(path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError.of(error, path, "read it") from error
    except ValueError as error:
        raise DataError(f"not a whole JSON document ({error})", where=str(path),
                        todo="stop the fleet's jobs, move the folder away, and serve again") from error


def read_spec(places: FleetPlaces) -> FleetSpec | None:
    """What the fleet is; None where there is none. Raises DataError, StorageError."""
    found = _document(places.spec)
    return None if found is None else FleetSpec.of(found, str(places.spec))


def read_wish(places: FleetPlaces) -> Wish:
    """What is wished of it now; nothing where nobody said. Raises DataError, StorageError."""
    return Wish.of(_document(places.wish) or {}, str(places.wish))


def write_wish(places: FleetPlaces, wish: Wish) -> None:
    """Replace the wish. Hold the control claim. Raises StorageError, also where the fleet's folder is lost."""
    if not places.home.is_dir():
        raise lost(places.home)
    write_json(places.wish, wish.as_json())


def retire(places: FleetPlaces, worker: str) -> None:
    """Ask a worker to finish what it has, and to end. Raises StorageError, also where the folder is lost."""
    mark = places.retired(worker)
    try:
        mark.parent.mkdir(mode=0o700, exist_ok=True)
        mark.touch(0o600)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise lost(places.home) from error
    except OSError as error:
        raise StorageError.of(error, mark, "retire a worker") from error


def is_retired(places: FleetPlaces, worker: str) -> bool:
    """Whether it was asked to end."""
    return places.retired(worker).exists()
