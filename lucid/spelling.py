"""torch's names of arguments, taken beside Lucid's: ``x.sum(dim=1, keepdim=True)`` is ``x.sum(axis=1, keepdims=True)``.

What torch's arguments say about devices, gradients and memory has no meaning here. Functions that torch gives such
arguments take them where they change nothing, so that ported code runs; anything else is an error.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

# torch's name of a parameter, and Lucid's.
OURS: dict[str, tuple[str, ...]] = {
    "input": ("x", "indices", "self"),
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
    "dims": ("axes", "axis"),
    "other": ("y",),
    "index": ("indices",),
}


@dataclass(frozen=True)
class Device:
    """Where torch would keep a tensor; Lucid's tensors are NumPy arrays, so it is always the CPU."""

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
    if device is not None and str(device) not in ("cpu", "meta"):
        raise ValueError(
            f"{where}: device is {str(device)!r}, but tensors have no device: leave it out; what an exported model "
            "runs on is chosen for its session: lucid.runtime.Session(model, provider=...)"
        )


def _check_gradients(where: str, wanted: Any) -> None:
    if wanted:
        raise ValueError(f"{where}: requires_grad is true, but Lucid computes no gradients; leave it out")


def _check_tracked(where: str, wanted: Any) -> None:
    if not wanted:
        raise ValueError(f"{where}: track_running_stats is false, but a model that is run has running statistics")


def _anything(where: str, value: Any) -> None:
    """For arguments that only say how torch uses memory."""


# Arguments that torch has and that change no value here.
_UNUSED: dict[str, Callable[[str, Any], None]] = {
    "device": check_device,
    "requires_grad": _check_gradients,
    "pin_memory": _anything,
    "memory_format": _anything,
    "layout": _anything,
    "padding_idx": _anything,  # where no gradient goes to
    "track_running_stats": _check_tracked,
    "inplace": _anything,  # the result is a new tensor either way
}


def in_our_names(
    where: str, given: Mapping[str, Any], own: Iterable[str], unused: Iterable[str] = ()
) -> dict[str, Any]:
    """Keyword arguments with torch's names replaced by Lucid's, of a function that has the parameters `own`.

    Raises:
        TypeError: if an argument is given under both names.
    """
    own, found = tuple(own), dict[str, Any]()
    for name, value in given.items():
        if name in unused and name not in own:
            _UNUSED[name](where, value)
            continue
        ours = name if name in own else next((other for other in OURS.get(name, ()) if other in own), name)
        if ours in found:
            raise TypeError(f"{where}: {ours} is given twice, as {ours} and as {name}")
        found[ours] = value
    return found


def torch_names(call: Callable[P, R]) -> Callable[P, R]:
    """Let a function take torch's names for its arguments too."""
    return torch_names_and()(call)


def torch_names_and(*unused: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take torch's names for its arguments, and those of torch's arguments that change nothing here."""

    def decorated(call: Callable[P, R]) -> Callable[P, R]:
        own = frozenset(inspect.signature(call).parameters)
        name = call.__qualname__.removesuffix(".__init__").rpartition(".")[2]

        @functools.wraps(call)
        def spelled(*args: P.args, **given: P.kwargs) -> R:
            if not given or given.keys() <= own:
                return call(*args, **given)
            return call(*args, **in_our_names(name, given, own, unused))

        return spelled

    return decorated


class _NoAxes(tuple[int, ...]):
    """The axes of a reduction over none, told from an empty list."""


NO_AXES = _NoAxes()


def torch_names_of_reduction(call: Callable[P, R]) -> Callable[P, R]:
    """Let a reduction take torch's names: `dim=()` is every axis, as in torch, and `axis=()` is none, as in NumPy."""
    own = frozenset(inspect.signature(call).parameters)

    @functools.wraps(call)
    def reduction(*args: P.args, **given: P.kwargs) -> R:
        if given:
            axis = given.get("axis")
            if isinstance(axis, (tuple, list)) and not axis:
                given["axis"] = NO_AXES
            if not given.keys() <= own:
                return call(*args, **in_our_names(call.__name__, given, own))
        return call(*args, **given)

    return reduction
