"""`inspect_model`, and what it finds in an ONNX file."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import onnx

from lucid.core.number_ranges import Range, check
from lucid.core.targets.record import Release, release_of
from lucid.core.targets.runtimes import OLDEST_RELEASE
from lucid.inspection.loaders import Loader, loaders, other_loaders
from lucid.inspection.memory import PeakMemory, peak_memory_of
from lucid.inspection.read import read
from lucid.inspection.shapes import MAX_SIZE, free_sizes, inferred, real_inputs, shapes_of, type_text
from lucid.inspection.tree import ModuleCost, tree_of
from lucid.inspection.values import values_of
from lucid.runtime.subgraphs import nodes_inside

_SIZES = Range(f"0 to {MAX_SIZE}", lambda size: 0 <= size <= MAX_SIZE, whole=True)


@dataclass(frozen=True)
class Inspection:
    """The result of `inspect_model`.

    Args:
        files: the names and the bytes of the file and of those with its external data.
        producer: the exporter and its version.
        ir_version: that of the file.
        opsets: the version of each domain that the file declares.
        inputs, outputs: their types as text, by name.
        operators: how many nodes there are of each operator, the most frequent first.
        sizes: the values of the symbolic sizes for which operations are counted.
        modules: the cost of the model, with that of its modules.
        memory: the most memory that values take at once at `sizes`, besides weights and inputs.
        loaders: the runtimes, and whether each runs the model.
    """

    files: tuple[tuple[str, int], ...]
    producer: str
    ir_version: int
    opsets: Mapping[str, int]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]
    operators: Mapping[str, int]
    sizes: Mapping[str, int]
    modules: ModuleCost
    memory: PeakMemory
    loaders: tuple[Loader, ...]

    @property
    def parameters(self) -> int:
        """The number of elements of all weights."""
        return self.modules.parameters

    @property
    def flops(self) -> int:
        """Floating-point operations of one run at `sizes`, as far as shapes are known."""
        return self.modules.cost.flops

    def as_dict(self, depth: int = 99) -> dict[str, Any]:
        """Everything as plain data, with modules as far as `depth` levels inside the model."""
        tree = [
            {
                "level": level,
                "module": module.name,
                "nodes": module.nodes,
                "parameters": module.parameters,
                "weight_bytes": module.weight_bytes,
                "flops": module.cost.flops,
                "uncounted_nodes": module.cost.unknown,
            }
            for level, module in self.modules.rows(depth)
        ]
        return {
            "files": [{"name": name, "bytes": count} for name, count in self.files],
            "producer": self.producer,
            "ir_version": self.ir_version,
            "opsets": {domain or "ai.onnx": version for domain, version in self.opsets.items()},
            "inputs": dict(self.inputs),
            "outputs": dict(self.outputs),
            "operators": dict(self.operators),
            "sizes": dict(self.sizes),
            "parameters": self.parameters,
            "flops": self.flops,
            "uncounted_nodes": self.modules.cost.unknown,
            "peak_memory": asdict(self.memory),
            "modules": tree,
            "loaders": [asdict(each) for each in self.loaders],
        }


def inspect_model(path: str | os.PathLike[str], sizes: Mapping[str, int] | None = None) -> Inspection:
    """Inspect any ONNX file: modules, parameters, floating-point operations, and what loads it.

    Args:
        path: the file; its external data must be in its folder.
        sizes: values of symbolic sizes, for which operations are counted; by default 1 for the first axis of an
            input, and for others 128, or what is nearest within the model's positions and limits. A size without a name
            is named after its input and axis, `x.1`.

    Raises:
        ModelError: for a file that is broken, newer than the installed onnx, lacks its data, or demands more than any
            real model.
        OSError: for a file that is missing or may not be read.
        ValueError: for a size that the model does not have, or that is not from 0 to 2147483647.
        TypeError: for a size that is no whole number.
    """
    path = Path(path)
    slim = read(path)
    model = slim.model
    defaults = free_sizes(model)
    unknown = sorted(set(sizes or {}) - set(defaults))
    if unknown:
        raise ValueError(
            f"size {', '.join(unknown)}: the model's symbolic sizes are {', '.join(sorted(defaults)) or 'none'}"
        )
    for name, size in (sizes or {}).items():
        check(f"size {name}", size, _SIZES)
    bound = {**defaults, **(sizes or {})}
    nodes = nodes_inside(model.graph.node)
    opsets = {entry.domain: entry.version for entry in model.opset_import}
    operators = Counter(
        f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type for node in nodes
    )
    domains = {node.domain for node in nodes} | {"", "ai.onnx"}
    used = {domain: version for domain, version in opsets.items() if domain in domains}
    typed = inferred(model, bound)
    declared = _declared(model)
    ours = loaders(used, model.ir_version, {node.op_type for node in nodes}, declared)
    return Inspection(
        files=tuple((str(file), count) for file, count in slim.files),
        producer=f"{model.producer_name} {model.producer_version}".strip() or "unknown",
        ir_version=model.ir_version,
        opsets=opsets,
        inputs={value.name: type_text(value) for value in real_inputs(model.graph)},
        outputs={value.name: type_text(value) for value in model.graph.output},
        operators=dict(operators.most_common()),
        sizes=bound,
        modules=tree_of(model, shapes_of(typed), path),
        memory=peak_memory_of(typed),
        loaders=(*ours, *other_loaders(used, values_of(model, typed, bound), declared)),
    )


def _declared(model: onnx.ModelProto) -> Release | None:
    """The oldest onnxruntime that a model was exported for, if it says so."""
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    return release_of(metadata.get(OLDEST_RELEASE, ""))
