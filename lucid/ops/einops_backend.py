"""einops computes with tensors: a backend is defined as soon as einops is imported, which Lucid never does."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from lucid.core.sizes.dims import Shape, Size
from lucid.ops.creation import arange
from lucid.ops.einsum import einsum
from lucid.ops.shaping import concat
from lucid.ops.tensor.tensor import Tensor

_BACKENDS = "einops._backends"


class _Methods:
    """The methods that einops asks of a backend; sizes may be symbolic while tracing."""

    framework_name = "lucid"

    def is_appropriate_type(self, tensor: object) -> bool:
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        return Tensor(x)

    def to_numpy(self, x: Tensor) -> Any:
        return x.numpy()

    def arange(self, start: Size, stop: Size) -> Tensor:
        return arange(start, stop)

    def shape(self, x: Tensor) -> Shape:
        return x.shape

    def reshape(self, x: Tensor, shape: Sequence[Size]) -> Tensor:
        return x.reshape(*shape)

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        return x.permute(*axes)

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        result: Tensor = getattr(x, {"max": "amax", "min": "amin"}.get(operation, operation))(axis=tuple(axes))
        return result

    def stack_on_zeroth_dimension(self, tensors: Sequence[Tensor]) -> Tensor:
        return concat([tensor.unsqueeze(0) for tensor in tensors], 0)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        return x.unsqueeze(new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, Size]) -> Tensor:
        for position in pos2len:
            x = x.unsqueeze(position)
        return x.expand(*(pos2len.get(axis, -1) for axis in range(n_axes)))

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        return x.repeat(*repeats)

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        return concat(list(tensors), axis)

    def is_float_type(self, x: Tensor) -> bool:
        return x.dtype.kind == "float"

    def einsum(self, pattern: str, *x: Tensor) -> Tensor:
        return einsum(pattern, *x)


def _define(backends: ModuleType) -> None:
    """einops finds a backend among the subclasses of its own class."""
    _kept.append(type("LucidBackend", (_Methods, backends.AbstractBackend), {}))


_kept: list[type] = []  # the class is looked up by weak references only


class _WhenImported(MetaPathFinder):
    """Finds einops' backends once, as Python does, and defines one more after they are loaded."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if name != _BACKENDS or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def loaded(module: ModuleType) -> None:
                load(module)
                _define(module)

            spec.loader.exec_module = loaded  # type: ignore[method-assign]
        return spec


def define_backend() -> None:
    """Define the backend, at once or when einops is imported."""
    if _BACKENDS in sys.modules:
        _define(sys.modules[_BACKENDS])
    else:
        sys.meta_path.insert(0, _WhenImported())
