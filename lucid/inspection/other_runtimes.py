"""Runtimes besides onnxruntime's CPU provider: what each is known not to load or to compute wrongly, by op.

Found with `make test-consumers` and tests/test_portable.py, which keep it true; what was not run says so.
docs/portable.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from onnx import NodeProto, TensorProto

from lucid.core.targets.known import RUNTIMES
from lucid.core.targets.record import Release
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.inspection.loaders import ORT_OWN
from lucid.inspection.read import subgraphs
from lucid.inspection.values import Values, attributes_of

_COMPARISONS = ("LessOrEqual", "Less", "GreaterOrEqual")
_ONE_BY_ONE = frozenset(
    [
        "Abs",
        "Add",
        "Div",
        "Erf",
        "Exp",
        "Log",
        "Max",
        "Mul",
        "Neg",
        "Pow",
        "Relu",
        "Sigmoid",
        "Sin",
        "Sqrt",
        "Sub",
        "Tanh",
        "Where",
    ]
)
_FEW_BITS = (TensorProto.UINT4, TensorProto.INT4, TensorProto.UINT2, TensorProto.INT2)


@dataclass(frozen=True)
class Gap:
    """What a runtime does not do.

    Args:
        op: the ONNX op; ``*``: any.
        reason: how it fails.
        when: for which nodes; by default all of that op.
        loads: False if such a model does not run or is wrong; None if it may be; True if it is only slower.
    """

    op: str
    reason: str
    when: Callable[[NodeProto, Values], bool] = lambda node, values: True
    loads: bool | None = False

    def nodes(self, values: Values) -> Iterator[NodeProto]:
        """The nodes of a model that it is about."""
        return (node for node in values.nodes if self.op in ("*", node.op_type) and self.when(node, values))


@dataclass(frozen=True)
class OtherRuntime:
    """A runtime.

    Args:
        name: with the version that was tried.
        opset: the newest standard opset that it takes.
        own: the ops of onnxruntime's own domain that it was compared with.
        gaps: what it does not do.
        tried: whether it was run at all; else a model without gaps may run.
        standard: the standard ops that it was compared with; empty: all.
        release: of onnxruntime, if it is one.
        says: what is known of a model without gaps.
    """

    name: str
    opset: int
    own: tuple[str, ...] = ()
    gaps: tuple[Gap, ...] = ()
    tried: bool = True
    standard: frozenset[str] = frozenset()
    release: Release | None = None
    says: str = "all ops of the model have been compared"


# Which nodes ----------------------------------------------------------------------------------------------------------


def _given(node: NodeProto, place: int) -> str:
    return node.input[place] if place < len(node.input) else ""


def _boolean_mask(node: NodeProto, values: Values) -> bool:
    return values.kind(_given(node, 3)) == TensorProto.BOOL


def _causal_mask(node: NodeProto, values: Values) -> bool:
    return bool(_given(node, 3)) and bool(attributes_of(node).get("is_causal", 0))


def _computed(*places: int) -> Callable[[NodeProto, Values], bool]:
    def computed(node: NodeProto, values: Values) -> bool:
        return any(name and name not in values.constants for name in (_given(node, place) for place in places))

    return computed


def _strides(node: NodeProto, values: Values) -> bool:
    steps = values.constant(_given(node, 4))
    return bool(_given(node, 4)) and (steps is None or any(step != 1 for step in steps.ravel()))


def _open_positions(node: NodeProto, values: Values) -> bool:
    sources = [values.source(name) for name in node.input]
    return len(sources) == 2 and all(
        source is not None and source.op_type == "Range" and any(name not in values.constants for name in source.input)
        for source in sources
    )


def _place_of_a_boolean(node: NodeProto, values: Values) -> bool:
    cast = values.makers.get(_given(node, 0))
    wide = cast is not None and cast.op_type == "Cast" and attributes_of(cast).get("to") == TensorProto.INT64
    return wide and cast is not None and values.kind(_given(cast, 0)) == TensorProto.BOOL


def _of_types(*kinds: int) -> Callable[[NodeProto, Values], bool]:
    return lambda node, values: any(values.kind(name) in kinds for name in (*node.input, *node.output) if name)


def _eight_bits(node: NodeProto, values: Values) -> bool:
    return attributes_of(node).get("bits", 4) == 8


def _reads_around(node: NodeProto, values: Values) -> bool:
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output} | {""}
        if any(name not in own for inner in graph.node for name in inner.input):
            return True
    return False


def _with_a_cache(node: NodeProto, values: Values) -> bool:
    return bool(_given(node, 4)) or len(node.output) > 1


def _open_sizes(node: NodeProto, values: Values) -> bool:
    return values.open_sizes


def _open_keys(node: NodeProto, values: Values) -> bool:
    return any(_given(node, place) and values.is_open(_given(node, place), -2) for place in (1, 4))


def _between_products(node: NodeProto, values: Values) -> bool:
    before = values.makers.get(_given(node, 0))
    after = {op for name in node.output for op in values.users.get(name, ())}
    between = before is not None and before.op_type == "MatMul" and "MatMul" in after
    return between and values.is_open(_given(node, 0), -1)


def _in_place(node: NodeProto, values: Values) -> bool:
    """Whether a step may write in place of an element, or reads none."""
    for body in subgraphs(node):
        elements = {value.name for value in body.input[len(body.input) - _scanned(node) :]}
        read = {name for inner in body.node for name in inner.input}
        first = {inner.input[0] for inner in body.node if inner.input and inner.op_type in _ONE_BY_ONE}
        if first & elements or not read & elements:
            return True
    return False


def _scanned(node: NodeProto) -> int:
    count = attributes_of(node).get("num_scan_inputs", 0)
    return count if isinstance(count, int) else 0


def _loop_within(node: NodeProto, values: Values) -> bool:
    return any(inner.op_type in ("Scan", "Loop") for body in subgraphs(node) for inner in body.node)


def _number_of_a_product(node: NodeProto, values: Values) -> bool:
    shape = values.constants.get(_given(node, 1))
    return shape is not None and list(shape.dims) == [0]


def _at_no_places(node: NodeProto, values: Values) -> bool:
    places = values.constants.get(_given(node, 1))
    return places is not None and 0 in places.dims


def _padded_blocks(node: NodeProto, values: Values) -> bool:
    given, weight = attributes_of(node), values.constants.get(_given(node, 0))
    block, axis = given.get("block_size", 0), given.get("axis", 1)
    if not isinstance(block, int) or not isinstance(axis, int) or block < 1 or weight is None:
        return False
    return -len(weight.dims) <= axis < len(weight.dims) and weight.dims[axis] % block != 0


def _of_onnxruntime(node: NodeProto, values: Values) -> bool:
    return node.domain in ORT_OWN


def _one_of(types: str) -> Callable[[NodeProto, Values], bool]:
    """Which nodes have a value of one of some element types; ``*``: all."""
    if types == "*":
        return lambda node, values: True
    return _of_types(*(onnx_code(kind) for kind in types.split()))


# The runtimes ---------------------------------------------------------------------------------------------------------

_NO_KERNEL = tuple(
    Gap(op, gap.said or "has no kernel: computed on the CPU, with copies", loads=True)
    for gap in RUNTIMES["webgpu"].lacks
    if gap.types == "*" and gap.kernels != "*" and not gap.opset
    for op in gap.kernels.split()
)
_OWN = ("FusedMatMul", "GatherBlockQuantized", "GroupQueryAttention", "MatMulNBits", "MoE", "MultiHeadAttention")

# Each of them in every way that Lucid writes it: tests/test_openvino.py, tests/consumers/test_tract.py.
_COMPARED = """
    Abs Add And ArgMax Attention AveragePool BatchNormalization Cast Ceil Concat Constant ConstantOfShape Conv
    ConvTranspose Cos CumSum DequantizeLinear Div DynamicQuantizeLinear Equal Erf Exp Expand Floor Gather GatherElements
    GatherND Gelu Greater GreaterOrEqual GroupNormalization Identity If IsNaN LayerNormalization Less LessOrEqual Log
    LogSoftmax MatMul MatMulInteger Max MaxPool Min Mod Mul Neg Not Or Pad Pow QuantizeLinear RMSNormalization Range
    Reciprocal ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum Relu Reshape Resize RotaryEmbedding Round Scan
    ScatterElements Shape Sigmoid Sign Sin Slice Softmax Softplus Split Sqrt Squeeze Sub Tanh Tile TopK Transpose Trilu
    Unsqueeze Where Xor
"""

OTHERS = (
    OtherRuntime("onnxruntime-node and -web 1.30", 26, _OWN, release=(1, 30), says="they have the kernels of the CPU"),
    OtherRuntime("onnxruntime on WebGPU", 26, _OWN, _NO_KERNEL, says="no op is known to be left to the CPU"),
    OtherRuntime(
        "OpenVINO 2026.4",
        23,
        ("FusedMatMul", "MatMulNBits", "MultiHeadAttention"),
        (
            Gap("Scan", "is not loaded where a step reads values around it", _reads_around),
            Gap("Loop", "is not loaded where a step reads values around it", _reads_around, loads=None),
            Gap("DequantizeLinear", "is not loaded where the block does not divide the rows", _padded_blocks),
            Gap("Scan", "is not loaded where a loop is within a loop", _loop_within),
            Gap("Gather", "is wrong at constants without elements", _at_no_places),
            Gap("Reshape", "of a product to a number ends the process", _number_of_a_product, loads=None),
            Gap("Scan", "is wrong where a step writes in place of its element, or reads none", _in_place, loads=None),
            Gap("If", "may be wrong in the first run after loading", loads=None),
            Gap("Attention", "is wrong after a first call with a single key", _open_keys, loads=None),
            Gap("Softmax", "between products is wrong after a first call with a single key", _between_products, None),
            *(Gap(op, missing.instead, _one_of(missing.types), loads=None)
              for missing in RUNTIMES["openvino"].lacks if missing.instead for op in missing.kernels.split()),
            *(Gap(op, difference.how, _one_of(difference.types), loads=True)
              for difference in RUNTIMES["openvino"].differs if difference.kernels != "*"
              for op in difference.kernels.split()),
        ),
        standard=frozenset(_COMPARED.split()),
    ),
    OtherRuntime(
        "TensorRT",
        23,
        (),
        (
            Gap("Attention", "is taken without a cache only (TensorRT#4738)", _with_a_cache),
            Gap("RMSNormalization", "is not known to its parser (TensorRT#4639)"),
        ),
        tried=False,
        says="was not run; no op of the model is known not to work",
    ),
    OtherRuntime(
        "tract 0.23",
        23,
        ("MatMulNBits", "MultiHeadAttention"),
        (
            Gap("Attention", "takes no mask beside is_causal", _causal_mask),
            Gap("Attention", "takes no boolean mask", _boolean_mask),
            *(Gap(op, "of positions of a symbolic length gives masks of wrong sizes", _open_positions)
              for op in _COMPARISONS),
            Gap("ArgMax", "of a condition is not loaded as int64", _place_of_a_boolean),
            Gap("Split", "takes only sizes that are constants", _computed(1)),
            Gap("TopK", "takes only a number that is a constant", _computed(1)),
            Gap("BatchNormalization", "takes only constants", _computed(1, 2, 3, 4)),
            Gap("QuantizeLinear", "takes only scales that are constants", _computed(1)),
            Gap("DequantizeLinear", "takes only scales that are constants", _computed(1)),
            Gap("MatMulNBits", "has no kernel for 8 bits", _eight_bits),
            Gap("FusedMatMul", "is not known"),
            Gap("*", "has no bfloat16", _of_types(TensorProto.BFLOAT16)),
            Gap("*", "has no types of 4 bits", _of_types(*_FEW_BITS)),
            Gap("Resize", "may not take symbolic sizes", _open_sizes, loads=None),
            Gap("Slice", "with steps may not take symbolic sizes", _strides, loads=None),
            Gap("If", "may not be loaded: its branches must agree in their sizes", loads=None),
        ),
        standard=frozenset(_COMPARED.split()) | {"InstanceNormalization"},
    ),
    OtherRuntime(
        "ONNX's ReferenceEvaluator",
        26,
        _OWN,
        (Gap("*", "is onnxruntime's own", _of_onnxruntime),),
        says="it has all ops of ONNX, and is slow",
    ),
)  # fmt: skip
