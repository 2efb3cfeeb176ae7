"""torch's guards: what it assumed about sizes while it exported a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import sympy
import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node
from torch.utils._sympy.functions import FloorDiv, Mod, PythonMod

from lucid.tracing.index_ranges import largest

LONGEST = 4096


class Limits(NamedTuple):
    """The smallest and the largest value of a size or a sum of sizes; None if there is no largest one."""

    least: int
    most: int | None


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


def limits_of_sums(program: ExportedProgram) -> dict[tuple[str, ...], Limits]:
    """The ranges of sums of sizes, by the symbols of torch, for which its program holds: by guards, and by ranges.

    A guard counts if it depends on the sum of its symbols alone. Inequalities of torch's own code are about memory, and
    its lower limits keep sizes apart from 0 and 1, for which programs compute the same: neither counts. A size that it
    took as a constant has both ends.
    """
    environment, hints = _environment(program.graph), _hints(program)
    limits: dict[tuple[str, ...], Limits] = {}
    by_torch: dict[tuple[str, ...], int] = {}  # lower ends that its own code asked for
    for guard, condition in _conditions(environment, hints):
        symbols = sorted(condition.free_symbols, key=str)
        least, most = _range(condition, symbols, sum(hints[symbol] for symbol in symbols))
        key = tuple(map(str, symbols))
        if _is_torch(guard) and (most is None or not isinstance(condition, sympy.Eq)):
            by_torch[key], least = max(least, by_torch.get(key, 0)), 0
        if least or most is not None:
            limits[key] = _both(Limits(least, most), limits.get(key))
    in_sums = {symbol for key in limits if len(key) > 1 for symbol in key}
    for symbol, values in program.range_constraints.items():  # where guards are lost, in a file, and declared ones
        key = (str(symbol),)
        least = 0 if values.lower <= max(2, by_torch.get(key, 0)) else int(values.lower)
        most = None if str(symbol) in in_sums or values.upper >= _PERIODS else int(values.upper)
        if symbol in hints and (least or most is not None):
            limits[key] = _both(Limits(least, most), limits.get(key))
    return limits


def _both(own: Limits, other: Limits | None) -> Limits:
    limits = [each.most for each in (own, other) if each is not None and each.most is not None]
    return Limits(max(own.least, 0 if other is None else other.least), min(limits, default=None))


def _hints(program: ExportedProgram) -> dict[Any, int]:
    """The sizes of the examples, by torch's symbols."""
    return {
        _expression(size): size.node.hint
        for node in program.graph.nodes
        if node.op == "placeholder"
        for size in getattr(node.meta.get("val"), "shape", ())
        if isinstance(size, torch.SymInt) and isinstance(_expression(size), sympy.Symbol)
    }


def _conditions(environment: Any, hints: Mapping[Any, int]) -> Iterator[tuple[Any, Any]]:
    """Guards with the conditions on sizes of the inputs that they consist of."""
    for guard in environment.guards if environment else ():
        if _is_torch(guard) and isinstance(guard.expr, sympy.Ne):  # such as that a view is not of a whole tensor
            continue
        parts = guard.expr.args if isinstance(guard.expr, sympy.And) else [guard.expr]
        for condition in (part.xreplace(environment.replacements) for part in parts):
            if condition.free_symbols and condition.free_symbols <= hints.keys():
                yield guard, condition


_PERIODS = 5040 << 12
"""A guard about remainders, which holds for a size, holds for one that is larger by this."""
_NEAR = 32


def _range(condition: Any, symbols: Sequence[Any], start: int) -> Limits:
    """The sums of symbols for which a condition holds, as it does for `start`; it may depend on more than the sum."""
    total = sympy.Symbol("total", integer=True, positive=True)
    alone = condition.xreplace({symbols[0]: total - sum(symbols[1:])})
    alone = alone.func(*map(sympy.expand, alone.args)) if isinstance(alone, sympy.Rel) else alone
    if alone.free_symbols != {total}:
        return Limits(0, None)

    def holds(size: int) -> bool:
        return _holds(alone, total, size)

    most = None
    if not holds(start + _PERIODS):
        most = start - 1 + largest(_PERIODS, lambda number: holds(start - 1 + number))
    if holds(1):
        return Limits(0, most)
    least = start + 1 - largest(start, lambda number: holds(start + 1 - number))
    near = range(least, least + _NEAR if most is None else min(least + _NEAR, most + 1))
    monotone = all(map(holds, near)) and not any(map(holds, range(max(1, least - _NEAR), least)))
    return Limits(least if monotone else 0, most)


def _holds(condition: Any, symbol: Any, size: int) -> bool:
    try:
        return bool(condition.xreplace({symbol: sympy.Integer(size)}) == sympy.true)
    except ZeroDivisionError:  # a size that is divided by a part of itself
        return False


def steps(program: ExportedProgram) -> dict[str, tuple[int, int]]:
    """For torch's symbols the step and the remainder of the only sizes for which its program holds, such as (3, 0).

    Left out are symbols that may have any size, and those whose sizes depend on other axes.
    """
    environment, hints = _environment(program.graph), _hints(program)
    by_symbol: dict[Any, list[Any]] = {}
    for guard, condition in _conditions(environment, hints):
        needed = not _is_torch(guard) or guard.sloc.framework_loc.name in _COUNTS  # others choose a way to reshape
        if needed and condition.has(*_REMAINDERS):
            for symbol in condition.free_symbols:
                by_symbol.setdefault(symbol, []).append(condition)
    steps = {}
    for symbol, conditions in by_symbol.items():
        others = set().union(*(condition.free_symbols for condition in conditions)) - {symbol}
        sizes = ({other: sympy.Integer(hints[other] + more) for other in others} for more in range(4))
        own = {_step(symbol, hints[symbol], [condition.xreplace(each) for condition in conditions]) for each in sizes}
        different = [step for step in own if step is not None]  # for odd heights no width may do
        if len(different) == 1 and (step := different[0]) > 1:
            steps[str(symbol)] = step, hints[symbol] % step
    return steps


_COUNTS = ("infer_size", "__call__")
"""What asks whether a shape has as many elements as another: with a size of -1, and without."""
_REMAINDERS = (Mod, PythonMod, FloorDiv)
_LARGEST_STEP = 64


def _step(symbol: Any, size: int, conditions: Sequence[Any]) -> int | None:
    """The distance of the sizes, from this one on, for which conditions hold; 1 if there is no such distance, None if
    they hold for no size.
    """

    def hold(more: int) -> bool:
        return all(_holds(condition, symbol, size + more) for condition in conditions)

    step = next(filter(hold, range(1, _LARGEST_STEP + 1)), None)
    if step is None:
        return None if not hold(0) else 1
    regular = step > 1 and all(hold(more) == (more % step == 0) for more in range(step + 1, 3 * step + 1))
    return step if regular else 1


def _is_torch(guard: Any) -> bool:
    """Whether torch's own code asked."""
    place = getattr(guard.sloc.framework_loc, "filename", "")
    return place.startswith(str(Path(torch.__file__).parent))


def past_ones(program: ExportedProgram, examples: Sequence[Any]) -> list[Any] | None:
    """Larger examples, for programs where torch fixed a dependent size at 1, as it does with all ones.

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
