"""Forms of loops: ONNX Scan, whose body is the body of the op.

Measured on onnxruntime 1.31's CPU provider, a step of Scan takes half as long as one of Loop, which would have to pick
its elements by itself.
"""

from __future__ import annotations

import numpy as np

from lucid.bodies import with_inputs
from lucid.dims import Size, SymbolicSizeError
from lucid.export.builder import Block, Builder
from lucid.export.form import Taken, form, refuse
from lucid.export.run_time_sizes import size_vector
from lucid.known_runtimes import OUTER_VALUES, SCAN_OF_NOTHING
from lucid.ops.creation import full
from lucid.ops.loops import scan_op
from lucid.values import Body, Node, Value

_TAKES = "body carries slices reverse"


@form(scan_op, name="If, Scan", takes=_TAKES, kernel="Scan", mends=SCAN_OF_NOTHING)
def scan_of_any_length(build: Builder, node: Node) -> Taken:
    """Scan where there is something to loop over, else what there is without steps."""
    length = _length(node)
    if _is_some(length):
        refuse("there is at least one step")
    if isinstance(length, int):
        return Taken(tuple(_without_steps(node)), "there are no steps")
    is_empty = build.op("Equal", size_vector(build, length), np.zeros(1, np.int64))
    then = build.block(lambda: build.block_outputs(_without_steps(node)))
    otherwise = build.block(lambda: list(zip(_scanned(build, node), node.types, strict=True)))
    names = build.ops("If", is_empty, outputs=len(node.types), then_branch=then, else_branch=otherwise)
    return Taken(names, f"{length} may be 0", has_body=True)


@form(scan_op, name="Scan", takes=_TAKES, kernel="Scan")
def scan(build: Builder, node: Node) -> Taken:
    return Taken(_scanned(build, node), "", has_body=True)


def _length(node: Node) -> Size:
    sequence = node.inputs[node.attributes["carries"]]
    assert sequence is not None
    return sequence.type.shape[0]


def _is_some(length: Size) -> bool:
    try:
        return bool(length > 0)
    except SymbolicSizeError:
        return False


def _without_steps(node: Node) -> list[Value]:
    """The carry as it was, and results of length 0."""
    carries = node.attributes["carries"]
    results = [full((0, *kind.shape[1:]), 0, kind.dtype).to_value() for kind in node.types[carries:]]
    return [*_given(node)[:carries], *results]


def _given(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def _scanned(build: Builder, node: Node) -> tuple[str, ...]:
    carries, slices, reverse = (node.attributes[name] for name in ("carries", "slices", "reverse"))
    body, given, results = node.attributes["body"], _given(node), len(node.types)
    own = carries + slices
    # A runtime that does not load a body that reads values around it gets them as carries that no step changes.
    constant = range(own, len(given)) if build.target.wrong(OUTER_VALUES) else range(0)
    order = [*range(carries), *constant, *range(carries, own)]
    names = build.ops(
        "Scan",
        *(given[place] for place in order),
        outputs=results + len(constant),
        body=_body(build, body, given, order, carries, constant),
        num_scan_inputs=slices,
        scan_input_directions=[1] * slices if reverse else None,
        scan_output_directions=[1] * (results - carries) if reverse and results > carries else None,
    )
    return (*names[:carries], *names[carries + len(constant) :])


def _body(build: Builder, body: Body, given: list[Value], order: list[int], carries: int, constant: range) -> Block:
    """The body as a nested graph with the inputs of this order, which reads the others from outside."""
    outer = {
        id(inside): value
        for place, (inside, value) in enumerate(zip(body.inputs, given, strict=True))
        if place not in order
    }
    outputs = with_inputs(body, outer)
    unchanged = [body.inputs[place] for place in constant]
    with build.of_modules_within():
        return build.block(
            lambda: build.block_outputs([*outputs[:carries], *unchanged, *outputs[carries:]]),
            [body.inputs[place] for place in order],
        )
