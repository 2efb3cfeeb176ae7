"""The memory that a model demands when it is loaded: copies of its functions, and tensors computed from constants.

A file of a few hundred bytes can demand terabytes, which onnx and onnxruntime allocate when they load it. This module
counts what can be counted exactly from the file; for everything else a command has a budget (`lucid/cli/guard.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import NodeProto, inliner

from lucid.runtime.constant_sizes import MAX_MADE, made_of_constants
from lucid.runtime.subgraphs import nodes_inside

MAX_NODES = 1 << 18  # after each call of a function is replaced by its body; as many as `skeleton.MAX_ENTRIES`
MAX_BYTES = 1 << 28  # of these nodes
MAX_DEPTH = 100  # of functions that call each other: protobuf's own limit of depth


def demands(model: onnx.ModelProto) -> str:
    """The model's demands beyond the limits, as text; empty without such."""
    if excess := _calls(model):
        return excess
    if (count := made_of_constants(_inlined(model))) > MAX_MADE:
        return f"{_about(count)} elements computed from constants, expected at most {MAX_MADE}"
    return ""


def _inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the bodies of its functions, whose constants may be attributes of their calls."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except (RuntimeError, ValueError):  # a call that does not fit its function: no runtime loads it
        return model


def _calls(model: onnx.ModelProto) -> str:
    """Count the nodes and bytes of the graph after each call is replaced by the function's body, without doing so."""
    if not model.functions:
        return ""
    bodies = {(f.domain, f.name, f.overload): f for f in model.functions}
    called = {key: [k for n in nodes_inside(f.node) if (k := _key(n)) in bodies] for key, f in bodies.items()}
    counts: dict[tuple[str, str, str], tuple[int, int, int]] = {}  # nodes, bytes, depth; callees first

    def count(calls: Sequence[tuple[str, str, str]], nodes: int, size: int) -> tuple[int, int, int]:
        inner = [counts[key] for key in calls]
        return (
            nodes + sum(each[0] for each in inner),
            size + sum(each[1] for each in inner),
            1 + max((each[2] for each in inner), default=0),
        )

    waiting = {key: set(calls) for key, calls in called.items()}
    callers: dict[tuple[str, str, str], list[tuple[str, str, str]]] = {key: [] for key in bodies}
    for key, calls in waiting.items():
        for each in calls:
            callers[each].append(key)
    ready = [key for key, calls in waiting.items() if not calls]
    while ready:
        key = ready.pop()
        counts[key] = count(called[key], len(bodies[key].node), bodies[key].ByteSize())
        for caller in callers[key]:
            waiting[caller].discard(key)
            if not waiting[caller]:
                ready.append(caller)
    if len(counts) < len(bodies):
        return "functions that call themselves, expected none"
    main = nodes_inside(model.graph.node)
    nodes, size, depth = count([k for n in main if (k := _key(n)) in bodies], len(main), 0)
    if depth - 1 > MAX_DEPTH:
        return f"functions that call each other {depth - 1} deep, expected at most {MAX_DEPTH}"
    if nodes > MAX_NODES or size > MAX_BYTES:
        got = f"{_about(nodes)} nodes of {_about(size)} bytes after its functions are inlined"
        return f"{got}, expected at most {MAX_NODES} of {MAX_BYTES}"
    return ""


def _key(node: NodeProto) -> tuple[str, str, str]:
    return node.domain, node.op_type, node.overload


def _about(count: int) -> str:
    return str(count) if count < 10**9 else f"10^{len(str(count)) - 1}"
