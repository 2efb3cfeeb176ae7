"""Which runtimes besides onnxruntime's CPU provider run a model, and which of its ops is the reason if one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from onnx import NodeProto

from lucid.core.targets.record import Release, shown
from lucid.inspection.loaders import ORT_OWN, STANDARD, Loader
from lucid.inspection.other_runtimes import OTHERS, Gap, OtherRuntime
from lucid.inspection.values import Values


def other_loaders(opsets: Mapping[str, int], values: Values, declared: Release | None) -> tuple[Loader, ...]:
    """What is known about other runtimes: the op that each does not run, or that none is known.

    Args:
        opsets: by domain, of those that nodes use.
        values: of the model.
        declared: the oldest onnxruntime that it was exported for, if the file says so.
    """
    return tuple(_in(runtime, opsets, values, declared) for runtime in OTHERS)


def _in(runtime: OtherRuntime, opsets: Mapping[str, int], values: Values, declared: Release | None) -> Loader:
    opset = max((version for domain, version in opsets.items() if domain in ("", "ai.onnx")), default=1)
    if opset > runtime.opset:
        return Loader(runtime.name, None, f"opset {opset} was not tried, {runtime.opset} and older ones were")
    if foreign := sorted(domain for domain in opsets if domain not in STANDARD + ORT_OWN):
        return Loader(runtime.name, None, f"needs the library of custom operators for {', '.join(foreign)}")
    if runtime.release is not None and declared is not None and declared > runtime.release:
        return Loader(runtime.name, None, f"exported for onnxruntime {shown(declared)} and newer ones")
    found = [(gap, nodes) for gap in runtime.gaps if (nodes := list(gap.nodes(values)))]
    for loads in (False, None):
        for gap, nodes in found:
            if gap.loads is loads:
                return _told(runtime, gap, nodes)
    if unknown := _not_compared(runtime, values):
        reason = f"not compared: {', '.join(unknown[:4])}{' and more' if len(unknown) > 4 else ''}"
        return Loader(runtime.name, None, reason, unknown[0])
    for gap, nodes in found:
        return _told(runtime, gap, nodes)
    return Loader(runtime.name, runtime.tried or None, runtime.says)


def _told(runtime: OtherRuntime, gap: Gap, nodes: list[NodeProto]) -> Loader:
    """The reason that a gap is: op, how many nodes, and where the first one is."""
    first = nodes[0]
    count = f"{len(nodes)} nodes, first " if len(nodes) > 1 else ""
    where = f" ({count}{first.name})" if first.name else ""
    return Loader(runtime.name, gap.loads, f"{first.op_type}{where}: {gap.reason}", first.op_type, first.name)


def _not_compared(runtime: OtherRuntime, values: Values) -> list[str]:
    """The ops of a model that a runtime was not compared with, the most frequent one first."""
    found = Counter[str]()
    for node in values.nodes:
        if node.domain in ORT_OWN and node.op_type not in runtime.own:
            found[f"{node.domain}.{node.op_type}"] += 1
        elif node.domain in STANDARD and runtime.standard and node.op_type not in runtime.standard:
            found[node.op_type] += 1
    return [name for name, _ in found.most_common()]
