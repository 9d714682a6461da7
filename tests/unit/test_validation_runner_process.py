"""The inner layer as a command: exit statuses, signals, scratch folders, what it needs to be there."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from automate.validation import runner
from automate.validation.inner.files import RESULT, read_result
from tests.unit.inner_support import assignment, cleaned, module, run_module, start
from tests.unit.support import ROOT

GOOD = "return Metrics(score=1.5)"


def test_check_runs_nothing_and_leaves_a_result_only_where_something_is_wrong(tmp_path: Path) -> None:
    assignment(tmp_path, path=module(tmp_path, "raise SystemExit"))
    assert runner.main([str(tmp_path), "--check"]) == 0
    assert not (tmp_path / RESULT).exists()
    assignment(tmp_path, path=module(tmp_path, GOOD), ours={})
    assert start(tmp_path, "--check", status=3).cause == "input"


@pytest.mark.parametrize("run", [None, "", "[]", "{}", '{"assignment_id": 1}', '{"unknown": 1}'])
def test_a_folder_without_orders_is_refused_in_one_line(
        tmp_path: Path, run: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    if run is not None:
        (tmp_path / "run.json").write_text(run)
    assert runner.main([str(tmp_path)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / RESULT).exists()


def test_a_log_that_is_full_takes_no_result_away(tmp_path: Path) -> None:
    assignment(tmp_path, path=module(tmp_path, "raise KeyError('x')"))
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([sys.executable, "-m", "automate.validation.runner", str(tmp_path)], cwd=ROOT,
                              stdout=full, stderr=full, timeout=60)
    assert done.returncode == 0 and (tmp_path / RESULT).exists()


def test_a_result_that_cannot_be_written_is_no_success(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(folder: Path, result: object) -> None:
        raise OSError(28, "No space left on device")

    assignment(tmp_path, path=module(tmp_path, GOOD))
    monkeypatch.setattr(runner, "write_result", full)
    assert runner.main([str(tmp_path)]) == 1


def test_relative_paths_of_a_module_end_in_the_scratch_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "pathlib.Path('outputs').mkdir()\njob.note(str(job.scratch))\n" + GOOD
    result = run_module(tmp_path, body)
    assert not Path(result.notes[0]).exists()  # a folder of its own is removed
    named = tmp_path / "scratch"
    monkeypatch.setenv("FLOCK_HPC_SCRATCH", str(named))
    run_module(tmp_path, body)
    assert (named / "outputs").is_dir()  # who names a folder removes it


@contextmanager
def _process(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-m", "automate.validation.runner", str(folder)], cwd=folder,
                               env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE,
                               stdout=subprocess.PIPE, start_new_session=True)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.mark.parametrize("swallow", ["", "except BaseException as error: raise SubmissionFault('x') from error",
                                     "except BaseException: raise ValueError('x')",
                                     "except BaseException: return Metrics(score=float('nan'))"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_cleans_up_and_leaves_no_result(tmp_path: Path, swallow: str, number: int) -> None:
    body = f"import time\ntry:\n    print('up', flush=True)\n    time.sleep(60)\n{swallow or 'finally: pass'}\n{GOOD}"
    with _process(assignment(tmp_path, path=module(tmp_path, body))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(number)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 128 + number, said
    assert not (tmp_path / RESULT).exists() and cleaned(tmp_path) == 1
    assert b"Traceback" not in said


def test_metrics_that_were_found_before_the_order_to_stop_are_kept(tmp_path: Path) -> None:
    body = f"import time\ntry:\n    print('up', flush=True)\n    time.sleep(60)\nexcept BaseException: pass\n{GOOD}"
    with _process(assignment(tmp_path, path=module(tmp_path, body))) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    result = read_result(tmp_path)
    assert process.returncode == 0 and result is not None and result.payload == {"score": 1.5}


def test_a_modules_threads_and_last_words_do_not_hold_up_the_end(tmp_path: Path) -> None:
    body = ("import threading, time, atexit\natexit.register(os._exit, 77)\n"
            "threading.Thread(target=time.sleep, args=(600,)).start()\nprint('done')\n" + GOOD)
    with _process(assignment(tmp_path, path=module(tmp_path, body))) as process:
        said, _ = process.communicate(timeout=60)
    assert (process.returncode, said) == (0, b"done\n")
    assert (tmp_path / RESULT).exists()


def test_a_forked_child_of_a_module_ends_by_the_signal_itself(tmp_path: Path) -> None:
    body = ("import multiprocessing, time\n"
            "total = 0\nfor _ in range(20):\n"
            "    child = multiprocessing.get_context('fork').Process(target=time.sleep, args=(600,))\n"
            "    child.start()\n    child.terminate()\n    child.join()\n    total += child.exitcode\n"
            "return Metrics(score=total)")
    with _process(assignment(tmp_path, path=module(tmp_path, body))) as process:
        _, said = process.communicate(timeout=60)
    result = read_result(tmp_path)
    assert result is not None and result.payload == {"score": 20 * -15.0}
    assert b"Traceback" not in said


def test_the_inner_layer_needs_nothing_but_pydantic(tmp_path: Path) -> None:
    """In an environment that holds neither requests nor submitit nor orjson, and no checkout in sight."""
    (tmp_path / "set.jsonl").write_text('{"value": 2}\n')
    folder = assignment(tmp_path, name="example", ours={"validation_set_url": "x"}, data=str(tmp_path / "set.jsonl"))
    code = ("import sys\n"
            "class No:\n"
            "    def find_spec(self, name, path=None, target=None):\n"
            "        if name.split('.')[0] in ('requests', 'submitit', 'orjson', 'yaml', 'click', 'huggingface_hub',"
            " 'jinja2', 'numpy', 'torch', 'tenacity'): raise ModuleNotFoundError(name)\n"
            "sys.meta_path.insert(0, No())\n"
            "from automate.validation import runner\n"
            "sys.exit(runner.main(sys.argv[1:]))\n")
    done = subprocess.run([sys.executable, "-c", code, str(folder)], cwd=tmp_path, capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60)
    assert done.returncode == 0, done.stderr
    result = read_result(folder)
    assert result is not None and result.payload == {"score": 2.0}
