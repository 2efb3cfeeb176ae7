"""A node of a graph as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lucid.core.graph.bodies import made_again
from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, TensorType, uint8
from lucid.core.graph.values import Input, Value
from lucid.core.sizes.dims import Dim, bind, dim, names_of
from lucid.core.sizes.readings import readings
from lucid.export.tuned.site import Site, is_constant

_HIDDEN = 4  # one in so many keys is hidden by a mask: padding at the end of a text


def isolated(graph: Graph, site: Site) -> Graph:
    """A node of a graph, with what is measured with it, as a graph whose inputs are its operands.

    Constants stay what they are. Sizes that the operands do not tell are those of further inputs.
    """
    inputs: dict[int, Input] = {}

    def read(value: Value) -> Value:
        if is_constant(value):
            return value
        return inputs.setdefault(id(value), Input(f"operand_{len(inputs)}", value.type))

    results = made_again([*site.before, site.node], site.node.results, read, lambda node: node)
    told = {reading.name for reading in readings([value.type.shape for value in inputs.values()])}
    sizes = [Input(f"size_{name}", TensorType(uint8, (dim(name),))) for name in sorted(_sizes(site) - told)]
    outputs = {f"result_{index}": value for index, value in enumerate(results)}
    return Graph([*inputs.values(), *sizes], outputs, graph.names)


def _sizes(site: Site) -> set[str]:
    """The names of all sizes that a node depends on."""
    node = site.node
    types = [*node.types, *(value.type for value in node.inputs if value is not None)]
    return {name for kind in types for name in names_of(kind.shape)} | _mentioned(tuple(node.attributes.values()))


def _mentioned(value: Any) -> set[str]:
    if isinstance(value, tuple):
        return {name for each in value for name in _mentioned(each)}
    return value.names() if isinstance(value, Dim) else set()


def examples(inputs: Sequence[Input], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Arrays by input: normal numbers for floats; masks that hide the end of a text; zeros for integers, which are in
    every range.
    """
    generator = np.random.default_rng(0)
    return {value.name: _example(generator, value.type, bind(value.type.shape, sizes)) for value in inputs}


def _example(generator: np.random.Generator, kind: TensorType, shape: tuple[int, ...]) -> Array:
    if kind.dtype.kind == "float":
        return generator.standard_normal(shape).astype(kind.dtype.numpy)
    array = np.zeros(shape, kind.dtype.numpy)
    if kind.dtype.kind == "bool" and shape:
        array[..., : shape[-1] - shape[-1] // _HIDDEN] = True
    return array
