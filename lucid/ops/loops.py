"""`scan`: loops whose steps are made of ops."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.loop_bodies import closed
from lucid.core.graph.names import unused_name
from lucid.core.graph.pytree import fill, flatten_tree
from lucid.core.graph.running import run
from lucid.core.graph.scope import is_tracing, scope
from lucid.core.graph.types import Array, TensorType
from lucid.core.graph.values import Body, Constant, Input, Origin, Value
from lucid.core.sizes.dims import Size, as_size, same
from lucid.ops.creation import arange
from lucid.ops.op import Op, only_types, primitive
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.tensor.tensor import Tensor

Step = Callable[[Any, Any], tuple[Any, Any]]


def _scan_rule(*operands: TensorType, body: Body, carries: int, slices: int, reverse: bool) -> tuple[TensorType, ...]:
    (length, *_), *others = (type_.shape for type_ in operands[carries : carries + slices])
    for index, (type_, operand) in enumerate(zip(operands, body.inputs, strict=True)):
        inside = type_.with_shape(type_.shape[1:]) if carries <= index < carries + slices else type_
        if inside != operand.type:
            raise TypeError(f"scan: {operand.name} is {inside}, but the body was made for {operand.type}")
    for operand, result in zip(body.inputs[:carries], body.outputs, strict=False):
        _check_carry(operand.name, operand.type, result.type)
    for shape in others:
        _check_length("its sequences", shape[0], length)
    results = [declared.type for declared in body.outputs]
    return (*results[:carries], *(type_.with_shape((length, *type_.shape)) for type_ in results[carries:]))


def _scan_kernel(*operands: Array, body: Body, carries: int, slices: int, reverse: bool) -> tuple[Array, ...]:
    state, outer = list(operands[:carries]), operands[carries + slices :]
    sequences = operands[carries : carries + slices]
    length = len(sequences[0])
    rows = [value.type for value in body.outputs[carries:]]
    stacked = [np.empty((length, *map(int, type_.shape)), type_.dtype.numpy) for type_ in rows]
    for index in _order(length, reverse):
        step = [np.asarray(sequence[index]) for sequence in sequences]
        results = run(body.inputs, body.outputs, [*state, *step, *outer])
        state = results[:carries]
        for whole, row in zip(stacked, results[carries:], strict=True):
            whole[index] = row
    return (*state, *stacked)


@primitive(kernel=_scan_kernel, rule=_scan_rule)
def scan_op(  # type: ignore[empty-body]
    *operands: Tensor, body: Body, carries: int, slices: int, reverse: bool
) -> tuple[Tensor, ...]:
    """Apply a body to the elements of sequences in turn, carrying values from step to step.

    The first `carries` operands are the carried values, the next `slices` the sequences; the others are the same in
    each step. The results are the carried values at the end, and the body's other outputs of all steps, stacked.
    """


def scan(
    body: Step, carry: Any, xs: Any = None, *, length: Size | None = None, reverse: bool = False
) -> tuple[Any, Any]:
    """Loop over the first axis of tensors, carrying tensors from step to step, as `jax.lax.scan` does.

    ::

        def step(total, x):             # the carry, and one element
            total = total + x
            return total, total         # the new carry, and this step's result

        total, sums = ops.scan(step, lucid.zeros(3), x)     # x: (L, 3), sums: (L, 3)

    Eagerly the body is called once for each step. While tracing it is called once, and the loop is one node of the
    graph (ONNX Scan) for any length; values that do not depend on the carry or on `xs` are computed before the loop.
    The body may use parameters and other tensors from outside.

    Args:
        body: from (carry, x) to (carry, y). x has the structure of `xs`, without the first axis of each tensor. The
            returned carry must have the structure, shapes and element types of the given one.
        carry: the carry of the first step: a tensor, or nested lists, tuples and dicts of tensors.
        xs: tensors in the same kinds of structure, whose first axes have one length; None: `length` gives the steps.
        length: the number of steps, symbolic or not; optional with `xs`.
        reverse: go from the last element to the first. Results stay at the positions of their elements.

    Returns:
        The carry after the last step, and y of all steps in its structure, stacked along a new first axis. Without
        steps the carry is the given one, and each y has length 0.

    Raises:
        TypeError: for a body that does not return (carry, y), and for anything but tensors in them.
        ValueError: if the body changes the structure, shape or element type of the carry; for `xs` of several lengths.
    """
    loop = _Loop.of(body, carry, xs, length)
    known = isinstance(loop.length, int) and loop.length and not is_tracing() and not only_types()
    if not known or any(tensor.is_traced for tensor in (*loop.carry.values(), *loop.xs.values())):
        return loop.traced(reverse)
    return loop.run(reverse)


class _Loop(NamedTuple):
    """A loop to be run or traced: tensors by their paths, and the structures of the carry and of an element."""

    body: Step
    carry: Mapping[str, Tensor]
    xs: Mapping[str, Tensor]
    structures: tuple[Any, Any]
    length: Size

    @classmethod
    def of(cls, body: Step, carry: Any, xs: Any, length: Size | None) -> _Loop:
        if length is not None and isinstance(length := as_size("scan: length", length), int) and length < 0:
            raise ValueError(f"scan: length is {length}, expected 0 or more")
        before, state = _tensors("carry", carry)
        element, sequences = _tensors("xs", xs)
        for path, x in sequences.items():
            if not x.ndim:
                raise ValueError(f"scan: {path} is {x.spec}, expected a first axis to loop over")
            length = x.shape[0] if length is None else length
            _check_length(path, x.shape[0], length)
        if length is None:
            raise ValueError("scan: xs holds no tensor to loop over: give length=, the number of steps")
        return cls(body, state, sequences, (before, element), length)

    def run(self, reverse: bool) -> tuple[Any, Any]:
        """Call the body for each step."""
        state = list(self.carry.values())
        sequences = [x.numpy() for x in self.xs.values()]
        rows: list[list[Array]] = []
        structure: Any = None
        assert isinstance(self.length, int)
        for index in _order(self.length, reverse):
            step = [Tensor.from_array(np.asarray(sequence[index])) for sequence in sequences]
            state, structure, results = self._called(state, step)
            rows.append([tensor.numpy() for tensor in results])
        stacked = [Tensor.from_array(np.stack(row[::-1] if reverse else row)) for row in zip(*rows, strict=True)]
        return fill(self.structures[0], state), fill(structure, stacked)

    def traced(self, reverse: bool) -> tuple[Any, Any]:
        """Call the body once, on placeholders, and apply the loop as an op."""
        sequences = dict(self.xs) or {"index": arange(self.length)}
        taken: dict[str, int] = {}
        before = [Input(unused_name(path, taken), tensor.spec) for path, tensor in self.carry.items()]
        element = [
            Input(unused_name(path.replace("xs", "x", 1), taken), tensor.spec.with_shape(tensor.shape[1:]))
            for path, tensor in sequences.items()
        ]
        state, structure, results = self._called(
            list(map(Tensor.from_value, before)), list(map(Tensor.from_value, element))[: len(self.xs)]
        )
        body, outer = closed(
            [*before, *element], [tensor.to_value() for tensor in (*state, *results)], _is_number, _named(taken)
        )
        operands = (*self.carry.values(), *sequences.values(), *map(Tensor.from_value, outer))
        sizes = {"carries": len(before), "slices": len(element)}
        outputs: Any = Op.apply(scan_op, operands, {"body": body, **sizes, "reverse": reverse})
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        return fill(self.structures[0], outputs), fill(structure, outputs[len(before) :])

    def _called(self, state: Sequence[Tensor], step: Sequence[Tensor]) -> tuple[list[Tensor], Any, list[Tensor]]:
        """The carry after a step, the structure of its result, and the tensors in that."""
        returned: Any = self.body(fill(self.structures[0], state), fill(self.structures[1], step))
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise TypeError(
                f"scan: the body returned {_shown(returned)}, expected two things: return carry, y (y may be None)"
            )
        after, carried = _tensors("carry", returned[0])
        if after != self.structures[0]:
            raise ValueError(
                f"scan: the carry is {_shown(fill(self.structures[0], state))} before a step and "
                f"{_shown(returned[0])} after it; it must keep its structure"
            )
        for (path, before), now in zip(self.carry.items(), carried.values(), strict=True):
            _check_carry(path, before.spec, now.spec)
        structure, results = _tensors("y", returned[1])
        return list(carried.values()), structure, list(results.values())


def _tensors(where: str, value: Any) -> tuple[Any, dict[str, Tensor]]:
    """The structure of tensors, and the tensors by their paths. Arrays and numbers become tensors."""
    structure, leaves = flatten_tree(value, path=where)
    return structure, {path: as_tensor(f"scan: {path}", leaf) for path, leaf in leaves.items()}


def _order(length: int, reverse: bool) -> Iterator[int]:
    return reversed(range(length)) if reverse else iter(range(length))


def _check_carry(path: str, before: TensorType, after: TensorType) -> None:
    if before == after:
        return
    if before.dtype != after.dtype:
        how = f"start with another one, or return it with .astype(lucid.{before.dtype})"
    else:
        how = "start with this shape, or return it in the shape that it had"
    raise ValueError(f"scan: {path} is {before} before a step and {after} after it, but all steps are alike: {how}")


def _check_length(path: str, got: Size, expected: Size) -> None:
    if not same(got, expected):
        raise ValueError(
            f"scan: {path} has length {got}, expected {expected}: "
            "all xs have one length, which is also `length` where that is given"
        )


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a dict of {', '.join(map(str, value))}" if isinstance(value, dict) else f"a {type(value).__name__}"


def _is_number(constant: Constant) -> bool:
    """Whether a constant stays in the body: a single number that is not a parameter."""
    return not constant.array.ndim and _label(constant.array, constant.origin) is None


def _label(array: Array, origin: Origin | None) -> str | None:
    here = scope.get()
    names = None if here is None else here.parameters
    name = None if names is None else names.get(array)
    return name if name is not None or origin is None else _label(origin.whole, origin.whole_origin)


def _named(taken: dict[str, int]) -> Callable[[Value], str]:
    """Names for the outer values of a body: that of the parameter, or of the op."""

    def name(value: Value) -> str:
        if isinstance(value, Constant):
            label = _label(value.array, value.origin) or "constant"
        else:
            label = value.name if isinstance(value, Input) else value.node.op.name
        return unused_name(label, taken)

    return name
