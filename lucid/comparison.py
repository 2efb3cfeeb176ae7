"""Comparing one array with another, so that no difference and no emptiness passes for agreement."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from lucid.text import visible
from lucid.types import Array

# Relative and absolute tolerance by element type: some units in the last place of sums of a few hundred terms.
_TOLERANCE = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


@dataclass(frozen=True)
class Comparison:
    """One output in one run."""

    provider: str
    sizes: Mapping[str, int]
    output: str
    elements: int
    max_abs: float
    max_rel: float
    where: tuple[int, ...]
    passed: bool
    problem: str = ""

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        found = self.problem or f"max abs {self.max_abs:.2e}, max rel {self.max_rel:.2e}, at {list(self.where)}"
        mark = "ok  " if self.passed else "FAIL"
        return visible(f"{mark}  {self.provider:<22} {sizes or 'fixed sizes':<16} {self.output}: {found}")


def compare(
    got: Array,
    want: Array,
    name: str,
    provider: str = "",
    sizes: Mapping[str, int] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Compare two arrays: equal shapes and types, every element within atol + rtol * |want|, and no NaN on either
    side."""

    def result(max_abs: float, max_rel: float, where: tuple[int, ...], passed: bool, problem: str = "") -> Comparison:
        return Comparison(provider, dict(sizes or {}), name, want.size, max_abs, max_rel, where, passed, problem)

    if got.shape != want.shape or got.dtype != want.dtype:
        shown = f"got {got.dtype}{list(got.shape)}, eager {want.dtype}{list(want.shape)}"
        return result(np.inf, np.inf, (), False, shown)
    if not want.size:
        return result(0.0, 0.0, (), True, "empty")
    if want.dtype.kind in "biu":  # float64 could not tell all int64 apart
        return _compare_exactly(got, want, result)
    default = _TOLERANCE.get(str(want.dtype), 0.0)
    rtol, atol = default if rtol is None else rtol, default if atol is None else atol
    x, y = got.astype(np.float64), want.astype(np.float64)
    if np.isnan(x).any() or np.isnan(y).any():
        sides = [side for side, array in (("exported", x), ("eager", y)) if np.isnan(array).any()]
        at = tuple(int(i) for i in np.argwhere(np.isnan(x) | np.isnan(y))[0])
        return result(np.nan, np.nan, at, False, f"NaN in the {' and the '.join(sides)} result, first at {list(at)}")
    with np.errstate(invalid="ignore", divide="ignore"):
        difference = np.where(x == y, 0.0, np.abs(x - y))  # equal infinities agree
        relative = np.where(difference == 0, 0.0, difference / np.abs(y))
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), want.shape))
    passed = bool((difference <= atol + rtol * np.where(np.isfinite(y), np.abs(y), 0.0)).all())
    return result(float(difference.max()), float(relative.max()), worst, passed)


def _compare_exactly(got: Array, want: Array, result: Callable[..., Comparison]) -> Comparison:
    wrong = got != want
    if not wrong.any():
        return result(0.0, 0.0, (0,) * want.ndim, True)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    difference = [abs(int(x) - int(y)) for x, y in zip(got[wrong], want[wrong], strict=True)]
    shown = f"{int(wrong.sum())} of {want.size} differ, first at {list(at)}: got {got[at]}, eager {want[at]}"
    return result(float(max(difference)), np.inf, at, False, shown)
