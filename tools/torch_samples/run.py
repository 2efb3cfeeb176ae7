"""One sample computed on every path: eagerly, as a graph with NumPy, and exported for every target."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from onnx.checker import ValidationError
from onnx.shape_inference import InferenceError
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, NotImplemented, RuntimeException

import lucid
from lucid import Tensor
from lucid.core.graph.types import Array
from lucid.export import ExportError, to_onnx
from lucid.runtime import ModelError, Session
from tests.torch_calls import Call, difference, flat, scale_of
from tools.torch_samples.draw import Drawn

TARGETS = ("any", "cpu", "portable")
REFUSALS = (TypeError, ValueError, IndexError, OverflowError, ZeroDivisionError)
RUNTIME_ERRORS = (Fail, InvalidArgument, NotImplemented, RuntimeException, ModelError, ValidationError, InferenceError)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one path for a sample; `problem` is empty if it agreed."""

    way: str
    problem: str = ""


def outcomes(sample: Drawn) -> Iterator[Outcome]:
    """Compare eager with torch, and the graph and the exports with eager."""
    call = sample.made
    if sample.kind == "error":
        yield Outcome("error", _refused(call))
        return
    try:
        results = flat(call.model()(*map(Tensor.from_array, call.tensors)))
    except REFUSALS as error:
        yield Outcome("eager", f"{type(error).__name__}: {error}")
        return
    yield Outcome("eager", compared(results, sample.expected, call))
    if sample.kind == "apart":
        return  # NumPy and onnxruntime's inputs: the rest does not depend on the layout of an array in memory
    try:
        graph = lucid.trace(call.model(), *call.tensors)
        computed = graph.run(list(call.tensors))
    except REFUSALS as error:
        yield Outcome("graph", f"{type(error).__name__}: {error}")
        return
    yield Outcome("graph", compared(computed, results, call))
    for target in TARGETS:
        try:
            session = Session(to_onnx(graph, target=target), threads=1)
            outputs = session.run(dict(zip(session.inputs, call.tensors, strict=True)))
        except ExportError as error:
            yield Outcome(target, f"refused: {error}")
        except RUNTIME_ERRORS as error:
            yield Outcome(target, f"broken model: {type(error).__name__}: {error}")
        else:
            yield Outcome(target, compared(list(outputs.values()), results, call))


def _refused(call: Call) -> str:
    try:
        call.model()(*map(Tensor.from_array, call.tensors))
    except REFUSALS:
        return ""
    shapes = [f"{array.dtype}{list(array.shape)}" for array in call.tensors]
    return f"torch raises, Lucid does not: {call.name}{call.arguments} {dict(call.options)} of {shapes}"


def compared(got: Sequence[Array], want: Sequence[Array], call: Call) -> str:
    """The first difference between two lists of results."""
    if len(got) != len(want):
        return f"{len(got)} results, expected {len(want)}"
    scale = scale_of(call, want)
    return next((text for g, w in zip(got, want, strict=True) if (text := difference(g, w, scale))), "")
