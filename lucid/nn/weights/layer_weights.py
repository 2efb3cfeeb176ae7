"""Finding and replacing the weights of a model's layers, quantized or not."""

from __future__ import annotations

import copy
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from lucid.core.words.name_patterns import names
from lucid.nn.module import Module, WeightUse
from lucid.nn.parameters import Parameter
from lucid.nn.quantized import WeightModule
from lucid.ops.tensor.tensor import Tensor

M = TypeVar("M", bound=Module)
Identity: TypeAlias = tuple[int, bool]


class LayerWeight(NamedTuple):
    """A parameter that its module reads in one way (`Module.quantizable`)."""

    path: str  # of the module
    module: Module
    name: str  # of the parameter
    use: WeightUse
    parameter: Parameter

    @property
    def key(self) -> str:
        """The name of the weight in `state_dict`."""
        return f"{self.path}.{self.name}" if self.path else self.name

    @property
    def tensor(self) -> Tensor:
        """(N outputs or entries, K inputs or width)."""
        return self.parameter.mT if self.use == "transposed" else self.parameter

    @property
    def identity(self) -> Identity:
        """What identifies the weight; layers that share it have equal ones."""
        return id(self.parameter), self.use == "transposed"

    def matches(self, pattern: str) -> bool:
        """Whether a pattern names the layer or its parameter."""
        return names(pattern, self.key)

    def replace(self, weight: WeightModule) -> None:
        """Replace the parameter by a weight."""
        setattr(self.module, self.name, weight)


def layer_weights(model: Module, smallest_table: int = 0) -> list[LayerWeight]:
    """The weights of products, and of tables with so many rows or a weight that a product shares."""
    weights = list(_parameters(model))
    multiplied = {id(weight.parameter) for weight in weights if weight.use != "table"}
    return [w for w in weights if id(w.parameter) in multiplied or w.parameter.size(0) >= smallest_table]


def _parameters(model: Module) -> Iterator[LayerWeight]:
    return (LayerWeight(*each) for each in _declared(model) if isinstance(each[-1], Parameter))


def _declared(model: Module) -> Iterator[tuple[str, Module, str, WeightUse, Any]]:
    """The attributes that modules declare: path and module, name and use, value."""
    for path, module in model.named_modules():
        for name, use in module.quantizable.items():
            yield path, module, name, use, getattr(module, name)


class WeightPlace(NamedTuple):
    """The place of a weight that a module declares: the module's path, and the name of the attribute."""

    path: str
    name: str

    @property
    def key(self) -> str:
        """The name of the weight in `state_dict`."""
        return ".".join(filter(None, self))

    @property
    def layer(self) -> str:
        """The name that `LayerWeight.matches` takes: the module's path, or the attribute's if that is not `weight`."""
        return self.path if self.name == "weight" else self.key


def weight_modules(model: Module) -> dict[WeightPlace, WeightModule]:
    """The weights that are modules; a shared one is at the place of each layer."""
    declared = _declared(model)
    return {WeightPlace(path, name): value for path, _, name, _, value in declared if isinstance(value, WeightModule)}


def declared_weights(model: Module) -> dict[WeightPlace, tuple[Parameter | WeightModule, WeightUse]]:
    """The weights that modules declare, as they are there, and how each is used."""
    return {
        WeightPlace(path, name): (value, use)
        for path, _, name, use, value in _declared(model)
        if isinstance(value, (Parameter, WeightModule))
    }


def weights_at(model: Module, places: Iterable[WeightPlace]) -> dict[WeightPlace, Tensor | WeightModule]:
    """The weights (N outputs or entries, K inputs or width) at the places that have one."""
    there: dict[WeightPlace, Tensor | WeightModule] = {
        WeightPlace(each.path, each.name): each.tensor for each in _parameters(model)
    }
    there |= weight_modules(model)
    return {place: there[place] for place in places if place in there}


def with_weights(model: M, weights: Mapping[WeightPlace, Parameter | WeightModule]) -> M:
    """A copy with other weights at these places; everything else is shared."""
    copy_ = copy_of(model)
    modules = dict(copy_.named_modules())
    for place, weight in weights.items():
        setattr(modules[place.path], place.name, weight)
    return copy_


def parameter_count(model: Module) -> int:
    """The number of parameters of a model; a quantized weight counts as the parameter that it replaces."""
    quantized = (module for module in model.modules() if isinstance(module, WeightModule) and module.quantized)
    stored = {id(weight): weight for weight in quantized}.values()
    inside = {id(parameter) for weight in stored for parameter in weight.parameters()}
    floats: int = sum(each.numpy().size for each in model.parameters() if id(each) not in inside)
    return floats + sum(int(math.prod(weight.shape)) for weight in stored)


def unchanged_bytes(model: Module) -> dict[str, int]:
    """The bytes of parameters that are not quantized, by the type of their module, most first."""
    modules, taken = dict(model.named_modules()), Counter[str]()
    for key, parameter in model.named_parameters():
        module = modules[key.rpartition(".")[0]]
        if not isinstance(module, WeightModule):
            taken[type(module).__name__] += parameter.numpy().nbytes
    return dict(taken.most_common())


def copy_of(model: M) -> M:
    """A copy of the tree of modules, which shares the tensors."""
    tensors = [tensor for _, tensor in (*model.named_parameters(), *model.named_buffers())]
    return copy.deepcopy(model, {id(tensor): tensor for tensor in tensors})
