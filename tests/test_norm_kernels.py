"""NumPy's kernels of normalisations compute what their bodies do: in any element types, and in pieces."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import lucid
from lucid import Tensor, ops
from lucid.export import to_onnx
from lucid.ops.kernels import pieces
from lucid.runtime import Session
from tests.combinations import in_pairs

FLOATS = (lucid.float64, lucid.float32, lucid.float16, lucid.bfloat16)
NORMS: dict[str, tuple[Any, dict[str, Any], int]] = {
    "layer_norm": (ops.layer_norm, {"axes": 1, "eps": 1e-5}, 2),
    "rms_norm": (ops.rms_norm, {"eps": 1e-6, "offset": 0.0}, 1),
    "rms_norm with an offset": (ops.rms_norm, {"eps": 1e-6, "offset": 1.0}, 1),
    "group_norm": (ops.group_norm, {"groups": 2, "eps": 1e-5}, 2),
    "group_norm of each channel": (ops.group_norm, {"groups": 6, "eps": 1e-5}, 2),
}


def tensor(shape: tuple[int, ...], dtype: lucid.DType, seed: int = 0) -> Tensor:
    return Tensor(np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype.numpy))


@in_pairs(name=NORMS, dtype=FLOATS, vectors=FLOATS)
def test_vectors_may_have_another_type_than_the_input(name: str, dtype: lucid.DType, vectors: lucid.DType) -> None:
    """As with norms kept in float32 in a model in half precision; the result has the type that arithmetic gives it."""
    norm, attributes, count = NORMS[name]
    x = tensor((3, 6, 4) if "group" in name else (3, 4, 6), dtype)
    operands = [x, *(tensor((6,), vectors, seed) for seed in range(1, count + 1))]
    got, expected = norm(*operands, **attributes), norm.expand(operands, attributes)[0]
    assert got.dtype == expected.dtype
    graph = lucid.trace(lambda *t: norm(*t, **attributes), *(lucid.spec(*t.shape, dtype=t.dtype) for t in operands))
    assert graph.outputs[0].type.dtype == got.dtype
    unit = float(max(ml_dtypes.finfo(t.dtype.numpy).eps for t in operands))  # the body rounds to half more often
    np.testing.assert_allclose(got.numpy().astype(float), expected.numpy().astype(float), rtol=0, atol=8 * unit)


def test_a_weight_and_a_bias_of_two_half_types_give_float32() -> None:
    x, weight, bias = (tensor(s, d) for s, d in (((2, 6), FLOATS[2]), ((6,), FLOATS[2]), ((6,), FLOATS[3])))
    assert ops.layer_norm(x, weight, bias).dtype == lucid.float32


@pytest.mark.parametrize(("shape", "axes"), [((4, 1), 1), ((4, 4), 1), ((1,), 1), ((4,), 2)], ids=str)
@pytest.mark.parametrize("what", ["weight", "bias"])
def test_a_weight_or_a_bias_of_another_shape_is_refused(what: str, shape: tuple[int, ...], axes: int) -> None:
    x, vector = lucid.randn(2, 4, 4), lucid.randn(*shape)
    message = rf"layer_norm: the last sizes of the input are .*, the {what} has \{list(shape)[:1]!s}"[:-1]
    with pytest.raises(ValueError, match=message):
        ops.layer_norm(x, *([vector] if what == "weight" else [None, vector]), axes=axes)
    if what == "weight" and axes == 1:
        with pytest.raises(ValueError, match=r"rms_norm: the last sizes of the input are \[4\], the weight has "):
            ops.rms_norm(x, vector)


@in_pairs(shape=[(5, 6, 7), (5, 6), (2, 6, 3, 0), (0, 6, 2), (1, 6, 2, 3, 4)], groups=[1, 2, 6], dtype=FLOATS)
def test_groups_in_pieces(
    shape: tuple[int, ...], groups: int, dtype: lucid.DType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "PIECE", 1 + 3 * max(1, int(np.prod(shape[1:])) // groups))  # three groups
    operands = [tensor(shape, dtype), tensor((6,), dtype, 1), tensor((6,), dtype, 2)]
    attributes = {"groups": groups, "eps": 1e-5}
    got, expected = ops.group_norm(*operands, **attributes), ops.group_norm.expand(operands, attributes)[0]
    assert got.shape == shape
    unit = float(ml_dtypes.finfo(dtype.numpy).eps)
    np.testing.assert_allclose(got.numpy().astype(float), expected.numpy().astype(float), rtol=0, atol=20 * unit)


def test_a_weight_with_an_offset_is_added_in_the_type_of_the_input() -> None:
    operands, options = [tensor((4, 8), lucid.float64), tensor((8,), lucid.float32, 1)], {"eps": 1e-6, "offset": 1.0}
    expected = ops.rms_norm.expand(operands, options)[0].numpy()
    np.testing.assert_allclose(ops.rms_norm(*operands, **options).numpy(), expected, rtol=1e-14)


@pytest.mark.parametrize("shape", [(1, 4, 1), (1, 4, 1, 1), (2, 4, 7)], ids=str)
def test_groups_of_a_few_numbers_close_to_each_other_are_exact_exported(shape: tuple[int, ...]) -> None:
    weight, bias = lucid.ones(4), lucid.tensor([0.1, 0.2, 0.3, 0.4])
    norm = lambda v: ops.group_norm(v, weight, bias, groups=4)  # noqa: E731
    x = np.full(shape, 1000.1, np.float32)
    got = Session(to_onnx(norm, shape), threads=1)(x).numpy()
    np.testing.assert_allclose(got, norm(Tensor(x)).numpy(), atol=1e-5)
