"""What of a fleet's folder a bug report holds: its records, scripts and logs, by name.

Never its key, nor anything of its certificate authority: what is not named here does not travel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from automate.fleet_places import FleetPlaces, fleets_folder
from automate.names import name_problem

LARGEST = 1 << 16


def _fleets(root: Path) -> Iterator[FleetPlaces]:
    try:
        found = sorted(path for path in fleets_folder(root).iterdir() if path.is_dir() and not path.is_symlink())
    except OSError:
        return
    yield from (FleetPlaces(root, path.name) for path in found if name_problem(path.name) is None)


def fleet_files(root: Path, most: int) -> dict[str, list[Path]]:
    """The files of all fleets that may be shown, by their folder in the report; of each folder the newest `most`."""
    found: dict[str, list[Path]] = {}
    for places in _fleets(root):
        own = [places.spec, places.wish, places.router, *sorted(places.home.glob("worker_*.sh"))]
        found[f"fleets/{places.name}"] = [path for path in own if _plain(path)]
        for folder in (places.submissions, places.runs, places.workers, places.gone):
            found[f"fleets/{places.name}/{folder.name}"] = _newest(folder, most)
    return found


def fleet_logs(root: Path) -> dict[str, Path]:
    """The folders of the fleets' logs, by their name in the report."""
    return {f"logs/fleets/{places.name}": places.logs for places in _fleets(root)}


def fleet_secrets(root: Path) -> set[str]:
    """What must stand in no report: every fleet's key, and the private key of its authority."""
    found = set()
    for places in _fleets(root):
        for path in (places.key, places.authority_key):
            try:
                with path.open("rb") as file:
                    found.add(file.read(LARGEST).decode("utf-8", "replace").strip())
            except OSError:
                continue  # not there, or another user's
    return found - {""}


def _plain(path: Path) -> bool:
    try:
        return path.is_file() and not path.is_symlink()
    except OSError:
        return False


def _newest(folder: Path, most: int) -> list[Path]:
    """Records of a folder, the newest first."""
    dated = []
    for path in folder.glob("[!.]*.json"):
        try:
            if _plain(path):
                dated.append((-path.stat().st_mtime, path))
        except OSError:
            continue  # it went meanwhile
    return [path for _, path in sorted(dated)[:most]]
