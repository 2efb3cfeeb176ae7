"""Elementwise ops: one line each, with the kernel, the element types and the ONNX operator; functions made of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.types import (
    Array,
    DType,
    TensorType,
    bool_,
    broadcast,
    common_dtype,
    convert,
    float32,
    int32,
    int64,
)
from lucid.core.sizes.dims import positive as certainly_positive
from lucid.ops.kernels.erf import erf as _erf
from lucid.ops.kernels.pieces import widened
from lucid.ops.op import Op, composite, function, primitive
from lucid.ops.operand_conversion import as_tensor, as_tensors, half_beside_number
from lucid.ops.tensor.tensor import OPS, Tensor, TensorLike

Unary: TypeAlias = Op[[TensorLike], Tensor]
Binary: TypeAlias = Op[[TensorLike, TensorLike], Tensor]

ByKind: TypeAlias = Mapping[str, Callable[..., Any]]

_NUMBERS = ("int", "float")


def _in_float32(op: Op[..., Tensor], *tensors: Tensor) -> Tensor:
    return op(*(x.astype(float32) for x in tensors))


def _unchanged(op: Unary, x: Tensor) -> Tensor:
    return x


def _of_truths(op: Op[..., Tensor], *tensors: Tensor) -> Tensor:
    return op(*(x.astype(bool_) for x in tensors))


def _of_counts(op: Binary, x: Tensor, y: Tensor) -> Tensor:
    return op(x.astype(int32), y.astype(int32))


def _rounded_once(op: Binary, x: TensorLike, y: TensorLike, half: DType) -> Tensor:
    """Half precision and a number, computed in float32, as in torch."""
    return op(*(as_tensor(op.name, each, float32).astype(float32) for each in (x, y))).astype(half)


def _in_half(op: Binary, x: TensorLike, y: TensorLike, half: DType) -> Tensor:
    """Half precision and a number that is rounded to it, to infinity if it is too large, as in torch."""
    return op(*(as_tensor(op.name, each, float32).astype(half) for each in (x, y)))


def instead(name: str) -> Callable[..., Tensor]:
    """Another op of the same operands."""

    def call(op: Op[..., Tensor], *tensors: Tensor) -> Tensor:
        result: Tensor = OPS[name](*tensors)
        return result

    return call


def _unary(
    name: str,
    kernel: Callable[[Array], Any],
    onnx: str | None,
    kinds: tuple[str, ...],
    result: DType | None = None,
    by_kind: ByKind | None = None,
) -> Unary:
    def rule(x: TensorType) -> TensorType:
        check_kind(name, x, kinds)
        return x.with_dtype(result or x.dtype)

    def call(x: TensorLike) -> Tensor: ...  # type: ignore[empty-body]

    call.__doc__ = f"{name} of each element; {' or '.join(kinds)} tensors."
    return Op(call, name=name, kernel=kernel, rule=rule, onnx=onnx, by_kind=by_kind)


def _binary(
    name: str,
    kernel: Callable[[Array, Array], Any],
    onnx: str | None,
    kinds: tuple[str, ...] = _NUMBERS,
    result: DType | None = None,
    by_kind: ByKind | None = None,
    beside_half: Callable[..., Tensor] | None = None,
) -> Binary:
    def rule(x: TensorType, y: TensorType) -> TensorType:
        check_kind(name, x, kinds)
        return TensorType(result or x.dtype, broadcast(name, x.shape, y.shape))

    def call(x: TensorLike, y: TensorLike) -> Tensor: ...  # type: ignore[empty-body]

    call.__doc__ = f"{name} of two tensors, elementwise, broadcast and brought to one element type."
    options: dict[str, Any] = {"by_kind": by_kind, "beside_half": beside_half}
    return Op(call, name=name, kernel=kernel, rule=rule, onnx=onnx, promoted=slice(0, 2), **options)


def at_least_float32(x: Tensor) -> Tensor:
    """Half precision as float32, so that intermediate results do not round or overflow; else x itself."""
    return x.astype(float32) if x.dtype.itemsize == 2 else x


def check_kind(name: str, x: TensorType, kinds: tuple[str, ...]) -> None:
    """Raise TypeError for an element type of another kind."""
    if x.dtype.kind not in kinds:
        expected = "a floating-point tensor" if kinds == ("float",) else f"a tensor of {' or '.join(kinds)}"
        raise TypeError(f"{name}: got {x}, expected {expected}; convert it with .astype(...)")


def _float(name: str, kernel: Callable[[Array], Any], onnx: str) -> Unary:
    """A function of real numbers: integers and booleans are computed in float32, as in torch."""
    return _unary(name, kernel, onnx, ("float",), by_kind=REALS)


def _rounding(name: str, kernel: Callable[[Array], Any], onnx: str) -> Unary:
    """A function that leaves whole numbers as they are."""
    return _unary(name, kernel, onnx, ("float",), by_kind={"int": _unchanged})


REALS: ByKind = {"int": _in_float32, "bool": _in_float32}
_TRUTHS: ByKind = {"int": _of_truths, "float": _of_truths}  # not 0
_COUNTS: ByKind = {"bool": _of_counts}


exp = _float("exp", np.exp, "Exp")
log = _float("log", np.log, "Log")
sqrt = _float("sqrt", np.sqrt, "Sqrt")
reciprocal = _float("reciprocal", np.reciprocal, "Reciprocal")
sin = _float("sin", np.sin, "Sin")
cos = _float("cos", np.cos, "Cos")
tan = _float("tan", np.tan, "Tan")
asin = _float("asin", np.arcsin, "Asin")
acos = _float("acos", np.arccos, "Acos")
atan = _float("atan", np.arctan, "Atan")
tanh = _float("tanh", np.tanh, "Tanh")
erf = _float("erf", _erf, "Erf")
floor = _rounding("floor", np.floor, "Floor")
ceil = _rounding("ceil", np.ceil, "Ceil")
round_ = _rounding("round", np.round, "Round")
neg = _unary("neg", np.negative, "Neg", _NUMBERS)
abs_ = _unary("abs", np.abs, "Abs", _NUMBERS)
sign = _unary("sign", np.sign, "Sign", _NUMBERS, by_kind={"bool": _unchanged})
isnan = _unary("isnan", np.isnan, "IsNaN", ("float",), bool_, REALS)
logical_not = _unary("logical_not", np.logical_not, "Not", ("bool",), by_kind=_TRUTHS)


def _sigmoid(x: Array) -> Array:
    # exp(-|x|) cannot overflow; both branches use it.
    wide = widened(x)
    e = np.exp(-np.abs(wide))
    return np.where(wide >= 0, 1 / (1 + e), e / (1 + e)).astype(x.dtype, copy=False)


sigmoid = _float("sigmoid", _sigmoid, "Sigmoid")


def _power(x: Array, y: Array) -> Array:
    """Integers to a negative power are 1 over a whole number, rounded towards 0."""
    if x.dtype.kind != "i" or not (y < 0).any():
        return np.asarray(np.power(x, y))
    power = np.power(x, np.where(y < 0, y & 1, y))  # of 1 and -1, which alone are not 0, to an even or odd power
    return np.where((y >= 0) | (np.abs(x) == 1), power, 0).astype(x.dtype, copy=False)


_AND, _OR = ({"bool": instead(name)} for name in ("logical_and", "logical_or"))

add = _binary("add", np.add, "Add", by_kind=_OR, beside_half=_rounded_once)
sub = _binary("sub", np.subtract, "Sub", beside_half=_rounded_once)
mul = _binary("mul", np.multiply, "Mul", by_kind=_AND, beside_half=_rounded_once)
pow_ = _binary("pow", _power, "Pow")
maximum = _binary("maximum", np.maximum, "Max", by_kind=_OR)
minimum = _binary("minimum", np.minimum, "Min", by_kind=_AND)
equal = _binary("equal", np.equal, "Equal", ("bool", *_NUMBERS), bool_, None, _in_half)
not_equal = _binary("not_equal", np.not_equal, None, ("bool", *_NUMBERS), bool_, None, _in_half)
less = _binary("less", np.less, "Less", _NUMBERS, bool_, _COUNTS, _in_half)
less_equal = _binary("less_equal", np.less_equal, "LessOrEqual", _NUMBERS, bool_, _COUNTS, _in_half)
greater = _binary("greater", np.greater, "Greater", _NUMBERS, bool_, _COUNTS, _in_half)
greater_equal = _binary("greater_equal", np.greater_equal, "GreaterOrEqual", _NUMBERS, bool_, _COUNTS, _in_half)
logical_and = _binary("logical_and", np.logical_and, "And", ("bool",), bool_, _TRUTHS)
logical_or = _binary("logical_or", np.logical_or, "Or", ("bool",), bool_, _TRUTHS)
logical_xor = _binary("logical_xor", np.logical_xor, "Xor", ("bool",), bool_, _TRUTHS)

true_div = _binary("true_div", np.divide, "Div", ("float",), beside_half=_rounded_once)


def _by_no_zero(name: str, kernel: Callable[[Array, Array], Any]) -> Callable[[Array, Array], Any]:
    """A kernel of integers that refuses to divide by 0, which has no integer as its result."""

    def compute(x: Array, y: Array) -> Any:
        result = kernel(x, y)
        if not y.all() and np.size(result):
            raise ZeroDivisionError(
                f"{name}: integers are divided by 0; use lucid.where to choose other divisors first"
            )
        return result

    return compute


int_floor_div = _binary("int_floor_div", _by_no_zero("floor_div", np.floor_divide), None, ("int",))
int_mod = _binary("int_mod", _by_no_zero("mod", np.mod), "Mod", ("int",))


fmod = _binary("fmod", np.fmod, None, ("float",))


def in_wide(kernel: Callable[..., Any]) -> Callable[..., Array]:
    """A kernel that computes half precision in float32."""

    def compute(*arrays: Array) -> Array:
        return np.asarray(kernel(*map(widened, arrays))).astype(arrays[0].dtype, copy=False)

    return compute


def _float_mod(x: Tensor, y: Tensor) -> Tensor:
    """The remainder of floats with the sign of the divisor: exact, however large the quotient is."""
    wide_x, wide_y = map(at_least_float32, (x, y))
    rest = fmod(wide_x, wide_y)
    moved = where(_signs_differ(rest, wide_y), rest + wide_y, rest)
    return (abs_(moved) * sign(wide_y)).astype(x.dtype)  # a zero has the sign of the divisor, too


def _float_floor_div(x: Tensor, y: Tensor) -> Tensor:
    """The exact quotient of floats, rounded down: 1.0 // 0.1 is 9, because the float 0.1 is slightly above 1/10."""
    wide_x, wide_y = map(at_least_float32, (x, y))
    rest = fmod(wide_x, wide_y)
    whole = true_div(wide_x - rest, wide_y)  # a whole number up to rounding
    whole = round_(where(_signs_differ(rest, wide_y), whole - 1, whole))
    quotient = true_div(wide_x, wide_y)
    # A zero has the sign of the quotient. onnxruntime's Where keeps the sign of zeros in its last operand alone, and
    # exchanges the operands of a Where whose condition is a Not.
    whole = where(abs_(whole) > 0, whole, quotient * 0.0)
    if y.is_traced or not y.numpy().all():
        whole = where(wide_y == 0, quotient, whole)
    return whole.astype(x.dtype)


def _float_trunc_div(x: Tensor, y: Tensor) -> Tensor:
    """The quotient of floats without its fraction; a zero has the sign of the quotient. Half precision as float32."""
    wide_x, wide_y = map(at_least_float32, (x, y))
    quotient = true_div(wide_x, wide_y)
    size = floor(abs_(quotient))
    # Where keeps the sign of zeros in its last operand alone, as in _float_floor_div.
    return where(size > 0, size * sign(quotient), quotient * 0.0).astype(x.dtype)


def _signs_differ(rest: Tensor, y: Tensor) -> Tensor:
    """Whether a remainder, which has the sign of the dividend, is not 0 and differs in sign from the divisor."""
    return logical_and(rest != 0, logical_xor(rest < 0, y < 0))


def _promoting(body: Callable[[Tensor, Tensor], Tensor], kernel: Callable[[Array, Array], Any]) -> Binary:
    pair = slice(0, 2)
    return Op(body, name=body.__name__[1:], kernel=in_wide(kernel), body=body, promoted=pair)  # type: ignore[arg-type]


float_mod = _promoting(_float_mod, np.mod)
float_floor_div = _promoting(_float_floor_div, np.floor_divide)
float_trunc_div = _promoting(_float_trunc_div, lambda x, y: np.trunc(np.divide(x, y)))


@function
def positive(x: Tensor) -> Tensor:
    """``+x``: x itself.

    Raises:
        TypeError: for booleans.
    """
    check_kind("+x", x.spec, _NUMBERS)
    return x


@function
def div(x: TensorLike, y: TensorLike) -> Tensor:
    """The quotient as a floating-point tensor: integers are divided as float32."""
    if half_beside_number((x, y)) is not None:
        return true_div(x, y)
    x, y = _beside_number(x, y), _beside_number(y, x)
    x, y = _as_pair("div", x, y)
    if x.dtype.kind != "float" and y.dtype.kind != "float":
        x = x.astype("float32")
    return true_div(x, y)


@function
def floor_div(x: TensorLike, y: TensorLike) -> Tensor:
    """The quotient rounded down, as Python's //. A float divided by zero gives infinity, or NaN for 0 // 0.

    Raises:
        ZeroDivisionError: for integers divided by 0.
    """
    x, y = _as_pair("floor_div", x, y)
    if x.dtype.kind == "float" or y.dtype.kind == "float":
        return float_floor_div(x, y)
    return int_floor_div(x, y)


@function
def mod(x: TensorLike, y: TensorLike) -> Tensor:
    """The remainder with the sign of the divisor, as Python's %. A float divided by zero gives NaN.

    Raises:
        ZeroDivisionError: for integers divided by 0.
    """
    x, y = _as_pair("mod", x, y)
    if x.dtype.kind == "float" or y.dtype.kind == "float":
        return float_mod(x, y)
    return int_mod(x, y)


def _beside_number(x: TensorLike, y: TensorLike) -> TensorLike:
    """x, integers next to a number as float32, as their type may not hold the number."""
    if isinstance(x, Tensor) and x.dtype.kind != "float" and isinstance(y, (int, float, np.generic)):
        return x.astype(float32)
    return x


def _as_pair(name: str, x: TensorLike, y: TensorLike) -> tuple[Tensor, Tensor]:
    left, right = as_tensors(name, (x, y))
    assert left is not None and right is not None
    return left, right


def _where_rule(condition: TensorType, x: TensorType, y: TensorType) -> TensorType:
    check_kind("where", condition, ("bool",))
    return x.with_shape(broadcast("where", condition.shape, x.shape, y.shape))


@primitive(kernel=np.where, rule=_where_rule, onnx="Where", promoted=slice(1, 3))
def where(condition: TensorLike, x: TensorLike, y: TensorLike) -> Tensor:  # type: ignore[empty-body]
    """x where the condition is true, else y; all three broadcast."""


@primitive(kernel=lambda x, *, dtype: x.astype(dtype.numpy), rule=lambda x, *, dtype: x.with_dtype(dtype))
def cast(x: TensorLike, *, dtype: DType) -> Tensor:  # type: ignore[empty-body]
    """The same numbers in another element type; float to integer truncates, and any non-zero number is true."""


@primitive(kernel=lambda x: x, rule=lambda x: x)
def stop_gradient(x: Tensor) -> Tensor:  # type: ignore[empty-body]
    """x itself, a constant for gradients: none flows through it."""


def _clip(x: TensorLike, low: TensorLike | None = None, high: TensorLike | None = None) -> Tensor:
    """Each element brought into a range; without bounds, x itself. Where low is above high, the result is high."""
    if low is not None:
        x = maximum(x, low)
    return as_tensor("clip", x) if high is None else minimum(x, high)


def _clip_whole(op: Op[..., Tensor], *operands: Tensor | None) -> Tensor:
    """Of integers, which have no gradients, so that the range of positions is known."""
    return _clip(*operands)  # type: ignore[arg-type]


clip = Op(_clip, name="clip", body=_clip, promoted=slice(0, 3), by_kind={"int": _clip_whole, "bool": _clip_whole})


@function
def rsqrt(x: Tensor) -> Tensor:
    """1 / sqrt(x)."""
    return reciprocal(sqrt(x))


@function
def square(x: Tensor) -> Tensor:
    """x * x; of booleans as int64."""
    return mul(x, x) if x.dtype.kind != "bool" else x.astype(int64)


@composite
def log2(x: Tensor) -> Tensor:
    """The logarithm to base 2, a whole number for powers of two. Half precision is computed in float32.

    The rounded quotient of logarithms is often next to a whole number n: where 2^n is x, the result is n.
    """
    x = _real(x)
    wide = at_least_float32(x)
    quotient = log(wide) * (1 / math.log(2))
    whole = round_(quotient)
    return where(pow_(2.0, whole) == wide, whole, quotient).astype(x.dtype)


@composite
def expm1(x: Tensor) -> Tensor:
    """exp(x) - 1, accurate near 0: tanh(x / 2) is (exp(x) - 1) / (exp(x) + 1). Half precision as float32."""
    x = _real(x)
    wide = at_least_float32(x)
    return (tanh(wide * 0.5) * (exp(wide) + 1)).astype(x.dtype)


@composite
def log1p(x: Tensor) -> Tensor:
    """log(1 + x), accurate near 0 (Kahan): log(u) * (x / (u - 1)) where u = 1 + x is neither 1 nor infinite.

    Half precision is computed in float32.
    """
    x = _real(x)
    wide = at_least_float32(x)
    u = 1 + wide
    exact = (u == 1) | (u == math.inf)
    return where(exact, wide, log(u) * (wide / where(exact, 1, u - 1))).astype(x.dtype)


def _real(x: Tensor) -> Tensor:
    """Integers and booleans as float32."""
    return x if x.dtype.kind == "float" else x.astype(float32)


@function
def isinf(x: Tensor) -> Tensor:
    """Whether each element is infinite."""
    return abs_(_real(x)) == math.inf


@function
def isfinite(x: Tensor) -> Tensor:
    """Whether each element is a finite number."""
    return abs_(_real(x)) < math.inf


@function
def clamp(x: Tensor, min: TensorLike | None = None, max: TensorLike | None = None) -> Tensor:
    """Each element brought into a range; bounds are numbers or tensors. Where min is above max, the result is max.

    Raises:
        ValueError: without a bound.
    """
    if min is None and max is None:
        raise ValueError("clamp: got neither min nor max, expected a bound")
    return clip(x, min, max)


@function
def scaled(x: Tensor, y: TensorLike, alpha: float) -> Tensor:
    """``alpha * y`` in the element type in which x and y are combined.

    Raises:
        TypeError: for a fraction as `alpha` of integers.
    """
    left, right = _as_pair("alpha", x, y)
    common = common_dtype([left.spec, right.spec])
    if common.kind != "float" and isinstance(alpha, float):
        raise TypeError(f"alpha is {alpha} for {common}, expected a whole number; convert x with .float()")
    return (right.astype(common) * alpha).astype(common)


@function
def masked_fill(x: Tensor, mask: TensorLike, value: TensorLike) -> Tensor:
    """The value where the mask is true, else x: the result has the element type of x, as in torch.

    Raises:
        OverflowError: for a number that the element type cannot hold; the fraction of one is cut off for integers.
        TypeError: for a mask that is not boolean.
    """
    if isinstance(value, (bool, int, float, np.generic)):
        filling = Tensor.from_array(convert(np.asarray(value), x.dtype, "masked_fill"))
    else:
        filling = as_tensor("masked_fill", value)
    if not filling.is_traced and filling.dtype != x.dtype:
        filling = Tensor.from_array(convert(filling.numpy(), x.dtype, "masked_fill"))
    return where(mask, filling.astype(x.dtype), x)


def _truncated(x: Any, y: Any) -> Any:
    """A quotient of numbers or sizes without its fraction."""
    if isinstance(x, float) or isinstance(y, float):
        return float_trunc_div(as_tensor("div", x), y)
    if isinstance(x, int) and isinstance(y, int):
        return abs(x) // abs(y) * (-1 if (x < 0) != (y < 0) else 1)
    if certainly_positive(x + 1) and certainly_positive(y):
        return x // y
    raise TypeError(
        f'div: rounding_mode="trunc" of the sizes {x} and {y}, which may be negative; write x // y, which rounds down'
    )


@function
def rounded_div(x: Tensor, y: TensorLike, rounding_mode: str | None = None) -> Tensor:
    """The quotient; "floor" rounds it down, "trunc" toward 0.

    Raises:
        TypeError: for "trunc" of a size that may be negative.
        ValueError: for another mode.
    """
    if rounding_mode is None:
        return div(x, y)
    if rounding_mode == "floor":
        return x // y
    if rounding_mode != "trunc":
        raise ValueError(f'div: rounding_mode is {rounding_mode!r}, expected None, "floor" or "trunc"')
    if not isinstance(x, Tensor) and not isinstance(y, Tensor):
        return _truncated(x, y)
    x = as_tensor("div", x, y.dtype if isinstance(y, Tensor) else None)
    if x.dtype.kind == "float" or (isinstance(y, Tensor) and y.dtype.kind == "float") or isinstance(y, float):
        return float_trunc_div(x, y)
    down, rest = x // y, x % y
    return down + ((rest != 0) & ((rest < 0) != (x < 0))).astype(down.dtype)
