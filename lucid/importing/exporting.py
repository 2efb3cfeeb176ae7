"""`torch.export` with axes named as Lucid names them, and its errors in a line."""

from __future__ import annotations

import inspect
import logging
import math
import re
import traceback
import warnings
from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from dataclasses import fields, is_dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from lucid.core.graph.pytree import like
from lucid.core.number_ranges import is_whole
from lucid.core.words.other_libraries import type_name
from lucid.importing.guards import past_ones
from lucid.importing.table import PACKED
from lucid.importing.torch_import import TorchImportError
from lucid.importing.whole_operators import calls_replaced, masks_as_given
from lucid.ops.tensor.tensor import Tensor


def exported(
    module: torch.nn.Module,
    examples: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Any,
    forward: Callable[..., Any] | None = None,
) -> tuple[ExportedProgram, dict[str, Any]]:
    """A module as torch exports it, or a function in the place of its `forward`, and the names of axes by input.

    Raises:
        TorchImportError: where torch cannot export the module, an axis with a name has one size only, or an input has
            fewer axes than names.
        TypeError: for examples that `forward` does not take, or that are not torch's.
    """
    with torch.no_grad(), masks_as_given(module):
        return _exported(module, forward or module.forward, examples, kwargs, dynamic)


def _exported(
    module: torch.nn.Module,
    forward: Callable[..., Any],
    examples: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic: Any,
) -> tuple[ExportedProgram, dict[str, Any]]:
    """The same within the contexts of an export."""
    try:
        inputs = _by_name(inspect.signature(forward).bind(*examples, **kwargs))
    except TypeError as error:
        raise TypeError(f"from_torch: the examples do not fit {type(module).__name__}.forward: {error}") from error
    for name, value in inputs.items():
        for leaf in pytree.tree_leaves(value):
            if isinstance(leaf, (np.ndarray, Tensor)):
                raise TypeError(
                    f"from_torch: example {name} has type {type_name(leaf)}, expected a tensor of torch; "
                    "torch.from_numpy(array) makes one"
                )
    module = _with_parameters(module, forward, list(inputs))
    # torch takes inputs that are one tensor as one input.
    inputs = pytree.tree_map_only(torch.Tensor, torch.clone, inputs)
    axes = axes_by_name(inputs, dynamic)
    _check_sizes(inputs, axes)
    small = _small(inputs, axes)

    def call(values: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of `forward`."""
        names = list(inputs)
        first, rest = names[: len(examples)], names[len(examples) :]
        return tuple(values[name] for name in first), {name: values[name] for name in rest}

    def program_of(places: Sequence[int] = (), count: int = 2) -> ExportedProgram:
        grown = {name: _grown(value, axes.get(name), small, places, count) for name, value in inputs.items()}
        everything = torch.export.Dim.AUTO if dynamic is None else None
        shapes = {name: _shapes(value, axes.get(name), everything) for name, value in grown.items()}
        program = _export(module, call(grown), shapes)
        if dynamic is None:
            _check_grown(program, call(inputs), call(grown))
        return program

    try:
        for places, count in _growth(inputs) if dynamic is None else ():
            with suppress(*REFUSALS):
                return program_of(places, count), axes
        return program_of(), axes
    except TorchImportError:
        raise
    except REFUSALS as error:
        reason = _fixed_axis(str(error), axes) or f"torch cannot export {type(module).__name__}: {short(error)}"
        raise TorchImportError(f"from_torch: {reason}") from error


def _by_name(bound: inspect.BoundArguments) -> dict[str, Any]:
    """The arguments of a call by name: those of ``*rest`` are rest_0, rest_1 and so on."""
    named: dict[str, Any] = {}
    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named |= {f"{name}_{place}": item for place, item in enumerate(value)}
        else:
            named |= value if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
    return named


def _with_parameters(module: torch.nn.Module, forward: Callable[..., Any], names: Sequence[str]) -> torch.nn.Module:
    """A module with the same parts, whose `forward` has a parameter for each input: torch.export takes no dynamic axes
    of ``**named``.
    """

    def plain(*args: Any, **kwargs: Any) -> Any:
        return _taken_apart(forward(*args, **kwargs))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    plain.__signature__ = inspect.Signature([inspect.Parameter(name, kind) for name in names])  # type: ignore[attr-defined]
    same: torch.nn.Module = object.__new__(type(module))
    vars(same).update(vars(module), forward=plain)
    return same


def _taken_apart(output: Any) -> Any:
    """An output with dicts in the places of dataclasses that torch does not know."""

    def fields_of(leaf: Any) -> Any:
        if not is_dataclass(leaf) or isinstance(leaf, type):
            return leaf
        return {field.name: _taken_apart(getattr(leaf, field.name)) for field in fields(leaf)}

    return pytree.tree_map(fields_of, output)


def _export(module: torch.nn.Module, examples: Any, shapes: Any) -> ExportedProgram:
    """The program of torch, compared with the module."""
    program = _program(module, examples, shapes)
    program = _past_ones(module, program, examples, shapes)
    if different := _difference(module, program, examples):
        raise TorchImportError(
            f"from_torch: what torch.export makes of {type(module).__name__} computes something else: {different}, for "
            "inputs like the examples; usual reasons are a line that changes a tensor in place, such as x /= y, and a "
            "function of flex_attention that adds up several numbers of a place"
        )
    return program


def _program(module: torch.nn.Module, examples: Any, shapes: Any) -> ExportedProgram:
    """What torch makes of a module; compared with the module by itself, so replaced calls are compared as well."""
    args, named = examples
    with calls_replaced():
        return torch.export.export(module, args, named, dynamic_shapes=shapes, strict=False)


def _past_ones(module: torch.nn.Module, program: ExportedProgram, examples: Any, shapes: Any) -> ExportedProgram:
    """A program that larger examples give, where torch took sizes as ones; it computes the same for the examples."""
    leaves, structure = pytree.tree_flatten(examples)
    larger = past_ones(program, leaves)
    if larger is None:
        return program
    grown = pytree.tree_unflatten(larger, structure)
    try:
        other = _program(module, grown, shapes)
        different = _difference(module, other, examples) or _difference(module, other, grown)
    except REFUSALS:  # they are too long for the module
        return program
    return program if different else other


def _difference(module: torch.nn.Module, program: ExportedProgram, examples: Any) -> str:
    """How a program differs from its module, for inputs like the examples; nothing if the module is random."""

    def outputs_of(called: torch.nn.Module, inputs: Any) -> list[torch.Tensor]:
        """The outputs of a module, which may change copies of its buffers and of the inputs."""
        buffers = {name: buffer.clone() for name, buffer in called.named_buffers()}
        args, kwargs = pytree.tree_map_only(torch.Tensor, torch.clone, inputs)
        result = torch.func.functional_call(called, buffers, args, kwargs)
        return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]

    draws = torch.Generator().manual_seed(0)
    inputs = pytree.tree_map_only(torch.Tensor, lambda example: _varied(example, draws), examples)
    exported_module = program.module(check_guards=False)
    try:
        theirs, own = outputs_of(module, inputs), outputs_of(exported_module, inputs)
    except REFUSALS:  # other numbers mean something to the module, or are not those that the program checks for
        inputs = examples
        theirs, own = outputs_of(module, inputs), outputs_of(exported_module, inputs)
    if len(theirs) != len(own):
        return f"it has {len(own)} outputs instead of {len(theirs)}"
    worst = max(map(_relative, theirs, own), default=0.0)
    if worst <= _ROUNDING or max(map(_relative, theirs, outputs_of(module, inputs)), default=0.0) > 0:
        return ""
    return f"its outputs differ by {worst:.1g} of their size"


def _varied(example: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    """Random numbers like an example's, which are often all the same."""
    if example.is_floating_point():
        noise = torch.randn(example.shape, generator=draws).to(example.device)
        return (example.float() + 0.1 * noise).to(example.dtype)
    if example.dtype == torch.bool or example.is_complex() or example.numel() == 0 or example.min() < 0:
        return example
    return torch.randint(int(example.max()) + 1, example.shape, generator=draws).to(example)


_ROUNDING = 0.02  # in half precision, too


def _relative(theirs: torch.Tensor, own: torch.Tensor) -> float:
    """The largest difference of two tensors, relative to the largest number."""
    if theirs.shape != own.shape:
        return math.inf
    theirs, own = (torch.view_as_real(x) if x.is_complex() else x for x in (theirs, own))
    theirs, own = (x.detach().to(torch.float64).nan_to_num(0.0, 0.0, 0.0) for x in (theirs, own))
    if theirs.numel() == 0:
        return 0.0
    return float((theirs - own).abs().max() / theirs.abs().max().clamp(min=1e-30))


REFUSALS = (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError, AssertionError, LookupError)


def axes_by_name(inputs: Mapping[str, Any], dynamic: Any) -> dict[str, Any]:
    """The axes that `dynamic` gives for each input, also for each part of nested inputs.

    Raises:
        TorchImportError: for more entries than inputs, names of no input, or axes that are no names and no numbers.
    """
    if dynamic is None:
        return {}
    if isinstance(dynamic, Mapping):
        unknown = [name for name in dynamic if name not in inputs]
        if unknown:
            raise TorchImportError(
                f"from_torch: dynamic names {', '.join(map(repr, unknown))}, but the inputs are {', '.join(inputs)}"
            )
    elif isinstance(dynamic, str) or len(dynamic) > len(inputs):
        raise TorchImportError(
            f"from_torch: dynamic is {dynamic!r}, expected axes for each of the inputs {', '.join(inputs)}, such as "
            '[("N", "L"), ("N", "L")]'
        )
    else:
        dynamic = dict(zip(inputs, dynamic, strict=False))
    return {name: _part_axes(inputs[name], axes, name) for name, axes in dynamic.items()}


def _part_axes(value: Any, axes: Any, path: str) -> Any:
    """The axes of all parts of an input: None where `dynamic` gives none."""
    if axes is None:
        return None
    if not isinstance(value, (Mapping, list, tuple)):
        return _tensor_axes(axes, path)
    parts, own = (each if isinstance(each, Mapping) else dict(enumerate(each)) for each in (value, axes))
    if isinstance(axes, str) or not own.keys() <= parts.keys():
        raise TorchImportError(
            f"from_torch: dynamic gives {path} the axes {axes!r}, expected axes for {', '.join(map(str, parts))}"
        )
    full = {key: _part_axes(part, own.get(key), f"{path}.{key}") for key, part in parts.items()}
    return full if isinstance(value, Mapping) else list(full.values())


def _tensor_axes(axes: Any, path: str) -> Any:
    """The axes of a tensor in their order, also where they are given by place, as torch's `dynamic_shapes` are."""
    if isinstance(axes, Mapping):
        if not all(is_whole(place) and place >= 0 for place in axes):
            raise TorchImportError(f"from_torch: dynamic gives {path} the axes {axes!r}, expected places from 0 on")
        axes = tuple(axes.get(place) for place in range(max(axes, default=-1) + 1))
    for name in axes:
        if not (name is None or isinstance(name, str) or is_whole(name)):
            raise TorchImportError(
                f'from_torch: dynamic gives {path} an axis {name!r}, expected a name such as "N", a number or None'
            )
    return axes


def _pairs(value: Any, axes: Any) -> Iterator[tuple[torch.Tensor, Any]]:
    """The tensors of an input with their axes."""
    if isinstance(value, torch.Tensor):
        yield value, axes
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _pairs(item, axes[key] if axes else None)
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _pairs(item, axes[place] if axes else None)


def _check_sizes(inputs: Mapping[str, Any], axes: Mapping[str, Any]) -> None:
    """Refuse more names than an example has axes, and examples in which axes of one name have two sizes."""
    sizes: dict[str, int] = {}
    for key, value in inputs.items():
        for tensor, own in _pairs(value, axes.get(key)):
            if isinstance(own, str) or len(own or ()) > tensor.ndim:
                raise TorchImportError(
                    f"from_torch: dynamic gives {key} the axes {own!r}, expected up to {tensor.ndim} in a tuple, since "
                    f"its example is {list(tensor.shape)}"
                )
            for size, name in zip(tensor.shape, own or (), strict=False):
                if isinstance(name, str) and sizes.setdefault(name, size) != size:
                    raise TorchImportError(
                        f"from_torch: axes of the examples named {name!r} have sizes {sizes[name]} and {size}, but "
                        "equal names mean equal sizes: give two names, or other examples"
                    )


def _small(inputs: Mapping[str, Any], axes: Mapping[str, Any]) -> set[str]:
    """The names of axes that have size 1 in some example: torch takes a size of 1 as a constant."""
    return {
        name
        for key, value in inputs.items()
        for tensor, own in _pairs(value, axes.get(key))
        for size, name in zip(tensor.shape, own or (), strict=False)
        if isinstance(name, str) and size == 1
    }


def _growth(inputs: Mapping[str, Any]) -> Iterator[tuple[tuple[int, ...], int]]:
    """Places of axes of size 1 that may be batch and length, and how often to repeat them: to a size of their own."""
    sizes = [size for tensor, _ in _pairs([*inputs.values()], None) for size in enumerate(tensor.shape)]
    count = next(count for count in range(2, len(sizes) + 3) if count not in {size for _, size in sizes})
    for place in (1, 0):
        if (place, 1) in sizes:
            yield tuple(range(place + 1)), count


def _grown(value: Any, axes: Any, small: set[str], places: Sequence[int], count: int) -> Any:
    """An example with axes repeated: those with small names, and those of size 1 in these places."""
    if isinstance(value, torch.Tensor):
        names = [*(axes or ()), *[None] * value.ndim]
        for axis, size in enumerate(value.shape):
            if (isinstance(names[axis], str) and names[axis] in small) or (size == 1 and axis in places):
                value = torch.cat([value] * count, axis)
        return value
    if isinstance(value, Mapping):
        return {key: _grown(item, axes and axes[key], small, places, count) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_grown(item, axes and axes[place], small, places, count) for place, item in enumerate(value)]
        return like(value, items)
    return value


def _check_grown(program: ExportedProgram, examples: Any, grown: Any) -> None:
    """Refuse a program in which a repeated axis of an example became a constant."""
    nodes = {node.name: node for node in program.graph.nodes}
    names = program.graph_signature.user_inputs
    for name, example, larger in zip(names, *map(pytree.tree_leaves, (examples, grown)), strict=True):
        if isinstance(example, torch.Tensor):
            for size, other, own in zip(example.shape, larger.shape, nodes[name].meta["val"].shape, strict=True):
                if size != other and str(own).isdigit():  # also of symbols that have one value
                    raise TorchImportError(f"from_torch: torch takes the size {own} of {name} as a constant")


def _shapes(value: Any, axes: Any, everything: Any) -> Any:
    """The `dynamic_shapes` of `torch.export`: an entry for each axis with a name, or for all axes."""
    if isinstance(value, torch.Tensor):
        if axes is None:
            return None if everything is None else dict.fromkeys(range(value.ndim), everything)
        return {axis: torch.export.Dim.DYNAMIC for axis, name in enumerate(axes) if isinstance(name, str)}
    if isinstance(value, Mapping):
        return {key: _shapes(item, axes[key] if axes else None, everything) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return like(
            value, [_shapes(item, axes[place] if axes else None, everything) for place, item in enumerate(value)]
        )
    return None


def fixed_axis(axis: int, path: str, name: str, size: int) -> str:
    """The reason of an error about an axis with a name whose size torch takes as a constant."""
    return (
        f"axis {axis} of {path} is named {name!r}, but the module works with size {size} only: give the number instead "
        "of a name, or mend the line that needs it; a loop of Python over the axis becomes one of nn.LSTM, nn.GRU or "
        "torch's scan, and float(size) or math.sqrt(size), which torch computes once, size * 1.0 or size**0.5"
    )


_CONSTANT = r"L((?:\[[^]]+\])+)\.size\(\)\[(\d+)\] as dynamic but your code specialized it to be a constant \((\d+)\)"
_STATIC = r"inferred a static shape of (\d+) for dimension inputs((?:\[[^]]+\])+)\.shape\[(\d+)\]"


def _fixed_axis(text: str, axes: Mapping[str, Any]) -> str:
    """The reason where torch's error is about an axis with a name: of the first one. Otherwise nothing."""
    if match := re.search(_CONSTANT, text):
        path, axis, size = match.groups()
    elif match := re.search(_STATIC, text):
        size, path, axis = match.groups()
    else:
        return ""
    keys = [literal_eval(key) for key in re.findall(r"\[([^]]+)\]", path)]
    own: Any = axes
    for key in keys:
        own = own[key]
    return fixed_axis(int(axis), ".".join(map(str, keys)), own[int(axis)], int(size))


_REASONS = (  # for torch's errors
    (
        r"data-dependent|specialized integer|Dynamic control flow",
        "a branch or a size depends on the values of a tensor, which a graph does not know: use torch.where, or give "
        "the number as an argument of Python; of a mixture compute all experts and weigh them",
    ),
    (r"failed to unpack the object at pos", f"forward {PACKED}"),
    (r"\.numpy\(\)|type SymInt", "forward leaves torch for NumPy: use functions of torch, and of math for sizes"),
    (
        r"__obj_flatten__",
        "layers quantized by torch are not imported: import the module before and call lucid.quantize",
    ),
    (
        r"not a known type",
        "an input or output is of a class that torch does not take apart: use tensors, lists, tuples and dicts",
    ),
    (
        r"^(aten\.[\w.]+)\s*$",  # the whole message
        r"the result of \1 is known from the values of its operands alone: compute it before the module, or after it, "
        "like a loss, or write it in other functions",
    ),
)


def short(error: BaseException) -> str:
    """torch's message, in a line, and the line of the user's code."""
    text = str(error).strip() or type(error).__name__
    hints = (match.expand(reason) for pattern, reason in _REASONS if (match := re.search(pattern, text)))
    hint = next(hints, text.splitlines()[0])
    lines = [f"{path}:{line}" for path, line in re.findall(r'File "([^"]+)", line (\d+)', text)] or _lines_of(error)
    return f"{hint} ({lines[-1]})" if lines else hint


def _lines_of(error: BaseException) -> list[str]:
    """The lines outside of torch and Lucid that led to an error, the innermost last."""
    others, causes = [str(Path(file).parent) for file in (torch.__file__, __file__)], [error]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    frames = [frame for each in causes for frame in traceback.extract_tb(each.__traceback__)]
    own = [frame for frame in frames if not any(frame.filename.startswith(folder) for folder in others)]
    return [f"{frame.filename}:{frame.lineno}" for frame in own if Path(frame.filename).is_file()]


@contextmanager
def quiet() -> Iterator[None]:
    """Without torch's warnings about its own future, its logs and printed graphs: an error says what matters."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), redirect_stderr(StringIO()):
            for category in (FutureWarning, DeprecationWarning):
                warnings.simplefilter("ignore", category)
            warnings.filterwarnings("ignore", r"The tensor attributes self\.\S*_flat_weights")  # of recurrent layers
            yield
    finally:
        logging.disable(disabled)
