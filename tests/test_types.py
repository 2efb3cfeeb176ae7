"""Element types, tensor types, promotion, broadcasting, specs."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import lucid
from lucid.core.graph.types import (
    DTYPES,
    DType,
    TensorType,
    as_dtype,
    bind_sizes,
    broadcast,
    dtype_of_scalar,
    promote,
    same_shape,
    show_shape,
)
from lucid.core.sizes.dims import SymbolicSizeError, dim

N, L = dim("N"), dim("L")


# Element types --------------------------------------------------------------------------------------------------------


def test_the_element_types() -> None:
    assert [repr(dtype) for dtype in DTYPES] == [
        "lucid.float32",
        "lucid.float64",
        "lucid.float16",
        "lucid.bfloat16",
        "lucid.int8",
        "lucid.uint8",
        "lucid.int32",
        "lucid.int64",
        "lucid.bool_",
    ]
    assert {dtype.name: dtype.itemsize for dtype in DTYPES} == {
        "float32": 4,
        "float64": 8,
        "float16": 2,
        "bfloat16": 2,
        "int8": 1,
        "uint8": 1,
        "int32": 4,
        "int64": 8,
        "bool": 1,
    }


@pytest.mark.parametrize(
    ("dtype_like", "expected"),
    [
        (lucid.float16, lucid.float16),
        ("float16", lucid.float16),
        ("bool", lucid.bool_),
        ("bool_", lucid.bool_),
        (np.float64, lucid.float64),
        (np.dtype("int8"), lucid.int8),
        (np.bool_, lucid.bool_),
        (ml_dtypes.bfloat16, lucid.bfloat16),
        (float, lucid.float32),
        (int, lucid.int64),
        (bool, lucid.bool_),
    ],
)
def test_what_stands_for_an_element_type(dtype_like: Any, expected: DType) -> None:
    assert as_dtype(dtype_like) is expected


@pytest.mark.parametrize("dtype_like", ["float8", np.complex64, np.int16, np.dtype("uint64"), "f4", str])
def test_an_unknown_element_type_is_an_error_that_lists_the_known(dtype_like: Any) -> None:
    with pytest.raises(TypeError, match=r"is not one of float32, float64, float16, bfloat16, .*cast with array.astype"):
        as_dtype(dtype_like)


@pytest.mark.parametrize(("value", "expected"), [(True, lucid.bool_), (3, lucid.int64), (2.5, lucid.float32)])
def test_the_type_of_a_python_number(value: Any, expected: DType) -> None:
    assert dtype_of_scalar(value) is expected


def test_the_lowest_finite_number() -> None:
    assert lucid.float32.lowest == np.finfo(np.float32).min
    assert lucid.float16.lowest == -65504
    assert np.isfinite(lucid.bfloat16.lowest)


# Promotion ------------------------------------------------------------------------------------------------------------

# Rows and columns in the order of the header; a name is its first letter and its bits.
PROMOTION = """
      f32 f64 f16 b16 i8  u8  i32 i64 bool
f32   f32 f64 f32 f32 f32 f32 f32 f32 f32
f64   f64 f64 f64 f64 f64 f64 f64 f64 f64
f16   f32 f64 f16 f32 f16 f16 f16 f16 f16
b16   f32 f64 f32 b16 b16 b16 b16 b16 b16
i8    f32 f64 f16 b16 i8  i32 i32 i64 i8
u8    f32 f64 f16 b16 i32 u8  i32 i64 u8
i32   f32 f64 f16 b16 i32 i32 i32 i64 i32
i64   f32 f64 f16 b16 i64 i64 i64 i64 i64
bool  f32 f64 f16 b16 i8  u8  i32 i64 bool
"""
SHORT = {
    "f32": lucid.float32,
    "f64": lucid.float64,
    "f16": lucid.float16,
    "b16": lucid.bfloat16,
    "i8": lucid.int8,
    "u8": lucid.uint8,
    "i32": lucid.int32,
    "i64": lucid.int64,
    "bool": lucid.bool_,
}


def test_the_promotion_table() -> None:
    header, *rows = (line.split() for line in PROMOTION.strip().splitlines())
    for left, *results in rows:
        for right, result in zip(header, results, strict=True):
            assert promote(SHORT[left], SHORT[right]) is SHORT[result], f"{left} with {right}"


def test_promotion_does_not_depend_on_the_order() -> None:
    for a in DTYPES:
        assert promote(a, a) is a
        for b in DTYPES:
            assert promote(a, b) is promote(b, a)


# Specs ----------------------------------------------------------------------------------------------------------------


def test_a_spec_is_a_tensor_type_with_named_sizes() -> None:
    spec = lucid.spec("N", "L", 512)
    assert isinstance(spec, TensorType)
    assert str(spec) == "float32[N, L, 512]"
    assert spec.rank == 3
    assert lucid.spec(dtype=lucid.int64).shape == ()
    assert str(lucid.spec("N", "2*L + 1", dtype="bool")) == "bool[N, 2*L + 1]"
    assert lucid.spec("N") == lucid.spec("N")
    assert lucid.spec(np.int64(3)).shape == (3,)
    assert lucid.spec(lucid.spec("N", 3).shape[0], 3) == lucid.spec("N", 3)


def test_the_same_name_is_the_same_size() -> None:
    a, b = lucid.spec("N", "L"), lucid.spec("L", "S")
    assert a.shape[1] == b.shape[0]
    with pytest.raises(SymbolicSizeError):
        _ = a.shape[0] == b.shape[1]


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((-1,), ValueError, "size -1 is negative"),
        ((2.0,), TypeError, "size 2.0 is float"),
        ((True,), TypeError, "size True is bool"),
        ((None,), TypeError, "size None is NoneType"),
        ((("N", 3),), TypeError, "is tuple"),
        (("",), ValueError, "expected a name"),
        (("N L",), ValueError, "expected a name"),
    ],
)
def test_what_is_no_size_is_an_error(shape: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lucid.spec(*shape)


# Shapes ---------------------------------------------------------------------------------------------------------------


@given(hnp.mutually_broadcastable_shapes(num_shapes=3, min_dims=0, max_dims=4, min_side=0, max_side=4))
def test_broadcasting_is_numpys(shapes: hnp.BroadcastableShapes) -> None:
    assert broadcast("op", *shapes.input_shapes) == shapes.result_shape


@given(st.lists(st.lists(st.integers(0, 3), max_size=3), min_size=2, max_size=2))
def test_what_numpy_does_not_broadcast_is_an_error(shapes: list[list[int]]) -> None:
    try:
        expected = np.broadcast_shapes(*map(tuple, shapes))
    except ValueError:
        with pytest.raises(ValueError, match=r"op: shapes .* do not broadcast: .*sizes must be equal or 1"):
            broadcast("op", *map(tuple, shapes))
    else:
        assert broadcast("op", *map(tuple, shapes)) == expected


def test_symbolic_sizes_broadcast_with_themselves_and_with_one() -> None:
    assert same_shape(broadcast("op", (N, 1, 3), (L, 1)), (N, L, 3))
    assert same_shape(broadcast("op", (N, L), ()), (N, L))
    with pytest.raises(ValueError, match=r"\[N\] and \[L\] do not broadcast: N and L at axis -1"):
        broadcast("op", (N,), (L,))
    with pytest.raises(ValueError, match=r"\[N, 4\] and \[3, 4\] do not broadcast"):
        broadcast("op", (N, 4), (3, 4))


def test_shapes_in_words() -> None:
    assert show_shape((N, 3)) == "[N, 3]"
    assert show_shape(()) == "[]"
    assert same_shape((N, 3), (N, 3))
    assert not same_shape((N, 3), (N,))
    assert not same_shape((N,), (L,))


# Sizes from arrays ----------------------------------------------------------------------------------------------------


def zeros(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return np.zeros(shape, dtype)


def test_named_sizes_are_read_off_the_arrays() -> None:
    types = [lucid.spec("N", "2*L"), lucid.spec("L", 3)]
    assert bind_sizes(["a", "b"], types, [zeros(5, 8), zeros(4, 3)]) == {"N": 5, "L": 4}


@pytest.mark.parametrize(
    ("array", "error", "message"),
    [
        (zeros(2, 4, dtype="float64"), TypeError, "input b: dtype float64, expected float32; use .astype"),
        (zeros(2), ValueError, r"input b: shape \[2\], expected \[N, 4\]"),
        (zeros(2, 5), ValueError, "input b: size 5 at axis 1, expected 4"),
        (zeros(3, 4), ValueError, r"input b: size 3 at axis 0, expected 2 \(N = 2, from a axis 0\)"),
    ],
)
def test_an_array_that_does_not_fit_is_an_error(
    array: np.ndarray[Any, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        bind_sizes(["a", "b"], [lucid.spec("N"), lucid.spec("N", 4)], [zeros(2), array])


def test_whole_numbers_in_functions_of_real_numbers_do_not_wrap() -> None:
    small, number = lucid.tensor([1, 200], dtype="uint8"), lucid.tensor(300)
    reals = np.array([1, 200], np.float32)
    for name, expected in {
        "atan2": np.arctan2(reals, 300),
        "hypot": np.hypot(reals, 300),
        "logaddexp": np.logaddexp(reals, 300),
        "xlogy": reals * np.log(300),
        "div": reals / 300,
    }.items():
        result = getattr(lucid, name)(small, number)
        assert result.dtype is lucid.float32, name
        np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6, err_msg=name)
    assert lucid.logical_and(small, lucid.tensor(256)).numpy().all()
    close = lucid.isclose(lucid.tensor([2**24 + 1, 2**62, 1]), lucid.tensor([2**24, 2**62 + 1, 1]), rtol=0.0, atol=0.0)
    assert close.numpy().tolist() == [False, False, True]
    assert lucid.isclose(small, lucid.tensor([2, 199], dtype="uint8"), atol=1.0).numpy().all()


def test_functions_made_of_others_take_arrays_and_numbers() -> None:
    array = np.array([1.0, 10.0], np.float32)
    results = (
        (lucid.log10(array), [0, 1]),
        (lucid.log10(100), 2),
        (lucid.sinc(array), [0, 0]),
        (lucid.logaddexp(array, array), array + np.log(2)),
        (lucid.lerp(array, array * 3, 0.25), array * 1.5),
        (lucid.lerp(array, array * 3, array / array), array * 3),
        (lucid.addcmul(array, array, array), array + array**2),
        (lucid.addcdiv(array, array, array), array + 1),
        (lucid.isin(array, array[:1]), [True, False]),
        (lucid.bucketize(lucid.tensor([5.0]), array), [1]),
        (lucid.searchsorted(array, array), [0, 1]),
    )
    for result, expected in results:
        np.testing.assert_allclose(result.numpy(), expected, atol=1e-6)


_OPERANDS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys("softmax log_softmax cumsum flip index_select".split(), (0,)),
    **dict.fromkeys("transpose swapaxes movedim moveaxis".split(), (0, 1)),
    **{
        "reshape": ((3, 2),),
        "permute": ((1, 0),),
        "unsqueeze": (0,),
        "tile": (2,),
        "roll": (1,),
        "repeat_interleave": (2,),
    },
    **{"broadcast_to": ((2, 2, 3),), "unflatten": (1, (3, 1)), "index_select": (0, np.array([1])), "std": (0,)},
    **{"gather": (1, np.array([[0, 2]])), "masked_fill": (np.array([[True], [False]]), 1.0), "kthvalue": (2,)},
    **{"quantile": (0.5,), "cummax": (0,), "max": (1,), "min": (1,)},
}


@pytest.mark.parametrize(
    "name",
    [
        *_OPERANDS,
        *"sum mean prod norm clone flatten squeeze t tril triu fliplr flipud diag_embed argwhere nonzero".split(),
    ],
)
def test_functions_take_an_array_as_their_tensor(name: str) -> None:
    array = np.array([[1.0, -2.0, 3.0], [0.0, 5.0, -6.0]], np.float32)
    function, operands = getattr(lucid, name), _OPERANDS.get(name, ())
    got, expected = (function(x, *operands) for x in (array, lucid.tensor(array)))
    for ours, theirs in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, expected)), strict=True):
        assert isinstance(ours, lucid.Tensor) and ours.dtype == theirs.dtype
        np.testing.assert_array_equal(ours.numpy(), theirs.numpy())


def test_a_number_in_the_first_place_takes_the_type_of_the_tensor_beside_it() -> None:
    for dtype in ("float16", "float64", "int32"):
        x = lucid.tensor(3, dtype=dtype)
        for number in (0.1, np.float64(0.1), np.float32(0.1)) if dtype != "int32" else (2, np.int64(2)):
            assert lucid.mul(number, x).dtype == x.dtype
            np.testing.assert_array_equal(lucid.mul(number, x).numpy(), (x * number).numpy())


def test_functions_of_something_else_say_what_came() -> None:
    for name in ("sum", "softmax", "reshape", "max", "argmax"):
        with pytest.raises(TypeError, match=f"^{name}: expected a tensor, an array or a number, got list"):
            getattr(lucid, name)([1.0, 2.0], 0)
