"""Small ONNX files that take all memory or never end.

All are well-formed. Those named `load_` do so when onnx or onnxruntime loads them, `look_` when they are inspected.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from onnx import AttributeProto, FunctionProto, NodeProto, SparseTensorProto, TensorProto, helper

from tests.hostile import Cases

CASES: Cases = {}
OPSETS = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]


def case(
    name: str,
    wrong: str,
    nodes: Sequence[NodeProto],
    constants: dict[str, list[int]] | None = None,
    functions: Sequence[FunctionProto] = (),
    shape: Sequence[int | str] = (4,),
) -> None:
    """A model of an input x, one-dimensional constants (or a number where the list has one), and these nodes."""
    stored = [
        helper.make_tensor(key, TensorProto.INT64, [] if len(values) == 1 else [len(values)], values)
        for key, values in (constants or {}).items()
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    output = helper.make_tensor_value_info(
        nodes[-1].output[0], TensorProto.INT64 if stored else TensorProto.FLOAT, None
    )
    graph = helper.make_graph(nodes, "g", [x], [output], stored)
    model = helper.make_model(graph, ir_version=10, opset_imports=OPSETS, functions=functions)

    def write(folder: Path) -> Path:
        (folder / "model.onnx").write_bytes(model.SerializeToString(deterministic=True))
        return folder / "model.onnx"

    CASES[name] = wrong, write


def node(kind: str, inputs: str, output: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def function(name: str, *nodes: NodeProto) -> FunctionProto:
    return helper.make_function("f", name, ["x"], ["y"], nodes, OPSETS)


def doubling(count: int) -> list[FunctionProto]:
    """Functions, each of which calls the one before twice; the first negates."""
    functions = [function("f0", node("Neg", "x", "y"))]
    for index in range(1, count):
        calls = node(f"f{index - 1}", "x", "t", domain="f"), node(f"f{index - 1}", "t", "y", domain="f")
        functions.append(function(f"f{index}", *calls))
    return functions


RANGE = node("Range", "start limit step", "y")
case("load_range", "a Range of a billion", [RANGE], {"start": [0], "limit": [10**9], "step": [1]})
case("load_range_down", "a Range of a billion, downwards", [RANGE], {"start": [0], "limit": [-(10**9)], "step": [-1]})
case("load_expand", "one number expanded to ten billion", [node("Expand", "v s", "y")], {"v": [1], "s": [10**5, 10**5]})
case("load_tile", "two numbers repeated", [node("Tile", "v n", "y")], {"v": [1, 2], "n": [10**9]})
case("load_fill", "a tensor of ten billion zeros", [node("ConstantOfShape", "s", "y")], {"s": [10**5, 10**5]})
CONCATS = [helper.make_node("Concat", [f"s{i}"] * 2, [f"s{i + 1}"], axis=0) for i in range(40)]
case("load_concat", "a Concat that doubles its input forty times", CONCATS, {"s0": [1, 2]})
case("load_concat_copies", "a large Concat, copied again and again", [
    *CONCATS[:20], *(node("Identity", f"s{i}", f"s{i + 1}") for i in range(20, 2000))
], {"s0": [1, 2]})  # fmt: skip
case(
    "load_concat_of_shapes",
    "the shape of the input, doubled forty times",
    [node("Shape", "x", "s0"), *CONCATS],
    {"unused": [1]},
)
INNER = helper.make_graph(CONCATS, "inner", [], [helper.make_tensor_value_info("s40", TensorProto.INT64, None)])
case(
    "load_concat_in_a_branch",
    "the same in the branches of an If",
    [helper.make_node("If", ["c"], ["y"], then_branch=INNER, else_branch=INNER)],
    {"s0": [1, 2], "c": [1]},
)
case("load_calls", "functions with 10^20 calls", [node("f65", "x", "y", domain="f")], functions=doubling(66))
case(
    "load_concat_in_a_function",
    "a Concat that doubles in a function",
    [node("big", "s0", "y", domain="f")],
    {"s0": [1, 2]},
    [
        function(
            "big",
            node("Identity", "x", "s0"),
            *(helper.make_node("Concat", [f"s{i}"] * 2, [f"s{i + 1}"], axis=0) for i in range(40)),
            node("Identity", "s40", "y"),
        )
    ],
)
case(
    "load_calls_of_itself",
    "a function that calls itself",
    [node("f0", "x", "y", domain="f")],
    functions=[function("f0", node("f0", "x", "y", domain="f"))],
)
case(
    "load_calls_deep",
    "functions in each other, 2000 deep",
    [node("f1999", "x", "y", domain="f")],
    functions=[
        function(f"f{i}", node(f"f{i - 1}", "x", "y", domain="f") if i else node("Neg", "x", "y")) for i in range(2000)
    ],
)


def constant(name: str, **value: Any) -> NodeProto:
    """A constant in one of the forms that the op has."""
    return helper.make_node("Constant", [], [name], **value)


def sparse(*values: int) -> SparseTensorProto:
    """These numbers without zeros."""
    held = helper.make_tensor("v", TensorProto.INT64, [len(values)], values)
    places = helper.make_tensor("i", TensorProto.INT64, [len(values)], range(len(values)))
    return helper.make_sparse_tensor(held, places, [len(values)])


COUNTED = [constant("start", value_int=0), constant("step", value_int=1)]
FILL = node("ConstantOfShape", "s", "y")
for form, wrong, nodes in (
    ("int", "a Range of two billion", [constant("limit", value_int=2 * 10**9), *COUNTED, RANGE]),
    ("float", "the same in floats", [
        constant("start", value_float=0.0),
        constant("limit", value_float=2e9),
        constant("step", value_float=1.0),
        RANGE,
    ]),
    ("ints", "a shape that is an attribute", [constant("s", value_ints=[10**5, 10**5]), FILL]),
    ("sparse", "a shape that is a sparse tensor", [constant("s", sparse_value=sparse(10**5, 10**5)), FILL]),
    ("floats", "an image resized by scales", [
        constant("v", value_floats=[1.0]), constant("z", value_floats=[2e9]),
        helper.make_node("Resize", ["v", "", "z"], ["y"]),
    ]),
    ("strings", "a text repeated", [
        constant("v", value_strings=["x" * 99]), constant("n", value_ints=[10**9]), node("Expand", "v n", "y"),
    ]),
    ("filled", "a shape that ConstantOfShape makes", [
        constant("n", value_ints=[2]),
        node("ConstantOfShape", "n", "s", value=helper.make_tensor("v", TensorProto.INT64, [1], [10**5])), FILL,
    ]),
    ("computed", "bounds that arithmetic makes", [
        constant("k", value_ints=[10**4, 7]), constant("i", value_int=0), node("Gather", "k i", "g"),
        node("Mul", "g g", "gg"), node("Add", "gg gg", "ggg"), node("Mul", "ggg g", "limit"), *COUNTED, RANGE,
    ]),
    ("cast", "bounds that are cast", [
        constant("l", value_float=2e9), node("Cast", "l", "limit", to=TensorProto.INT64), *COUNTED, RANGE,
    ]),
    ("size", "the size of the input, a billion times", [
        node("Size", "x", "n"), constant("k", value_int=10**9), node("Mul", "n k", "limit"), *COUNTED, RANGE,
    ]),
    ("outer", "all pairs of a hundred thousand numbers", [
        constant("limit", value_int=10**5), *COUNTED, node("Range", "start limit step", "r"),
        constant("c", value_ints=[-1, 1]), node("Reshape", "r c", "column"), node("Less", "r column", "y"),
    ]),
    ("product", "a matrix of a column and a row", [
        constant("c", value_ints=[10**5, 1]), node("ConstantOfShape", "c", "a"), constant("d", value_ints=[1, 10**5]),
        node("ConstantOfShape", "d", "b"), node("MatMul", "a b", "y"),
    ]),
    ("padded", "a number padded", [
        constant("v", value_ints=[1]), constant("p", value_ints=[0, 2 * 10**9]), node("Pad", "v p", "y"),
    ]),
    ("hot", "one of a billion classes", [
        constant("v", value_ints=[1, 2]), constant("n", value_int=10**9), constant("e", value_ints=[0, 1]),
        node("OneHot", "v n e", "y"),
    ]),
):  # fmt: skip
    case(f"load_constant_{form}", wrong, nodes)
BOUNDS = {"start": 0, "limit": 10**10, "step": 1}
BRANCH = helper.make_graph(
    [RANGE],
    "branch",
    [],
    [helper.make_tensor_value_info("y", TensorProto.INT64, None)],
    [helper.make_tensor(name, TensorProto.INT64, [], [value]) for name, value in BOUNDS.items()],
)
SPARE = helper.make_graph([FILL], "spare", [], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
SPARE.sparse_initializer.add().CopyFrom(sparse(10**5, 10**5))
SPARE.sparse_initializer[0].values.name = "s"
for form, inner in (("initializers", BRANCH), ("sparse_initializers", SPARE)):
    case(
        f"load_{form}_of_a_branch",
        "a bound that an initializer of a branch holds",
        [constant("c", value_ints=[1]), helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)],
    )
TAKEN = helper.make_node("Constant", [], ["limit"])
TAKEN.attribute.add(name="value_int", ref_attr_name="limit", type=AttributeProto.INT)
case(
    "load_attribute_of_a_function",
    "a bound that a function takes as its attribute",
    [helper.make_node("count", ["x"], ["y"], domain="f", limit=2 * 10**9)],
    functions=[helper.make_function("f", "count", ["x"], ["y"], [*COUNTED, TAKEN, RANGE], OPSETS, ["limit"])],
)
WIDE = helper.make_node("Constant", [], ["w"], value=helper.make_tensor("w", TensorProto.FLOAT, [5000], [0.0] * 5000))
case(
    "load_calls_large",
    "a function of 20 kB, called 20,000 times",
    [helper.make_node("large", ["x"], [f"y{i}"], domain="f") for i in range(20_000)],
    functions=[function("large", WIDE, node("Neg", "x", "y"))],
)

NEG = [node("Neg", "x", "y")]
case("look_terms", "a size of 20,000 terms", NEG, shape=[" + ".join(f"a{i}" for i in range(20_000))])
case("look_factors", "a size of 20,000 factors", NEG, shape=["*".join(f"a{i}" for i in range(20_000))])
case(
    "look_sizes",
    "a thousand sizes of 100 terms",
    NEG,
    shape=["+".join(f"a{i}{j}" for j in range(50)) for i in range(999)],
)
case("look_deep", "a module path 4,000 deep", [node("Neg", "x", "y", name="/" + "a/" * 4000 + "Neg")])
case(
    "look_paths",
    "4 MB of module paths",
    [node("Neg", "x", f"y{i}", name=f"/{i}" + "/a" * 200 + "/Neg") for i in range(10_000)],
)
case(
    "look_modules",
    "a hundred thousand modules",
    [node("Neg", "x", f"y{i}", name=f"/{i}" + "/a" * 50 + "/Neg") for i in range(2_000)],
)
NOTED = node("Neg", "x", "y")
NOTED.metadata_props.add(key="module", value=".".join("a" * 4000))
case("look_noted", "a deep path in the node's metadata", [NOTED])
