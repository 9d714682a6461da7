"""A submitted ONNX policy: its file, the number of its parameters, its actions.

The file is a stranger's: it may name no other file than `<model_filename>.data`, and runs without custom operators."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from automate.validation.modules.base import InvalidConfigValueException, SubmissionFault

if TYPE_CHECKING:
    from automate.validation.modules.rl.market import Floats

_EXTERNAL = 1
"""`TensorProto.EXTERNAL`: the numbers lie in another file."""
_QUIET = 3
"""onnxruntime's severity from which on it prints: errors."""


def _bad(what: str, error: Exception) -> SubmissionFault:
    return SubmissionFault(f"{what}: {type(error).__name__}: {error}", cause="bad-model")


def find(folder: Path, name: str) -> Path:
    """The policy's file among the submission's. Raises SubmissionFault."""
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name or "\\" in name:
        raise SubmissionFault("`model_filename` is no path inside the repository", cause="bad-filename")
    file = folder.joinpath(*parts)
    if not file.is_file():
        raise SubmissionFault(f"the repository has no file {name!r}", cause="missing-file")
    return file


def parameters(file: Path) -> int:
    """How many numbers the initializers of the graph have, wherever they lie. Raises SubmissionFault."""
    import onnx

    try:
        graph = onnx.load(str(file), load_external_data=False).graph
    except Exception as error:
        raise _bad("the policy can't be read as ONNX", error) from error
    for tensor in _tensors(graph):
        if tensor.data_location == _EXTERNAL:
            _own_data(file, tensor)
    return sum(math.prod(tensor.dims) for tensor in graph.initializer)


def _tensors(graph: Any) -> Iterator[Any]:
    """Every tensor of a graph and of the graphs inside of its nodes."""
    waiting = [graph]
    while waiting:
        one = waiting.pop()
        yield from one.initializer
        for sparse in one.sparse_initializer:
            yield from (sparse.values, sparse.indices)
        for attribute in (attribute for node in one.node for attribute in node.attribute):
            yield from (attribute.t, *attribute.tensors)
            waiting += [attribute.g, *attribute.graphs] if attribute.HasField("g") else list(attribute.graphs)


def _own_data(file: Path, tensor: Any) -> None:
    """Only the file beside the policy is fetched by the protocol's clients; anything else would be another's."""
    location = next((pair.value for pair in tensor.external_data if pair.key == "location"), "")
    if location.removeprefix("./") != f"{file.name}.data":
        raise SubmissionFault(f"the policy's weights lie in {location[:100]!r}; only '{file.name}.data' is fetched",
                              cause="external-data")


def _threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "")
    return int(asked) if asked.isdecimal() and 0 < int(asked) <= 1024 else len(os.sched_getaffinity(0))


class Policy:
    """A loaded policy. Raises SubmissionFault; InvalidConfigValueException where onnxruntime is too old for it."""

    def __init__(self, file: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = _QUIET
        options.intra_op_num_threads = _threads()
        try:
            self.session = onnxruntime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        except Exception as error:
            if "opset" in str(error) or "IR version" in str(error):
                raise InvalidConfigValueException(
                    f"this onnxruntime ({onnxruntime.__version__}) does not know the policy's version of ONNX: "
                    f"{error}", cause="environment") from error
            raise _bad("onnxruntime can't load the policy", error) from error
        if not self.session.get_inputs() or not self.session.get_outputs():
            raise SubmissionFault("the policy has no input or no output", cause="bad-model")

    def act(self, features: Floats, batch: int, venues: int) -> Floats:
        """Actions [N, V], float32: first input, first output, in batches of at most `batch`, in order."""
        import numpy

        name, output = self.session.get_inputs()[0].name, self.session.get_outputs()[0].name
        found = []
        for start in range(0, len(features), batch):
            part = features[start:start + batch]
            try:
                action = numpy.asarray(self.session.run([output], {name: part})[0])
            except Exception as error:
                raise _bad("the policy fails on the validation set", error) from error
            if action.shape != (len(part), venues) or not numpy.issubdtype(action.dtype, numpy.number):
                raise SubmissionFault(f"the policy's output is {action.dtype} {list(action.shape)}, "
                                      f"expected numbers [{len(part)}, {venues}]", cause="output-shape")
            found.append(action.astype(numpy.float32))
        return numpy.concatenate(found)
