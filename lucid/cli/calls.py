"""The inputs of a model, from the command line."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

from lucid.cli.errors import usage
from lucid.cli.values import inputs, settings
from lucid.nn.module import Module
from lucid.tracing.parts import CacheKind, ModelPart, PartName, part_of
from lucid.tracing.trace import Model


def part(
    model: Model,
    given: Sequence[str],
    call: Sequence[str],
    part_name: PartName | None,
    cache: CacheKind | None,
    capacity: int | None,
) -> ModelPart:
    """The model, or what `--part` and `--cache` ask for, with the inputs of `--input` and `--call`.

    Raises:
        CommandError: as `arguments`, and for a part or a cache that the model does not have.
    """
    named = arguments(model, given, call)
    if part_name is None and cache is None and capacity is None:
        return ModelPart(model, named)
    try:
        return part_of(model, part_name, cache, capacity, named)
    except ValueError as error:
        raise usage(str(error)) from None


def arguments(model: Model, given: Sequence[str], call: Sequence[str]) -> dict[str, Any]:
    """The `kwargs` of `lucid.trace` from `--input` and `--call`, checked against the model's arguments.

    Raises:
        CommandError: for a name that the model does not have, and for an input without a description.
    """
    specs, plain = inputs(given), settings("--call", call)
    signature = inspect.signature(model.forward if isinstance(model, Module) else model)
    parameters = signature.parameters
    kinds = {parameter.kind for parameter in parameters.values()}
    for option, names in (("--input", specs), ("--call", plain)):
        unknown = [name for name in names if name not in parameters]
        if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
            raise usage(f"{option} {', '.join(unknown)}: the model takes {', '.join(parameters) or 'no arguments'}")
    both = sorted(specs.keys() & plain.keys())
    if both:
        raise usage(f"{', '.join(both)} is given both by --input and by --call; use one of them")
    known = model.input_specs() if isinstance(model, Module) else {}
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in variadic
        and name not in {*known, *specs, *plain}
    ]
    if missing:
        shown = " ".join(f"--input {name}:float32:N,..." for name in missing)
        raise usage(f"the model does not know its inputs: describe them, as in {shown}")
    return {**specs, **plain}
