"""Causes of a server's death, by the words of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from automate.serving.causes import (
    ARGUMENTS,
    CONTEXT,
    CUDA,
    KILLED,
    NODE,
    OUT_OF_MEMORY,
    PATH,
    PORT,
    UNKNOWN,
    Cause,
    classify,
    tail,
)


@pytest.mark.parametrize(("log", "cause"), [
    ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", OUT_OF_MEMORY),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", OUT_OF_MEMORY),
    ("ValueError: Free memory on device (10.0/79.1 GiB) on startup is less than desired GPU memory utilization",
     NODE),
    ("RuntimeError: CUDA error: uncorrectable ECC error encountered", NODE),
    ("torch.AcceleratorError: CUDA error: all CUDA-capable devices are busy or unavailable", NODE),
    ("Unable to determine the device handle for GPU0000:4E:00.0: GPU is lost.  Reboot the system to recover", NODE),
    ("Failed to initialize NVML: Driver/library version mismatch", NODE),
    ("slurmstepd: error: Detected 1 oom-kill event(s) in StepId=1.batch.", OUT_OF_MEMORY),
    ("OSError: [Errno 98] Address already in use", PORT),
    ("ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in "
     "KV cache (26304).", CONTEXT),
    ("ValueError: To serve at least one request with the models's max seq len (131072), (40.00 GiB KV cache is needed, "
     "which is larger than the available KV cache memory (8.00 GiB).", CONTEXT),
    ("User-specified max_model_len (99999) is greater than the derived max_model_len (max_position_embeddings=2048)",
     CONTEXT),
    ("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'", PATH),
    ("OSError: /models/x does not appear to have a file named config.json.", PATH),
    ("Can't load the configuration of '/models/x'.", PATH),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/models/x'", PATH),
    ("run_arena_hard_judgment_batch_1.sh: line 30: module: command not found", CUDA),
    ("ModuleNotFoundError: No module named 'vllm'", CUDA),
    ("RuntimeError: Failed to infer device type", CUDA),
    ("Lmod has detected the following error: The following module(s) are unknown: \"CUDA/1\"", CUDA),
    ("vllm: error: unrecognized arguments: --enable-nonsense", ARGUMENTS),
    ("vllm serve: error: argument --max-model-len: invalid int value: 'x'", ARGUMENTS),
    ("INFO 01-01 Application startup complete.", UNKNOWN),
    ("", UNKNOWN),
])
def test_the_words_of_a_log(log: str, cause: Cause) -> None:
    assert classify(f"INFO starting\n{log}\nTraceback follows", 1) is cause
    assert cause.todo


@pytest.mark.parametrize("log", [
    "batch_1.sh: line 40: exec: vllm: not found",
    "batch_1.sh: line 36: /opt/vllm/bin/activate: No such file or directory",
    "batch_1.sh: line 40: /opt/vllm/bin/vllm: No such file or directory",
    "batch_1.sh: line 40: /opt/vllm/bin/vllm: cannot execute: required file not found",
])
def test_a_server_that_is_not_there_is_the_environments_fault(log: str) -> None:
    assert classify(log, 127) is CUDA


@pytest.mark.parametrize(("status", "cause"), [(-9, KILLED), (-15, KILLED), (137, KILLED), (143, KILLED), (1, UNKNOWN),
                                               (0, UNKNOWN), (None, UNKNOWN)])
def test_the_exit_status_decides_where_the_log_says_nothing(status: int | None, cause: Cause) -> None:
    assert classify("INFO all is well", status) is cause
    assert classify("CUDA out of memory", status) is OUT_OF_MEMORY


def test_starting_again_helps_only_where_it_can() -> None:
    helps = {cause.name for cause in (OUT_OF_MEMORY, PORT, CONTEXT, PATH, CUDA, ARGUMENTS, KILLED, UNKNOWN)
             if cause.restart_helps}
    assert helps == {"port in use", "killed", "unknown"}


def test_the_end_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "server.log"
    assert tail(path) == ""
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(100)) + b"\xff last")
    assert tail(path, lines=3) == "line 98\nline 99\n\ufffd last"
    path.write_bytes(b"x" * 100_000 + b"\nend\n")
    assert len(tail(path)) == 65536 - 1
    path.write_bytes(b"")
    assert tail(path) == ""
