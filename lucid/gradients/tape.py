"""The reverse of a traced computation: its nodes applied once more and recorded, then walked back with a rule each.

A composite without a rule is recorded as the ops of its body. The result consists of ordinary nodes, written with
Lucid's ops in the module of the node whose gradient they compute.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal, NamedTuple, TypeAlias

from lucid.core.graph.scope import Scope, entered, scope
from lucid.core.graph.types import TensorType, same_shape
from lucid.core.graph.values import Attributes, Node, Value, in_order
from lucid.core.sizes.dims import same
from lucid.core.words.user_code import Place
from lucid.ops.creation import zeros
from lucid.ops.elementwise import logical_and, logical_or, stop_gradient, where
from lucid.ops.op import Op
from lucid.ops.reduction import sum_
from lucid.ops.shaping import reshape
from lucid.ops.tensor.tensor import Tensor

Operands: TypeAlias = Sequence[Tensor | None]
Gradients: TypeAlias = Tensor | Sequence[Tensor | None] | None


class Rule(NamedTuple):
    """How gradients go back through an op.

    Attributes:
        gradients: called with the gradient of the output (of several outputs a sequence, with None where no gradient
            arrives), the output (or a sequence), the inputs, and the attributes by name; returns the gradient of each
            input, or None for an input without one. A gradient may have the shape to which its input was broadcast.
        elementwise: "chosen" if some elements' gradients become 0, as in `where`; "scaled" if each is multiplied with a
            number, which may be infinite or NaN where an element has not been chosen; "linear" if it stays finite;
            else "".
        selective: whether it takes `needs_grad=`, which says which inputs need gradients.
    """

    gradients: Callable[..., Gradients]
    elementwise: Literal["chosen", "scaled", "linear", ""] = ""
    selective: bool = False


RULES: dict[str, Rule] = {}
"""The rules, by the names of the ops."""

BODIES: dict[str, Callable[..., Any]] = {}
"""What is recorded in the place of an op: called with of which inputs gradients are wanted, the inputs, and the
attributes by name; None for the op itself."""

AGAIN: dict[str, Callable[[Operands, Attributes], Sequence[Tensor]]] = {}
"""What rules read in the place of an op's outputs: the same from its inputs and attributes, mostly of nodes that its
own rule needs, so that the outputs are not kept until then. Their rounding may differ."""

CONSTANT: set[str] = {stop_gradient.name}
"""Ops through which no gradients flow: of functions made of steps they are 0 wherever they exist."""


class GradientError(ValueError):
    """A function has no gradient; the message names the op and says what to do."""


class _Step(NamedTuple):
    op: Op[..., Any]
    inputs: Operands
    outputs: Sequence[Tensor]
    attributes: Attributes
    path: str


class Tape:
    """The part of a computation that depends on some tensors.

    Args:
        sources: the traced floating-point tensors with respect to which gradients are wanted.
    """

    def __init__(self, sources: Iterable[Tensor]) -> None:
        self._steps: list[_Step] = []
        self._again: dict[int, Sequence[Tensor]] = {}
        self._active = {id(tensor.to_value()): tensor.to_value() for tensor in sources}

    def depends(self, tensor: Tensor | None) -> bool:
        """Whether a gradient flows through a tensor to the wanted ones."""
        return tensor is not None and tensor.is_traced and id(tensor.to_value()) in self._active

    def replay(
        self, outputs: Sequence[Value], replaced: Mapping[int, Tensor], place: Place | None = None
    ) -> list[Tensor]:
        """The outputs of a graph with tensors in the place of some of its values, given by the identity of these; of a
        body, `place` is where it is called."""
        known = dict(replaced)

        def now(value: Value) -> Tensor:
            return known[id(value)] if id(value) in known else Tensor.from_value(value)

        for node in in_order(outputs, lambda value: id(value) in known):
            if not any(value is not None and id(value) in known for value in node.inputs):
                continue  # computed outside
            inputs = [None if value is None else now(value) for value in node.inputs]
            same_inputs = all(
                tensor is None or (tensor.is_traced and tensor.to_value() is value)
                for tensor, value in zip(inputs, node.inputs, strict=True)
            )
            results = tuple(map(Tensor.from_value, node.results)) if same_inputs else None
            after_op = self._applied(node, inputs, results, node.place or place)
            known.update((id(before), after) for before, after in zip(node.results, after_op, strict=True))
        return list(map(now, outputs))

    def _applied(
        self, node: Node, inputs: Operands, results: Sequence[Tensor] | None, place: Place | None
    ) -> Sequence[Tensor]:
        """The results of an op, recorded if gradients flow through it; `results` if it has been applied already."""
        op, attributes, path = node.op, node.attributes, node.scope
        assert isinstance(op, Op)
        depending = [self.depends(tensor) for tensor in inputs]
        flows = any(depending) and op.name not in CONSTANT
        with _inside(path):
            if flows:
                body = BODIES[op.name](depending, *inputs, **attributes) if op.name in BODIES else None
                if body is None and op.name not in RULES and op.body is not None:
                    body = op.expand(inputs, attributes)
                if body is not None:
                    traced = {id(x.to_value()): x for x in inputs if x is not None and x.is_traced}
                    values = [x.to_value() for x in (body if isinstance(body, tuple) else (body,))]
                    return self.replay(values, traced, place)
            outputs = _tuple(op.apply(inputs, attributes)) if results is None else results
        real = [x for x in outputs if x.is_traced and x.dtype.kind == "float"] if flows else []
        if real and op.name not in RULES:
            error = GradientError(
                f"{path + ': ' if path else ''}{op.name} has no derivative: give it a body of other ops, or a rule: "
                f"lucid.gradients.RULES[{op.name!r}] = lucid.gradients.Rule(...); or make a constant of what it is "
                "given with lucid.stop_gradient(x)"
            )
            if place is not None:
                error.add_note(str(place))
            raise error
        if real:
            self._steps.append(_Step(op, inputs, outputs, attributes, path))
            if op.name in AGAIN:
                with _inside(path):
                    self._again[id(outputs[0].to_value())] = AGAIN[op.name](self._read(inputs), attributes)
            self._active.update((id(x.to_value()), x.to_value()) for x in real)
        return outputs

    def gradients(self, outputs: Operands, seeds: Operands, sources: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the sum of outputs * seeds with respect to tensors; None where nothing flows."""
        flow = _Flow()
        for output, seed in zip(outputs, seeds, strict=True):
            if seed is not None and self.depends(output):
                assert output is not None
                flow.add(output, seed, None)
        for step in reversed(self._steps):
            arrived = [flow.at(x)[0] for x in step.outputs]
            if any(gradient is not None for gradient in arrived):
                with _inside(step.path):
                    self._step_back(step, arrived, flow)
        return [flow.at(tensor)[0] for tensor in sources]

    def _step_back(self, step: _Step, arrived: Sequence[Tensor | None], flow: _Flow) -> None:
        rule, name = RULES[step.op.name], step.op.name
        if not isinstance(rule, Rule):
            raise GradientError(f"{name}: its rule is a {type(rule).__name__}; write RULES[{name!r}] = Rule(...)")
        more = {"needs_grad": [self.depends(x) for x in step.inputs]} if rule.selective else {}
        outputs = self._again.get(id(step.outputs[0].to_value()), step.outputs)
        gradient_of_output: Any = arrived if len(arrived) > 1 else arrived[0]
        results: Any = outputs if len(outputs) > 1 else outputs[0]
        back, inputs = functools.partial(rule.gradients, **step.attributes, **more), self._read(step.inputs)
        by_input = parts = _tuple(back(gradient_of_output, results, *inputs))
        known = all(x is None or isinstance(x, Tensor) for x in by_input) and len(by_input) <= len(inputs)
        if not known or any(map(self.depends, step.inputs[len(by_input) :])):
            gives = f"{name}: its rule gives {', '.join(type(x).__name__ for x in by_input)}"
            raise GradientError(f"{gives}, expected a tensor or None for each of {len(inputs)} inputs")
        counts = flow.at(step.outputs[0])[1]
        if rule.elementwise == "chosen":  # not by whether a gradient is 0, which it may be by chance
            parts = _tuple(back(Tensor(1, step.outputs[0].dtype), results, *inputs))
        for x, gradient, part in zip(step.inputs, by_input, parts, strict=False):
            if gradient is None or not self.depends(x):
                continue
            assert x is not None
            kept = counts
            if counts is not None and rule.elementwise == "scaled":
                gradient = where(counts, gradient, 0.0)
            if rule.elementwise == "chosen":
                kept = part != 0 if counts is None else logical_and(counts, part != 0)
            carried = rule.elementwise and same_shape(x.shape, step.outputs[0].shape)
            flow.add(x, fitted(gradient, x.spec), kept if carried else None)

    def _read(self, inputs: Operands) -> Operands:
        """The inputs of an op as its rule gets them."""
        traced = [None if x is None or not x.is_traced else id(x.to_value()) for x in inputs]
        return [x if i is None else self._again.get(i, [x])[0] for x, i in zip(inputs, traced, strict=True)]


class _Flow:
    """The gradients that have arrived at values so far, and where they count, if only some of their elements do."""

    def __init__(self) -> None:
        self._gradients: dict[int, tuple[Value, Tensor, Tensor | None]] = {}

    def at(self, x: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """The sum of what has arrived, and where it counts, or None for everywhere: elsewhere its products are 0."""
        known = self._gradients.get(id(x.to_value())) if x.is_traced else None
        return (None, None) if known is None else known[1:]

    def add(self, x: Tensor, gradient: Tensor, counts: Tensor | None) -> None:
        """Add what arrives at a tensor."""
        value = x.to_value()
        if id(value) in self._gradients:
            _, before, also = self._gradients[id(value)]
            gradient = before + gradient
            counts = None if counts is None or also is None else logical_or(counts, also)
        self._gradients[id(value)] = value, gradient, counts


def fitted(gradient: Tensor, type_: TensorType) -> Tensor:
    """A gradient summed over the axes along which its tensor was broadcast, in the tensor's element type."""
    if not same_shape(gradient.shape, type_.shape):
        new = gradient.ndim - type_.rank
        spread = [
            new + axis
            for axis, size in enumerate(type_.shape)
            if same(size, 1) and not same(gradient.shape[new + axis], 1)
        ]
        if new or spread:
            gradient = sum_(gradient, axis=(*range(new), *spread), keepdims=False)
        gradient = reshape(gradient, type_.shape)
    return gradient.astype(type_.dtype)


def filled(gradients: Operands, outputs: Sequence[Tensor]) -> list[Tensor]:
    """The gradients of outputs, zeros where none arrives."""
    return [zeros(x.shape, dtype=x.dtype) if g is None else g for g, x in zip(gradients, outputs, strict=True)]


def _tuple(gradients: Gradients) -> Sequence[Any]:
    return gradients if isinstance(gradients, (tuple, list)) else (gradients,)


def _inside(path: str) -> AbstractContextManager[None]:
    """Inside, nodes belong to the module at a path."""
    here = scope.get()
    return entered(Scope(path, {}) if here is None else here._replace(path=path))
