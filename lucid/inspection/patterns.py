"""How the faults of runtimes show in a file: in which nodes, by op and by what surrounds them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from onnx import NodeProto, TensorProto

from lucid.core.targets import file_readers, runtimes
from lucid.core.targets.record import Fault
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.inspection.values import ORT_OWN, Values, attributes_of
from lucid.runtime.subgraphs import subgraphs

When: TypeAlias = Callable[[NodeProto, Values], bool]

_ELEMENTWISE = "Abs Add Div Erf Exp Log Max Mul Neg Pow Relu Sigmoid Sin Sqrt Sub Tanh Where"
_FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)
_INTEGERS = (TensorProto.INT32, TensorProto.INT64)
_FEW_BITS = (TensorProto.UINT4, TensorProto.INT4, TensorProto.UINT2, TensorProto.INT2)


def _given(node: NodeProto, place: int) -> str:
    return node.input[place] if place < len(node.input) else ""


def _computed_weight(node: NodeProto, values: Values) -> bool:
    places = range(1, 5) if node.op_type == "BatchNormalization" else (1,)
    return any(_is_computed(_given(node, place), values) for place in places)


def _is_computed(name: str, values: Values) -> bool:
    return bool(name) and name not in values.constants


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


def _has_type(node: NodeProto, values: Values, kinds: Collection[int]) -> bool:
    """Whether a node reads or computes a value of one of some element types, by ONNX's numbers."""
    return any(values.kind(name) in kinds for name in (*node.input, *node.output) if name)


def _of_floats(node: NodeProto, values: Values) -> bool:
    return _has_type(node, values, _FLOATS)


def _of_unguarded_floats(node: NodeProto, values: Values) -> bool:
    """Whether no Where follows that restores the NaN which the fault loses."""
    return _of_floats(node, values) and "Where" not in _readers(node, values)


def _of_rows_read(node: NodeProto, values: Values) -> bool:
    """Whether nodes outside of attention read the rows of a softmax."""
    return _of_floats(node, values) and not _readers(node, values) & {"Where", "MatMul", "Squeeze", "Transpose"}


def _fused_integers(node: NodeProto, values: Values) -> bool:
    """Whether integers of three axes are reduced, and arithmetic follows that onnxruntime fuses with it."""
    follows = _readers(node, values) & {"Add", "Sub", "Mul", "Neg", "Div"}
    axes = len(values.shapes.get(_given(node, 0), ()))
    return bool(follows) and values.kind(node.output[0]) in _INTEGERS and axes == 3


def _places_read(node: NodeProto, values: Values) -> bool:
    """Whether the indices of TopK are read as they are, and not ordered by one more TopK."""
    return len(node.output) > 1 and bool(node.output[1]) and values.users.get(node.output[1]) != {"Add"}


def _of_uncorrected_integers(node: NodeProto, values: Values) -> bool:
    """Whether no Mul follows, by which an export corrects an integer quotient."""
    return _has_type(node, values, _INTEGERS) and "Mul" not in _readers(node, values)


def _readers(node: NodeProto, values: Values) -> set[str]:
    """The ops that read what a node computes."""
    return {op for name in node.output for op in values.users.get(name, ())}


def _reads_around(node: NodeProto, values: Values) -> bool:
    for graph in subgraphs(node):
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        own |= {name for inner in graph.node for name in inner.output} | {""}
        if any(name not in own for inner in graph.node for name in inner.input):
            return True
    return False


def _open_keys(node: NodeProto, values: Values) -> bool:
    return any(_given(node, place) and values.is_open(_given(node, place), -2) for place in (1, 4))


def _between_products(node: NodeProto, values: Values) -> bool:
    before = values.makers.get(_given(node, 0))
    between = before is not None and before.op_type == "MatMul" and "MatMul" in _readers(node, values)
    return between and values.is_open(_given(node, 0), -1)


def _in_place(node: NodeProto, values: Values) -> bool:
    """Whether a step may overwrite an element in place, or reads none."""
    for body in subgraphs(node):
        elements = {value.name for value in body.input[len(body.input) - _scanned(node) :]}
        read = {name for inner in body.node for name in inner.input}
        first = {inner.input[0] for inner in body.node if inner.input and inner.op_type in _ELEMENTWISE.split()}
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
    attributes, weight = attributes_of(node), values.constants.get(_given(node, 0))
    block, axis = attributes.get("block_size", 0), attributes.get("axis", 1)
    if not isinstance(block, int) or not isinstance(axis, int) or block < 1 or weight is None:
        return False
    return -len(weight.dims) <= axis < len(weight.dims) and weight.dims[axis] % block != 0


class Pattern(NamedTuple):
    """The nodes that a fault is about: of some ops, separated by spaces (``*``: any), where something holds."""

    ops: str
    when: When

    def nodes(self, values: Values) -> Iterator[list[NodeProto]]:
        """The nodes of a model that the pattern matches, a list for each op."""
        for op in self.ops.split():
            nodes = [node for node in values.nodes if op in ("*", node.op_type) and self.when(node, values)]
            if nodes:
                yield nodes


PATTERNS: Mapping[Fault, Pattern] = MappingProxyType(
    {
        runtimes.OUTER_VALUES: Pattern("Scan", _reads_around),
        runtimes.OUTER_VALUES_OF_LOOP: Pattern("Loop", _reads_around),
        runtimes.LOOP_WITHIN: Pattern("Scan", _loop_within),
        runtimes.PADDED_BLOCKS: Pattern("DequantizeLinear", _padded_blocks),
        runtimes.EMPTY_CONSTANTS: Pattern("Gather", _at_no_places),
        runtimes.RESHAPED_TO_NUMBER: Pattern("Reshape", _number_of_a_product),
        runtimes.ELEMENTS_IN_PLACE: Pattern("Scan", _in_place),
        runtimes.BRANCHES: Pattern("If", lambda node, values: True),
        runtimes.ATTENTION_OPEN_KEYS: Pattern("Attention", _open_keys),
        runtimes.FUSED_SOFTMAX: Pattern("Softmax", _between_products),
        runtimes.PASSES_OVER_NAN: Pattern("ReduceMax ReduceMin ArgMax MaxPool", _of_unguarded_floats),
        runtimes.NAN_BETWEEN_TWO: Pattern("Max Min Clip", _of_floats),
        runtimes.EXP_OF_NAN: Pattern("Exp", _of_unguarded_floats),
        runtimes.SOFTMAX_OF_NAN: Pattern("Softmax LogSoftmax", _of_rows_read),
        runtimes.GELU_OF_INFINITY: Pattern("Gelu", _of_unguarded_floats),
        runtimes.THREE_AXES: Pattern("ReduceSum ReduceMax ReduceMin", _fused_integers),
        runtimes.ORDER_OF_TIES: Pattern("TopK", _places_read),
        runtimes.NAN_IS_GREATER: Pattern("Greater GreaterOrEqual", _of_floats),
        runtimes.DIVIDED_AS_FLOAT32: Pattern("Div Mod", _of_uncorrected_integers),
        runtimes.REGIONS_OF_POSITIONS: Pattern("LessOrEqual Less GreaterOrEqual", _open_positions),
        file_readers.ATTENTION_CACHE: Pattern(
            "Attention", lambda node, values: bool(_given(node, 4)) or len(node.output) > 1
        ),
        file_readers.MASK_BESIDE_CAUSAL: Pattern(
            "Attention", lambda node, values: bool(_given(node, 3)) and bool(attributes_of(node).get("is_causal", 0))
        ),
        file_readers.BOOLEAN_MASK: Pattern(
            "Attention", lambda node, values: values.kind(_given(node, 3)) == TensorProto.BOOL
        ),
        file_readers.PLACE_OF_BOOLEAN: Pattern("ArgMax", _place_of_a_boolean),
        file_readers.COMPUTED_SIZES: Pattern("Split TopK", lambda node, values: _is_computed(_given(node, 1), values)),
        file_readers.COMPUTED_WEIGHTS: Pattern("BatchNormalization QuantizeLinear DequantizeLinear", _computed_weight),
        file_readers.EIGHT_BITS: Pattern("MatMulNBits", lambda node, values: attributes_of(node).get("bits", 4) == 8),
        file_readers.FOUR_BITS: Pattern("*", lambda node, values: _has_type(node, values, _FEW_BITS)),
        file_readers.OPEN_SIZES: Pattern("Resize", lambda node, values: values.open_sizes),
        file_readers.STRIDES: Pattern("Slice", _strides),
        file_readers.OWN_DOMAIN: Pattern("*", lambda node, values: node.domain in ORT_OWN),
    }
)


def of_types(ops: str, types: str, but: str = "") -> Pattern:
    """The nodes of some ops that read or compute a value of one of some element types; ``*``: of any op except some."""
    kinds = [] if types == "*" else [onnx_code(kind) for kind in types.split()]
    others = but.split()

    def has_kind(node: NodeProto, values: Values) -> bool:
        return node.op_type not in others and (types == "*" or _has_type(node, values, kinds))

    return Pattern(ops, has_kind)
