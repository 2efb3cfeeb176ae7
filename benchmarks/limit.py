"""Causal attention beside what onnxruntime's kernels need for it: both products and the softmax of the needed scores.

The parts are graphs of the same blocks. Their queries, keys and values are inputs that are cut already, their outputs
are not joined, and nothing is hidden. So what Lucid's graph takes beyond them are copies, masks and the bound on hidden
keys; what they take beyond the products are the softmax, and what the products take beyond sgemm is their shape.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.attention import HEADS, WIDTH, export, operations
from benchmarks.bench import LUCID, Bench
from benchmarks.graphs import Array, runner, unit_normal
from benchmarks.harness import Work
from benchmarks.results import Line

LENGTHS = (128, 512, 1024, 2048)
ROWS = (64, 128, 256)  # of a block of queries
GOAL = 1.1


def limit(bench: Bench) -> list[Line]:
    """By length. The base are products and softmax in the blocks that Lucid takes."""
    return [_line(bench, length) for length in ((512,) if bench.quick else LENGTHS)]


def _line(bench: Bench, length: int) -> Line:
    shape = (1, HEADS, length, WIDTH)
    arrays = unit_normal(shape, shape, shape, seed=length)
    graph = export(shape, True, "cpu")
    ways: dict[str, Work] = {LUCID: runner(graph, arrays, bench.threads)}
    for rows in (rows for rows in ROWS if length // 32 <= rows <= length):
        blocks = _blocks(arrays, rows)
        for name, softmax in ((f"products, {rows} rows", False), (f"and softmax, {rows} rows", True)):
            ways[name] = runner(_parts(blocks, softmax), blocks, bench.threads)
    base = f"and softmax, {_rows_of(graph)} rows"
    flops = operations(1, length, True)
    return bench.line("limit", f"L = {length}", base, ways, goal=GOAL, operations=flops)


def _rows_of(graph: onnx.ModelProto) -> int:
    """The rows of a block in Lucid's graph."""
    blocks = [node for node in graph.graph.node if node.op_type == "Attention"]
    length: int = graph.graph.input[0].type.tensor_type.shape.dim[2].dim_value
    return length // len(blocks)


def _blocks(arrays: tuple[Array, ...], rows: int) -> dict[str, Array]:
    """The queries of each block, and the keys and values that its last query sees."""
    query, key, value = arrays
    blocks: dict[str, Array] = {}
    for block, start in enumerate(range(0, query.shape[2], rows)):
        end = start + rows
        for name, part in (("q", query[:, :, start:end]), ("k", key[:, :, :end]), ("v", value[:, :, :end])):
            blocks[f"{name}{block}"] = np.ascontiguousarray(part)
    return blocks


def _parts(blocks: dict[str, Array], softmax: bool) -> onnx.ModelProto:
    """The products of all blocks, with or without the softmax between them."""
    nodes, outputs = [], []
    for block in range(len(blocks) // 3):
        scores, weights, output = (f"{name}{block}" for name in ("scores", "weights", "output"))
        product = {"domain": "com.microsoft", "alpha": WIDTH**-0.5, "transB": 1}
        nodes.append(helper.make_node("FusedMatMul", [f"q{block}", f"k{block}"], [scores], **product))
        if softmax:
            nodes.append(helper.make_node("Softmax", [scores], [weights], axis=-1))
        nodes.append(helper.make_node("MatMul", [weights if softmax else scores, f"v{block}"], [output]))
        outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, blocks[f"q{block}"].shape))
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in blocks.items()]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(helper.make_graph(nodes, "parts", inputs, outputs), opset_imports=opsets, ir_version=11)
