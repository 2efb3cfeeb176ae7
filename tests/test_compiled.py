"""`lucid.compile`: models that run in onnxruntime when they are called, for whatever sizes come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F
from lucid.runtime import compiled
from lucid.testing.tolerance import AS_EAGER, compare


def agree(model, fast, *args, **kwargs) -> None:
    expected, got = model(*args, **kwargs), fast(*args, **kwargs)
    assert got.shape == expected.shape and got.dtype == expected.dtype
    np.testing.assert_allclose(got.numpy(), expected.numpy(), rtol=1e-5, atol=1e-5)


def programs(fast) -> int:
    return int(repr(fast).split()[-1])


@pytest.fixture
def block():
    lucid.manual_seed(0)
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()


def test_a_model_computes_the_same(block):
    agree(block, lucid.compile(block), lucid.randn(2, 5, 16))


def test_sizes_that_vary_become_symbolic_and_the_others_stay(block):
    fast = lucid.compile(block)
    for n, length in [(2, 5), (2, 7), (3, 7), (3, 3), (1, 1), (8, 40)]:
        agree(block, fast, lucid.randn(n, length, 16))
    assert programs(fast) == 1, "the program of the last call computes all earlier sizes"
    assert "[s0, s1, 16]" in str(fast.inputs()[0])


def test_sizes_that_were_always_equal_share_a_name():
    def scores(x, mask):
        return (x + mask) @ x.mT

    fast = lucid.compile(scores)
    for n, length in [(2, 5), (3, 6), (4, 4)]:
        agree(scores, fast, lucid.randn(n, length, 4), lucid.randn(n, length, 4))
    agree(scores, fast, lucid.randn(4, 6, 4), lucid.randn(1, 6, 4))  # and no longer are


def test_arguments_are_nested_named_and_python_values(block):
    class Pair(NamedTuple):
        left: lucid.Tensor
        right: lucid.Tensor

    def model(pair, scale, *, parts, flip=False):
        out = Pair(pair.left * scale + parts["a"], pair.right - parts["b"][0])
        return {"sum": out.left + out.right, "pair": out if not flip else Pair(*reversed(out))}

    fast = lucid.compile(model)
    x, y = lucid.randn(2, 3), lucid.randn(2, 3)
    for scale, flip in [(2, False), (2.0, False), (2, True), (True, False), (-0.0, False), (0.0, False)]:
        expected = model(Pair(x, y), scale, parts={"a": x, "b": [y]}, flip=flip)
        got = fast(Pair(x, y), scale, parts={"a": x, "b": [y.numpy()]}, flip=flip)
        assert type(got["pair"]) is Pair and list(got) == ["sum", "pair"]
        np.testing.assert_allclose(got["pair"].left.numpy(), expected["pair"].left.numpy(), rtol=1e-6)
        assert (np.signbit(got["pair"].left.numpy()) == np.signbit(expected["pair"].left.numpy())).all()


def test_numbers_in_a_tuple_are_no_sizes():
    def model(x, axes):
        return x.sum(axes)

    agree(model, lucid.compile(model), lucid.randn(2, 3, 4), (0, 2))


def test_element_types_are_compiled_apart():
    model = nn.Linear(4, 3)
    fast = lucid.compile(lambda x: x * 2 + 1)
    for dtype in ("float32", "float64", "int64", "float16"):
        x = lucid.randn(2, 3).astype(dtype)
        assert compare(fast(x).numpy(), (x * 2 + 1).numpy(), AS_EAGER)
    assert programs(fast) == 4 and model is not None


def test_bfloat16_goes_in_and_out():
    fast = lucid.compile(lambda x: x * 2)
    x = lucid.randn(2, 3).astype("bfloat16")
    assert (fast(x).numpy() == (x * 2).numpy()).all()
    assert lucid.compile(lambda x: x.astype("bfloat16"))(lucid.ones(2)).dtype == lucid.bfloat16


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.load_state_dict({"weight": np.ones((3, 4), np.float32), "bias": np.zeros(3, np.float32)}),
        lambda model: model.weight.assign(np.zeros((3, 4), np.float32)),
    ],
    ids=["load_state_dict", "assign"],
)
def test_new_weights_are_noticed(change):
    model, x = nn.Linear(4, 3), lucid.randn(2, 4)
    fast = lucid.compile(model)
    agree(model, fast, x)
    change(model)
    agree(model, fast, x)
    assert programs(fast) == 1


def test_a_model_that_asks_for_a_size_is_compiled_for_each():
    def model(x):
        return x * 2 if x.shape[0] > 3 else x - 1

    fast = lucid.compile(model)
    for n in (2, 4, 5, 2):
        agree(model, fast, lucid.randn(n, 3))
    assert programs(fast) == 3


def test_programs_for_ever_other_values_are_bounded(monkeypatch):
    monkeypatch.setattr(compiled, "MOST_PROGRAMS", 3)
    fast = lucid.compile(lambda x, number: x * number)
    for number in range(6):
        assert fast(lucid.ones(2), number).numpy().tolist() == [number, number]
    assert programs(fast) == 3
    assert fast(lucid.ones(2), 0).numpy().tolist() == [0, 0], "made again"


def test_a_method_of_a_module_and_a_function_that_calls_a_compiled_model():
    model = nn.Linear(4, 4)
    fast = lucid.compile(model.forward)
    agree(model.forward, fast, lucid.randn(2, 4))
    lucid.testing.assert_parity(lambda x: F.relu(lucid.compile(model)(x)), ("N", 4))


def test_what_cannot_be_compiled_is_an_error_that_helps():
    with pytest.raises(TypeError, match="compile: the model has type int, expected a Module or a function"):
        lucid.compile(3)
    with pytest.raises(TypeError, match=r"compile: an argument is or holds set, expected tensors, arrays, .*partial"):
        lucid.compile(lambda x, names: x)(lucid.ones(2), {"a"})
    with pytest.raises(ValueError, match="linear: input"):
        lucid.compile(nn.Linear(4, 3))(lucid.ones(2, 5))


def test_an_error_leaves_nothing_behind():
    fast = lucid.compile(nn.Linear(4, 3))
    for _ in range(2):
        with pytest.raises(ValueError, match="linear: input"):
            fast(lucid.ones(2, 5))
    assert fast(lucid.ones(2, 4)).shape == (2, 3)
