"""The result of a mapping: the call of Lucid that corresponds to a sample of torch, or why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import torch

from lucid.core.graph.types import Array, as_dtype
from tests.torch_calls import Call, Slot

DTYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
)


class NotMappedError(Exception):
    """Lucid has no such call; the message says what is missing."""


@dataclass(frozen=True)
class Wanted:
    """A call with torch's tensors among its arguments, and which of torch's results it should give (None: all)."""

    name: str
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    pick: int | None = None

    def taking(self, result: int) -> Wanted:
        """The same, compared with one of torch's results."""
        return Wanted(self.name, self.arguments, self.options, result)


def call(name: str, *arguments: Any, **options: Any) -> Wanted:
    """A call of a function of `tests.torch_calls.FUNCTIONS`."""
    return Wanted(name, arguments, options)


def needs(condition: bool, reason: str) -> None:
    """Raise NotMappedError unless Lucid can express the call."""
    if not condition:
        raise NotMappedError(reason)


@dataclass
class Tensors:
    """Collects the tensors of a tree of arguments and replaces them by slots."""

    arrays: list[Array] = field(default_factory=list)

    def slotted(self, tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            self.arrays.append(array_of(tree))
            return Slot(len(self.arrays) - 1)
        if isinstance(tree, torch.dtype):
            needs(tree in DTYPES, f"element type {str(tree).removeprefix('torch.')}")
            return as_dtype(str(tree).removeprefix("torch."))
        if isinstance(tree, (tuple, list)):  # torch.Size among them
            return (list if isinstance(tree, list) else tuple)(self.slotted(item) for item in tree)
        if isinstance(tree, dict):
            return {key: self.slotted(item) for key, item in tree.items()}
        if isinstance(tree, slice):
            return slice(*self.slotted((tree.start, tree.stop, tree.step)))
        needs(tree is None or tree is ... or isinstance(tree, (bool, int, float, str)), f"a {type(tree).__name__}")
        return tree


def as_call(wanted: Wanted) -> Call:
    """The call of Lucid, with arrays instead of torch's tensors."""
    tensors = Tensors()
    arguments, options = tensors.slotted(wanted.arguments), tensors.slotted(wanted.options)
    return Call(wanted.name, tuple(tensors.arrays), arguments, options)


def array_of(tensor: torch.Tensor) -> Array:
    """A tensor as an array, with its strides."""
    needs(tensor.dtype in DTYPES, f"element type {str(tensor.dtype).removeprefix('torch.')}")
    needs(tensor.layout is torch.strided, "sparse tensors")
    tensor = tensor.detach().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        return np.asarray(tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(tensor.numpy())
