"""torch's argument names, accepted as well as Lucid's: ``x.sum(dim=1, keepdim=True)``, ``x.sum(axis=1)``.

Devices, gradients and memory layouts have no meaning here. Functions accept torch's arguments for these if they change
nothing, so that ported code runs; any other value is an error.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, ParamSpec, TypeVar

from lucid.core.words.suggestions import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")

# torch's name of a parameter, and Lucid's.
OURS: dict[str, tuple[str, ...]] = {
    "input": ("x", "self", "indices"),
    "tensor": ("self", "parameter"),
    "val": ("value",),
    "a": ("low",),
    "b": ("high",),
    "dim": ("axis",),
    "dim0": ("axis0",),
    "dim1": ("axis1",),
    "start_dim": ("start",),
    "end_dim": ("end",),
    "keepdim": ("keepdims",),
    "tensors": ("parts",),
    "size": ("shape",),
    "fill_value": ("value",),
    "end": ("stop",),
    "n": ("rows",),
    "m": ("columns",),
    "y": ("other",),
    "split_size": ("sizes",),
    "split_size_or_sections": ("sizes",),
    "int": ("n",),
    "args": ("modules",),
    "dims": ("axes", "axis", "repeats"),
    "other": ("y",),
    "index": ("indices",),
    "exponent": ("y",),
    "mat2": ("other",),
    "vec2": ("other",),
    "sizes": ("shape",),
    "dimension": ("axis",),
    "f": ("path",),
    "opset_version": ("opset",),
}


@dataclass(frozen=True)
class Device:
    """The device of a tensor in torch; Lucid's tensors are NumPy arrays, so it is always the CPU."""

    type: str = "cpu"
    index: int | None = None

    def __str__(self) -> str:
        return self.type


CPU = Device()


def check_device(where: str, device: Any) -> None:
    """Refuse any device but the CPU.

    Raises:
        ValueError: saying where a device is chosen.
    """
    if device is not None and not re.fullmatch(r"(cpu|meta)(:\d+)?", str(device)):
        raise ValueError(
            f"{where}: device is {str(device)!r}, but tensors have no device: leave it out; what an exported model "
            "runs on is chosen for its session: lucid.runtime.Session(model, provider=...)"
        )


def _check_gradients(where: str, value: Any) -> None:
    if value:
        raise ValueError(
            f"{where}: requires_grad is true, but there is no tape: leave it out, and write "
            "lucid.value_and_grad(f)(x) for the gradient of f"
        )


def _check_tracked(where: str, value: Any) -> None:
    if not value:
        raise ValueError(f"{where}: track_running_stats is false, but a model that is run has running statistics")


def _anything(where: str, value: Any) -> None:
    """Accept any value, for arguments that only say how torch uses memory."""


def _only(name: str, values: Sequence[Any], advice: str) -> Callable[[str, Any], None]:
    """A check that accepts torch's default of an argument, or what means the same, and advises for any other value."""

    def check(where: str, value: Any) -> None:
        if not any(value is one or (isinstance(value, int) and value == one) for one in values):
            raise TypeError(f"{where}: {name}= is not taken: {advice}")

    return check


_FORMS = "another way to write an op is a form, which lucid.export.lowers registers; leave it out"
_EXPLAINED = "lucid.export.explain(model, x) says how each node is written; leave it out"
EXPORTER: Mapping[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("do_constant_folding", "dynamo", "verbose", "optimize", "artifacts_dir"), _anything),
    **dict.fromkeys(("fallback", "autograd_inlining"), _anything),
    "args": _only("args", (), 'write the inputs by place: to_onnx(model, x, path="model.onnx")'),
    "export_params": _only("export_params", (True,), "weights are part of the file; leave it out"),
    "keep_initializers_as_inputs": _only(
        "keep_initializers_as_inputs", (False, None), "write what varies as an argument of forward; leave it out"
    ),
    "training": _only(
        "training", (0, None), "modules are exported in evaluation mode; lucid.export.training_step writes a step"
    ),
    "verify": _only("verify", (False,), "lucid.testing.assert_parity(model, x) compares the file with NumPy"),
    **{name: _only(name, (False,), _EXPLAINED) for name in ("report", "profile", "dump_exported_program")},
    "custom_opsets": _only("custom_opsets", (None,), _FORMS),
    "custom_translation_table": _only("custom_translation_table", (None,), _FORMS),
    "export_modules_as_functions": _only(
        "export_modules_as_functions", (False,), "nodes are named after their modules; leave it out"
    ),
    "operator_export_type": _only("operator_export_type", (0, None), _FORMS),
}
"""The arguments of torch.onnx.export that mean nothing in `to_onnx`, with their checks."""

# torch's arguments that change no value here, with their checks.
_UNUSED: dict[str, Callable[[str, Any], None]] = {
    "device": check_device,
    "requires_grad": _check_gradients,
    "pin_memory": _anything,
    "memory_format": _anything,
    "layout": _anything,
    "track_running_stats": _check_tracked,
    "output_size": _anything,  # the number of elements, which torch is told to save time
    **dict.fromkeys(("sparse", "sparse_grad", "scale_grad_by_freq"), _anything),  # how gradients are kept
    **dict.fromkeys(("weights_only", "mmap"), _anything),  # weights are never run, and always mapped
    "inplace": _anything,  # the result is a new tensor either way
    **EXPORTER,
}


# torch's arguments that would change something, and what to do instead.
_REFUSED = {
    "out": "tensors are never changed in place; take the result",
    "decimals": "write (x * 10**decimals).round() / 10**decimals",
    "max_norm": "it would change the table in place; scale the rows of the weight beforehand",
    **dict.fromkeys(("size_average", "reduce"), 'write reduction="mean", "sum" or "none"'),
    **dict.fromkeys(
        ("dynamic_axes", "dynamic_shapes"),
        'name the sizes where the inputs are given: to_onnx(model, ("N", "L", 64)); '
        'of a torch module: lucid.from_torch(module, x, dynamic=[("N", "L")])',
    ),
    "generator": "random numbers come from the generator that lucid.manual_seed sets; leave it out",
}


def refuse(where: str, name: str) -> NoReturn:
    """Refuse one of torch's arguments.

    Raises:
        TypeError: saying what to do instead.
    """
    raise TypeError(f"{where}: {name}= is not taken: {_REFUSED[name]}")


def in_our_names(
    where: str, kwargs: Mapping[str, Any], own: Iterable[str], unused: Iterable[str] = ()
) -> dict[str, Any]:
    """Keyword arguments with torch's names replaced by Lucid's, of a function that has the parameters `own`.

    Raises:
        TypeError: if an argument is given under both names, or is one that Lucid refuses.
    """
    own, arguments = tuple(own), dict[str, Any]()
    for name, value in kwargs.items():
        if name in unused and name not in own:
            _UNUSED[name](where, value)
            continue
        if name in _REFUSED and name not in own:
            if value is None:  # torch's default
                continue
            refuse(where, name)
        ours = name if name in own else next((other for other in OURS.get(name, ()) if other in own), name)
        if ours in arguments:
            raise TypeError(f"{where}: {ours} is given twice, as {ours} and as {name}")
        arguments[ours] = value
    return arguments


def refuse_former_order(name: str, former: Sequence[Any]) -> NoReturn:
    """Refuse torch's former order of ``x.add(alpha, y)``, in which the factor comes first.

    Raises:
        TypeError: saying how it is written now.
    """
    if len(former) > 1:
        raise TypeError(f"{name}: got {len(former) + 1} operands by place, expected one")
    raise TypeError(f"{name}: got two operands by place; torch's former x.{name}(alpha, y) is x.{name}(y, alpha=alpha)")


def torch_names(call: Callable[P, R]) -> Callable[P, R]:
    """Let a function also take torch's names for its arguments."""
    return torch_names_and()(call)


def torch_names_and(*unused: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function also take torch's names for its arguments, and `unused`: arguments that change nothing here."""

    def decorated(call: Callable[P, R]) -> Callable[P, R]:
        if call in _SPELLED and not unused:
            return call
        names = _Names(call, unused)

        @functools.wraps(call)
        def spelled(*args: P.args, **kwargs: P.kwargs) -> R:
            if names.is_device_among(args):
                return spelled(*names.without_device(args), **kwargs)
            if not kwargs or kwargs.keys() <= names.keywords:
                return call(*args, **kwargs)
            return names.called(call, args, kwargs)

        _SPELLED.add(spelled)
        return spelled

    return decorated


_SPELLED: set[Callable[..., Any]] = set()


class _Names:
    """The parameters of a function, to assign its arguments by name."""

    def __init__(self, call: Callable[..., Any], unused: Iterable[str] = ()) -> None:
        parameters = inspect.signature(call).parameters.values()
        self.name = call.__qualname__.rpartition(".")[2]
        self.own, self.unused = tuple(p.name for p in parameters), tuple(unused)
        self.open = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.several = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)  # as in f(*shape)
        places = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        self.most = len(places)
        self.place = places.index("dtype") if "device" in unused and "dtype" in places else self.most
        self.keywords = frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))

    def where(self, args: tuple[Any, ...]) -> str:
        """The beginning of messages: the function's name, or that of the class that is made."""
        return type(args[0]).__name__ if self.name == "__init__" else self.name

    def is_device_among(self, args: tuple[Any, ...]) -> bool:
        """Whether a device is in the place of the element type, which torch has behind it."""
        place = self.place
        return len(args) > place < self.most and (len(args) == self.most + 1 or isinstance(args[place], Device))

    def without_device(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments without the device, which is checked."""
        check_device(self.where(args), args[self.place])
        return args[: self.place] + args[self.place + 1 :]

    def called(self, call: Callable[..., R], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> R:
        """Call the function with arguments under any of their names."""
        named = in_our_names(self.where(args), kwargs, self.own, self.unused)
        for name in () if self.open else named:
            if name not in self.own:
                of_model = f"; give an input of the model by its name as kwargs={{{name!r}: ...}}"
                hint = did_you_mean(name, self.own) or of_model * ("kwargs" in self.own)
                raise TypeError(f"{self.where(args)}() got an unexpected keyword argument {name!r}{hint}")
        if self.several not in named:
            return call(*args, **named)
        before = [named.pop(name) for name in self.own[: self.own.index(self.several)] if name in named]
        return call(*args, *before, named.pop(self.several), **named)


@functools.lru_cache(maxsize=4096)
def _names_of(call: Callable[..., Any]) -> _Names:
    return _Names(call)


def forward_arguments(forward: Callable[..., Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments of a module's forward under its own names: torch's ``linear(input=x)`` is ``linear(x=x)``."""
    names = _names_of(forward)
    return kwargs if kwargs.keys() <= names.keywords else in_our_names(names.name, kwargs, names.own[1:])


class _NoAxes(tuple[int, ...]):
    """The axes of a reduction over no axes, as opposed to an empty list."""


NO_AXES = _NoAxes()


def torch_names_of_reduction(call: Callable[P, R]) -> Callable[P, R]:
    """Let a reduction take torch's names. `dim=()` means all axes, as in torch; `axis=()` means none, as in NumPy."""
    names = _Names(call)

    @functools.wraps(call)
    def reduction(*args: P.args, **kwargs: P.kwargs) -> R:
        if kwargs:
            for name in kwargs.keys() & {"axis", "dim"}:
                if isinstance(kwargs[name], bool):  # so that the flag is refused as an axis
                    kwargs[name] = (kwargs[name],)
            axis = kwargs.get("axis")
            if isinstance(axis, (tuple, list)) and not axis:
                kwargs["axis"] = NO_AXES
            if not kwargs.keys() <= names.keywords:
                return names.called(call, args, kwargs)
        return call(*args, **kwargs)

    _SPELLED.add(reduction)
    return reduction
