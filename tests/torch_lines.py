"""Single lines of torch code, run by torch or by Lucid, and their results as short texts that can be compared.

`tools/torch_lines` draws the lines and stores torch's results in `goldens/torch_lines`; `test_torch_lines.py` runs them
again without torch.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from lucid.core.graph.types import Array

REFUSED = "refused"
REFUSALS = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)

# The tensors of the lines: shape, element type, and what they hold.
_TENSORS: dict[str, tuple[tuple[int, ...], str, str]] = {
    "x": ((2, 3), "float32", "normal"),
    "y": ((2, 3), "float32", "normal"),
    "half": ((2, 3), "float16", "normal"),
    "bf": ((2, 3), "bfloat16", "normal"),
    "x64": ((2, 3), "float64", "normal"),
    "v": ((3,), "float32", "normal"),
    "v2": ((2,), "float32", "normal"),
    "v4": ((4,), "float32", "normal"),
    "b2": ((2,), "float32", "normal"),
    "c": ((2, 3, 4), "float32", "normal"),
    "c4": ((2, 4, 3), "float32", "normal"),
    "cT": ((2, 4, 3), "float32", "normal"),
    "q": ((2, 1, 3, 4), "float32", "normal"),
    "w": ((3, 3), "float32", "normal"),
    "w2": ((2, 3), "float32", "normal"),
    "ones": ((1, 3, 1), "float32", "normal"),
    "col": ((2, 1), "float32", "normal"),
    "flat": ((4,), "float32", "normal"),
    "one": ((1, 1), "float32", "normal"),
    "x0": ((), "float32", "normal"),
    "h0": ((), "float16", "normal"),
    "d0": ((), "float64", "normal"),
    "e": ((0, 3), "float32", "normal"),
    "special": ((2, 4), "float32", "special"),
    "i64": ((2, 3), "int64", "whole"),
    "i32": ((2, 3), "int32", "whole"),
    "i8": ((2, 3), "int8", "whole"),
    "u8": ((2, 3), "uint8", "count"),
    "iw": ((2, 3), "int64", "whole"),
    "i0": ((), "int64", "count"),
    "ei": ((0,), "int64", "count"),
    "k": ((3,), "int64", "index"),
    "k2": ((2,), "int64", "index"),
    "k32": ((3,), "int32", "index"),
    "g": ((2, 3), "int64", "index"),
    "g1": ((1, 2), "int64", "index"),
    "g32": ((2, 3), "int32", "index"),
    "gneg": ((2, 3), "int64", "negative"),
    "gbig": ((2, 3), "int64", "large"),
    "mask": ((2, 3), "bool", "flags"),
    "row_mask": ((2,), "bool", "flags"),
    "kmask": ((3,), "bool", "flags"),
    "bigmask": ((4, 2, 3), "bool", "flags"),
    "b0": ((), "bool", "flags"),
    "img": ((2, 3, 4, 5), "float32", "normal"),
    "imgu": ((3, 4, 5), "float32", "normal"),
    "cu": ((3, 4), "float32", "normal"),
    "k1": ((4, 3, 2), "float32", "normal"),
    "k1g": ((3, 1, 2), "float32", "normal"),
    "k2d": ((4, 3, 2, 2), "float32", "normal"),
    "k2g": ((3, 1, 2, 2), "float32", "normal"),
    "t1": ((3, 2, 2), "float32", "normal"),
    "a2": ((3, 4), "float32", "normal"),
    "a3": ((2, 3, 4), "float32", "normal"),
    "a4": ((2, 2, 3, 4), "float32", "normal"),
    "a5": ((2, 1, 2, 3, 4), "float32", "normal"),
    "agqa": ((2, 4, 3, 4), "float32", "normal"),
    "aone": ((1, 2, 3, 4), "float32", "normal"),
    "b3": ((2, 5, 4), "float32", "normal"),
    "b4": ((2, 2, 5, 4), "float32", "normal"),
    "b5": ((2, 1, 2, 5, 4), "float32", "normal"),
    "bone": ((1, 2, 5, 4), "float32", "normal"),
    "am": ((3, 5), "bool", "flags"),
    "amf": ((3, 5), "float32", "normal"),
    "am4": ((2, 1, 3, 5), "bool", "flags"),
}
_SPECIAL = (0.0, -0.0, np.nan, np.inf, -np.inf, 0.5, -0.5, 1.5)
_CLOSE = {"float16": 4e-3, "bfloat16": 3e-2, "float32": 2e-5, "float64": 2e-6}  # of the sum of the magnitudes


def arrays() -> dict[str, Array]:
    """The tensors of the lines, by name: the same for torch and for Lucid. bfloat16 comes as float32."""
    draws = np.random.RandomState(39)
    return {name: _drawn(draws, *row) for name, row in _TENSORS.items()}


def element_type(name: str) -> str:
    """The element type that a tensor of the lines has."""
    return _TENSORS[name][1]


def _drawn(draws: np.random.RandomState, shape: tuple[int, ...], dtype: str, content: str) -> Array:
    numbers: Mapping[str, Callable[[], Any]] = {
        "normal": lambda: draws.standard_normal(shape).round(3),
        "special": lambda: np.reshape(_SPECIAL, shape),
        "whole": lambda: draws.randint(-4, 9, shape),
        "count": lambda: draws.randint(1, 6, shape),
        "index": lambda: draws.randint(0, 2, shape),
        "negative": lambda: -draws.randint(1, 3, shape),
        "large": lambda: draws.randint(2, 9, shape),
        "flags": lambda: np.asarray(draws.random_sample(shape) < 0.5),
    }
    return np.asarray(numbers[content](), "float32" if dtype == "bfloat16" else dtype)


class Tensorlike(NamedTuple):
    """What of a tensor is compared."""

    dtype: str
    array: Array


def run(line: str, names: Mapping[str, Any], opened: Callable[[Any], Tensorlike | None]) -> tuple[str, str]:
    """The text of a line's result, and the error message if there is none instead of one.

    `opened` reads a tensor of the library that runs the line; for anything else it gives None.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = eval(line, dict(names))
        except REFUSALS as error:
            return REFUSED, f"{type(error).__name__}: {error}"
    return shown(result, opened), ""


def shown(result: Any, opened: Callable[[Any], Tensorlike | None]) -> str:
    """A result as text: of a tensor the element type, the shape and two sums of its elements."""
    tensor = opened(result)
    if tensor is not None:
        return f"{tensor.dtype}[{','.join(map(str, tensor.array.shape))}] {_sums(tensor.array)}"
    if isinstance(result, (tuple, list)):
        return " ; ".join(["many", *(shown(item, opened) for item in result)])
    if isinstance(result, float):
        return f"number {result:.6g}"
    text = re.sub(r"torch\.Size\(\[(.*)\]\)", r"(\1)", str(result)).replace(",)", ")")
    return f"object {text.removeprefix('torch.')}"


def _sums(array: Array) -> str:
    """Two sums with weights by place, the sum of magnitudes, and where there is no finite number."""
    flat = array.astype(np.float64).ravel()
    finite = np.isfinite(flat)
    places = np.arange(flat.size)
    usual = np.where(finite, flat, 0.0)
    sums = [np.sum(usual * (1 + np.modf(places * share)[0])) for share in (0.618034, 0.414214)]
    special = [f"{name}{np.count_nonzero(at)}.{places[at].sum()}" for name, at in _special(flat) if at.any()]
    return " ".join([*(f"{number:.7g}" for number in (*sums, np.abs(usual).sum())), *special])


def _special(flat: Array) -> list[tuple[str, Array]]:
    return [("nan", np.isnan(flat)), ("inf", np.isposinf(flat)), ("-inf", np.isneginf(flat))]


def difference(result: str, expected: str) -> str:
    """How two results differ: "accepted", "refused", "type", "shape" or "value"; empty if they agree."""
    if result == expected:
        return ""
    if REFUSED in (result, expected):
        return "accepted" if expected == REFUSED else "refused"
    ours, theirs = result.split(" ; "), expected.split(" ; ")
    if len(ours) != len(theirs):
        return "value"
    kinds = [_part_difference(f, w) for f, w in zip(ours, theirs, strict=True)]
    return next((kind for kind in ("type", "shape", "value") if kind in kinds), "")


_PART = re.compile(r"(\w+)\[([\d,]*)\] (\S+) (\S+) (\S+)(.*)")


def _part_difference(result: str, expected: str) -> str:
    ours, theirs = _PART.fullmatch(result), _PART.fullmatch(expected)
    if ours is None or theirs is None:
        return "" if result == expected else "value"
    if ours[1] != theirs[1]:
        return "type"
    if ours[2] != theirs[2]:
        return "shape"
    close = _CLOSE.get(ours[1], 1e-6) * (float(theirs[5]) + 1e-3)
    same = ours[6] == theirs[6] and all(abs(float(ours[i]) - float(theirs[i])) <= 2 * close for i in (3, 4))
    return "" if same else "value"
