"""`training_step`: one ONNX file of a loss, its gradients and the update of an optimizer; `evaluation_step`."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any, Literal

import onnx

from lucid.core.graph.scope import with_stand_ins
from lucid.core.graph.types import int64, spec
from lucid.export.exporter import Lowered, check_file, lower
from lucid.export.onnx_file.element_codes import onnx_code
from lucid.export.options import ExportOptions
from lucid.export.target import ExportError, Target
from lucid.files.safetensors import places
from lucid.files.utf8_paths import utf8_path
from lucid.gradients.transforms import chosen_parameters, value_and_grad
from lucid.ops.tensor.tensor import Tensor
from lucid.optim import Optimizer, global_norm
from lucid.tracing.parts import TracedPart
from lucid.tracing.trace import Model, arguments_of, input_types, trace_all

LOSS, NORM, STEP = "loss", "gradient_norm", "step"
NEW_WEIGHTS, NEW_STATE = "new_weights.", "new_state."
"""The beginning of the names of outputs that are inputs of the next step."""


def training_step(
    model: Any,
    loss: Callable[..., Tensor],
    optimizer: Optimizer,
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    wrt: str | Sequence[str] = (),
    path: str | os.PathLike[str] | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    external_data: bool | Literal["auto"] = "auto",
) -> onnx.ModelProto:
    """Export one step of training to ONNX. `lucid.runtime.Training` runs it, and so does any program with onnxruntime.

    ::

        def loss(input_ids, labels):
            return F.cross_entropy(model(input_ids), labels)

        ids, labels = lucid.spec("N", "L", dtype=lucid.int64), lucid.spec("N", dtype=lucid.int64)
        training_step(model, loss, lucid.optim.AdamW(1e-3), ids, labels, wrt="classifier*", path="step.onnx")

    The file takes the inputs of `loss` under the names of its arguments, the weights that are trained under their names
    in `state_dict`, the optimizer's state under the names of `Optimizer.init`, and ``step``, the int64 number of steps
    before this one. It gives ``loss``, ``gradient_norm``, the norm of all gradients before clipping, and what the next
    step takes: ``new_weights.NAME`` and ``new_state.NAME``. Other weights are in the file, quantized ones as they are.
    The model computes as in evaluation, without dropout.

    Args:
        model: the module whose parameters are trained. It is not changed.
        loss: a function of the inputs that calls the model and gives a float32 scalar.
        optimizer: of `lucid.optim`; the parameters that it freezes are not trained.
        inputs, kwargs: specs or examples of the inputs of `loss`, as for `to_onnx`.
        wrt: patterns of the parameters to train, such as ``"*.lora_*"``; by default all whose `requires_grad` is true.
        path, target, opset, external_data: as for `to_onnx`.

    Returns:
        The model, as `to_onnx` returns it. `lucid inspect FILE --size N=32` counts the memory that a step takes.

    Raises:
        GradientError: for a pattern that matches no parameter, an op without a derivative, or a loss that is no scalar.
        ExportError: for a trained parameter that is not float32, or an input with the name of another one.
        TypeError, SymbolicSizeError, TracedValueError, OSError: as `to_onnx`.
    """
    if not isinstance(optimizer, Optimizer):
        raise TypeError(f"training_step: optimizer is {optimizer!r}, expected one of lucid.optim, such as AdamW(1e-3)")
    check_file(path, external_data)
    parameters = optimizer.trained(_chosen(model, wrt))
    optimizer = replace(optimizer, frozen=())  # what it freezes is no longer among them
    wrong = [f"{name} is {value.spec}" for name, value in parameters.items() if value.dtype.name != "float32"]
    if wrong:
        raise ExportError(f"training_step: {wrong[0]}, expected float32 weights: model.float()")

    def step(
        _: Any, arguments: dict[str, Tensor], weights: dict[str, Tensor], state: dict[str, Tensor], step: Tensor
    ) -> Any:
        with with_stand_ins({id(parameters[name]): value.to_value() for name, value in weights.items()}):
            value, gradients = _call(value_and_grad(loss, (model, *parameters)), loss, inputs, kwargs, arguments)
        after, state = optimizer.update(gradients, state, weights, step)
        new = {f"{NEW_WEIGHTS}{name}": tensor for name, tensor in after.items()}
        return {LOSS: value, NORM: global_norm(gradients), **new, **{f"{NEW_STATE}{n}": t for n, t in state.items()}}

    groups: dict[str, Any] = {
        "arguments": input_types(loss, *inputs, kwargs=kwargs),
        "weights": {name: value.spec for name, value in parameters.items()},
        "state": optimizer.state_types(parameters),
        "step": spec(dtype=int64),
    }
    lowered = _exported("training_step", MethodType(step, model), groups, target, opset, reserved=(LOSS, NORM))
    return lowered.write(path, external_data)


def evaluation_step(
    model: Any,
    function: Callable[..., Any],
    *inputs: Any,
    kwargs: Mapping[str, Any] | None = None,
    wrt: str | Sequence[str] = (),
    path: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
    target: Target | str = "any",
    opset: int | None = None,
    external_data: bool | Literal["auto"] = "auto",
) -> onnx.ModelProto:
    """Export what `lucid.runtime.Training.evaluate` runs: a function of inputs and of the weights that are trained.

    The file takes the inputs of `function`, which calls the model, and then the weights that `wrt` names, as a
    `training_step` of the same `wrt` does; its outputs have the names that `function` returns its tensors under.

    With `weights` they are no inputs of the file: it reads them from that file, whenever a session loads it. After
    ``lucid.save(weights, training.weights())`` a new session has the new weights, without another export.

    Args, Raises: as for `training_step`.
        weights: a safetensors file in the folder of `path`, with all the weights that `wrt` names. Whoever writes it
            again must write tensors of the same names and shapes in the same order.
    """
    check_file(path, external_data)
    parameters = _chosen(model, wrt)

    def step(_: Any, arguments: dict[str, Tensor], weights: dict[str, Tensor]) -> Any:
        with with_stand_ins({id(parameters[name]): value.to_value() for name, value in weights.items()}):
            return _call(function, function, inputs, kwargs, arguments)

    groups: dict[str, Any] = {
        "arguments": input_types(function, *inputs, kwargs=kwargs),
        "weights": {name: value.spec for name, value in parameters.items()},
    }
    lowered = _exported("evaluation_step", MethodType(step, model), groups, target, opset)
    if weights is not None:
        _read_from(Path(weights), path, parameters, lowered.assembled.skeleton.graph)
    return lowered.write(path, external_data)


def _read_from(
    weights: Path, path: str | os.PathLike[str] | None, parameters: Mapping[str, Tensor], graph: onnx.GraphProto
) -> None:
    """Make inputs of a graph initializers whose data is in a safetensors file."""
    if path is None or Path(path).resolve().parent != weights.resolve().parent:
        raise ExportError(
            f"evaluation_step: weights is {str(weights)!r}, expected a file in the folder of path={path!r}"
        )
    stored = places(weights)
    for name, value in parameters.items():
        dtype, shape, data = stored.get(name, (None, (), range(0)))
        if (dtype, shape) != (value.dtype.numpy, value.shape):
            got = "nothing" if dtype is None else f"{dtype}{list(shape)}"
            raise ExportError(
                f"evaluation_step: {weights} has {got} for {name}, expected {value.spec}; write it with "
                "lucid.save(weights, training.weights())"
            )
        tensor = graph.initializer.add(
            name=name, dims=shape, data_type=onnx_code(value.dtype), data_location=onnx.TensorProto.EXTERNAL
        )
        for key, entry in (("location", utf8_path(weights.name)), ("offset", data.start), ("length", len(data))):
            tensor.external_data.add(key=key, value=str(entry))
    kept = [value for value in graph.input if value.name not in parameters]
    del graph.input[:]
    graph.input.extend(kept)


def _chosen(model: Any, wrt: str | Sequence[str]) -> Mapping[str, Tensor]:
    return chosen_parameters((model, *([wrt] if isinstance(wrt, str) else wrt)))


def _call(
    call: Callable[..., Any],
    function: Callable[..., Any],
    inputs: Sequence[Any],
    kwargs: Mapping[str, Any] | None,
    tensors: Mapping[str, Tensor],
) -> Any:
    """Call with the arguments of a function, in which tensors stand for specs and examples."""
    arguments, named = arguments_of(function, inputs, kwargs, lambda path, kind, example: tensors[path])
    return call(*arguments, **named)


def _exported(
    where: str,
    step: Model,
    groups: Mapping[str, Any],
    target: Target | str,
    opset: int | None,
    reserved: Collection[str] = (),
) -> Lowered:
    """The step with the names of its inputs, none of which is `reserved`."""
    graph = trace_all([step], kwargs=groups)[0]
    names = [value.name.partition(".")[2] or value.name for value in graph.inputs]
    repeated = sorted({name for name in names if names.count(name) > 1 or name in reserved})
    if repeated:
        raise ExportError(
            f"{where}: {', '.join(repeated)} is the name of an input, and of something else in the file; call the "
            "argument of your function otherwise"
        )
    return lower(TracedPart(graph), ExportOptions(Target.of(target, opset, "auto"), input_names=names))
