"""Parts of torch's graphs, as patterns ask for them: calls, sizes, numbers, conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

aten = torch.ops.aten
VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


class Sizes:
    """Sizes of torch's placeholders by the names of the inputs' axes, so that equal names are equal sizes."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def of(self, node: Any) -> tuple[str, ...]:
        """The shape of a node's value as texts; empty if it is no tensor."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        return tuple(self.text(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()

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


def element_type(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


AND = (aten.__and__.Tensor, aten.bitwise_and.Tensor, aten.logical_and.default)


def is_true(node: Any) -> bool:
    """Whether a node is a condition that holds everywhere."""
    if element_type(node) != torch.bool:
        return False
    if is_call(node, aten.full.default, aten.scalar_tensor.default):
        return node.args[-1] is True
    if is_call(node, aten.expand.default):
        return is_true(node.args[0])
    return is_call(node, aten.new_ones.default, aten.ones.default, aten.ones_like.default)
