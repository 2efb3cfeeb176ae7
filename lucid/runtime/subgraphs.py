"""The graphs and nodes inside a model's graphs and nodes: branches of If, bodies of Loop and Scan."""

from __future__ import annotations

from collections.abc import Iterable

from onnx import GraphProto, NodeProto


def subgraphs(node: NodeProto) -> list[GraphProto]:
    """The branches or the body of a node."""
    alone = [attribute.g for attribute in node.attribute if attribute.HasField("g")]
    return alone + [graph for attribute in node.attribute for graph in attribute.graphs]


def nodes_inside(nodes: Iterable[NodeProto]) -> list[NodeProto]:
    """Nodes, each followed by the nodes in its branches and bodies."""
    inside: list[NodeProto] = []
    waiting = list(nodes)[::-1]
    while waiting:
        node = waiting.pop()
        inside.append(node)
        waiting += [inner for graph in subgraphs(node) for inner in graph.node[::-1]]
    return inside


def graphs_inside(graph: GraphProto) -> list[GraphProto]:
    """A graph and those inside it, outer ones first."""
    return [graph, *(inner for node in nodes_inside(graph.node) for inner in subgraphs(node))]
