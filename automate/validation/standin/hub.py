"""A model hub on loopback that huggingface_hub works against: information of models, files, and faults on request.

For tests and rehearsals; never knows more of the hub than what a download needs."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from urllib.parse import unquote, urlsplit

LARGE = 1024
"""Bytes from which a file is listed with its sha256, as the hub does for large ones."""


@dataclass(frozen=True)
class Repository:
    """A repository: its files at `commit`, older ones at other commits, names of revisions; `gated`: needs a token.

    `extra`: rows of the listing as they are (names that no file has, missing sizes).
    """

    files: Mapping[str, bytes]
    commit: str = ""
    revisions: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)
    gated: bool = False
    disabled: bool = False
    extra: tuple[Mapping[str, object], ...] = ()

    @property
    def head(self) -> str:
        names = "\n".join(f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in sorted(self.files.items()))
        return self.commit or hashlib.sha1(names.encode()).hexdigest()  # noqa: S324 - as git does

    def resolve(self, revision: str) -> tuple[str, Mapping[str, bytes]] | None:
        """The commit and files of a revision."""
        commit = self.revisions.get(revision, self.head if revision == "main" else revision)
        return (commit, self.files) if commit == self.head else \
            (commit, self.older[commit]) if commit in self.older else None

    @classmethod
    def of_folder(cls, folder: Path) -> Repository:
        """A repository of the files below a folder."""
        return cls({str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
                    if path.is_file()})


@dataclass
class Fault:
    """What happens to the next `times` requests whose path matches: a status, or a body cut after `cut` bytes.

    `drip`: the body comes byte by byte, so many seconds between two.
    """

    path: str
    times: int = 1
    status: int | None = None
    cut: int | None = None
    drip: float | None = None
    method: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Call:
    """A request: method, path with query, the token it carried, its Range."""

    method: str
    path: str
    token: str | None
    range: str | None = None


class HubStandIn:
    """`with HubStandIn({"org/name": Repository(...)}) as hub:` serves at `hub.url`; `calls` lists what was asked."""

    def __init__(self, repositories: Mapping[str, Repository], *, tokens: Iterable[str] = (),
                 faults: Iterable[Fault] = ()) -> None:
        self.repositories = dict(repositories)
        self.tokens = set(tokens)
        self.faults = list(faults)
        self.calls: list[Call] = []
        self.lock = threading.Lock()
        self.ended = threading.Event()
        hub = self

        class Bound(_Handler):
            standin = hub

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> HubStandIn:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked(self, method: str, part: str) -> list[Call]:
        """The requests of a method whose path holds `part`."""
        return [call for call in self.calls if call.method == method and part in call.path]

    def fault(self, method: str, path: str) -> Fault | None:
        """The fault that this request meets; it counts down."""
        with self.lock:
            for one in self.faults:
                if one.times > 0 and one.method in ("", method) and re.search(one.path, path):
                    one.times -= 1
                    return one
        return None


class _Handler(BaseHTTPRequestHandler):
    standin: HubStandIn
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each body waits for the acknowledgement of its headers

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: tests read `calls`."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        head = self.headers.get("Authorization") or ""
        token = head.removeprefix("Bearer ") or None
        with self.standin.lock:
            self.standin.calls.append(Call(self.command, self.path, token, self.headers.get("Range")))
        fault = self.standin.fault(self.command, self.path)
        if fault is not None and fault.status is not None:
            self._send(fault.status, b"{}", fault.headers)
            return
        path = unquote(urlsplit(self.path).path).lstrip("/")
        if token is not None and token not in self.standin.tokens:
            self._refuse(401, "", "Invalid credentials in Authorization header")
        elif path == "api/whoami-v2":
            self._send(200 if token else 401, json.dumps({"name": "somebody", "type": "user"}).encode(), {})
        elif path.startswith("api/models/"):
            repo, _, revision = path.removeprefix("api/models/").partition("/revision/")
            self._info(repo, revision or "main")
        else:
            repo, _, rest = path.partition("/resolve/")
            revision, _, name = rest.partition("/")
            self._file(repo, revision, name, token, fault)

    def _refuse(self, status: int, code: str, message: str = "") -> None:
        self._send(status, json.dumps({"error": message or code}).encode(),
                   {"X-Error-Code": code, "X-Error-Message": message or code} if code else {"X-Error-Message": message})

    def _found(self, repo: str, revision: str) -> tuple[Repository, str, Mapping[str, bytes]] | None:
        there = self.standin.repositories.get(repo)
        if there is None:
            self._refuse(404 if self.headers.get("Authorization") else 401, "RepoNotFound", "Repository not found")
            return None
        if there.disabled:
            self._refuse(403, "", "Access to this resource is disabled.")
            return None
        found = there.resolve(revision)
        if found is None:
            self._refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}"[:100])
            return None
        return there, *found

    def _info(self, repo: str, revision: str) -> None:
        found = self._found(repo, revision)
        if found is not None:
            there, commit, files = found
            rows = [_row(name, data) for name, data in files.items()] + [dict(row) for row in there.extra]
            body = json.dumps({"id": repo, "sha": commit, "private": False, "siblings": rows,
                               "gated": "manual" if there.gated else False}).encode()
            self._send(200, body, {"Content-Type": "application/json"})

    def _file(self, repo: str, revision: str, name: str, token: str | None, fault: Fault | None) -> None:
        found = self._found(repo, revision)
        if found is None:
            return
        there, commit, files = found
        if there.gated and token is None:
            self._refuse(401, "GatedRepo", f"Access to model {repo} is restricted.")
        elif name not in files:
            self._refuse(404, "EntryNotFound", "Entry not found")
        else:
            data = files[name]
            self._body(data, {"ETag": f'"{hashlib.sha256(data).hexdigest()}"', "X-Repo-Commit": commit,
                              "Accept-Ranges": "bytes"}, fault)

    def _body(self, data: bytes, headers: Mapping[str, str], fault: Fault | None) -> None:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or "")
        start = int(match[1]) if match else 0
        part = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if match else {}
        self._send(206 if match else 200, data[start:], {**headers, **part}, fault)

    def _send(self, status: int, body: bytes, headers: Mapping[str, str], fault: Fault | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        cut, drip = (fault.cut, fault.drip) if fault else (None, None)
        if self.command != "HEAD" and drip is not None:
            self._drip(body, drip)
        elif self.command != "HEAD":
            self.wfile.write(body if cut is None else body[:cut])
        if cut is not None:
            self.close_connection = True

    def _drip(self, body: bytes, pause: float) -> None:
        for start in range(len(body)):
            if self.standin.ended.wait(pause):
                break
            try:
                self.wfile.write(body[start:start + 1])
            except OSError:
                break
        self.close_connection = True


def _row(name: str, data: bytes) -> dict[str, object]:
    row: dict[str, object] = {"rfilename": name, "size": len(data), "blobId": hashlib.sha1(data).hexdigest()}  # noqa: S324
    if len(data) >= LARGE:
        row["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
    return row
