"""One start of the inner layer: what is written, whatever a module does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from automate.validation.inner.files import RESULT, Outcome
from tests.unit.inner_support import assignment, cleaned, module, run_module, start

GOOD = "return Metrics(score=1.5)"


def test_metrics_are_written_and_the_module_cleaned_up(tmp_path: Path) -> None:
    result = run_module(tmp_path, "job.note('seen')\nreturn Metrics(score=data.max_params * self.config.rows)",
                        commit="c" * 40)
    assert (result.outcome, result.payload, result.metrics) == (Outcome.COMPLETED, {"score": 15.0}, {"score": 15.0})
    assert (result.assignment_id, result.module, result.commit) == ("9", "mine", "c" * 40)
    assert (result.gpu_type, result.notes, result.step) == ("cpu", ("seen",), 1)
    assert cleaned(tmp_path) == 1
    assert not list(tmp_path.glob(".*.tmp"))


@pytest.mark.parametrize(("body", "outcome", "cause"), [
    ("raise RecoverableException('later', cause='judge')", Outcome.RECOVERABLE, "judge"),
    ("raise InvalidConfigValueException('no such template')", Outcome.UNUSABLE, "config"),
    ("raise SubmissionFault('no adapter', cause='missing-adapter')", Outcome.FAILED, "missing-adapter"),
    ("raise ValueError('strange')", Outcome.FAILED, "exception"),
    ("return {}['gone']", Outcome.FAILED, "exception"),
    ("raise MemoryError", Outcome.RECOVERABLE, "out-of-memory"),
    ("raise OSError(28, 'No space left on device')", Outcome.RECOVERABLE, "disk"),
    ("sys.exit(0)", Outcome.RECOVERABLE, "exit"),
    ("import no_such_library", Outcome.UNUSABLE, "environment"),
    ("return Metrics(score='x')", Outcome.UNUSABLE, "schema"),
    ("def f(): return f()\nf()", Outcome.FAILED, "exception"),
    ("return None", Outcome.UNUSABLE, "metrics"),
    ("return {'score': 1.0, 'more': 2}", Outcome.UNUSABLE, "metrics"),
    ("return {}", Outcome.UNUSABLE, "metrics"),
    ("return Metrics(score=float('nan'))", Outcome.UNUSABLE, "metrics"),
    ("return Metrics(score=float('inf'))", Outcome.UNUSABLE, "metrics"),
])
def test_every_end_is_a_result_and_cleanup_is_called(tmp_path: Path, body: str, outcome: Outcome, cause: str) -> None:
    result = run_module(tmp_path, body)
    assert (result.outcome, result.cause) == (outcome, cause), result
    assert result.reason and result.payload is None
    assert cleaned(tmp_path) == 1


def test_a_mapping_of_the_right_metrics_is_taken(tmp_path: Path) -> None:
    assert run_module(tmp_path, "return {'score': 2}").payload == {"score": 2.0}


def test_metrics_that_are_not_finite_are_shown_and_not_sent(tmp_path: Path) -> None:
    result = run_module(tmp_path, "return Metrics(score=float('-inf'))")
    assert (result.payload, result.metrics) == (None, {"score": "-inf"})
    assert "`score` is -inf" in result.reason


def test_a_module_may_send_something_finite_instead(tmp_path: Path) -> None:
    own = "def payload(self, metrics, *, job, gpu_type):\n    return {'loss': 999.0, 'gpu_type': gpu_type}"
    result = run_module(tmp_path, "return Metrics(score=float('inf'))", own)
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"loss": 999.0, "gpu_type": "cpu"})
    assert result.metrics == {"score": "inf"}


@pytest.mark.parametrize("sent", ["None", "[1]", "{}", "{'a': object()}", "{1: 2}", "{'a': {'b': [float('nan')]}}"])
def test_a_payload_that_is_no_object_of_json_is_not_sent(tmp_path: Path, sent: str) -> None:
    result = run_module(tmp_path, GOOD, f"def payload(self, metrics, **kwargs):\n    return {sent}")
    assert (result.outcome, result.cause, result.payload) == (Outcome.UNUSABLE, "metrics", None)


def test_a_payload_without_end_is_not_sent(tmp_path: Path) -> None:
    own = "def payload(self, metrics, **kwargs):\n    a = {}\n    a['a'] = a\n    return a"
    result = run_module(tmp_path, GOOD, own)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "metrics")


@pytest.mark.parametrize("more", [
    "def __init__(self, config, **kwargs):\n    raise KeyError('x')", "def __init__(self, config):\n    pass",
    "def payload(self, metrics, **kwargs):\n    raise KeyError('x')"])
def test_what_fails_before_or_after_the_work_on_the_submission_is_not_its_fault(tmp_path: Path, more: str) -> None:
    result = run_module(tmp_path, GOOD, more)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "module")


@pytest.mark.parametrize("how", ["raise ValueError('oops')", "sys.exit('oops')"])
def test_a_cleanup_that_fails_takes_nothing_away(
        tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = run_module(tmp_path, GOOD, f"def cleanup(self):\n    {how}")
    assert result.outcome is Outcome.COMPLETED
    assert "oops" in capsys.readouterr().err


def test_a_constructor_that_fails_is_classified_too(tmp_path: Path) -> None:
    own = "def __init__(self, config, **kwargs):\n    raise RuntimeError('CUDA error: x')"
    result = run_module(tmp_path, GOOD, own)
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "gpu")


def test_reasons_are_one_short_line_without_queries_of_addresses(
        tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = "'at https://x/y?X-Amz-Signature=s3cr3t&a=1\\x1b[2J\\n' + 'a b' * 10**6"
    result = run_module(tmp_path, f"raise ValueError({said})")
    assert len(result.reason) <= 620 and "\n" not in result.reason and "\x1b" not in result.reason
    assert "s3cr3t" not in (tmp_path / RESULT).read_text() + capsys.readouterr().err
    assert "https://x/y?..." in result.reason


def test_an_exception_whose_text_fails_is_named_by_its_type(tmp_path: Path) -> None:
    result = run_module(tmp_path, "class Odd(Exception):\n    def __str__(self): raise KeyError('x')\nraise Odd()")
    assert result.outcome is Outcome.FAILED and "Odd" in result.reason


# --- input --------------------------------------------------------------------------------------------
def test_the_assignments_fields_win_over_the_submissions_and_extra_ones_are_ignored(tmp_path: Path) -> None:
    body = "return {'score': data.max_params if data.base_model == 'ours' else -1}"
    result = run_module(tmp_path, body, ours={"max_params": 7, "base_model": "ours", "extra": [1]},
                        theirs={"base_model": "theirs", "more": None})
    assert result.payload == {"score": 7.0}


@pytest.mark.parametrize(("ours", "said"), [
    ({}, "`max_params` is missing"),
    ({"max_params": "many"}, "`max_params`: expected a valid integer"),
    ({"max_params": 1, "base_model": 3}, "`base_model`: expected a valid string, found a whole number"),
])
def test_a_field_of_the_input_that_is_missing_or_wrong_is_named(
        tmp_path: Path, ours: dict[str, object], said: str) -> None:
    result = run_module(tmp_path, GOOD, ours=ours)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "input")
    assert said in result.reason
    assert cleaned(tmp_path) == 0


@pytest.mark.parametrize("reply", ["", "[]", "{", '{"data": {}}', '{"data": 1, "task_submission": {"data": {}}}',
                                   "[" * 100_000])
def test_a_reply_that_is_no_assignment_is_a_persons_case(tmp_path: Path, reply: str) -> None:
    assignment(tmp_path, path=module(tmp_path, GOOD))
    (tmp_path / "reply.json").write_text(reply)
    result = start(tmp_path)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "input")


# --- two steps ----------------------------------------------------------------------------------------
FINISH = "two_steps = True\ndef finish(self, data, partial, **kwargs):\n    return Metrics(score=partial['sum'])"


def test_a_second_step_finishes_what_the_first_one_left(tmp_path: Path) -> None:
    first = run_module(tmp_path, "return {'sum': 4}", FINISH)
    assert (first.outcome, first.payload) == (Outcome.PARTIAL, None)
    assert json.loads((tmp_path / "partial.json").read_text()) == {"sum": 4}
    second = start(tmp_path, "--step", "2")
    assert (second.outcome, second.payload, second.step) == (Outcome.COMPLETED, {"score": 4.0}, 2)
    assert cleaned(tmp_path) == 2


def test_a_first_step_may_be_enough(tmp_path: Path) -> None:
    result = run_module(tmp_path, "return Metrics(score=-999)", FINISH)
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"score": -999.0})


@pytest.mark.parametrize(("body", "cause"), [("return 5", "metrics"), ("return {'a': float('nan')}", "metrics")])
def test_a_first_step_must_leave_an_object_of_json(tmp_path: Path, body: str, cause: str) -> None:
    result = run_module(tmp_path, body, FINISH)
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, cause)
    assert not (tmp_path / "partial.json").exists()


def test_a_second_step_without_a_first_one_says_so(tmp_path: Path) -> None:
    assignment(tmp_path, path=module(tmp_path, GOOD, FINISH))
    assert start(tmp_path, "--step", "2").cause == "no-partial"
    module(tmp_path, GOOD)
    assert start(tmp_path, "--step", "2").outcome is Outcome.UNUSABLE


# --- finding the module -------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ["base", "no_such", "../x", "os", "a.b", "", "x\n", "example/__init__"])
def test_a_module_that_is_not_there_is_a_persons_case(tmp_path: Path, name: str) -> None:
    result = start(assignment(tmp_path, name=name))
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "module")


@pytest.mark.parametrize(("text", "cause"), [
    ("x = 1", "module"), ("MODULE = 3", "module"), ("def (", "module"), ("1 / 0", "module"),
    ("MODULE = dict", "module"), ("raise OSError(1, 'x')", "disk"), ("raise MemoryError", "out-of-memory"),
    ("raise ImportError('/x/y.so: cannot read file data: Input/output error')", "disk"),
    ("import torch_that_is_not_there", "environment"),
    ("from automate.validation.modules.base import BaseValidationModule as MODULE", "module"),
])
def test_a_file_that_is_no_module_is_a_persons_case(tmp_path: Path, text: str, cause: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    result = start(assignment(tmp_path, path=path))
    ours = cause in ("module", "environment")
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE if ours else Outcome.RECOVERABLE, cause)
    assert ("validation env create mine" in result.reason) == (cause == "environment")


def test_a_folder_with_files_of_its_own_is_a_module(tmp_path: Path) -> None:
    package = tmp_path / "modules" / "mine"
    package.mkdir(parents=True)
    module(package, GOOD).rename(package / "core.py")
    (package / "__init__.py").write_text("from .core import Module as MODULE\n")
    assert start(assignment(tmp_path, path=package)).payload == {"score": 1.5}


def test_an_unforeseen_exception_of_a_shipped_module_is_never_the_submissions_fault(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from automate.validation.modules.example import ExampleModule

    def broken(self: object, data: object, **kwargs: object) -> None:
        raise KeyError("a mistake of ours")

    monkeypatch.setattr(ExampleModule, "validate", broken)
    result = start(assignment(tmp_path, name="example", ours={"validation_set_url": "x"}))
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "unexpected")
