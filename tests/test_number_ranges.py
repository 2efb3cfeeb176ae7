"""Numbers of options: of Python and NumPy, in ranges, finite."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lucid.core.number_ranges import FINITE, Range, at_least, check

SMALL = Range("up to 1e300", lambda x: x <= 1e300)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "value", [0, 0.5, np.float16(0.5), np.float32(0.5), np.float64(0.5), np.int8(-128), np.uint8(3)]
)
def test_numbers_of_every_type_are_compared_as_numbers_of_python(value: Any) -> None:
    check("x", value, FINITE)
    check("x", value, SMALL)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dtype", [float, np.float16, np.float32, np.float64])
@pytest.mark.parametrize("text", ["inf", "-inf", "nan"])
def test_what_is_not_finite_is_in_no_range(dtype: Any, text: str) -> None:
    with pytest.raises(ValueError, match=f"x is {text}, expected a finite number"):
        check("x", dtype(text), FINITE)
    with pytest.raises(ValueError, match=f"x is {text}, expected a finite number"):
        check("x", dtype(text), Range("more than 0", lambda x: x > 0))


@pytest.mark.parametrize("value", [True, np.True_, "1", None, 1j, np.array(1)])
def test_other_values_are_no_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="x is .*, expected a number"):
        check("x", value, FINITE)


def test_whole_numbers_are_of_whole_types() -> None:
    for value in (3.0, np.float32(3)):
        with pytest.raises(TypeError, match="expected a whole number"):
            check("x", value, at_least(1))
    with pytest.raises(ValueError, match="x is -128, expected 0 or more"):
        check("x", np.int8(-128), at_least(0))
    with pytest.raises(ValueError, match="expected a finite number"):
        check("x", 10**400, FINITE)
