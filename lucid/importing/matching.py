"""Parts of torch's graphs, as patterns ask for them: calls, sizes, numbers, conditions, positions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


class Sizes:
    """Sizes of torch's placeholders by the names of the inputs' axes, so that equal names are equal sizes.

    `constants` are buffers and constant tensors by the names of their placeholders.
    """

    def __init__(self, names: Mapping[str, str], constants: Mapping[str, torch.Tensor]) -> None:
        self.names, self.constants = names, constants

    def of(self, node: Any) -> tuple[str, ...]:
        """The shape of a node's value as texts; empty if it is no tensor."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        return tuple(self.text(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()

    def constant(self, node: Any) -> Any:
        """The number that a node has everywhere; None for others."""
        if is_call(node, aten.full.default, aten.scalar_tensor.default, aten.full_like.default, aten.new_full.default):
            node = node.args[-1]
        elif is_call(node, aten.zeros.default, aten.zeros_like.default, aten.new_zeros.default):
            return 0
        elif isinstance(node, Node) and node.target in self.constants:
            tensor = self.constants[str(node.target)]
            return tensor.item() if tensor.numel() == 1 else None
        return number(node)

    def text(self, size: Any) -> str:
        """A size as a text, by names."""
        if isinstance(size, Node):
            size = size.meta.get("val")
        expression = str(size.node.expr) if isinstance(size, torch.SymInt) else str(size)
        for symbol, name in self.names.items():
            expression = expression.replace(symbol, name) if symbol == expression else expression
        return expression


def is_call(node: Any, *targets: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target in targets


def is_sum(node: Any) -> bool:
    """Whether a node is x + y; `alpha` would multiply y."""
    return is_call(node, aten.add.Tensor) and not node.kwargs


def replace(graph: Graph, node: Node, target: Callable[..., Any], arguments: tuple[Any, ...], **options: Any) -> Node:
    with graph.inserting_before(node):
        new = graph.call_function(target, arguments, options)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    return new


def added(graph: Graph, origin: Node, target: Any, *arguments: Any) -> Node:
    """A new call, where the graph inserts, with the module and line of another node."""
    new = graph.call_function(target, arguments)
    known = [argument.meta["val"] if isinstance(argument, Node) else argument for argument in arguments]
    new.meta = {**origin.meta, "val": target(*known)}
    return new


def element_type(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


AND = (aten.__and__.Tensor, aten.bitwise_and.Tensor, aten.logical_and.default)


def is_true(node: Any) -> bool:
    """Whether a condition holds everywhere."""
    if is_call(node, aten.new_ones.default, aten.ones.default, aten.ones_like.default):
        return bool(element_type(node) == torch.bool)
    if is_call(node, aten.full.default, aten.scalar_tensor.default):
        return bool(node.args[-1] is True)
    if is_call(node, aten.expand.default):
        return is_true(node.args[0])
    if is_call(node, aten.ge.Scalar):
        place = positions(node.args[0])
        return place is not None and bool(place.start >= node.args[1])
    return False


class Range(NamedTuple):
    """Numbers that rise by one along one axis: the first, and where the axis is, from the end."""

    start: int
    axis: int
    length: Any


def positions(node: Any) -> Range | None:
    """What a value is if it holds positions along one axis and is the same along all others."""
    if is_call(node, aten.arange.default):
        return Range(0, -1, node.args[0])
    if is_call(node, aten.arange.start) and isinstance(node.args[0], int):
        return Range(node.args[0], -1, None) if node.args[0] else Range(0, -1, node.args[1])
    if is_call(node, aten.unsqueeze.default):
        inner = positions(node.args[0])
        if inner is None:
            return None
        rank = len(node.meta["val"].shape)
        axis = node.args[1] - rank if node.args[1] >= 0 else node.args[1]
        return inner if axis < inner.axis else inner._replace(axis=inner.axis - 1)
    if is_call(node, aten.expand.default):
        return positions(node.args[0])
    if is_sum(node) and isinstance(node.args[1], int):
        inner = positions(node.args[0])
        return None if inner is None else inner._replace(start=inner.start + node.args[1])
    return None
