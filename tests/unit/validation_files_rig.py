"""A store of validation sets on loopback whose every reply a test says, and a workspace with an assignment."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from automate.settings_validation import Validation
from automate.validation.assignments import Assignment
from automate.validation.spool import Spool
from automate.validation_places import ValidationPlaces

HERE = "http://127.0.0.1:9/api/v1"
"""An API of this machine, with which sets of this machine may be fetched."""
ROWS = b'{"conversations": []}\n' * 200
NOW = 1_700_000_000.0


@dataclass
class Reply:
    """What the store answers: `cut` bytes of the body only; `length`: what Content-Length says (None: the truth).

    `drip`: the body comes byte by byte, so many seconds between two. `silent`: seconds before anything comes.
    """

    status: int = 200
    body: bytes = ROWS
    cut: int | None = None
    length: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    no_length: bool = False
    drip: float | None = None
    silent: float = 0.0


class Store:
    """Answers GETs with its replies in turn, the last one for ever; `asked` holds the requests' headers."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.replies = [Reply()]
        self.asked: list[Mapping[str, str]] = []

    def turn(self) -> Reply:
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


@contextmanager
def serve() -> Iterator[Store]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

        def do_GET(self) -> None:
            store.asked.append({"path": self.path, **dict(self.headers.items())})
            reply = store.turn()
            time.sleep(reply.silent)
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            if not reply.no_length:
                self.send_header("Content-Length", reply.length or str(len(reply.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            body = reply.body if reply.cut is None else reply.body[:reply.cut]
            if reply.drip is None:
                self.wfile.write(body)
            for start in range(len(body)) if reply.drip is not None else ():
                try:
                    self.wfile.write(body[start:start + 1])
                except OSError:
                    break
                time.sleep(reply.drip or 0)
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    store = Store(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield store
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def make_places(root: Path, **values: Any) -> ValidationPlaces:
    """The places of a workspace at `root`; the disk is never too full unless a test says so."""
    return ValidationPlaces(root, Validation.model_validate({"base_url": HERE, "retries": 1, "min_free_gb": 0,
                                                             **values}))


def admit(spool: Spool, assignment_id: str = "7", *, module: str = "lora",
          submission: Mapping[str, object] | None = None, data: Mapping[str, object] | None = None) -> Assignment:
    """An assignment in `fetched`, made of a reply with these fields."""
    theirs, ours = dict(submission or {}), dict(data or {})
    reply = {"id": int(assignment_id), "status": "validating", "data": ours,
             "task_submission": {"task_id": 1, "id": 2, "data": theirs}}
    path = spool.keep(json.dumps(reply).encode(), "1", module)
    return spool.admit(path, Assignment(assignment_id, "1", module, NOW, Path(), needs_model="hg_repo_id" in theirs,
                                        needs_data="validation_set_url" in ours))
