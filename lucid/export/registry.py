"""The forms of every op: Lucid's own, as `lucid.export.forms` lists them, and those that people add to their ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lucid.export.form import Emit, Form
from lucid.export.form import form as form_of
from lucid.export.forms import FORMS
from lucid.export.target import PROVIDERS, Target
from lucid.ops.op import Op


def lowers(
    op: Op[..., Any],
    *,
    name: str = "",
    opset: int = 17,
    form: str = "standard",
    targets: tuple[str, ...] = PROVIDERS,
) -> Callable[[Emit], Emit]:
    """Add a form to an op of your own: from which opset on, for which targets. Those added first are tried first."""

    def register(emit: Emit) -> Emit:
        added = form_of(op, name=name, opset=opset, kind=form, targets=targets)(emit)
        FORMS[op.name] = (*FORMS.get(op.name, ()), added)
        return emit

    return register


def forms_of(op_name: str, target: Target) -> tuple[Form, ...]:
    """The forms of an op on a target, in the order in which they are tried."""
    return tuple(form for form in FORMS.get(op_name, ()) if target.provider in form.targets)
