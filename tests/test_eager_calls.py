"""Eager calls: what an op remembers of earlier calls, and that kernels warn of nothing."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable
from contextvars import ContextVar

import numpy as np
import pytest

import lucid.nn as nn
from lucid import Tensor, ops
from lucid.core.process.numpy_errstate import without_warnings
from lucid.nn import functional as F
from lucid.ops.op import REGISTERED
from tests.waiting import PATIENCE

LARGEST = Tensor(np.full((2, 2), np.finfo(np.float32).max))


def test_overflow_in_a_kernel_warns_of_nothing_whatever_the_caller_has_set() -> None:
    with np.errstate(all="raise"), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isinf((LARGEST + LARGEST).numpy()).all()
        assert np.isinf(ops.linear(LARGEST, LARGEST).numpy()).all()


def test_the_callers_handling_of_errors_is_as_before_a_call() -> None:
    with np.errstate(over="raise", divide="warn"):
        before = np.geterr()
        _ = LARGEST + LARGEST
        assert np.geterr() == before
        with pytest.raises(FloatingPointError):
            LARGEST.numpy() + LARGEST.numpy()


def test_calls_inside_of_quiet_calls_and_after_an_error() -> None:
    def fail() -> None:
        raise ValueError("inside")

    with np.errstate(all="raise"):
        assert without_warnings(lambda: without_warnings(np.add, LARGEST.numpy(), LARGEST.numpy()))[0, 0] == np.inf
        with pytest.raises(ValueError, match="inside"):
            without_warnings(fail)
        assert without_warnings(np.add, LARGEST.numpy(), LARGEST.numpy())[0, 0] == np.inf


def test_a_quiet_call_sets_no_context_variable_of_the_caller() -> None:
    variable: ContextVar[int] = ContextVar("variable", default=0)
    without_warnings(variable.set, 1)
    assert variable.get() == 0


def test_threads_are_quiet_at_the_same_time() -> None:
    inside, sums = threading.Barrier(2, timeout=PATIENCE), []

    def overflow() -> None:
        inside.wait()  # both threads are in a quiet call
        sums.append(float((LARGEST.numpy() + LARGEST.numpy())[0, 0]))

    def call() -> None:
        with np.errstate(all="raise"):
            without_warnings(overflow)

    workers = [threading.Thread(target=call) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sums == [np.inf, np.inf]


def test_attributes_that_are_equal_but_of_other_types_are_other_calls() -> None:
    x = Tensor(np.ones((2, 3)))
    assert ops.softmax(x, axis=1).shape == (2, 3)
    with pytest.raises(ValueError, match="heads is True"):
        [ops.attention(x[None], x[None], x[None], heads=heads) for heads in (1, True)]


def test_whole_numbers_of_numpy_are_options_like_those_of_python() -> None:
    x = Tensor(np.arange(24.0, dtype=np.float32).reshape(1, 3, 8))
    of_numpy = {"heads": np.int64(2), "kv_heads": np.int32(2), "window": np.int8(2), "window_after": np.uint8(0)}
    expected = ops.attention(x, x, x, **{name: int(value) for name, value in of_numpy.items()})  # type: ignore[arg-type]
    assert np.array_equal(ops.attention(x, x, x, **of_numpy).numpy(), expected.numpy())


def test_types_that_are_gone_are_not_taken_for_new_ones() -> None:
    """A call is known by the identity of its types, which Python gives away again."""
    for rows in range(1, 40):
        layer = nn.Linear(4, rows)
        layer.weight.assign(np.ones((rows, 4), np.float32))
        assert layer(Tensor(np.ones((2, 4)))).shape == (2, rows)
        del layer
        gc.collect(1)  # of the youngest objects alone: a suite leaves millions of older ones


def test_an_op_remembers_one_call_of_many_layers_of_a_size() -> None:
    layers = [nn.Linear(5, 7) for _ in range(3)]
    for layer in layers:
        layer.load_state_dict({name: t.numpy() for name, t in layer.state_dict().items()})
    x, linear = Tensor(np.ones((11, 5))), REGISTERED["linear"]
    before = len(linear._known)
    for layer in layers:
        layer(x)
    assert len(linear._known) == before + 1


def test_an_optional_operand_may_be_left_out_or_none() -> None:
    x, weight = Tensor(np.ones((2, 3))), Tensor(np.ones((4, 3)))
    results = [ops.linear(x, weight), ops.linear(x, weight, None), ops.linear(x, weight)]
    assert all((result.numpy() == 3).all() and result.shape == (2, 4) for result in results)


def test_an_unknown_attribute_is_named_even_if_it_cannot_be_remembered() -> None:
    with pytest.raises(TypeError, match="softmax: unknown argument wrong"):
        ops.softmax(LARGEST, wrong={})  # type: ignore[call-arg]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64", "float16"])
@pytest.mark.parametrize("rows", [0, 1, 2, 48, 49, 130])
def test_a_product_with_any_number_of_rows_is_laid_out_row_by_row(rows: int, dtype: str) -> None:
    generator = np.random.default_rng(rows)
    x, weight = (generator.integers(-4, 5, shape).astype(dtype) for shape in ((2, rows, 6), (5, 6)))
    product = ops.linear(Tensor(x), Tensor(weight)).numpy()
    assert np.array_equal(product, np.einsum("nri,oi->nro", x, weight))
    assert product.flags.c_contiguous


def test_silu_at_its_ends() -> None:
    x = Tensor([-np.inf, -1e4, -80.0, 0.0, 80.0, 1e4, np.inf])
    output = ops.silu(x).numpy()
    assert np.isnan(output[0])  # -inf * 0
    np.testing.assert_allclose(output[1:], [0, -80 * np.exp(-80), 0, 80, 1e4, np.inf], rtol=1e-5)


@pytest.mark.parametrize(
    "make", [lambda value: ops.full((7,), value), lambda value: F.pad(ops.full((1,), 1.0), (7, 0), value=value)]
)
def test_calls_tell_the_two_zeros_apart(make: Callable[[float], Tensor]) -> None:
    for number in (-0.0, 0.0, -0.0):
        assert np.signbit(make(number).numpy()[0]) == np.signbit(number)
