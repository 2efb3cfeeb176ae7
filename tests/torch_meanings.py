"""Lines of torch code that ran, and what they gave: each is run with Lucid in torch's place.

`tools/goldens/torch_meanings.py` runs them with torch and stores the results, or the error that torch raises.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

TYPES = ("float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool")
# (2, 3) of each type, and a number of each.
NAMES = dict(zip(TYPES, ("half", "brain", "single", "double", "int8", "uint8", "int32", "int64", "flags"), strict=True))

OPERANDS = {
    **{NAMES[name]: ("arange", (2, 3), name) for name in TYPES},
    **{f"{NAMES[name]}_number": ("number", (), name) for name in TYPES},
}

_NUMBERS = [f"{name}_number" for name in NAMES.values()]

# Numbers beside tensors with axes, and alone: every pair of types but one, which has torch's int16.
PROMOTION = [
    *(f"{array} * {number}" for array, number in itertools.product(NAMES.values(), _NUMBERS)),
    *(f"{number} + {array}" for array, number in itertools.product(list(NAMES.values())[:8:3], _NUMBERS)),
    *(f"{a} * {b}" for a, b in itertools.combinations(_NUMBERS, 2) if {a, b} != {"int8_number", "uint8_number"}),
    *(f"{name} * {number}" for name, number in itertools.product([*NAMES.values(), *_NUMBERS], ("2", "2.5"))),
    "half / single_number",
    "int32 / int64_number",
    "half // single_number",
    "int32 % int64_number",
    "half ** single_number",
    "half > double_number",
    "int32 == double_number",
    "torch.maximum(half, single_number)",
    "torch.where(flags, half, single_number)",
    "torch.where(flags, single_number, half)",
    "torch.where(flags, int64, half_number)",
    "torch.where(flags, half_number, single_number)",
    "half.clamp(min=single_number)",
    "(half * single_number).softmax(-1) * double_number",
    "half.sum() * single[0]",
    "half.mean() + single",
]

SECTIONS: dict[str, list[str]] = {"a number beside a tensor": PROMOTION}

# Lines that Lucid refuses although torch runs them, and what the error says.
ELSEWHERE: dict[str, str] = {
    "flags * flags_number": "got bool",
}


def lines() -> Iterator[str]:
    """All lines."""
    return itertools.chain.from_iterable(SECTIONS.values())


def array_of(name: str) -> np.ndarray[Any, Any]:
    """An operand in float64 or int64, which its own element type holds exactly."""
    kind, shape, dtype = OPERANDS[name]
    values = np.arange(1, 7).reshape(shape) if kind == "arange" else np.array(3)
    return values % 2 if dtype == "bool" else values / 2 if "float" in dtype else values
