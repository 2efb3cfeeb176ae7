"""The cost of a node in floating-point operations; a multiplication and an addition count as two.

Only the expensive operators are counted exactly: matrix products, convolutions, attention, recurrent layers. Norms and
softmax count five operations per element, other arithmetic one, and moving data none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from onnx import AttributeProto, NodeProto

from lucid.inspection.shapes import Known
from lucid.inspection.values import attributes_of, is_known
from lucid.runtime.subgraphs import subgraphs

Shapes: TypeAlias = Mapping[str, Known]


class UnknownCost(Exception):  # noqa: N818  # not an error: the node is counted as unknown
    """A shape or an attribute that the cost depends on is not known."""


@dataclass(frozen=True)
class Cost:
    """Floating-point operations, and how many nodes could not be counted."""

    flops: int = 0
    unknown: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.flops + other.flops, self.unknown + other.unknown)


NOTHING = Cost()


def cost_of(node: NodeProto, shapes: Shapes) -> Cost:
    """The cost of one node; an If costs as much as its most expensive branch, a loop as much as one iteration."""
    inner = [sum((cost_of(n, shapes) for n in graph.node), NOTHING) for graph in subgraphs(node)]
    if inner:
        return max(inner, key=lambda cost: cost.flops)
    if not is_known(node):  # what an op of another library computes is not known, whatever its name
        return Cost(unknown=1)
    if node.op_type in _FREE:
        return NOTHING
    rule = _RULES.get(node.op_type, _arithmetic)
    try:
        return Cost(rule(_View(node, shapes)))
    except (UnknownCost, IndexError, ValueError):  # the last two where a node has other axes than its op takes
        return Cost(unknown=1)


class _View:
    """A node with the shapes of its inputs and outputs; each method raises UnknownCost for what is not known."""

    def __init__(self, node: NodeProto, shapes: Shapes) -> None:
        self._node, self._shapes = node, shapes
        self._attributes = attributes_of(node)

    def number(self, name: str) -> int:
        """A whole number among the attributes; 0 without it."""
        value = self._attributes.get(name)
        return value if isinstance(value, int) else 0

    def numbers(self, name: str) -> list[int]:
        """A list of whole numbers among the attributes; [] without it."""
        value = self._attributes.get(name)
        return value if isinstance(value, list) else []

    def text(self, name: str) -> str:
        for attribute in self._node.attribute:
            if attribute.name == name and attribute.type == AttributeProto.STRING:
                return str(attribute.s, "utf-8")
        raise UnknownCost

    def has(self, index: int) -> bool:
        return index < len(self._node.input) and bool(self._node.input[index])

    def input(self, index: int) -> tuple[int, ...]:
        if not self.has(index):
            raise UnknownCost
        return self._known(self._node.input[index])

    def output(self, index: int = 0) -> tuple[int, ...]:
        if index >= len(self._node.output):
            raise UnknownCost
        return self._known(self._node.output[index])

    def _known(self, name: str) -> tuple[int, ...]:
        shape = self._shapes.get(name, (None,))
        known = tuple(size for size in shape if size is not None)
        if len(known) != len(shape):
            raise UnknownCost
        return known

    def inputs(self) -> Sequence[tuple[int, ...]]:
        return [self.input(index) for index in range(len(self._node.input)) if self.has(index)]


def _arithmetic(node: _View) -> int:
    return math.prod(node.output())


def _matmul(node: _View) -> int:
    return 2 * math.prod(node.output()) * node.input(0)[-1]


def _fused_matmul(node: _View) -> int:
    left = node.input(0)
    return 2 * math.prod(node.output()) * left[-2 if node.number("transA") else -1]


def _gemm(node: _View) -> int:
    rows, inner = node.input(0)
    if node.number("transA"):
        rows, inner = inner, rows
    return 2 * rows * inner * node.input(1)[0 if node.number("transB") else 1]


def _conv(weight: int) -> Callable[[_View], int]:
    return lambda node: 2 * math.prod(node.output()) * math.prod(node.input(weight)[1:])


def _pool(node: _View) -> int:
    return math.prod(node.output()) * math.prod(node.numbers("kernel_shape"))


def _einsum(node: _View) -> int:
    terms = node.text("equation").replace(" ", "").split("->")[0].split(",")
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, node.inputs(), strict=True):
        if "." in term:
            raise UnknownCost
        sizes |= zip(term, shape, strict=True)
    return len(terms) * math.prod(sizes.values())


def _recurrent(gates: int) -> Callable[[_View], int]:
    def cost(node: _View) -> int:
        steps, batch, width = node.input(0)
        directions, _, hidden = node.input(2)
        return 2 * steps * batch * directions * gates * hidden * (width + hidden)

    return cost


def _attention(node: _View) -> int:
    """ONNX Attention and com.microsoft's: scores, softmax and weighted sum."""
    query = node.input(0)
    if node.number("num_heads") and not node.number("kv_num_heads") and not _has_keys(node):
        n, length, width = query  # com.microsoft Attention: one packed projection inside
        return 2 * n * length * math.prod(node.input(1)) + (4 * width + 5) * n * length * length
    heads = node.number("q_num_heads") or node.number("num_heads") or (query[1] if len(query) == 4 else 1)
    n, length = query[0], query[-2]
    width = query[-1] if len(query) == 4 else query[-1] // heads
    return n * heads * length * _length_of_keys(node) * (4 * width + 5)


def _has_keys(node: _View) -> bool:
    """Whether the second input is keys, and not the weight of a projection."""
    return node.has(1) and len(node.input(1)) != 2


def _length_of_keys(node: _View) -> int:
    """How many keys there are, with those of a cache: an input (N, H, L, E) after the third."""
    past = max((shape[2] for shape in node.inputs()[3:] if len(shape) == 4 and shape[1] != 1), default=0)
    present = node.input(1)[-2] if node.has(1) else node.input(0)[-2]
    return max(past + present, present)


_PRODUCTS = "MatMul MatMulInteger MatMulIntegerToFloat DynamicQuantizeMatMul MatMulNBits QLinearMatMul"
_NORMS = """
Softmax LogSoftmax LayerNormalization SkipLayerNormalization SimplifiedLayerNormalization RMSNormalization
SkipSimplifiedLayerNormalization GroupNormalization InstanceNormalization BatchNormalization LpNormalization
EmbedLayerNormalization
"""
_REDUCTIONS = """
ReduceSum ReduceMean ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSum ReduceLogSumExp
GlobalAveragePool GlobalMaxPool ArgMax ArgMin CumSum TopK
"""
_MOVES = """
Cast CastLike Compress Concat ConcatFromSequence Constant ConstantOfShape DepthToSpace Dropout Expand EyeLike
Flatten Gather GatherElements GatherND Identity NonZero OneHot Pad Range Reshape Scatter ScatterElements ScatterND
SequenceAt SequenceConstruct SequenceInsert Shape Size Slice SpaceToDepth Split SplitToSequence Squeeze
TensorScatter Tile Transpose Trilu Unsqueeze Where DequantizeLinear QuantizeLinear DynamicQuantizeLinear
"""
_FREE = frozenset(_MOVES.split())

_RULES: dict[str, Callable[[_View], int]] = {
    **dict.fromkeys(_PRODUCTS.split(), _matmul),
    "FusedMatMul": _fused_matmul,
    **dict.fromkeys(("Gemm", "FusedGemm"), _gemm),
    **dict.fromkeys(("Conv", "FusedConv", "ConvInteger"), _conv(1)),
    "QLinearConv": _conv(3),
    "ConvTranspose": lambda node: 2 * math.prod(node.input(0)) * math.prod(node.input(1)[1:]),
    "Einsum": _einsum,
    "LSTM": _recurrent(4),
    "GRU": _recurrent(3),
    "RNN": _recurrent(1),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention"), _attention),
    **dict.fromkeys(("AveragePool", "MaxPool", "LpPool"), _pool),
    **dict.fromkeys(_NORMS.split(), lambda node: 5 * math.prod(node.input(0))),
    **dict.fromkeys(_REDUCTIONS.split(), lambda node: math.prod(node.input(0))),
}
