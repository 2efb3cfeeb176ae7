"""Weights in two parts, directions and norms, as torch stores them (Salimans and Kingma 2016).

The module computes such a weight when it is read, from parameters with torch's names. torch has two pairs of them:
`nn.utils.weight_norm` gives `weight_g` and `weight_v`, and `nn.utils.parametrizations.weight_norm` gives
`parametrizations.weight.original0` and `original1`.
"""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.ops.tensor.tensor import Tensor

__all__ = ["weight_norm"]

M = TypeVar("M", bound=Module)


def weight_of(directions: Tensor, norms: Tensor, dim: int | None = 0) -> Tensor:
    """The weight; norms are over all axes but `dim`, or over all axes if that is None or -1."""
    return directions * (norms / _norms(directions, dim))


def _norms(x: Tensor, dim: int | None) -> Tensor:
    return (
        x.norm(2)
        if dim in (None, -1)
        else x.norm(2, tuple(axis for axis in range(x.ndim) if axis != dim % x.ndim), True)
    )


class _WeightNorm(Module):
    """The norms and the directions of a weight."""

    def __init__(self, weight: Tensor, dim: int | None) -> None:
        self.dim = dim
        self.original0, self.original1 = Parameter(_norms(weight, dim)), Parameter(weight)

    def forward(self) -> Tensor:
        return weight_of(self.original1, self.original0, self.dim)


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """The module, whose weight is computed from `parametrizations.weight.original0` and `original1`.

    Raises:
        ValueError: for a name that is no parameter of the module.
    """
    weight = _taken(module, name)
    if not hasattr(module, "parametrizations"):
        module.parametrizations = Module()  # type: ignore[attr-defined]  # of any module
    setattr(module.parametrizations, name, _WeightNorm(weight, dim))  # type: ignore[attr-defined]
    module.computed_weights = {**module.computed_weights, name: partial(_inside, name)}
    return module


def weight_norm_by_name(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """The module, whose weight is computed from its parameters `weight_g` and `weight_v`.

    Raises:
        ValueError: for a name that is no parameter of the module.
    """
    weight = _taken(module, name)
    setattr(module, f"{name}_g", Parameter(_norms(weight, dim)))
    setattr(module, f"{name}_v", Parameter(weight))
    module.computed_weights = {**module.computed_weights, name: partial(_beside, name, dim)}
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """The module, whose weight is a parameter again.

    Raises:
        ValueError: for a weight that is not computed.
    """
    if name not in module.computed_weights:
        raise ValueError(f"remove_weight_norm: {name} of {type(module).__name__} has no weight_norm")
    weight = Parameter(getattr(module, name))
    module.computed_weights = {other: compute for other, compute in module.computed_weights.items() if other != name}
    for part in (f"{name}_g", f"{name}_v"):
        vars(module).pop(part, None)
    inside = vars(module).get("parametrizations")
    if inside is not None:
        vars(inside).pop(name, None)
        if not list(inside.children()):  # others may still be computed
            del module.parametrizations  # type: ignore[attr-defined]  # of any module
    setattr(module, name, weight)
    return module


def _taken(module: Module, name: str) -> Parameter:
    """A parameter, which is no attribute of the module any more."""
    weight = vars(module).get(name)
    if not isinstance(weight, Parameter):
        own = ", ".join(name for name, value in vars(module).items() if isinstance(value, Parameter)) or "none"
        raise ValueError(f"weight_norm: {name} is no parameter of {type(module).__name__}; it has {own}")
    delattr(module, name)
    return weight


def _inside(name: str, module: Module) -> Tensor:
    weight: Tensor = getattr(module.parametrizations, name)()  # type: ignore[attr-defined]
    return weight


def _beside(name: str, dim: int | None, module: Module) -> Tensor:
    return weight_of(getattr(module, f"{name}_v"), getattr(module, f"{name}_g"), dim)
