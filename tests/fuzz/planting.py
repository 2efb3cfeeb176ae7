"""How faults are planted into Lucid, one at a time, and found by the suite's random models."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from lucid import Tensor
from lucid.core.graph.values import Node, Value
from lucid.export.builder import Builder
from lucid.export.lowering import Lowering
from lucid.ops.op import Op
from tests.fuzz.checks import Coverage
from tests.fuzz.choices import Choices
from tests.fuzz.suite import model

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


@dataclass(frozen=True)
class Fault:
    """A fault: what is wrong, and how it is planted."""

    name: str
    plant: Plant


class Faults(list[Fault]):
    """Faults of one part of Lucid; each method adds one."""

    def fault(self, name: str) -> Callable[[Plant], Plant]:
        """One that a function plants."""

        def register(plant: Plant) -> Plant:
            self.append(Fault(name, plant))
            return plant

        return register

    def kernel(self, name: str, op: Op[..., Any], wrong: Callable[..., Any]) -> None:
        """One of an op's NumPy kernel; the first argument of `wrong` is the right kernel."""

        def plant(patch: Patch) -> None:
            patch.setattr(op, "_kernel", before(op._kernel, wrong))
            patch.setattr(op, "_known", {})  # calls that it has seen remember the right kernel

        self.append(Fault(name, plant))

    def body(self, name: str, op: Op[..., Any], wrong: Callable[..., Any]) -> None:
        """One of a composite's body."""
        self.append(Fault(name, lambda patch: patch.setattr(op, "body", wrong)))

    def exported(
        self,
        name: str,
        op: Op[..., Any],
        inputs: Callable[[list[Tensor | None], dict[str, Any]], list[Tensor | None]] = lambda tensors, _: tensors,
        **changed: Any,
    ) -> None:
        """One of the exporter: it gets other attributes or inputs of a node than the node has."""
        self.append(Fault(name, lambda patch: _seen_otherwise(patch, op, inputs, changed)))

    def written(self, name: str, op_type: str, wrong: Callable[[Builder, list[Any], dict[str, Any]], None]) -> None:
        """One of an ONNX node: `wrong` changes its inputs and attributes."""
        self.append(Fault(name, lambda patch: _written_otherwise(patch, op_type, wrong)))


def before(right: Any, wrong: Callable[..., Any]) -> Callable[..., Any]:
    """`wrong` with what is right as its first argument."""
    return lambda *arrays, **attributes: wrong(right, *arrays, **attributes)


def _seen_otherwise(patch: Patch, op: Op[..., Any], inputs: Any, changed: dict[str, Any]) -> None:
    right = Lowering._lower_node

    def lower(self: Lowering, node: Node) -> None:
        if node.op is not op:
            right(self, node)
            return
        attributes = dict(node.attributes)
        tensors = inputs([None if v is None else Tensor.from_value(v) for v in node.inputs], attributes)
        attributes |= {key: value(node) if callable(value) else value for key, value in changed.items()}
        values: list[Value | None] = [None if t is None else t.to_value() for t in tensors]
        self.lower([v for v in values if v is not None])
        other = Node(op, tuple(values), attributes, node.types, node.scope)
        right(self, other)
        for result, replacement in zip(node.results, other.results, strict=True):
            self.build.bind(result, self.build.name_of(replacement))

    patch.setattr(Lowering, "_lower_node", lower)


def _written_otherwise(patch: Patch, op_type: str, wrong: Callable[..., None]) -> None:
    right = Builder.ops

    def ops(self: Builder, kind: str, *inputs: Any, **attributes: Any) -> tuple[str, ...]:
        operands = list(inputs)
        if kind == op_type:
            wrong(self, operands, attributes)
        return right(self, kind, *operands, **attributes)

    patch.setattr(Builder, "ops", ops)


def changed(index: int, change: Any) -> Any:
    """A change of one operand, if it is there."""

    def apply(tensors: list[Tensor | None], _: dict[str, Any]) -> list[Tensor | None]:
        tensor = tensors[index]
        return [*tensors[:index], None if tensor is None else Tensor(change(tensor.numpy())), *tensors[index + 1 :]]

    return apply


# The search --------------------------------------------------------------------------------------------------------


def found_by(planted: Fault, number: int, right: str | None = None) -> bool:
    """Whether a model of the suite shows a fault: it fails with it, and passes without.

    `right` is the model's fingerprint, if it is already known.
    """
    right = _right_fingerprint(number) if right is None else right
    with pytest.MonkeyPatch.context() as patch:
        planted.plant(patch)
        # A fault does not affect most models: their results and their exports are the same with it.
        shown = fingerprint(number) != right and failure(number) is not None
    return shown and not _fails_without(number)


@cache
def _right_fingerprint(number: int) -> str:
    """That of a model without a fault: one model shows several."""
    return fingerprint(number)


@cache
def _fails_without(number: int) -> bool:
    """Whether a model fails without a fault."""
    return failure(number) is not None


def fingerprint(number: int) -> str:
    """The fingerprint of a model of the suite: its eager result and its export, or the error."""
    try:
        parts = model(Choices(number), number).fingerprint()
    except Exception as error:  # noqa: BLE001 - a planted fault may show as any
        return f"{type(error).__name__}: {error}"
    return hashlib.sha1(b"".join(parts), usedforsecurity=False).hexdigest()


def failure(number: int) -> str | None:
    """The failure of a model of the suite, if there is one."""
    try:
        model(Choices(number), number).verify(Coverage())
    except Exception as error:  # noqa: BLE001 - a planted fault may show as any
        return f"{type(error).__name__}: {error}"
    return None
