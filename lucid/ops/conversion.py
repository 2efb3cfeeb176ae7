"""Another element type, and tensors made like another one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.core.graph.types import DTypeLike, Scalar
from lucid.core.sizes.dims import Size, product
from lucid.core.torch_names.arguments import Device, check_device, torch_names_and
from lucid.ops.creation import full
from lucid.ops.op import function
from lucid.ops.tensor.tensor import Tensor


@function
def to(
    x: Tensor,
    *target: Any,
    dtype: DTypeLike | None = None,
    device: Any = None,
    other: Tensor | None = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The same numbers in the element type of the target: a type, or a tensor that has it.

    Raises:
        ValueError: for a device other than the CPU.
    """
    check_device("to", device)
    wanted = dtype
    for item in (*target, other):
        if isinstance(item, Tensor):
            wanted = item.dtype
        elif _is_device(item):
            check_device("to", item)
        elif item is not None and not isinstance(item, bool):  # torch's non_blocking and copy may be given by position
            wanted = item
    return x if wanted is None else x.astype(wanted)


def _is_device(item: Any) -> bool:
    if isinstance(item, str):
        return item.partition(":")[0] in ("cpu", "cuda", "mps", "meta", "xpu", "npu")
    return isinstance(item, Device)


@function
def ndim(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


@function
def numel(x: Tensor) -> Size:
    """The number of elements, which may be symbolic while tracing."""
    return product(x.shape)


@function
def new_full(
    x: Tensor, shape: Size | Sequence[Size], value: Scalar, dtype: DTypeLike | None = None, device: Any = None
) -> Tensor:
    """One number everywhere, in the element type of `x` unless another one is given."""
    check_device("new_full", device)
    return full(shape, value, x.dtype if dtype is None else dtype)


@function
def new_tensor(x: Tensor, data: Any, dtype: DTypeLike | None = None, device: Any = None) -> Tensor:
    """A tensor from numbers, in the element type of `x` unless another one is given."""
    check_device("new_tensor", device)
    return Tensor(np.array(data), x.dtype if dtype is None else dtype)


_UNUSED = ("device", "requires_grad", "layout", "memory_format")


@torch_names_and(*_UNUSED)
def full_like(x: Tensor, value: Scalar, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of one number everywhere, of the shape of `x` and, unless another is given, its element type."""
    return full(x.shape, value, x.dtype if dtype is None else dtype)


@torch_names_and(*_UNUSED)
@function
def zeros_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of zeros, of the shape of `x` and, unless another is given, its element type."""
    return full_like(x, 0, dtype=dtype)


@torch_names_and(*_UNUSED)
@function
def ones_like(x: Tensor, *, dtype: DTypeLike | None = None) -> Tensor:
    """A tensor of ones, of the shape of `x` and, unless another is given, its element type."""
    return full_like(x, 1, dtype=dtype)
