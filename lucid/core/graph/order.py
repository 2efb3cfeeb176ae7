"""The order in which nodes can run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lucid.core.graph.values import Node, Result, Value


def in_order(outputs: Sequence[Value], known: Callable[[Value], bool] = lambda value: False) -> list[Node]:
    """The nodes that the outputs reach, each after the nodes that it needs; stops at values that are `known`.

    Iterative, so that a model of any depth works. The order depends on the graph alone.
    """
    ordered: list[Node] = []
    seen: set[int] = set()

    def producers(values: Sequence[Value | None]) -> Iterator[Node]:
        return (value.node for value in values if isinstance(value, Result) and not known(value))

    for start in producers(outputs):
        stack = [(start, producers(start.inputs))] if id(start) not in seen else []
        seen.add(id(start))
        while stack:
            node, pending = stack[-1]
            following = next((n for n in pending if id(n) not in seen), None)
            if following is None:
                ordered.append(node)
                stack.pop()
            else:
                seen.add(id(following))
                stack.append((following, producers(following.inputs)))
    return ordered
