"""The nodes of a file matched with an export's: in their order, or by name where the file has other nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import onnx

from lucid.export.onnx_file.assemble import Assembled

_CONSTANT = "constant"
_Title = Callable[[str, int, onnx.NodeProto], str]


class MatchedConstant(NamedTuple):
    """A constant of a file, of the whole graph or of a body, in the place of a constant of the export."""

    tensor: onnx.TensorProto
    of_body: bool
    expected: str


@dataclass
class MatchedNodes:
    """Pairs of nodes that do the same op on the same values, and how these differ."""

    compared: int = 0  # how many nodes of the file have a counterpart
    nodes: int = 0  # how many the file has, those in bodies included
    same: bool = True  # whether every node of both has one, and the outputs are the same values
    changed: list[str] = field(default_factory=list)  # the nodes whose attributes differ
    constants: list[MatchedConstant] = field(default_factory=list)  # the constants that pairs of nodes take


def match_nodes(file: onnx.ModelProto, export: Assembled, weights: Collection[str]) -> MatchedNodes:
    """Match the nodes of a file with those of an export.

    Two nodes match if they do the same op on values from the same sources: inputs by place, weights by name, outputs of
    other nodes by the name of the node, or its place if all nodes match so. Any constant matches any other: which
    number it holds is to be compared. Identity is no source of its own.

    Args:
        weights: the names of initializers that are weights.
    """
    skeleton = export.skeleton
    opsets = {entry.domain: entry.version for entry in skeleton.opset_import}
    headers = [export.header(name) for name in export.initializers]
    matches = MatchedNodes()
    for title in (_by_place, _by_name):
        matches = MatchedNodes()
        _match(
            _Scope(file.graph, file.graph.initializer, weights, title),
            _Scope(skeleton.graph, headers, weights, title),
            opsets,
            matches,
        )
        if matches.same:
            break
    return matches


class _Scope:
    """The values that a graph sees, by where they come from, and its nodes by their title, if no other has it."""

    def __init__(
        self,
        graph: onnx.GraphProto,
        tensors: Iterable[onnx.TensorProto],
        weights: Collection[str],
        title: _Title,
        outer: _Scope | None = None,
        path: str = "",
    ) -> None:
        self._weights, self._title, self._outer = weights, title, outer
        self.graph = graph
        self.tensors = {tensor.name: tensor for tensor in tensors}
        self._sources: dict[str, Hashable] = {value.name: ("input", path, i) for i, value in enumerate(graph.input)}
        titles = [title(path, i, node) for i, node in enumerate(graph.node)]
        for name, node in zip(titles, graph.node, strict=True):
            if node.op_type == "Identity" and not node.domain and len(node.input) == len(node.output) == 1:
                self._sources[node.output[0]] = self.source(node.input[0])
            else:
                self._sources.update((output, (name, i)) for i, output in enumerate(node.output))
        count = Counter(titles)
        self.nodes = {name: node for name, node in zip(titles, graph.node, strict=True) if count[name] == 1}

    def source(self, name: str) -> Hashable:
        """Where a value comes from; the same for all constants."""
        if not name:
            return None
        if name in self._sources:
            return self._sources[name]
        if name in self.tensors:
            return name if self._outer is None and name in self._weights else _CONSTANT
        return None if self._outer is None else self._outer.source(name)

    def tensor(self, name: str) -> tuple[onnx.TensorProto, bool] | None:
        """The initializer of this name, and whether it is a body's; None for other values."""
        if name in self._sources:
            return None
        if name in self.tensors:
            return self.tensors[name], self._outer is not None
        return None if self._outer is None else self._outer.tensor(name)

    def body(self, title: str, attribute: str, graph: onnx.GraphProto) -> _Scope:
        """The matched values that the body of a node sees."""
        return _Scope(graph, graph.initializer, self._weights, self._title, self, f"{title}/{attribute}")


def _by_place(path: str, place: int, node: onnx.NodeProto) -> str:
    return f"{path}/{place}"


def _by_name(path: str, place: int, node: onnx.NodeProto) -> str:
    return node.name or f"{path}/unnamed {place}"


def _match(file: _Scope, export: _Scope, opsets: Mapping[str, int], matches: MatchedNodes) -> None:
    matches.nodes += len(file.graph.node)
    pairs = list(_pairs(file, export))
    matches.compared += len(pairs)
    matches.same &= len(pairs) == len(file.graph.node) == len(export.graph.node)
    matches.same &= [file.source(value.name) for value in file.graph.output] == [
        export.source(value.name) for value in export.graph.output
    ]
    for title, node, other in pairs:
        _compare_attributes(node, other, opsets, matches)
        for name, expected in zip(node.input, other.input, strict=True):
            stored = file.tensor(name)
            if stored is not None and export.source(expected) == _CONSTANT:
                matches.constants.append(MatchedConstant(*stored, expected))
        bodies, others = _bodies(node), _bodies(other)
        matches.same &= bodies.keys() == others.keys()
        for name in bodies.keys() & others.keys():
            _match(file.body(title, name, bodies[name]), export.body(title, name, others[name]), opsets, matches)


def _compare_attributes(
    node: onnx.NodeProto, other: onnx.NodeProto, opsets: Mapping[str, int], matches: MatchedNodes
) -> None:
    attributes, expected = _attributes(node), _attributes(other)
    if attributes == expected:
        return
    added = attributes.keys() - expected.keys()
    defaults = _defaults(node, opsets)
    if defaults is None:  # of an op of a runtime: what more is written cannot be compared
        matches.same &= not added
        defaults = attributes
    if attributes != {**{name: defaults[name] for name in added & defaults.keys()}, **expected}:
        matches.changed.append(node.name or node.op_type)


def _pairs(file: _Scope, export: _Scope) -> Iterator[tuple[str, onnx.NodeProto, onnx.NodeProto]]:
    for title, node in file.nodes.items():
        other = export.nodes.get(title)
        if (
            other is not None
            and (node.op_type, node.domain, len(node.output)) == (other.op_type, other.domain, len(other.output))
            and _element_types(node) == _element_types(other)
            and [file.source(name) for name in node.input] == [export.source(name) for name in other.input]
        ):
            yield title, node, other


def _element_types(node: onnx.NodeProto) -> dict[str, int]:
    """The types of the tensors among a node's attributes: with other types the node computes something else."""
    return {each.name: each.t.data_type for each in node.attribute if each.type == onnx.AttributeProto.TENSOR}


def _bodies(node: onnx.NodeProto) -> dict[str, onnx.GraphProto]:
    """The graphs among a node's attributes: bodies of loops, and alternatives."""
    return {each.name: each.g for each in node.attribute if each.type == onnx.AttributeProto.GRAPH}


def _attributes(node: onnx.NodeProto) -> dict[str, bytes]:
    plain = (attribute for attribute in node.attribute if attribute.type != onnx.AttributeProto.GRAPH)
    return {attribute.name: attribute.SerializeToString(deterministic=True) for attribute in plain}


def _defaults(node: onnx.NodeProto, opsets: Mapping[str, int]) -> dict[str, bytes] | None:
    """The defaults of attributes, which a tool may write out; None for an op that ONNX does not define."""
    version = opsets.get(node.domain, 1)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return None
    return {
        name: attribute.default_value.SerializeToString(deterministic=True)
        for name, attribute in onnx.defs.get_schema(node.op_type, version, node.domain).attributes.items()
    }
