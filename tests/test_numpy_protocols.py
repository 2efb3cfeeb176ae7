"""NumPy's functions and scalars combined with tensors, eagerly and traced."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor

X = np.linspace(0.1, 2.3, 12, dtype=np.float32).reshape(3, 4)

SAME_AS_NUMPY: dict[str, Callable[[Any], Any]] = {
    "a ufunc": lambda x: np.exp(x),
    "an array in front": lambda x: np.ones((3, 4), np.float32) - x,
    "a comparison": lambda x: np.ones((3, 4), np.float32) < x,
    "concatenate": lambda x: np.concatenate([x, x * 2], 1),
    "stack": lambda x: np.stack([x, x], axis=1),
    "split into parts": lambda x: np.split(x, 2, axis=1)[1],
    "split at places": lambda x: np.split(x, [1, 3], axis=1)[1],
    "where": lambda x: np.where(x > 1, x, 0.0),
    "transpose": lambda x: np.transpose(x, (1, 0)),
    "expand_dims": lambda x: np.expand_dims(x, 1),
    "sum": lambda x: np.sum(x, axis=1),
    "mean": lambda x: np.mean(x, axis=(0, 1), keepdims=True),
    "max": lambda x: np.max(x, 0),
    "prod": lambda x: np.prod(x, axis=-1),
    "std": lambda x: np.std(x, axis=1),
    "var": lambda x: np.var(x, axis=0, ddof=1, keepdims=True),
    "clip": lambda x: np.clip(x, 0.5, 1.5),
    "cumsum": lambda x: np.cumsum(x, axis=1),
    "flip": lambda x: np.flip(x, 0),
    "roll": lambda x: np.roll(x, 2, axis=1),
    "repeat": lambda x: np.repeat(x, 2, axis=0),
    "take": lambda x: np.take(x, np.array([2, 0]), axis=0),
    "swapaxes": lambda x: np.swapaxes(x, 0, 1),
    "moveaxis": lambda x: np.moveaxis(x, 0, 1),
    "outer": lambda x: np.outer(x[0], x[1]),
    "einsum": lambda x: np.einsum("ij,kj->ik", x, x),
    "zeros_like": lambda x: np.zeros_like(x) + x,
    "square": lambda x: np.square(x),
    "any": lambda x: np.any(x > 2, axis=0) + 0.0 * x,
    "tril": lambda x: np.tril(x, k=-1),
    "transpose of all axes": lambda x: np.transpose(x),
    "flip of all axes": lambda x: np.flip(x),
    "cumsum of all": lambda x: np.cumsum(x),
    "sum in another type": lambda x: np.sum(x, axis=0, dtype=np.float64),
    "clip by name": lambda x: np.clip(x, min=0.5, max=2) + np.clip(x, a_max=1, a_min=0),
    "take of all": lambda x: np.take(x, np.array([7, 0])),
}


@pytest.mark.parametrize("function", SAME_AS_NUMPY.values(), ids=SAME_AS_NUMPY)
def test_a_function_of_numpy_is_an_op(function: Callable[[Any], Any]) -> None:
    want = function(X)
    eager, graph = function(Tensor(X)), lucid.trace(function, (3, 4))
    assert isinstance(eager, Tensor)
    np.testing.assert_allclose(eager.numpy(), want, rtol=1e-6)
    np.testing.assert_allclose(graph(X), want, rtol=1e-6)


def test_a_ufunc_whose_name_an_op_has_is_that_op() -> None:
    ufuncs = {called for called in vars(np).values() if isinstance(called, np.ufunc)} - {np.matmul, np.reciprocal}
    operands = {"f": (X * 0.4, X[::-1] * 0.4), "i": (np.arange(8), np.arange(1, 9)), "b": (X > 1, X < 2)}
    computed = dict[str, str]()
    for called in ufuncs:
        for kind, arrays in operands.items():
            tensors = list(map(Tensor, arrays[: called.nin]))
            try:
                with np.errstate(all="ignore"):
                    got, want = called(*tensors), called(*arrays[: called.nin])
            except TypeError:  # no op, or not of these types
                continue
            near = 1e-3 if want.dtype == np.float16 else 1e-6  # of booleans, which ops compute in float32
            assert isinstance(got, Tensor)
            np.testing.assert_allclose(got.numpy(), want, near, err_msg=called.__name__)
            computed[called.__name__] = computed.get(called.__name__, "") + kind
    assert len(computed) > 60 and {"tan", "arctan2", "exp2", "log1p", "hypot", "rint", "left_shift"} <= computed.keys()


def test_shapes_are_known_while_tracing() -> None:
    def flat(x: Tensor) -> Tensor:
        return x.reshape(np.shape(x)[0], -1) if np.ndim(x) > 2 else x

    assert lucid.trace(flat, ("N", 3, 4)).outputs[0].type.rank == 2


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (np.cbrt, r"^np.cbrt: Lucid has no op for it; write it with the ops of lucid.ops"),
        (np.add.reduce, r"^np.add.reduce: Lucid has no op for it"),
        (lambda x: np.exp(x, where=np.ones((3, 4), bool)), "^np.exp: got where with a tensor"),
        (
            lambda x: np.max(x, initial=3.0),
            r"^np\.max: got initial with a tensor, which its op does not have; leave it",
        ),
        (lambda x: np.where(x > 1), r"^nonzero\(\) of a traced bool"),
        (np.median, r"^np.median\(\) of a traced float32\[3, 4\]: its value is known only"),
    ],
)
def test_what_has_no_op_says_what_to_write(function: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        lucid.trace(function, (3, 4))


def test_where_without_choices_gives_indices() -> None:
    assert [part.tolist() for part in np.where(Tensor(X) > 2)] == [part.tolist() for part in np.where(X > 2)]


def test_a_function_without_an_op_computes_with_the_arrays_of_known_tensors() -> None:
    assert np.median(Tensor(X)) == np.median(X)
    assert np.allclose(Tensor(X), X)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
def test_numbers_of_numpy_follow_the_rule_of_pythons(dtype: str) -> None:
    x = Tensor(X).astype(dtype)
    for result in (x / np.sqrt(3), np.float64(2) * x, x + np.int64(1), x - np.float32(1)):
        assert result.dtype == x.dtype
    graph = lucid.trace(lambda x: x / np.sqrt(3), lucid.spec("N", dtype=dtype))
    assert graph.outputs[0].type.dtype == x.dtype


def test_an_array_keeps_its_own_element_type_unless_it_is_a_number() -> None:
    assert (Tensor(X) * np.ones(X.shape)).dtype == lucid.float64
    assert (Tensor(X) * np.asarray(2.0)).dtype == lucid.float32
    assert (Tensor(X).long() * np.asarray(2.0)).dtype == lucid.float64
    assert (Tensor(X).long() * np.float64(2.0)).dtype == lucid.float32
