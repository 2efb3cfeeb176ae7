"""Ops: each is defined once, and applies to arrays and to traced values alike.

A primitive has a NumPy kernel and a type rule. A composite has a body written in other ops: eagerly the body *is* the
implementation, its types come from the body, and an exporter that has no better form inlines it.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from importlib import import_module
from typing import Any, Generic, ParamSpec, TypeVar, cast

import numpy as np

from lucid.core.graph.loop_bodies import has_symbolic_size
from lucid.core.graph.scope import is_differentiated, new_node, no_gradients, scope
from lucid.core.graph.types import Array, TensorType
from lucid.core.graph.values import Attributes, Input, Origin
from lucid.core.process.context import holding
from lucid.core.process.numpy_errstate import without_warnings
from lucid.core.sizes.dims import identity
from lucid.core.sizes.limits import known_limits
from lucid.core.torch_names.argument_names import in_our_names, torch_names
from lucid.ops.checked_calls import CheckedCall, call_key
from lucid.ops.operand_conversion import (
    are_tensors,
    array_operands,
    arrays_of,
    as_tensors,
    half_beside_number,
    promoted,
    taking_arrays,
)
from lucid.ops.tensor.tensor import OPS, Tensor

P = ParamSpec("P")
R = TypeVar("R")

Kernel = Callable[..., Any]
Rule = Callable[..., Any]

REGISTERED: dict[str, Op[..., Any]] = {}  # every op by its name
_KEPT = 512  # checked calls that an op remembers


class Op(Generic[P, R]):
    """An operation on tensors. Tensors are positional arguments (None for an absent one), attributes are keywords.

    Raises:
        TypeError: for a positional argument that has another default than None, and without a body and a kernel.
        ValueError: for a name that another op has.

    Args:
        call: the Python signature, and for a composite the body.
        kernel: arrays and attributes to an array or a tuple of arrays.
        rule: types and attributes to a type or a tuple of types; raises TypeError or ValueError for wrong ones.
        body: the same in terms of other ops; None for a primitive.
        onnx: the ONNX op that computes exactly this, where there is one that takes the inputs as they are.
        promoted: the positional arguments that are brought to one element type before the op sees them.
        by_kind: replacements for the kinds of element types ("bool", "int", "float") that the op does not compute,
            called with the op, its operands as they came and its attributes. The first operand after promotion decides.
        beside_half: a replacement where one of two operands is in half precision and the other a number that this type
            may not hold (`half_beside_number`); called with the op, the operands as they came, and that type.
        folded: whether it is computed while tracing if all its arguments are known. Otherwise it stays a node of the
            graph: a dequantization, whose result is larger than its operands, and dropout, which is drawn in each run.
    """

    def __init__(
        self,
        call: Callable[P, R],
        *,
        name: str,
        kernel: Kernel | None = None,
        rule: Rule | None = None,
        body: Callable[P, R] | None = None,
        onnx: str | None = None,
        promoted: slice | None = None,
        by_kind: Mapping[str, Callable[..., Any]] | None = None,
        beside_half: Callable[..., Any] | None = None,
        folded: bool = True,
    ) -> None:
        parameters = inspect.signature(call).parameters.values()
        self.name, self.body, self.onnx, self.folded = name, body, onnx, folded
        self.arguments = tuple(p.name for p in parameters if p.kind is not p.KEYWORD_ONLY)
        self.variadic = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        named = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        for p in named:
            if p.default is not p.empty and p.default is not None:
                raise TypeError(
                    f"op {name}: {p.name}={p.default!r} is the default of an argument that may be given by its place, "
                    f"which is a tensor or None; write a star before options: ..., *, {p.name}={p.default!r}"
                )
        if body is None and (kernel is None or rule is None):
            raise TypeError(
                f"op {name}: has no body of other ops, so it needs a kernel and a rule; give kernel= and rule="
            )
        self._required = [p.name for p in named if p.default is p.empty]
        self.optional = tuple(p.name for p in named if p.default is not p.empty)
        self._usual = {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}  # all, in order
        self.attributes = tuple(self._usual)
        self.defaults = {name: value for name, value in self._usual.items() if value is not inspect.Parameter.empty}
        self._needed = self._usual.keys() - self.defaults.keys()
        self._known: dict[tuple[Any, ...], CheckedCall] = {}
        self._kernel, self._rule, self._promoted, self._by_kind = kernel, rule, promoted, by_kind
        self._beside_half = beside_half
        functools.update_wrapper(self, call)
        self.__name__ = name
        if REGISTERED.setdefault(name, self) is not self:
            raise ValueError(f"op {name}: an op of this name already exists; choose another name")
        OPS.setdefault(name, self)

    def __repr__(self) -> str:
        names = [p.replace(annotation=p.empty) for p in inspect.signature(self).parameters.values()]
        return f"<op {self.name}{inspect.Signature(names)}>"

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str, str]]:
        """Op names are unique: copies and pickles refer to the op itself."""
        return _registered, (self.__module__, self.name)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._kernel is not None and scope.get() is None and not _types_only.get():
            operands = array_operands(args)
            if operands is not None and (known := self._known_call(args, operands[1], kwargs)) is not None:
                return cast(R, known.tensors(without_warnings(known.kernel, *operands[0], *known.missing)))
        if kwargs and not kwargs.keys() <= self._usual.keys():
            return self._called_by_name(args, kwargs)
        if self._beside_half is not None and (half := half_beside_number(args)) is not None:
            return cast(R, self._beside_half(self, *args, half))
        tensors = self._tensors(args)
        together = self._together(tensors)
        if self._by_kind is not None and (instead := self._instead(together)) is not None:
            return cast(R, instead(self, *tensors, **kwargs))
        return cast(R, self.apply(together, self._attributes(kwargs)))

    def _together(self, tensors: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return tensors if self._promoted is None else promoted(tensors, self._promoted)

    def _instead(self, tensors: Sequence[Tensor | None]) -> Callable[..., Any] | None:
        assert self._by_kind is not None
        first = tensors[0]
        return None if first is None else self._by_kind.get(first.dtype.kind)

    def _called_by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> R:
        """A call with tensors by name, or with torch's argument names."""
        named = in_our_names(self.name, kwargs, (*self.arguments, *self.attributes))
        tensors: dict[str, Any] = dict(zip(self.arguments, args, strict=False))
        for name in () if self.variadic else self.arguments:
            if name in named:
                if name in tensors:
                    raise TypeError(f"{self.name}: {name} is given twice, by its place and by name")
                tensors[name] = named.pop(name)
        self._check_attributes(named)
        if len(tensors) > len(args):
            args = [tensors.get(name) for name in self.arguments]
        return self(*args, **named)

    def _known_call(
        self, args: Sequence[Any], kinds: Sequence[int | None], kwargs: Mapping[str, Any]
    ) -> CheckedCall | None:
        """The checked call for known tensors of these types; None if the call does not go to the kernel as it is."""
        key = call_key(kinds, kwargs)
        try:
            known = self._known.get(key)
        except TypeError:  # an attribute is a list
            return None
        if known is not None or not kwargs.keys() <= self._usual.keys():
            return known
        tensors, attributes = self._together(self._tensors(args)), self._attributes(kwargs)
        if any(map(operator.is_not, tensors, args)) or any(map(has_symbolic_size, attributes.values())):
            return None
        if any(isinstance(value, Tensor) for value in kwargs.values()):  # whose number is no part of the key
            return None
        if self._by_kind is not None and self._instead(tensors) is not None:
            return None
        return self._check(key, tensors, attributes, len(tensors) - len(args))

    def apply(self, tensors: Sequence[Tensor | None], attributes: Attributes) -> Any:
        """Run the kernel if every argument is known, else make a node."""
        arrays = arrays_of(tensors)
        computed = arrays is not None and not _types_only.get() and (self.folded or scope.get() is None)
        if arrays is None or not computed or (attributes and any(map(has_symbolic_size, attributes.values()))):
            node = new_node(self, [None if t is None else t.to_value() for t in tensors], attributes)
            outputs = tuple(map(Tensor.from_value, node.results))
            if no_gradients.get() and is_differentiated() and self.name != "stop_gradient":
                outputs = tuple(map(OPS["stop_gradient"], outputs))
            return outputs[0] if len(outputs) == 1 else outputs
        if self.body is not None and self._kernel is None:
            return self.body(*tensors, **attributes)  # type: ignore[arg-type]  # P is not known here
        here = scope.get()
        key = call_key([None if t is None else id(t.spec) for t in tensors], attributes)
        known = self._known.get(key) or self._check(key, tensors, attributes)
        origin = None if here is None else self._origin(tensors)
        return known.tensors(without_warnings(known.kernel, *arrays), origin)

    def _check(
        self, key: tuple[Any, ...], tensors: Sequence[Tensor | None], attributes: Attributes, missing: int = 0
    ) -> CheckedCall:
        """Check a call and remember it: the checks run once for each combination of types and attributes."""
        assert self._kernel is not None
        operands = [None if t is None else t.spec for t in tensors]
        types = self.infer(operands, attributes)
        if len(self._known) >= _KEPT:
            self._known.clear()
        kernel = functools.partial(self._kernel, **attributes)
        self._known[key] = known = CheckedCall(self.name, kernel, tensors, types, missing)
        return known

    def _origin(self, tensors: Sequence[Tensor | None]) -> Origin | None:
        """The name of a result that is computed while tracing from one parameter, or from a part of one, alone.

        So ``weight + 1`` is called ``weight.add(1)`` in the exported model, not ``constant``.
        """
        here = scope.get()
        assert here is not None
        operands = [t for t in tensors if t is not None]
        arrays = [t for t in operands if t.ndim]
        if len(arrays) != 1 or not (arrays[0].origin is not None or here.knows(arrays[0].numpy())):
            return None
        numbers = ", ".join(f"{t.item():g}" for t in operands if not t.ndim)
        return Origin(arrays[0].numpy(), f".{self.name}({numbers})" if numbers else f".{self.name}", arrays[0].origin)

    def evaluate(self, inputs: Sequence[Array | None], attributes: Attributes) -> tuple[Array, ...]:
        """Compute with NumPy."""
        if self._kernel is not None:
            result = without_warnings(functools.partial(self._kernel, **attributes), *inputs)
            return tuple(map(np.asarray, result)) if isinstance(result, tuple) else (np.asarray(result),)
        results = self.expand([x if x is None else Tensor.from_array(x) for x in inputs], attributes)
        return tuple(t.numpy() for t in results)

    def infer(self, inputs: Sequence[TensorType | None], attributes: Attributes) -> tuple[TensorType, ...]:
        """The types of the outputs; for a composite, those of its body."""
        if self._rule is not None:
            result = self._rule(*inputs, **attributes)
            return result if isinstance(result, tuple) else (result,)
        return _infer_body(_Application(self, tuple(inputs), tuple(attributes.items())))

    def expand(self, tensors: Sequence[Tensor | None], attributes: Attributes) -> tuple[Tensor, ...]:
        """The outputs in terms of other ops.

        Raises:
            TypeError: for a primitive, which has no body.
        """
        if self.body is None:
            raise TypeError(f"{self.name} is a primitive: it has no body")
        result: Any = self.body(*tensors, **attributes)  # type: ignore[arg-type]
        return result if isinstance(result, tuple) else (result,)

    def _attributes(self, kwargs: Mapping[str, Any]) -> Attributes:
        attributes = {**self._usual, **kwargs}
        if len(attributes) != len(self._usual) or (self._needed and not self._needed <= kwargs.keys()):
            self._check_attributes(kwargs)  # raises: a name is unknown or missing
        for name, value in kwargs.items():
            if isinstance(value, Tensor):
                attributes[name] = self._number(name, value)
        if list in map(type, attributes.values()):
            return {name: as_tuple(value) for name, value in attributes.items()}
        return attributes

    def _number(self, name: str, value: Tensor) -> Any:
        """The number that a tensor holds in the place of an attribute, a constant of the graph.

        Raises:
            TypeError: for a tensor with axes, and for one whose number may change: a traced one, and one that a module
                owns or that is computed from such.
        """
        here = scope.get()
        changes = value.is_traced or value._of_module
        if here is not None and not changes:
            changes = value.origin is not None or here.knows(value.numpy())
        if value.ndim or changes:
            raise TypeError(
                f"{self.name}: {name} is a tensor, {value.spec}, expected a number, which is a constant of the graph; "
                "take .item() of a tensor that never changes, and compute with others next to the op, such as "
                "query * scale for a learned scale of attention"
            )
        return value.item()

    def _check_attributes(self, kwargs: Attributes) -> None:
        unknown = [name for name in kwargs if name not in self.attributes]
        if unknown:
            taken = ", ".join(self.attributes) or "none"
            raise TypeError(f"{self.name}: unknown argument {', '.join(sorted(unknown))}; it takes {taken}")
        missing = ", ".join(f"{name}=..." for name in self._usual if name in self._needed and name not in kwargs)
        if missing:
            raise TypeError(f"{self.name}: {missing} is missing and has no default")

    def _tensors(self, args: Sequence[Any]) -> Sequence[Tensor | None]:
        if len(args) == len(self.arguments) and not self.variadic and are_tensors(args):
            return args
        missing = 0 if self.variadic else len(self.arguments) - len(args)
        if missing < 0:
            raise TypeError(f"{self.name}: got {len(args)} tensors, expected {', '.join(self.arguments)}")
        tensors = as_tensors(self.name, args) + [None] * missing
        for name, tensor in zip(self._required, tensors, strict=False):
            if tensor is None:
                raise TypeError(f"{self.name}: {name} is missing or None, expected a tensor, an array or a number")
        return tensors


def _registered(module: str, name: str) -> Any:
    if name not in REGISTERED:
        import_module(module)
    return REGISTERED[name]


def composite(body: Callable[P, R]) -> Op[P, R]:
    """An op defined by its body."""
    return Op(body, name=body.__name__, body=body)


def composite_with(*, kernel: Kernel | None = None, folded: bool = True) -> Callable[[Callable[P, R]], Op[P, R]]:
    """An op defined by its body, with a faster NumPy kernel that computes the same, or never folded."""
    return lambda body: Op(body, name=body.__name__, body=body, kernel=kernel, folded=folded)


def primitive(
    *, kernel: Kernel, rule: Rule, onnx: str | None = None, promoted: slice | None = None, folded: bool = True
) -> Callable[[Callable[P, R]], Op[P, R]]:
    """An op defined by a NumPy kernel and a type rule; the decorated function gives its signature and docstring.

    Its name is that of the op, without "_op": the function `reshape`, which also takes -1, calls the op `reshape_op`.
    """
    options: dict[str, Any] = {"kernel": kernel, "rule": rule, "onnx": onnx, "promoted": promoted, "folded": folded}
    return lambda call: Op(call, name=call.__name__.removesuffix("_op"), **options)


def function(call: Callable[P, R]) -> Callable[P, R]:
    """Register a plain function written in ops: the tensor's method of this name calls it instead of the op.

    The function also takes torch's names for its arguments, and an array in the place of the tensor.
    """
    spelled = torch_names(call)
    OPS[call.__name__] = spelled
    return taking_arrays(spelled)


def as_tuple(value: Any) -> Any:
    """A list as a tuple, also inside lists: attributes must be hashable."""
    return tuple(map(as_tuple, value)) if isinstance(value, list) else value


# While a body runs only to infer types, nothing is computed, not even constants such as an L x L mask.
_types_only: ContextVar[bool] = ContextVar("lucid_types_only", default=False)


def only_types() -> bool:
    """Whether ops are applied only to infer types, so that no tensor has a value."""
    return _types_only.get()


class _Application:
    """An op on types, as a cache key: attributes may hold symbolic sizes, which ``==`` must not compare."""

    def __init__(
        self, op: Op[..., Any], inputs: tuple[TensorType | None, ...], attributes: tuple[tuple[str, Any], ...]
    ) -> None:
        self.op, self.inputs, self.attributes = op, inputs, attributes
        self.key = op, inputs, identity(attributes), tuple(known_limits().items())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Application) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@functools.lru_cache(maxsize=4096)
def _infer_body(call: _Application) -> tuple[TensorType, ...]:
    placeholders = [
        None if t is None else Tensor.from_value(Input(name, t))
        for name, t in zip(call.op.arguments, call.inputs, strict=False)
    ]
    with holding(_types_only, True):
        return tuple(t.spec for t in call.op.expand(placeholders, dict(call.attributes)))
