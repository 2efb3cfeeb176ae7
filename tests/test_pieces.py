"""Kernels in pieces: no number of pieces and no number of threads changes what is computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

import lucid
from lucid import Tensor, ops
from lucid.ops.kernels import pieces

ROWS, WIDTH = 37, 24
X = np.random.default_rng(0).standard_normal((ROWS, WIDTH))
WEIGHT, BIAS = Tensor(X[0], "float32"), Tensor(X[1], "float32")
KERNELS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": ops.gelu,
    "gelu, tanh": lambda x: ops.gelu(x, approximate="tanh"),
    "silu": ops.silu,
    "softmax": ops.softmax,
    "layer_norm": lambda x: ops.layer_norm(x, WEIGHT.astype(x.dtype), BIAS.astype(x.dtype)),
    "rms_norm": lambda x: ops.rms_norm(x, WEIGHT.astype(x.dtype), offset=1.0),
    "depthwise": lambda x: ops.conv(
        x[None], x[:, None, :3], None, strides=(1,), pads=(1, 2), dilations=(2,), group=ROWS
    ),
}


@pytest.fixture(autouse=True)
def _threads() -> Iterator[None]:
    before = lucid.get_num_threads()
    yield
    lucid.set_num_threads(before)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("name", KERNELS)
def test_pieces_and_threads_change_no_result(name: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(X, dtype)
    whole = KERNELS[name](x).numpy()
    for size in ("PIECE", "LARGE"):
        monkeypatch.setattr(pieces, size, 5 * WIDTH)
    monkeypatch.setattr(pieces, "SHARED", 10 * WIDTH)
    outputs = []
    for threads in (1, 3):
        lucid.set_num_threads(threads)
        outputs.append(KERNELS[name](x).numpy())
    assert np.array_equal(outputs[0], outputs[1])
    assert outputs[0].dtype == whole.dtype
    np.testing.assert_allclose(outputs[0], whole, rtol=1e-6, atol=1e-7)


def test_infinity_in_a_piece_of_another_thread_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pieces, "LARGE", 4)
    monkeypatch.setattr(pieces, "SHARED", 8)
    with np.errstate(all="raise"):
        assert np.isnan(ops.softmax(Tensor(np.full((8, 4), np.inf))).numpy()).all()


def test_gelu_is_exact_to_the_last_digits_of_its_input() -> None:
    x = np.linspace(-10, 10, 4001, dtype=np.float32)
    exact = ops.gelu(Tensor(x.astype(np.float64))).numpy()
    assert (np.abs(ops.gelu(Tensor(x)).numpy() - exact) <= 2e-7 * np.abs(x) + 1e-30).all()


def test_the_checks_of_a_call_are_remembered_by_types_and_attributes_alone() -> None:
    x, y = Tensor(np.ones((2, 3))), Tensor(np.ones((4, 3)))
    for _ in range(2):
        assert ops.linear(x, y).shape == (2, 4)
        assert x.sum(1).shape == (2,)
        with pytest.raises(ValueError, match="linear: input"):
            ops.linear(x, y.T)
        with pytest.raises(IndexError, match="axis 2 is out of range"):
            x.sum(2)


@pytest.mark.parametrize("bias", ["float16", "float64"])
def test_linear_promotes_as_product_and_sum_do(bias: str) -> None:
    x, weight = Tensor([[1, 2]], "int32"), Tensor([[0.5, 0.25]], "float16")
    expected = x @ weight.mT + Tensor([1.0], bias)
    output = ops.linear(x, weight, Tensor([1.0], bias))
    assert output.dtype == expected.dtype
    assert output.tolist() == expected.tolist() == [[2.0]]
