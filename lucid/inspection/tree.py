"""Modules as a tree, from the names that exporters write to a file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from onnx import ModelProto, NodeProto, TensorProto

from lucid.inspection.cost import NOTHING, Cost, cost_of
from lucid.inspection.read import MAX_MODULES, MAX_PATH
from lucid.inspection.shapes import Known
from lucid.runtime.model_file import ModelError, bytes_for
from lucid.runtime.subgraphs import nodes_inside

# The types of shapes, axes, masks and texts, which are not weights.
_CONSTANTS = (TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING)


@dataclass
class ModuleCost:
    """The nodes, parameters, the bytes these take in the file, and the cost of a module with the modules inside it."""

    name: str
    nodes: int = 0
    parameters: int = 0
    weight_bytes: int = 0
    cost: Cost = NOTHING
    children: dict[str, ModuleCost] = field(default_factory=dict)

    def child(self, name: str) -> ModuleCost:
        """The module of this name inside; a new one if there is none."""
        return self.children.setdefault(name, ModuleCost(name))

    def rows(self, depth: int, level: int = 0) -> Iterator[tuple[int, ModuleCost]]:
        """This module and those inside it, parents first, with their level."""
        yield level, self
        if level < depth:
            for child in folded(list(self.children.values())):
                yield from child.rows(depth, level + 1)


def module_path(node: NodeProto, weights: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The path of the module that a node belongs to, outermost first.

    Lucid and torch's newer exporter write the module to the node's metadata; others put it into the node's name, with
    slashes. If the node has no name, the name of the weight that it reads is used, with dots.
    """
    metadata = {entry.key: entry.value for entry in node.metadata_props}
    if "module" in metadata:
        return _split(metadata["module"])
    if "pkg.torch.onnx.name_scopes" in metadata:
        scopes = [part.strip(" '\"") for part in metadata["pkg.torch.onnx.name_scopes"].strip("[]").split(",")]
        scope = scopes[-2] if len(scopes) > 1 else ""
        return () if scope.startswith("_empty_nn_module_stack") else _split(scope)  # torch's name for no module
    if "/" in node.name:
        places = node.name.strip("/").split("/")[:-1]
        return tuple(part for place in places for part in _split(place))
    weight = next((name for name in node.input if name in weights and "." in name), "")
    return _split(weight)[:-1]


def _split(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split(".") if part)


def place_of(model: ModelProto, path: Path) -> Callable[[NodeProto], tuple[str, ...]]:
    """A function that gives the module path of a node in this model; it raises ModelError for one nested too deep."""
    weights = frozenset(tensor.name for tensor in model.graph.initializer)
    ours = model.producer_name == "lucid"

    def place(node: NodeProto) -> tuple[str, ...]:
        parts = _lucid_module_path(node, model.ir_version >= 10) if ours else module_path(node, weights)
        if len(parts) > MAX_PATH:
            raise _too_large(path, f"a node {len(parts)} modules deep, expected at most {MAX_PATH}")
        return parts

    return place


def _too_large(path: Path, what: str) -> ModelError:
    return ModelError(f"{str(path)!r}: {what}; export the model again with shorter names of nodes")


def tree_of(model: ModelProto, shapes: dict[str, Known], path: Path) -> ModuleCost:
    """The modules of a model with their costs; raises ModelError for more of them than any real model has."""
    root = ModuleCost("model")
    graph = model.graph
    sizes = {t.name: t for t in graph.initializer}
    parts = place_of(model, path)
    modules = 0
    counted: set[str] = set()
    for node in graph.node:
        inside = nodes_inside([node])
        parameters = weight_bytes = 0
        for name in {name for each in inside for name in each.input} - counted:
            if name in sizes and sizes[name].data_type not in _CONSTANTS:
                counted.add(name)
                elements = math.prod(sizes[name].dims)
                parameters += elements
                weight_bytes += bytes_for(elements, sizes[name].data_type)
        cost = cost_of(node, shapes)
        place = root
        for part in (None, *parts(node)):
            if part is not None:
                modules += part not in place.children
                place = place.child(part)
            place.nodes += len(inside)
            place.parameters += parameters
            place.weight_bytes += weight_bytes
            place.cost += cost
        if modules > MAX_MODULES:
            raise _too_large(path, f"more than {MAX_MODULES} modules")
    return root


def _lucid_module_path(node: NodeProto, in_metadata: bool) -> tuple[str, ...]:
    """Lucid writes modules to metadata from IR 10 on; names are `layers.0.self_attn/attention/MatMul`: module, op."""
    if in_metadata:
        return next((_split(entry.value) for entry in node.metadata_props if entry.key == "module"), ())
    module = node.name.split("/")[0] if "/" in node.name else ""
    return () if module.startswith("size ") else _split(module)  # nodes that compute a size belong to no module


def folded(children: list[ModuleCost]) -> list[ModuleCost]:
    """Merge consecutive numbered modules that are equal, such as the layers of an encoder, into one."""
    result: list[ModuleCost] = []
    group: list[ModuleCost] = []
    for child in children:
        if group and (not child.name.isdecimal() or _costs(child) != _costs(group[0])):
            result.append(_merged(group))
            group = []
        if child.name.isdecimal():
            group.append(child)
        else:
            result.append(child)
    return [*result, _merged(group)] if group else result


def _costs(module: ModuleCost) -> tuple[object, ...]:
    inside = tuple(_costs(child) for child in module.children.values())
    return module.nodes, module.parameters, module.cost, tuple(module.children), inside


def _merged(group: list[ModuleCost]) -> ModuleCost:
    first, count = group[0], len(group)
    return _times(first, f"{first.name} to {group[-1].name}", count) if count > 1 else first


def _times(module: ModuleCost, name: str, count: int) -> ModuleCost:
    cost = Cost(module.cost.flops * count, module.cost.unknown * count)
    children = {key: _times(child, child.name, count) for key, child in module.children.items()}
    parameters, weight_bytes = module.parameters * count, module.weight_bytes * count
    return ModuleCost(name, module.nodes * count, parameters, weight_bytes, cost, children)
