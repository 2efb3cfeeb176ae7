"""Tracing: run a model once on placeholders for its inputs, and record the computation as a graph."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from lucid.core.graph.graph import Graph
from lucid.core.graph.names import Names
from lucid.core.graph.pytree import flatten_tree, like
from lucid.core.graph.scope import Scope, entered, keeping_lines, restored_attributes
from lucid.core.graph.types import Array, TensorType, as_dtype, spec
from lucid.core.graph.values import Input, Value
from lucid.core.process.context import evaluating
from lucid.core.process.threads import single_threaded_blas
from lucid.core.sizes.bounds import Bound, bounds_of
from lucid.core.sizes.dims import Dim, names_of
from lucid.core.sizes.limits import Limits, within
from lucid.core.sizes.readings import readings
from lucid.core.words.other_libraries import check_model
from lucid.core.words.progress import phase
from lucid.core.words.user_code import located_errors
from lucid.nn.decoding import CausalDecoder
from lucid.nn.module import Module
from lucid.nn.weights.adapter_inputs import adapter_inputs, given_adapter
from lucid.ops.tensor.tensor import Tensor
from lucid.tracing.written_attention import with_written_attention

Model: TypeAlias = Module | Callable[..., Any]
Make: TypeAlias = Callable[[str, TensorType, Array | None], Tensor]


def trace(model: Model, *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> Graph:
    """The graph of a module or a function.

    Args:
        model: what to trace: a module, a method of one, or a function. A module is traced in evaluation mode, whatever
            its mode; for a method, parameters and paths have the names that they have in its module.
        inputs: for each argument, a `lucid.spec(...)`; a tuple such as ``("N", "L", 512)`` for a float32 one; an
            example tensor or array, whose exact shape is then fixed; or a list, tuple or dict of these. Without any, a
            module's own `input_specs()`.
        kwargs: arguments by name: the same, or plain Python values, which become part of the graph.

    Returns:
        The graph; its inputs are named after the arguments.

    Raises:
        TypeError: if no inputs are known, or the model returns something other than tensors.
        SymbolicSizeError, TracedValueError: if the model needs a number that is known only when it runs.
    """
    return trace_all([model], *inputs, kwargs=kwargs)[0]


@phase("tracing")
def trace_all(models: Sequence[Model], *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> list[Graph]:
    """The graphs of methods of one module, or of functions. They share their inputs and the names of parameters."""
    for model in models:
        check_model("trace", _self(model))
        if not callable(model):
            raise TypeError(f"trace: the model has type {type(model).__name__}, expected a Module or a function")
    graph_inputs: dict[str, Input] = {}

    def placeholder(path: str, kind: TensorType, example: Array | None) -> Tensor:
        return Tensor.from_value(graph_inputs.setdefault(path, Input(path, kind)))

    calls = [arguments_of(model, inputs, kwargs, placeholder) for model in models]
    owner = owner_of(models[0])
    adapted = {name: Input(name, *of_adapter) for name, of_adapter in adapter_inputs(owner).items()}
    _check_sizes([*graph_inputs.values(), *adapted.values()])
    limits = _limits(graph_inputs.values())
    adapter = {name: Tensor.from_value(value) for name, value in adapted.items()}
    names = Names(() if owner is None else ((key, tensor.numpy()) for key, tensor in owner.state_dict().items()))
    paths = {} if owner is None else {id(module): path for path, module in owner.named_modules()}
    traced = list[tuple[dict[str, Value], Any, list[Bound]]]()
    for model, (call, named) in zip(models, calls, strict=True):
        # One BLAS thread: the rounding of a product of constants depends on the number of threads.
        scope = Scope("", paths, names, bounds := bounds_of(limits), placed=keeping_lines.get())
        with (
            within(limits),
            evaluating(),
            entered(scope),
            restored_attributes(),
            single_threaded_blas(),
            located_errors(),
            given_adapter(adapter),
        ):
            result = _called(model, call, named)
        outputs: dict[str, Value] = {name: tensor.to_value() for name, tensor in outputs_of(result, model).items()}
        traced.append((outputs, flatten_tree(result, lambda value: isinstance(value, Tensor))[0], bounds))
    used = _used(adapted, [Graph([], outputs, names) for outputs, *_ in traced]) if adapted else []
    graphs = [
        with_written_attention(Graph([*graph_inputs.values(), *used], outputs, names, *others))
        for outputs, *others in traced
    ]
    for graph in graphs:
        _check_origin(graph)
    return graphs


def _called(model: Model, call: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """The result of a call; its errors say which arguments are lists of inputs, where a tensor may be meant."""
    try:
        return model(*call, **named)
    except (AttributeError, TypeError) as error:
        signature = inspect.signature(model.forward if isinstance(model, Module) else model)
        for name, value in signature.bind(*call, **named).arguments.items():
            one = signature.parameters[name].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
            if one and isinstance(value, (list, tuple)):
                kind = type(value).__name__
                error.add_note(f"argument {name} is a {kind} of inputs here; give a tensor without a {kind} around it")
        raise


def _used(inputs: Mapping[str, Input], graphs: Sequence[Graph]) -> list[Input]:
    """The inputs that some graph reads."""
    read = {id(value) for graph in graphs for node in graph.nodes() for value in node.inputs}
    return [value for value in inputs.values() if id(value) in read]


def owner_of(model: Model) -> Module | None:
    """The module that is traced, itself or by one of its methods."""
    owner = _self(model)
    return owner if isinstance(owner, Module) else None


def _self(model: Model) -> Any:
    return model.__self__ if inspect.ismethod(model) else model


def arguments_of(
    model: Model, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None, make: Make
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of a call, with every spec and every example replaced by the result of `make`.

    `make` gets the name of the argument, its type, and the example's array or None.
    """
    positional, keywords = _arguments(model, inputs, dict(kwargs or {}))
    call = [_replace(name, value, make, top=True) for name, value in positional]
    return call, {name: _replace(name, value, make) for name, value in keywords.items()}


def input_types(model: Model, *inputs: Any, kwargs: Mapping[str, Any] | None = None) -> dict[str, TensorType]:
    """The types of the inputs of `trace` with the same arguments, by name. Nothing is computed."""
    types: dict[str, TensorType] = {}

    def placeholder(path: str, kind: TensorType, example: Array | None) -> Tensor:
        types[path] = kind
        return Tensor.from_value(Input(path, kind))

    arguments_of(model, inputs, kwargs, placeholder)
    return types


def _arguments(
    model: Model, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[list[tuple[str, Any]], dict[str, Any]]:
    """Positional arguments with their names, and keyword arguments."""
    signature = inspect.signature(model.forward if isinstance(model, Module) else model)
    kwargs = with_known_inputs(model, inputs, kwargs)
    try:
        bound = signature.bind(*inputs, **kwargs)
    except TypeError as error:
        raise TypeError(f"trace: {error}; {_usage(model, signature)}") from None
    if not inputs and not any(_has_spec(value) for value in kwargs.values()) and _needs_input(signature, kwargs):
        raise TypeError(f"trace: no inputs given; {_usage(model, signature)}")
    positional = list(bound.arguments)[: len(inputs)]
    names: list[str] = []
    for name in positional:
        value = bound.arguments[name]
        variadic = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        names += [f"{name}.{index}" for index in range(len(value))] if variadic else [name]
    return list(zip(names, inputs, strict=True)), kwargs


def with_known_inputs(model: Model, inputs: Sequence[Any], kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments by name, in the order of the module's forward; missing ones are those that the module knows itself."""
    arguments = dict(kwargs or {})
    if inputs or not isinstance(model, Module):
        return arguments
    specs = model.input_specs()
    # If one of the inputs that the module knows is given, the others are not added: query alone is self-attention.
    if not any(_has_spec(arguments[name]) for name in specs.keys() & arguments.keys()):
        arguments = {name: kind for name, kind in specs.items() if name not in arguments} | arguments
    order = {name: index for index, name in enumerate(inspect.signature(model.forward).parameters)}
    return dict(sorted(arguments.items(), key=lambda item: order.get(item[0], len(order))))


def _needs_input(signature: inspect.Signature, kwargs: Mapping[str, Any]) -> bool:
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(p.name not in kwargs and p.kind not in kinds for p in signature.parameters.values())


def _usage(model: Model, signature: inspect.Signature) -> str:
    name = type(model).__name__ if isinstance(model, Module) else getattr(model, "__name__", "the function")
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    shown = signature.replace(parameters=parameters, return_annotation=signature.empty)
    required = [p.name for p in parameters if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    specs = ", ".join(f'{argument}=lucid.spec("N", ...)' for argument in required or ["x"])
    return f"{name} takes {shown}: write lucid.export.to_onnx(model, kwargs=dict({specs})), one spec for each argument"


def _is_shorthand(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(size, (str, int, Dim)) for size in value)


def _has_spec(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return any(map(_has_spec, value))
    if isinstance(value, dict):
        return any(map(_has_spec, value.values()))
    return isinstance(value, (TensorType, Tensor, np.ndarray))


def _replace(path: str, value: Any, make: Make, top: bool = False) -> Any:
    """An argument with every spec or example in it replaced by the result of `make`."""
    if top and _is_shorthand(value):
        return make(path, spec(*value), None)
    if isinstance(value, TensorType):
        return make(path, value, None)
    if isinstance(value, Tensor):
        return make(path, value.spec, value.numpy())
    if isinstance(value, np.ndarray):
        return make(path, TensorType(as_dtype(value.dtype), value.shape), value)
    if isinstance(value, (list, tuple)):
        names = getattr(value, "_fields", range(len(value)))  # a named tuple's items have names
        items = [_replace(f"{path}.{name}", item, make, top) for name, item in zip(names, value, strict=True)]
        return like(value, items)
    if isinstance(value, dict):
        return {key: _replace(f"{path}.{key}", item, make, top) for key, item in value.items()}
    return value


def _limits(inputs: Iterable[Input]) -> dict[str, Limits]:
    """The limits of sizes by name that specs gave.

    Raises:
        ValueError: for two of one size.
    """
    limits = dict[str, Limits]()
    for size in (size for value in inputs for size in value.type.shape):
        if isinstance(size, Dim) and size.limits and limits.setdefault(str(size), size.limits) != size.limits:
            raise ValueError(f"trace: size {size} has limits {limits[str(size)]} and {size.limits}; give the same ones")
    return limits


def _check_sizes(inputs: Sequence[Input]) -> None:
    shapes = [value.type.shape for value in inputs]
    unknown = names_of(size for shape in shapes for size in shape) - {reading.name for reading in readings(shapes)}
    if unknown:
        raise ValueError(
            f"trace: size {', '.join(sorted(unknown))} cannot be computed from the sizes of the inputs; give an input "
            'an axis of this size alone, or of one that it alone decides, such as "2*L + 1"'
        )


def _check_origin(graph: Graph) -> None:
    own = {id(value) for value in graph.inputs}
    for value in (*(value for node in graph.nodes() for value in node.inputs), *graph.outputs):
        if isinstance(value, Input) and id(value) not in own:
            raise ValueError(
                "trace: the model uses a tensor that it kept from another trace or from inside a loop "
                f"({value.name}: {value.type}); do not store what forward computes; return it or pass it on"
            )


def outputs_of(result: Any, model: Model | None = None) -> dict[str, Tensor]:
    """The tensors that a model returned by name: ``output``, ``output_0`` in a list or tuple, the key in a dict.

    `output_names` of a module names them; a step of a decoder adds the names of its cache.

    Raises:
        TypeError: for anything else in it, and if there are none.
        ValueError: for another number of outputs than the module has names.
    """
    outputs: dict[str, Tensor] = {}
    _collect(result, outputs, "output")
    if not outputs:
        raise TypeError(
            f"trace: the model returned {type(result).__name__}, expected a tensor or a structure of tensors"
        )
    names = model.output_names if isinstance(model, Module) else ()
    if isinstance(model, CausalDecoder) and len(outputs) > 1:  # a step
        names = model.cached_output_names()
    if not names:
        return outputs
    if len(names) != len(outputs):
        raise ValueError(
            f"trace: {type(model).__name__} returned {len(outputs)} outputs, but its output_names are "
            f"{', '.join(names)}: expected a name for each"
        )
    return dict(zip(names, outputs.values(), strict=True))


def _collect(value: Any, outputs: dict[str, Tensor], path: str) -> None:
    if isinstance(value, Tensor):
        if path in outputs:
            raise ValueError(f"trace: two outputs would both be called {path}; rename a key of the returned dict")
        outputs[path] = value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _collect(item, outputs, f"{path}_{index}")
    elif isinstance(value, dict):
        for key, item in value.items():
            _collect(item, outputs, str(key) if path == "output" else f"{path}_{key}")
    elif value is not None:
        raise TypeError(
            f"trace: the model returned {type(value).__name__} as {path}, "
            "expected tensors, None, or lists, tuples, dicts of them"
        )
