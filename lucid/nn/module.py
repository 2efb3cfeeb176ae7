"""Modules: plain classes whose parameters, buffers and children are found by walking their attributes in order."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, cast

import numpy as np

from lucid.core.graph.pytree import fill, flatten_tree
from lucid.core.graph.scope import Scope, entered, is_differentiated, note_traced, scope, why_taken_out
from lucid.core.graph.types import TensorType, array_type, as_dtype, convert, show_shape
from lucid.core.process.context import holding, is_evaluating
from lucid.core.torch_names.argument_names import forward_arguments
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words import html
from lucid.core.words.package_names import unknown
from lucid.core.words.safe_text import listed
from lucid.nn._state_keys import OtherKeys, differences
from lucid.nn.parameters import Buffer, Parameter
from lucid.ops.creation import wanted_type
from lucid.ops.loops import scan
from lucid.ops.operand_conversion import are_tensors, arrays_as_tensors
from lucid.ops.tensor.tensor import Tensor

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
C = TypeVar("C", bound=Callable[..., Any])


WeightUse: TypeAlias = Literal["linear", "transposed", "table"]


class Forward(Protocol[P, R]):
    """A module for type checkers: its call has the signature of its class's forward."""

    def forward(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Compute the outputs."""
        raise NotImplementedError


def _inside(module: object) -> AbstractContextManager[None]:
    """Inside, nodes made while tracing belong to a module."""
    here = scope.get()
    return nullcontext() if here is None else entered(here._replace(path=here.names.get(id(module), here.path)))


_running: ContextVar[object] = ContextVar("lucid_running", default=None)  # the module whose `forward` runs, or its like


def scoped(method: C) -> C:
    """Decorate a method of a module, such as a decode step: its nodes then belong to the module, as in `forward`."""

    @functools.wraps(method)
    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        with holding(_running, self), _inside(self):
            return method(self, *args, **kwargs)

    return cast(C, call)


class Module:
    """The base of all modules.

    Assign parameters, tensors (buffers) and modules to attributes in ``__init__``, also in lists and dicts of modules,
    and define `forward`. An attribute whose name begins with ``_`` is private: a tensor there is not part of the state.
    Neither is a tensor that `forward` assigns to a new name, to be looked at; after a trace the attribute is as before.

    A module starts in evaluation mode: the eager run computes what is exported. `train()` turns dropout on.
    """

    _training: bool = False
    _recomputed: bool = False

    computed_weights: Mapping[str, Callable[[Any], Tensor]] = {}
    """Weights by name that are computed from this module's parameters when they are read (`nn.utils.weight_norm`)."""

    quantizable: ClassVar[Mapping[str, WeightUse]] = {}
    """The parameters (rows, columns) that `lucid.quantize` may replace by quantized weights, each with the one way in
    which this class reads it: "linear", by `F.linear`, and perhaps also as a table; "transposed", by
    `F.linear(..., transposed=True)`; "table", by `F.embedding` or as `weight[start:stop]`."""

    output_names: ClassVar[Sequence[str]] = ()
    """The names of the outputs of `forward` in a trace or export, in order; by default `output`, `output_0`, ...,
    or the keys of a dict."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; subclasses define this."""
        raise NotImplementedError(f"{type(self).__name__} has no forward(): define it with the module's computation")

    def __call__(self: Forward[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `forward`; torch's names of arguments also work. Outside of `forward`, NumPy's arrays become tensors."""
        if kwargs:
            kwargs = forward_arguments(type(self).forward, kwargs)  # type: ignore[assignment]  # of the same forward
        if _running.get() is None and (kwargs or not are_tensors(args)):
            args, kwargs = arrays_as_tensors(args, kwargs)  # type: ignore[assignment]  # of the same forward
        with holding(_running, self), _inside(self):
            if isinstance(self, Module) and is_differentiated():
                if read := cast(Scope, scope.get()).read:
                    read.modes[id(self)] = self, (self.training, self.recomputed)
                if self._recomputed:
                    return cast(R, _in_one_step(self.forward, args, kwargs))
            return self.forward(*args, **kwargs)

    def input_specs(self) -> Mapping[str, TensorType]:
        """The default inputs to trace with, by argument name; empty for a module without known inputs."""
        return {}

    def file_notes(self) -> Mapping[str, str]:
        """Metadata of an exported file, by key; empty for most modules."""
        return {}

    # Training and evaluation ------------------------------------------------------------------------------------------

    @property
    def training(self) -> bool:
        """Whether dropout is active: after `train()`, but not while a model is traced or compared with its export."""
        return self._training and not is_evaluating()

    @property
    def recomputed(self) -> bool:
        """Whether gradients compute this module once more: after `nn.recompute`."""
        return self._recomputed

    def train(self, mode: bool = True) -> Self:
        """Set training mode for this module and all inside it."""
        for module in self.modules():
            module._training = mode
        return self

    def eval(self) -> Self:
        """Set evaluation mode: no dropout."""
        return self.train(False)

    # Children, parameters and buffers ---------------------------------------------------------------------------------

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """The modules directly inside, those in lists and dicts under ``list.0`` and ``dict.key``.

        A child under the name "" has the module's own name, such as the weight to which an `nn.LoRA` adds.
        """
        for name, value in vars(self).items():
            if isinstance(value, (Module, list, tuple, dict)):  # most are not: tensors and options
                yield from _modules_in(name, value)

    def children(self) -> Iterator[Module]:
        """The modules directly inside."""
        return (module for _, module in self.named_children())

    @property
    def _modules(self) -> MutableMapping[str, Module]:
        """The modules that are attributes, as ported code reads and replaces them."""
        return _Children(vars(self))

    def get_submodule(self, path: str) -> Module:
        """The module inside at a dotted path, by any of its names; "" is this one.

        Raises:
            KeyError: for a path without a module.
        """
        if not path:
            return self
        children = dict(self.named_children())
        for name, child in children.items():
            if name and f"{path}.".startswith(f"{name}."):
                return child.get_submodule(path[len(name) + 1 :])
        raise KeyError(f"{type(self).__name__} has no module {path!r}; it has {listed(children) or 'none'}")

    def add_module(self, name: str, module: Module | None) -> None:
        """Assign a module to an attribute of this name, which need not be one of Python's names."""
        vars(self)[name] = module

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """This module and all inside it by path, each once, parents first."""
        seen: set[int] = set()
        stack: list[tuple[str, Module]] = [(prefix, self)]
        while stack:
            path, module = stack.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            yield path, module
            children = [(_joined(path, name), child) for name, child in module.named_children()]
            stack.extend(reversed(children))

    def modules(self) -> Iterator[Module]:
        """This module and all inside it."""
        return (module for _, module in self.named_modules())

    def _named_tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All parameters and buffers under every name they have.

        Raises:
            ValueError: for a module that contains itself.
        """
        stack: list[tuple[str, Module, frozenset[int]]] = [("", self, frozenset())]
        while stack:
            path, module, outside = stack.pop()
            if id(module) in outside:
                raise ValueError(
                    f"{type(self).__name__}: {path} is a module that contains itself; "
                    "keep references to outer modules out of the attributes"
                )
            for name, value in vars(module).items():
                if isinstance(value, Tensor) and not name.startswith("_"):
                    yield _joined(path, name), value
            inside = [(_joined(path, name), child, outside | {id(module)}) for name, child in module.named_children()]
            stack.extend(reversed(inside))

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Each parameter once, under its first name."""
        seen: set[int] = set()
        for name, tensor in self._named_tensors():
            if isinstance(tensor, Parameter) and id(tensor) not in seen:
                seen.add(id(tensor))
                yield name, tensor

    def parameters(self) -> Iterator[Parameter]:
        """Each parameter once."""
        return (parameter for _, parameter in self.named_parameters())

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors that are not parameters, persistent or not."""
        return ((name, t) for name, t in self._named_tensors() if not isinstance(t, Parameter))

    def buffers(self) -> Iterator[Tensor]:
        """The tensors that are not parameters, persistent or not."""
        return (tensor for _, tensor in self.named_buffers())

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Assign a tensor that is not learned, as ``self.name = tensor`` does; part of the state if `persistent`."""
        computed = tensor is None or (persistent and tensor.is_traced)
        setattr(self, name, tensor if computed else Buffer(tensor, persistent=persistent))

    def register_parameter(self, name: str, parameter: Parameter | None) -> None:
        """Assign a parameter, as ``self.name = parameter`` does."""
        setattr(self, name, parameter)

    def requires_grad_(self, requires_grad: bool = True) -> Self:
        """Set for all parameters whether `lucid.value_and_grad` gives gradients of them; a frozen one costs nothing."""
        for parameter in self.parameters():
            parameter.requires_grad = requires_grad
        return self

    def apply(self, function: Callable[[Module], object]) -> Self:
        """Call a function with every module inside, children first, then with this one."""
        for module in reversed(list(self.modules())):
            function(module)
        return self

    # State ------------------------------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Tensor]:
        """All parameters and persistent buffers by dotted path; a shared one appears under each of its names."""
        return {name: t for name, t in self._named_tensors() if not isinstance(t, Buffer) or t.persistent}

    def renamed_keys(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Hook for modules that also read other state keys: convert this module's entries of a state dict to its own.

        Raises:
            StateError: for entries that do not fit.
        """
        return dict(state)

    def register_load_state_dict_pre_hook(self, hook: Callable[..., object]) -> None:
        """Call ``hook(module, state, prefix, metadata, strict, missing_keys, unexpected_keys, errors)`` before a state
        dict is loaded, as torch does; the hook changes `state`, a copy, in place, and may append to `errors`. Models of
        your own define `renamed_keys`.
        """
        self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable[..., object], with_module: bool = False) -> None:
        hooks = vars(self).setdefault("_before_loading", [])
        hooks.append(functools.partial(hook, self) if with_module else hook)

    def load_state_dict(self, state: Mapping[str, Any], strict: bool = True, assign: bool = False) -> OtherKeys:
        """Load parameters and buffers, converted to this module's element types.

        An array that already has the right type is not copied. With `assign`, arrays for floating-point tensors keep
        their types and are not copied.

        With `strict=False` missing and unexpected keys are accepted and returned, as in torch; a wrong shape never is.

        Raises:
            StateError: a KeyError that lists every list of layers of another length, every other missing and unexpected
                key and every wrong shape. Nothing is loaded then.
            OverflowError: for a number that the element type of its parameter cannot hold. Nothing is loaded then.
        """
        state = dict(state)
        problems: list[str] = []
        for path, module in self.named_modules():
            prefix = f"{path}." if path else ""
            for hook in vars(module).get("_before_loading", ()):
                hook(state, prefix, {}, strict, [], [], problems)
            if type(module).renamed_keys is Module.renamed_keys:
                continue
            try:
                state = _rename_keys(module, prefix, state)
            except StateError as error:
                problems.append(f"{path}: {error}" if path else str(error))
        own = self.state_dict()
        arrays = {
            key: value.numpy() if isinstance(value, Tensor) else np.asarray(value) for key, value in state.items()
        }
        others = OtherKeys([key for key in own if key not in arrays], [key for key in arrays if key not in own])
        problems += differences(own.keys(), arrays.keys()) if strict else []
        renewed = {key: tensor for key, tensor in own.items() if key in arrays}
        for key, tensor in renewed.items():
            if arrays[key].dtype.kind in "cmMOSU":  # complex numbers, times, objects, text
                problems.append(f"{key} has dtype {arrays[key].dtype}, expected real numbers")
            elif arrays[key].shape != tensor.shape:
                problems.append(f"{key} has shape {show_shape(arrays[key].shape)}, expected {show_shape(tensor.shape)}")
        if problems:
            raise StateError(f"{type(self).__name__}: nothing loaded; " + "; ".join(problems))
        kept = {
            key
            for key, tensor in renewed.items()
            if assign and tensor.dtype.kind == "float" and as_dtype(arrays[key].dtype).kind == "float"
        }
        dtypes = {key: as_dtype(arrays[key].dtype) if key in kept else tensor.dtype for key, tensor in renewed.items()}
        converted = {key: convert(arrays[key], dtypes[key], key) for key in renewed}
        for key, tensor in renewed.items():
            tensor._set(converted[key], array_type(dtypes[key].numpy, converted[key].shape))
        return others

    def to(self, *target: Any, **options: Any) -> Self:
        """Convert all floating-point parameters and buffers to a floating-point element type, or that of a tensor.

        The CPU, torch's only device that is here, changes nothing.

        Raises:
            TypeError: for another type.
            ValueError: for another device.
            OverflowError: for a number that the element type cannot hold, naming its key. Nothing is changed then.
        """
        dtype = wanted_type(*target, **options)
        if dtype is None:
            return self
        type_ = as_dtype(dtype)
        if type_.kind != "float":
            raise TypeError(f"to: got {type_}, expected a floating-point type; for 4 or 8 bits see lucid.quantize")
        floats = {key: tensor for key, tensor in self._named_tensors() if tensor.dtype.kind == "float"}
        converted = {key: convert(tensor.numpy(), type_, key) for key, tensor in floats.items()}
        for key, tensor in floats.items():
            tensor._set(converted[key], array_type(type_.numpy, converted[key].shape))
        return self

    def cpu(self) -> Self:
        """This module, which is there already."""
        return self

    def float(self) -> Self:
        """Convert to float32."""
        return self.to("float32")

    def double(self) -> Self:
        """Convert to float64."""
        return self.to("float64")

    def half(self) -> Self:
        """Convert to float16."""
        return self.to("float16")

    def bfloat16(self) -> Self:
        """Convert to bfloat16."""
        return self.to("bfloat16")

    if not TYPE_CHECKING:  # a type checker knows the attributes that there are

        def __setattr__(self, name: str, value: Any) -> None:
            before = vars(self).get(name)
            if isinstance(value, Tensor) and value.is_traced:
                note_traced(self, name, value, _loss(self, name, before))
            elif type(value) is Tensor and not name.startswith("_"):
                # As in torch, a name is persistent or not, and what forward keeps to be looked at is no state.
                new = not isinstance(before, Tensor) and _running.get() is self
                if new or (isinstance(before, Buffer) and not before.persistent):
                    value = Buffer(value, persistent=False)
            object.__setattr__(self, name, value)

        def __getattr__(self, name: str) -> Any:
            if name in self.computed_weights:
                return self.computed_weights[name](self)
            why = why_absent("Module", name) or why_taken_out(self, name)
            if why:
                raise unknown(f"{type(self).__name__!r} object", name, (), why)
            return object.__getattribute__(self, name)  # raises Python's error, or again that of a property

    # Text -------------------------------------------------------------------------------------------------------------

    def extra_repr(self) -> str:
        """The text between the parentheses after this module's name when it is printed."""
        return ""

    def __repr__(self) -> str:
        children = list(self.named_children())
        head = f"{type(self).__name__}({self.extra_repr()}"
        if not children:
            return head + ")"
        lines = [f"({name}): {child!r}".replace("\n", "\n  ") for name, child in children]
        return "\n  ".join([head, *lines]) + "\n)"

    def _repr_html_(self) -> str:
        count = sum(parameter.numpy().size for parameter in self.parameters())
        own = [(name, value.spec) for name, value in self._named_tensors() if "." not in name]
        inside = "".join(html.folded(name, child._repr_html_()) for name, child in self.named_children())
        head = html.paragraph(f"{type(self).__name__}({self.extra_repr()}): {count:,} parameters")
        return head + (html.table(("own tensor", "type"), own) if own else "") + inside


M = TypeVar("M", bound=Module)


def recompute(module: M, enabled: bool = True) -> M:
    """Compute a module once more in the reverse of `lucid.value_and_grad`, so that nothing inside is kept until then.

    This trades time for memory (Chen et al. 2016, "Training deep nets with sublinear memory cost"): with
    ``for layer in model.layers: nn.recompute(layer)`` only the inputs of layers are kept. Values and gradients stay the
    same, and so does a model without gradients. A module with active dropout cannot be recomputed.

    Args:
        module: the module, which is changed and returned.
        enabled: false to keep what is inside again.
    """
    module._recomputed = enabled
    return module


def _in_one_step(forward: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """A call as a loop of one step: the gradient of a loop computes its steps again, and runtimes do not undo that."""
    structure, leaves = flatten_tree((args, kwargs))
    tensors = {path: leaf.unsqueeze(0) for path, leaf in leaves.items() if isinstance(leaf, Tensor)}

    def step(carry: Any, rows: dict[str, Tensor]) -> Any:
        args, named = fill(structure, [rows.get(path, leaf) for path, leaf in leaves.items()])
        return carry, forward(*args, **named)

    outline, results = flatten_tree(scan(step, (), tensors, length=1)[1], lambda x: isinstance(x, Tensor))
    return fill(outline, [result.squeeze(0) for result in results.values()])


class _Children(MutableMapping[str, Module]):
    """The modules among the attributes of a module, under names that need not be Python's."""

    def __init__(self, attributes: dict[str, Any]) -> None:
        self._attributes = attributes

    def __getitem__(self, name: str) -> Module:
        if not isinstance(child := self._attributes[name], Module):
            raise KeyError(name)
        return child

    def __setitem__(self, name: str, module: Module) -> None:
        self._attributes[name] = module

    def __delitem__(self, name: str) -> None:
        del self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return (name for name, value in list(self._attributes.items()) if isinstance(value, Module))

    def __len__(self) -> int:
        return sum(1 for _ in self)


class StateError(KeyError):
    """A state dict does not fit a module."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show the message in quotes


def _loss(module: Module, name: str, before: Any) -> str:
    """What to say of a traced value that does not stay in an attribute: something if a state had to change."""
    passing = name.startswith("_") or (isinstance(before, Buffer) and not before.persistent)
    if passing or not isinstance(before, Tensor) or (here := scope.get()) is None or id(module) not in here.names:
        return ""  # no state, or that of a layer which forward made for itself
    return (
        f"{type(module).__name__}: forward assigns to {name}, a part of the state, which keeps its values: they are "
        "known only when the graph runs; return them, or assign to a private attribute to look at them eagerly"
    )


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def _modules_in(name: str, value: Any) -> Iterator[tuple[str, Module]]:
    if isinstance(value, Module):
        yield name, value
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _modules_in(f"{name}.{index}", item)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _modules_in(f"{name}.{key}", item)


def _rename_keys(module: Module, prefix: str, state: dict[str, Any]) -> dict[str, Any]:
    inside = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
    rest = {key: value for key, value in state.items() if not key.startswith(prefix)}
    return rest | {prefix + key: value for key, value in module.renamed_keys(inside).items()}
