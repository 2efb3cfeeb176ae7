"""NumPy's functions called with tensors: ``np.exp(x)``, ``array + x``, ``np.concatenate([x, y])``, eagerly or traced.

NumPy asks the tensor first (NEP 13 and NEP 18). If Lucid has an op for a function, the op computes it. Any other ufunc
is an error, because its result would be an array in the middle of a model. Any other function is an error for a traced
tensor; for known values, NumPy computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import signature
from typing import Any

import numpy as np

Table = Mapping[str, Callable[..., Any]]

_UFUNCS = {called for called in vars(np).values() if isinstance(called, np.ufunc)}
# The op has the ufunc's name, except for these.
_OPS_OF = {
    "subtract": "sub",
    "multiply": "mul",
    "divide": "div",
    "floor_divide": "floor_div",
    "remainder": "mod",
    "power": "pow",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
    "invert": "bitwise_not",
    "negative": "neg",
    "absolute": "abs",
    "rint": "round",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}


def ufunc(ops: Table, called: np.ufunc, method: str, inputs: Sequence[Any], options: Mapping[str, Any]) -> Any:
    """The result of a ufunc with a tensor among its inputs.

    Raises:
        TypeError: for a ufunc without an op, methods such as `reduce`, and options such as `out`.
    """
    name = called.__name__
    op = ops.get(_OPS_OF.get(name, name)) if called in _UFUNCS else None
    shown = f"np.{name}" if method == "__call__" else f"np.{name}.{method}"
    if op is None or method != "__call__":
        raise TypeError(
            f"{shown}: Lucid has no op for it; write it with the ops of lucid.ops, or use the array of a known tensor: "
            "x.numpy()"
        )
    if options:
        raise TypeError(f"{shown}: got {', '.join(options)} with a tensor, expected no options; tensors are immutable")
    return op(*inputs)


def _split(ops: Table, x: Any, sections: Any, axis: int = 0) -> list[Any]:
    length = x.shape[axis]
    if isinstance(sections, int):
        if length % sections != 0:
            raise ValueError(f"np.split: {length} elements do not divide into {sections} equal parts")
        return list(ops["split"](x, length // sections, axis))
    ends = [*sections, length]
    return list(ops["split"](x, [end - start for start, end in zip([0, *ends[:-1]], ends, strict=True)], axis))


def _einsum(ops: Table, equation: str, *operands: Any) -> Any:
    result = ops["einsum"](equation, *operands)
    dtypes = {str(each.dtype) for each in operands}
    return result.astype(*dtypes) if len(dtypes) == 1 else result  # NumPy keeps the type of integers that it sums


def _reduction(method: str) -> Callable[..., Any]:
    def reduced(ops: Table, x: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(x, method)(axis=axis, keepdims=keepdims)

    return reduced


def _total(method: str) -> Callable[..., Any]:
    def reduced(ops: Table, x: Any, axis: Any = None, dtype: Any = None, *, keepdims: bool = False) -> Any:
        return getattr(x, method)(axis=axis, keepdims=keepdims, dtype=dtype)

    return reduced


def _spread(method: str) -> Callable[..., Any]:
    def reduced(ops: Table, x: Any, axis: Any = None, *, ddof: float = 0, keepdims: bool = False) -> Any:
        return getattr(x, method)(axis=axis, keepdims=keepdims, correction=ddof)

    return reduced


_FUNCTIONS: dict[Any, Callable[..., Any]] = {
    np.sum: _total("sum"),
    np.mean: _total("mean"),
    np.max: _reduction("max"),
    np.min: _reduction("min"),
    np.prod: _total("prod"),
    np.any: _reduction("any"),
    np.all: _reduction("all"),
    np.std: _spread("std"),
    np.var: _spread("var"),
    np.clip: lambda ops, x, a_min=None, a_max=None, *, min=None, max=None: ops["clamp"](
        x, min if a_min is None else a_min, max if a_max is None else a_max
    ),
    np.cumsum: lambda ops, x, axis=None: x.flatten().cumsum(0) if axis is None else x.cumsum(axis),
    np.flip: lambda ops, x, axis=None: ops["flip"](x, tuple(range(x.ndim)) if axis is None else axis),
    np.roll: lambda ops, x, shift, axis=None: ops["roll"](x, shift, axis),
    np.repeat: lambda ops, x, repeats, axis=None: ops["repeat_interleave"](x, repeats, axis),
    np.take: lambda ops, x, indices, axis=None: ops["take"](
        *(x.flatten(), indices, 0) if axis is None else (x, indices, axis)
    ),
    np.take_along_axis: lambda ops, x, indices, axis: ops["take_along"](x, indices, axis=axis),
    np.swapaxes: lambda ops, x, axis1, axis2: ops["transpose"](x, axis1, axis2),
    np.moveaxis: lambda ops, x, source, destination: ops["movedim"](x, source, destination),
    np.outer: lambda ops, x, y: ops["outer"](x, y),
    np.einsum: _einsum,
    np.zeros_like: lambda ops, x, dtype=None: ops["zeros_like"](x, dtype=dtype),
    np.ones_like: lambda ops, x, dtype=None: ops["ones_like"](x, dtype=dtype),
    np.ndim: lambda ops, x: x.ndim,
    np.shape: lambda ops, x: x.shape,
    np.concatenate: lambda ops, arrays, axis=0: ops["concat"](arrays, axis),
    np.stack: lambda ops, arrays, axis=0: ops["stack"](arrays, axis),
    np.split: _split,
    np.where: lambda ops, condition, *choices: (
        ops["where"](condition, *choices) if choices else ops["nonzero"](condition, True)
    ),
    np.reshape: lambda ops, x, shape: ops["reshape"](x, shape),
    np.transpose: lambda ops, x, axes=None: ops["permute"](x, tuple(range(x.ndim))[::-1] if axes is None else axes),
    np.squeeze: lambda ops, x, axis=None: ops["squeeze"](x, axis),
    np.expand_dims: lambda ops, x, axis: ops["unsqueeze"](x, axis),
    np.tril: lambda ops, x, k=0: ops["tril"](x, diagonal=k),
    np.triu: lambda ops, x, k=0: ops["triu"](x, diagonal=k),
}


def function(
    ops: Table, called: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any], known: Callable[[Any], Any]
) -> Any:
    """The result of one of NumPy's functions with a tensor among its arguments.

    `known` returns the array of a tensor, and raises an error for a traced one.

    Raises:
        TypeError: for a function without an op, if a tensor is traced; for an option that the op does not have.
    """
    ours = _FUNCTIONS.get(called)
    if ours is not None:
        if unknown := options.keys() - _option_names(ours):
            raise TypeError(
                f"np.{called.__name__}: got {', '.join(sorted(unknown))} with a tensor, which its op does not have; "
                "leave it out, or use the array of a known tensor: x.numpy()"
            )
        return ours(ops, *args, **options)
    return called(*_arrays(args, known), **{name: _arrays(value, known) for name, value in options.items()})


@cache
def _option_names(ours: Callable[..., Any]) -> frozenset[str]:
    return frozenset(signature(ours).parameters)


def _arrays(value: Any, known: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_arrays(item, known) for item in value)
    return known(value)
