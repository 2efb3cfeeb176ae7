"""Attention weights of every attention node of a graph, for given inputs."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.scope import new_node
from lucid.core.graph.types import Array
from lucid.core.graph.values import Node
from lucid.core.process.threads import blas_threads_for
from lucid.core.words.progress import phase

_BUDGET = 3_000_000  # bytes of all maps together; longer inputs are shown as far as they fit


@phase("computing attention maps")
def attention_weights(graph: Graph, arrays: Sequence[Array]) -> dict[str, Array]:
    """The weights (H, L, S) of the first item of the batch, by module path."""
    nodes_by_name: dict[str, Node] = {}
    for node in graph.nodes():
        if node.op.name == "attention":
            name, number = node.scope or "attention", 2
            while name in nodes_by_name:
                name, number = f"{node.scope or 'attention'} ({number})", number + 1
            nodes_by_name[name] = new_node(node.op, node.inputs, {**node.attributes, "need_weights": True})
    if not nodes_by_name:
        return {}
    with_weights = graph.with_outputs({name: node.results[-1] for name, node in nodes_by_name.items()})
    with blas_threads_for(sum(array.size for array in arrays)):
        weights = with_weights.run(arrays)
    return {name: each[0] for name, each in zip(nodes_by_name, weights, strict=True) if len(each)}


def maps_data(weights: dict[str, Array], tokens: Sequence[str]) -> dict[str, Any]:
    """The maps in the page's format: bytes of 0 to 255, and the weight that 255 represents.

    Raises:
        ValueError: for another number of tokens than queries or keys.
    """
    if not weights:
        return {"layers": [], "tokens": list(tokens), "cut": 0}
    positions = sorted({size for each in weights.values() for size in each.shape[1:]})
    if tokens and len(tokens) not in positions:
        raise ValueError(
            f"report: got {len(tokens)} tokens (--tokens), expected a label for each of the "
            f"{' or '.join(map(str, positions))} positions"
        )
    longest = max(max(each.shape[1:]) for each in weights.values())
    shown = longest
    while sum(len(each) * min(each.shape[1], shown) * min(each.shape[2], shown) for each in weights.values()) > _BUDGET:
        shown = max(1, shown * 3 // 4)
    return {
        "layers": [_layer(name, each[:, :shown, :shown].astype(np.float32)) for name, each in weights.items()],
        "tokens": list(tokens),
        "cut": longest if shown < longest else 0,
    }


def _layer(name: str, weights: Array) -> dict[str, Any]:
    weights = np.nan_to_num(weights)  # NaN has no colour, and JSON cannot hold it
    top = float(weights.max(initial=0.0)) or 1.0
    levels = np.round(weights * (255 / top)).astype(np.uint8)
    heads, queries, keys = weights.shape
    data = base64.b64encode(levels.tobytes()).decode("ascii")
    return {"module": name, "heads": heads, "queries": queries, "keys": keys, "top": top, "data": data}
