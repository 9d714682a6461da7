"""A fleet's secrets: nobody else can read them at any moment, and only the fleet's own is taken for it."""

from __future__ import annotations

import os
import socket
import ssl
import stat
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from automate.errors import ConfigError, StorageError
from automate.fleet_places import FleetPlaces
from automate.serving.fleet import keys
from automate.serving.fleet.keys import Secrets, client_context, make_secrets, read_secrets, server_context

HOSTS = ["127.0.0.1", "::1", "localhost", "node-1.cluster.example", "node_7", "n" * 63]
NO_HOSTS = ["", "a b", "*.example", "a..b", "node-1:80", "[::1]", "fe80::1%eth0", "n" * 64, "-node", "h\nx", "bücher",
            "node.", "a/b", "x" * 300, "\x00"]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: needs root")


@pytest.fixture
def places(tmp_path: Path) -> FleetPlaces:
    found = FleetPlaces(tmp_path, "f")
    make_secrets(found)
    return found


def secret_files(places: FleetPlaces) -> list[Path]:
    return [places.key, places.authority_key, places.authority]


def refused(places: FleetPlaces, act: Callable[[FleetPlaces], object] = read_secrets) -> ConfigError:
    with pytest.raises(ConfigError) as error:
        act(places)
    assert error.value.where and error.value.todo
    return error.value


def shake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> str:
    """Shake hands over a pair of sockets: `ok`, or the client's reason not to."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    theirs.settimeout(20)

    def serve() -> None:
        try:
            with server.wrap_socket(theirs, server_side=True) as stream:
                stream.sendall(stream.recv(2))
        except OSError:
            theirs.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(ours, server_hostname=host) as stream:
            stream.sendall(b"ok")
            return stream.recv(2).decode()
    except ssl.SSLError as error:
        return f"{getattr(error, 'verify_message', '')} {error}"
    finally:
        ours.close()
        thread.join()


# Making


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_nobody_else_can_read_the_secrets_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    places, before = FleetPlaces(tmp_path, "f"), os.umask(umask)
    try:
        make_secrets(places)
    finally:
        os.umask(before)
    folders = [places.home, places.workers, places.gone, places.users, places.runs, places.retired("x").parent]
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o700] * len(folders)
    assert [stat.S_IMODE(path.stat().st_mode) for path in secret_files(places)] == [0o600] * 3
    assert sorted(path.name for path in places.home.iterdir() if path.is_file()) == ["authority.key", "authority.pem",
                                                                                     "key"]


def test_no_secret_is_readable_by_others_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes: list[int] = []
    opened, made = os.open, Path.mkdir

    def watched_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        fd = opened(path, flags, mode, dir_fd=dir_fd)
        if flags & os.O_CREAT:
            modes.append(os.fstat(fd).st_mode)
        return fd

    def watched_mkdir(self: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        made(self, mode, parents, exist_ok)
        if self.is_relative_to(FleetPlaces(tmp_path, "f").home):
            modes.append(self.stat().st_mode)

    monkeypatch.setattr(os, "open", watched_open)
    monkeypatch.setattr(Path, "mkdir", watched_mkdir)
    before = os.umask(0)
    try:
        make_secrets(FleetPlaces(tmp_path, "f"))
    finally:
        os.umask(before)
    assert [stat.S_ISDIR(mode) for mode in modes].count(False) == 3
    assert not any(mode & 0o077 for mode in modes)


def test_made_anew_is_another_key_and_another_authority(places: FleetPlaces) -> None:
    first, old = read_secrets(places), server_context(places, "localhost")
    make_secrets(places)
    second = read_secrets(places)
    assert first.key != second.key
    assert "certificate verify failed" in shake(old, client_context(second), "localhost")


def test_a_folder_of_that_name_that_others_may_read_gets_no_secrets(tmp_path: Path) -> None:
    places = FleetPlaces(tmp_path, "f")
    places.home.mkdir(parents=True, mode=0o755)
    places.home.chmod(0o755)
    assert "open to other users" in refused(places, make_secrets).what
    assert list(places.home.iterdir()) == []


def test_a_link_in_the_folders_place_gets_no_secrets(tmp_path: Path) -> None:
    places, theirs = FleetPlaces(tmp_path, "f"), tmp_path / "theirs"
    theirs.mkdir(mode=0o700)
    places.home.parent.mkdir(parents=True)
    places.home.symlink_to(theirs)
    refused(places, make_secrets)
    assert list(theirs.iterdir()) == []


def test_a_file_system_that_keeps_no_rights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def open_to_all(path: Path, data: bytes, mode: int) -> None:
        path.write_bytes(data)
        path.chmod(0o755)

    monkeypatch.setattr(keys, "replace_file", open_to_all)
    assert "open to other users (mode 0755)" in refused(FleetPlaces(tmp_path, "f"), make_secrets).what


def test_a_file_in_the_folders_place_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / ".flock-hpc").write_text("")
    with pytest.raises(StorageError):
        make_secrets(FleetPlaces(tmp_path, "f"))


# Reading


def test_the_key_is_long_and_shown_nowhere(places: FleetPlaces) -> None:
    found = read_secrets(places)
    assert len(found.key) >= 43
    assert found.authority == places.authority
    assert repr(found) == str(found) == f"{found}" == "Secrets(...)"
    assert found.pem == places.authority.read_text()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o644, 0o666])
@pytest.mark.parametrize("which", ["key", "authority_key", "authority"])
def test_a_secret_that_others_may_read_or_write_is_refused(places: FleetPlaces, which: str, mode: int) -> None:
    path: Path = getattr(places, which)
    path.chmod(mode)
    error = refused(places)
    assert error.where == str(path)
    assert f"mode {mode:04o}" in error.what
    assert f"chmod 600 '{path}'" in (error.todo or "")
    assert places.key.read_text().strip() not in str(error)
    path.chmod(0o600)
    read_secrets(places)



@pytest.mark.parametrize("mode", [0o710, 0o701, 0o750, 0o755, 0o777, 0o1777])
def test_a_folder_that_others_may_enter_is_refused(places: FleetPlaces, mode: int) -> None:
    places.home.chmod(mode)
    error = refused(places)
    assert error.where == str(places.home)
    assert f"chmod 700 '{places.home}'" in (error.todo or "")
    refused(places, lambda found: server_context(found, "localhost"))


def test_a_folder_with_the_group_bit_of_its_parent_is_fine(places: FleetPlaces) -> None:
    places.home.chmod(0o2700)
    read_secrets(places)


@AS_ROOT
@pytest.mark.parametrize("which", ["home", "key", "authority_key", "authority"])
def test_what_belongs_to_another_user_is_refused(places: FleetPlaces, which: str) -> None:
    path: Path = getattr(places, which)
    os.chown(path, 65534, 65534)
    error = refused(places)
    assert "belongs to another user (uid 65534)" in error.what
    assert error.where == str(path)


@pytest.mark.parametrize("which", ["key", "authority_key", "authority"])
def test_a_link_to_a_secret_is_refused(places: FleetPlaces, tmp_path: Path, which: str) -> None:
    path: Path = getattr(places, which)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    assert "link" in refused(places).what


def test_a_link_to_the_folder_is_refused(places: FleetPlaces, tmp_path: Path) -> None:
    places.home.rename(tmp_path / "elsewhere")
    places.home.symlink_to(tmp_path / "elsewhere")
    assert "link" in refused(places).what


@pytest.mark.parametrize("which", ["home", "key", "authority_key", "authority"])
def test_what_was_lost_is_said(places: FleetPlaces, tmp_path: Path, which: str) -> None:
    path: Path = getattr(places, which)
    path.rename(tmp_path / "lost")
    error = refused(places)
    assert error.where == str(path)
    assert "not there" in error.what
    (tmp_path / "lost").rename(path)
    read_secrets(places)


@pytest.mark.parametrize("kind", ["folder", "pipe"])
def test_another_kind_of_file_is_refused_and_not_waited_for(places: FleetPlaces, kind: str) -> None:
    places.key.unlink()
    if kind == "pipe":
        os.mkfifo(places.key, 0o600)
    else:
        places.key.mkdir(0o700)
    refused(places)


@pytest.mark.parametrize("text", [b"", b"short", b"x" * 200, b"two lines of enough characters\nmore" * 2,
                                  b"\xff" * 40, b"a" * 40 + b"\r\nX-Evil: 1"])
def test_a_damaged_key_is_refused_and_not_shown(places: FleetPlaces, text: bytes) -> None:
    places.key.write_bytes(text)
    error = refused(places)
    assert "damaged" in error.what
    assert text.decode("latin-1") not in str(error) or not text


@pytest.mark.parametrize("which", ["authority_key", "authority"])
def test_a_damaged_authority_is_refused(places: FleetPlaces, which: str) -> None:
    getattr(places, which).write_text("-----BEGIN NOTHING-----\n")
    assert "damaged" in refused(places, lambda found: server_context(found, "localhost")).what


def test_a_key_of_another_authority_signs_nothing(places: FleetPlaces, tmp_path: Path) -> None:
    other = FleetPlaces(tmp_path, "other")
    make_secrets(other)
    places.authority_key.write_bytes(other.authority_key.read_bytes())
    assert "damaged" in refused(places, lambda found: server_context(found, "localhost")).what


# TLS


@pytest.mark.parametrize("host", HOSTS)
def test_a_worker_is_known_at_its_host_only(places: FleetPlaces, host: str) -> None:
    server, client = server_context(places, host), client_context(read_secrets(places))
    assert shake(server, client, host) == "ok"
    assert "mismatch" in shake(server, client, "another-host")
    assert "mismatch" in shake(server, client, "127.0.0.2")


@pytest.mark.parametrize("host", NO_HOSTS)
def test_what_is_no_host_gets_no_certificate(places: FleetPlaces, host: str) -> None:
    error = refused(places, lambda found: server_context(found, host))
    assert "neither a host name nor an IP address" in error.what
    assert "\n" not in error.what


def test_another_fleets_worker_is_not_taken(places: FleetPlaces, tmp_path: Path) -> None:
    other = FleetPlaces(tmp_path, "other")
    make_secrets(other)
    client = client_context(read_secrets(places))
    assert "verify failed" in shake(server_context(other, "localhost"), client, "localhost")


def test_the_authorities_of_the_machine_are_not_trusted(places: FleetPlaces, monkeypatch: pytest.MonkeyPatch,
                                                        tmp_path: Path) -> None:
    other = FleetPlaces(tmp_path, "other")
    make_secrets(other)
    monkeypatch.setenv("SSL_CERT_FILE", str(other.authority))
    client = client_context(read_secrets(places))
    assert len(client.get_ca_certs()) == 1
    assert client.verify_mode is ssl.CERT_REQUIRED
    assert client.check_hostname
    assert "verify failed" in shake(server_context(other, "localhost"), client, "localhost")


def test_a_worker_cant_make_workers(places: FleetPlaces) -> None:
    """A worker's certificate is no authority, whatever was signed with it."""
    authority = x509.load_pem_x509_certificate(places.authority.read_bytes())
    pem = keys._issue(places, "localhost", b"x")
    leaf = x509.load_pem_x509_certificate(pem)
    kinds = [one.extensions.get_extension_for_class(x509.BasicConstraints) for one in (authority, leaf)]
    assert [kind.value.ca for kind in kinds] == [True, False]
    assert kinds[0].value.path_length == 0
    assert all(kind.critical for kind in kinds)
    usage = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.SERVER_AUTH]
    assert authority.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert not leaf.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    leaf.verify_directly_issued_by(authority)


def test_a_clock_that_is_behind_or_ahead_does_no_harm(places: FleetPlaces) -> None:
    leaf = x509.load_pem_x509_certificate(keys._issue(places, "localhost", b"x"))
    now = datetime.now(UTC)
    assert leaf.not_valid_before_utc < now - timedelta(hours=23)
    assert leaf.not_valid_after_utc > now + timedelta(days=365)


def test_a_workers_private_key_stays_on_no_disk(places: FleetPlaces, tmp_path: Path,
                                                monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    seen: list[tuple[int, bytes]] = []
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, keyfile: None = None, password: bytes | None = None) -> None:
        seen.append((stat.S_IMODE(Path(path).stat().st_mode), Path(path).read_bytes()))
        load(self, path, keyfile, password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    server_context(places, "localhost")
    assert [mode for mode, _ in seen] == [0o600]
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in seen[0][1]
    assert list(folder.iterdir()) == []
    assert len(list(places.home.rglob("*.pem"))) == 1


def test_without_room_for_a_temporary_file_it_is_said(places: FleetPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    with pytest.raises(StorageError, match="temporary file"):
        server_context(places, "localhost")


def test_secrets_that_were_built_from_a_path_are_read_from_it(places: FleetPlaces) -> None:
    client = client_context(Secrets("k", places.authority))
    assert shake(server_context(places, "localhost"), client, "localhost") == "ok"
    places.authority.write_text("nothing")
    with pytest.raises(ConfigError, match="damaged"):
        client_context(Secrets("k", places.authority))
