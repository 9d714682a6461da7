"""An outsider: a process of another user on the fleet's machine. Run by root, it becomes that user at once.

Says as JSON what it could do. Imports nothing of the package: that is not the outsider's to read."""

from __future__ import annotations

import base64
import contextlib
import encodings.idna  # else loaded when it is needed, from a folder that the outsider may not read
import json
import os
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

REPLY = json.dumps({
    "id": "x", "object": "chat.completion", "model": "m", "data": [], "usage": {},
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "STOLEN [[A>>B]]"}}],
}).encode()


def outcome(act: Callable[[], object]) -> str:
    """What came of an act: `done: ...`, or the error's class."""
    try:
        return f"done: {act()!r}"[:300]
    except Exception as error:
        return type(error).__name__


def read(path: Path) -> str:
    return path.read_bytes().decode("latin-1")[:40]


def make(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("{}")
    return "made"


def connect(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(str(path))
    return "connected"


def names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def first_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(1)


def meddle(home: Path, server: list[int], sockets: list[Path]) -> dict[str, str]:
    """Every way to the fleet's files and processes that another user could think of; what destroys comes last."""
    acts: dict[str, Callable[[], object]] = {"list": partial(names, home),
                                             "list workers": partial(names, home / "workers")}
    for name in ("key", "authority.key", "authority.pem", "fleet.json", "wish.json"):
        acts[f"read {name}"] = partial(read, home / name)
    for pid in server:
        acts |= {f"environ {pid}": partial(read, Path(f"/proc/{pid}/environ")),
                 f"memory {pid}": partial(first_byte, Path(f"/proc/{pid}/mem")),
                 f"files {pid}": partial(names, Path(f"/proc/{pid}/fd")),
                 f"end {pid}": partial(os.kill, pid, 15)}
    acts |= {f"socket {number}": partial(connect, path) for number, path in enumerate(sockets)}
    acts |= {f"make {name}": partial(make, home / name) for name in (
        "workers/evil.json", "retired/w1", "users/evil.json", "wish.json", "claims/control/g999999.json", "new")}
    acts |= {"link from beside": partial(os.link, home / "key", home.parent / "stolen"),
             "open to all": partial(home.chmod, 0o777), "remove the key": (home / "key").unlink,
             "move away": partial(home.rename, home.with_name("mine"))}
    return {name: outcome(act) for name, act in acts.items()}


def request(host: str, port: int, text: bytes, *, tls: bool) -> str:
    """The first line of the answer to raw bytes; empty where there is none."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        stream = stack.enter_context(socket.create_connection((host, port), timeout=20))
        if tls:
            stream = stack.enter_context(context.wrap_socket(stream))
        stream.sendall(text)
        found = b""
        while b"\r\n" not in found and (part := stream.recv(4096)):
            found += part
    return found.split(b"\r\n")[0].decode("latin-1")


def knock(host: str, port: int, requests: list[str]) -> list[str]:
    """The answers to requests as they stand; the last is sent without TLS."""
    *sealed, plain = [text.encode("latin-1") for text in requests]
    found = [outcome(partial(request, host, port, text, tls=True)) for text in sealed]
    return [*found, outcome(partial(request, host, port, plain, tls=False))]


def impersonate(host: str, port: int, certificate: str | None) -> None:
    """Listen where a worker listened; say what is received, until the standard input ends."""
    context = None
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    listening = socket.create_server((host, port))
    listening.settimeout(0.05)
    os.set_blocking(0, False)
    print("ready", flush=True)
    received, came = b"", 0
    while sys.stdin.buffer.read() is None:  # an open pipe with nothing in it; at its end b""
        with contextlib.suppress(OSError):
            stream, _ = listening.accept()
            came += 1
            stream.settimeout(2)
            with contextlib.ExitStack() as stack:
                stream = stack.enter_context(context.wrap_socket(stream, server_side=True) if context else stream)
                received += stream.recv(65536)
                head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(REPLY)}\r\n\r\n"
                stream.sendall(head.encode() + REPLY)
    print(json.dumps({"came": came, "received": base64.b64encode(received).decode()}), flush=True)


def main() -> None:
    told: dict[str, Any] = json.loads(sys.argv[1])
    assert encodings.idna
    os.setgroups([])
    os.setgid(told["uid"])
    os.setuid(told["uid"])
    match told["do"]:
        case "meddle":
            print(json.dumps(meddle(Path(told["home"]), told["pids"], [Path(one) for one in told["sockets"]])))
        case "knock":
            print(json.dumps(knock(told["host"], told["port"], told["requests"])))
        case "impersonate":
            impersonate(told["host"], told["port"], told["certificate"])


if __name__ == "__main__":
    main()
