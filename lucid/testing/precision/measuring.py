"""Compares a model with quantized weights with the float model, call by call."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable
from math import prod
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np

from lucid.core.graph.types import Array, TensorType, show_shape
from lucid.core.process.context import evaluating
from lucid.core.targets.runtimes import PROCESSOR
from lucid.export import Target, to_onnx
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.quantized import WeightModule
from lucid.nn.quantizing.calibration import BoundCall, Call, Use, WatchedWeight, bound_call
from lucid.nn.weights.layer_weights import WeightPlace, weight_modules, weights_at, with_weights
from lucid.ops.tensor.tensor import Tensor
from lucid.runtime import Session
from lucid.runtime.providers import installed
from lucid.testing.precision.outputs import OutputSums, TextSums, squares
from lucid.testing.precision.report import LayerError, PrecisionReport, Times
from lucid.tracing.trace import arguments_of, outputs_of


def precision_report(
    model: Module, quantized: Module, data: Iterable[Call], *, seconds: float | None = None
) -> PrecisionReport:
    """The cost of quantized weights, on data: errors by layer and of the outputs, and which layers to leave out.

    Each layer is measured twice: alone, on the inputs that it has in the float model, and in the quantized model, where
    the errors of earlier layers come to it too. All outputs of the layers in one call are held for that.

    Args:
        model: the float model.
        quantized: the same model with quantized weights, as `lucid.quantize` makes it or a checkpoint holds them.
        data: calls of the model, each an array, a sequence of them, or a mapping by name. For a decoder each is a
            batch of texts, whose perplexity is measured.
        seconds: how long to time the exported models side by side, on the first call; None: not at all.

    Raises:
        ValueError: if the second model does not have quantized weights in the places of the first one's
            weights; no data; inputs of other names, or with NaN or infinity.
    """
    sums = _sums(model, quantized)
    floating = with_weights(model, {place: WatchedWeight(s.before, s.see_float) for place, s in sums.items()})
    rounded = with_weights(quantized, {place: WatchedWeight(s.after, s.see_after) for place, s in sums.items()})
    outputs: dict[str, OutputSums] = {}
    texts, first = TextSums(), None
    for number, call in enumerate(data):
        bound = bound_call(model, call, f"precision_report: call {number} of the data")
        first = first or bound
        before, after = outputs_for(floating, bound), outputs_for(rounded, bound)
        for name, expected in before.items():
            outputs.setdefault(name, OutputSums()).add(number, expected, after[name])
        if isinstance(model, CausalDecoder):
            texts.add(bound.by_name, next(iter(before.values())), next(iter(after.values())))
    if first is None:
        raise ValueError("precision_report: the data are empty, expected at least one call of the model")
    return PrecisionReport(
        layers=_layers(sums),
        outputs=tuple(each.error(name) for name, each in outputs.items()),
        texts=texts.error(),
        bytes_before=bytes_of(model),
        bytes_after=bytes_of(quantized),
        times=None if seconds is None else side_by_side(model, quantized, first, seconds),
    )


def outputs_for(model: Module, call: BoundCall) -> dict[str, Array]:
    """The outputs of a call that have floating-point numbers, by name."""
    with evaluating():
        outputs = outputs_of(model(*call.args, **call.kwargs), model)
    return {name: tensor.numpy() for name, tensor in outputs.items() if tensor.dtype.kind == "float"}


def bytes_of(model: Module) -> int:
    """The bytes of all parameters and buffers, each counted once."""
    tensors = {id(tensor): tensor.numpy().nbytes for tensor in model.state_dict().values()}
    return sum(tensors.values())


class _Sums:
    """Sums of squares of a layer's outputs, and of their differences."""

    def __init__(self, before: Tensor | WeightModule, after: WeightModule) -> None:
        self.before, self.after = before, after
        self.uses, self.signal, self.alone, self.in_model = 0, 0.0, 0.0, 0.0
        self._kept: deque[Array] = deque()  # outputs in the float model, until the other one has its own

    def see_float(self, use: Use) -> None:
        """An output in the float model; the quantized weight's result for the same input is compared with it."""
        expected = use.result.numpy()
        rows = Tensor.from_array(use.operand) if isinstance(use.operand, np.ndarray) else use.operand
        quantized = self.after.rows(rows) if use.kind == "rows" else self._rows(use)(rows)
        self.uses += 1
        self.signal += squares(expected)
        self.alone += squares(quantized.numpy(), expected)
        self._kept.append(expected)

    def _rows(self, use: Use) -> WeightModule:
        """The rows of the weight that a product takes: attention multiplies with parts of its joined projections."""
        count = use.result.numpy().shape[-1]
        return self.after if count == self.after.shape[0] else self.after.slice_rows(use.first, use.first + count, "")

    def see_after(self, use: Use) -> None:
        """The same output in the quantized model."""
        self.in_model += squares(use.result.numpy(), self._kept.popleft())


def _sums(model: Module, quantized: Module) -> dict[WeightPlace, _Sums]:
    sums: dict[WeightPlace, _Sums] = {}
    stored = weight_modules(quantized)
    floats = weights_at(model, stored)
    for place, after in stored.items():
        before = floats.get(place)
        if before is None or tuple(before.shape) != tuple(after.shape):
            has = "no weight" if before is None else f"one of {show_shape(before.shape)}"
            raise ValueError(
                f"precision_report: {place.layer} has a quantized weight {show_shape(after.shape)}, and the float "
                f"model has {has} there; give the model that was quantized"
            )
        sums[place] = _Sums(before, after)
    if not sums:
        raise ValueError(
            f"precision_report: the second model, a {type(quantized).__name__}, has no quantized weights; "
            "lucid.quantize makes such a model"
        )
    return sums


def _layers(sums: dict[WeightPlace, _Sums]) -> tuple[LayerError, ...]:
    first: dict[int, str] = {}  # layer with a weight
    errors = []
    for place, each in sums.items():
        errors.append(
            LayerError(
                path=place.layer,
                shares=first.setdefault(id(each.after), place.layer),
                bits=each.after.bits,
                parameters=prod(each.after.shape),
                bytes_before=_weight_bytes(each.before),
                bytes_after=_weight_bytes(each.after),
                noise_alone=_ratio(each.alone, each),
                noise_in_model=_ratio(each.in_model, each),
            )
        )
    return tuple(errors)


def _weight_bytes(weight: Tensor | WeightModule) -> int:
    return bytes_of(weight) if isinstance(weight, WeightModule) else weight.numpy().nbytes


def _ratio(noise: float, sums: _Sums) -> float | None:
    if not sums.uses:
        return None
    return noise / sums.signal if sums.signal else 0.0 if not noise else float("inf")


_WARM_UP, _FEWEST = 2, 5  # runs that do not count, and the fewest that do


def side_by_side(before: Module, after: Module, call: BoundCall, seconds: float) -> Times:
    """The medians of one call of both models, exported for this onnxruntime's CPU provider.

    Args:
        seconds: how long to run them together.
    """
    with TemporaryDirectory(prefix="lucid-", ignore_cleanup_errors=True) as folder:
        sessions = [
            _session(model, call, Path(folder) / f"{index}.onnx") for index, model in enumerate((before, after))
        ]
        arrays = _arrays(before, call)
        times: tuple[list[float], list[float]] = ([], [])
        end = time.perf_counter() + seconds
        while time.perf_counter() < end or len(times[1]) < _WARM_UP + _FEWEST:
            for session, taken in zip(sessions, times, strict=True):
                feeds = dict(zip(session.inputs, arrays, strict=True))
                start = time.perf_counter()
                session.run(feeds)
                taken.append(time.perf_counter() - start)
    counted = [taken[_WARM_UP:] for taken in times]
    return Times(median(counted[0]), median(counted[1]), len(counted[0]))


def _session(model: Module, call: BoundCall, path: Path) -> Session:
    """A model exported for the arguments of a call."""
    target = Target(PROCESSOR, onnxruntime=installed())
    to_onnx(model, *call.args, kwargs=call.kwargs, target=target, path=path, external_data=True)
    return Session(path, spinning=False)  # threads that spin between runs would slow the other model down


def _arrays(model: Module, call: BoundCall) -> list[Array]:
    """The arrays of a call, in the order of the exported model's inputs."""
    arrays: list[Array] = []

    def take(_: str, kind: TensorType, example: Array | None) -> Tensor:
        assert example is not None, f"a call has arrays, not {kind}"
        arrays.append(example)
        return Tensor.from_array(example)

    arguments_of(model, call.args, call.kwargs, take)
    return arrays
