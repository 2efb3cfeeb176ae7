"""Lines for a client of Triton Inference Server."""

from __future__ import annotations

from lucid.core.graph.types import TensorType
from lucid.core.sizes.dims import Dim
from lucid.layouts.loading.subject import Subject, zeros
from lucid.layouts.triton import data_type, model_name

_LINES = """
# tritonserver --model-repository FOLDER
import numpy as np
import tritonclient.http as triton

inputs = [
INPUTS
]
arrays = [
ARRAYS
]
for value, array in zip(inputs, arrays):
    value.set_data_from_numpy(array)
answer = triton.InferenceServerClient("localhost:8000").infer("MODEL", inputs)
print(answer.as_numpy("OUTPUT"))
"""


def triton_lines(about: Subject) -> str:
    """A request with arrays of zeros."""
    inputs = [
        f'    triton.InferInput("{name}", {_shape(kind)}, "{data_type(kind)}"),' for name, kind in about.inputs.items()
    ]
    arrays = [f"    {zeros(kind)}," for kind in about.inputs.values()]
    lines = _LINES.replace("INPUTS", "\n".join(inputs)).replace("ARRAYS", "\n".join(arrays))
    return lines.replace("MODEL", model_name(about.checkpoint)).replace("OUTPUT", next(iter(about.files[0].outputs)))


def _shape(kind: TensorType) -> list[int]:
    return [1 if isinstance(size, Dim) else size for size in kind.shape]
