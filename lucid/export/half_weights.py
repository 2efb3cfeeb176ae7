"""The weights of a graph in half precision, and which of them it cannot hold."""

from __future__ import annotations

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DType, as_dtype, float32
from lucid.core.graph.values import Constant, Origin

# The share of a weight's numbers that become zero which is worth a warning. MiniLM, which loses nothing by float16,
# has a vector with 0.8 % of them.
_MANY_VANISH = 0.01


class HalfWeights:
    """The weights of a graph in half precision. Arrays that are the same or transposes share memory, as they did."""

    def __init__(self, graph: Graph, dtype: DType, saturate: bool) -> None:
        self.dtype = dtype
        self.numbers = 0
        self.beyond: dict[str, float] = {}
        self.vanished: dict[str, float] = {}
        self.names: list[tuple[str, Array]] = []
        self._graph = graph
        self._saturate = saturate
        self._arrays: dict[tuple[object, ...], Array] = {}
        self._constants: dict[int, Constant] = {}

    def has(self, constant: Constant) -> bool:
        """Whether a constant is a parameter in float32, or a view of a part of one."""
        whole, origin = constant.array, constant.origin
        while origin is not None and self._graph.names.get(whole) is None:
            whole, origin = origin.whole, origin.whole_origin
        known = constant.type.dtype == float32 and self._graph.names.get(whole) is not None
        return known and np.may_share_memory(whole, constant.array)

    def halved(self, constant: Constant) -> Constant:
        """A weight in half precision, under its own name."""
        array, origin = self._named(constant), None
        if constant.origin is not None and constant.origin.suffix == ".T" and array.ndim == 2:
            whole = self._named(Constant(constant.origin.whole, constant.type, constant.origin.whole_origin))
            origin = Origin(whole, ".T", None)  # so that a tied layer is stored once
        kind = constant.type.with_dtype(as_dtype(array.dtype))
        return self._constants.setdefault(id(array), Constant(array, kind, origin))

    def _named(self, constant: Constant) -> Array:
        label = str(self._graph.name_of(constant))
        half = self._half(constant.array, label)
        self.names.append((label, half))
        return half

    def _half(self, array: Array, label: str) -> Array:
        key = (array.__array_interface__["data"][0], array.shape, array.strides)
        if key not in self._arrays:
            transposed = array.flags.f_contiguous and not array.flags.c_contiguous
            self._arrays[key] = self._half(array.T, label).T if transposed else self._converted(array, label)
        return self._arrays[key]

    def _converted(self, array: Array, label: str) -> Array:
        beyond = _beyond(array, self.dtype)
        if beyond.any():
            self.beyond[label] = float(np.abs(array[beyond]).max())
            if not self._saturate:
                return array
        self.numbers += array.size
        kept = ~(np.abs(array) <= self.dtype.smallest / 2)  # NaN is
        lost = int(np.count_nonzero(array)) - int(np.count_nonzero(kept))
        if lost > _MANY_VANISH * array.size:
            self.vanished[label] = lost / array.size
        return narrowed(array, self.dtype)


def narrowed(array: Array, dtype: DType) -> Array:
    """Numbers rounded to a narrower floating-point type; finite ones beyond its largest become that."""
    beyond = _beyond(array, dtype)
    with np.errstate(all="ignore"):
        result = array.astype(dtype.numpy)
    return np.where(beyond, np.copysign(dtype.largest, array).astype(dtype.numpy), result) if beyond.any() else result


def _beyond(array: Array, dtype: DType) -> Array:
    """Which finite numbers would be infinite in a narrower type; one False if none is, which two fast passes tell."""
    if not array.size or (array.max() <= dtype.largest and array.min() >= dtype.lowest):
        return np.zeros((), np.bool_)
    with np.errstate(all="ignore"):
        return np.asarray(np.isinf(array.astype(dtype.numpy)) & np.isfinite(array))
