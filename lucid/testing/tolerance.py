"""Compares one array with another, so that neither a difference nor an empty array passes as agreement.

Rounding errors are relative to the numbers computed with, so by default the tolerance is, too: the unit of the element
type times the tensor's typical magnitude and the element's own. If a difference is larger, the result in float64
decides, if the caller has it: cancellation and long chains in half precision lose digits in a way that the results do
not show, but the eager side loses as many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from lucid.core.graph.types import Array
from lucid.core.words.safe_text import visible

# By element type: some units in the last place of sums of a few hundred terms.
UNITS = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
# How many times the eager result's largest error is allowed: the error depends on the order of sums.
AS_EAGER = 3.0
_FEW = 32  # below so many elements, all may be exact by chance: they get a few units in the last place of 1 on top


@dataclass(frozen=True)
class Tolerance:
    """An element may differ by `atol + rtol * |eager|`."""

    atol: float
    rtol: float
    origin: str = ""  # where atol comes from, if not from the caller

    def __str__(self) -> str:
        return f"{self.atol:.1e} + {self.rtol:g} * |eager|" + (f"; {self.origin}" if self.origin else "")

    def allowed(self, want: Array) -> Array:
        """How much each element may differ; for an infinite one, `atol`."""
        return self.atol + self.rtol * np.abs(np.where(np.isfinite(want), want, 0.0))


@dataclass(frozen=True)
class Comparison:
    """One output in one run.

    `where` is the element with the largest error relative to its tolerance; `error` is its error, and `allowed` its
    tolerance. `max_abs` and `max_rel` are the largest differences of any element.
    """

    provider: str
    sizes: Mapping[str, int]
    output: str
    elements: int
    max_abs: float
    max_rel: float
    where: tuple[int, ...]
    passed: bool
    problem: str = ""
    error: float = 0.0
    allowed: float = 0.0
    tolerance: Tolerance | None = None  # None if none applies: for integers, different types, empty arrays

    @property
    def share(self) -> float:
        """The error as a share of the allowed one, at the worst element: more than 1 fails."""
        return 0.0 if self.error == 0 else self.error / self.allowed if self.allowed else np.inf

    def __str__(self) -> str:
        sizes = " ".join(f"{name}={value}" for name, value in self.sizes.items())
        mark = "ok  " if self.passed else "FAIL"
        return visible(f"{mark}  {self.provider:<22} {sizes or 'fixed sizes':<16} {self.output}: {self._found()}")

    def _found(self) -> str:
        if self.problem:
            return self.problem
        errors = f"max abs {self.max_abs:.2e}, max rel {self.max_rel:.2e}"
        if self.tolerance is None:
            return f"{errors}, at {list(self.where)}"
        return (
            f"{errors}; at {list(self.where)} {self.error:.2e} where {self.allowed:.2e} is allowed ({self.tolerance})"
        )


def compare(
    got: Array,
    want: Array,
    name: str,
    provider: str = "",
    sizes: Mapping[str, int] | None = None,
    rtol: float | None = None,
    atol: float | None = None,
    exact: Array | None = None,
    computed_in: np.dtype[Any] | None = None,
    times: float = AS_EAGER,
) -> Comparison:
    """Compare two arrays: equal shapes and types, every element within atol + rtol * |want|, and no NaN on either
    side.

    Args:
        rtol, atol: by default the unit of the element type, and that times the typical magnitude of `want`. If one of
            them is given, nothing is scaled: the other is the unit.
        exact: what `want` would be without rounding, for the default tolerance: an element also passes if its error is
            at most so many `times` the largest error in `want`, not counting the rounding of the elements themselves.
        computed_in: the coarsest element type among the values that `want` is computed from; by default that of `want`.
    """

    def result(max_abs: float, max_rel: float, where: tuple[int, ...], passed: bool, problem: str = "") -> Comparison:
        return Comparison(provider, dict(sizes or {}), name, want.size, max_abs, max_rel, where, passed, problem)

    if got.shape != want.shape or got.dtype != want.dtype:
        shown = f"got {got.dtype}{list(got.shape)}, eager {want.dtype}{list(want.shape)}"
        return result(np.inf, np.inf, (), False, shown)
    if not want.size:
        return result(0.0, 0.0, (), True, "empty")
    if want.dtype.kind in "biu":  # float64 cannot hold all int64
        return _compare_exactly(got, want, result)
    x, y = got.astype(np.float64), want.astype(np.float64)
    if np.isnan(x).any() or np.isnan(y).any():
        sides = [side for side, array in (("exported", x), ("eager", y)) if np.isnan(array).any()]
        at = tuple(int(i) for i in np.argwhere(np.isnan(x) | np.isnan(y))[0])
        return result(np.nan, np.nan, at, False, f"NaN in the {' and the '.join(sides)} result, first at {list(at)}")
    difference = _distance(x, y)
    if rtol is None and atol is None:
        judged = _by_default(x, y, want.dtype, exact, computed_in or want.dtype, times)
    else:
        unit = UNITS.get(str(want.dtype), 0.0)
        judged = _judge(difference, y, Tolerance(_or(atol, unit), _or(rtol, unit)))
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.where(difference == 0, 0.0, difference / np.abs(y))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(judged.shares)), want.shape))
    largest = result(float(difference.max()), float(relative.max()), at, bool((judged.shares <= 1).all()))
    return replace(
        largest,
        error=float(judged.error[at]),
        allowed=float(judged.tolerance.allowed(y[at])),
        tolerance=judged.tolerance,
    )


class _Judged(NamedTuple):
    error: Array
    shares: Array  # the error divided by the tolerance: more than 1 fails
    tolerance: Tolerance


def _judge(error: Array, want: Array, tolerance: Tolerance) -> _Judged:
    with np.errstate(invalid="ignore", divide="ignore"):
        shares = np.where(error == 0, 0.0, error / tolerance.allowed(want))
    return _Judged(error, np.where(np.isnan(shares), np.inf, shares), tolerance)


def _by_default(
    got: Array,
    want: Array,
    dtype: np.dtype[Any],
    exact: Array | None,
    computed_in: np.dtype[Any],
    times: float,
) -> _Judged:
    unit = UNITS.get(str(dtype), 0.0)
    first = _judge(_distance(got, want), want, _by_scale(want, unit, dtype))
    if exact is None or (first.shares <= 1).all():
        return first
    off = _rounding(want, exact, computed_in)
    beyond = first.shares > 1
    if (beyond & np.isinf(off)).any():
        return first
    second = _judge(_distance(got, exact), want, _by_exact(first.tolerance, off, want, dtype, times))
    return second._replace(shares=np.where(beyond, second.shares, 0.0))


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _distance(x: Array, y: Array) -> Array:
    with np.errstate(invalid="ignore"):
        return np.where(x == y, 0.0, np.abs(x - y))  # equal infinities agree


def _by_scale(want: Array, unit: float, dtype: np.dtype[Any]) -> Tolerance:
    """The unit times the tensor's typical magnitude, which is the median: huge elements hardly change it.

    So an outlier has a tolerance of its own size, and other elements do not. Zeros have no magnitude: those that a ReLU
    or a mask makes do not count, and if there is nothing else, the magnitude is 1. It is at least the smallest normal
    number, because all smaller numbers have the same rounding error.
    """
    counted = np.abs(want[np.isfinite(want) & (want != 0)])
    scale = max(float(np.median(counted)), float(_limits(dtype).tiny)) if counted.size else 1.0
    return Tolerance(unit * scale, unit, f"typical magnitude {scale:.2g}")


def _rounding(want: Array, exact: Array, computed_in: np.dtype[Any]) -> Array:
    """The difference of each element from the exact one; infinity if that is too large for rounding.

    At least half of the digits of the largest element must be right. Otherwise the eager result is wrong or infinite,
    or discontinuous like `argmax` and comparisons; then float64 says nothing about the exported one.
    """
    off = _distance(want, exact)
    largest = np.max(np.abs(want), where=np.isfinite(want), initial=0.0)
    return np.where(off <= float(_limits(computed_in).eps) ** 0.5 * largest, off, np.inf)


def _by_exact(tolerance: Tolerance, off: Array, want: Array, dtype: np.dtype[Any], times: float) -> Tolerance:
    """The tolerance plus some times the eager result's own error: its largest one, without the rounding of the element
    itself.

    (The rounding of an element of -1e9 explains an error of 30, which says nothing about other elements.)
    """
    with np.errstate(invalid="ignore"):
        unexplained = off - float(_limits(dtype).eps) / 2 * np.abs(want)
    worst = float(np.max(unexplained, where=np.isfinite(off), initial=0.0))
    more = times * worst + (4 * float(_limits(dtype).eps) if want.size < _FEW else 0.0)
    origin = f"from the result in float64, of which eager is up to {worst:.1e} off"
    return Tolerance(tolerance.atol + more, tolerance.rtol, origin)


def _limits(dtype: np.dtype[Any]) -> Any:
    return ml_dtypes.finfo(dtype)  # type: ignore[no-untyped-call]


def _compare_exactly(got: Array, want: Array, result: Callable[..., Comparison]) -> Comparison:
    wrong = got != want
    if not wrong.any():
        return result(0.0, 0.0, (0,) * want.ndim, True)
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    difference = [abs(int(x) - int(y)) for x, y in zip(got[wrong], want[wrong], strict=True)]
    shown = f"{int(wrong.sum())} of {want.size} differ, first at {list(at)}: got {got[at]}, eager {want[at]}"
    return result(float(max(difference)), np.inf, at, False, shown)
