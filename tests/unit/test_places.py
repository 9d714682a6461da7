"""Where servers listen: private folders, and what killed servers left of them."""

from __future__ import annotations

import os
import socket
import stat
import time
from pathlib import Path

import pytest

from automate.errors import ServerError
from automate.serving.places import OLD, free_port, socket_folder, sweep_dead


def left(base: Path, name: str, age: float) -> Path:
    folder = base / name
    folder.mkdir(exist_ok=True)
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def listener(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    made.listen()
    return made


def test_only_old_folders_without_a_listener_are_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # a socket's path must be short
    base = Path()
    empty, young, foreign = left(base, "fhpc-a", OLD + 9), left(base, "fhpc-b", 60), left(base, "other", OLD + 9)
    dead, live, file = (left(base, f"fhpc-{name}", 0) for name in "def")
    listener(dead / "judge.sock").close()
    (file / "notes.txt").write_text("somebody's")
    with listener(live / "judge.sock"):
        for folder in (dead, live, file):
            left(base, folder.name, OLD + 9)
        sweep_dead(base)
    assert not empty.exists()
    assert not dead.exists()
    assert all(folder.exists() for folder in (young, foreign, live, file))


def test_a_folder_for_a_socket_is_private(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TMPDIR", "/tmp")
    folder = socket_folder()
    try:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    finally:
        folder.rmdir()


def test_a_long_temporary_path_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setenv("TMPDIR", str(long))
    try:
        folder = socket_folder()
    except ServerError as error:
        assert "short" in str(error)
    else:
        assert folder.parent == Path("/tmp")
        folder.rmdir()


def test_a_free_port_can_be_bound() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", free_port()))
