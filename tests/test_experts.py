"""Mixture of experts: which form is taken where, what it costs in nodes, and its errors. `test_ops.py` has the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import nn, ops
from lucid.export import Target, explain, to_onnx
from lucid.runtime import Session
from lucid.testing import assert_parity


def layer(num_experts: int, k: int = 2) -> nn.MixtureOfExperts:
    lucid.manual_seed(0)
    return nn.MixtureOfExperts(num_experts, k, 8, 6)


def kinds(model: onnx.ModelProto) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node)


def test_few_experts_have_products_of_their_own() -> None:
    """Two products each: gate and up joined, and down."""
    counts = kinds(to_onnx(layer(4)))
    assert counts["MatMul"] == 1 + 2 * 4
    assert not {"Scan", "MoE"} & counts.keys()
    assert counts.total() == kinds(to_onnx(layer(7))).total() - 2 * 3


@pytest.mark.parametrize(("target", "op"), [("any", "Scan"), ("cuda", "Scan"), ("cpu", "MoE")])
def test_the_graph_of_many_experts_does_not_grow_with_them(target: str, op: str) -> None:
    few, many = (kinds(to_onnx(layer(count), target=target)) for count in (17, 40))
    assert few == many
    assert few[op] == 1


def test_a_scan_has_the_weights_as_they_are_in_the_model() -> None:
    model = to_onnx(layer(17))
    (scan,) = (node for node in model.graph.node if node.op_type == "Scan")
    assert list(scan.input[-2:]) == ["experts.gate_up_proj", "experts.down_proj"]


@pytest.mark.parametrize("target", ["portable", "openvino"])
def test_openvino_gets_no_scan(target: str) -> None:
    assert "Scan" not in kinds(to_onnx(layer(17), target=target))
    assert "does not load one" in str(explain(layer(17), target=target))


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("count", [3, 17])
def test_of_equal_experts_the_first_ones_are_taken(target: str, count: int) -> None:
    """On every path: onnxruntime's MoE takes the last ones."""
    model = layer(count)
    model.gate.weight = nn.Parameter(np.ones((count, 8), np.float32))
    weights = (np.full((5, 2), 0.5, np.float32), model.experts.gate_up_proj, model.experts.down_proj)
    x = lucid.randn(5, 8)
    first = ops.gated_experts(x, np.tile(np.arange(2), (5, 1)), *weights)
    np.testing.assert_allclose(model(x).numpy(), first.numpy(), rtol=1e-5, atol=1e-6)
    assert_parity(model, lucid.spec("L", 8), target=target)


@pytest.mark.parametrize("count", [3, 17])
@pytest.mark.parametrize("target", ["any", "cpu"])
def test_weights_in_half_precision_stay_so_in_the_file(count: int, target: str) -> None:
    model = layer(count)
    assert_parity(model, target=target, dtype="float16")
    stored = to_onnx(model, target=target, dtype="float16").graph.initializer
    assert sum(t.data_type == onnx.TensorProto.FLOAT16 for t in stored if t.name.startswith("experts.")) >= 2
    assert not any(t.data_type == onnx.TensorProto.FLOAT for t in stored if t.name.startswith("experts."))


def test_releases_whose_moe_was_not_compared_get_another_form() -> None:
    target = Target("cpu", onnxruntime="1.27")
    assert "MoE" not in kinds(to_onnx(layer(17), target=target))
    assert "has not been compared" in str(explain(layer(17), target=target))


def test_a_user_may_insist_on_a_form() -> None:
    assert kinds(to_onnx(layer(4), target=Target("cpu", forms={"mixture_of_experts": "contrib"})))["MoE"] == 1


def test_rows_are_not_computed_by_experts_that_were_not_chosen() -> None:
    """An expert that would give NaN changes nothing."""
    x, indices, weights = lucid.randn(4, 8), np.array([[0], [2], [2], [0]]), np.ones((4, 1), np.float32)
    gate_up, down = lucid.randn(3, 12, 8).numpy(), lucid.randn(3, 8, 6).numpy()
    gate_up[1] = np.nan
    assert np.isfinite(ops.gated_experts(x, indices, weights, gate_up, down).numpy()).all()


WIDE, HALF = np.zeros((4, 8), np.float32), np.zeros((4, 2), np.float32)
CHOSEN, GATE_UP, DOWN = np.zeros((4, 2), np.int64), np.zeros((3, 12, 8), np.float32), np.zeros((3, 8, 6), np.float32)


@pytest.mark.parametrize(
    ("operands", "message"),
    [
        ((WIDE, CHOSEN, HALF, GATE_UP, DOWN[:, :, :5]), r"x is \[4, 8\], gate_up \[3, 12, 8\], down \[3, 8, 5\]; exp"),
        ((WIDE, CHOSEN[:3], HALF, GATE_UP, DOWN), r"indices are \[3, 2\] for x \[4, 8\], expected \(..., k\)"),
        ((WIDE, CHOSEN, HALF[:, :1], GATE_UP, DOWN), r"weights are \[4, 1\] and indices \[4, 2\], expected one shape"),
        (
            (WIDE, HALF, HALF, GATE_UP, DOWN),
            r"got x .*, indices float32\[4, 2\], .* expected floating-point numbers, and integ",
        ),
        ((WIDE, CHOSEN, HALF, GATE_UP, DOWN, DOWN), r"gate_up_bias is float32\[3, 8, 6\], expected .* \[3, 12\]"),
        ((WIDE, CHOSEN + 3, HALF, GATE_UP, DOWN), "indices range from 3 to 3, expected 0 to 2"),
    ],
)
def test_operands_that_do_not_fit_are_refused(operands: tuple[np.ndarray, ...], message: str) -> None:
    with pytest.raises((TypeError, ValueError, IndexError), match=f"gated_experts: {message}"):
        ops.gated_experts(*operands)


@pytest.mark.parametrize(("tokens", "width"), [(3, 0), (0, 8), (0, 0)])
def test_tokens_may_be_none_or_empty(tokens: int, width: int) -> None:
    indices, weights = np.zeros((tokens, 2), np.int64), lucid.ones(tokens, 2)
    output = ops.gated_experts(
        lucid.zeros(tokens, width), indices, weights, lucid.zeros(4, 6, width), lucid.zeros(4, width, 3)
    )
    assert output.shape == (tokens, width)


def session_of(function: Any, *arrays: np.ndarray, symbolic: int | None = 0, **target: Any) -> Session:
    specs = [
        lucid.spec(*("N" if axis == symbolic else n for axis, n in enumerate(a.shape)), dtype=a.dtype) for a in arrays
    ]
    return Session(to_onnx(function, *specs, target=Target("cpu", **target)), threads=1)


@pytest.mark.parametrize("shape", [(8,), (3, 8), (2, 3, 8), (2, 2, 3, 8)], ids=str)
def test_the_op_of_onnxruntime_takes_tokens_of_every_shape(shape: tuple[int, ...]) -> None:
    lucid.manual_seed(0)
    mixture, x = nn.MixtureOfExperts(17, 2, 8, 6), np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    session = session_of(mixture, x, symbolic=0 if len(shape) > 1 else None)
    np.testing.assert_allclose(session(x).numpy(), mixture(lucid.Tensor(x)).numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("row", [[np.nan], [np.inf], [-np.inf] * 17, [-np.inf, 1.0]])
def test_a_router_that_has_no_probabilities_gives_nan_in_every_form(row: list[float]) -> None:
    lucid.manual_seed(0)
    gate_up, down = lucid.randn(17, 12, 8), lucid.randn(17, 8, 6)
    compute = lambda x, logits: ops.mixture_of_experts(x, logits, gate_up, down, k=2)  # noqa: E731
    x, logits = np.ones((2, 8), np.float32), np.zeros((2, 17), np.float32)
    logits[1, : len(row)] = row
    output = session_of(compute, x, logits)(x, logits).numpy()
    expected = compute(lucid.Tensor(x), lucid.Tensor(logits)).numpy()
    assert np.isnan(expected[1]).all() == (row != [-np.inf, 1.0])
    np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "kind", "name"), [("gated_experts", "standard", "Scan"), ("mixture_of_experts", "contrib", "MoE")]
)
def test_forms_that_are_slower_for_few_experts_are_taken_if_asked_for(op: str, kind: str, name: str) -> None:
    lucid.manual_seed(0)
    mixture, x = nn.MixtureOfExperts(4, 2, 8, 6), np.ones((3, 8), np.float32)
    exported = to_onnx(mixture, lucid.spec("N", 8), target=Target("cpu", forms={op: kind}))
    assert name in {node.op_type for node in exported.graph.node}
    np.testing.assert_allclose(Session(exported, threads=1)(x).numpy(), mixture(lucid.Tensor(x)).numpy(), rtol=1e-4)


def test_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="GatedExperts: activation is 'tanh', expected one of silu, gelu, "):
        nn.GatedExperts(4, 8, 6, "tanh")
    with pytest.raises(ValueError, match="gated_experts: activation is 'tanh', expected one of silu"):
        ops.gated_experts(WIDE, CHOSEN, HALF, GATE_UP, DOWN, activation="tanh")
    with pytest.raises(ValueError, match="MixtureOfExperts: k is 5, expected 1 to 4, the number of experts"):
        nn.MixtureOfExperts(4, 5, 8, 6)
    with pytest.raises(ValueError, match="mixture_of_experts: k is 4, expected 1 to 3"):
        ops.mixture_of_experts(WIDE, WIDE[:, :3], GATE_UP, DOWN, k=4)
    with pytest.raises(
        ValueError, match=r"router_logits are \[4, 8\], expected \(..., E\) for x \[4, 8\] and 3 experts"
    ):
        ops.mixture_of_experts(WIDE, WIDE, GATE_UP, DOWN, k=2)


def test_groups_are_as_torch_and_jax_have_them() -> None:
    x, weight = lucid.randn(5, 4), lucid.randn(3, 4, 2)
    expected = np.concatenate([x.numpy()[:2] @ weight.numpy()[0], x.numpy()[2:] @ weight.numpy()[2]])
    np.testing.assert_allclose(ops.grouped_mm(x, weight, np.array([2, 2, 5])).numpy(), expected, rtol=1e-5)
    for ends in ([2, 1, 5], [2, 2, 4]):
        with pytest.raises(ValueError, match="expected numbers that do not fall, up to the 5 rows"):
            ops.grouped_mm(x, weight, np.array(ends))
    with pytest.raises(
        ValueError, match=r"grouped_mm: got \[5, 4\] and \[3, 5, 2\], expected \(M, K\) and \(G, K, N\)"
    ):
        ops.grouped_mm(x, lucid.randn(3, 5, 2), np.array([2, 2, 5]))
    with pytest.raises(ValueError, match="expected 3 integers, one for each group"):
        ops.grouped_mm(x, weight, np.array([2, 5]))


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("count", [3, 17])
def test_clamped_swiglu_limits_alternating_gates_and_projections(count: int, target: str) -> None:
    """gpt-oss's: each token is 1, so gate and projection are the biases, most of them beyond the limit of 7."""
    bias = np.array([-9, -9, -9, 9, 9, -9, 9, 9, 3, 2], np.float32)
    gate_up, down = np.zeros((count, 10, 1), np.float32), np.tile(np.eye(5, dtype=np.float32), (count, 1, 1))
    biases = np.tile(bias, (count, 1)), np.full((count, 5), 0.5, np.float32)
    compute = lambda x, logits: ops.mixture_of_experts(  # noqa: E731  # as a user writes it
        x, logits, np.repeat(gate_up, 5, 2), down, *biases, k=2, activation="clamped_swiglu"
    )
    x, logits = np.ones((2, 5), np.float32), np.random.default_rng(0).standard_normal((2, count)).astype(np.float32)
    gate, up = np.minimum(bias[::2], 7), np.clip(bias[1::2], -7, 7)
    want = gate / (1 + np.exp(-1.702 * gate)) * (up + 1) + 0.5
    np.testing.assert_allclose(compute(lucid.Tensor(x), lucid.Tensor(logits)).numpy(), [want, want], rtol=1e-5)
    session = Session(to_onnx(compute, ("N", 5), ("N", count), target=target), threads=1)
    np.testing.assert_allclose(session(x, logits).numpy(), [want, want], rtol=1e-5)
