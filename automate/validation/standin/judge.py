"""A judge for tests and rehearsals: an OpenAI-compatible server on loopback that answers, talks junk, or misbehaves.

Its scores mean nothing. Never leaves this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any

KEY = "judge-key-for-tests-8d1f"
MODELS = ("judge-a", "judge-b")


@dataclass(frozen=True)
class Reply:
    """What one call gets. `content` None with status 200: a message without text. `body`: this instead of a completion.

    `wait`: seconds before it; `drop`: "before" anything is sent, or in the "middle" of the body.
    """

    content: str | None = None
    status: int = 200
    body: bytes | None = None
    headers: Mapping[str, str] | None = None
    wait: float = 0.0
    drop: str = ""


def scored(score: object = 8, confidence: object = 0.9, reasoning: str = "It answers.") -> Reply:
    """A good reply, with a word before and after the JSON."""
    verdict = {"score": score, "confidence": confidence, "reasoning": reasoning}
    return Reply(f"My verdict:\n{json.dumps(verdict)}\nThat is all.")


def said(text: str | None) -> Reply:
    """A completion with this text."""
    return Reply(text)


def failing(status: int, message: str = "no", **headers: str) -> Reply:
    """A refusal or an outage in the form of OpenAI's errors; `retry_after="1"` becomes the header."""
    named = {name.replace("_", "-").title(): value for name, value in headers.items()}
    return Reply(status=status, body=json.dumps({"error": {"message": message}}).encode(), headers=named)


GOOD = (scored(),)
"""Every call gets the same good reply."""
Answer = Callable[[int, Mapping[str, Any]], Reply]
"""From the call's number (0, 1, ...) and its body to what it gets."""


class Judge:
    """A server while its `with` block runs. `answers`: a function, or replies by call of which the last stays.

    `calls` are the bodies of completions that came with the right key, in the order in which they came.
    """

    def __init__(self, answers: Answer | Sequence[Reply] = GOOD, *, models: Sequence[str] = MODELS,
                 key: str = KEY) -> None:
        self.key, self.models = key, tuple(models)
        self.calls: list[dict[str, Any]] = []
        self.listed = 0
        self._answers = answers
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    @property
    def environ(self) -> dict[str, str]:
        """The variables with which a client finds it."""
        return {"OPENAI_API_KEY": self.key, "OPENAI_BASE_URL": self.base_url}

    def answer(self, body: dict[str, Any]) -> Reply:
        """Note a call and choose its reply; waits where the reply says so."""
        with self._lock:
            number = len(self.calls)
            self.calls.append(body)
        reply = (self._answers(number, body) if callable(self._answers)
                 else self._answers[min(number, len(self._answers) - 1)])
        self._ending.wait(reply.wait)
        return reply

    def __enter__(self) -> Judge:
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self._ending.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Clients that hang up are nothing to speak of here."""

    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing."""


def _completion(reply: Reply, model: object) -> bytes:
    message = {"role": "assistant", "content": reply.content}
    return json.dumps({"id": "chatcmpl-0", "object": "chat.completion", "model": model, "choices": [
        {"index": 0, "finish_reason": "stop", "message": message}]}).encode()


def _handler(judge: Judge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """One connection."""

        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

        def do_GET(self) -> None:
            if self._known():
                judge.listed += 1
                self._send(200, json.dumps({"data": [{"id": name, "object": "model"} for name in judge.models]
                                            }).encode() if self.path == "/v1/models" else b"{}")

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if not self._known():
                return
            if self.path != "/v1/chat/completions":
                self._send(404, b'{"error": {"message": "no such path"}}')
                return
            body = json.loads(raw)
            reply = judge.answer(body)
            if reply.drop == "before":
                self.close_connection = True
                return
            data = reply.body if reply.body is not None else _completion(reply, body.get("model"))
            self._send(reply.status, data, reply.headers or {}, whole=reply.drop != "middle")

        def _known(self) -> bool:
            if self.headers.get("Authorization") == f"Bearer {judge.key}":
                return True
            self._send(401, json.dumps({"error": {"message": f"bad key {self.headers.get('Authorization')}"}}).encode())
            return False

        def _send(self, status: int, data: bytes, headers: Mapping[str, str] | None = None, whole: bool = True) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data if whole else data[:len(data) // 2])
            self.close_connection = self.close_connection or not whole

    return Handler
