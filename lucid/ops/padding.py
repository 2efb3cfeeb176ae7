"""Padding as torch's `pad` counts it: pairs of numbers, those of the last axis first."""

from __future__ import annotations

from collections.abc import Sequence

from lucid.core.graph.types import show_shape
from lucid.core.sizes.dims import Size, as_size
from lucid.core.torch_names.arguments import torch_names
from lucid.ops.creation import arange_op, size_op
from lucid.ops.elementwise import abs_, maximum, minimum
from lucid.ops.indexing import take_op
from lucid.ops.shaping import pad as pad_op
from lucid.ops.tensor.tensor import Tensor


@torch_names
def pad(x: Tensor, pad: Sequence[Size], mode: str = "constant", value: float | None = None) -> Tensor:
    """Elements added before and after those of the last axes.

    Args:
        pad: (before, after) of the last axis, then of the one before it, and so on; negative ones take elements away.
        mode: "constant" adds `value` (0); "reflect", "replicate" and "circular" repeat elements of x.

    Raises:
        ValueError: for an odd number of numbers, more than there are axes, another mode, or a reflection or repetition
            longer than the axis allows.
    """
    amounts = [as_size("pad", amount) for amount in pad]
    if len(amounts) % 2 or len(amounts) > 2 * x.ndim:
        raise ValueError(
            f"pad: got {len(amounts)} numbers for {show_shape(x.shape)}, expected a pair for each axis padded"
        )
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise ValueError(f'pad: mode is {mode!r}, expected "constant", "reflect", "replicate" or "circular"')
    before, after = ([*[0] * (x.ndim - len(amounts) // 2), *reversed(amounts[i::2])] for i in (0, 1))
    for axis in range(x.ndim):
        x = _shortened(x, axis, before[axis], after[axis])
    before, after = ([0 if isinstance(n, int) and n < 0 else n for n in amounts] for amounts in (before, after))
    if mode == "constant":
        if all(isinstance(n, int) and not n for n in (*before, *after)):
            return x
        return pad_op(x, before=tuple(before), after=tuple(after), value=0.0 if value is None else value)
    for axis in range(x.ndim):
        x = _repeated(x, axis, before[axis], after[axis], mode)
    return x


def _shortened(x: Tensor, axis: int, before: Size, after: Size) -> Tensor:
    """Without the elements that negative numbers take away."""
    front, back = (-n if isinstance(n, int) and n < 0 else 0 for n in (before, after))
    if not front and not back:
        return x
    size = x.shape[axis]
    if isinstance(size, int) and front + back > size:
        raise ValueError(f"pad: ({before}, {after}) takes more elements than axis {axis} of {show_shape(x.shape)} has")
    return x[(*[slice(None)] * axis, slice(front, size - back))]


def _repeated(x: Tensor, axis: int, before: Size, after: Size, mode: str) -> Tensor:
    """An axis with elements of its own before and after it."""
    if isinstance(before, int) and isinstance(after, int) and not before and not after:
        return x
    size = x.shape[axis]
    limit = {"reflect": size - 1, "circular": size}.get(mode)
    for amount in (before, after):
        if isinstance(limit, int) and isinstance(amount, int) and amount > limit:
            raise ValueError(
                f"pad: {amount} elements by mode {mode!r}, expected at most {limit} for {show_shape(x.shape)}"
            )
    place, last = arange_op(start=0, stop=before + size + after) - before, size_op(size=size) - 1
    if mode == "replicate":
        source = maximum(minimum(place, last), 0)
    elif mode == "reflect":
        source = last - abs_(last - abs_(place))
    else:
        source = place % size_op(size=size)
    return take_op(x, source, axis=axis)
