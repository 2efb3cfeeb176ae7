"""A form: one way to write an op in ONNX. An op's forms are tried best first; its body is the last.

A form may refuse a node, with a reason that `explain` shows. It refuses before it emits anything.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import onnx

from lucid.core.graph.loop_bodies import has_symbolic_size
from lucid.core.graph.printing import show_attribute
from lucid.core.graph.values import Node, Operation
from lucid.core.targets.record import Fault, Strategy
from lucid.core.targets.runtimes import OWN
from lucid.export.builder import Builder, Operands
from lucid.export.target import Target
from lucid.ops.op import Op


@dataclass(frozen=True)
class Taken:
    """The results of a form, and why it is the best here, which `explain` shows."""

    results: Operands
    why: str
    has_body: bool = False  # whether the ops within are the model's own, whose forms are reported too


Emit: TypeAlias = Callable[[Builder, Node], Operands | Taken]


class Refused(Exception):  # noqa: N818  # not an error: the next form is tried
    """A form cannot compute a node exactly on the target."""


def refuse(reason: str) -> NoReturn:
    """Leave a node to the next form."""
    raise Refused(reason)


def refuse_slower(target: Target, op: Operation, reason: str) -> None:
    """Leave a node to the next form because that is faster, unless the user insists on a kind of form for the op."""
    if target.insisted(op.name) == "auto":
        refuse(reason)


def refuse_wrong(target: Target, fault: Fault) -> None:
    """Leave a node to the next form if the target's runtime, in any release allowed, has a fault."""
    how = target.wrong(fault)
    if how:
        refuse(how)


def _always(node: Node) -> bool:
    return True


@dataclass(frozen=True)
class Form:
    """One ONNX form of an op.

    A form declares which attributes and optional inputs it writes. If a node has another one, given or not at its
    default, the engine leaves the node to the next form. So an op that gains an attribute is never exported by a form
    that ignores it.

    Args:
        op: the name of the op.
        name: its name in `explain`.
        takes: the attributes and optional inputs that it writes; None: all of them, as a form made of the body does.
        emit: writes a node in ONNX, or refuses. It may write nodes with `build.op`, ops on tensors, or both.
        opset: the opset from which it exists.
        kind: what an export may insist on; for attention "standard", "contrib", "blocks"; "expanded" is the body.
        domain: the domain of the operator that it writes; empty for ONNX's own.
        kernel: the ONNX op that must have a kernel for the element type of the node's first input, or several,
            separated by spaces; empty: none.
        strategy: a way to compute that the target's runtime must gain from; there it replaces a form of the same name.
            None: it is tried for every runtime.
        mends: a fault that it works around: it is tried only if the target's runtime has this fault.
        dtypes: the element types of the node's first input that it is for; empty: all. With another one it is not
            tried, and no report mentions it.
        applies: whether it is for a node, by other properties, likewise.
    """

    op: str
    name: str
    takes: frozenset[str] | None
    emit: Emit
    opset: int = 17
    kind: str = "standard"
    domain: str = ""
    kernel: str = ""
    strategy: Strategy | None = None
    mends: Fault | None = None
    dtypes: tuple[str, ...] = ()
    applies: Callable[[Node], bool] = _always

    def is_for(self, node: Node) -> bool:
        """Whether it is for a node at all."""
        first = node.inputs[0] if node.inputs else None
        typed = not self.dtypes or (first is not None and str(first.type.dtype) in self.dtypes)
        return typed and self.applies(node)

    def serves(self, target: Target) -> bool:
        """Whether it is tried on a target at all."""
        gains = self.strategy is None or self.strategy in target.runtime.strategies
        return gains and (self.mends is None or bool(target.wrong(self.mends)))

    def check(self, node: Node, target: Target) -> None:
        """Refuse a node with an attribute or input that this form does not write, or that the target rules out."""
        assert isinstance(node.op, Op)
        insisted = target.insisted(self.op)
        if insisted not in ("auto", self.kind):
            refuse(f"this export insists on {insisted_on(self.op, insisted)}")
        if self.opset > target.opset:
            refuse(f"needs opset {self.opset}, this export asks for {target.opset}")
        if self.takes is not None:
            _refuse_others(node, node.op, self.takes)
        if not target.runtime.allows(self.domain, by_name=insisted == self.kind):
            refuse(f'target "{target.name}" takes only standard ops')
        first = node.inputs[0] if node.inputs else None
        if self.kernel and node.op.body is not None and first is not None:  # primitives have been widened already
            for kernel in self.kernel.split():
                missing = target.missing(kernel, first.type.dtype)
                if missing:
                    refuse(missing)


def _refuse_others(node: Node, op: Op[..., Any], takes: frozenset[str]) -> None:
    for name, value in zip(op.arguments, node.inputs, strict=False):
        if value is not None and name in op.optional and name not in takes:
            refuse(f"it does not take {name}")
    for name, attribute in node.attributes.items():
        if name not in takes and not _is_default(attribute, op.defaults.get(name, _NOTHING)):
            refuse(f"it does not take {name} (here {show_attribute(attribute)})")


_NOTHING = object()


def _is_default(attribute: Any, default: Any) -> bool:
    """Whether an attribute has its default value; a symbolic size never has."""
    return attribute is default or (not has_symbolic_size(attribute) and attribute == default)


def insisted_on(op: str, kind: str) -> str:
    """The argument of `to_onnx` that requires a kind of form."""
    if op == "attention" and kind in ("standard", "contrib", "expanded"):
        return f'attention="{kind}"'
    return f'forms={{"{op}": "{kind}"}}'


def form(
    op: Op[..., Any],
    *,
    takes: str = "",
    name: str = "",
    opset: int = 17,
    kind: str = "standard",
    domain: str = "",
    kernel: str = "",
    strategy: Strategy | None = None,
    mends: Fault | None = None,
    dtypes: tuple[str, ...] = (),
    applies: Callable[[Node], bool] = _always,
) -> Callable[[Emit], Form]:
    """Make a function a form of an op. It is tried if it is listed in `lucid.export.forms.FORMS` or added by `lowers`.

    `takes` names the attributes and optional inputs that the function writes, separated by spaces; ``*`` means all. The
    other arguments are as for `Form`.

    Raises:
        ValueError: for a name that the op does not have.
    """
    declared = None if takes == "*" else frozenset(takes.split())
    unknown = (declared or frozenset()) - {*op.arguments, *op.attributes}
    if unknown:
        raise ValueError(f"a form of {op.name} takes {', '.join(sorted(unknown))}, which the op does not have")

    def make(emit: Emit) -> Form:
        its_name = name or emit.__name__
        return Form(op.name, its_name, declared, emit, opset, kind, domain, kernel, strategy, mends, dtypes, applies)

    return make


def contrib_form(
    op: Op[..., Any], onnx_op: str, takes: str, *, opset: int = 17, strategy: Strategy | None = None
) -> Callable[[Emit], Form]:
    """`form` for an operator of onnxruntime's own domain."""
    name = f"{OWN} {onnx_op}"
    return form(op, takes=takes, name=name, opset=opset, kind="contrib", domain=OWN, kernel=onnx_op, strategy=strategy)


def one_node(op: Op[..., Any], onnx_op: str, takes: str = "", *, name: str = "", opset: int = 17, **fixed: Any) -> Form:
    """A form of one ONNX op with the same inputs, the attributes named by `takes`, and fixed ones."""

    @form(op, takes=takes, name=name or op.name, opset=opset, kernel=onnx_op)
    def emit(build: Builder, node: Node) -> str:
        return build.op(onnx_op, *node.inputs, **{name: node.attributes[name] for name in takes.split()}, **fixed)

    return emit


@functools.lru_cache(maxsize=1024)
def named(op: Op[..., Any], op_type: str, opset: int) -> Form:
    """The form of a primitive that is one ONNX op with the same inputs and attributes of the same names."""
    attributes = frozenset(onnx.defs.get_schema(op_type, opset).attributes)

    def emit(build: Builder, node: Node) -> str:
        return build.op(op_type, *node.inputs, **{name: v for name, v in node.attributes.items() if name in attributes})

    return Form(op.name, op_type, attributes.union(op.arguments), emit, opset=0, kernel=op_type)
