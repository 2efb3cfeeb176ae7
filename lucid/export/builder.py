"""The ONNX graph under construction: nodes, initializers and names."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.names import unused_name
from lucid.core.graph.types import Array, TensorType, bfloat16, show_shape
from lucid.core.graph.values import Constant, Input, Node, Value
from lucid.core.process.cache_keys import type_key
from lucid.core.sizes.dims import Shape, Size, identity, positive, product
from lucid.core.targets.runtimes import EMPTY_CONSTANTS
from lucid.core.words.safe_text import encodable
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.target import ExportError, Target
from lucid.ops.convolution import WINDOWED
from lucid.ops.tensor.tensor import Tensor

SMALL = 1024  # up to so many bytes a constant is compared by its contents, and never stored as external data
_LARGE = 1 << 18  # from so many bytes on, a constant of one number is computed when the model runs, and not stored
Operand: TypeAlias = str | Value | Tensor | Array | np.generic | None
Operands: TypeAlias = Operand | list[Operand] | tuple[Operand, ...]


@dataclass(frozen=True)
class Strings:
    """The type of an input that holds texts. Only files have such inputs: Lucid computes with numbers."""

    shape: Shape

    def __str__(self) -> str:
        return f"string{show_shape(self.shape)}"


@dataclass(frozen=True, slots=True)
class Emitted:
    """One ONNX node."""

    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    name: str
    module: str


@dataclass(frozen=True, slots=True)
class Block:
    """The nodes of a nested graph (a branch of If, the body of a loop) and the names of its outputs and inputs."""

    nodes: tuple[Emitted, ...]
    outputs: tuple[tuple[str, TensorType], ...]
    inputs: tuple[tuple[str, TensorType], ...] = ()


class Builder:
    """Collects ONNX nodes. The same op on the same inputs is emitted once."""

    def __init__(self, graph: Graph, target: Target, input_names: Sequence[str], output_names: Sequence[str]) -> None:
        self.target = target
        self.graph = graph
        self.initializers: dict[str, Array] = {}
        self.headers: dict[str, tuple[int, tuple[int, ...]]] = {}  # ONNX type and shape of those stored in another type
        self.parameters: set[str] = set()  # the names of initializers that are parameters, or parts of one
        self.types: dict[str, TensorType | Strings] = {}
        self.thresholds: list[tuple[Size, int]] = []  # sizes that choose a branch: one up to the number, one above
        self.rows_apart = False  # whether it takes several new tokens behind others in a single row alone
        self.sizes: dict[str, str] = {}  # of sizes that forms compute, the vector of one number
        self._blocks: list[list[Emitted]] = [[]]
        self._memo: list[dict[Any, tuple[str, ...]]] = [{}]
        self._names: dict[int, str] = {}
        self._values: list[Value] = []  # keeps the identities in _names alive
        self._taken = dict.fromkeys([*output_names, *input_names], 1)
        self._constants: dict[Any, str] = {}
        self._arrays: list[Array] = []  # keeps the identities in _constants alive
        self._renamed: dict[str, str] = {}
        self.path = ""
        self.module: str | None = None
        self.emitted = 0  # nodes so far, including those in nested graphs
        self.operands: set[tuple[str, str]] = set()  # the ops of these, each with the element type of an input
        self.compute: Callable[[Sequence[Value]], None] = _no_engine
        self.inputs: dict[str, TensorType | Strings] = {}  # of the finished model
        for value, name in zip(graph.inputs, input_names, strict=True):
            self.inputs[name] = value.type
            self.bind(value, name)
            if value.default is not None:
                self.initializers[name] = value.default

    @property
    def nodes(self) -> list[Emitted]:
        """The nodes of the main graph, in order."""
        return self._blocks[0]

    @property
    def names(self) -> Set[str]:
        """All names that are taken."""
        return self._taken.keys()

    # Names ------------------------------------------------------------------------------------------------------------

    def unused(self, name: str) -> str:
        """The name, with a number appended if it is taken."""
        return unused_name(encodable(name), self._taken)

    def bind(self, value: Value, name: str) -> None:
        """Record the ONNX name of a value."""
        self._names[id(value)] = name
        self._values.append(value)
        self.types.setdefault(name, value.type)

    def knows(self, value: Value) -> bool:
        """Whether a value has been computed."""
        return isinstance(value, Constant) or id(value) in self._names

    def uses(self, value: Value) -> int:
        """How often the graph reads a value, also as an output."""
        return len(self.readers(value))

    def readers(self, value: Value) -> Sequence[Node | None]:
        """The nodes of the graph that read a value; None for an output. Empty for a value within another op."""
        return self._readers.get(id(value), ())

    @cached_property
    def _readers(self) -> dict[int, list[Node | None]]:
        readers: dict[int, list[Node | None]] = {}
        for node in self.graph.nodes():
            for value in node.inputs:
                readers.setdefault(id(value), []).append(node)
        for value in self.graph.outputs:
            readers.setdefault(id(value), []).append(None)
        return readers

    def has_elements(self, sizes: Iterable[Size]) -> bool:
        """Whether none of the sizes is 0 where the model has a result: without a window, a convolution is an error."""
        return all(positive(size) or identity(size) in self._windows for size in sizes)

    @cached_property
    def _windows(self) -> set[Hashable]:
        sizes = [node.types[0].shape[2:] for node in self.graph.nodes() if node.op.name in WINDOWED]
        return {identity(size) for windows in sizes for size in (*windows, product(windows))}

    def name_of(self, operand: Operand) -> str:
        """The ONNX name of an operand; the empty name for an absent one.

        Arrays and NumPy's numbers become initializers; a value that is not computed yet is computed here.

        Raises:
            TypeError: for a number of Python.
        """
        if operand is None or isinstance(operand, str):
            return operand or ""
        if isinstance(operand, (np.ndarray, np.generic)):
            return self._initializer(np.asarray(operand), None)
        if isinstance(operand, (bool, int, float)):
            raise TypeError(f"an ONNX node takes {operand!r}, which has no element type: write np.float32({operand!r})")
        value = operand.to_value() if isinstance(operand, Tensor) else operand
        if isinstance(value, Constant):
            return self._transposed(value) or self._initializer(value.array, self.graph.name_of(value))
        if id(value) not in self._names:
            self.compute([value])
        return self._names[id(value)]

    def names_of(self, operands: Operands) -> list[str]:
        """The names of one operand or of several."""
        return [self.name_of(x) for x in (operands if isinstance(operands, (tuple, list)) else [operands])]

    def _transposed(self, value: Constant) -> str | None:
        """The transpose of a weight that is already in the model (a tied output layer): a node, not a second copy.

        onnxruntime folds it when it loads the model.
        """
        origin = value.origin
        if origin is None or origin.suffix != ".T" or value.array.ndim != 2:
            return None
        whole = Constant(origin.whole, value.type.with_shape(origin.whole.shape), origin.whole_origin)
        name = self._constants.get(_key(whole.array, self.graph.name_of(whole)))
        return None if name is None else self.op("Transpose", name, perm=(1, 0))

    def _initializer(self, array: Array, label: str | None) -> str:
        if not array.size and self.target.wrong(EMPTY_CONSTANTS):
            # ConstantOfShape has bfloat16 only from opset 20 on.
            kind = np.dtype(np.float32) if array.dtype == bfloat16.numpy else array.dtype
            empty = self.op("ConstantOfShape", np.asarray(array.shape, np.int64), value=np.zeros(1, kind))
            return empty if kind == array.dtype else self.op("Cast", empty, to=onnx_code(bfloat16))
        if label is None and array.nbytes >= _LARGE and _is_one_number(array):
            return self.op("ConstantOfShape", np.asarray(array.shape, np.int64), value=array.flat[:1])
        key = _key(array, label)
        if key not in self._constants:
            self._arrays.append(array)
            self._constants[key] = name = self.unused(label or "constant")
            self.initializers[name] = array
            if label is not None:
                self.parameters.add(name)
        return self._constants[key]

    def stored(self, array: Array, code: int, shape: tuple[int, ...], label: str) -> str:
        """An initializer of an ONNX element type that Lucid does not compute with; `array` holds its bytes."""
        key = (label, code, shape)
        if key not in self._constants:
            self._constants[key] = name = self.unused(label)
            self.initializers[name], self.headers[name] = array, (code, shape)
            self.parameters.add(name)
        return self._constants[key]

    # Nodes ------------------------------------------------------------------------------------------------------------

    def op(self, op_type: str, *inputs: Operand, domain: str = "", **attributes: Any) -> str:
        """Emit a node with one output and return the output's name."""
        return self.ops(op_type, *inputs, outputs=1, domain=domain, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: Operand, outputs: int | Sequence[bool], domain: str = "", **attributes: Any
    ) -> tuple[str, ...]:
        """Emit a node and return the names of its outputs. `outputs`: their number, or which of them are used."""
        present = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.name_of(operand) for operand in inputs]
        while names and not names[-1]:
            names.pop()
        attributes = {name: value for name, value in attributes.items() if value is not None}
        hashable = tuple(map(_hashable, attributes.items()))
        key = (op_type, domain, tuple(names), tuple(present), hashable, type_key(hashable))
        for memo in self._memo:
            if key in memo:
                return memo[key]
        name = self.unused(self._node_name(op_type))
        results = tuple(
            (name if index == 0 else self.unused(f"{name}:{index}")) if want else ""
            for index, want in enumerate(present)
        )
        self.emitted += 1
        types = (self.types.get(name) for name in names)
        self.operands.update((op_type, kind.dtype.name) for kind in types if isinstance(kind, TensorType))
        self._blocks[-1].append(Emitted(op_type, domain, tuple(names), results, attributes, name, self.module or ""))
        self._memo[-1][key] = results
        return results

    def _node_name(self, op_type: str) -> str:
        return f"{self.path}/{op_type}" if self.path else op_type

    @contextmanager
    def inside(self, path: str, module: str | None = None) -> Iterator[None]:
        """Inside, nodes are named after a place in the model and record their module, of nested calls the outermost."""
        before = self.path, self.module
        self.path, self.module = path, module if self.module is None else self.module
        try:
            yield
        finally:
            self.path, self.module = before

    @contextmanager
    def of_modules_within(self) -> Iterator[None]:
        """Inside, nodes record their own modules, not the one that is being written."""
        before, self.module = self.module, None
        try:
            yield
        finally:
            self.module = before

    def block(
        self,
        emit: Callable[[], Sequence[tuple[str, TensorType]]],
        inputs: Sequence[Input] = (),
        sizes: Mapping[str, str] | None = None,
    ) -> Block:
        """A nested graph of the nodes that `emit` emits; `emit` returns its outputs. It sees all outer names.

        Args:
            emit: emits the nodes.
            inputs: those of the body of a loop.
            sizes: the vectors of symbolic sizes that have other names inside.
        """
        outer_sizes = self.sizes
        if sizes is not None:
            self.sizes = {**outer_sizes, **sizes}
        self._blocks.append([])
        self._memo.append({})
        outer = set(self._names)
        for value in inputs:
            self.bind(value, self.unused(f"{self.path}/{value.name}" if self.path else value.name))
        typed_inputs = tuple((self.name_of(value), value.type) for value in inputs)
        try:
            outputs = emit()
        finally:
            self.sizes = outer_sizes
            nodes = self._blocks.pop()
            self._memo.pop()
            for identity in self._names.keys() - outer:
                del self._names[identity]
        return Block(tuple(nodes), tuple(outputs), typed_inputs)

    def either(
        self,
        condition: Operand,
        then: Callable[[], Sequence[tuple[str, TensorType]]],
        otherwise: Callable[[], Sequence[tuple[str, TensorType]]],
    ) -> tuple[str, ...]:
        """The results of an If node; each branch is what a function emits, as for `block`.

        A value that only one branch needs is computed in that branch. Weights are stored outside, once for both.
        """
        first, second = self.block(then), self.block(otherwise)
        return self.ops("If", condition, outputs=len(first.outputs), then_branch=first, else_branch=second)

    def block_outputs(self, values: Sequence[Value]) -> list[tuple[str, TensorType]]:
        """The values as outputs of the nested graph that is being collected. ONNX wants each computed in that graph
        and named once: other values are copied.
        """
        names = list(map(self.name_of, values))
        own = {name for emitted in self._blocks[-1] for name in emitted.outputs}
        outputs: list[tuple[str, TensorType]] = []
        for name, value in zip(names, values, strict=True):
            outputs.append((name if name in own else self._copied(name), value.type))
            own.discard(name)
        return outputs

    def _copied(self, name: str) -> str:
        copy = self.unused(self._node_name("Identity"))
        self.emitted += 1
        self._blocks[-1].append(Emitted("Identity", "", (name,), (copy,), {}, copy, self.module or ""))
        return copy

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Inside, nodes are emitted into the main graph, whose values every nested graph sees."""
        inner = self._blocks, self._memo
        self._blocks, self._memo = self._blocks[:1], self._memo[:1]
        try:
            yield
        finally:
            self._blocks, self._memo = inner

    def final_name(self, value: Value) -> str:
        """The name of a value in the finished model."""
        return self._renamed.get(self.name_of(value), self.name_of(value))

    def name_outputs(self, values: Sequence[Value], names: Sequence[str]) -> list[tuple[str, TensorType]]:
        """Give the outputs of the model their names; returns names and types.

        A node's result is renamed. A value that is not a node's result, or already is an output, is copied.
        """
        produced = {name for emitted in self.nodes for name in emitted.outputs}
        renamed: dict[str, str] = {}
        copies: list[tuple[str, str]] = []
        for value, name in zip(values, names, strict=True):
            source = self.name_of(value)
            if source in produced and source not in renamed:
                renamed[source] = name
            else:
                copies.append((source, name))
        self._blocks[0] = [_renamed(emitted, renamed) for emitted in self.nodes]
        self._renamed = renamed
        for source, name in copies:
            node_name = self.unused("Identity")
            inputs = (renamed.get(source, source),)
            self.nodes.append(Emitted("Identity", "", inputs, (name,), {}, node_name, ""))
        return [(name, value.type) for value, name in zip(values, names, strict=True)]


def computed(build: Builder, name: str, kind: TensorType) -> Tensor:
    """The output of an emitted node as a tensor, for use in ops."""
    value = Input(name, kind)
    build.bind(value, name)
    return Tensor.from_value(value)


def _no_engine(values: Sequence[Value]) -> None:
    raise ExportError(f"{len(values)} values are not computed and this builder has no engine: call Lowering(builder)")


def _is_one_number(array: Array) -> bool:
    bits = array.view(f"u{array.itemsize}")
    return array.dtype.kind in "fiub" and bits.flat[0] == bits.flat[-1] and bool((bits == bits.flat[0]).all())


def _key(array: Array, label: str | None) -> Any:
    """The key by which two constants are one initializer."""
    if label is not None:
        # Two views of one weight may share a label (.T and .mT of three axes), so the label alone does not suffice.
        if array.nbytes <= SMALL:
            return (label, array.dtype, array.shape, array.tobytes())
        address = array.__array_interface__["data"][0]
        return (label, array.dtype, array.shape, array.strides, address)
    return (array.dtype, array.shape, array.tobytes()) if array.nbytes <= SMALL else id(array)


def _renamed(emitted: Emitted, names: Mapping[str, str]) -> Emitted:
    attributes = {
        key: replace(value, nodes=tuple(_renamed(node, names) for node in value.nodes))
        if isinstance(value, Block)
        else value
        for key, value in emitted.attributes.items()
    }
    inputs, outputs = (tuple(names.get(name, name) for name in group) for group in (emitted.inputs, emitted.outputs))
    return replace(emitted, inputs=inputs, outputs=outputs, attributes=attributes)


def _hashable(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_hashable, value))
    if isinstance(value, np.ndarray):
        return (value.dtype, value.shape, value.tobytes())
    return id(value) if isinstance(value, Block) else value
