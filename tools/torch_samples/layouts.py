"""How torch's operators that move or make numbers are called in Lucid; see `operators`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from tools.torch_samples.calls import call, needs
from tools.torch_samples.operators import OPERATORS, Mapped, maps

# Shape ----------------------------------------------------------------------------------------------------------------


@maps("reshape", "view")
def reshape(x: Any, *shape: Any) -> Mapped:
    if len(shape) == 1 and isinstance(shape[0], torch.dtype):
        needs(False, "view of another element type")
    return call("reshape", x, *shape)


@maps("reshape_as", "view_as")
def reshape_as(x: Any, other: Any) -> Mapped:
    return call("reshape", x, tuple(other.shape))


@maps("flatten")
def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Mapped:
    return call("flatten", x, start_dim, end_dim)


@maps("ravel")
def ravel(x: Any) -> Mapped:
    return call("flatten", x)


@maps("squeeze", "squeeze.multiple")
def squeeze(x: Any, dim: Any = None) -> Mapped:
    # torch keeps an axis that it was asked to drop if its size is not 1; Lucid raises.
    axes = range(x.ndim) if dim is None else (dim,) if isinstance(dim, int) else dim
    needs(all(-x.ndim <= a < x.ndim and x.shape[a] == 1 for a in axes) or dim is None, "squeeze: axes of other sizes")
    return call("squeeze", x) if dim is None else call("squeeze", x, dim)


@maps("t")
def t(x: Any) -> Mapped:
    needs(x.ndim <= 2, "t of more than two axes: T reverses them all")
    return call("T", x)


@maps("permute")
def permute(x: Any, dims: Any) -> Mapped:
    return call("permute", x, tuple(dims))


@maps("expand", "broadcast_to")
def expand(x: Any, *shape: Any) -> Mapped:
    return call("expand", x, *shape)


@maps("expand_as")
def expand_as(x: Any, other: Any) -> Mapped:
    return call("expand", x, tuple(other.shape))


@maps("repeat", "tile")
def repeat(x: Any, *repeats: Any) -> Mapped:
    return call("repeat", x, *repeats)


@maps("split", "split.list_args", "unsafe_split", "split_with_sizes")
def split(x: Any, split_size_or_sections: Any, dim: int = 0) -> Mapped:
    return call("split", x, split_size_or_sections, dim)


@maps("chunk", "unsafe_chunk")
def chunk(x: Any, chunks: int, dim: int = 0) -> Mapped:
    return call("chunk", x, chunks, dim)


@maps("unbind")
def unbind(x: Any, dim: int = 0) -> Mapped:
    needs(dim == 0, "unbind of another axis: iteration runs over the first")
    return call("unbind", x)


@maps("flip")
def flip(x: Any, dims: Any) -> Mapped:
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    needs(len(axes) == 1, "flip of several axes: one after the other")
    return call("flip", x, axes[0])


@maps("fliplr")
def fliplr(x: Any) -> Mapped:
    return call("flip", x, 1)


@maps("flipud")
def flipud(x: Any) -> Mapped:
    return call("flip", x, 0)


@maps("cat")
def cat(tensors: Any, dim: int = 0) -> Mapped:
    needs(all(t.ndim == tensors[0].ndim for t in tensors), "cat: an empty tensor of another rank")
    return call("concat", *tensors, axis=dim)


@maps("stack")
def stack(tensors: Any, dim: int = 0) -> Mapped:
    return call("stack", *tensors, axis=dim)


@maps("nn.functional.pad.constant")
def pad(x: Any, pad: Any, mode: str = "constant", value: Any = None) -> Mapped:
    return constant_pad(x, pad, 0 if value is None else value)


@maps("constant_pad_nd")
def constant_pad(x: Any, pad: Any, value: Any = 0) -> Mapped:
    """torch gives a pair for each axis, the last axis first; Lucid the padding before and after each axis."""
    needs(len(pad) % 2 == 0 and len(pad) <= 2 * x.ndim, "pad: torch refuses")
    needs(min(pad, default=0) >= 0, "pad by negative amounts: a slice")
    others = (0,) * (x.ndim - len(pad) // 2)
    return call("pad", x, before=(*others, *pad[-2::-2]), after=(*others, *pad[::-2]), value=value)


def _triangle(lucid: str) -> Callable[..., Mapped]:
    return lambda x, diagonal=0: call(lucid, x, diagonal=diagonal)


OPERATORS |= {name: _triangle(name) for name in ("tril", "triu")}

# Indexing -------------------------------------------------------------------------------------------------------------


@maps("__getitem__")
def getitem(x: Any, index: Any) -> Mapped:
    return call("getitem", x, *(index if isinstance(index, tuple) else (index,)))


@maps("select")
def select(x: Any, dim: int, index: int) -> Mapped:
    return call("getitem", x, *_at(x, dim, index))


@maps("narrow")
def narrow(x: Any, dim: int, start: Any, length: int) -> Mapped:
    needs(isinstance(start, int), "narrow: a tensor as the start")
    first = start + x.shape[dim] if start < 0 else start
    needs(first >= 0 <= length and first + length <= x.shape[dim], "narrow beyond the axis: slices are cut off")
    return call("getitem", x, *_at(x, dim, slice(first, first + length)))


@maps("slice")
def sliced(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Mapped:
    return call("getitem", x, *_at(x, dim, slice(start, end, step)))


def _at(x: Any, dim: int, item: Any) -> Iterable[Any]:
    """An index that applies to one axis and leaves the others."""
    axis = dim % max(x.ndim, 1)
    return (*[slice(None, None, None)] * axis, item)


@maps("index_select")
def index_select(x: Any, dim: int, index: Any) -> Mapped:
    needs(x.ndim > 0, "index_select of a tensor without axes")
    return call("take", x, index, dim)


@maps("gather")
def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Mapped:
    needs(x.ndim > 0 and index.ndim == x.ndim, "gather: a tensor without axes")
    others = [i for i in range(x.ndim) if i != dim % x.ndim]
    needs(all(index.shape[i] == x.shape[i] for i in others), "gather with an index smaller in another axis")
    return call("take_along", x, index, axis=dim % x.ndim)


@maps("take_along_dim")
def take_along_dim(x: Any, indices: Any, dim: int | None = None) -> Mapped:
    needs(dim is not None, "take_along_dim of all axes: flatten first")
    return call("take_along", x, indices, axis=dim)


# Making tensors -------------------------------------------------------------------------------------------------------


def plain(options: dict[str, Any]) -> dict[str, Any]:
    """The options of a creation function that apply here."""
    assert not options.keys() - {"dtype", "device", "requires_grad", "layout", "pin_memory"}, options
    dtype = options.get("dtype")
    return {} if dtype is None else {"dtype": dtype}


@maps("zeros")
def zeros(*shape: Any, **options: Any) -> Mapped:
    return call("zeros", *shape, **plain(options))


@maps("ones")
def ones(*shape: Any, **options: Any) -> Mapped:
    return call("ones", *shape, **plain(options))


@maps("full")
def full(shape: Any, value: Any, **options: Any) -> Mapped:
    needs("dtype" in options, "full: without an element type Lucid makes float32, torch that of the number")
    return call("full", shape, value, **plain(options))


@maps("eye")
def eye(*sizes: int, **options: Any) -> Mapped:
    return call("eye", *sizes, **plain(options))


@maps("arange")
def arange(start: Any, end: Any = None, step: Any = 1, **options: Any) -> Mapped:
    first, stop = (0, start) if end is None else (start, end)
    needs(all(type(n) is int for n in (first, stop, step)), "arange of fractions and booleans")
    return call("arange", first, stop, step, **plain(options))


@maps("scalar_tensor")
def scalar_tensor(value: Any, **options: Any) -> Mapped:
    return call("tensor", value, **plain(options))


@maps("nn.functional.one_hot")
def one_hot(x: Any, num_classes: int = -1) -> Mapped:
    needs(num_classes > 0, "one_hot: the number of classes from the values")
    return call("one_hot", x, num_classes, torch.int64)
