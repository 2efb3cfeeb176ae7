"""Forms of ops that write to places and find the largest elements."""

from __future__ import annotations

import numpy as np

from lucid.core.graph.values import Node
from lucid.export.builder import Builder
from lucid.export.form import form, operand, refuse
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.run_time_sizes import sizes_vector
from lucid.ops import scattering, sorting


@form(scattering.scatter_op, takes="axis", kernel="ScatterElements")
def scatter_elements(build: Builder, node: Node) -> str:
    return build.op("ScatterElements", *node.inputs, axis=node.attributes["axis"])


@form(scattering.scatter_op, name="ScatterElements, added", takes="axis reduction")
def scatter_sums(build: Builder, node: Node) -> str:
    """Half precision is added in float32 and rounded once, as eager code does; onnxruntime rounds every sum."""
    if node.attributes["reduction"] != "add":
        refuse("it adds values")
    (x, indices, values), kind = node.inputs, node.types[0].dtype
    half, options = kind.itemsize == 2, {"axis": node.attributes["axis"], "reduction": "add"}
    if not half:
        return build.op("ScatterElements", x, indices, values, **options)
    wide, more = (build.op("Cast", operand, to=onnx_code("float32")) for operand in (x, values))
    return build.op("Cast", build.op("ScatterElements", wide, indices, more, **options), to=onnx_code(kind))


@form(sorting.topk_op, takes="k axis largest", kernel="TopK")
def top_k(build: Builder, node: Node) -> tuple[str, ...]:
    x, axis = operand(node), node.attributes["axis"]
    count = sizes_vector(build, [node.attributes["k"]])
    order = {"axis": axis, "largest": int(node.attributes["largest"]), "sorted": 1}
    if x.type.dtype.kind == "int":
        return build.ops("TopK", x, count, outputs=2, **order)
    # onnxruntime finds NaN anywhere: it is counted as infinity, and the values are taken by their indices.
    keys = build.op("Where", build.op("IsNaN", x), np.asarray(np.inf, x.type.dtype.numpy), x)
    _, indices = build.ops("TopK", keys, count, outputs=2, **order)
    return build.op("GatherElements", x, indices, axis=axis), indices
