"""HTTP of the stand-in: which call a request is, whether it keeps to the protocol, and how a fault looks on the wire.

Never decides what an assignment becomes; `books.py` does."""

from __future__ import annotations

import contextlib
import hmac
import json
import select
import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from automate.validation.standin.books import Record
from automate.validation.standin.plan import Fault, Plan, TaskPlan
from automate.validation.standin.protocol import BAD_KEY, NO_SUBMISSIONS, Call, Place, Reply, detail, limit_text

if TYPE_CHECKING:
    from automate.validation.standin.server import StandIn

HEADER = "flock-api-key"
LARGEST = 1 << 20
_HUGE = 512 << 20
Act = Callable[[], tuple[Reply, Record | None]]


def task_row(task: TaskPlan) -> dict[str, Any]:
    """A task as the list shows it."""
    return {"title": f"Stand-in task {task.id}", "description": "<p>Made up, means nothing</p>",
            "task_type": "training", "duration_in_seconds": 864_000, "id": task.id, "status": "submission_phase",
            "initialized_at": "2026-01-01T00:00:00.000000", "submission_phase_ends_at": "2099-01-01T00:00:00.000000",
            "final_validation_ends_at": "2099-02-01T00:00:00.000000",
            "data": {"dataset_s3_key": "sets/a", "max_params": task.max_params, "context_length": task.context_length,
                     "training_set_key": "sets/b", "validation_set_key": "sets/c",
                     "final_validation_set_key": "sets/d"}}


def undone(fault: Fault, plan: Plan) -> Reply | None:
    """The reply of a fault that leaves the books as they are; None for faults of another kind."""
    words = {Fault.ERROR: detail(500, "Internal Server Error"), Fault.GATEWAY: Reply.page(502),
             Fault.HTML: Reply.page(200), Fault.NOT_JSON: Reply(200, b"OK, more or less", "text/plain"),
             Fault.WRONG_TYPE: Reply(200, b'"a text"'), Fault.NOTHING: detail(404, NO_SUBMISSIONS),
             Fault.RATE_LIMIT: detail(429, limit_text(max(plan.lookup_interval, 0.05))),
             Fault.DENIED: Reply.xml(403, "AccessDenied", "Request has expired")}
    return words.get(fault)


class Handler(BaseHTTPRequestHandler):
    """One connection; many requests may come over it."""

    protocol_version = "HTTP/1.1"
    server_version = "stand-in"
    sys_version = ""
    timeout = 60
    disable_nagle_algorithm = True

    @property
    def standin(self) -> StandIn:
        return cast("StandIn", self.server.standin)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""

    def setup(self) -> None:
        """Replies go out at once; the server can hang up."""
        super().setup()
        self.server.open.add(self.connection)  # type: ignore[attr-defined]
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def finish(self) -> None:
        """The connection is over."""
        self.server.open.discard(self.connection)  # type: ignore[attr-defined]
        with contextlib.suppress(OSError):
            super().finish()

    def handle(self) -> None:
        """A client that goes away is no error of the server."""
        with contextlib.suppress(ConnectionError, TimeoutError):
            super().handle()

    # --- which call it is ----------------------------------------------------------------------------
    def do_GET(self) -> None:
        """The list of tasks, a check of the key, a validation set."""
        parts = urlsplit(self.path)
        steps = [unquote(one) for one in parts.path.split("/") if one]
        if steps == ["api", "v1", "tasks", "list"]:
            needs = self.standin.plan.list_needs_key
            self._serve("list", "", self._list, keyed=needs)
        elif steps == ["api", "v1", "tasks", "wallet-submissions"]:
            empty = Reply(200, b'{"items": [], "total": 0, "page": 1, "size": 50, "pages": 0}')
            self._serve("key", "", lambda: (empty, None))
        elif len(steps) == 3 and steps[0] == "data":
            if self.headers.get(HEADER) is not None:
                self._breach("the key went to the file store")
            query = dict(parse_qsl(parts.query))
            self._serve("data", steps[1], lambda: self.standin.books.data(steps[1], query), keyed=False)
        else:
            self._send(detail(404, "Not Found"))

    def do_POST(self) -> None:
        """A lookup or an update."""
        body = self._body()
        steps = [unquote(one) for one in urlsplit(self.path).path.split("/") if one]
        if body is None or len(steps) != 5 or steps[:3] != ["api", "v1", "tasks"]:
            self._send(detail(404, "Not Found"))
            return
        call, which = steps[3:]
        if self.headers.get("Content-Type") != "application/json":
            self._breach(f"{call}: the type of the content is not application/json")
        if call == "request-validation-assignment":
            if body:
                self._breach("a lookup with a body")
            self._serve("request", which, lambda: self.standin.books.request(which, self.standin.origin))
        elif call == "update-validation-assignment":
            self._serve("update", which, lambda: self.standin.books.update(which, body))
        else:
            self._send(detail(404, "Not Found"))

    def _list(self) -> tuple[Reply, None]:
        return Reply(200, json.dumps([task_row(task) for task in self.standin.tasks]).encode()), None

    def _body(self) -> bytes | None:
        length = self.headers.get("Content-Length") or "0"
        if not length.isdigit() or int(length) > LARGEST:
            self._breach("a body without a length, or too large")
            self.close_connection = True
            return None
        return self.rfile.read(int(length))

    def _breach(self, what: str) -> None:
        with self.standin.books.lock:
            self.standin.violations.append(what)

    def _key_problem(self) -> Reply | None:
        given = self.headers.get(HEADER)
        if given is None:
            self._breach(f"{self.path.split('?')[0]}: no {HEADER} header")
            return detail(403, "Not authenticated")
        same = hmac.compare_digest(given.encode("latin-1", "replace"), self.standin.key.encode())
        return None if same else detail(401, BAD_KEY)

    # --- how it is answered --------------------------------------------------------------------------
    def _serve(self, place: Place, which: str, act: Act, *, keyed: bool = True) -> None:
        problem = self._key_problem() if keyed else None
        if problem is not None:
            self._note(place, which, None, problem)
            self._send(problem)
            return
        fault = self.standin.fault(place, which)
        reply, record = self._outcome(fault, which, act)
        self._note(place, record.id if record else which, fault, reply)
        if fault is Fault.SLOW:
            self.standin.stopping.wait(self.standin.plan.slow)
        whole = False
        try:
            whole = self._listens() and self._emit(fault, reply)
        finally:
            if place == "request" and record is not None:
                record.delivered = record.delivered or whole
                if not whole:
                    self.standin.books.lost(record)

    def _outcome(self, fault: Fault | None, which: str, act: Act) -> tuple[Reply | None, Record | None]:
        """What the books say, or what the fault says instead; no reply where the connection just ends."""
        if fault in (Fault.DROP_BEFORE, Fault.HUGE, Fault.REDIRECT):
            return None, None
        instead = undone(fault, self.standin.plan) if fault is not None else None
        if instead is not None:
            return instead, None
        if fault is Fault.LOST_LEASE and which in self.standin.assignments:
            self.standin.books.expire(self.standin.assignments[which])
        reply, record = act()
        if fault is Fault.DROP_AFTER:
            return None, record
        return (Reply.page(502), record) if fault is Fault.ERROR_AFTER else (reply, record)

    def _note(self, place: Place, which: str, fault: Fault | None, reply: Reply | None) -> None:
        said = ""
        if reply is not None and reply.status != 200 and reply.kind == "application/json":
            said = str(json.loads(reply.body).get("detail"))
        self.standin.note(Call(place, which, fault or "", reply.status if reply else 0, said))

    def _listens(self) -> bool:
        """Whether the client is still there, as far as this side can see."""
        looked = select.poll()
        looked.register(self.connection, select.POLLIN)
        try:
            return not looked.poll(0) or len(self.connection.recv(1, socket.MSG_PEEK)) > 0
        except OSError:
            return False

    def _emit(self, fault: Fault | None, reply: Reply | None) -> bool:
        """Send what is to be sent; whether a whole reply of the books went out."""
        if fault is Fault.HUGE:
            self._send_huge()
        elif fault is Fault.REDIRECT:
            elsewhere = self.standin.origin.replace("127.0.0.1", "localhost")
            self._send(Reply(307, b""), {"Location": f"{elsewhere}{self.path}"})
        elif reply is None:
            self.close_connection = True
        else:
            self._send(reply, cut=fault is Fault.CUT)
            return fault is not Fault.CUT and reply.status == 200
        return False

    def _send(self, reply: Reply, headers: dict[str, str] | None = None, *, cut: bool = False) -> None:
        self.send_response(reply.status)
        for name, value in {"Content-Type": reply.kind, "Content-Length": str(len(reply.body)),
                            **(headers or {})}.items():
            self.send_header(name, value)
        if cut:
            self.close_connection = True
        self.end_headers()
        self.wfile.write(reply.body[:len(reply.body) // 2] if cut else reply.body)

    def _send_huge(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(_HUGE))
        self.end_headers()
        block = b" " * (1 << 16)
        for _ in range(_HUGE // len(block)):
            if self.standin.stopping.is_set():
                return
            self.wfile.write(block)
