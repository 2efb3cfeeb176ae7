"""What target "openvino" refuses, and its forms, whose graphs onnxruntime runs here: OpenVINO itself is not needed.

tests/test_openvino.py shows that the same forms are right in OpenVINO.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.pytree import flatten_tree
from lucid.core.targets.runtimes import RUNTIMES
from lucid.export import ExportError, explain, to_onnx
from lucid.export.forms import FORMS
from tests.test_portable import in_onnxruntime

INT32, INT64 = (lucid.spec("N", 4, dtype=dtype) for dtype in ("int32", "int64"))


def op_types(model: Any, *specs: Any, target: str = "openvino") -> list[str]:
    return [node.op_type for node in to_onnx(model, *specs, target=target).graph.node]


def check(model: Callable[..., Any], *arrays: np.ndarray) -> None:
    """The graph for OpenVINO computes exactly what eager code does."""
    graph = lucid.trace(model, *[lucid.spec("N", *x.shape[1:], dtype=x.dtype.name) for x in arrays])
    feeds = dict(zip((value.name for value in graph.inputs), arrays, strict=True))
    outputs = in_onnxruntime(to_onnx(graph, target="openvino"))(feeds)
    _, expected = flatten_tree(model(*map(Tensor, arrays)), lambda item: isinstance(item, Tensor), "output")
    for got, want in zip(outputs.values(), expected.values(), strict=True):
        np.testing.assert_array_equal(got, want.numpy())


# Refused --------------------------------------------------------------------------------------------------------------


def test_float64_is_refused_and_float32_is_the_way_out() -> None:
    wide = nn.Linear(4, 2).to(lucid.float64)
    spec = lucid.spec("N", 4, dtype=lucid.float64)
    message = (
        r"^linear: OpenVINO has no float64 kernel for MatMul that is correct: it computes float32, and no type is "
        r"wider; compute it in float32: model\.to\(lucid\.float32\), or x\.astype\(lucid\.float32\)$"
    )
    with pytest.raises(ExportError, match=message):
        to_onnx(wide, spec, target="openvino")
    assert op_types(wide.to(lucid.float32), ("N", 4)) == ["MatMul", "Add"]
    assert op_types(lambda x: ops.tanh(x.astype(lucid.float32)), spec) == ["Cast", "Tanh"]


WIDE: dict[str, tuple[Callable[[Tensor], Any], int]] = {
    "operand": (lambda x: x * (2**40), 2**40),
    "mask": (lambda x: x.masked_fill(x > 3, -(2**63)), -(2**63)),
    "filled": (lambda x: ops.concat([x, lucid.full((x.shape[0], 4), 2**31, dtype=lucid.int64)], 1), 2**31),
    "padded": (lambda x: nn.functional.pad(x, (1, 1), value=2**32), 2**32),
    "in a loop": (lambda x: ops.scan(lambda h, e: (h + e * (2**33), None), x[0], x)[0], 2**33),
}


@pytest.mark.parametrize("name", WIDE)
def test_an_integer_beyond_32_bits_is_refused(name: str) -> None:
    model, number = WIDE[name]
    message = (
        rf"the integer {number} does not fit, because OpenVINO computes integers in 32 bits; use integers from "
        r'-2\*\*31 to 2\*\*31 - 1, or another target, such as target="cpu"'
    )
    with pytest.raises(ExportError, match=message):
        to_onnx(model, INT64, target="openvino")
    assert op_types(model, INT64, target="cpu")


def test_integers_of_32_bits_and_the_ends_of_slices_are_taken() -> None:
    assert op_types(lambda x: (x + (2**31 - 1), x + -(2**31), x[::-1]), INT64) == ["Add", "Add", "Slice"]


# Integers -------------------------------------------------------------------------------------------------------------

INTEGERS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "comparisons": lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y),
    "choices": lambda x, y: (ops.where(x % 2 == 0, x, y), x.masked_fill(y > 0, 2**24 + 1), ops.relu(x)),
    "bounds": lambda x, y: (x.clip(-5, 2**30 + 1), x.clip(-(2**30) - 1, 7), x.clip(y.amin(), 2**25 + 1)),
    "extremes": lambda x, y: (x.amax(1), x.amin((0, 1)), x.amax(0, keepdims=True), y.argmax(1), y.argmin(0)),
    "sums": lambda x, y: (x.sum(1), x.sum((0, 1), keepdims=True), x.astype(lucid.int64).prod(1)),
    "padding": lambda x, y: nn.functional.pad(x, (1, 2), value=2**24 + 1),
    "order": lambda x, y: (ops.topk(x, 3), lucid.sort(y, descending=True)),
}


def integers(dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of all sizes and their neighbours, among them those that float32 does not tell apart, and the ends."""
    rng = np.random.default_rng(0)
    x = rng.integers(-(2**31), 2**31, (300, 4)) >> rng.integers(0, 31, (300, 4))
    y = np.clip(x + rng.integers(-2, 3, x.shape), -(2**31), 2**31 - 1)
    y[::3] = rng.integers(-(2**31), 2**31, y[::3].shape)
    x[0], x[1], y[0], y[1] = -(2**31), 2**31 - 1, (2**31 - 1, -(2**31), 0, -1), (2**31 - 1, -(2**31), 0, -1)
    return x.astype(dtype), y.astype(dtype)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("name", INTEGERS)
def test_forms_of_integers_are_exact(name: str, dtype: str) -> None:
    check(INTEGERS[name], *integers(dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_no_op_that_openvino_computes_as_float32_sees_large_integers(dtype: str) -> None:
    spec = lucid.spec("N", 4, dtype=dtype)
    taken = {name: set(op_types(model, spec, spec)) for name, model in INTEGERS.items()}
    assert not taken["comparisons"] & {"Less", "LessOrEqual", "Greater", "GreaterOrEqual"}
    assert not taken["choices"] & {"Where", "Relu"}
    assert not taken["extremes"] & {"ReduceMax", "ReduceMin"}
    assert not taken["sums"] & {"ReduceSum", "MatMul"}


def test_integers_that_float32_holds_take_one_node() -> None:
    """Positions, ids compared with a constant, bounds: what masks and ids of models are made of."""

    def positions(x: Tensor) -> Any:
        places = lucid.arange(x.shape[0])
        return places[:, None] + x.shape[0] // 2 >= places

    def lengths(x: Tensor) -> Any:
        return (x != 0).sum(1)

    assert op_types(lambda x: x == 7, INT64) == ["Equal"]
    assert op_types(lambda x: x <= lucid.arange(4), INT32.with_dtype(lucid.int64)) == ["LessOrEqual"]
    assert op_types(lambda x: x.clip(0, 511), INT64) == ["Max", "Min"]
    assert op_types(lambda x: ops.where(x > 2, x.clip(0, 9), 3), INT64) == ["Greater", "Max", "Min", "Where"]
    assert "Max" not in op_types(positions, INT64)
    assert op_types(lengths, INT64)[-1] == "ReduceSum"
    assert op_types(lambda x: x.amax(1), INT32.with_dtype(lucid.uint8)) == ["ReduceMax"]


def test_sums_of_three_axes_are_float32_between_casts() -> None:
    """OpenVINO fuses what is added or multiplied with a reduction of integers of three axes, and is wrong."""
    for target in ("openvino", "portable"):
        types = op_types(lambda x: (x > 0).sum(1) - 1, ("N", "L", 4), target=target)
        assert types[-4:] == ["Cast", "ReduceSum", "Cast", "Sub"]
    assert op_types(lambda x: (x > 0).sum(1) - 1, ("N", 4), target="portable")[-3:] == ["Cast", "ReduceSum", "Sub"]


# Order ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [True, False])
def test_equal_elements_keep_their_order_at_any_size(largest: bool) -> None:
    rng = np.random.default_rng(0)
    few = rng.integers(-3, 4, (500, 4)).astype(np.float32)
    few[::7], few[::11, 1], few[::13, 2] = np.nan, np.inf, -np.inf
    check(lambda x: (ops.topk(x, 100, axis=0, largest=largest), lucid.sort(x, axis=0, descending=largest)), few)
    check(lambda x: ops.topk(x, 3, largest=largest), few[:5])
    check(lambda x: lucid.sort(x, axis=0, descending=largest), few[:0])


def test_more_results_than_keys_of_32_bits_hold_are_ordered_as_openvino_likes() -> None:
    def reason(count: int) -> str:
        (choice,) = explain(lambda x: ops.topk(x, count), (50_000,), target="openvino").decisions
        return "".join(why for _, why in choice.refused)

    assert reason(46_341) == "numbers of groups and places of 46341 elements do not fit into 32 bits together"
    assert not reason(46_340)


# NaN and infinity -----------------------------------------------------------------------------------------------------


def test_a_softmax_is_guarded_unless_products_add_up_its_rows() -> None:
    guarded = ["Softmax", "ReduceSum", "IsNaN", "Where"]
    assert op_types(ops.softmax, (4, 4)) == guarded
    assert op_types(ops.softmax, (4, 4), target="portable") == ["Softmax"]
    assert op_types(lambda x: ops.softmax(x) @ x, (4, 4)) == ["Softmax", "MatMul"]
    assert op_types(lambda x: ops.softmax(x, axis=0) @ x, (4, 4)) == [*guarded, "MatMul"]
    assert op_types(lambda x: (ops.softmax(x), x), (4, 4))[:4] == guarded
    assert "IsNaN" not in op_types(nn.MultiHeadAttention(8, 2), ("N", 5, 8))


NOT_FINITE = np.array(
    [[np.nan, 1, -1, 0.5], [3, np.nan, -np.inf, np.inf], [np.inf, 9, -3, 1], [-np.inf] * 4], np.float32
)
POOL = {"kernel_shape": (1, 2), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


@pytest.mark.parametrize("x", [NOT_FINITE, NOT_FINITE[3:], np.full_like(NOT_FINITE, np.finfo(np.float32).min)])
def test_what_is_not_finite_stays(x: np.ndarray) -> None:
    check(lambda x: (x.amax(1), x.amin(0), (-x).amin(1), ops.max_pool(x[None, None], **POOL)), x)
    check(lambda x: ops.softmax(x).isnan(), x)
    check(lambda x: ops.gelu(x) == np.inf, x)


def test_every_form_that_openvino_needs_is_taken() -> None:
    def floats(x: Tensor) -> Any:
        large = ops.maximum(ops.exp(x), ops.minimum(x, 0.5))
        return ops.softmax(large), ops.log_softmax(x), ops.gelu(x), ops.topk(x, 2), x > large, x >= large, ops.relu(x)

    def counts(x: Tensor) -> Any:
        few = x.clip(0, 9)[None]
        return (x > 0)[None].sum(1), few.amax(1), few.amin(1), x // 3

    def decided(model: Any, *specs: Any) -> set[tuple[str, str]]:
        return {(choice.op, choice.taken) for choice in explain(model, *specs, target="openvino").decisions}

    taken = decided(floats, ("N", 4)) | decided(counts, INT32) | decided(nn.RNN(4, 6), ("L", "N", 4))
    taken |= decided(ops.attention, ("N", 2, "L", 4), *[("N", 2, "S", 4)] * 2)
    taken = taken.union(*(decided(model, INT32, INT32) for model in INTEGERS.values()))
    only = RUNTIMES["openvino"].faults.keys() - RUNTIMES["any"].faults.keys()
    needed = {(op, form.name) for op, forms in FORMS.items() for form in forms if form.mends in only}
    assert needed - taken == {
        ("softmax", "between transposes"),
        ("softmax", "apart from the products"),
    }  # test_portable
