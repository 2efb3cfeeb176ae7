"""Forms of loops: ONNX Scan, whose body is the body of the op.

Measured on onnxruntime 1.31's CPU provider, a step of Scan takes half as long as one of Loop, which would have to pick
its elements by itself.

OpenVINO 2026.4 makes a TensorIterator of it, with three faults. A step whose first operation may write its result in
place of the element, such as `element + carry`, leaves that result to later steps. A loop whose steps read no element
does a single step. And in an If, which a loop of no steps would need elsewhere, a loop does not load for a fixed batch,
and may use the sizes of the call before. `scan_of_copies` has none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from lucid.core.graph.loop_bodies import with_bodies, with_inputs
from lucid.core.graph.types import TensorType, int64
from lucid.core.graph.values import Body, Input, Node, Value, in_order
from lucid.core.sizes.dims import Dim, Size, SymbolicSizeError, dim, sym_max
from lucid.core.targets.runtimes import ELEMENTS_IN_PLACE, LOOP_WITHIN, OUTER_VALUES, PROCESSOR, SCAN_OF_NOTHING
from lucid.export.builder import Block, Builder, Emitted, computed
from lucid.export.form import Taken, form, refuse
from lucid.export.run_time_sizes import size_vector
from lucid.export.target import ExportError
from lucid.ops import concat, minimum, take, where
from lucid.ops.creation import arange, full, size_op
from lucid.ops.loops import scan_op
from lucid.ops.tensor.tensor import Tensor

_TAKES = "body carries slices reverse"


@form(scan_op, name="Scan of copies", takes=_TAKES, kernel="Scan", mends=ELEMENTS_IN_PLACE)
def scan_of_copies(build: Builder, node: Node) -> Taken:
    """Scan whose steps copy the elements that they read.

    Where the length may be 0, the sequences get one more element, so that there is always a step; its results are cut
    off. This needs no branch.
    """
    length = _length(node)
    if isinstance(length, int) and not length:
        return Taken(tuple(_without_steps(node)), "there are no steps")
    carries, slices = node.attributes["carries"], node.attributes["slices"]
    operands = list(map(Tensor.from_value, _given(node)))
    start, sequences, outer = operands[:carries], operands[carries : carries + slices], operands[carries + slices :]
    some = _is_some(length)
    steps = length if some else sym_max(length, 1)
    if not some:
        sequences = [concat([x, full((1, *x.shape[1:]), 0, x.dtype)], 0)[:steps] for x in sequences]
    inputs = [*start, *(x.unsqueeze(1) for x in sequences), arange(steps), *outer]
    body = _of_copies(node.attributes["body"], carries, slices)
    attributes = {"body": body, "carries": carries, "slices": slices + 1, "reverse": node.attributes["reverse"]}
    types = (*node.types[:carries], *(kind.with_shape((steps, *kind.shape[1:])) for kind in node.types[carries:]))
    loop = Node(scan_op, tuple(x.to_value() for x in inputs), attributes, types, node.scope)
    names = _scanned(build, loop)
    if some:
        return Taken(names, "steps copy their elements", has_body=True)
    results = [computed(build, name, kind) for name, kind in zip(names, types, strict=True)]
    any_step = size_op(size=length) > 0
    ends = [where(any_step, end, before) for before, end in zip(start, results, strict=False)]
    rows = [stacked[:length] for stacked in results[carries:]]
    return Taken([*ends, *rows], f"{length} may be 0, and steps copy their elements", has_body=True)


def _of_copies(body: Body, carries: int, slices: int) -> Body:
    """A body that takes each element as a row of one, and after them the number of the step.

    It looks the elements up at a place that is 0, but computed from that number, so that a runtime must copy them.
    Outputs that depend on no element are looked up so too: then each of them depends on something of the step.
    """
    before, own, outer = body.inputs[:carries], body.inputs[carries:][:slices], body.inputs[carries + slices :]
    number = Input("step", TensorType(int64, ()))
    place = minimum(Tensor.from_value(number), 0)
    rows = [Input(value.name, value.type.with_shape((1, *value.type.shape))) for value in own]
    elements = {id(value): take(Tensor.from_value(row), place).to_value() for value, row in zip(own, rows, strict=True)}
    dependent = set(elements)
    for node in in_order(body.outputs):
        if any(id(value) in dependent for value in node.inputs):
            dependent.update(map(id, node.results))
    outputs = [
        value if id(original) in dependent else take(Tensor.from_value(value).unsqueeze(0), place).to_value()
        for original, value in zip(body.outputs, with_inputs(body, elements), strict=True)
    ]
    return Body((*before, *rows, number, *outer), tuple(outputs))


@form(scan_op, name="If, Scan", takes=_TAKES, kernel="Scan", mends=SCAN_OF_NOTHING)
def scan_of_any_length(build: Builder, node: Node) -> Taken:
    """Scan where there is a step; otherwise the results of no steps."""
    length = _length(node)
    if _is_some(length):
        refuse("there is at least one step")
    if isinstance(length, int):
        return Taken(tuple(_without_steps(node)), "there are no steps")
    is_empty = build.op("Equal", size_vector(build, length), np.zeros(1, np.int64))
    names = build.either(
        is_empty,
        lambda: build.block_outputs(_without_steps(node)),
        lambda: list(zip(_scanned(build, node), node.types, strict=True)),
    )
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
    """The results of no steps: the carry as it was, and stacked results of length 0."""
    carries = node.attributes["carries"]
    results = [full((0, *kind.shape[1:]), 0, kind.dtype).to_value() for kind in node.types[carries:]]
    return [*_given(node)[:carries], *results]


def _given(node: Node) -> list[Value]:
    return [value for value in node.inputs if value is not None]


def _scanned(build: Builder, node: Node) -> tuple[str, ...]:
    carries, slices, reverse = (node.attributes[name] for name in ("carries", "slices", "reverse"))
    body, operands, results = node.attributes["body"], _given(node), len(node.types)
    if (how := build.target.wrong(LOOP_WITHIN)) and any(inner.op is scan_op for inner in in_order(body.outputs)):
        raise ExportError(
            f"{node.scope or 'scan'}: a loop within a loop: {how}. Write the inner loop as a Python loop over a fixed "
            f'length, or export with target="{PROCESSOR}" for onnxruntime'
        )
    own = carries + slices
    # A runtime that does not load a body that reads values around it gets them as carries that no step changes.
    closed = bool(build.target.wrong(OUTER_VALUES))
    constant = range(own, len(operands)) if closed else range(0)
    order = [*range(carries), *constant, *range(carries, own)]
    # Symbolic sizes have names of their own inside: the vectors outside that each of these names is for.
    inside = {size: build.unused(f"size {size}") for size in (sorted(_sizes_of(body)) if closed else ())}
    sizes = {name: size_vector(build, dim(size)) for size, name in inside.items()}
    block = _body(build, body, operands, order, carries, constant, inside)
    read = [name for name in sizes if name in _read_by(block)]
    at = carries + len(constant)
    names = build.ops(
        "Scan",
        *(operands[place] for place in order[:at]),
        *(sizes[name] for name in read),
        *(operands[place] for place in order[at:]),
        outputs=results + len(constant) + len(read),
        body=_with_carries(build, block, at, read),
        num_scan_inputs=slices,
        scan_input_directions=[1] * slices if reverse else None,
        scan_output_directions=[1] * (results - carries) if reverse and results > carries else None,
    )
    return (*names[:carries], *names[at + len(read) :])


def _body(
    build: Builder,
    body: Body,
    operands: list[Value],
    order: list[int],
    carries: int,
    constant: range,
    sizes: Mapping[str, str],
) -> Block:
    """The body as a nested graph. Its inputs are those in `order`; it reads the others from outside."""
    outer = {
        id(inside): value
        for place, (inside, value) in enumerate(zip(body.inputs, operands, strict=True))
        if place not in order
    }
    outputs = with_inputs(body, outer)
    unchanged = [body.inputs[place] for place in constant]
    with build.of_modules_within():
        return build.block(
            lambda: build.block_outputs([*outputs[:carries], *unchanged, *outputs[carries:]]),
            [body.inputs[place] for place in order],
            sizes,
        )


def _sizes_of(body: Body) -> set[str]:
    """The names of symbolic sizes that a body mentions."""
    nodes = list(with_bodies(in_order(body.outputs)))
    mentioned: list[Any] = [kind.shape for node in nodes for kind in node.types]
    mentioned += [attribute for node in nodes for attribute in node.attributes.values()]
    names: set[str] = set()
    while mentioned:
        item = mentioned.pop()
        if isinstance(item, Dim):
            names |= item.names()
        elif isinstance(item, tuple):
            mentioned += item
    return names


def _read_by(block: Block) -> set[str]:
    """The names that the nodes of a nested graph read, those in its own nested graphs included."""
    read = {name for emitted in block.nodes for name in emitted.inputs}
    inner = [value for emitted in block.nodes for value in emitted.attributes.values() if isinstance(value, Block)]
    return read.union(*map(_read_by, inner))


def _with_carries(build: Builder, block: Block, at: int, names: list[str]) -> Block:
    """A nested graph that also carries these sizes from step to step, after `at` other inputs and outputs."""
    kind = TensorType(int64, (1,))
    copies = [build.unused("Identity") for _ in names]
    nodes = [Emitted("Identity", "", (name,), (copy,), {}, copy, "") for name, copy in zip(names, copies, strict=True)]
    inputs = (*block.inputs[:at], *((name, kind) for name in names), *block.inputs[at:])
    outputs = (*block.outputs[:at], *((copy, kind) for copy in copies), *block.outputs[at:])
    return Block((*block.nodes, *nodes), outputs, inputs)


# Best first, of each op.
FORMS = (scan_of_copies, scan_of_any_length, scan)
