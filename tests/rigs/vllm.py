"""A real vLLM on the CPU with a tiny random model, for tests.

scripts/setup-test-vllm.sh makes what this needs. The model answers nonsense, quickly; the server
around it is the real one, so that what the project believes about vLLM can be checked against it.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

PROJECT_ROOT = Path(__file__).resolve().parents[2]
VENV_VARIABLE = "FLOCK_HPC_TEST_VLLM"
REQUIRE_VARIABLE = "FLOCK_HPC_REQUIRE_REAL"
MODEL_NAME = "tiny"
READY_TIMEOUT_S = 300.0
POLL_S = 0.5
GRACE_S = 10.0
HELPER_GRACE_S = 2.0
LOG_TAIL_LINES = 40
LONGEST_SOCKET_PATH = 107  # bytes: what the kernel's address of a Unix socket holds on Linux


class RigError(RuntimeError):
    """The test server did not start; the message carries the end of its log."""


def virtual_environment() -> Path:
    """The folder of vLLM's own virtual environment."""
    return Path(os.environ.get(VENV_VARIABLE) or PROJECT_ROOT / ".venv-vllm").absolute()


def vllm_command() -> list[str]:
    """The start of a vLLM command line."""
    return [str(virtual_environment() / "bin" / "vllm")]


def tiny_model() -> Path:
    """The folder of the tiny model."""
    return virtual_environment() / "tiny-model"


def available() -> str | None:
    """None where the rig can be used, else the reason why it cannot."""
    advice = f"run scripts/setup-test-vllm.sh, or name the folder in {VENV_VARIABLE}"
    command = Path(vllm_command()[0])
    if not os.access(command, os.X_OK):
        return f"no vLLM for tests at {command}: {advice}"
    if not (tiny_model() / "config.json").is_file():
        return f"no tiny model at {tiny_model()}: {advice}"
    return None


def real_parts_required() -> bool:
    """Whether a missing real part is a failure rather than a reason to skip."""
    return os.environ.get(REQUIRE_VARIABLE, "") not in ("", "0")


def serve_environment() -> dict[str, str]:
    """What a server needs in its environment, to be laid over the caller's own."""
    return {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def get_status(socket_path: Path, path: str, timeout: float = 5.0) -> int | None:
    """The status of one GET over a Unix socket; None where nobody answers."""
    connection = http.client.HTTPConnection("localhost", timeout=timeout)
    try:
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(timeout)
        connection.sock.connect(str(socket_path))
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


class TinyServer:
    """`vllm serve` with the tiny model on a Unix socket, for as long as the `with` block lasts.

    It has its own process group, of which nothing is left at the end, and writes its log beside
    the socket. `process.pid` is the API server; the engine is a child of it and the worker
    a child of the engine. Killing the API server alone leaves the other two running for good.
    """

    def __init__(
        self,
        socket_path: Path,
        extra_args: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        if len(os.fsencode(socket_path)) > LONGEST_SOCKET_PATH:
            raise ValueError(f"too long for a Unix socket ({LONGEST_SOCKET_PATH} bytes): {socket_path}")
        self.socket_path = socket_path
        self.log_path = socket_path.with_suffix(".log")
        self.model_name = MODEL_NAME
        self.extra_args = tuple(extra_args)
        self.environment = dict(environment or {})
        self.seconds_to_ready = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: Path | None = None

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The API server's process; an error before `start`."""
        if self._process is None:
            raise RigError("the test server was not started")
        return self._process

    def command(self) -> list[str]:
        """The whole command line."""
        return [
            *vllm_command(),
            "serve",
            str(tiny_model()),
            "--served-model-name",
            MODEL_NAME,
            "--enforce-eager",
            "--uds",
            str(self.socket_path),
            *self.extra_args,
        ]

    def start(self) -> None:
        """Start the server and return at once; `wait_ready` waits."""
        reason = available()
        if reason is not None:
            raise RigError(reason)
        if self._process is not None and self._process.poll() is None:
            raise RigError("the test server runs already")
        self.socket_path.parent.mkdir(parents=True, exist_ok=True)
        # A killed vLLM leaves its inner sockets behind: they get a folder that goes with it. A
        # server that a test killed and starts again keeps the one that it has.
        self._scratch = self._scratch or Path(tempfile.mkdtemp(prefix="flock-rig-"))
        with self.log_path.open("ab") as log:
            self._process = self._spawn(log)

    def _spawn(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        scratch = {"TMPDIR": str(self._scratch)}
        # A developer's own settings for vLLM, an API key above all, have no place in a test.
        callers = {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}
        return subprocess.Popen(
            self.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**callers, **scratch, **serve_environment(), **self.environment},
            start_new_session=True,
        )

    def wait_ready(self, timeout: float = READY_TIMEOUT_S) -> None:
        """Return when /health answers 200; raise with the end of the log when it never does."""
        started = time.monotonic()
        while time.monotonic() - started < timeout:
            code = self.process.poll()
            if code is not None:
                raise RigError(f"the test server ended with code {code}\n{self.log_tail()}")
            if get_status(self.socket_path, "/health") == 200:
                self.seconds_to_ready = time.monotonic() - started
                return
            time.sleep(POLL_S)
        raise RigError(f"the test server was not ready in {timeout:.0f} s\n{self.log_tail()}")

    def kill(self) -> None:
        """Kill the whole process group, wait for the API server, and remove what it left."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self.socket_path.unlink(missing_ok=True)
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
            self._scratch = None

    def stop(self) -> None:
        """Ask the server to end, which takes it half a second, then kill what is left of the group.

        A group killed at once leaves its shared memory in /dev/shm.
        """
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_S)
                self._let_helpers_end(self._process.pid)
        self.kill()

    @staticmethod
    def _let_helpers_end(group: int) -> None:
        """Give the process that frees the shared memory, the last of the group, its moment."""
        patience = time.monotonic() + HELPER_GRACE_S
        with contextlib.suppress(ProcessLookupError):
            while time.monotonic() < patience:
                os.killpg(group, 0)
                time.sleep(0.05)

    def log_tail(self) -> str:
        """The last lines of the log."""
        if not self.log_path.exists():
            return "(no log)"
        lines = self.log_path.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])

    def __enter__(self) -> Self:
        try:
            self.start()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
