"""The whole contract of attention on each device, every mask and option of it, against the reference in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import lucid
from lucid import ops
from lucid.export import to_onnx
from lucid.runtime import Session
from tests.devices.device import IN_FLOATS, Device, on_devices
from tests.reference import pack
from tests.test_attention import (
    CASES,
    WEIGHTS,
    Case,
    arrays_of,
    expected,
    function_of,
    packed_arrays,
    sizes,
    specs_of,
)


def close(output: np.ndarray, expected: np.ndarray, atol: float, where: object) -> None:
    assert not np.isnan(output).any(), where
    np.testing.assert_allclose(output.astype(np.float64), expected, rtol=0, atol=atol, err_msg=str(where))


def is_small(device: Any, dtype: object) -> bool:
    """Whether a part of the cases is enough for a device."""
    return bool(device.small)


# Where a part is enough, heads in an axis of their own are tested by the samples of attention alone.
@pytest.mark.parametrize(
    ("device", "dtype", "packed"),
    [
        pytest.param(*each.values, packed, marks=each.marks, id=f"{each.id}-{'packed' if packed else '4-D'}")
        for each in IN_FLOATS
        for packed in ([True] if is_small(*each.values) else [False, True])
    ],
)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_contract(case: Case, packed: bool, device: Device, dtype: str) -> None:
    kinds = {
        name: lucid.spec(*spec.shape, dtype=dtype if spec.dtype.kind == "float" else spec.dtype)
        for name, spec in specs_of(case, packed).items()
    }
    session = Session(to_onnx(function_of(case, packed), kwargs=kinds, target=device.name), device.exact)
    for n, l, s in list(sizes())[:: 3 if device.small else 1]:
        arrays = arrays_of(case, n, l, s)
        attention, _ = expected(case.name, n, l, s)
        feeds = packed_arrays(arrays) if packed else arrays
        with np.errstate(over="ignore"):  # the lowest float32 becomes -inf, which also excludes a key
            typed = {name: a if a.dtype == bool else a.astype(dtype) for name, a in feeds.items()}
        close(
            session.run(typed)["output"], pack(attention) if packed else attention, device.attention[dtype], (n, l, s)
        )


@on_devices
@pytest.mark.parametrize("case", WEIGHTS, ids=str)
def test_weights(case: Case, device: Device) -> None:
    function = function_of(case, packed=True, need_weights=True)
    session = Session(to_onnx(function, kwargs=specs_of(case, True), target=device.name), device.exact)
    for n, l, s in list(sizes())[:: 3 if device.small else 1]:
        attention, weights = expected(case.name, n, l, s)
        outputs = session.run(packed_arrays(arrays_of(case, n, l, s)))
        close(outputs["output_0"], pack(attention), device.attention["float32"], (n, l, s))
        close(outputs["output_1"], weights, device.attention["float32"], (n, l, s))


@pytest.mark.parametrize(("device", "dtype"), IN_FLOATS)
def test_all_of_it_stays_on_the_device(device: Device, dtype: str) -> None:
    specs = [lucid.spec("N", "L", 512, dtype=dtype)] * 3
    exported = to_onnx(ops.attention, *specs, kwargs={"heads": 8}, target=device.name)
    assert not Session(exported, device.name).elsewhere()
