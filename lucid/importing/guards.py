"""What torch assumed about sizes while it exported a program: its guards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

LONGEST = 4096


def _equalities(graph: Graph) -> Iterator[tuple[Any, Any]]:
    """The two sides of each guard that is an equation."""
    environment = _environment(graph)
    for guard in environment.guards if environment else ():
        if isinstance(guard.expr, sympy.Eq):
            yield guard.expr.args


def _environment(graph: Graph) -> Any:
    for node in graph.nodes:
        mode = getattr(node.meta.get("val"), "fake_mode", None)
        if mode is not None:
            return mode.shape_env
    return None


def _expression(size: Any) -> Any:
    size = size.meta.get("val") if isinstance(size, Node) else size
    return size.node.expr if isinstance(size, torch.SymInt) else size


def decide_extremes(graph: Graph) -> None:
    """Replace maxima and minima of sizes by the operand that torch knows them to be, by a range or a guard."""
    environment, equalities = _environment(graph), list(_equalities(graph))
    for node in list(graph.nodes):
        if node.target not in (torch.sym_max, torch.sym_min):
            continue
        for operand, other in (node.args, node.args[::-1]):
            gap = _expression(operand) - _expression(other)
            lead = environment.bound_sympy(gap if node.target is torch.sym_max else -gap).lower
            excess = sympy.expand(_expression(node) - _expression(operand))
            if lead >= 0 or any(excess in (sympy.expand(a - b), sympy.expand(b - a)) for a, b in equalities):
                node.replace_all_uses_with(operand)
                break


def past_ones(program: ExportedProgram, examples: Sequence[Any]) -> list[Any] | None:
    """Larger examples, where torch took a size that depends on that of an input as the constant 1, like all ones.

    None if it did not, or if sizes up to `LONGEST` do not change that.
    """
    inputs = {node.name: node for node in program.graph.nodes if node.op == "placeholder"}
    axes = [
        [_expression(size) for size in getattr(inputs[name].meta.get("val"), "shape", ())] if name in inputs else []
        for name in program.graph_signature.user_inputs  # plain values among them
    ]
    known = {
        symbol: size
        for own, example in zip(axes, examples, strict=True)
        for symbol, size in zip(own, getattr(example, "shape", ()), strict=True)
        if isinstance(symbol, sympy.Symbol)
    }
    ones = [a if b == 1 else b for a, b in _equalities(program.graph) if 1 in (a, b)]
    ones = [size for size in ones if size not in known and size.free_symbols and size.free_symbols <= set(known)]
    if not ones:
        return None
    growing = set().union(*(size.free_symbols for size in ones))
    sizes = dict(known)
    while any(size.xreplace({name: sympy.Integer(value) for name, value in sizes.items()}) == 1 for size in ones):
        sizes |= {symbol: 2 * sizes[symbol] + 3 for symbol in growing}
        if any(sizes[symbol] > LONGEST for symbol in growing):
            return None
    for place, own in enumerate(axes):
        for axis, symbol in enumerate(own):
            if symbol in growing:
                places = torch.arange(sizes[symbol]) % known[symbol]
                examples = [*examples[:place], examples[place].index_select(axis, places), *examples[place + 1 :]]
    return list(examples)
