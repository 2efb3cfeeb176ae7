"""Inspecting ONNX files of any origin: modules from names, parameters, operations counted by hand, runtimes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import lucid
from lucid import nn
from lucid.core.targets.file_readers import READERS
from lucid.inspection import inspect_model
from lucid.inspection.patterns import PATTERNS
from lucid.inspection.shapes import shapes_of
from lucid.inspection.tree import module_path


def save(
    path: Path, nodes: list[onnx.NodeProto], inputs: dict[str, Any], weights: dict[str, Any], **options: Any
) -> Path:
    """A model of these nodes; its output is that of the last one."""
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()]
    held = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    output = helper.make_tensor_value_info(nodes[-1].output[0], TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", declared, [output], held)
    opsets = [helper.make_opsetid(domain, number) for domain, number in options.pop("opsets", {"": 17}).items()]
    onnx.save(
        helper.make_model(graph, ir_version=options.pop("ir_version", 8), opset_imports=opsets, **options),
        path,
    )
    return path


def zeros(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, np.float32)


def test_a_multi_head_attention_of_ours(tmp_path):
    lucid.export.to_onnx(nn.MultiHeadAttention(16, 4), path=tmp_path / "mha.onnx")
    inspection = inspect_model(tmp_path / "mha.onnx", {"N": 2, "L": 8, "S": 4})
    assert inspection.producer.startswith("lucid ")
    assert inspection.inputs["key"] == "float32[N, S, 16]"
    assert inspection.outputs == {"output": "float32[N, L, 16]"}
    assert inspection.parameters == 4 * (16 * 16 + 16)
    projections = 2 * 2 * (8 + 4 + 4 + 8) * 16 * 16
    biases = 2 * (8 + 4 + 4 + 8) * 16
    attention = 2 * 4 * 8 * 4 * (4 * 4 + 5)
    assert inspection.flops == projections + biases + attention
    assert inspection.modules.cost.unknown == 0


def test_modules_of_ours_fold_into_a_tree(tmp_path):
    layer = nn.TransformerEncoderLayer(8, 2, 16)
    encoder = nn.TransformerEncoder(layer, 3)
    lucid.export.to_onnx(encoder, ("N", "L", 8), path=tmp_path / "encoder.onnx")
    inspection = inspect_model(tmp_path / "encoder.onnx")
    rows = {"/".join([str(level), module.name]): module for level, module in inspection.modules.rows(2)}
    layers = rows["2/0 to 2"]
    assert layers.parameters == sum(p.numpy().size for p in encoder.layers.parameters())
    assert layers.nodes % 3 == 0
    inside = {module.name for level, module in layers.rows(1) if level}
    assert {"self_attn", "linear1", "linear2", "norm1", "norm2"} <= inside


@pytest.mark.parametrize(
    ("node", "expected"),
    [
        (
            helper.make_node("MatMul", ["x", "w"], ["y"], name="/encoder/layer.0/query/MatMul"),
            ("encoder", "layer", "0", "query"),
        ),
        (helper.make_node("MatMul", ["x", "w"], ["y"], name="model/dense_1/MatMul"), ("model", "dense_1")),
        (helper.make_node("MatMul", ["x", "layer.0.query.weight"], ["y"]), ("layer", "0", "query")),
        (helper.make_node("Add", ["x", "x"], ["y"], name="Add_12"), ()),
    ],
    ids=["torch", "tensorflow", "by its weight", "nothing to go by"],
)
def test_modules_of_other_exporters(node, expected):
    assert module_path(node, frozenset({"layer.0.query.weight"})) == expected


def test_modules_that_torch_notes_beside_the_node():
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="node_MatMul_3")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value="['', 'layers.0', 'layers.0.linear', 'linear_3']")
    assert module_path(node) == ("layers", "0", "linear")


COSTS = {
    "MatMul": (["x", "w"], {"x": ["N", 3, 4]}, {"w": zeros(4, 5)}, {}, 2 * 2 * 3 * 4 * 5),
    "Gemm": (["x", "w"], {"x": ["N", 4]}, {"w": zeros(5, 4)}, {"transB": 1}, 2 * 2 * 4 * 5),
    "Conv": (["x", "w"], {"x": ["N", 3, 10]}, {"w": zeros(6, 3, 3)}, {}, 2 * (2 * 6 * 8) * (3 * 3)),
    "ConvTranspose": (["x", "w"], {"x": ["N", 3, 10]}, {"w": zeros(3, 6, 3)}, {}, 2 * (2 * 3 * 10) * (6 * 3)),
    "LSTM": (["x", "w", "r"], {"x": [7, "N", 3]}, {"w": zeros(1, 20, 3), "r": zeros(1, 20, 5)}, {"hidden_size": 5},
             2 * 7 * 2 * 4 * 5 * (3 + 5)),
    "Einsum": (["x", "w"], {"x": ["N", 3, 4]}, {"w": zeros(4, 5)}, {"equation": "nij,jk->nik"}, 2 * 2 * 3 * 4 * 5),
    "Softmax": (["x"], {"x": ["N", 6]}, {}, {}, 5 * 12),
    "ReduceSum": (["x"], {"x": ["N", 6]}, {}, {}, 12),
    "MaxPool": (["x"], {"x": ["N", 1, 6]}, {}, {"kernel_shape": [2]}, 2 * 5 * 2),
    "Tanh": (["x"], {"x": ["N", 6]}, {}, {}, 12),
    "Transpose": (["x"], {"x": ["N", 6]}, {}, {}, 0),
}  # fmt: skip


@pytest.mark.parametrize("op", COSTS)
def test_operations_counted_by_hand(op, tmp_path):
    inputs, shapes, weights, attributes, flops = COSTS[op]
    path = save(tmp_path / "m.onnx", [helper.make_node(op, inputs, ["y"], **attributes)], shapes, weights)
    inspection = inspect_model(path, {"N": 2})
    assert inspection.flops == flops
    assert inspection.parameters == sum(array.size for array in weights.values())


def test_the_dearer_branch_counts(tmp_path):
    def branch(name: str, op: str) -> onnx.GraphProto:
        node = helper.make_node(op, ["x"] * (2 if op == "Add" else 1), [name])
        return helper.make_graph([node], name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 4])])

    test = helper.make_node("Equal", ["x0", "x0"], ["condition"])
    choice = helper.make_node(
        "If", ["condition"], ["y"], then_branch=branch("a", "Add"), else_branch=branch("b", "Softmax")
    )
    inspection = inspect_model(save(tmp_path / "m.onnx", [test, choice], {"x": [4, 4], "x0": []}, {}))
    assert inspection.flops == 1 + 5 * 16
    assert inspection.modules.nodes == 4


def test_calls_of_functions_are_looked_into(tmp_path):
    body = [helper.make_node("MatMul", ["a", "b"], ["c"])]
    function = helper.make_function("mine", "Product", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)])
    call = helper.make_node("Product", ["x", "w"], ["y"], domain="mine", name="/block/Product")
    path = save(
        tmp_path / "m.onnx",
        [call],
        {"x": [3, 4]},
        {"w": zeros(4, 5)},
        functions=[function],
        opsets={"": 17, "mine": 1},
    )
    assert inspect_model(path).flops == 2 * 3 * 4 * 5


def test_nodes_of_unknown_shape_are_said_not_guessed(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Strange", ["x"], ["y"], domain="far.away")], {"x": [4]}, {},
                opsets={"": 17, "far.away": 1})  # fmt: skip
    inspection = inspect_model(path)
    assert (inspection.flops, inspection.modules.cost.unknown) == (0, 1)
    assert inspection.loaders[0].reason == "needs the library of custom operators for far.away"


@pytest.mark.parametrize(
    ("opset", "ir_version", "expected"),
    [
        (17, 8, "1.15"),
        (21, 10, "1.18"),
        (22, 10, "1.21"),
        (23, 11, "1.23"),
        (17, 11, "1.23"),
        (25, 13, "1.24"),
    ],
)
def test_the_oldest_onnxruntime_that_loads_it(opset, ir_version, expected, tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], {"x": [4]}, {}, opsets={"": opset},
                ir_version=ir_version)  # fmt: skip
    assert inspect_model(path).loaders[0].name == f"onnxruntime {expected} or newer"


def test_the_oldest_onnxruntime_that_is_right_about_every_op_in_it(tmp_path):
    attention = helper.make_node("Attention", ["x", "x", "x"], ["y"])
    path = save(tmp_path / "m.onnx", [attention], {"x": [1, 2, 4, 8]}, {}, opsets={"": 23}, ir_version=11)
    loader = inspect_model(path).loaders[0]
    assert loader.name == "onnxruntime 1.28 or newer"
    assert loader.reason == "opset 23, IR 11, which 1.23 loads; older ones compute Attention wrongly in some cases"


def test_an_exported_file_says_what_it_is_for(tmp_path):
    model = nn.MultiHeadAttention(16, 4)
    exported = lucid.export.to_onnx(
        model, target=lucid.export.Target("cpu", onnxruntime="1.30"), path=tmp_path / "m.onnx"
    )
    assert {entry.key: entry.value for entry in exported.metadata_props} == {
        "lucid.onnxruntime": "1.30",
        "lucid.target": "cpu",
    }
    loader = inspect_model(tmp_path / "m.onnx").loaders[0]
    assert loader.name == "onnxruntime 1.30 or newer"
    assert loader.reason.endswith("which 1.23 loads; exported for this release and newer ones")


def test_an_opset_that_no_onnxruntime_loads(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], {"x": [4]}, {}, opsets={"": 29})
    assert inspect_model(path).loaders[0].loads is False


SCAN = helper.make_graph(
    [helper.make_node("Add", ["row", "outside"], ["sum"])],
    "body",
    [helper.make_tensor_value_info("row", TensorProto.FLOAT, [4])],
    [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [4])],
)


def step(op, *operands):
    """A step that carries h and also gives it as a row."""
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("h", "row", "last", "y")]
    nodes = [helper.make_node(op, operands, ["last"]), helper.make_node("Identity", ["last"], ["y"])]
    return helper.make_graph(nodes, "body", kinds[:2], kinds[2:])


RANGE = [
    helper.make_node("Shape", ["x"], ["length"], end=1),
    helper.make_node("Squeeze", ["length"], ["stop"]),
    helper.make_node("Range", ["zero", "stop", "one"], ["column"]),
    helper.make_node("Unsqueeze", ["column", "axis"], ["row"]),
]
NUMBERS = {"zero": np.int64(0), "one": np.int64(1), "axis": np.array([1])}


@pytest.mark.parametrize(
    ("runtime", "nodes", "weights", "loads", "op", "why"),
    [
        ("tract", [helper.make_node("Tanh", ["x"], ["y"])], {}, True, "", "all ops of the model have been compared"),
        ("tract", [*RANGE, helper.make_node("LessOrEqual", ["column", "row"], ["y"], "mask")], NUMBERS, False,
         "LessOrEqual", "LessOrEqual (mask): comparisons of positions of a symbolic length: it computes them"),
        ("tract", [*RANGE, helper.make_node("Greater", ["column", "row"], ["y"])], NUMBERS, True, "", ""),
        ("tract", [helper.make_node("Cast", ["x"], ["mask"], to=TensorProto.BOOL),
                   helper.make_node("Attention", ["x", "x", "x", "mask"], ["y"], "a", q_num_heads=1, kv_num_heads=1)],
         {}, False, "Attention", "Attention (a): a boolean mask: it takes none"),
        ("tract", [helper.make_node("Cast", ["x"], ["mask"], to=TensorProto.BOOL),
                   helper.make_node("Attention", ["x", "x", "x", "mask"], ["y"], is_causal=1)],
         {}, False, "Attention", "Attention: a mask beside is_causal: it takes none"),
        ("tract", [helper.make_node("Attention", ["x", "x", "x", "x"], ["y"])], {}, True, "", ""),
        ("tract", [helper.make_node("Det", ["x"], ["y"])], {}, None, "Det", "not compared: Det"),
        ("OpenVINO", [helper.make_node("Mul", ["x", "x"], ["outside"]),
                      helper.make_node("Scan", ["x"], ["y"], "s", body=SCAN, num_scan_inputs=1)],
         {}, False, "Scan", "Scan (s): a Scan that reads values around it: it does not load one"),
        ("OpenVINO", [helper.make_node("Attention", ["x", "x", "x"], ["y"], "a")], {}, None, "Attention",
         "Attention (a): a symbolic number of keys: it is wrong after a first call with"),
        ("OpenVINO", [helper.make_node("Transpose", ["x"], ["k"]), helper.make_node("MatMul", ["w", "k"], ["s"]),
                      helper.make_node("Softmax", ["s"], ["p"]),
                      helper.make_node("MatMul", ["p", "x"], ["y"])],
         {"w": zeros(4, 4)}, None, "Softmax",
         "Softmax: a softmax between two products, over a symbolic number of keys: it fuses them, and"),
        ("OpenVINO", [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Softmax", ["s"], ["p"]),
                      helper.make_node("MatMul", ["p", "w"], ["y"])],
         {"w": zeros(4, 4)}, True, "", "all ops of the model have been compared"),
        ("OpenVINO", [helper.make_node("Unsqueeze", ["x", "zero"], ["three"]),
                      helper.make_node("Cast", ["three"], ["ids"], to=TensorProto.INT64),
                      helper.make_node("ReduceSum", ["ids", "one"], ["count"]),
                      helper.make_node("Add", ["count", "one"], ["whole"]),
                      helper.make_node("Cast", ["whole"], ["y"], to=TensorProto.FLOAT)],
         {"zero": np.zeros(1, np.int64), "one": np.ones(1, np.int64)}, None, "ReduceSum",
         "ReduceSum: reductions of integers of three axes: it is wrong where something is added to them or multiplied"),
        ("OpenVINO", [helper.make_node("Softmax", ["x"], ["y"])], {}, True, "Softmax",
         "Softmax: Softmax and LogSoftmax of rows with NaN: it keeps NaN in its place alone, instead of in the row"),
        ("OpenVINO", [helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.DOUBLE),
                      helper.make_node("Tanh", ["wide"], ["y"])], {}, True, "Tanh", "Tanh: computes float32"),
        ("OpenVINO", [helper.make_node("Tanh", ["x"], ["y"])], {}, True, "", "all ops of the model have been compared"),
        ("OpenVINO", [helper.make_node("Scan", ["w", "x"], ["last", "y"], "s", body=step("Add", "row", "h"),
                                       num_scan_inputs=1)], {"w": zeros(4)}, None, "Scan",
         "Scan (s): a Scan whose steps compute in place of their elements, or read none: it gives later"),
        ("OpenVINO", [helper.make_node("Scan", ["w", "x"], ["last", "y"], "s", body=step("Add", "h", "h"),
                                       num_scan_inputs=1)], {"w": zeros(4)}, None, "Scan", "Scan (s): a Scan whose"),
        ("OpenVINO", [helper.make_node("Scan", ["w", "x"], ["last", "y"], "s", body=step("Add", "h", "row"),
                                       num_scan_inputs=1)], {"w": zeros(4)}, True, "", "all ops"),
        ("OpenVINO", [helper.make_node("Gather", ["x", "i"], ["y"])], {"i": np.zeros(0, np.int64)}, False, "Gather",
         "Gather: constants without elements: it reads them as a number"),
        ("OpenVINO", [helper.make_node("Reshape", ["x", "i"], ["y"])], {"i": np.zeros(0, np.int64)}, None, "Reshape",
         "Reshape: a product that becomes a number: it ends the process"),
        ("OpenVINO", [helper.make_node("Cast", ["x"], ["b"], to=TensorProto.INT8),
                      helper.make_node("Add", ["b", "b"], ["y"])], {}, None, "Add", "Add: saturates instead of"),
        ("OpenVINO", [helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=0, block_size=4)],
         {"w": np.zeros((6, 2), np.uint8), "s": zeros(2, 2)}, False, "DequantizeLinear",
         "DequantizeLinear: a padded last block: it does not load one where the block"),
        ("onnxruntime on WebGPU", [helper.make_node("Attention", ["x", "x", "x"], [f"y{n}"], f"layer.{n}")
                                   for n in range(3)], {}, True, "Attention",
         "Attention (3 nodes, first layer.0): has no kernel: computed on the CPU, with copies"),
        ("TensorRT", [helper.make_node("RMSNormalization", ["x", "w"], ["y"])], {"w": zeros(4)}, False,
         "RMSNormalization", "RMSNormalization: is not known to its parser (TensorRT#4639)"),
        ("TensorRT", [helper.make_node("Tanh", ["x"], ["y"])], {}, None, "", "was not run; no op"),
    ],
)  # fmt: skip
def test_other_runtimes_are_refused_by_the_op_that_is_the_reason(runtime, nodes, weights, loads, op, why, tmp_path):
    path = save(tmp_path / "m.onnx", nodes, {"x": ["L", 4]}, weights, opsets={"": 23}, ir_version=11)
    (loader,) = (each for each in inspect_model(path).loaders if each.name.startswith(runtime))
    assert (loader.loads, loader.op) == (loads, op)
    assert loader.reason.startswith(why)


def test_all_that_a_record_tells_of_files_can_be_seen_in_one():
    faults = {fault for reader in READERS for fault, known in reader.faults.items() if known.outcome}
    assert faults == set(PATTERNS)
    assert all(reader.trial is not None for reader in READERS)


def test_other_runtimes_and_domains_that_they_have_not(tmp_path):
    node = helper.make_node("Unheard", ["x"], ["y"], domain="com.microsoft")
    path = save(tmp_path / "m.onnx", [node], {"x": [4]}, {}, opsets={"": 23, "com.microsoft": 1})
    loaders = {each.name.split(" ")[0]: each for each in inspect_model(path).loaders[2:]}
    assert loaders["ONNX's"].loads is False
    assert loaders["ONNX's"].reason == "Unheard: an operator of onnxruntime's own: it has none"
    assert loaders["OpenVINO"].reason == "not compared: com.microsoft.Unheard"
    node.domain = "mine"
    path = save(tmp_path / "m.onnx", [node], {"x": [4]}, {}, opsets={"": 23, "mine": 1})
    assert {each.reason for each in inspect_model(path).loaders} == {"needs the library of custom operators for mine"}


@pytest.mark.parametrize(
    "op",
    ["Softmax", "ArgMax", "Attention", "DequantizeLinear", "Slice", "Split", "LessOrEqual", "Scan", "Loop", "If",
     "MatMulNBits", "Cast", "BatchNormalization", "Identity", "Einsum", "ReduceSum"],
)  # fmt: skip
def test_nodes_without_what_their_op_needs_are_no_error(op, tmp_path):
    """A file that does not run may be inspected all the same."""
    odd = onnx.AttributeProto(name="axis", ref_attr_name="elsewhere")
    nodes = [helper.make_node(op, [], []), helper.make_node(op, ["", "x"], []), helper.make_node("Cast", [], ["c"])]
    nodes += [helper.make_node("ArgMax", ["c"], ["a"]), helper.make_node("Tanh", ["x"], ["y"])]
    nodes[0].attribute.append(odd)
    path = save(tmp_path / "m.onnx", nodes, {"x": [None, 4]}, {}, opsets={"": 23})
    assert {each.name.split()[0] for each in inspect_model(path).loaders} >= {"tract", "OpenVINO", "TensorRT"}


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Einsum", {"equation": 1}),
        ("Einsum", {}),
        ("Attention", {"num_heads": "two"}),
        ("MaxPool", {"kernel_shape": "x"}),
    ],
)
def test_attributes_of_another_type_than_their_op_takes_are_no_error(op, attributes, tmp_path):
    """The checker lets operators of onnxruntime's own domain have any."""
    node = helper.make_node(op, ["x"], ["y"], domain="com.microsoft", **attributes)
    path = save(tmp_path / "m.onnx", [node], {"x": [2, 4, 8]}, {}, opsets={"": 23, "com.microsoft": 1})
    assert inspect_model(path).operators == {f"com.microsoft.{op}": 1}


@pytest.mark.parametrize("op", ["Identity", "Einsum", "MatMul"])
def test_operators_of_other_libraries_do_not_cost_what_those_of_their_name_do(op, tmp_path):
    nodes = [helper.make_node(op, [], [], domain="mine"), helper.make_node(op, ["x"], ["y"], domain="mine")]
    path = save(tmp_path / "m.onnx", nodes, {"x": [2, 4]}, {}, opsets={"": 23, "mine": 1})
    inspection = inspect_model(path)
    assert (inspection.flops, inspection.modules.cost.unknown) == (0, 2)


def test_constants_that_are_lists_have_one_axis():
    """Where onnx infers no types, since the model contradicts itself."""
    nodes = [
        helper.make_node("Constant", [], ["texts"], value_strings=["a", "b"]),
        helper.make_node("Constant", [], ["none"]),
        helper.make_node("Constant", [], ["one"], value_float=1.0),
    ]
    nodes[1].attribute.append(onnx.AttributeProto(name="value_ints", type=onnx.AttributeProto.INTS))
    shapes = shapes_of(helper.make_model(helper.make_graph(nodes, "g", [], [])))
    assert shapes == {"texts": (2,), "one": (), "none": (0,)}


def test_an_opset_that_others_were_not_tried_with(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], {"x": [4]}, {}, opsets={"": 24})
    loaders = {each.name.split(" ")[0]: each for each in inspect_model(path).loaders}
    assert loaders["tract"].loads is None
    assert loaders["tract"].reason == "opset 24 was not tried, 23 and older ones were"


def test_a_file_for_a_newer_onnxruntime_than_that_of_node(tmp_path):
    for_newer = lucid.export.Target("cpu", onnxruntime="1.31")
    lucid.export.to_onnx(nn.Linear(3, 2), ("N", 3), target=for_newer, path=tmp_path / "m.onnx")
    (loader,) = (each for each in inspect_model(tmp_path / "m.onnx").loaders if "-node" in each.name)
    assert loader.loads is None
    assert loader.reason == "exported for onnxruntime 1.31 and newer ones"


def test_operators_of_onnxruntime_alone(tmp_path):
    lucid.export.to_onnx(nn.MultiHeadAttention(16, 4), attention="contrib", path=tmp_path / "mha.onnx")
    inspection = inspect_model(tmp_path / "mha.onnx")
    assert inspection.loaders[1].loads is False
    assert inspection.modules.cost.unknown == 0


def test_weights_beside_the_file_are_counted_and_never_read(tmp_path):
    lucid.export.to_onnx(nn.Linear(64, 64), ("N", 64), path=tmp_path / "m.onnx", external_data=True)
    inspection = inspect_model(tmp_path / "m.onnx")
    assert len(inspection.files) == 2
    assert inspection.files[1][1] >= 64 * 64 * 4
    assert inspection.parameters == 64 * 65


@pytest.mark.parametrize(("kind", "size"), [("uint2", 5), ("int4", 9), ("uint8", 17), ("float16", 34)])
def test_weights_of_few_bits_share_bytes(kind, size, tmp_path):
    weight = np.zeros(17, np.dtype(getattr(ml_dtypes, kind, kind)))
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    inspection = inspect_model(save(tmp_path / "m.onnx", [node], {}, {"w": weight}, ir_version=13, opsets={"": 25}))
    assert (inspection.parameters, inspection.modules.weight_bytes) == (17, size)


def test_an_open_length_is_one_that_the_model_has_positions_for(tmp_path):
    table = nn.Embedding(24, 4)
    short = tmp_path / "short.onnx"
    lucid.export.to_onnx(lambda x: x + table.weight[: x.shape[1]], ("N", "L", 4), path=short)
    assert inspect_model(short).sizes == {"N": 1, "L": 24}
    lucid.export.to_onnx(nn.Linear(4, 4), ("N", "L", 4), path=short)
    assert inspect_model(short).sizes == {"N": 1, "L": 128}
    limited = lucid.spec("4 <= N", "200 <= L", "2 <= K <= 64")
    lucid.export.to_onnx(lambda x: x * 2, limited, path=short)
    assert inspect_model(short).sizes == {"N": 4, "L": 200, "K": 64}, "which Session takes"


def test_sizes_without_a_name_are_called_after_their_axis(tmp_path):
    path = save(tmp_path / "m.onnx", [helper.make_node("Tanh", ["x"], ["y"])], {"x": [None, 3]}, {})
    assert inspect_model(path).sizes == {"x.0": 1}
    assert inspect_model(path, {"x.0": 5}).flops == 15
    with pytest.raises(ValueError, match=r"size K: the model's symbolic sizes are x\.0"):
        inspect_model(path, {"K": 5})
    for size in (-1, 1 << 31):
        with pytest.raises(ValueError, match=f"size x.0 is {size}, expected 0 to 2147483647"):
            inspect_model(path, {"x.0": size})
    with pytest.raises(TypeError, match="size x.0 is 1.5, expected a whole number"):
        inspect_model(path, {"x.0": 1.5})


def test_sizes_that_are_sums_and_products_are_chosen_by_their_names(tmp_path):
    """Names of other tools too, which are no sums."""
    tanh = [helper.make_node("Tanh", ["x"], ["y"])]
    path = save(tmp_path / "m.onnx", tanh, {"x": ["batch size", "3*L", "2*L + K", "seq-len"]}, {})
    assert inspect_model(path).sizes == {"batch size": 1, "K": 128, "L": 128, "seq-len": 128}
    assert inspect_model(path, {"batch size": 2, "L": 1, "K": 0, "seq-len": 5}).flops == 2 * 3 * 2 * 5


def test_the_memory_of_values_is_counted_from_node_to_node(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Neg", ["x"], ["a"], "first"),  # a: 400 bytes
        helper.make_node("Exp", ["a"], ["b"], "second"),  # a and b
        helper.make_node("Reshape", ["b", "shape"], ["c"], "view"),  # the memory of b
        helper.make_node("Concat", ["c", "c", "a"], ["d"], "widest", axis=0),  # a, b and 1200 bytes
        helper.make_node("ReduceSum", ["d"], ["e"], "last", keepdims=0),  # d and 4 bytes
    ]
    path = save(tmp_path / "m.onnx", nodes, {"x": ["N"]}, {"shape": np.array([-1])})
    peak = inspect_model(path, {"N": 100}).memory
    assert (peak.bytes, peak.node, peak.unknown) == (400 + 400 + 1200, "widest", 0)
    assert inspect_model(path, {"N": 10}).memory.bytes == 200


def test_the_memory_of_a_branch_is_that_of_the_largest(tmp_path: Path) -> None:
    def branch(name: str, count: int) -> onnx.GraphProto:
        nodes = [helper.make_node("Neg", ["x"], [f"{name}.0"], f"{name}.0")]
        nodes += [
            helper.make_node("Concat", [f"{name}.0"] * count, [f"{name}.1"], f"{name}.1", axis=0),
            helper.make_node("ReduceSum", [f"{name}.1"], [f"{name}.2"], f"{name}.2", keepdims=0),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}.2", TensorProto.FLOAT, [])])

    condition = helper.make_node("Cast", ["y"], ["condition"], "condition", to=TensorProto.BOOL)
    choice = helper.make_node(
        "If", ["condition"], ["z"], "choice", then_branch=branch("a", 3), else_branch=branch("b", 7)
    )
    path = save(tmp_path / "m.onnx", [condition, choice], {"x": [10], "y": []}, {})
    peak = inspect_model(path).memory
    assert (peak.bytes, peak.node) == (1 + 4 + 40 + 280, "choice")


def test_a_step_that_recomputes_its_layers_takes_less_memory(tmp_path: Path) -> None:
    def memory(model: Any) -> int:
        lucid.export.training_step(
            model, lambda x: model(x).sum(), lucid.optim.SGD(0.1), ("N", 8), path=tmp_path / "step.onnx"
        )
        peak = inspect_model(tmp_path / "step.onnx", {"N": 4096}).memory
        assert peak.unknown == 0
        return peak.bytes

    def layers() -> list[Any]:
        return [nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 8)) for _ in range(24)]

    assert memory(nn.Sequential(*map(nn.recompute, layers()))) < 0.5 * memory(nn.Sequential(*layers()))
