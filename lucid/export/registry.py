"""The forms of every op: Lucid's own, as listed in `lucid.export.forms`, and those that users add to their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.core.targets.record import Strategy
from lucid.core.words.other_libraries import type_name
from lucid.export.form import Emit, Form, named
from lucid.export.form import form as form_of
from lucid.export.forms import FORMS
from lucid.export.target import Target
from lucid.ops.op import REGISTERED, Op

EXPANDED = "expanded"
"""The name of the body among the forms of an op."""


def lowers(
    op: Op[..., Any],
    *,
    takes: str = "*",
    name: str = "",
    opset: int = 17,
    form: str = "standard",
    domain: str = "",
    strategy: Strategy | None = None,
) -> Callable[[Emit], Emit]:
    """Add a form to an op of your own, from an opset on. Forms added first are tried first.

    `takes` names the attributes and optional inputs that the form writes, separated by spaces: if a node has another
    one, the next form is tried. By default the form takes all. `domain` is the domain of the operator that it writes:
    targets that take only standard ops leave it out. With a `strategy` it is tried where the target's runtime gains
    from that.

    Raises:
        TypeError: for anything but an op.
    """
    if not isinstance(op, Op):
        raise TypeError(
            f"lowers: expected an op, got {type_name(op)}; make an op of a function with @lucid.ops.composite"
        )

    def register(emit: Emit) -> Emit:
        added = form_of(op, takes=takes, name=name, opset=opset, kind=form, domain=domain, strategy=strategy)(emit)
        FORMS[op.name] = (*FORMS.get(op.name, ()), added)
        return emit

    return register


def forms_of(op: Op[..., Any], target: Target) -> tuple[Form, ...]:
    """The forms of an op on a target, in the order in which they are tried."""
    listed = [form for form in FORMS.get(op.name, ()) if form.serves(target)]
    tuned = {form.name for form in listed if form.strategy}
    general = tuple(form for form in listed if form.strategy or form.name not in tuned)
    return general if op.onnx is None else (*general, named(op, op.onnx, target.opset))


def kinds_of(op: str) -> tuple[str, ...]:
    """The kinds of form that an op has, on any target; empty if there is no op of that name."""
    registered = REGISTERED.get(op)
    kinds = [form.kind for form in FORMS.get(op, ())]
    kinds += ["standard"] * (registered is not None and registered.onnx is not None)
    kinds += ["expanded"] * (registered is None or registered.body is not None) * bool(registered or kinds)
    return tuple(dict.fromkeys(kinds))
