"""`lucid.value_and_grad`: the structure of gradients, their names, where they are 0, and what is refused."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import TensorType
from lucid.gradients import RULES, GradientError, Rule
from lucid.nn import functional as F
from lucid.ops.op import Op
from lucid.testing import assert_parity

X = lucid.tensor([[0.5, -1.0, 2.0], [1.5, 0.25, -0.75]])
V = lucid.tensor([1.0, 2.0, 3.0])


def numbers(x: Any) -> Any:
    return x.numpy().tolist()


# What the gradients are of -------------------------------------------------------------------------------------------


def test_gradients_of_arguments_have_their_structure() -> None:
    def f(pair: dict[str, Tensor], ids: Tensor, scale: float, *, shift: Tensor) -> Tensor:
        return (pair["a"] * pair["b"] * scale).sum() + shift.sum() + ids.float().sum()

    value, gradients = lucid.value_and_grad(f)({"a": V, "b": 2 * V}, lucid.tensor([1, 2]), 0.5, shift=V.numpy())
    assert value.item() == 14 + 6 + 3
    to_pair, to_ids, to_scale, by_name = gradients
    assert numbers(to_pair["a"]) == [1, 2, 3] and numbers(to_pair["b"]) == [0.5, 1, 1.5]
    assert to_ids is None and to_scale is None and numbers(by_name["shift"]) == [1, 1, 1]
    assert numbers(lucid.grad(lambda x: (x * x).sum())(V)) == [2, 4, 6]  # one argument: no tuple


def test_gradients_of_a_module_are_those_of_its_parameters_by_name() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    value, gradients = lucid.value_and_grad(lambda x: (model(x) ** 2).mean(), wrt=model)(X)
    assert list(gradients) == [name for name, _ in model.named_parameters()] and value.shape == ()
    y = model(X).numpy()
    np.testing.assert_allclose(gradients["1.bias"].numpy(), (2 * y / y.size).sum(0), rtol=1e-5)
    assert list(lucid.grad(lambda x: model(x).sum(), wrt=(model, "1.*", "*.bias"))(X)) == [
        "0.bias",
        "1.weight",
        "1.bias",
    ]
    model[0].requires_grad_(False)
    assert list(lucid.grad(lambda x: model(x).sum(), wrt=model)(X)) == ["1.weight", "1.bias"]


def test_frozen_parameters_cost_nothing() -> None:
    model = nn.Sequential(*(nn.Linear(3, 3) for _ in range(5)))
    part = (model, "4.*")
    graph = lucid.trace(lambda x: lucid.grad(lambda x: model(x).sum(), wrt=part)(x), X)
    assert {node.scope for node in graph.nodes() if node.op is ops.linear} == {"0", "1", "2", "3"}
    assert sum(node.op is ops.linear for node in graph.nodes()) == 4  # the value of the last one is not asked for
    assert {node.scope for node in graph.nodes() if node.op is not ops.linear} <= {"", "4"}


def test_new_weights_are_seen_and_a_function_is_traced_once_for_its_types() -> None:
    model, calls = nn.Linear(3, 1), []

    def loss(x: Tensor) -> Tensor:
        calls.append(x.spec)
        return (model(x) ** 2).sum()

    both = lucid.value_and_grad(loss, wrt=(model, "weight"))
    before, _ = both(X)
    model.weight.assign(2 * model.weight.numpy())
    model.bias.assign(np.zeros(1, np.float32))  # it is fixed in the graph, which is therefore made again
    assert both(X)[0].item() == pytest.approx((model(X) ** 2).sum().item())
    model.weight.assign(2 * model.weight.numpy())
    assert both(X)[0].item() == pytest.approx((model(X) ** 2).sum().item()) and before.item() != both(X)[0].item()
    both(X[:1])
    assert len(calls) == 3


def test_frozen_weights_that_change_in_place_are_seen_in_modules_of_wrt_and_others() -> None:
    model, teacher = nn.Linear(3, 3), nn.Linear(3, 3)
    for frozen in (model.bias, teacher.weight):
        frozen.requires_grad_(False)

    def loss(x: Tensor) -> Tensor:
        return ((model(x) - F.linear(x, teacher.weight * 2, teacher.bias + 1)) ** 2).sum()

    both = lucid.value_and_grad(loss, wrt=(model, "weight"))
    for parameter in (model.weight, model.bias, teacher.weight, teacher.bias):
        both(X)
        parameter.numpy()[:] += 1
        assert both(X)[0].item() == pytest.approx(loss(X).item())
    teacher.weight.assign(np.zeros((3, 3), np.float32))
    assert both(X)[0].item() == pytest.approx(loss(X).item())
    teacher.weight.assign(np.ones((3, 3)))  # in float64
    assert both(X)[0].dtype == loss(X).dtype == lucid.float64


def test_the_mode_of_a_module_that_is_only_called_is_seen() -> None:
    dropout, calls = nn.Dropout(0.5), []

    def loss(x: Tensor) -> Tensor:
        calls.append(x.spec)
        return dropout(x).sum()

    slope = lucid.grad(loss)
    assert numbers(slope(V)) == [1, 1, 1] == numbers(slope(V))
    dropout.train()
    assert set(numbers(slope(lucid.zeros(64)))) == {0, 2} and set(numbers(slope(V))) <= {0, 2}
    dropout.eval()
    assert numbers(slope(V)) == [1, 1, 1] and len(calls) == 4


def test_a_layer_of_another_type_is_seen() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    both = lucid.value_and_grad(lambda x: model(x).sum(), wrt=model)
    both(X)
    model[1] = nn.Tanh()
    assert both(X)[0].item() == pytest.approx(model(X).sum().item())


def test_with_aux_something_else_is_returned_with_the_value() -> None:
    (value, aux), gradient = lucid.value_and_grad(lambda x: ((x * x).sum(), {"twice": 2 * x}), has_aux=True)(V)
    assert value.item() == 14 and numbers(aux["twice"]) == [2, 4, 6] == numbers(gradient)
    gradient, aux = lucid.grad(lambda x: (x.sum(), x), has_aux=True)(V)
    assert numbers(gradient) == [1, 1, 1] and numbers(aux) == [1, 2, 3]


def test_gradients_of_gradients() -> None:
    def slope(x: Tensor) -> Tensor:
        return lucid.grad(lambda x: x.tanh().sum())(x).sum()

    tanh = np.tanh(V.numpy())
    np.testing.assert_allclose(lucid.grad(slope)(V).numpy(), -2 * tanh * (1 - tanh**2), rtol=1e-5)
    third = lucid.grad(lambda x: lucid.grad(slope)(x).sum())
    np.testing.assert_allclose(third(V).numpy(), (1 - tanh**2) * (6 * tanh**2 - 2), rtol=1e-4)


# In traces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
def test_in_a_trace_gradients_are_nodes_for_any_sizes(target: str) -> None:
    model = nn.TransformerEncoderLayer(8, 2, 12, activation="gelu")

    def step(x: Tensor, hidden: Tensor) -> dict[str, Tensor]:
        def loss(x: Tensor) -> Tensor:
            return (model(x, src_key_padding_mask=hidden).tanh() * x.exp()).mean()

        value, gradients = lucid.value_and_grad(loss, wrt=model)(x)
        return {"loss": value, **{f"to_{name}": gradient for name, gradient in gradients.items()}}

    assert_parity(step, lucid.spec("N", "L", 8), lucid.spec("N", "L", dtype=lucid.bool_), target=target, atol=1e-6)


def test_a_loop_goes_back_through_its_steps() -> None:
    def total(x: Tensor, w: Tensor) -> Tensor:
        state, rows = ops.scan(lambda h, v: ((h * w + v).tanh(), h * v), lucid.zeros(3), x)
        return (state * V).sum() + (rows * rows).sum()

    looped = lucid.grad(total)(X, V)
    unrolled = lucid.grad(lambda x, w: _unrolled(x, w))(X, V)
    for got, expected in zip(looped, unrolled, strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-6)
    for target in ("any", "cpu", "portable"):
        assert_parity(lucid.grad(total), lucid.spec("L", 3), lucid.spec(3), target=target)

    def size(f: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
        return lambda x, w: sum(((g**3).sum() for g in lucid.grad(f)(x, w)), start=lucid.tensor(0.0))

    for got, expected in zip(lucid.grad(size(total))(X, V), lucid.grad(size(_unrolled))(X, V), strict=True):
        np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-4)


def test_a_recomputed_module_has_the_same_gradients_and_keeps_nothing_inside() -> None:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 12), 2)
    both = lucid.value_and_grad(lambda x: (model(x).tanh() * x.exp()).mean(), wrt=model)
    x = lucid.randn(2, 3, 8)
    before, expected = both(x)
    for layer in model.layers:
        nn.recompute(layer)
    after, recomputed = both(x)
    np.testing.assert_allclose(after.numpy(), before.numpy(), rtol=1e-6)
    for name, gradient in expected.items():
        np.testing.assert_allclose(recomputed[name].numpy(), gradient.numpy(), rtol=1e-4, atol=1e-7)
    graph = lucid.trace(lambda x: both(x)[1], lucid.spec("N", "L", 8))
    assert sum(node.op.name == "scan" for node in graph.nodes()) == 4  # each layer there and back
    assert not {"attention", "layer_norm", "linear"} & {node.op.name for node in graph.nodes()}
    assert "scan" not in lucid.trace(model, lucid.spec("N", "L", 8)).op_names()
    assert_parity(lambda x: both(x)[1], lucid.spec("N", "L", 8), target="cpu", atol=1e-6)
    with pytest.raises(GradientError, match=r"scan: dropout in a loop or in a recomputed module has no gradient"):
        lucid.grad(lambda x: nn.recompute(nn.Dropout(0.5).train())(x).sum())(X)


def _unrolled(x: Tensor, w: Tensor) -> Tensor:
    h, rows = lucid.zeros(3), []
    for v in (x[0], x[1]):
        rows.append(h * v)
        h = (h * w + v).tanh()
    both = lucid.stack(rows)
    return (h * V).sum() + (both * both).sum()


# Where gradients are 0 -----------------------------------------------------------------------------------------------


def test_what_where_does_not_choose_gives_no_nan() -> None:
    zeros = lucid.tensor([0.0, -1.0, 4.0])
    for f in (Tensor.sqrt, Tensor.log, lambda x: 1 / x, lambda x: x**0.5, lambda x: (x - 1).log() * x):
        gradient = lucid.grad(lambda x, f=f: lucid.where(x > 2, f(x) * 2 + 1, 0.0).sum())(zeros)
        assert numbers(gradient[:2]) == [0, 0] and np.isfinite(gradient.numpy()).all()


def test_lengths_of_zero_have_gradients_of_zero_as_in_torch() -> None:
    rows = lucid.tensor([[0.0, 0.0], [3.0, 4.0]])
    lengths = [lambda x, p=p: x.norm(p, -1) for p in (0.5, 1, 1.5, 2, 3, math.inf)]
    for f in (*lengths, lambda x: (x * x.mean(-1, keepdim=True)).std(-1), lambda x: lucid.atan2(x, 2 * x)):
        gradients = lucid.grad(lambda x, f=f: f(x).sum())(rows).numpy()
        assert not gradients[0].any() and np.isfinite(gradients).all()
    assert np.isfinite(lucid.grad(lambda x: F.normalize(x, dim=-1).sum())(rows).numpy()).all()
    assert numbers(lucid.grad(lambda x: x.sqrt().clamp(min=1.0).sum())(lucid.tensor([0.0, 4.0]))) == [0, 0.25]
    assert numbers(lucid.grad(lambda x: x.norm(0.5))(lucid.tensor([0.0, 4.0]))) == [0, 1]


def test_second_gradients_of_lengths_count_elements_of_0() -> None:
    def slope(x: Tensor) -> Tensor:
        return (lucid.grad(lambda x: F.normalize(x, dim=-1)[0] + x.norm())(x) * V).sum()

    second = lucid.grad(slope)(lucid.tensor([3.0, 0.0, 4.0]).double()).numpy()
    moved = [slope(lucid.tensor([3.0, step, 4.0]).double()).item() for step in (1e-6, -1e-6)]
    assert second[1] == pytest.approx((moved[0] - moved[1]) / 2e-6, rel=1e-6)


def second(f: Callable[[Tensor], Tensor], x: list[float]) -> Any:
    """The gradient of the sum of the gradients of a function."""
    return numbers(lucid.grad(lambda x: lucid.grad(lambda x: f(x).sum())(x).sum())(lucid.tensor(x)))


def test_second_gradients_at_corners_and_of_equal_numbers_are_torchs() -> None:
    zero = lucid.zeros(3)
    for f in (F.elu, F.selu, F.celu, lambda x: F.elu(x, 0.5), lambda x: F.celu(x, 0.5)):
        assert second(f, [0.0, 1.0]) == [0, 0] and second(f, [-1.0])[0] > 0
    assert second(lambda x: lucid.logaddexp(x, zero), [0.0, -math.inf, math.inf]) == [0.25, 0, 0]
    assert second(lambda x: F.smooth_l1_loss(x, zero, beta=0.5, reduction="sum"), [0.0, 0.25, 1.0]) == [2, 2, 0]
    assert second(lambda x: F.huber_loss(x, zero, reduction="sum"), [0.0, 0.25, 1.5]) == [1, 1, 0]
    assert second(lambda x: x.std(), [2.0, 2.0, 2.0]) == [0, 0, 0]
    assert second(lambda x: x.prod(), [0.0, 0.0, 3.0]) == [3, 3, 0] and second(lambda x: x.prod(), [0, 2.0]) == [1, 1]
    assert second(lambda x: x.prod(), [0.0, 0.0, 0.0, 3.0]) == [0, 0, 0, 0]


def test_an_element_that_is_chosen_counts_in_second_gradients_where_its_gradient_is_0() -> None:
    def slope(x: Tensor) -> Tensor:
        return lucid.grad(lambda y: (x * lucid.where(y > 0, y, 1.0).log()).sum())(V).sum()

    assert numbers(lucid.grad(slope)(lucid.zeros(3))) == pytest.approx([1, 1 / 2, 1 / 3])
    to_x, to_y = lucid.grad(lambda x, y: lucid.xlogy(x, y).sum())(lucid.zeros(3), lucid.tensor([2.0, 0.0, -1.0]))
    assert numbers(to_x) == pytest.approx([math.log(2), 0, 0]) and numbers(to_y) == [0, 0, 0]


def test_gradients_are_exact_where_a_function_is_nearly_flat_and_its_numbers_are_infinite() -> None:
    steep = lucid.tensor([-20.0, -30.0]).double()
    np.testing.assert_allclose(lucid.grad(lambda x: F.celu(x).sum())(steep).numpy(), np.exp(steep.numpy()), rtol=1e-12)
    beyond = lucid.tensor([math.inf, math.nan, 2.0])
    for power in (0, 1):
        assert numbers(lucid.grad(lambda x, power=power: (x**power).sum())(beyond)) == [power] * 3


def test_gradients_of_equal_elements_and_at_borders_are_torchs() -> None:
    ties = lucid.tensor([2.0, 1, 2, 3, 2])
    assert numbers(lucid.grad(lambda x: x.median())(ties)) == pytest.approx([1 / 3, 0, 1 / 3, 0, 1 / 3])
    assert math.isnan(lucid.value_and_grad(lambda x: x.median())(lucid.tensor([1.0, math.nan]))[0].item())
    for cells in (1, 2, 4):
        gradient = lucid.grad(lambda x, n=cells: F.adaptive_max_pool1d(x, n).sum())(lucid.ones(1, 1, 5)).numpy()
        assert gradient.ravel().tolist() == {1: [1, 0, 0, 0, 0], 2: [1, 0, 1, 0, 0], 4: [1, 1, 1, 1, 0]}[cells]
    scores = lucid.tensor([[2.0, 1.0, 1.5]])  # the second is lower by the margin
    assert numbers(lucid.grad(lambda x: F.multi_margin_loss(x, lucid.tensor([0])))(scores))[0][1] == 0
    image, places = lucid.tensor([[[[1.0, 3, 7]]]]), lucid.tensor([[[[-1.0, 0], [0, 0], [0.5, 0], [1, 0], [2, 0]]]])
    for mode in ("border", "reflection"):
        gradient = lucid.grad(lambda p, m=mode: F.grid_sample(image, p, padding_mode=m, align_corners=True).sum())(
            places
        )
        assert gradient[..., 0].numpy().ravel().tolist() == [0, 4, 4, 0, 0 if mode == "border" else -4]


def test_rounding_of_logarithms_of_powers_of_two_has_no_part_in_gradients() -> None:
    gradient = lucid.grad(lambda x: x.log2().sum())(lucid.tensor([0.5, 2.0, 3.0])).numpy()
    np.testing.assert_allclose(gradient * math.log(2), [2, 0.5, 1 / 3], rtol=1e-6)


def test_equal_elements_share_a_gradient_as_in_torch() -> None:
    a, b = lucid.tensor([1.0, 2.0, 3.0]), lucid.tensor([1.0, 5.0, 0.0])
    assert [numbers(g) for g in lucid.grad(lambda a, b: lucid.maximum(a, b).sum())(a, b)] == [[0.5, 0, 1], [0.5, 1, 0]]
    assert [numbers(g) for g in lucid.grad(lambda a, b: lucid.minimum(a, b).sum())(a, b)] == [[0.5, 1, 0], [0.5, 0, 1]]
    ties = lucid.tensor([2.0, 1.0, 2.0])
    assert numbers(lucid.grad(lambda x: x.amax())(ties)) == [0.5, 0, 0.5]
    assert numbers(lucid.grad(lambda x: x.max(dim=0).values)(ties)) == [1, 0, 0]
    assert numbers(lucid.grad(lambda x: F.relu(x).sum())(lucid.tensor([0.0, -1, 1]))) == [0, 0, 1]
    assert numbers(lucid.grad(lambda x: x.prod())(lucid.tensor([0.0, 2, 3]))) == [6, 0, 0]


def test_what_is_combined_in_one_place_shares_or_multiplies_gradients() -> None:
    x, values, places = lucid.tensor([2.0, 5, 0, 3]), lucid.tensor([2.0, 0, 4, 4, 0]), lucid.tensor([0, 0, 2, 2, 3])
    for reduce, kept, to_x, to_values in (
        ("amax", True, [0.5, 1, 0, 1], [0.5, 0, 0.5, 0.5, 0]),
        ("amin", True, [0, 1, 1, 0], [0, 1, 0, 0, 1]),
        ("amax", False, [0, 1, 0, 0], [1, 0, 0.5, 0.5, 1]),
        ("prod", True, [0, 1, 16, 0], [0, 4, 0, 0, 3]),
        ("prod", False, [0, 1, 0, 0], [0, 2, 4, 4, 1]),
    ):

        def total(x: Tensor, values: Tensor, how: Any = (reduce, kept)) -> Tensor:
            return x.scatter_reduce(0, places, values, how[0], include_self=how[1]).sum()

        assert [numbers(gradient) for gradient in lucid.grad(total)(x, values)] == [to_x, to_values], reduce
        assert_parity(lucid.grad(total), x, values)


def test_extremes_of_outputs_that_are_computed_again_are_those_of_the_elements_that_they_equal() -> None:
    """Of GELU, SiLU, norms and attention, whose outputs are rounded otherwise the second time."""
    x = lucid.tensor(np.random.default_rng(0).standard_normal((1, 1, 60, 16)).astype(np.float32))
    for f in (
        F.gelu,
        lambda x: F.gelu(x, approximate="tanh"),
        F.silu,
        lambda x: F.layer_norm(x, (16,)),
        lambda x: F.rms_norm(x, (16,)),
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ):
        for extreme in (lucid.amax, lucid.amin):
            there = (f(x) == extreme(f(x), dim=-1, keepdim=True)).float()
            gradient = lucid.grad(lambda x, f=f, extreme=extreme: extreme(f(x), dim=-1).sum())(x)
            expected = lucid.grad(lambda x, f=f, there=there: (f(x) * there).sum())(x)
            np.testing.assert_allclose(gradient.numpy(), expected.numpy(), rtol=1e-4, atol=1e-4)


def test_outputs_that_are_computed_again_may_be_the_input_of_one_another_any_number_of_times() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(400):
            x = F.rms_norm(x, (3,))
        return (x * V).sum()

    np.testing.assert_allclose(
        lucid.grad(f)(V).numpy(), lucid.grad(lambda x: (F.rms_norm(x, (3,)) * V).sum())(V).numpy(), atol=1e-3
    )


def test_at_a_bound_the_gradient_is_that_of_torch() -> None:
    x, low, high = lucid.tensor([-3.0, -1, 0, 1, 3]), lucid.tensor(-1.0), lucid.tensor(1.0)
    for bounds in ((-1, 1), (low, high)):
        assert numbers(lucid.grad(lambda x, bounds=bounds: x.clamp(*bounds).sum())(x)) == [0, 1, 1, 1, 0]
    assert numbers(lucid.grad(lambda x: (x.clamp_min(low) + x.clamp_max(high)).sum())(x)) == [1, 2, 2, 2, 1]
    assert numbers(lucid.grad(lambda x: lucid.maximum(x, low).sum())(x)) == [0, 0.5, 1, 1, 1]
    to_bounds = lucid.grad(lambda x, low, high: x.clamp(low, high).sum())
    assert numbers(to_bounds(x, low, high)[1]) == numbers(to_bounds(x, low, high)[2]) == 1
    assert [numbers(g) for g in to_bounds(x, high, low)[1:]] == [0, 5]  # min is above max, so that max is the result
    for f, expected in {
        F.hardtanh: [0, 0, 1, 0, 0],
        F.relu6: [0, 0, 0, 1, 1],
        F.hardsigmoid: [0, 1 / 6, 1 / 6, 1 / 6, 0],
        F.hardswish: [0, 1 / 6, 1 / 2, 5 / 6, 1],
    }.items():
        np.testing.assert_allclose(lucid.grad(lambda x, f=f: f(x).sum())(x).numpy(), expected, rtol=1e-6)


def test_far_from_0_the_gradients_of_logarithms_and_exponentials_of_one_more_are_torchs() -> None:
    far = lucid.tensor([-math.inf, -100.0, 0, 1e30, math.inf])
    assert numbers(lucid.grad(lambda x: x.expm1().sum())(far)) == pytest.approx([0, 0, 1, math.inf, math.inf])
    np.testing.assert_allclose(lucid.grad(lambda x: x.log1p().sum())(far).numpy(), [0, -1 / 99, 1, 1e-30, 0], rtol=1e-6)


@pytest.mark.parametrize("floating", [False, True])
def test_hidden_keys_and_queries_that_see_none_have_no_gradients(floating: bool) -> None:
    generator = np.random.default_rng(0)
    query, key, value = (lucid.tensor(generator.standard_normal((1, 2, 3, 4)).astype(np.float32)) for _ in range(3))
    seen = np.array([[1, 0, 1], [0, 0, 0], [1, 0, 0]], bool)
    mask = Tensor(np.where(seen, 0, -np.inf).astype(np.float32) if floating else seen)
    gradients = lucid.grad(lambda q, k, v: (ops.attention(q, k, v, mask) ** 2).sum())(query, key, value)
    assert all(np.isfinite(x.numpy()).all() for x in gradients)
    assert not gradients[0].numpy()[:, :, 1].any() and gradients[0].numpy()[:, :, 0].any()
    assert not gradients[1].numpy()[:, :, 1].any() and not gradients[2].numpy()[:, :, 1].any()


def test_no_gradient_flows_through_constants() -> None:
    for constant in (lucid.stop_gradient, Tensor.detach, Tensor.data.fget, _in_no_grad):
        assert numbers(lucid.grad(lambda x, c=constant: (x * c(x * x)).sum())(V)) == [1, 4, 9]
        file = lucid.export.to_onnx(lambda x, c=constant: lucid.grad(lambda x: (x * c(x * x)).sum())(x), V)
        assert {node.op_type for node in file.graph.node} == {"Mul"}
    assert V.detach() is V and "stop_gradient" not in lucid.trace(lambda x: 2 * x.detach(), V).op_names()


def _in_no_grad(x: Tensor) -> Tensor:
    with lucid.no_grad():
        return x * 1


def test_the_vector_of_padding_and_a_frozen_table_have_no_gradient() -> None:
    table, ids = nn.Embedding(3, 2, padding_idx=1), lucid.tensor([0, 1, 1, 2, 2])
    assert numbers(lucid.grad(lambda: table(ids).sum(), wrt=table)()["weight"]) == [[1, 1], [0, 0], [2, 2]]
    with pytest.raises(GradientError, match="Embedding has no floating-point parameter with requires_grad"):
        lucid.grad(table, wrt=nn.Embedding(3, 2, _freeze=True))


def test_dropout_drops_the_same_elements_in_both_directions() -> None:
    model = nn.Dropout(0.5).train()
    value, gradient = lucid.value_and_grad(lambda x: model(x).sum())(ops.full((64,), 1.5))
    assert value.item() == pytest.approx((gradient.numpy() * 1.5).sum()) and set(numbers(gradient)) == {0.0, 2.0}


def test_quantized_weights_stay_as_they_are_and_let_gradients_through() -> None:
    model = lucid.quantize(nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 16)))
    graph = lucid.trace(lucid.grad(lambda x: (model(x) ** 2).sum()), lucid.spec("N", 32))
    assert all(c.array.size < 1000 for c in _constants(graph) if c.array.dtype.kind == "f")
    x = lucid.randn(2, 32)
    dense = [model[i].weight[:] for i in range(2)]

    def plain(x: Tensor) -> Tensor:
        return (F.linear(F.linear(x, dense[0], model[0].bias), dense[1], model[1].bias) ** 2).sum()

    np.testing.assert_allclose(graph(x.numpy()), lucid.grad(plain)(x).numpy(), rtol=1e-3, atol=1e-5)
    for target in ("any", lucid.export.Target("portable", opset=21)):
        file = lucid.export.to_onnx(lucid.grad(lambda x: (model(x) ** 2).sum()), ("N", 32), target=target)
        assert sum(node.op_type == "DequantizeLinear" for node in file.graph.node) == 4  # there and back


def _constants(graph: lucid.Graph) -> list[Any]:
    return [value for node in graph.nodes() for value in node.inputs if hasattr(value, "array")]


@pytest.mark.parametrize("op", [ops.int8_linear_dynamic, ops.int8_linear_rows])
def test_rounding_of_inputs_counts_as_none(op: Any) -> None:
    codes, scales = lucid.tensor(np.arange(-6, 6).reshape(4, 3).astype(np.int8)), lucid.tensor([1.0, 2.0, 3.0, 4.0])
    gradient = lucid.grad(lambda x: op(x, codes, scales).sum())(X)
    np.testing.assert_allclose(gradient.numpy(), np.tile((codes.numpy() * scales.numpy()[:, None]).sum(0), (2, 1)))


# What is refused -----------------------------------------------------------------------------------------------------


def test_a_parameter_that_the_value_does_not_reach_has_zeros_and_is_named_once() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    both = lucid.value_and_grad(lambda x: model[0](x).sum(), wrt=model)
    with pytest.warns(UserWarning, match=r"value does not depend on 1\.weight, 1\.bias: the gradient is zeros; freeze"):
        _, gradients = both(X)
    assert not gradients["1.weight"].numpy().any() and gradients["1.weight"].shape == (3, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        both(X)
        assert not lucid.grad(lambda x, y: x.sum())(V, V)[1].numpy().any()  # of arguments, nothing is said
    for call in (lucid.grad(lambda x: model[0](x).sum(), wrt=model), lambda x: lucid.trace(lambda x: both(x)[0], x)):
        with pytest.warns(UserWarning, match="value does not depend on") as caught:
            call(X)
        assert caught[0].filename == __file__  # and no file of Lucid


MODEL = nn.Linear(3, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: lucid.grad(lambda x: x * 2)(V),
            GradientError,
            r"gave float32\[3\], expected a floating-point scalar, su",
        ),
        (
            lambda: lucid.grad(lambda x: x.sum().long())(V),
            GradientError,
            r"gave int64\[\], expected a floating-point sc",
        ),
        (lambda: lucid.grad(lambda x: (x.sum(), x))(V), GradientError, "gave tuple, .*; write has_aux=True for"),
        (
            lambda: lucid.grad(lambda x: x.sum(), has_aux=True)(V),
            GradientError,
            r"expected \(scalar, aux\) for has_aux",
        ),
        (
            lambda: lucid.grad(lambda x: (x.sum(), "a"), has_aux=True)(V),
            GradientError,
            "aux holds str, expected tensors",
        ),
        (
            lambda: lucid.grad(lambda x: nn.BatchNorm1d(3).train()(x).sum())(X),
            lucid.TracedValueError,
            r"BatchNorm1d: in training mode it changes its running statistics, .*: call eval\(\) on it",
        ),
        (lambda: lucid.grad(V), TypeError, "value_and_grad: got Tensor, expected a function"),
        (
            lambda: lucid.value_and_grad(lambda n: MODEL(n[None].astype("float32")).sum())(lucid.tensor([1, 2])),
            GradientError,
            "no argument is a floating-point tensor; for a model give wrt=model",
        ),
        (lambda: lucid.grad(lambda x: x * x)(3.0), GradientError, "no argument is a floating-point tensor"),
        (
            lambda: lucid.grad(MODEL, wrt=dict(MODEL.named_parameters())),
            TypeError,
            "wrt is of type dict, expected None",
        ),
        (lambda: lucid.grad(MODEL, wrt="weight"), TypeError, r"wrt is of type str, expected None, a module, or"),
        (
            lambda: lucid.grad(MODEL, wrt=(MODEL, "head.*")),
            GradientError,
            r"wrt: 'head\.\*' matches no parameter; there are weight, b",
        ),
        (
            lambda: lucid.grad(MODEL, wrt=nn.Dropout()),
            GradientError,
            "Dropout has no floating-point parameter with requires_grad",
        ),
        (lambda: lucid.grad(lambda x: x.sum())(V, {1}), TypeError, "an argument is or holds set, expected tensors"),
    ],
)
def test_what_has_no_gradient_is_an_error(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_an_error_names_the_module_and_a_primitive_of_ones_own_gets_a_rule() -> None:
    cube: Op[[Tensor], Tensor] = Op(lambda x: x, name="cube_of_a_test", kernel=lambda x: x**3, rule=_kept)

    class Cubes(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return cube(self.inner(x)).sum()

    model = nn.Sequential(Cubes())
    with pytest.raises(
        GradientError, match=r"^0: cube_of_a_test has no derivative: give it a body .*\['cube.*stop_gradient\(x\)"
    ):
        lucid.grad(model, wrt=model)(X)
    with pytest.raises(GradientError) as caught:
        lucid.trace(lambda x: lucid.grad(model, wrt=model)(x)["0.inner.bias"], X)
    line = r"in Cubes\.forward, .*test_gradients\.py:\d+: return cube\(self\.inner\(x\)\)\.sum\(\)"
    assert re.fullmatch(line, caught.value.__notes__[0])
    RULES["cube_of_a_test"] = Rule(lambda g, y, x: g * 3 * x * x, "scaled")
    assert numbers(lucid.grad(lambda x: cube(x).sum())(V)) == [3, 12, 27]


def test_a_rule_that_is_none_or_gives_something_else_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    area: Op[[Tensor, Tensor], Tensor] = Op(
        lambda x, y: x, name="area_of_a_test", kernel=lambda x, y: x * y, rule=lambda x, y: x
    )
    both = lucid.grad(lambda x, y: area(x, y).sum())
    wrong: dict[str, Any] = {
        "gives Tensor, expected a tensor or None for each of 2": Rule(lambda g, z, x, y: g * y),
        "gives Tensor, Tensor, Tensor, exp": Rule(lambda g, z, x, y: (g * y, g * x, g)),
        "gives Tensor, float, expected": Rule(lambda g, z, x, y: (g * y, cast(Any, 1.0))),
        r"rule is a function; write RULES\['area_of_a_test'\] = Rule": lambda g, z, x, y: (g * y, g * x),
    }
    for message, rule in wrong.items():
        monkeypatch.setitem(RULES, "area_of_a_test", rule)
        with pytest.raises(GradientError, match=f"area_of_a_test: .*{message}"):
            both(V, V)
    monkeypatch.setitem(RULES, "area_of_a_test", Rule(lambda g, z, x, y: g * y))
    assert numbers(lucid.grad(lambda x: area(x, lucid.tensor([1.0, 2.0, 3.0])).sum())(V)) == [1, 2, 3]
    monkeypatch.setitem(RULES, "area_of_a_test", Rule(lambda g, z, x, y: (g * y, None)))
    assert numbers(both(V, V)[1]) == [0, 0, 0]
    with pytest.raises(
        TypeError, match="op halves_of_a_test: has no body of other ops, so it needs a kernel and a rule"
    ):
        Op(lambda x: x, name="halves_of_a_test", kernel=lambda x: x / 2)


def _kept(x: TensorType) -> TensorType:
    return x


def test_gradients_are_computed_in_half_precision_too() -> None:
    assert_parity(lucid.grad(lambda x, w: (F.gelu(x @ w).exp()).sum()), X.half(), lucid.ones(3, 2).half())
