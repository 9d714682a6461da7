"""Whose fault an exception is. Classes of libraries are made here by name, as these libraries need not be installed."""

from __future__ import annotations

import errno
import http.client
import socket
import ssl
import subprocess
import urllib.error
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest
from pydantic import ValidationError, create_model

from automate.validation.inner import symptoms
from automate.validation.inner.classify import LONGEST_CHAIN, chain, classify
from automate.validation.inner.files import Outcome
from automate.validation.modules.base import InvalidConfigValueException, RecoverableException, SubmissionFault

MODEL = Path("/models/a--b/0123")
FAILED, RECOVERABLE, UNUSABLE = Outcome.FAILED, Outcome.RECOVERABLE, Outcome.UNUSABLE


def kind(where: str, name: str, *bases: type[BaseException]) -> type[BaseException]:
    """A class as a library has it."""
    return type(name, bases or (Exception,), {"__module__": where})


def told(error: BaseException, *, shipped: bool = False) -> tuple[Outcome, str]:
    found = classify(error, shipped=shipped, model=MODEL, schemas={"Config"})
    assert found.reason and found.cause
    return found.outcome, found.cause


HUB = "huggingface_hub.errors"
HTTP = kind("httpx", "HTTPStatusError")
ENTRY = kind(HUB, "EntryNotFoundError")
HUB_HTTP = kind(HUB, "HfHubHTTPError", HTTP, OSError)
REPOSITORY = kind(HUB, "RepositoryNotFoundError", HUB_HTTP)
OLD_LOCAL = kind("huggingface_hub.utils._errors", "LocalEntryNotFoundError", ENTRY, FileNotFoundError, ValueError)
TORCH_OOM = kind("torch", "OutOfMemoryError", RuntimeError)
SAFETENSORS = kind("safetensors_rust", "SafetensorError")
ORT = kind("onnxruntime.capi.onnxruntime_pybind11_state", "Fail")

MACHINE: list[tuple[BaseException, str]] = [
    (MemoryError(), "out-of-memory"),
    (TORCH_OOM("CUDA out of memory. Tried to allocate 20.00 GiB"), "out-of-memory"),
    (RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"), "out-of-memory"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out-of-memory"),
    (RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"), "out-of-memory"),
    (RuntimeError("std::bad_alloc"), "out-of-memory"),
    (ORT("[ONNXRuntimeError] : 1 : FAIL : bad allocation"), "out-of-memory"),
    (kind("torch", "AcceleratorError", RuntimeError)("CUDA error: out of memory"), "out-of-memory"),
    (OSError(errno.ENOMEM, "Cannot allocate memory"), "out-of-memory"),
    (RuntimeError("CUDA error: device-side assert triggered"), "gpu"),
    (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "gpu"),
    (RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"), "gpu"),
    (RuntimeError("Found no NVIDIA driver on your system."), "gpu"),
    (RuntimeError("No CUDA GPUs are available"), "gpu"),
    (RuntimeError("cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"), "gpu"),
    (RuntimeError("NCCL error in: ProcessGroupNCCL.cpp:1, unhandled cuda error"), "gpu"),
    (kind("torch", "AcceleratorError", RuntimeError)("an illegal memory access was encountered"), "gpu"),
    (kind("torch.distributed", "DistBackendError", RuntimeError)("x"), "gpu"),
    (OSError(errno.ENOSPC, "No space left on device"), "disk"),
    (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk"),
    (OSError(errno.EIO, "Input/output error"), "disk"),
    (OSError(errno.ESTALE, "Stale file handle"), "disk"),
    (PermissionError(errno.EACCES, "Permission denied"), "disk"),
    (OSError(errno.EROFS, "Read-only file system"), "disk"),
    (OSError(errno.EMFILE, "Too many open files"), "disk"),
    (SAFETENSORS("Error while serializing: I/O error: No space left on device (os error 28)"), "disk"),
    (SAFETENSORS("I/O error: Quota (os error 122)"), "disk"),
    (RuntimeError("[enforce fail at inline_container.cc] . PytorchStreamWriter failed: No space left on device"),
     "disk"),
    (ConnectionResetError(), "network"),
    (TimeoutError(), "network"),
    (socket.gaierror(-2, "Name or service not known"), "network"),
    (ssl.SSLError("handshake"), "network"),
    (urllib.error.URLError("x"), "network"),
    (http.client.IncompleteRead(b""), "network"),
    (OSError(errno.EHOSTUNREACH, "No route to host"), "network"),
    (kind("requests.exceptions", "ChunkedEncodingError", OSError)("x"), "network"),
    (kind("urllib3.exceptions", "MaxRetryError")("x"), "network"),
    (kind("httpx", "ReadTimeout")("x"), "network"),
    (kind("openai", "RateLimitError")("x"), "network"),
    (HUB_HTTP("500 Server Error"), "network"),
    (kind(HUB, "OfflineModeIsEnabled", ConnectionError)("offline"), "offline"),
    (OLD_LOCAL("cannot find the file in the local cache"), "offline"),
    (subprocess.TimeoutExpired("x", 1), "process"),
    (BrokenProcessPool("x"), "process"),
]


@pytest.mark.parametrize(("error", "cause"), MACHINE, ids=lambda value: str(value)[:40])
def test_the_machines_faults_are_never_the_submissions(error: BaseException, cause: str) -> None:
    assert told(error) == told(error, shipped=True) == (RECOVERABLE, cause)


@pytest.mark.parametrize(("error", "cause"), MACHINE, ids=lambda value: str(value)[:40])
def test_nor_where_a_library_or_module_raised_something_else_from_them(error: BaseException, cause: str) -> None:
    for outer in (ValueError("can't load the model"), SubmissionFault("can't load"), OSError("not a valid identifier")):
        try:
            try:
                raise error
            except BaseException:
                raise outer  # noqa: B904 - the implicit chain
        except Exception as caught:
            assert told(caught) == (RECOVERABLE, cause)
        outer.__context__ = None
        outer.__cause__ = error
        assert told(outer) == (RECOVERABLE, cause)


@pytest.mark.parametrize("error", [
    ValueError("CUDA out of memory"),  # anybody's words: only native code says it in words
    KeyError("No space left on device"), ValueError("a (os error 28)"),
    RuntimeError("size mismatch for lm_head.weight"), AssertionError("shape"), ZeroDivisionError(),
    TypeError("x"), RecursionError("maximum recursion depth exceeded"), NotImplementedError("x"),
    FileNotFoundError(errno.ENOENT, "No such file", "adapter_config.json"),
    FileNotFoundError(errno.ENOENT, "No such file", str(MODEL / "model.onnx")), OSError("not a valid model identifier"),
    SAFETENSORS("Error while deserializing header: HeaderTooLarge"),
])
def test_other_exceptions_are_the_submissions_but_not_of_our_own_modules(error: BaseException) -> None:
    assert told(error) == (FAILED, "exception")
    assert told(error, shipped=True) == (RECOVERABLE, "unexpected")


def test_a_file_outside_of_the_submission_that_is_missing_is_ours() -> None:
    for path in ("/data/set.jsonl", f"{MODEL}x/y", "/models/a--b"):
        assert told(FileNotFoundError(errno.ENOENT, "No such file", path)) == (RECOVERABLE, "missing-path")


def test_what_a_module_says_is_taken() -> None:
    assert told(RecoverableException("x", cause="judge")) == (RECOVERABLE, "judge")
    assert told(InvalidConfigValueException("x")) == (UNUSABLE, "config")
    for shipped in (True, False):
        assert told(SubmissionFault("x", cause="missing-adapter"), shipped=shipped) == (FAILED, "missing-adapter")


def test_trouble_that_a_module_named_is_not_lost_on_the_way_out() -> None:
    try:
        try:
            raise RecoverableException("the judge is busy", cause="judge")
        except RecoverableException:
            raise KeyError("x")  # noqa: B904
    except KeyError as error:
        assert told(error) == (RECOVERABLE, "judge")


def test_a_fault_said_to_have_nothing_to_do_with_the_machine_stands() -> None:
    try:
        try:
            raise MemoryError
        except MemoryError:
            raise SubmissionFault("x", cause="huge") from None
    except SubmissionFault as error:
        assert told(error) == (FAILED, "huge")


def test_the_words_of_a_fault_do_not_make_it_the_machines() -> None:
    assert told(SubmissionFault("its file is called 'CUDA out of memory (os error 28)'")) == (FAILED, "submission")
    own = kind("mine", "Own", SubmissionFault, RuntimeError)
    assert told(own("CUDA out of memory")) == (FAILED, "submission")


def test_subclasses_that_do_not_call_their_base_have_a_cause() -> None:
    class Own(RecoverableException):
        def __init__(self) -> None:
            self.args = ("x",)

    assert told(Own()) == (RECOVERABLE, "recoverable")


def _hub(error: type[BaseException], status: int | None) -> BaseException:
    found = error("x")
    if status is not None:
        found.response = type("Response", (), {"status_code": status})()  # type: ignore[attr-defined]
    found.__cause__ = HTTP("404 Client Error")
    return found


@pytest.mark.parametrize(("error", "expected"), [
    (_hub(REPOSITORY, 404), (FAILED, "missing-repository")),
    (_hub(REPOSITORY, 401), (RECOVERABLE, "missing-repository")),
    (_hub(kind(HUB, "RevisionNotFoundError", HUB_HTTP), 404), (FAILED, "missing-revision")),
    (_hub(kind(HUB, "RemoteEntryNotFoundError", HUB_HTTP, ENTRY), 404), (FAILED, "missing-file")),
    (_hub(kind(HUB, "GatedRepoError", REPOSITORY), 403), (UNUSABLE, "gated")),
])
def test_the_hubs_words_for_a_repository_are_told_apart(
        error: BaseException, expected: tuple[Outcome, str]) -> None:
    assert told(error) == told(error, shipped=True) == expected


def test_a_file_that_is_missing_on_this_disk_only_is_not_missing_at_the_hub() -> None:
    assert symptoms.hub(OLD_LOCAL("x")) is None
    assert symptoms.hub(REPOSITORY("x")) == ("missing-repository", None)


def test_a_library_that_is_missing_is_the_environments() -> None:
    assert told(ModuleNotFoundError("No module named 'peft'", name="peft")) == (UNUSABLE, "environment")
    error = RuntimeError("Failed to import transformers.models.x")
    error.__cause__ = ImportError("x")
    assert told(error) == (UNUSABLE, "environment")
    assert told(AssertionError("Torch not compiled with CUDA enabled")) == (UNUSABLE, "environment")
    try:
        try:
            raise ImportError("an optional library")
        except ImportError:
            raise ValueError("the fallback failed")  # noqa: B904
    except ValueError as caught:
        assert told(caught) == (FAILED, "exception")


def _validation(name: str) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        create_model(name, rows=(int, ...)).model_validate({"rows": "hf_secret"})
    return caught.value


def test_only_the_modules_own_schemas_are_a_persons_case() -> None:
    assert told(_validation("Config")) == (UNUSABLE, "schema")
    assert told(_validation("AdapterConfig")) == (FAILED, "exception")
    assert "hf_secret" not in classify(_validation("Config"), shipped=True, schemas={"Config"}).reason


def test_chains_with_rings_and_without_end_are_followed_so_far() -> None:
    one, two = ValueError("1"), ValueError("2")
    one.__cause__, two.__cause__ = two, one
    assert len(list(chain(one))) == 2
    first = last = ValueError("0")
    for number in range(500):
        last.__context__ = ValueError(str(number))
        last = last.__context__
    assert len(list(chain(first))) == LONGEST_CHAIN


def test_members_of_groups_are_looked_at() -> None:
    group = ExceptionGroup("several", [ValueError("x"), ExceptionGroup("more", [MemoryError()])])
    assert told(group) == (RECOVERABLE, "out-of-memory")


@pytest.mark.parametrize("make", [SystemExit, GeneratorExit, KeyboardInterrupt])
def test_what_is_no_exception_is_never_the_submissions(make: Callable[[], BaseException]) -> None:
    assert told(make()) == (RECOVERABLE, "exit")


def test_reasons_and_causes_are_short_and_plain() -> None:
    verdict = classify(SubmissionFault("a\x1b[2J\ud800" + "b" * 10**6, cause="c\n" * 500), shipped=True)
    assert len(verdict.reason) <= 600 and len(verdict.cause) <= 60
    assert verdict.reason.isprintable() and verdict.cause.isprintable()
    verdict.reason.encode()
