"""Optimizers as pure functions: `lucid.optim.AdamW(1e-3)`; schedules of the learning rate; clipping of gradients.

::

    loss_and_gradients = lucid.value_and_grad(loss, wrt=model)
    optimizer = lucid.optim.AdamW(lucid.optim.cosine(1e-3, steps=1000, warmup=100), clip=1.0)
    parameters = dict(model.named_parameters())
    state = optimizer.init(parameters)                                     # tensors by name, all zero
    for step in range(1000):
        value, gradients = loss_and_gradients(x, labels)
        parameters, state = optimizer.update(gradients, state, parameters, step)
        model.load_state_dict(parameters, strict=False)                    # buffers stay

Parameters, gradients and states are tensors or arrays by name. Nothing is changed in place, and an update may be traced
and exported, with the step as an input.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, ClassVar, Self, TypeAlias

from lucid.core.graph.types import TensorType, float32, promote, show_shape
from lucid.core.number_ranges import NOT_NEGATIVE, POSITIVE, POSITIVE_OR_INFINITE, Range, check, check_all
from lucid.core.sizes.dims import Shape
from lucid.core.torch_names.missing_names import why_absent
from lucid.core.words import package_names
from lucid.core.words.name_patterns import named
from lucid.nn.module import Module
from lucid.nn.parameters import Parameter
from lucid.ops import creation
from lucid.ops.elementwise import at_least_float32, cos, expm1, maximum, minimum, pow_, rsqrt, sqrt, where
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.reduction import sum_of_squares
from lucid.ops.shaping import concat, split
from lucid.ops.tensor.tensor import Tensor, TensorLike

__all__ = [
    "SGD",
    "Adafactor",
    "AdamW",
    "Optimizer",
    "Schedule",
    "clip_by_global_norm",
    "constant",
    "cosine",
    "global_norm",
    "linear",
]
__dir__ = __all__.copy


if not TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise package_names.unknown(f"module {__name__!r}", name, __all__, why_absent("optim", name))


Tensors: TypeAlias = Mapping[str, TensorLike]
"""Tensors or arrays by the name of a parameter, or of a part of the state."""
Schedule: TypeAlias = Callable[[Tensor], "Tensor | float"]
"""From the number of steps before this one, a float32 tensor (), to the learning rate."""
Rule: TypeAlias = Callable[[Tensor, Tensor, dict[str, Tensor]], tuple[Tensor, dict[str, Tensor]]]
"""From a parameter, its gradient and the parts of its state to what is subtracted from it, and the new parts."""
_SHARE = Range("at least 0 and below 1", lambda x: 0 <= x < 1)
_TOGETHER = 6
"""So many vectors, such as biases, are computed as one: joining them takes less time than calls of each op. A shader of
WebGPU reads and writes 8 buffers."""


# Schedules ------------------------------------------------------------------------------------------------------------


def constant(rate: float, *, warmup: int = 0) -> Schedule:
    """The same learning rate for all steps after a linear warm-up of some steps."""
    return _warmed(rate, warmup, lambda step: creation.full_like(step, rate))


def linear(peak: float, steps: int, *, warmup: int = 0) -> Schedule:
    """Up from 0 to the peak during the warm-up, then down to 0, which `steps` reaches."""
    return _warmed(peak, warmup, lambda step: peak * (1 - _progress(step, steps, warmup)), steps)


def cosine(peak: float, steps: int, *, warmup: int = 0, end: float = 0.0) -> Schedule:
    """Up from 0 to the peak during the warm-up, then down to `end` as half a cosine (Loshchilov and Hutter 2017)."""
    check("schedule: end", end, NOT_NEGATIVE)

    def after(step: Tensor) -> Tensor:
        return end + (peak - end) * 0.5 * (1 + cos(math.pi * _progress(step, steps, warmup)))

    return _warmed(peak, warmup, after, steps)


def _warmed(peak: float, warmup: int, after: Callable[[Tensor], Tensor], steps: int | None = None) -> Schedule:
    check("schedule: the learning rate", peak, NOT_NEGATIVE)
    check("schedule: warmup", warmup, Range("a whole number of 0 or more", lambda n: n >= 0 and n % 1 == 0))
    if steps is not None:
        above = Range(f"a whole number above the warm-up of {warmup}", lambda n: n > warmup and n % 1 == 0)
        check("schedule: steps", steps, above)

    def rate(step: TensorLike) -> Tensor:
        number = _number(step)
        return where(number < warmup, number * (peak / warmup), after(number)) if warmup else after(number)

    return rate


def _progress(step: Tensor, steps: int, warmup: int) -> Tensor:
    """From 0 at the end of the warm-up to 1 at the last step and after it."""
    return ((step - warmup) * (1 / (steps - warmup))).clamp(0, 1)


def _number(step: TensorLike) -> Tensor:
    return as_tensor("step", step).astype(float32)


# Clipping -------------------------------------------------------------------------------------------------------------


def global_norm(tensors: Tensors) -> Tensor:
    """The Euclidean norm of all numbers of all tensors, (). Half precision is computed in float32."""
    by_name = {name: at_least_float32(x) for name, x in _tensors("global_norm", tensors).items()}
    if not by_name:
        return creation.zeros()
    groups = _groups({name: (value,) for name, value in by_name.items()}, {})
    # The last gradients are computed first, so that what only they need is free again.
    return sqrt(sum_of_squares(*(_joined([by_name[name] for name in names]) for names in reversed(groups))))


def clip_by_global_norm(gradients: Tensors, limit: float) -> dict[str, Tensor]:
    """The gradients, made smaller by one factor if their global norm is above a limit, as torch's `clip_grad_norm_`."""
    check("clip_by_global_norm: limit", limit, POSITIVE_OR_INFINITE)
    factor = minimum(limit / (global_norm(gradients) + 1e-6), 1.0)
    return {name: value * factor for name, value in _tensors("clip_by_global_norm", gradients).items()}


# Optimizers -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Optimizer(ABC):
    """The base of optimizers.

    A parameter keeps its element type. The computation and the state are in float32 for half precision, else in its own
    type.

    Args:
        learning_rate: a number, or a schedule.
        weight_decay: for all parameters, or by pattern of names, as ``{"*.bias": 0, "*LayerNorm*": 0, "*": 0.01}``: the
            first pattern that matches counts, and parameters without a match do not decay.
        frozen: patterns of parameters that stay as they are, as those after ``requires_grad_(False)`` do: they have no
            state, and need no gradient.
        clip: the largest global norm of the gradients; None: they are taken as they are.

    Raises:
        TypeError: for anything but numbers, such as a model: parameters are given to `init` and `update`.
        ValueError: for a number outside of its range.
    """

    _decay_in_gradient: ClassVar = False
    _elementwise: ClassVar = False  # whether a number changes by its own gradient and state alone
    _ranges: ClassVar[Mapping[str, Range]] = {}  # of options that only some optimizers have
    _pairs: ClassVar[Sequence[str]] = ()  # options of two numbers

    learning_rate: float | Schedule
    _: KW_ONLY
    weight_decay: float | Mapping[str, float] = 0.0
    frozen: str | Sequence[str] = ()
    clip: float | None = None

    def __new__(cls, learning_rate: object = None, *_: object, **options: object) -> Self:
        if "lr" in options or isinstance(learning_rate, (Module, Mapping, list, tuple, Iterator)):
            raise TypeError(
                f"{cls.__name__}: got parameters or lr=, expected the learning rate first and no parameters: write "
                f"{cls.__name__}(1e-3); wrt= of value_and_grad and training_step names what is trained"
            )
        return super().__new__(cls)

    if not TYPE_CHECKING:  # type checkers know the names

        def __getattr__(self, name: str) -> object:
            raise package_names.unknown(f"{type(self).__name__!r} object", name, [], why_absent("Optimizer", name))

    def __post_init__(self) -> None:
        user, options = f"{type(self).__name__}: ", vars(self)
        for name in self._pairs:
            if not isinstance(options[name], (tuple, list)) or len(options[name]) != 2:
                raise TypeError(f"{user}{name} is {options[name]!r}, expected two numbers")
        always = {} if callable(self.learning_rate) else {"learning_rate": NOT_NEGATIVE}
        for name, allowed in {**always, "weight_decay": NOT_NEGATIVE, **self._ranges}.items():
            value = options[name]
            numbers = value.values() if isinstance(value, Mapping) else value if name in self._pairs else (value,)
            for number in numbers:
                check(user + name, number, allowed)
        check_all(options, {"clip": POSITIVE_OR_INFINITE}, user)

    def init(self, parameters: Tensors) -> dict[str, Tensor]:
        """The state before the first step: zeros under ``{parameter}.{part}``, with torch's names of parts.

        Args:
            parameters: tensors or arrays by name, as ``dict(model.named_parameters())``.

        Raises:
            TypeError: for a parameter that is not floating-point and not frozen; for a module or a list.
            ValueError: for a pattern that matches no parameter.
        """
        types = self.state_types(parameters)
        return {name: creation.zeros(type_.shape, dtype=type_.dtype) for name, type_ in types.items()}

    def state_types(self, parameters: Tensors) -> dict[str, TensorType]:
        """The types of the tensors of `init`, by name; its errors."""
        return dict(part for name, value in self.trained(parameters).items() for part in self._named(name, value))

    def update(
        self, gradients: Tensors, state: Tensors, parameters: Tensors, step: TensorLike
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """One step.

        Args:
            gradients: of the parameters that are not frozen, in their shapes, as `value_and_grad` gives them; others
                are ignored.
            state: of `init` or the step before.
            parameters: all parameters.
            step: the number of steps before this one, 0 for the first: an int, or an int64 tensor ().

        Returns:
            The new parameters, frozen ones included, and the new state. ``model.load_state_dict(parameters,
            strict=False)`` puts them into a model.

        Raises:
            KeyError: for a gradient or a part of the state that is missing.
            ValueError: for one of another shape than its parameter needs; for a pattern that matches no parameter.
        """
        trained, states = self.trained(parameters), _tensors("state", state)
        gradients = self._gradients(gradients, trained)
        gradients = gradients if self.clip is None else clip_by_global_norm(gradients, self.clip)
        decays, number = self._decays(list(trained)), _number(step)
        rate = self.learning_rate(number) if callable(self.learning_rate) else self.learning_rate
        change_of = self._rule(rate, number + 1)
        operands = {
            name: (value, gradients[name], *(self._need(states, "state", *part) for part in self._named(name, value)))
            for name, value in trained.items()
        }
        results = dict[str, Sequence[Tensor]]()
        for names in _groups(operands, decays if self._elementwise else {name: name for name in trained}):
            value, gradient, *old = map(_joined, zip(*(operands[name] for name in names), strict=True))
            value, dtype = value.astype(gradient.dtype), value.dtype
            kinds, decay = self._parts(trained[names[0]].shape), decays.get(names[0], 0.0)
            if decay and self._decay_in_gradient:
                gradient = gradient + decay * value
            change, parts = change_of(value, gradient, dict(zip(kinds, old, strict=True)))
            kept = value * (1 - rate * decay) if decay and not self._decay_in_gradient else value
            shapes = [trained[name].shape for name in names]
            new = (kept - change).astype(dtype), *(parts[kind].astype(gradient.dtype) for kind in kinds)
            each = [_apart(whole, shapes) for whole in new]
            results.update(zip(names, zip(*each, strict=True), strict=True))
        updated = {**_tensors("parameters", parameters), **{name: new[0] for name, new in results.items()}}
        after = [
            (part, new)
            for name, value in trained.items()
            for (part, _), new in zip(self._named(name, value), results[name][1:], strict=True)
        ]
        return updated, dict(after)

    def trained(self, parameters: Tensors) -> dict[str, Tensor]:
        """The parameters that are not frozen; the errors of `init`."""
        tensors = _tensors("parameters", parameters)
        frozen = named(f"{type(self).__name__}: frozen", self.frozen, list(tensors))
        frozen |= {name: "" for name, x in tensors.items() if isinstance(x, Parameter) and not x.requires_grad}
        trained = {name: value for name, value in tensors.items() if name not in frozen}
        for name, value in trained.items():
            if value.dtype.kind != "float":
                raise TypeError(
                    f"{type(self).__name__}: parameter {name} is {value.spec}, expected a floating-point one; "
                    f"leave buffers out, as dict(model.named_parameters()) does, or give frozen={name!r}"
                )
        return trained

    def _gradients(self, gradients: Tensors, trained: Mapping[str, Tensor]) -> dict[str, Tensor]:
        by_name = _tensors("gradients", gradients)
        return {name: self._need(by_name, "gradients", name, _computed(value)) for name, value in trained.items()}

    def _need(self, by_name: Mapping[str, Tensor], what: str, name: str, type_: TensorType) -> Tensor:
        if name not in by_name:
            raise KeyError(
                f"{type(self).__name__}: {what} lacks {name}; leave out parameters without {what}, or give "
                "frozen=; dict(model.named_parameters()) has no buffers"
            )
        if by_name[name].shape != type_.shape:
            has, expected = show_shape(by_name[name].shape), show_shape(type_.shape)
            raise ValueError(f"{type(self).__name__}: {what} has {name} of shape {has}, expected {expected}")
        return by_name[name].astype(type_.dtype)

    def _decays(self, names: Sequence[str]) -> dict[str, float]:
        if not isinstance(self.weight_decay, Mapping):
            return dict.fromkeys(names, self.weight_decay)
        patterns = named(f"{type(self).__name__}: weight_decay", self.weight_decay, names)
        return {name: self.weight_decay[pattern] for name, pattern in patterns.items()}

    def _named(self, name: str, value: Tensor) -> list[tuple[str, TensorType]]:
        """The names and types of the parts of the state of a parameter."""
        computed = _computed(value)
        return [(f"{name}.{part}", computed.with_shape(shape)) for part, shape in self._parts(value.shape).items()]

    @abstractmethod
    def _parts(self, shape: Shape) -> dict[str, Shape]:
        """The parts of the state of a parameter, and their shapes."""

    @abstractmethod
    def _rule(self, rate: Tensor | float, count: Tensor) -> Rule:
        """How a parameter changes in a step; `count` is 1 in the first one."""


@dataclass(frozen=True)
class SGD(Optimizer):
    """Gradient descent, as `torch.optim.SGD`: weight decay is added to the gradient.

    Args:
        momentum: the part of the last change that is repeated; 0: there is no state.
        nesterov: whether momentum looks one step ahead (Sutskever et al. 2013).
    """

    _decay_in_gradient, _elementwise = True, True
    _ranges: ClassVar = {"momentum": _SHARE}

    momentum: float = 0.0
    nesterov: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.nesterov and not self.momentum:
            raise ValueError("SGD: nesterov is True and momentum 0, expected a momentum above 0")

    def _parts(self, shape: Shape) -> dict[str, Shape]:
        return {"momentum_buffer": shape} if self.momentum else {}

    def _rule(self, rate: Tensor | float, count: Tensor) -> Rule:
        def change(parameter: Tensor, gradient: Tensor, parts: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            if not parts:
                return rate * gradient, parts
            buffer = self.momentum * parts["momentum_buffer"] + gradient
            direction = gradient + self.momentum * buffer if self.nesterov else buffer
            return rate * direction, {"momentum_buffer": buffer}

        return change


@dataclass(frozen=True)
class AdamW(Optimizer):
    """Adam with weight decay apart from the gradient (Loshchilov and Hutter 2019), as `torch.optim.AdamW`.

    Args:
        betas: how much of the mean gradient, and of the mean square, stays in a step.
        eps: added to the root of the mean square.
    """

    _elementwise = True
    _ranges: ClassVar = {"betas": _SHARE, "eps": NOT_NEGATIVE}
    _pairs = ("betas",)

    weight_decay: float | Mapping[str, float] = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8

    def _parts(self, shape: Shape) -> dict[str, Shape]:
        return {"exp_avg": shape, "exp_avg_sq": shape}

    def _rule(self, rate: Tensor | float, count: Tensor) -> Rule:
        # 1 - beta ** count without a loss of digits, as beta is near 1. The root of the second one is in the size and
        # in eps, where it is one number.
        first, second = (-expm1(count * (math.log(beta) if beta else -math.inf)) for beta in self.betas)
        root = sqrt(second)
        size, eps = rate * root / first, self.eps * root

        def change(parameter: Tensor, gradient: Tensor, parts: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            mean = self.betas[0] * parts["exp_avg"] + (1 - self.betas[0]) * gradient
            square = self.betas[1] * parts["exp_avg_sq"] + (1 - self.betas[1]) * (gradient * gradient)
            return size * (mean / (sqrt(square) + eps)), {"exp_avg": mean, "exp_avg_sq": square}

        return change


@dataclass(frozen=True)
class Adafactor(Optimizer):
    """Adafactor (Shazeer and Stern 2018), as `torch.optim.Adafactor`: of a matrix only rows and columns have a state.

    A step is relative to the parameter: the learning rate, at most 1 / sqrt(step), times its root mean square.

    Args:
        beta2_decay: the mean square keeps 1 - step ** beta2_decay of itself.
        eps: the least root of a mean square, and the least size of a parameter that a step is relative to.
        limit: the largest root mean square of a change before the step's size; larger ones are scaled down.
    """

    _ranges: ClassVar = {
        "beta2_decay": Range("0 or less", lambda x: x <= 0),
        "eps": POSITIVE,
        "limit": Range("1 or more", lambda x: x >= 1),
    }
    _pairs = ("eps",)

    learning_rate: float | Schedule = 0.01
    beta2_decay: float = -0.8
    eps: tuple[float, float] = (2.0**-23, 1e-3)
    limit: float = 1.0

    def _parts(self, shape: Shape) -> dict[str, Shape]:
        if len(shape) < 2:
            return {"variance": shape}
        return {"row_var": (*shape[:-1], 1), "col_var": (*shape[:-2], 1, shape[-1])}

    def _rule(self, rate: Tensor | float, count: Tensor) -> Rule:
        new_part, relative = pow_(count, self.beta2_decay), minimum(rsqrt(count), rate)

        def newer(old: Tensor, new: Tensor) -> Tensor:
            return old + new_part * (new - old)

        def change(parameter: Tensor, gradient: Tensor, parts: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
            square = gradient * gradient
            if "variance" in parts:
                estimate = newer(parts["variance"], square)
                parts = {"variance": estimate}
            else:
                rows = newer(parts["row_var"], square.mean(-1, keepdims=True))
                columns = newer(parts["col_var"], square.mean(-2, keepdims=True))
                parts = {"row_var": rows, "col_var": columns}
                estimate = rows / maximum(rows.mean(-2, keepdims=True), self.eps[0]) * columns
            direction = gradient * rsqrt(maximum(estimate, self.eps[0] ** 2))
            size = relative * maximum(_root_mean_square(parameter), self.eps[1])
            return size / maximum(_root_mean_square(direction) / self.limit, 1.0) * direction, parts

        return change


def _computed(parameter: Tensor) -> TensorType:
    """The type in which the change of a parameter is computed, and of its gradient."""
    return parameter.spec.with_dtype(promote(parameter.dtype, float32))


def _root_mean_square(x: Tensor) -> Tensor:
    return sqrt((x * x).mean())


def _groups(operands: Mapping[str, Sequence[Tensor]], kinds: Mapping[str, object]) -> list[list[str]]:
    """The names of tensors that are computed together, by their first ones: vectors of one kind and the same types."""
    groups, places = dict[object, list[str]](), {name: place for place, name in enumerate(operands)}
    for name, tensors in operands.items():
        kind = (kinds.get(name), *(x.dtype for x in tensors)) if tensors[0].ndim == 1 else name
        groups.setdefault(kind, []).append(name)
    parts = [names[i : i + _TOGETHER] for names in groups.values() for i in range(0, len(names), _TOGETHER)]
    return sorted(parts, key=lambda names: places[names[0]])


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    """Some vectors as one; one tensor alone as it is."""
    return tensors[0] if len(tensors) == 1 else concat(tensors)


def _apart(whole: Tensor, shapes: Sequence[Shape]) -> Sequence[Tensor]:
    """The tensors of these shapes that were joined."""
    return [whole] if len(shapes) == 1 else split(whole, [size for (size,) in shapes])


def _tensors(what: str, values: Tensors) -> dict[str, Tensor]:
    if not isinstance(values, Mapping):
        such = ", such as dict(model.named_parameters())" if what == "parameters" else ""
        raise TypeError(f"{what}: got {type(values).__name__}, expected tensors or arrays by name{such}")
    return {name: as_tensor(name, value) for name, value in values.items()}
