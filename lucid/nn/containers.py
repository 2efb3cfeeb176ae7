"""Containers of modules. Plain lists and dicts of modules work as well; these are modules themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lucid.core.words.other_libraries import advice, type_name
from lucid.nn.module import Module


class ModuleList(Module):
    """A list of modules; their parameters are named ``0.weight``, ``1.weight`` and so on."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._items = [_checked(type(self).__name__, index, module) for index, module in enumerate(modules)]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return ((str(index), module) for index, module in enumerate(self._items))

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self._items.append(_checked("ModuleList", len(self._items), module))

    def __getitem__(self, index: int) -> Module:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


class Sequential(ModuleList):
    """Modules that run one after the other, each on the result of the one before."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x

    def input_specs(self) -> Mapping[str, Any]:
        """The inputs of the first module."""
        first = self._items[0].input_specs() if self._items else {}
        return {"x": next(iter(first.values()))} if len(first) == 1 else {}


class ModuleDict(Module):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        self._items = {name: _checked("ModuleDict", name, module) for name, module in (modules or {}).items()}

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(self._items.items())

    def __getitem__(self, name: str) -> Module:
        return self._items[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self._items[name] = _checked("ModuleDict", name, module)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._items.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._items.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._items.items()


def _checked(container: str, place: int | str, module: Module) -> Module:
    if not isinstance(module, Module):
        raise TypeError(
            f"{container}: item {place} is {type_name(module)}, expected a module; "
            f"{advice(module) or 'Sequential takes them one by one: Sequential(*modules)'}"
        )
    return module
