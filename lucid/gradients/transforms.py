"""`value_and_grad` and `grad`: functions that compute the gradients of a function, eagerly or as nodes of a trace."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np

import lucid.gradients.elementwise
import lucid.gradients.moving
import lucid.gradients.neural  # noqa: F401  # they fill in the rules
from lucid.core.graph.graph import Graph
from lucid.core.graph.names import Names
from lucid.core.graph.pytree import fill, flatten_tree
from lucid.core.graph.scope import Read, Scope, entered, restored_attributes, scope, with_stand_ins
from lucid.core.graph.types import Array
from lucid.core.graph.values import Input, Value
from lucid.core.process.cache_keys import value_key
from lucid.core.words.name_patterns import named
from lucid.core.words.safe_text import listed
from lucid.core.words.user_code import located_errors, warn
from lucid.gradients.tape import GradientError, Tape, filled
from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.ops.creation import ones_like
from lucid.ops.tensor.tensor import Tensor

Wrt: TypeAlias = Module | Sequence[Module | str] | None

_KEPT = 64
"""The most traced functions that are remembered for the types of their arguments."""


def value_and_grad(f: Callable[..., Any], wrt: Wrt = None, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the value of `f` and its gradients.

    ::

        value, (to_x, to_y) = lucid.value_and_grad(f)(x, y)                # with respect to the arguments

        def loss(ids, labels):
            return F.cross_entropy(model(ids), labels)

        value, gradients = lucid.value_and_grad(loss, wrt=model)(ids, labels)   # {"head.weight": ..., ...}

    It may be called eagerly, where `f` is traced for the types of the arguments, once, and NumPy computes the graph; or
    while a model is traced, where the gradients become nodes of that trace, which every target can compute, and which
    may be differentiated again. What `f` reads besides its arguments and the modules of `wrt` is fixed when it is
    traced. What a module assigns to its attributes, such as ``self.weights = w``, is gone afterwards: return it, with
    `has_aux`.

    Args:
        f: a function of tensors, or of nested lists, tuples and dicts of them, that gives a floating-point scalar.
        wrt: what the gradients are with respect to: None for the arguments; a module for its parameters; or a module
            and patterns of parameters' names, ``(model, "head.*", "*.bias")``. Parameters whose `requires_grad` is
            false have no gradients. What depends on none of these is computed as without gradients.
        has_aux: whether `f` gives a pair, the scalar and something else that is returned with it, such as logits.

    Returns:
        A function of the arguments of `f` that returns (value, gradients), or ((value, aux), gradients). Gradients of
        arguments have the structure of these, without a tuple around a single one, and None for integers and booleans;
        those of parameters are a dict by name. What the value does not depend on has a gradient of zeros; for a
        parameter, a warning says so.

    Raises:
        TypeError: if `f` is not callable, or `wrt` is anything else.
        GradientError: a ValueError, for patterns that match no parameter, and for a module without any. Calls raise it
            for a value that is no scalar, an op without a derivative, and, without `wrt`, if no argument is of floats.
    """
    if not callable(f):
        raise TypeError(f"value_and_grad: got {type(f).__name__}, expected a function that gives a scalar")
    parameters = None if wrt is None else _Parameters.of(wrt)
    return functools.update_wrapper(_Differentiated(f, parameters, has_aux), f, ("__name__", "__doc__"), ())


def grad(f: Callable[..., Any], wrt: Wrt = None, *, has_aux: bool = False) -> Callable[..., Any]:
    """A function that gives the gradients of `f`, as `value_and_grad` does; with `has_aux` (gradients, aux)."""
    both = value_and_grad(f, wrt, has_aux=has_aux)

    def gradients(*args: Any, **kwargs: Any) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return functools.update_wrapper(gradients, f, ("__name__", "__doc__"), ())


def chosen_parameters(wrt: Module | Sequence[Module | str]) -> dict[str, Parameter]:
    """The parameters by name with respect to which `value_and_grad` gives gradients; its errors."""
    return _Parameters.of(wrt).chosen()


class _Parameters(NamedTuple):
    """The parameters with respect to which gradients are wanted: patterns of the names of a module's parameters."""

    module: Module
    patterns: tuple[str, ...]

    @classmethod
    def of(cls, wrt: Module | Sequence[Module | str]) -> _Parameters:
        module, *patterns = wrt if isinstance(wrt, (tuple, list)) else (wrt,)
        if not isinstance(module, Module) or not all(isinstance(pattern, str) for pattern in patterns):
            expected = 'None, a module, or a module and patterns of names: (model, "head.*")'
            raise TypeError(f"value_and_grad: wrt is of type {type(wrt).__name__}, expected {expected}")
        parameters = cls(module, tuple(map(str, patterns)))
        parameters.chosen()
        return parameters

    def chosen(self) -> dict[str, Parameter]:
        """The parameters by name.

        Raises:
            GradientError: for a pattern that matches none, or where there is none.
        """
        own = {
            name: parameter
            for name, parameter in self.module.named_parameters()
            if parameter.requires_grad and parameter.dtype.kind == "float"
        }
        if not own:
            raise GradientError(
                f"value_and_grad: {type(self.module).__name__} has no floating-point parameter with requires_grad"
            )
        try:
            matched = named("wrt", self.patterns, list(own))
        except ValueError as error:
            raise GradientError(f"value_and_grad: {error}") from None
        return {name: parameter for name, parameter in own.items() if name in matched or not self.patterns}


class _Call(NamedTuple):
    """The arguments of a call: their structure, what stands in it by path, and where the tensors are."""

    structure: Any
    leaves: list[Any]
    tensors: dict[str, Tensor]

    @classmethod
    def of(cls, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Call:
        structure, leaves = flatten_tree((args, kwargs))
        tensors = {
            _name(path): x if isinstance(x, Tensor) else Tensor(x) for path, x in leaves.items() if _is_tensor(x)
        }
        return cls(structure, list(leaves.values()), tensors)

    def filled(self, values: Sequence[Any], others: bool) -> Any:
        """The arguments with other values in the places of tensors; what is no tensor is kept if `others`."""
        following = iter(values)
        return fill(self.structure, [next(following) if _is_tensor(x) else x if others else None for x in self.leaves])

    def key(self) -> Hashable:
        """The same for calls for which a function is traced alike."""
        rest = [x for x in self.leaves if not _is_tensor(x)]
        for value in rest:
            if not isinstance(value, Hashable):
                raise TypeError(
                    f"value_and_grad: an argument is or holds {type(value).__name__}, expected tensors, arrays, lists, "
                    "tuples, dicts and Python values that can be hashed"
                )
        return repr(self.structure), tuple(x.spec for x in self.tensors.values()), tuple(map(value_key, rest))


class _Traced(NamedTuple):
    """A function and its gradients as values of a graph: inputs for arguments and parameters, outputs, and what is
    returned, with the numbers of outputs."""

    inputs: list[Input]
    outputs: list[Value]
    returned: Any


class _Program(NamedTuple):
    """A traced function, the module arrays that are fixed in it, and the other arrays that it reads."""

    graph: Graph
    fixed: list[Array]
    read: Read


class _Differentiated:
    """The result of `value_and_grad`."""

    def __init__(self, f: Callable[..., Any], parameters: _Parameters | None, has_aux: bool) -> None:
        self._f, self._parameters, self._has_aux = f, parameters, has_aux
        self._programs: dict[Hashable, _Program] = {}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = _Call.of(args, kwargs)
        if self._parameters is None and all(x.dtype.kind != "float" for x in call.tensors.values()):
            raise GradientError("value_and_grad: no argument is a floating-point tensor; for a model give wrt=model")
        own = {} if self._parameters is None else self._parameters.chosen()
        operands = (*call.tensors.values(), *own.values())
        if scope.get() is not None or any(tensor.is_traced for tensor in operands):
            traced = self._traced(call, own)
            known = dict(zip(map(id, traced.inputs), operands, strict=True))
            return fill(traced.returned, Tape([]).replay(traced.outputs, known))
        graph, _, read = self._program(call, own)
        operands = (*operands, *(parameter for parameter, _ in read.parameters.values()))
        return graph.rebuild([Tensor.from_array(array) for array in graph.run([tensor.numpy() for tensor in operands])])

    def _program(self, call: _Call, own: Mapping[str, Parameter]) -> _Program:
        """The graph for such a call, traced unless a current one exists."""
        module = None if self._parameters is None else self._parameters.module
        state = {} if module is None else {name: tensor.numpy() for name, tensor in module.state_dict().items()}
        varied = {id(parameter.numpy()) for parameter in own.values()}
        fixed = [array for array in state.values() if id(array) not in varied]
        modules = () if module is None else module.modules()
        modes = tuple((type(inner), inner.training, inner.recomputed) for inner in modules)
        key = call.key(), tuple((name, parameter.spec) for name, parameter in own.items()), modes
        program = self._programs.get(key)
        if program is None or [*map(id, fixed)] != [*map(id, program.fixed)] or not program.read.is_current():
            names, read = Names(state.items()), Read({}, {})
            with entered(Scope("", {}, names, read=read)), located_errors():
                traced = self._traced(call, own)
            outputs = {f"output_{i}": value for i, value in enumerate(traced.outputs)}
            if len(self._programs) >= _KEPT:
                self._programs.clear()
            inputs = [*traced.inputs, *(value for _, value in read.parameters.values())]
            program = self._programs[key] = _Program(Graph(inputs, outputs, names, traced.returned), fixed, read)
        return program

    def _placed(self) -> AbstractContextManager[None]:
        """Inside, nodes belong to the modules of `wrt`, unless these have names in the model that is traced."""
        here = scope.get() or Scope("", {})
        modules = () if self._parameters is None else self._parameters.module.named_modules()
        return entered(here._replace(names={**{id(module): path for path, module in modules}, **here.names}))

    def _traced(self, call: _Call, own: Mapping[str, Parameter]) -> _Traced:
        """Call the function on placeholders, and go back through what it computed."""
        arguments = [Input(name, tensor.spec) for name, tensor in call.tensors.items()]
        weights = [Input(name, parameter.spec) for name, parameter in own.items()]
        sources = weights if self._parameters else [value for value in arguments if value.type.dtype.kind == "float"]
        tensors = {id(value): Tensor.from_value(value) for value in (*arguments, *weights)}
        args, kwargs = call.filled([tensors[id(value)] for value in arguments], others=True)
        with self._placed(), with_stand_ins(dict(zip(map(id, own.values()), weights, strict=True))):
            with entered(cast(Scope, scope.get())._replace(placed=True)), restored_attributes():
                structure, results = _results(self._f(*args, **kwargs), self._has_aux)
            tape = Tape(tensors[id(value)] for value in sources)
            outputs = tape.replay([x.to_value() for x in results], tensors)
            reached = tape.gradients(outputs[:1], [ones_like(outputs[0])], [tensors[id(value)] for value in sources])
            unreached = [value.name for value, gradient in zip(sources, reached, strict=True) if gradient is None]
            if unreached and self._parameters is not None:
                warn(
                    f"value_and_grad: the value does not depend on {listed(unreached)}: the gradient is zeros; freeze "
                    "parameters with requires_grad_(False), or name others in wrt"
                )
            places = {id(value): len(outputs) + i for i, value in enumerate(sources)}
            outputs += filled(reached, [tensors[id(value)] for value in sources])
        gradients: Any = {name: places[id(value)] for name, value in zip(own, weights, strict=True)}
        if self._parameters is None:
            positional, by_name = call.filled([places.get(id(value)) for value in arguments], others=False)
            gradients = (*positional, by_name) if by_name else positional[0] if len(positional) == 1 else positional
        return _Traced([*arguments, *weights], [x.to_value() for x in outputs], (structure, gradients))


def _results(returned: Any, has_aux: bool) -> tuple[Any, list[Tensor]]:
    """The structure of a function's result, and its tensors; the first is the scalar.

    Raises:
        GradientError: for anything but a scalar, with `has_aux` a pair of one and a structure of tensors.
    """
    if has_aux and not (isinstance(returned, tuple) and len(returned) == 2):
        raise GradientError(f"value_and_grad: the function gave {_shown(returned)}, expected (scalar, aux) for has_aux")
    scalar = returned[0] if has_aux else returned
    if not isinstance(scalar, Tensor) or scalar.ndim or scalar.dtype.kind != "float":
        raise GradientError(
            f"value_and_grad: the function gave {_shown(scalar)}, expected a floating-point scalar, such as loss.mean()"
            + ("" if has_aux or not isinstance(scalar, tuple) else "; write has_aux=True for (scalar, aux)")
        )
    structure, leaves = flatten_tree(returned)
    for leaf in leaves.values():
        if not _is_tensor(leaf):
            raise GradientError(
                f"value_and_grad: aux holds {_shown(leaf)}, expected tensors, None, lists, tuples, dicts"
            )
    return structure, [leaf if isinstance(leaf, Tensor) else Tensor(leaf) for leaf in leaves.values()]


def _shown(value: Any) -> str:
    return str(value.spec) if isinstance(value, Tensor) else type(value).__name__


def _name(path: str) -> str:
    """The name of an argument: ``x.0`` by position, its own by name."""
    return f"x{path[2:]}" if path.startswith(".0.") else path[3:]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray))
