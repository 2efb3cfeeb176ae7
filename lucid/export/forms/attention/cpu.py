"""The forms of attention tuned for onnxruntime's CPU provider: each candidate of `plan.py` with what writes it.

A form refuses a call where the plan does. Writers only write: what they need to know is in the plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from lucid.core.graph.values import Node
from lucid.core.sizes.dims import sym_min
from lucid.core.targets.runtimes import OWN, OWN_OPS
from lucid.export.builder import Builder, Operand, Operands
from lucid.export.form import Emit, Form, Taken, form
from lucid.export.forms.attention import plan as p
from lucid.export.forms.attention.blocks import in_blocks
from lucid.export.forms.attention.call import Call
from lucid.export.forms.attention.groups import groups_as_queries
from lucid.export.forms.attention.nodes import in_tiles
from lucid.export.forms.attention.open_lengths import by_length
from lucid.export.forms.attention.plan import CANDIDATES, Candidate, Plan, plan
from lucid.export.forms.attention.products import (
    at_once,
    capped,
    hidden_of,
    in_products,
    short_call,
    three_products,
    with_sinks,
)
from lucid.export.forms.attention.scan import of_any_length
from lucid.export.forms.attention.windows import in_window_blocks
from lucid.ops import attention

Writer: TypeAlias = Callable[[Builder, Node, Call, Plan], Operands]


def _query_blocks(build: Builder, node: Node, call: Call, plan: Plan) -> Operands:
    return in_blocks(build, call, plan) if plan.limit is None else of_any_length(build, call, plan, node.types[0])


def _tiles_if_long(build: Builder, node: Node, call: Call, plan: Plan) -> Operand:
    return by_length(
        build,
        sym_min(call.queries, call.keys),
        plan,
        lambda: at_once(build, call, plan.short),
        lambda: in_tiles(build, call),
        node.types[0],
    )


def _products_if_long(build: Builder, node: Node, call: Call, plan: Plan) -> Operand:
    # Masks are emitted outside of the branches, where all layers share them.
    bias, seeing = hidden_of(call)
    build.names_of([x for x in (bias, seeing) if x is not None])
    short = short_call(build, call, plan)
    return by_length(
        build,
        call.queries,
        plan,
        lambda: at_once(build, short, plan.short),
        lambda: in_products(build, call, bias, seeing),
        node.types[0],
    )


WRITERS: Mapping[str, Writer] = {
    p.IN_PRODUCTS: _query_blocks,
    p.HANDED_ON: _query_blocks,
    p.BLOCKS: _query_blocks,
    p.TILES: lambda build, node, call, plan: in_tiles(build, call),
    p.TILES_IF_LONG: _tiles_if_long,
    p.THREE_PRODUCTS: lambda build, node, call, plan: three_products(build, call),
    p.WINDOWS: lambda build, node, call, plan: in_window_blocks(build, call, plan, node.types[0]),
    p.SHARED: lambda build, node, call, plan: in_products(build, call, *hidden_of(call)),
    p.SHARED_IF_LONG: _products_if_long,
    p.CAPPED: lambda build, node, call, plan: capped(build, call, plan.rows),
    p.SINKS: lambda build, node, call, plan: with_sinks(build, call),
    p.GROUPS: lambda build, node, call, plan: groups_as_queries(build, call, plan, node.types),
}
"""The writer of a plan, by the name of its form."""


def _form(candidate: Candidate) -> Form:
    own = any(kernel in OWN_OPS for kernel in candidate.kernel.split())
    declared = form(
        attention,
        takes=candidate.takes,
        name=candidate.name,
        opset=candidate.opset,
        kind=candidate.kind,
        domain=OWN if own else "",
        kernel=candidate.kernel,
        strategy=candidate.strategy,
    )
    return declared(_emit(candidate))


def _emit(candidate: Candidate) -> Emit:
    def emit(build: Builder, node: Node) -> Taken:
        call = Call.of(node)
        decided = plan(call, build.target, (candidate,))
        results = WRITERS[candidate.name](build, node, call, decided)
        return Taken(results, decided.note)

    return emit


FORMS: tuple[Form, ...] = tuple(map(_form, CANDIDATES))
"""All of them, best first."""
