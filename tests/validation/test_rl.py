"""The `rl` module: a small ONNX policy made here, its reward next to one computed sample by sample."""

from __future__ import annotations

import io
import json
import math
import os
import pickle
from pathlib import Path
from typing import Any

import numpy
import pytest

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from automate.validation import runner  # noqa: E402
from automate.validation.inner.files import Outcome, Result, read_result  # noqa: E402

FEATURES, VENUES = 5, 3
CONFIG = {"per_device_eval_batch_size": 4, "seed": 42}


def market(samples: int = 11, venues: int = VENUES, seed: int = 7) -> tuple[numpy.ndarray, numpy.ndarray]:
    """X and Info as the validation set has them: columns quantity, duration, unused, then four for each venue."""
    random = numpy.random.default_rng(seed)
    x = random.normal(size=(samples, FEATURES)).astype(numpy.float32)
    head = numpy.stack([random.uniform(1, 500, samples), random.uniform(0, 3, samples), numpy.full(samples, 9e9)], 1)
    venue = numpy.stack([random.uniform(-0.2, 1.4, (samples, venues)), random.uniform(-5, 30, (samples, venues)),
                         random.uniform(-0.02, 0, (samples, venues)), random.uniform(1, 200, (samples, venues))], 2)
    return x, numpy.concatenate([head, venue.reshape(samples, -1)], 1).astype(numpy.float32)


def weights(outputs: int = VENUES) -> numpy.ndarray:
    return numpy.random.default_rng(3).normal(size=(FEATURES, outputs)).astype(numpy.float32)


def expected_reward(x: numpy.ndarray, info: numpy.ndarray, w: numpy.ndarray) -> float:
    """The protocol's reward in plain Python floats, one sample and one venue at a time."""
    total = 0.0
    for features, row in zip(x.tolist(), info.tolist(), strict=True):
        action = [sum(features[k] * float(w[k][v]) for k in range(len(features))) for v in range(w.shape[1])]
        action = [max(0.0, one) for one in action]
        whole = sum(action)
        quantity, duration = row[0], row[1]
        reward = 0.0
        for v, one in enumerate(action):
            fill, rebate, punish, volume = row[3 + 4 * v:7 + 4 * v]
            allocated = (one / whole if whole > 0 else 0.0) * quantity
            capacity = volume * (1 + 0.6 * (1 - math.exp(-0.9 * duration))) * min(1.0, max(0.0, fill))
            filled = min(allocated, capacity)
            reward += rebate / 10000 * filled + punish * (allocated - filled)
        total += reward / math.log1p(quantity)
    return total / len(x)


def save_policy(path: Path, w: numpy.ndarray, *, extra: tuple[str, ...] = (), external: str | None = None,
                shape: tuple[str | int, ...] = ("batch", FEATURES)) -> None:
    helper, numbers = onnx.helper, onnx.numpy_helper
    node = [helper.make_node("MatMul", ["x", "w"], ["raw"]), *(
        helper.make_node(op, ["raw"], ["y"]) for op in (extra or ("Identity",)))]
    graph = helper.make_graph(
        node, "policy", [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)], [numbers.from_array(w, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location=external, size_threshold=0)
    else:
        onnx.save(model, str(path))


def start(folder: Path, x: Any, info: Any, *, config: dict[str, object] | None = None, max_params: int = 1000,
          name: str = "model.onnx", data: bytes | None = None) -> Result:
    """One start of the module over an assignment's folder; the policy lies in `folder/model` already."""
    reply = {"id": 1, "task_submission": {"task_id": 2, "id": 3, "data": {
        "hg_repo_id": "trainer/policy", "model_filename": name, "revision": "main"}},
        "data": {"validation_set_url": "http://127.0.0.1/set.npz", "max_params": max_params, "more": 1}}
    (folder / "reply.json").write_text(json.dumps(reply))
    (folder / "rl.json").write_text(json.dumps(config or CONFIG))
    if data is None:
        with (folder / "set.npz").open("wb") as file:
            numpy.savez(file, X=x, Info=info)
    else:
        (folder / "set.npz").write_bytes(data)
    (folder / "run.json").write_text(json.dumps({
        "assignment_id": "1", "task_id": "2", "module": "rl", "config_files": [str(folder / "rl.json")],
        "data": str(folder / "set.npz"), "model": str(folder / "model")}))
    assert runner.main([str(folder)]) == 0
    result = read_result(folder)
    assert result is not None
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    save_policy(tmp_path / "model" / "model.onnx", weights())
    return tmp_path


@pytest.mark.parametrize("batch", [1, 4, 512])
def test_the_reward_is_that_of_a_loop_over_samples_for_any_batch(folder: Path, batch: int) -> None:
    x, info = market()
    x[2] = 0.0  # every action is zero: nothing is allocated
    result = start(folder, x, info, config={"per_device_eval_batch_size": batch, "seed": 1})
    assert result.outcome is Outcome.COMPLETED, result
    assert result.payload is not None and list(result.payload) == ["average_reward"]
    assert result.payload["average_reward"] == pytest.approx(expected_reward(x, info, weights()), rel=1e-5)
    assert result.gpu_type == "cpu"


def test_columns_that_make_no_whole_venue_are_not_used(folder: Path) -> None:
    x, info = market()
    wider = numpy.concatenate([info, numpy.full((len(info), 3), numpy.nan, numpy.float32)], 1)
    assert start(folder, x, wider).payload == start(folder, x, info).payload


def test_more_parameters_than_allowed_are_completed_with_the_lowest_reward(folder: Path) -> None:
    x, info = market()
    assert start(folder, x, info, max_params=FEATURES * VENUES).payload != {"average_reward": -999.0}
    result = start(folder, x, info, max_params=FEATURES * VENUES - 1)
    assert (result.outcome, result.payload) == (Outcome.COMPLETED, {"average_reward": -999.0})
    assert "15 parameters" in result.notes[0]


def test_external_weights_count_and_are_used(folder: Path) -> None:
    (folder / "model" / "model.onnx").unlink()
    save_policy(folder / "model" / "model.onnx", weights(), external="model.onnx.data")
    assert (folder / "model" / "model.onnx.data").stat().st_size >= FEATURES * VENUES * 4
    x, info = market()
    result = start(folder, x, info)
    assert result.payload == {"average_reward": pytest.approx(expected_reward(x, info, weights()), rel=1e-5)}
    (folder / "model" / "model.onnx.data").unlink()  # the count needs no weights
    assert start(folder, x, info, max_params=14).payload == {"average_reward": -999.0}
    assert start(folder, x, info).outcome is Outcome.FAILED


def test_weights_in_another_file_are_the_submissions_fault(folder: Path) -> None:
    (folder / "model" / "model.onnx").unlink()
    save_policy(folder / "model" / "model.onnx", weights(), external="elsewhere.bin")
    result = start(folder, *market())
    assert (result.outcome, result.cause) == (Outcome.FAILED, "external-data")


@pytest.mark.parametrize("outputs", [VENUES - 1, VENUES + 1])
def test_a_wrong_output_shape_is_the_submissions_fault(folder: Path, outputs: int) -> None:
    save_policy(folder / "model" / "model.onnx", weights(outputs))
    result = start(folder, *market())
    assert (result.outcome, result.cause) == (Outcome.FAILED, "output-shape")
    assert f"[4, {outputs}]" in result.reason and f"[4, {VENUES}]" in result.reason


def test_an_output_without_a_finite_reward_is_the_submissions_fault(folder: Path) -> None:
    save_policy(folder / "model" / "model.onnx", weights(), extra=("Log",))  # of negative numbers: NaN
    result = start(folder, *market())
    assert (result.outcome, result.cause) == (Outcome.FAILED, "non-finite")


@pytest.mark.parametrize("name", ["other.onnx", "../model/model.onnx", "/etc/passwd", "", "a\0b", "model.onnx/x"])
def test_a_filename_that_is_not_there_is_the_submissions_fault(folder: Path, name: str) -> None:
    result = start(folder, *market(), name=name)
    assert result.outcome is Outcome.FAILED
    assert result.cause in ("missing-file", "bad-filename")


@pytest.mark.parametrize("content", [b"", b"not onnx", b"\x08\x08" * 50, os.urandom(2000)])
def test_a_file_that_is_no_policy_is_the_submissions_fault(folder: Path, content: bytes) -> None:
    (folder / "model" / "model.onnx").write_bytes(content)
    assert start(folder, *market()).outcome is Outcome.FAILED


def test_a_policy_for_another_number_of_features_is_the_submissions_fault(folder: Path) -> None:
    x, info = market()
    result = start(folder, x[:, :3], info)
    assert (result.outcome, result.cause) == (Outcome.FAILED, "bad-model")


class _Bomb:
    """Makes a file where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[Path]]:
        return Path.touch, (self.mark,)


def test_a_set_with_pickles_is_not_unpickled(folder: Path) -> None:
    file = io.BytesIO()
    numpy.savez(file, X=numpy.array([_Bomb(folder / "pwned")], dtype=object), Info=numpy.zeros((1, 7)))
    result = start(folder, None, None, data=file.getvalue())
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data")
    assert not (folder / "pwned").exists()


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 torn", pickle.dumps([1]), numpy.ones(3).tobytes()])
def test_a_set_that_is_no_npz_of_numbers_is_the_validators_trouble(folder: Path, data: bytes) -> None:
    result = start(folder, None, None, data=data)
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data")


@pytest.mark.parametrize(("x", "info", "said"), [
    (numpy.zeros((0, FEATURES)), numpy.zeros((0, 15)), "empty"),
    (numpy.zeros((2, FEATURES)), numpy.zeros((3, 15)), "expected X"),
    (numpy.zeros((2, FEATURES)), numpy.zeros((2, 6)), "at least 7 columns"),
    (numpy.zeros((2, FEATURES)), numpy.array([["a"] * 15] * 2), "expected numbers"),
])
def test_a_set_of_wrong_shapes_is_the_validators_trouble(folder: Path, x: object, info: object, said: str) -> None:
    result = start(folder, x, info)
    assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data")
    assert said in result.reason


def test_a_row_for_which_no_policy_has_a_reward_is_named_and_not_blamed_on_the_policy(folder: Path) -> None:
    for column, value in ((0, 0.0), (0, -2.0), (3, math.nan), (1, math.nan)):
        x, info = market()
        info[4, column] = value
        result = start(folder, x, info)
        assert (result.outcome, result.cause) == (Outcome.RECOVERABLE, "data"), (column, value)
        assert "row 5" in result.reason


def test_a_config_without_its_keys_is_a_persons_to_mend(folder: Path) -> None:
    result = start(folder, *market(), config={"seed": 1})
    assert (result.outcome, result.cause) == (Outcome.UNUSABLE, "config")
    assert "per_device_eval_batch_size" in result.reason and "rl.json" in result.reason
