"""Gradient rules of elementwise ops: the number that each element's gradient is multiplied with."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from lucid import ops
from lucid.gradients.tape import CONSTANT, RULES, Rule
from lucid.ops.elementwise import at_least_float32, float_floor_div, float_trunc_div
from lucid.ops.tensor.tensor import Tensor

Factor = Callable[[Tensor, Tensor], Tensor]


def _scaled(factor: Factor) -> Rule:
    """The rule of a function of one tensor whose derivative is a factor, from the output and the input."""
    return Rule(lambda g, y, x, **attributes: g * factor(y, x, **attributes), "scaled")


def _gelu(y: Tensor, x: Tensor, *, approximate: str) -> Tensor:
    x = at_least_float32(x)
    if approximate == "tanh":
        root = math.sqrt(2 / math.pi)
        inner = (root * (x + 0.044715 * (x * x * x))).tanh()
        slope = root * (1 + 3 * 0.044715 * (x * x))
        return 0.5 * (1 + inner) + 0.5 * x * (1 - inner * inner) * slope
    scaled = x * math.sqrt(0.5)
    density = ops.exp(0.5 * math.log(2 / math.pi) - scaled * scaled)  # twice that of the normal distribution
    return 0.5 * (1 + scaled.erf()) + 0.5 * x * density


def _silu(y: Tensor, x: Tensor) -> Tensor:
    s = ops.sigmoid(x)
    return s * (1 + x * (1 - s))


_FACTORS: dict[str, Any] = {
    "exp": lambda y, x: y,
    "log": lambda y, x: 1 / x,
    "log2": lambda y, x: 1 / (math.log(2) * x),
    "sqrt": lambda y, x: 0.5 / y,
    "reciprocal": lambda y, x: -y * y,
    "sin": lambda y, x: ops.cos(x),
    "cos": lambda y, x: -ops.sin(x),
    "tan": lambda y, x: 1 + y * y,
    "asin": lambda y, x: 1 / ops.sqrt((1 - x) * (1 + x)),
    "acos": lambda y, x: -1 / ops.sqrt((1 - x) * (1 + x)),
    "atan": lambda y, x: 1 / (1 + x * x),
    "sinh": lambda y, x: ops.cosh(x),
    "cosh": lambda y, x: ops.sinh(x),
    "tanh": lambda y, x: 1 - y * y,
    "asinh": lambda y, x: 1 / ops.sqrt(x * x + 1),
    "acosh": lambda y, x: 1 / (ops.sqrt(x - 1) * ops.sqrt(x + 1)),
    "atanh": lambda y, x: 1 / ((1 - x) * (1 + x)),
    "expm1": lambda y, x: ops.exp(x),
    "log1p": lambda y, x: 1 / (1 + x),
    "erf": lambda y, x: 2 / math.sqrt(math.pi) * ops.exp(-x * x),
    "sigmoid": lambda y, x: y * (1 - y),
    "abs": lambda y, x: ops.sign(x),
    "softplus": lambda y, x: ops.sigmoid(x),
    "elu": lambda y, x, *, alpha: ops.where(x > 0, 1.0, alpha * ops.exp(-ops.relu(-x))),
    "silu": _silu,
    "gelu": _gelu,
}


def _pow(g: Tensor, y: Tensor, x: Tensor, power: Tensor) -> tuple[Tensor, Tensor | None]:
    """At 0 to the power 0 both gradients are 0, as in torch."""
    exponent = None if power.is_traced or power.ndim else float(power.item())
    if exponent is not None:
        if exponent in (0.0, 1.0):
            return g * exponent, None
        return g * (2 * x if exponent == 2.0 else exponent * ops.pow(x, exponent - 1)), None
    to_x = ops.where(power == 0, 0.0, power * ops.pow(x, power - 1))
    to_power = ops.where((x == 0) & (power >= 0), 0.0, y * ops.log(x))
    return g * to_x, g * to_power


def _extreme(beyond: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """The rule of maximum and minimum: equal elements share the gradient."""

    def gradients(g: Tensor, y: Tensor, *pair: Tensor) -> list[Tensor]:
        both = pair, pair[::-1]
        return [ops.where(beyond(other, x), 0.0, ops.where(x == other, 0.5 * g, g)) for x, other in both]

    return gradients


def _clip(g: Tensor, y: Tensor, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> list[Any]:
    """At a bound x gets the gradient; a bound gets the gradients of the elements that it replaces."""
    if low is None or high is None:
        if (bound := high if low is None else low) is None:
            return [g]
        inside = x <= bound if low is None else x >= bound
        beyond = x > bound if low is None else x < bound
        return [ops.where(inside, g, 0.0), *[ops.where(beyond, g, 0.0)] * 2]
    below, above = (x < low) & (low < high), (x > high) | (high < low)
    return [ops.where(chosen, g, 0.0) for chosen in ((x >= low) & (x <= high), below, above)]


def _atan2(g: Tensor, y: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """At the origin both gradients are 0, as in torch."""
    square = a * a + b * b
    square = ops.where(square == 0, 1.0, square)
    return g * (b / square), g * (-a / square)


RULES.update({name: _scaled(factor) for name, factor in _FACTORS.items()})
RULES |= {
    "neg": Rule(lambda g, y, x: -g, "linear"),
    "cast": Rule(lambda g, y, x, *, dtype: g, "linear"),
    "add": Rule(lambda g, y, a, b: (g, g), "linear"),
    "sub": Rule(lambda g, y, a, b: (g, -g), "linear"),
    "mul": Rule(lambda g, y, a, b: (g * b, g * a), "scaled"),
    "true_div": Rule(lambda g, y, a, b: (g / b, -g * y / b), "scaled"),
    "fmod": Rule(lambda g, y, a, b: (g, -g * float_trunc_div(a, b)), "scaled"),
    "float_mod": Rule(lambda g, y, a, b: (g, -g * float_floor_div(a, b)), "scaled"),
    "pow": Rule(_pow, "scaled"),
    "atan2": Rule(_atan2, "scaled"),
    "hypot": Rule(lambda g, y, a, b: (g * (a / y), g * (b / y)), "scaled"),
    "maximum": Rule(_extreme(Tensor.gt), "chosen"),
    "minimum": Rule(_extreme(Tensor.lt), "chosen"),
    "clip": Rule(_clip, "chosen"),
    "hardtanh": Rule(lambda g, y, x, *, low, high: ops.where((x > low) & (x < high), g, 0.0), "chosen"),
    "relu": Rule(lambda g, y, x: ops.where(y <= 0, 0.0, g), "chosen"),
    "where": Rule(lambda g, y, c, a, b: (None, ops.where(c, g, 0.0), ops.where(c, 0.0, g)), "chosen"),
}

CONSTANT |= {"floor", "ceil", "round", "sign", "float_floor_div", "float_trunc_div"}
