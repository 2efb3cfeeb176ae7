"""The layers: each compared with its formula, eagerly and exported."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F
from lucid.testing import assert_parity
from tests.combinations import in_pairs

Array = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A layer, its formula in float64 and its input."""

    name: str
    make: Callable[[], Any]
    formula: Callable[[Any, Array], Array]
    spec: lucid.TensorType = lucid.spec("N", "L", 6)


def wide(parameter: Any) -> Array:
    array: Array = parameter.numpy().astype(np.float64)
    return array


def layer_norm(m: Any, x: Array) -> Array:
    axes = tuple(range(-len(m.normalized_shape), 0))
    y = (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + m.eps)
    y = y if m.weight is None else y * wide(m.weight)
    return y if m.bias is None else y + wide(m.bias)


def rms_norm(m: Any, x: Array) -> Array:
    eps = np.finfo(np.float32).eps if m.eps is None else m.eps
    y = x / np.sqrt((x**2).mean(-1, keepdims=True) + eps)
    return y if m.weight is None else y * wide(m.weight)


def softmax(x: Array, axis: int) -> Array:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def exact_gelu(m: Any, x: Array) -> Array:
    return x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))) / 2


def tanh_gelu(m: Any, x: Array) -> Array:
    return x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def random_state(module: Any) -> Any:
    """Weights other than a norm's initial ones, which have no effect."""
    module.load_state_dict({key: lucid.randn(*tensor.shape) for key, tensor in module.state_dict().items()})
    return module


CASES = [
    Case("Linear", lambda: nn.Linear(6, 4), lambda m, x: x @ wide(m.weight).T + wide(m.bias)),
    Case("Linear, no bias", lambda: nn.Linear(6, 4, bias=False), lambda m, x: x @ wide(m.weight).T),
    Case(
        "Embedding", lambda: nn.Embedding(2, 3), lambda m, x: wide(m.weight)[x], lucid.spec("N", "L", dtype=lucid.int64)
    ),
    Case("LayerNorm", lambda: nn.LayerNorm(6), layer_norm),
    Case("LayerNorm, two axes", lambda: nn.LayerNorm((4, 6), eps=1e-3), layer_norm, lucid.spec("N", 4, 6)),
    Case("LayerNorm, no bias", lambda: nn.LayerNorm(6, bias=False), layer_norm),
    Case("LayerNorm, plain", lambda: nn.LayerNorm(6, elementwise_affine=False), layer_norm),
    Case("RMSNorm", lambda: nn.RMSNorm(6), rms_norm),
    Case("RMSNorm, plain", lambda: nn.RMSNorm(6, eps=1e-3, elementwise_affine=False), rms_norm),
    Case("GELU", nn.GELU, exact_gelu),
    Case("GELU, tanh", lambda: nn.GELU("tanh"), tanh_gelu),
    Case("ReLU", nn.ReLU, lambda m, x: np.maximum(x, 0)),
    Case("SiLU", nn.SiLU, lambda m, x: x / (1 + np.exp(-x))),
    Case("Tanh", nn.Tanh, lambda m, x: np.tanh(x)),
    Case("Softmax", nn.Softmax, lambda m, x: softmax(x, -1)),
    Case("Softmax, axis 1", lambda: nn.Softmax(1), lambda m, x: softmax(x, 1)),
    Case("Identity", nn.Identity, lambda m, x: x),
    Case(
        "Sequential",
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2)),
        lambda m, x: np.maximum(x @ wide(m[0].weight).T + wide(m[0].bias), 0) @ wide(m[2].weight).T + wide(m[2].bias),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_layer_computes_its_formula(case: Case) -> None:
    module = random_state(case.make())
    shape = [size if isinstance(size, int) else 3 for size in case.spec.shape]
    x = lucid.randn(*shape).astype(case.spec.dtype).numpy()
    x = abs(x) if x.dtype == np.int64 else x
    expected = case.formula(module, x if x.dtype == np.int64 else x.astype(np.float64))
    got = module(lucid.Tensor(x))
    assert got.dtype is lucid.float32
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=3e-6, atol=3e-6)


@pytest.mark.parametrize("opset", [17, 18, 20, 23, 26])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_exported_layer_computes_the_same(case: Case, opset: int) -> None:
    report = assert_parity(random_state(case.make()), case.spec, opset=opset)
    assert report.max_abs < 1e-5


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
@pytest.mark.parametrize(
    "make", [lambda: nn.Linear(6, 4), lambda: nn.LayerNorm(6), lambda: nn.RMSNorm(6), nn.GELU, nn.SiLU]
)
def test_layers_keep_the_type_of_their_input(make: Callable[[], nn.Module], dtype: str) -> None:
    reference = make()
    module = make().to(dtype)
    module.load_state_dict(reference.state_dict())
    x = lucid.randn(3, 6)
    got = module(x.astype(dtype))
    assert got.dtype.name == nn.Dropout2d().train()(got).dtype.name == dtype
    tolerance = {"float16": 5e-3, "bfloat16": 4e-2, "float64": 1e-5}[dtype]
    np.testing.assert_allclose(got.astype("float32").numpy(), reference(x).numpy(), rtol=tolerance, atol=tolerance)


def test_activations_are_of_their_own_kind_alone() -> None:
    """Ported code chooses layers by their class."""
    assert not isinstance(nn.Mish(), nn.ReLU6) and not isinstance(nn.CELU(), nn.ELU)
    assert not isinstance(nn.Softmin(), nn.LogSoftmax) and isinstance(nn.SwiGLU(2, 2), nn.GatedMLP)
    assert repr(nn.Softmin(dim=1)) == "Softmin(axis=1)" and nn.SELU(inplace=True)(lucid.tensor(0.0)).item() == 0


def test_sizes_may_be_numpys() -> None:
    two, x = np.int64(2), lucid.ones(1, 4, 5, 5)
    for layer in (nn.Conv2d(2, 4, two), nn.MaxPool2d(two), nn.LayerNorm(two), nn.Unfold(two)):
        assert "int64" not in repr(layer)
    assert nn.ReflectionPad2d(two)(x).shape == (1, 4, 9, 9)
    assert F.max_pool2d(x, two, [], np.int64(1)).shape == (1, 4, 3, 3)


def test_a_batch_without_rows_is_normalized_by_its_own_statistics_in_training() -> None:
    assert F.batch_norm(lucid.ones(0, 2), None, None, training=True).shape == (0, 2)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_batches_in_half_precision_have_the_statistics_of_float32(dtype: str) -> None:
    x = lucid.tensor(np.random.default_rng(0).normal(300, 200, (4000, 2)), dtype=dtype)
    exact = wide(x)
    module = nn.BatchNorm1d(2, dtype=dtype, momentum=1.0).train()
    expected = (exact - exact.mean(0)) / exact.std(0)
    for y in (module(x), F.batch_norm(x, None, None, training=True)):
        assert y.dtype == x.dtype
        np.testing.assert_allclose(wide(y), expected, atol=0.02)
    np.testing.assert_allclose(wide(module.running_mean), exact.mean(0), rtol=0.01)
    if dtype == "float16":
        with pytest.raises(OverflowError, match="^BatchNorm1d: running_var.*float16"):
            module(x * 5)


def test_without_momentum_running_statistics_are_means_over_batches() -> None:
    module = nn.BatchNorm1d(1, momentum=None).train()
    for batch in ([1.0, 3.0], [5.0, 7.0], [9.0, 11.0]):
        module(lucid.tensor(batch).unsqueeze(1))
    assert module.running_mean.tolist() == [6.0] and module.running_var.tolist() == [2.0]


def test_functions_take_their_weights_as_arguments() -> None:
    x, weight, bias = lucid.randn(2, 3), lucid.randn(4, 3), lucid.randn(4)
    np.testing.assert_allclose(
        F.linear(x, weight, bias).numpy(), x.numpy() @ weight.numpy().T + bias.numpy(), rtol=1e-5
    )
    assert F.relu(lucid.tensor([-1.0, 2.0])).tolist() == [0, 2]
    assert F.embedding(lucid.tensor([1, 0]), lucid.tensor([[1.0], [2.0]])).tolist() == [[2], [1]]
    np.testing.assert_allclose(F.softmax(x).numpy().sum(-1), 1, rtol=1e-6)
    np.testing.assert_allclose(np.exp(F.log_softmax(x).numpy()), F.softmax(x).numpy(), rtol=1e-5)
    assert F.dropout(x, 0.5, training=False) is x
    assert not np.any(F.dropout(x, 1.0).numpy())
    assert F.layer_norm(x, (3,)).shape == (2, 3)
    assert F.rms_norm(x).shape == (2, 3)


def test_extreme_values_give_no_nan() -> None:
    x = lucid.tensor([-1e30, -100.0, 0.0, 100.0, 1e30])
    for layer in (nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Tanh(), nn.Softmax(), nn.ReLU()):
        assert np.isfinite(layer(x).numpy()).all(), layer
    assert np.isfinite(nn.LayerNorm(4)(lucid.full((2, 4), 3.0)).numpy()).all()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Linear(0, 3), ValueError, "Linear: in_features is 0, expected a whole number of 1 or more"),
        (lambda: nn.Linear(3, -1), ValueError, "Linear: out_features is -1"),
        (lambda: nn.Linear(3, 2.5), ValueError, "Linear: out_features is 2.5"),  # type: ignore[arg-type]
        (lambda: nn.Embedding(3, 0), ValueError, "Embedding: embedding_dim is 0"),
        (lambda: nn.LayerNorm((3, 0)), ValueError, "LayerNorm: normalized_shape is 0"),
        (lambda: nn.RMSNorm(0), ValueError, "RMSNorm: normalized_shape is 0"),
        (lambda: nn.Dropout(1.5), ValueError, "Dropout: p is 1.5, expected a probability from 0 to 1"),
        (lambda: nn.Dropout(math.nan), ValueError, "Dropout: p is nan"),
        (lambda: nn.Dropout(None), TypeError, "Dropout: p is None, expected a number"),  # type: ignore[arg-type]
        (lambda: nn.Conv2d(1, 1, 0), ValueError, "^Conv2d: kernel_size is 0, expected 1 or more"),
        (lambda: nn.Conv2d(1, 1, 1.5), TypeError, "^Conv2d: kernel_size is 1.5, expected a whole"),  # type: ignore[arg-type]
        (lambda: nn.ConvTranspose1d(1, 1, 1, stride=0), ValueError, "^ConvTranspose1d: stride is 0, expected 1"),
        (lambda: F.avg_pool1d(lucid.ones(1, 1, 4), 2, 0), ValueError, "^avg_pool1d: stride is 0, expected 1 or more"),
        (lambda: F.adaptive_max_pool1d(lucid.ones(1, 1, 4), 0), ValueError, "^adaptive_max_pool1d: output_size is 0"),
        (
            lambda: F.batch_norm(lucid.ones(1, 3), None, None, training=True),
            ValueError,
            r"^batch_norm: got 1 value\(s\)",
        ),
        (lambda: nn.MixtureOfExperts(4, 1.5, 8, 8), ValueError, "^MixtureOfExperts: k is 1.5"),  # type: ignore[arg-type]
        (lambda: nn.LinearScaling(math.nan), ValueError, "^LinearScaling: factor is nan, expected a finite number"),
        (lambda: nn.RotaryEmbedding(8, 0), ValueError, "^RotaryEmbedding: base is 0, expected a number above 0"),
        (
            lambda: nn.PixelShuffle(3)(lucid.ones(1, 4, 2, 2)),
            ValueError,
            r"^pixel_shuffle: 3\^2 does not divide",
        ),
        (
            lambda: nn.PixelUnshuffle(2)(lucid.ones(1, 1, 2, 3)),
            ValueError,
            "^pixel_unshuffle: 2 does not divide",
        ),
        (lambda: nn.PixelShuffle(0)(lucid.ones(1, 4, 2, 2)), ValueError, "^pixel_shuffle: upscale_factor is 0"),
        (lambda: nn.ChannelShuffle(0)(lucid.ones(1, 4, 2)), ValueError, "^channel_shuffle: groups is 0"),
        (lambda: F.embedding(lucid.tensor([1]), lucid.ones(3, 2), 3), ValueError, "^embedding: padding_idx is 3"),
        (
            lambda: F.embedding_bag(
                lucid.tensor([[0, 1]]), lucid.ones(3, 2), mode="sum", per_sample_weights=lucid.ones(2)
            ),
            ValueError,
            r"^embedding_bag: per_sample_weights have shape \[2\], expected one for each index",
        ),
        (lambda: nn.Conv2d(1, 1, 1, device="cuda"), ValueError, "^Conv2d: device is 'cuda'"),  # type: ignore[call-arg]
        (lambda: nn.Transformer(8, 2, device="cuda"), ValueError, "^Transformer: device"),  # type: ignore[call-arg]
        (
            lambda: nn.TransformerEncoderLayer(8, 2, mode=1),
            TypeError,
            "^TransformerEncoderLayer",
        ),  # type: ignore[call-arg]
        (lambda: nn.GELU("fast"), ValueError, 'GELU: approximate is \'fast\', expected "none" or "tanh"'),
        (lambda: nn.MultiHeadAttention(10, 3), ValueError, "embed_dim 10 is not divisible by num_heads 3"),
        (
            lambda: nn.MultiHeadAttention(8, 4, num_kv_heads=3),
            ValueError,
            "num_heads 4 is not divisible by num_kv_heads 3",
        ),
        (lambda: nn.MultiHeadAttention(8, 2, dropout=-0.1), ValueError, "MultiHeadAttention: dropout is -0.1"),
        (lambda: nn.MultiHeadAttention(0, 2), ValueError, "MultiHeadAttention: embed_dim is 0"),
        (lambda: nn.Linear(3, 3)(lucid.zeros(2, 4)), ValueError, r"linear: input \[2, 4\] and weight \[3, 3\]"),
        (
            lambda: nn.LayerNorm(3)(lucid.zeros(2, 4)),
            ValueError,
            r"layer_norm: input \[2, 4\] does not end with .*\[3\]",
        ),
        (lambda: nn.RMSNorm(3)(lucid.zeros(2, 4)), ValueError, r"rms_norm: input \[2, 4\] does not end with .*\[3\]"),
        (lambda: nn.LayerNorm(3)(lucid.zeros(2, 3, dtype="int64")), TypeError, "layer_norm: got int64"),
        (lambda: nn.Softmax()(lucid.arange(3)), TypeError, "softmax: got int64"),
        (lambda: nn.Embedding(3, 2)(lucid.tensor([1, 3])), IndexError, "from 1 to 3, expected 0 to 2; the t"),
        (lambda: nn.Embedding(3, 2)(lucid.tensor([-1])), IndexError, "from -1 to -1, .* the table has 3 rows"),
        (lambda: nn.Embedding(3, 2)(lucid.tensor([0.5])), TypeError, "expected integers"),
        (
            lambda: F.embedding(lucid.tensor([0]), lucid.zeros(1, 1, 1)),
            ValueError,
            r"embedding: the table is float32\[1, 1, 1\], expected \(entries, width\)",
        ),
        (lambda: F.log_softmax(lucid.tensor(1.0)), IndexError, "log_softmax: axis -1 is out of range .* of 0 axes"),
        (lambda: nn.GLU()(lucid.tensor(1.0)), IndexError, "glu: axis -1 is out of range for a tensor of 0 axes"),
        (lambda: nn.Linear(1, 1)(lucid.tensor(1.0)), ValueError, r"linear: input \[\] and weight \[1, 1\]"),
    ],
)
def test_bad_input_is_an_error(make: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_layers_that_know_their_inputs_export_without_specs() -> None:
    for layer, shape in ((nn.Linear(3, 2), ["N", 3]), (nn.Embedding(5, 2), ["N", "L"])):
        graph = lucid.trace(layer)
        assert [str(size) for size in graph.inputs[0].type.shape] == [str(size) for size in shape]
    assert lucid.trace(nn.Sequential(nn.Linear(3, 2), nn.ReLU())).inputs[0].name == "x"


# Remainders and quotients of floats -----------------------------------------------------------------------------------

SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.1,
    -0.1,
    2.5,
    3e-3,
    1e6 + 0.5,
    -1e6 - 0.5,
    1e30,
    -7e-30,
    math.inf,
    -math.inf,
    math.nan,
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_float_remainders_and_quotients_are_pythons(dtype: str) -> None:
    generator = np.random.default_rng(0)
    numbers = np.concatenate([SPECIAL, generator.standard_normal(40) * 10.0 ** generator.integers(-4, 7, 40)])
    with np.errstate(over="ignore"):
        numbers = numbers.astype(lucid.core.graph.types.as_dtype(dtype).numpy)
    x, y = numbers[:, None], numbers[None, :]
    # Python's own, in float64; Python raises for a division by zero, torch and NumPy do not.
    with np.errstate(divide="ignore", invalid="ignore"):
        wide = numbers.astype(np.float64)
        exact = [[divmod(float(a), float(b)) if b else (a / b, math.nan) for b in wide] for a in wide]
    quotient, rest = np.moveaxis(np.asarray(exact), -1, 0)

    def model(x: lucid.Tensor, y: lucid.Tensor) -> tuple[lucid.Tensor, lucid.Tensor]:
        return x // y, x % y

    specs = lucid.spec("N", 1, dtype=dtype), lucid.spec(1, "N", dtype=dtype)
    results = [model(lucid.tensor(x), lucid.tensor(y))]
    for target in ("any", "cpu", "portable"):
        results.append(lucid.runtime.Session(lucid.export.to_onnx(model, *specs, target=target))(x, y))
    for pair in results:
        for got, want in zip(pair, (quotient, rest), strict=True):
            with np.errstate(over="ignore", invalid="ignore"):
                want = want.astype(numbers.dtype).astype(np.float64)
            np.testing.assert_allclose(
                np.asarray(got).astype(np.float64), want, rtol=2 * float(np.spacing(numbers.dtype.type(1)))
            )


def test_known_remainders_and_quotients() -> None:
    x = lucid.tensor([1.0, -1.0, 7.0, -7.0])
    np.testing.assert_array_equal((x // 0.1).numpy(), [9, -10, 69, -70])
    np.testing.assert_array_equal((x % math.inf).numpy(), [1, math.inf, 7, math.inf])
    np.testing.assert_array_equal((x // -math.inf).numpy(), [-1, 0, -1, 0])
    assert (lucid.tensor([-1e-3, 999_999.9, 1e6]) % 0.7 >= 0).all()
    assert (lucid.tensor([5]) % 2.5).dtype is lucid.float32


# Elements by their index along an axis --------------------------------------------------------------------------------


@in_pairs(
    specs=[(("N", 4, 5), ("N", 4, 5)), (("N", 4, 5), (1, 1, 1)), (("N", 4, 5), ("N", 1, 5)), ((1, 4, 1), ("N", 4, 5))],
    axis=[0, 1, -1],
    dtype=[np.int64, np.int32, np.int8],
)
def test_take_along_broadcasts_the_other_axes(specs: tuple[Any, Any], axis: int, dtype: Any) -> None:
    x_spec, index_spec = specs
    generator = np.random.default_rng(0)
    shapes = [tuple(3 if size == "N" else size for size in spec) for spec in (x_spec, index_spec)]
    x = generator.standard_normal(shapes[0]).astype(np.float32)
    indices = generator.integers(-shapes[0][axis], shapes[0][axis], shapes[1]).astype(dtype)
    expected = np.take_along_axis(x, indices, axis)

    def model(x: lucid.Tensor, indices: lucid.Tensor) -> lucid.Tensor:
        return lucid.ops.take_along(x, indices, axis=axis)

    eager = model(lucid.Tensor(x), lucid.Tensor(indices))
    assert eager.shape == expected.shape
    np.testing.assert_array_equal(eager.numpy(), expected)
    graph = lucid.trace(model, x_spec, lucid.spec(*index_spec, dtype=dtype))
    np.testing.assert_array_equal(graph(x, indices), expected)
    np.testing.assert_array_equal(np.asarray(lucid.runtime.Session(lucid.export.to_onnx(graph))(x, indices)), expected)


def test_take_along_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match=r"take_along: indices \[2\] have 1 axes, expected the 2 of \[2, 3\]"):
        lucid.ops.take_along(lucid.zeros(2, 3), lucid.tensor([0, 1]), axis=1)
    with pytest.raises(ValueError, match="do not broadcast"):
        lucid.ops.take_along(lucid.zeros(2, 3), lucid.tensor([[0], [1], [2]]), axis=1)
