"""Operations on the bits of integers; on booleans they are the logical operations.

Negative numbers are in two's complement. The bodies compute bit by bit with int64, for opsets without such operators.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lucid.core.graph.types import Array, int64
from lucid.ops.elementwise import (
    Binary,
    Unary,
    check_kind,
    floor_div,
    instead,
    maximum,
    mod,
    mul,
    not_equal,
    sub,
    where,
)
from lucid.ops.op import Op
from lucid.ops.reduction import sum_
from lucid.ops.shaping import unsqueeze
from lucid.ops.tensor.tensor import Tensor

_POWERS = np.asarray([2**place for place in range(63)], np.int64)  # of a bit; the last bit is the sign


def _bitwise(
    name: str,
    what: str,
    kernel: Callable[[Array, Array], Any],
    joined: Callable[[Tensor, Tensor], Tensor],
    logical: str,
) -> Binary:
    """`joined`: of two tensors of 0 and 1."""

    def body(x: Tensor, y: Tensor) -> Tensor:
        check_kind(name, x.spec, ("int",))
        wide = x.astype(int64), y.astype(int64)
        bits = joined(*(mod(floor_div(unsqueeze(v, -1), _POWERS), 2) for v in wide))
        signs = joined(*((v < 0).astype(int64) for v in wide))
        total = sum_(mul(bits, _POWERS), axis=(-1,))
        return where(not_equal(signs, 0), total + np.iinfo(np.int64).min, total).astype(x.dtype)

    body.__doc__ = f"The bits that {what} integers have, broadcast and brought to one element type."
    by_kind = {"bool": instead(logical)}
    return Op(body, name=name, kernel=kernel, body=body, promoted=slice(0, 2), by_kind=by_kind)  # type: ignore[arg-type]


def _body_of_not(x: Tensor) -> Tensor:
    """The bits of integers inverted."""
    check_kind("bitwise_not", x.spec, ("int",))
    return sub(-1 if np.issubdtype(x.dtype.numpy, np.signedinteger) else np.iinfo(x.dtype.numpy).max, x)


bitwise_not: Unary = Op(
    _body_of_not,  # type: ignore[arg-type]
    name="bitwise_not",
    kernel=np.invert,
    body=_body_of_not,  # type: ignore[arg-type]
    by_kind={"bool": instead("logical_not")},
)
bitwise_and = _bitwise("bitwise_and", "both", np.bitwise_and, mul, "logical_and")
bitwise_or = _bitwise("bitwise_or", "one of two", np.bitwise_or, maximum, "logical_or")
bitwise_xor = _bitwise(
    "bitwise_xor",
    "exactly one of two",
    np.bitwise_xor,
    lambda x, y: not_equal(x, y).astype(int64),
    "logical_xor",
)
