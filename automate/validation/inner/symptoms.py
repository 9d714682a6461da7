"""Exceptions of the machine, told by type name, error number and text: memory, GPU, disk, network.

Imports none of the libraries that raise them; never says whose fault an exception is."""

from __future__ import annotations

import errno
import re

MEMORY, GPU, DISK, NETWORK, OFFLINE, PROCESS = "out-of-memory", "gpu", "disk", "network", "offline", "process"
"""Causes, as they stand in results."""

_DISK = {getattr(errno, name) for name in (
    "ENOSPC", "EDQUOT", "EIO", "ESTALE", "EACCES", "EPERM", "EROFS", "EMFILE", "ENFILE", "EFBIG", "ENXIO", "ENODEV",
    "EREMOTEIO", "EBUSY", "ENOLCK", "ENOLINK", "EMLINK", "ETXTBSY", "EUCLEAN") if hasattr(errno, name)}
_NETWORK = {getattr(errno, name) for name in (
    "ECONNREFUSED", "ECONNRESET", "ECONNABORTED", "EHOSTUNREACH", "ENETUNREACH", "ENETDOWN", "EHOSTDOWN", "ETIMEDOUT",
    "EADDRNOTAVAIL", "EPIPE", "ENOTCONN", "ECOMM", "EPROTO") if hasattr(errno, name)}
_ABSENT = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR}

_TYPES = {
    "OutOfMemoryError": MEMORY, "MemoryError": MEMORY, "_ArrayMemoryError": MEMORY,
    "AcceleratorError": GPU, "DeferredCudaCallError": GPU, "CudaError": GPU, "CUDARuntimeError": GPU,
    "DistBackendError": GPU, "DistNetworkError": GPU,
    "OfflineModeIsEnabled": OFFLINE, "LocalEntryNotFoundError": OFFLINE,
    "ConnectionError": NETWORK, "TimeoutError": NETWORK, "TimeoutExpired": PROCESS,
    "BrokenExecutor": PROCESS, "gaierror": NETWORK, "herror": NETWORK, "SSLError": NETWORK, "URLError": NETWORK,
    "HTTPException": NETWORK, "IncompleteRead": NETWORK,
}
"""Names of classes that are told anywhere in an exception's line of descent."""
_ROOTS = {"requests", "urllib3", "httpx", "httpcore", "httpx2", "aiohttp", "openai", "anyio"}
"""Packages all of whose exceptions are the network's."""
_HUB = "huggingface_hub"
_HUB_SUBMISSION = {"RepositoryNotFoundError": "missing-repository", "RevisionNotFoundError": "missing-revision",
                   "EntryNotFoundError": "missing-file", "RemoteEntryNotFoundError": "missing-file"}
_HUB_NETWORK = {"HfHubHTTPError", "FileMetadataError", "XetDownloadError"}

_MEMORY_TEXT = re.compile(
    r"out of memory|CUBLAS_STATUS_ALLOC_FAILED|CUDNN_STATUS_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|can't allocate memory|cannot allocate memory|not enough memory|failed to allocate|bad[ _]alloc"
    r"|unable to allocate", re.IGNORECASE)
_GPU_TEXT = re.compile(
    r"CUDA error|CUDA driver|CUDA runtime|CUDA-capable|CUDA initialization|device-side assert|CUBLAS_STATUS_"
    r"|cuBLAS error|cuDNN error|CUDNN_STATUS_|CUSOLVER_STATUS_|CUSPARSE_STATUS_|cuFFT error|NCCL|HIP error"
    r"|hipErr|no kernel image is available|No CUDA GPUs|no NVIDIA driver|illegal memory access"
    r"|unspecified launch failure|uncorrectable ECC|NVML|libcuda\.so", re.IGNORECASE)
_DISK_TEXT = re.compile(r"No space left on device|Disk quota exceeded|Stale file handle|Input/output error"
                        r"|Read-only file system|Too many open files")
_NUMBER = re.compile(r"\(os error (\d{1,3})\)")
_NATIVE = {"torch", "onnxruntime", "safetensors_rust", "safetensors", "tokenizers", "cupy", "triton", "vllm"}
"""Packages of native code, which say in words what other code says by type."""


def descent(error: BaseException) -> list[tuple[str, str]]:
    """(first part of the module's name, class name) of an exception's class and all that it descends from."""
    return [(kind.__module__.partition(".")[0], kind.__name__) for kind in type(error).__mro__]


def machine(error: BaseException) -> str | None:
    """The cause where an exception is the machine's, seen by itself; None where it isn't."""
    names = descent(error)
    by_type = next((_TYPES[name] for _, name in names if name in _TYPES), None)
    if by_type is not None:
        return MEMORY if by_type == GPU and _MEMORY_TEXT.search(_said(error)) else by_type
    if isinstance(error, OSError):
        by_number = numbered(error.errno)
        if by_number is not None:
            return by_number
    if hub(error) is None and any(root in _ROOTS or (root == _HUB and name in _HUB_NETWORK) for root, name in names):
        return NETWORK
    return _by_text(error, names)


def numbered(number: int | None) -> str | None:
    """The cause that an error number of the system stands for."""
    if number == errno.ENOMEM:
        return MEMORY
    if number in _DISK:
        return DISK
    return NETWORK if number in _NETWORK else None


def _said(error: BaseException) -> str:
    try:
        return str(error)[:20_000]
    except Exception:
        return ""


def _by_text(error: BaseException, names: list[tuple[str, str]]) -> str | None:
    """Only of exceptions of native code, which has no types for it: the text of others may hold anybody's words."""
    native = any(root in _NATIVE for root, _ in names)
    if not native and not isinstance(error, (RuntimeError, OSError, ImportError)):
        return None
    said = _said(error)
    for pattern, cause in ((_MEMORY_TEXT, MEMORY), (_GPU_TEXT, GPU), (_DISK_TEXT, DISK)):
        if pattern.search(said):
            return cause
    number = _NUMBER.search(said)
    return numbered(int(number.group(1))) if number else None


def absent(error: BaseException) -> str | None:
    """The path that an OSError didn't find; None where it is about something else."""
    if isinstance(error, OSError) and error.errno in _ABSENT and isinstance(error.filename, (str, bytes)):
        return error.filename if isinstance(error.filename, str) else error.filename.decode("utf-8", "replace")
    return None


def hub(error: BaseException) -> tuple[str, int | None] | None:
    """(cause, HTTP status) where the model hub said that a repository, revision or file is not there.

    A file that is missing on this disk only (LocalEntryNotFoundError) is not meant.
    """
    names = [name for root, name in descent(error) if root == _HUB]
    if "LocalEntryNotFoundError" in names:
        return None
    for name in names:
        if name == "GatedRepoError":
            return "gated", None
        if name in _HUB_SUBMISSION:
            status = getattr(getattr(error, "response", None), "status_code", None)
            return _HUB_SUBMISSION[name], status if isinstance(status, int) else None
    return None
