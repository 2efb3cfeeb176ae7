"""`ops.scan`: the same eagerly, as a graph and exported, for any length; what it takes, and what it refuses."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.values import Body, Constant
from lucid.export import explain, to_onnx
from lucid.ops.tensor.tensor import TracedValueError
from lucid.testing import assert_parity, bisect

LENGTHS = [{"L": 0, "N": 2}, {"L": 1, "N": 1}, {"L": 4, "N": 3}]


class Recurrent(nn.Module):
    """h' = tanh(W x + U h + the mean of x)."""

    def __init__(self, reverse: bool = False) -> None:
        self.reverse = reverse
        self.enter, self.again = nn.Linear(4, 3), nn.Linear(3, 3, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        level = x.sum(0)[:, :3] / 8

        def step(h: Tensor, element: Tensor) -> tuple[Tensor, Tensor]:
            h = ops.tanh(self.enter(element) + self.again(h) + level)
            return h, h * 2

        carry, results = ops.scan(step, lucid.zeros(x.shape[1], 3), x, reverse=self.reverse)
        return carry, results


class State(NamedTuple):
    total: Tensor
    seen: dict[str, Tensor]


def nested(x: Tensor, y: Tensor) -> Any:
    """Structures everywhere, one of them without tensors, of several element types."""

    def step(state: State, element: list[Tensor]) -> tuple[State, dict[str, Any]]:
        first, second = element
        now = State(state.total + first, {"count": state.seen["count"] + 1, "last": second > 0})
        return now, {"first": (first, None), "both": [now.total, state.seen["last"]]}

    start = State(lucid.zeros(x.shape[1]), {"count": lucid.tensor(0), "last": x[0] > 9})
    return ops.scan(step, start, [x, y])


def within(x: Tensor) -> Tensor:
    """A loop in a loop, which reads what the outer one carries."""

    def row(total: Tensor, line: Tensor) -> tuple[Tensor, Tensor]:
        last, _ = ops.scan(lambda h, e: (h / 2 + e * total, None), lucid.zeros(()), line)
        return total + last, last

    return ops.scan(row, lucid.ones(()), x)[1]


def counted(x: Tensor) -> Tensor:
    """Nothing to loop over but a number of steps."""
    return ops.scan(lambda h, none: (h * 2 + 1, None), x, length=x.shape[0])[0]


def sized(x: Tensor) -> Tensor:
    """A size from outside inside a body."""
    length = x.shape[0]
    return ops.scan(lambda h, e: (h + e.unsqueeze(0).expand(length, e.shape[0]), None), x, x)[0]


MODELS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "forwards": (Recurrent(), [("L", "N", 4)]),
    "reverse": (Recurrent(reverse=True), [("L", "N", 4)]),
    "a loop in a loop": (within, [("L", "N")]),
    "steps alone": (counted, [("L", "N")]),
    "sizes": (sized, [("L", "N")]),
}


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("name", MODELS)
def test_exported_for_any_length(name: str, target: str) -> None:
    model, specs = MODELS[name]
    assert_parity(model, *specs, target=target, sizes=LENGTHS)


def test_structures_and_element_types() -> None:
    x, y = lucid.randn(3, 2), lucid.randn(3, 2)
    state, results = nested(x, y)
    np.testing.assert_allclose(state.total.numpy(), x.numpy().sum(0), rtol=1e-6)
    assert state.seen["count"].item() == 3 and results["first"][1] is None
    np.testing.assert_array_equal(results["both"][1].numpy()[1:], y.numpy()[:-1] > 0)
    assert_parity(nested, (3, "N"), (3, "N"))


@pytest.mark.parametrize("reverse", [False, True])
def test_eager_and_the_graph_against_a_loop_in_float64(reverse: bool) -> None:
    model = Recurrent(reverse)
    x = lucid.randn(5, 2, 4)
    wide = x.numpy().astype(float)
    w, b, u = (p.numpy().astype(float) for p in (model.enter.weight, model.enter.bias, model.again.weight))
    h, expected = np.zeros((2, 3)), np.zeros((5, 2, 3))
    for i in range(5)[:: -1 if reverse else 1]:
        h = np.tanh(wide[i] @ w.T + b + h @ u.T + wide.sum(0)[:, :3] / 8)
        expected[i] = 2 * h
    for carry, results in (model(x), lucid.trace(model, ("L", "N", 4))(x.numpy())):
        np.testing.assert_allclose(np.asarray(results), expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(carry), h, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_element_types(dtype: str) -> None:
    def model(x: Tensor) -> Any:
        return ops.scan(lambda h, e: (ops.tanh(h / 2 + e), h), x[0], x, reverse=True)

    assert_parity(model, lucid.spec(3, "N", dtype=dtype))


@pytest.mark.parametrize("target", ["cpu", "cuda"])
def test_half_precision(target: str) -> None:
    half = to_onnx(Recurrent(), ("L", "N", 4), dtype="float16", target=target)
    assert {w.name: w.data_type for w in half.graph.initializer}["again.weight.T"] == 10  # ONNX's FLOAT16
    if target == "cpu":
        assert_parity(Recurrent(), ("L", "N", 4), dtype="float16", target=target)


def test_weights_of_the_body_keep_their_names_and_are_computed_with_once() -> None:
    graph = lucid.trace(Recurrent(), ("L", "N", 4))
    (loop,) = [node for node in graph.nodes() if node.op.name == "scan"]
    named = [graph.name_of(value) for value in loop.inputs if isinstance(value, Constant)]
    assert named == ["enter.weight", "enter.bias", "again.weight"]
    body = loop.attributes["body"]
    assert isinstance(body, Body)
    assert "sum" not in str(body) and [node.op.name for node in graph.nodes()].count("sum") == 1
    names = {w.name for w in to_onnx(graph).graph.initializer}
    assert names >= {"enter.weight.T", "enter.bias", "again.weight.T"}


def test_everything_known_is_computed_while_tracing() -> None:
    def model(x: Tensor) -> Tensor:
        return x + ops.scan(lambda h, e: (h + e, None), lucid.zeros(2), lucid.ones(3, 2))[0]

    assert [node.op.name for node in lucid.trace(model, ("N", 2)).nodes()] == ["add"]


def test_a_known_length_needs_no_condition() -> None:
    kinds = {length: [n.op_type for n in to_onnx(within, (length, 3)).graph.node] for length in (0, 2, "L")}
    assert kinds[2] == ["Scan"] and "If" in kinds["L"] and not {"If", "Scan"} & set(kinds[0])


def test_forms_of_the_ops_within_are_explained() -> None:
    def model(x: Tensor) -> Tensor:
        return ops.scan(lambda h, e: (ops.gelu(h + e), None), x[0], x)[0]

    report = explain(model, lucid.spec(3, "N", 4, dtype="float16"), target="cpu")
    assert {decision.op for decision in report.decisions} >= {"scan", "gelu"}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_copies(copied: Callable[[Any], Any]) -> None:
    graph = lucid.trace(within, ("L", "N"))
    other = copied(graph)
    other.verify()
    assert str(other) == str(graph) and "body(" in str(graph)
    assert to_onnx(other).SerializeToString() == to_onnx(graph).SerializeToString()


def test_verify_looks_into_bodies() -> None:
    graph = lucid.trace(within, ("L", "N"))
    (loop,) = [node for node in graph.nodes() if node.op.name == "scan"]
    inner = next(v.node for v in loop.attributes["body"].outputs if hasattr(v, "node"))
    inner.types = (lucid.spec(7),)
    with pytest.raises(ValueError, match=r"add is recorded as float32\[7\]"):
        graph.verify()


def test_bisect_names_the_loop() -> None:
    exported = to_onnx(within, (3, "N"))
    scan = next(node for node in exported.graph.node if node.op_type == "Scan")
    add = next(n for a in scan.attribute if a.name == "body" for n in a.g.node if n.op_type == "Add")
    add.op_type = "Sub"
    difference = bisect(within, (3, "N"), exported=exported)
    assert difference is not None and difference.node.startswith("Scan")


X = lucid.ones(3, 2)


def kept(x: Tensor) -> Tensor:
    inside: list[Tensor] = []
    ops.scan(lambda h, e: (inside.append(h + e) or h, None), x[0], x)  # type: ignore[func-returns-value]
    return inside[0] * 2


WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "another shape": (
        lambda: ops.scan(lambda h, e: (lucid.cat([h, e]), None), X[0], X),
        ValueError,
        r"^scan: carry is float32\[2\] before a step and float32\[4\] after it.*: start with this shape",
    ),
    "another element type": (
        lambda: ops.scan(lambda h, e: ({"n": h["n"] + e}, None), {"n": lucid.zeros(2, dtype=lucid.int64)}, X),
        ValueError,
        r"^scan: carry.n is int64\[2\] .* float32\[2\] after it.*: start with another one, or .*astype\(lucid.int64\)",
    ),
    "another structure": (
        lambda: ops.scan(lambda h, e: ((h[0], h[1], e), None), (X[0], X[0]), X),
        ValueError,
        "^scan: the carry is a tuple of 2 before a step and a tuple of 3 after it; it must keep its structure",
    ),
    "lengths": (
        lambda: ops.scan(lambda h, e: (h, None), X[0], (X, X[:2])),
        ValueError,
        "^scan: xs.1 has length 2, expected 3: all xs have one length",
    ),
    "length given": (lambda: ops.scan(lambda h, e: (h, e), None, X, length=4), ValueError, "length 3, expected 4"),
    "negative length": (lambda: ops.scan(lambda h, e: (h, e), X, length=-1), ValueError, "length is -1, expected 0"),
    "no axis": (lambda: ops.scan(lambda h, e: (h, e), X, X[0, 0]), ValueError, r"^scan: xs is float32\[\], expected a"),
    "no length": (lambda: ops.scan(lambda h, e: (h, e), X), ValueError, "^scan: xs holds no tensor .*: give length="),
    "one thing": (
        lambda: ops.scan(lambda h, e: h + e, X[0], X),
        TypeError,
        r"^scan: the body returned a Tensor, expected two things: return carry, y \(y may be None\)",
    ),
    "no tensor": (
        lambda: ops.scan(lambda h, e: (h, {"a": "text"}), X[0], X),
        TypeError,
        "^scan: y.a: expected a tensor, an array or a number, got str",
    ),
    "the value of an element": (
        lambda: lucid.trace(lambda x: ops.scan(lambda h, e: (h + e.item(), None), x, x[0])[0], (2, 3)),
        TracedValueError,
        "known only when the exported model runs",
    ),
    "something kept": (
        lambda: lucid.trace(kept, ("L", 2)),
        ValueError,
        "uses a tensor that it kept from another trace or from inside a loop",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
