"""What calls of ONNX's operators have in common: inputs, attributes, and the error for what has no counterpart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import onnx

from lucid import Tensor

Inputs: TypeAlias = list[Any]
Attributes: TypeAlias = Mapping[str, Any]
Call: TypeAlias = Callable[[Inputs, Attributes, onnx.NodeProto], list[Tensor | None]]


class Inexpressible(Exception):
    """Why Lucid cannot express a node."""


UNKNOWN_TYPE = "an element type that Lucid does not have"


def text(a: Attributes, name: str, usual: str) -> str:
    """An attribute of text."""
    value = a.get(name, usual)
    return value.decode() if isinstance(value, bytes) else value


def numbers(x: Tensor) -> list[int]:
    """The values of a tensor of sizes or axes."""
    return [int(v) for v in x.numpy().ravel()]
