"""What torch assumed about sizes while it exported a program: its guards."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

from lucid.tracing.index_ranges import largest

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


def largest_sums(program: ExportedProgram) -> dict[tuple[str, ...], int]:
    """The largest sums of sizes, by the symbols of torch, for which its program holds: by guards, and by ranges.

    A guard counts if it depends on the sum of its symbols alone. Lower ends of ranges do not: torch keeps sizes apart
    from 0 and 1, for which programs compute the same. Nor do inequalities of torch's own code, which are about memory.
    """
    environment = _environment(program.graph)
    hints = {
        _expression(size): size.node.hint
        for node in program.graph.nodes
        if node.op == "placeholder"
        for size in getattr(node.meta.get("val"), "shape", ())
        if isinstance(size, torch.SymInt) and isinstance(_expression(size), sympy.Symbol)
    }
    found: dict[tuple[str, ...], int] = {}
    guards = [guard for guard in (environment.guards if environment else ()) if not _is_about_memory(guard)]
    for condition in (part.xreplace(environment.replacements) for guard in guards for part in _parts(guard.expr)):
        if condition.free_symbols and condition.free_symbols <= hints.keys():
            symbols = sorted(condition.free_symbols, key=str)
            most = _largest_sum(condition, symbols, sum(hints[symbol] for symbol in symbols))
            if most is not None:
                key = tuple(map(str, symbols))
                found[key] = min(most, found.get(key, most))
    in_sums = {symbol for key in found if len(key) > 1 for symbol in key}
    for symbol, values in program.range_constraints.items():  # where guards are lost, in a file, and declared ones
        if symbol in hints and str(symbol) not in in_sums and values.upper < _PERIODS:
            found[str(symbol),] = min(int(values.upper), found.get((str(symbol),), int(values.upper)))
    return found


_PERIODS = 5040 << 12
"""A guard about remainders, which holds for a size, holds for one that is larger by this."""


def _largest_sum(condition: Any, symbols: Sequence[Any], start: int) -> int | None:
    """The largest sum of symbols for which a condition holds, as it does for `start`; None if it always does, or
    depends on more than the sum.
    """
    total = sympy.Symbol("total", integer=True, positive=True)
    alone = condition.xreplace({symbols[0]: total - sum(symbols[1:])})
    alone = alone.func(*map(sympy.expand, alone.args)) if isinstance(alone, sympy.Rel) else alone

    def holds(more: int) -> bool:
        return bool(alone.xreplace({total: sympy.Integer(start + more)}) == sympy.true)

    if alone.free_symbols != {total} or holds(_PERIODS):
        return None
    return start - 1 + largest(_PERIODS, lambda number: holds(number - 1))


def _parts(condition: Any) -> Sequence[Any]:
    """The conditions that hold together."""
    return condition.args if isinstance(condition, sympy.And) else [condition]


def _is_about_memory(guard: Any) -> bool:
    """Whether torch's own code asked that two sizes differ, as for views of a whole tensor."""
    place = getattr(guard.sloc.framework_loc, "filename", "")
    return isinstance(guard.expr, sympy.Ne) and place.startswith(str(Path(torch.__file__).parent))


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
