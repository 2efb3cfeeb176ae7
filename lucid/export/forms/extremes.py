"""Maxima and minima that are NaN if one of the numbers is, as in NumPy and torch.

onnxruntime's kernels (1.23 to 1.31 at least, on the CPU) ignore NaN, and MaxPool gives the lowest number if all are
-inf. One sum over all numbers, which takes less time than the kernel, finds out whether any is NaN or infinite; only
then is the result computed in a slower way that respects them. The page "Limitations" has the cost.

OpenVINO (2026.4) loses NaN in its Max, Min, Relu and Exp: x86's maximum of NaN and a number is the second operand, and
fusion exchanges operands. A comparison and Where take as long as a Relu after a product, within noise. To its Greater
NaN is more than any number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.core.graph.types import bool_, uint8
from lucid.core.graph.values import Constant, Node, Value, operand
from lucid.core.targets.record import Fault
from lucid.core.targets.runtimes import (
    BRANCHES,
    EXP_OF_NAN,
    GELU_OF_INFINITY,
    INFINITE_EXTREMES,
    NAN_BETWEEN_TWO,
    NAN_IS_GREATER,
    NO_EXTREMES,
    PASSES_OVER_NAN,
    SOFTMAX_OF_NAN,
)
from lucid.export.builder import Builder
from lucid.export.form import Form, Taken, form, refuse, refuse_wrong
from lucid.export.forms.primitives import axes_from_front, over_axes, reduction_node
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.ops import elementwise, gelu, log_softmax, matmul, max_pool, reduction, softmax
from lucid.ops.op import Op

_FLOATS = ("float16", "bfloat16", "float32", "float64")


def _extreme(op: reduction.Reduction, onnx: str, least: float) -> tuple[Form, Form]:
    @form(op, takes="axis keepdims", name=f"ai.onnx {onnx}", kernel=onnx)
    def plain(build: Builder, node: Node) -> str:
        _refuse_floats(build, node)
        return reduction_node(build, onnx, node.inputs[0], node)

    @form(op, takes="axis keepdims", name=f"{onnx}, unless there is NaN", mends=PASSES_OVER_NAN, dtypes=_FLOATS)
    def guarded(build: Builder, node: Node) -> Taken:
        x = operand(node)

        def reduced() -> str:
            return reduction_node(build, onnx, x, node)

        def restored() -> str:
            if build.target.wrong(INFINITE_EXTREMES):
                return _with_kinds(
                    build, x, lambda kinds: reduction_node(build, "ReduceMax", kinds, node), reduced, least
                )
            # A sum of absolute values is NaN if and only if one of them is.
            is_nan = build.op("IsNaN", reduction_node(build, "ReduceL1", x, node))
            return build.op("Where", is_nan, _nan(x), reduced())

        return _if_else(build, node, lambda: _any_nan(build, x), reduced, restored)

    return plain, guarded


maximum, guarded_maximum = _extreme(reduction.max_, "ReduceMax", -np.inf)
minimum, guarded_minimum = _extreme(reduction.min_, "ReduceMin", np.inf)


@form(reduction.argmax, takes="axis keepdims", name="ai.onnx ArgMax", kernel="ArgMax")
def argmax(build: Builder, node: Node) -> str:
    _refuse_floats(build, node)
    return build.op("ArgMax", *node.inputs, **_along(node))


@form(
    reduction.argmax, takes="axis keepdims", name="ArgMax, unless there is NaN", mends=PASSES_OVER_NAN, dtypes=_FLOATS
)
def guarded_argmax(build: Builder, node: Node) -> Taken:
    x, along = operand(node), _along(node)

    def restored() -> str:
        is_nan = build.op("Cast", build.op("IsNaN", x), to=onnx_code(uint8))
        first, largest = build.op("ArgMax", is_nan, **along), build.op("ArgMax", x, **along)
        any_nan = reduction_node(build, "ReduceMax", is_nan, node)
        return build.op("Where", build.op("Cast", any_nan, to=onnx_code(bool_)), first, largest)

    return _if_else(build, node, lambda: _any_nan(build, x), lambda: build.op("ArgMax", x, **along), restored)


def _along(node: Node) -> dict[str, Any]:
    axes = axes_from_front(node)
    assert axes is not None
    return {"axis": axes[0], "keepdims": int(node.attributes["keepdims"])}


@form(max_pool, takes="kernel_shape strides pads dilations", name="ai.onnx MaxPool", kernel="MaxPool")
def plain_max_pool(build: Builder, node: Node) -> str:
    _refuse_floats(build, node)
    return build.op("MaxPool", *node.inputs, **_windows(node))


@form(
    max_pool,
    takes="kernel_shape strides pads dilations",
    name="MaxPool, unless there is NaN or infinity",
    mends=PASSES_OVER_NAN,
)
def guarded_max_pool(build: Builder, node: Node) -> Taken:
    x = operand(node)

    def finite() -> str:
        return build.op("Less", over_axes(build, "ReduceL1", x, None, False), np.asarray(np.inf, x.type.dtype.numpy))

    def pooled(name: str | Value) -> str:
        return build.op("MaxPool", name, **_windows(node))

    def restored() -> str:
        return _with_kinds(build, x, pooled, lambda: pooled(x), -np.inf)

    return _if_else(build, node, finite, lambda: pooled(x), restored, if_true=False)


def _windows(node: Node) -> dict[str, Any]:
    return {name: node.attributes[name] for name in ("kernel_shape", "strides", "pads", "dilations")}


# The guard --------------------------------------------------------------------------------------------------------


def _refuse_floats(build: Builder, node: Node) -> None:
    if operand(node).type.dtype.kind == "float":
        refuse_wrong(build.target, PASSES_OVER_NAN)


def _any_nan(build: Builder, x: Value) -> str:
    """Whether the sum is NaN, as it is with any NaN (and with infinities of both signs)."""
    return build.op("IsNaN", over_axes(build, "ReduceSum", x, None, False))


def _with_kinds(
    build: Builder, x: Value, largest: Callable[[str], str], extremes: Callable[[], str], least: float
) -> str:
    """The extremes of groups of numbers: NaN where one of a group is, and `least`, an infinity, where all of it are.

    Maxima of small integers are exact: 2 stands for NaN, which hides all others, and 0 for `least`, which hides none.
    """
    dtype = x.type.dtype
    end = np.asarray(least, dtype.numpy)
    other = build.op("Cast", build.op("Less", *((end, x) if least < 0 else (x, end))), to=onnx_code(uint8))
    kinds = largest(build.op("Where", build.op("IsNaN", x), np.asarray(2, np.uint8), other))
    kind = build.op("Cast", kinds, to=onnx_code(dtype))
    is_nan, is_other = (build.op("Less", np.asarray(below, dtype.numpy), kind) for below in (1, 0))
    return build.op("Where", is_nan, _nan(x), build.op("Where", is_other, extremes(), end))


def _nan(x: Value) -> np.ndarray:
    return np.asarray(np.nan, x.type.dtype.numpy)


def _if_else(
    build: Builder,
    node: Node,
    condition: Callable[[], str],
    plain: Callable[[], str],
    restored: Callable[[], str],
    *,
    if_true: bool = True,
) -> Taken:
    """An If node: `restored` where the condition has a value, else `plain`. Where branches are wrong, `restored`."""
    kind = node.types[0]
    if build.target.wrong(BRANCHES):
        return Taken(restored(), "computed with NaN in each call, without branches")
    then, otherwise = (restored, plain) if if_true else (plain, restored)
    (result,) = build.either(condition(), lambda: [(then(), kind)], lambda: [(otherwise(), kind)])
    return Taken(result, "one sum over the input finds any NaN first")


# One by one -------------------------------------------------------------------------------------------------------


def _of_two(op: elementwise.Binary, is_largest: bool, mends: Fault, dtypes: tuple[str, ...]) -> Form:
    """The larger or smaller of two, as a comparison and a choice, whose operands no fusion exchanges."""

    @form(op, name="Less, Where", mends=mends, dtypes=dtypes)
    def chosen(build: Builder, node: Node) -> str:
        x, y = sorted((operand(node), operand(node, 1)), key=lambda value: isinstance(value, Constant))
        second = build.op("Where", build.op("Less", *((x, y) if is_largest else (y, x))), y, x)
        if x.type.dtype.kind != "float" or (isinstance(y, Constant) and not np.isnan(y.array).any()):
            return second
        return build.op("Where", build.op("IsNaN", y), y, second)

    return chosen


_OF_TWO = [
    _of_two(op, op is elementwise.maximum, *fault)
    for op in (elementwise.maximum, elementwise.minimum)
    for fault in ((NAN_BETWEEN_TWO, _FLOATS), (NO_EXTREMES, ("int32",)))
]


def _exchanged(op: elementwise.Binary, other: str) -> Form:
    @form(op, name=f"{other} of exchanged operands", kernel=other, mends=NAN_IS_GREATER, dtypes=_FLOATS)
    def compared(build: Builder, node: Node) -> str:
        return build.op(other, operand(node, 1), operand(node))

    return compared


greater = _exchanged(elementwise.greater, "Less")
greater_equal = _exchanged(elementwise.greater_equal, "LessOrEqual")


@form(elementwise.exp, name="Exp, unless it is NaN", kernel="Exp", mends=EXP_OF_NAN)
def exp(build: Builder, node: Node) -> str:
    return build.op("Where", build.op("IsNaN", operand(node)), operand(node), build.op("Exp", operand(node)))


def _of_rows(op: Op[..., Any], onnx: str) -> Form:
    """A softmax that is NaN in the whole row if one of its numbers is. One that only products read needs nothing: they
    carry NaN to all that they compute of the row. Within other ops, as in attention, a product follows.
    """

    @form(op, takes="axis", name=f"{onnx}, unless there is NaN", kernel=onnx, mends=SOFTMAX_OF_NAN)
    def guarded(build: Builder, node: Node) -> str:
        axis, x = node.attributes["axis"], operand(node)
        if all(_sums(reader, node.results[0], axis) for reader in build.readers(node.results[0])):
            refuse("a product carries NaN to the row")
        rows = build.op(onnx, x, axis=axis)
        total = build.op("ReduceSum", rows, np.asarray([axis], np.int64), keepdims=1)
        return build.op("Where", build.op("IsNaN", total), _nan(x), rows)

    return guarded


def _sums(reader: Node | None, value: Value, axis: int) -> bool:
    """Whether a node is a product that adds up a value along an axis."""
    if reader is None or reader.op is not matmul:
        return False
    rank = value.type.rank
    return axis % rank == (rank - 1 if reader.inputs[0] is value else rank - 2)


softmax_of_rows, log_softmax_of_rows = _of_rows(softmax, "Softmax"), _of_rows(log_softmax, "LogSoftmax")


@form(gelu, takes="approximate", name="Gelu, unless it is large", opset=20, kernel="Gelu", mends=GELU_OF_INFINITY)
def gelu_of_infinity(build: Builder, node: Node) -> str:
    """Gelu of x from 10 on is x in every element type."""
    if node.attributes["approximate"] != "none":
        refuse("infinity stays infinity")
    x = operand(node)
    is_small = build.op("Less", x, np.asarray(10, x.type.dtype.numpy))
    return build.op("Where", is_small, build.op("Gelu", x), x)


# Best first, of each op.
FORMS = (
    *(maximum, guarded_maximum, minimum, guarded_minimum, argmax, guarded_argmax, plain_max_pool, guarded_max_pool),
    *(*_OF_TWO, greater, greater_equal, exp),
    *(softmax_of_rows, log_softmax_of_rows, gelu_of_infinity),
)
