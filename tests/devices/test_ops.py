"""Every op's sample on each device, in every element type that it computes, against eager code."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid.export import ExportError, Target, to_onnx
from lucid.runtime import Session
from tests.cases import case
from tests.devices.device import Device, on_devices
from tests.samples import SAMPLES
from tests.test_ops import arrays_of, check, eager, traced

OPS = list(dict.fromkeys(s.op.name for s in SAMPLES if s.exported))


@on_devices
@pytest.mark.parametrize("op", OPS)
def test_every_op_gives_what_eager_code_does(op: str, device: Device) -> None:
    for s in (s for s in SAMPLES if s.op.name == op and s.exported):
        for dtype in s.dtypes:
            if "float16" in {dtype.name, str(s.attributes.get("dtype"))} - device.attention.keys():
                continue
            with case(f"{s.name}-{dtype}"):
                try:
                    model = to_onnx(traced(s, dtype), target=Target(device.name, accuracy_level=0))
                except ExportError:
                    assert dtype == lucid.float64  # without a kernel: test_portable names the ops
                    continue
                session = Session(model, device.exact)
                for sizes in s.sizes:
                    arrays = arrays_of(s, dtype, sizes)
                    inputs = [array for array in arrays if array is not None]
                    outputs = session.run(dict(zip(session.inputs, inputs, strict=True)))
                    for output, expected in zip(outputs.values(), eager(s, arrays, sizes), strict=True):
                        if dtype == lucid.float64:  # onnxruntime's CUDA kernel of Softmax adds up in float32
                            np.testing.assert_allclose(
                                output, expected, rtol=1e-6, atol=1e-6, err_msg=f"{s.name} at {sizes}"
                            )
                        else:
                            check(output, expected, f"{s.name} at {sizes}")
