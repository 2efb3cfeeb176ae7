"""What a measurement of a node's forms holds for: the node, and what a runtime may fuse with it, as text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lucid.core.graph.printing import set_attributes
from lucid.core.graph.values import Constant, Node, Result, Value
from lucid.export.builder import Builder
from lucid.export.form import Form
from lucid.export.widening import stored_narrow


@dataclass(frozen=True, eq=False)
class Site:
    """A node with the nodes that compute its inputs, if one of its forms looks at them and nothing else reads them."""

    node: Node
    before: tuple[Node, ...]

    @classmethod
    def of(cls, build: Builder, node: Node, forms: Iterable[Form]) -> Site:
        """The site of a node that has these forms."""
        looked_at = {op for form in forms for op in form.looks_at}
        found = {
            id(value.node): value.node
            for value in node.inputs
            if isinstance(value, Result) and value.node.op.name in looked_at and build.uses(value) <= 1
        }
        return cls(node, tuple(found.values()))

    @property
    def key(self) -> str:
        """The op, the types of its operands and its attributes: ``rms_norm(float32[N, L, 64], constant float32[64])``.

        Two nodes with the same key are computed alike by the same form.
        """
        return self._shown(self.node, set(map(id, self.before)))

    def _shown(self, node: Node, before: set[int]) -> str:
        def operand(value: Value | None) -> str:
            if isinstance(value, Result) and id(value.node) in before:
                return self._shown(value.node, set())
            return "None" if value is None else f"{'constant ' * is_constant(value)}{value.type}"

        operands = list(map(operand, node.inputs))
        while operands and operands[-1] == "None":
            operands.pop()
        attributes = ", ".join(set_attributes(node))
        return f"{node.op.name}({', '.join(operands)}{'; ' * bool(attributes)}{attributes})"


def is_constant(value: Value) -> bool:
    """Whether a value is known before the model runs; a weight that is stored in a narrower type is."""
    return isinstance(value, Constant) or (isinstance(value, Result) and stored_narrow(value.node) is not None)
