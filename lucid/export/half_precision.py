"""Half precision: a traced graph whose weights are stored in float16 or bfloat16.

One rewrite serves every runtime. Each float32 weight becomes a constant in half precision and a cast to the type in
which the runtime computes. Where it gains nothing from half precision, as on a CPU, that is float32: the cast is a node
that runtimes compute once, when they load the file, and nothing else changes. Where it reads parts of tables (target
"cpu"), the rows that an embedding reads are cast instead, so that the table stays half as large in memory. Where it
gains, it is half precision
itself, there is no cast, and what depends on weights or on floating-point inputs is computed in it; positions, masks
and tables of angles do not, and stay float32 until they are combined with values that do. Sums inside ops (norms,
softmax, products) are those of the ops in half precision, which are accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.types import Array, DType, as_dtype, bfloat16, float16, float32
from lucid.core.graph.values import Body, Constant, Input, Node, Origin, Value
from lucid.export.onnx_file.check import warn_of
from lucid.export.options import ExportOptions
from lucid.export.target import ExportError
from lucid.ops.attention.buffers import buffered_attention
from lucid.ops.attention.op import attention
from lucid.ops.elementwise import cast
from lucid.ops.neural import embedding
from lucid.ops.op import Op
from lucid.tracing.parts import TracedPart


@dataclass(frozen=True)
class Halved:
    """A graph in half precision, and what became of its weights."""

    traced: TracedPart  # the rewritten graph, or part of a model
    dtype: DType  # the type in which weights are stored
    computed: DType  # the type in which the graph computes
    rows: bool  # whether the rows that are read of a table are widened, instead of all of it
    numbers: int  # how many numbers are stored in `dtype`
    # The weights with numbers beyond the largest one of `dtype`: the name and the largest number.
    beyond: tuple[tuple[str, float], ...]
    # Weights in which many numbers become zero, by name: the share of these numbers.
    vanished: tuple[tuple[str, float], ...]

    @property
    def note(self) -> str:
        """The types in which weights are stored and computed, in one line."""
        when = "at load, tables as they are read" if self.rows else "once, at load"
        how = "computed in it" if self.computed == self.dtype else f"widened to {self.computed} {when}"
        return f"{self.numbers:,} weights are stored in {self.dtype} and {how}"

    def warn(self) -> None:
        """Warn of weights that half precision cannot hold."""
        storage = "stored as the largest one" if self.computed == self.dtype else f"stored in {self.computed}"
        warn_of(
            f"beyond {self.dtype.largest:.6g}, the largest {self.dtype}; they are {storage}",
            [f"{name} (up to {number:.3g})" for name, number in self.beyond],
        )
        warn_of(
            f"that become zero in {self.dtype}, whose smallest is {self.dtype.smallest:.0e}",
            [f"{name} ({share:.1%})" for name, share in self.vanished],
        )


def halved(traced: TracedPart, options: ExportOptions) -> Halved | None:
    """A graph whose weights are stored in half precision, and computed in it where the target's runtime gains from it.

    Parameters and parts of them in float32 are rounded to the `dtype` of the options; None if there is none. Values
    that tracing computed from weights are computed from the unrounded weights; other constants and types stay as they
    are.

    Raises:
        ExportError: for a type other than float16 and bfloat16, for `keep_io_types=False` without a type, and for an op
            that does not take the type where the graph computes in it.
    """
    if options.dtype is None:
        if not options.keep_io_types:
            raise ExportError(
                'keep_io_types=False is for exports in half precision: give dtype="float16" or "bfloat16"'
            )
        return None
    half = as_dtype(options.dtype)
    if half not in (float16, bfloat16):
        raise ExportError(
            f"dtype is {half}, expected float16 or bfloat16; model.to(...) changes a model to other types"
        )
    runtime = options.where().runtime
    computed = half if runtime.half_arithmetic else float32
    weights = HalfWeights(traced.graph, half, saturate=computed == half, rows="partial reads" in runtime.strategies)
    graphs = _Rewrite(traced.graphs, weights, computed, float32 if options.keep_io_types else half).graphs()
    beyond, vanished = tuple(weights.beyond.items()), tuple(weights.vanished.items())
    return Halved(traced.with_graphs(graphs), half, computed, weights.rows, weights.numbers, beyond, vanished)


class _Rewrite:
    """Graphs with the same inputs, made again to compute in `computed`; inputs and outputs have the type `given`."""

    def __init__(self, graphs: Sequence[Graph], weights: HalfWeights, computed: DType, interface: DType) -> None:
        self._old = graphs
        self._name_of = graphs[0].name_of
        self._weights = weights
        self._computed = computed
        self._given = interface
        self._new: dict[int, Value] = {}  # new values by the old ones that depend on weights or on float32 inputs
        self._casts: dict[tuple[int, DType], tuple[Value, Value]] = {}  # keeps the values whose identities it uses

    def graphs(self) -> list[Graph]:
        """The new graphs.

        Raises:
            ExportError: for an op that does not take the type in which it would be computed.
        """
        inputs = [self._input(value) for value in self._old[0].inputs]
        outputs = [self._outputs(graph) for graph in self._old]
        names = self._weights.names
        return [graph.with_outputs(new, inputs, names) for graph, new in zip(self._old, outputs, strict=True)]

    def _outputs(self, graph: Graph) -> dict[str, Value]:
        for node in graph.nodes():
            if any(value is not None and self._depends(value) for value in node.inputs):
                for old, new in zip(node.results, self._made(node).results, strict=True):
                    self._new[id(old)] = (
                        self._cast(new, self._computed, node.scope) if old.type.dtype == float32 else new
                    )
        return dict(zip(graph.output_names, map(self._output, graph.outputs), strict=True))

    def _input(self, old: Input) -> Input:
        if old.type.dtype != float32:
            return old
        default = None if old.default is None else old.default.astype(self._given.numpy)
        new = Input(old.name, old.type.with_dtype(self._given), default)
        self._new[id(old)] = self._cast(new, self._computed)
        return new

    def _output(self, old: Value) -> Value:
        new = self._new.get(id(old), old)
        return self._cast(new, self._given) if old.type.dtype == float32 else new

    def _depends(self, value: Value) -> bool:
        if isinstance(value, Constant):
            return value.type.dtype == float32 and self._name_of(value) is not None
        return id(value) in self._new

    def _made(self, node: Node) -> Node:
        assert isinstance(node.op, Op)
        inputs = [self._operand(node, index, value) for index, value in enumerate(node.inputs)]
        attributes = {name: self._attribute(value) for name, value in node.attributes.items()}
        try:
            types = node.op.infer([None if value is None else value.type for value in inputs], attributes)
        except (TypeError, ValueError) as error:
            raise ExportError(
                f"{node.scope or node.op.name}: cannot be computed in {self._computed}: {error}"
            ) from None
        return Node(node.op, tuple(inputs), attributes, types, node.scope)

    def _attribute(self, value: Any) -> Any:
        if isinstance(value, Body):  # all its inputs are in the type in which the graph computes
            body = Graph(value.inputs, {f"output_{index}": output for index, output in enumerate(value.outputs)})
            (new,) = _Rewrite([body], self._weights, self._computed, self._computed).graphs()
            return Body(new.inputs, new.outputs)
        return self._computed if isinstance(value, DType) and value == float32 else value

    def _operand(self, node: Node, index: int, value: Value | None) -> Value | None:
        assert isinstance(node.op, Op)
        if value is None:
            return None
        new = self._new.get(id(value), value)
        if value.type.dtype != float32:
            return new
        # The scales of a quantized weight belong to its op, which is not folded: they are not widened before it.
        whole = node.op.folded or self._computed == self._weights.dtype
        if isinstance(value, Constant) and self._weights.has(value) and whole:
            half = self._weights.halved(value)
            return half if self._weights.rows and node.op is embedding else self._cast(half, self._computed, node.scope)
        if not self._depends(value) and _is_mask(node, index):
            return value
        return self._cast(new, self._computed, node.scope)

    def _cast(self, value: Value, dtype: DType, scope: str = "") -> Value:
        """A value in another type. A constant is rounded in place, but widened by a node.

        A lone number that would become 0, as the 1e-12 that keeps a divisor from 0, becomes the smallest one.
        """
        if value.type.dtype == dtype:
            return value
        key = (id(value), dtype)
        if key not in self._casts:
            kind = value.type.with_dtype(dtype)
            if isinstance(value, Constant) and dtype.itemsize < value.type.dtype.itemsize:
                array = narrowed(value.array, dtype)
                if array.size == 1 and value.array.any() and not array.any():
                    array = np.copysign(dtype.smallest, value.array).astype(dtype.numpy)
                new: Value = Constant(array, kind)
                if (label := self._name_of(value)) is not None:
                    self._weights.names.append((label, array))
            else:
                new = Node(cast, (value,), {"dtype": dtype}, (kind,), scope).results[0]
            self._casts[key] = value, new
        return self._casts[key][1]


def _is_mask(node: Node, index: int) -> bool:
    """Whether an operand is a mask of attention, which may have a type of its own."""
    assert isinstance(node.op, Op)
    return node.op in (attention, buffered_attention) and node.op.arguments[index] == "mask"


# The share of a weight's numbers that become zero which is worth a warning. MiniLM, which loses nothing by float16,
# has a vector with 0.8 % of them.
_MANY_VANISH = 0.01


class HalfWeights:
    """The weights of a graph in half precision. Equal arrays and transposes share memory, as before."""

    def __init__(self, graph: Graph, dtype: DType, saturate: bool, rows: bool) -> None:
        self.dtype = dtype
        self.rows = rows
        self.numbers = 0
        self.beyond: dict[str, float] = {}
        self.vanished: dict[str, float] = {}
        self.names: list[tuple[str, Array]] = []
        self._graph = graph
        self._saturate = saturate
        self._arrays: dict[tuple[object, ...], Array] = {}
        self._constants: dict[int, Constant] = {}

    def has(self, constant: Constant) -> bool:
        """Whether a constant is a parameter in float32, or a view of a part of one."""
        whole, origin = constant.array, constant.origin
        while origin is not None and self._graph.names.get(whole) is None:
            whole, origin = origin.whole, origin.whole_origin
        is_parameter = constant.type.dtype == float32 and self._graph.names.get(whole) is not None
        return is_parameter and np.may_share_memory(whole, constant.array)

    def halved(self, constant: Constant) -> Constant:
        """A weight in half precision, under its own name."""
        array, origin = self._named(constant), None
        if constant.origin is not None and constant.origin.suffix == ".T" and array.ndim == 2:
            whole = self._named(Constant(constant.origin.whole, constant.type, constant.origin.whole_origin))
            origin = Origin(whole, ".T", None)  # so that a tied layer is stored once
        kind = constant.type.with_dtype(as_dtype(array.dtype))
        return self._constants.setdefault(id(array), Constant(array, kind, origin))

    def _named(self, constant: Constant) -> Array:
        label = str(self._graph.name_of(constant))
        half = self._half(constant.array, label)
        self.names.append((label, half))
        return half

    def _half(self, array: Array, label: str) -> Array:
        key = (array.__array_interface__["data"][0], array.shape, array.strides)
        if key not in self._arrays:
            transposed = array.flags.f_contiguous and not array.flags.c_contiguous
            self._arrays[key] = self._half(array.T, label).T if transposed else self._converted(array, label)
        return self._arrays[key]

    def _converted(self, array: Array, label: str) -> Array:
        beyond = _beyond(array, self.dtype)
        if beyond.any():
            self.beyond[label] = float(np.abs(array[beyond]).max())
            if not self._saturate:
                return array
        self.numbers += array.size
        nonzero = ~(np.abs(array) <= self.dtype.smallest / 2)  # NaN is
        lost = int(np.count_nonzero(array)) - int(np.count_nonzero(nonzero))
        if lost > _MANY_VANISH * array.size:
            self.vanished[label] = lost / array.size
        return narrowed(array, self.dtype)


def narrowed(array: Array, dtype: DType) -> Array:
    """Numbers rounded to a narrower floating-point type; finite ones beyond its largest become that."""
    beyond = _beyond(array, dtype)
    with np.errstate(all="ignore"):
        result = array.astype(dtype.numpy)
    return np.where(beyond, np.copysign(dtype.largest, array).astype(dtype.numpy), result) if beyond.any() else result


def _beyond(array: Array, dtype: DType) -> Array:
    """Which finite numbers would be infinite in a narrower type; a single False where two fast passes find none."""
    if not array.size or (array.max() <= dtype.largest and array.min() >= dtype.lowest):
        return np.zeros((), np.bool_)
    with np.errstate(all="ignore"):
        return np.asarray(np.isinf(array.astype(dtype.numpy)) & np.isfinite(array))
