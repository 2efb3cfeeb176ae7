"""A graph as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lucid.core.graph.names import unused_name
from lucid.core.graph.values import Body, Constant, Input, Node, Value, in_order

_MAX_WIDTH = 100  # columns before the types, however long a line is


def listing(
    inputs: Sequence[Input], outputs: Sequence[Value], name_of: Callable[[Constant], str | None], title: str = "graph"
) -> str:
    """One line per node: name, op, arguments, type. A comment starts each module; a node's body follows it, indented.

    `name_of` gives the names of parameters.
    """
    names: dict[int, str] = {id(value): value.name for value in inputs}
    taken = dict.fromkeys(names.values(), 1)

    def name(value: Value | None) -> str:
        if value is None:
            return "None"
        if isinstance(value, Constant):
            return name_of(value) or (str(value.array) if value.array.ndim == 0 else f"<{value.type}>")
        return names[id(value)]

    lines: list[tuple[str, str]] = []
    previous = ""
    for node in in_order(outputs):
        for result in node.results:
            names[id(result)] = unused_name(node.op.name, taken)
        if node.scope != previous:
            lines.append((f"  # {node.scope or 'top level'}", ""))
            previous = node.scope
        left = ", ".join(names[id(result)] for result in node.results)
        arguments = [*map(name, _without_trailing_none(node)), *set_attributes(node)]
        lines.append((f"  {left} = {node.op.name}({', '.join(arguments)})", ", ".join(map(str, node.types))))
        for key, body in node.attributes.items():
            if isinstance(body, Body):
                inner = listing(body.inputs, body.outputs, name_of, key).splitlines()
                lines += [(f"    {line}", "") for line in inner]
    width = min(max((len(left) for left, right in lines if right), default=0), _MAX_WIDTH)
    head = ", ".join(f"{value.name}: {value.type}" for value in inputs)
    tail = ", ".join(str(value.type) for value in outputs)
    body = [f"{left:<{width}}  {right}".rstrip() for left, right in lines]
    return "\n".join([f"{title}({head}) -> {tail}", *body, f"  return {', '.join(map(name, outputs))}"])


def _without_trailing_none(node: Node) -> Sequence[Value | None]:
    present = [index for index, value in enumerate(node.inputs) if value is not None]
    return node.inputs[: present[-1] + 1] if present else ()


def set_attributes(node: Node) -> list[str]:
    """The attributes that do not have their defaults."""
    shown = {key: show_attribute(value) for key, value in node.attributes.items() if not isinstance(value, Body)}
    defaults = {key: show_attribute(value) for key, value in node.op.defaults.items()}
    return [f"{key}={text}" for key, text in shown.items() if defaults.get(key) != text]


def show_attribute(value: Any) -> str:
    """An attribute as text for a printed graph."""
    if isinstance(value, tuple):
        return f"({', '.join(map(show_attribute, value))}{',' if len(value) == 1 else ''})"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
