"""Containers of modules and of parameters; plain lists and dicts of modules work as well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping, MutableSequence, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from lucid.core.words.other_libraries import advice, type_name
from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.ops.tensor.tensor import Tensor, TensorLike


class _Container(Module):
    """Modules by name, in order."""

    _items: dict[str, Module]

    def named_children(self) -> Iterator[tuple[str, Module]]:
        return iter(self._items.items())

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a module under a name, at the end or in the place of one."""
        if module is not None:
            self._items[name] = _checked(type(self).__name__, name, module)

    def __len__(self) -> int:
        return len(self._items)

    if not TYPE_CHECKING:  # a module inside has no type of its own

        def __getattr__(self, name: str) -> Module:
            inside = vars(self).get("_items", {})  # not there yet while a copy is made
            return inside[name] if name in inside else super().__getattr__(name)


class ModuleList(_Container):
    """A list of modules; their parameters are named ``0.weight``, ``1.weight`` and so on."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        self._items = {}
        self.extend(modules)

    def append(self, module: Module) -> None:
        """Add a module at the end."""
        self._items[str(len(self))] = _checked(type(self).__name__, len(self), module)

    def extend(self, modules: Iterable[Module]) -> None:
        """Add modules at the end."""
        for module in modules:
            self.append(module)

    def insert(self, index: int, module: Module) -> None:
        """Add a module before the one at a place."""
        modules = list(self)
        modules.insert(index, module)
        self._set_all(modules)

    def _set_all(self, modules: Iterable[Module]) -> None:
        self._items = {}
        self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        self.extend(modules)
        return self

    def __setitem__(self, index: int, module: Module) -> None:
        name = list(self._items)[index]
        self._items[name] = _checked(type(self).__name__, name, module)

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        return self._part(index) if isinstance(index, slice) else list(self._items.values())[index]

    def _part(self, places: slice) -> Self:
        return type(self)(list(self)[places])

    def __delitem__(self, index: int | slice) -> None:
        modules = list(self)
        del modules[index]
        self._set_all(modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items.values())


class Sequential(ModuleList):
    """Modules that run one after the other, each on the result of the one before: given one by one, or in one dict."""

    def __init__(self, *modules: Module | Mapping[str, Module]) -> None:
        by_name = modules[0] if len(modules) == 1 and isinstance(modules[0], Mapping) else None
        super().__init__(() if by_name is not None else modules)  # type: ignore[arg-type]  # no dicts among several
        for name, module in (by_name or {}).items():
            self.add_module(name, module)

    def _part(self, places: slice) -> Self:  # whose modules keep their names, as in torch
        return type(self)(dict(list(self._items.items())[places]))

    def forward(self, x: Any) -> Any:
        for module in self:
            x = module(x)
        return x

    def input_specs(self) -> Mapping[str, Any]:
        """The inputs of the first module."""
        first = next(iter(self)).input_specs() if len(self) else {}
        return {"x": next(iter(first.values()))} if len(first) == 1 else {}


class ModuleDict(_Container):
    """Modules by name."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        self._items = {}
        self.update(modules or {})

    def __getitem__(self, name: str) -> Module:
        return self._items[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self._items[name] = _checked("ModuleDict", name, module)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, or put them in the place of those with their names."""
        for name, module in dict(modules).items():
            self[name] = module

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


class _Parameters(Module):
    """Parameters by name, which are attributes."""

    def _named(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}

    def _put(self, name: str, value: TensorLike) -> None:
        if name.startswith("_") or hasattr(type(self), name):
            raise KeyError(f"{type(self).__name__}: {name!r} is a name of its own; choose another one")
        vars(self)[name] = value if isinstance(value, Parameter) else Parameter(value)

    def __len__(self) -> int:
        return len(self._named())


class ParameterList(_Parameters, MutableSequence[Any]):
    """A list of parameters, named ``0``, ``1`` and so on; other tensors and arrays become parameters."""

    def __init__(self, values: Iterable[TensorLike] = ()) -> None:
        self.extend(values)

    def _set_all(self, values: Sequence[TensorLike]) -> None:
        for name in self._named():
            del vars(self)[name]
        for place, value in enumerate(values):
            self._put(str(place), value)

    def insert(self, index: int, value: TensorLike) -> None:
        """Add a parameter before the one at a place."""
        values: list[TensorLike] = list(self._named().values())
        values.insert(index, value)
        self._set_all(values)

    def __getitem__(self, index: Any) -> Any:
        return list(self._named().values())[index]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._put(list(self._named())[index], value)

    def __delitem__(self, index: Any) -> None:
        values = list(self._named().values())
        del values[index]
        self._set_all(values)


class ParameterDict(_Parameters, MutableMapping[str, Any]):
    """Parameters by name; other tensors and arrays become parameters.

    Raises:
        KeyError: for a name that begins with ``_`` or is a method's.
    """

    def __init__(self, parameters: Mapping[str, TensorLike] | Iterable[tuple[str, TensorLike]] | None = None) -> None:
        self.update(parameters or {})

    __eq__, __hash__ = Module.__eq__, Module.__hash__

    def __getitem__(self, name: str) -> Any:
        return self._named()[name]

    def __setitem__(self, name: str, value: TensorLike) -> None:
        self._put(name, value)

    def __delitem__(self, name: str) -> None:
        del vars(self)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._named())


def _checked(container: str, place: int | str, module: Any) -> Module:
    if not isinstance(module, Module):
        raise TypeError(
            f"{container}: item {place} is {type_name(module)}, expected a module; "
            f"{advice(module) or 'Sequential takes them one by one: Sequential(*modules)'}"
        )
    return module
