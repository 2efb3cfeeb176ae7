"""Arrays and onnxruntime's OrtValues, and their element types."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime

from lucid.core.graph.types import Array, DType, bfloat16, float16, float32, float64, int8, int32, int64, uint8
from lucid.core.graph.types import bool_ as boolean

_TYPES: dict[str, DType] = {
    "tensor(float)": float32,
    "tensor(double)": float64,
    "tensor(float16)": float16,
    "tensor(bfloat16)": bfloat16,
    "tensor(int8)": int8,
    "tensor(uint8)": uint8,
    "tensor(int32)": int32,
    "tensor(int64)": int64,
    "tensor(bool)": boolean,
}
_BFLOAT16_CODE = int(onnx.TensorProto.BFLOAT16)


def read_type(value: Any) -> tuple[DType | None, tuple[int | str | None, ...]]:
    """The element type of an input or output of a session, None for one Lucid does not have; and its sizes."""
    return _TYPES.get(value.type), tuple(value.shape)


def shown_type(value: Any) -> str:
    """An input or output of a session with its type: ``x: float32[N, 3]``, ``text: string[N]``."""
    kind, sizes = read_type(value)
    name = value.type.removeprefix("tensor(").removesuffix(")") if kind is None else kind
    return f"{value.name}: {name}[{', '.join(map(str, sizes))}]"


def ort_value(array: Array) -> Any:
    """An array as onnxruntime's OrtValue. They share memory if the array is contiguous."""
    if array.dtype == bfloat16.numpy:  # onnxruntime does not take ml_dtypes arrays, only their bits
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            np.asarray(array, order="C").view(np.uint16), _BFLOAT16_CODE
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array, order="C"))


def placed(array: Array, device: str) -> Any:
    """An array as an OrtValue in the memory of a device. On the CPU it is the array's own."""
    if device in ("cpu", "webgpu"):  # in the memory of WebGPU only runs can make tensors
        return ort_value(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array, device, 0)


@dataclass(frozen=True)
class RowsOf:
    """Rows `start` to `stop` of an OrtValue, where they are in its memory: `Session.bind` takes them like one."""

    value: Any
    start: int
    stop: int

    def shape(self) -> list[int]:
        """The sizes of these rows."""
        return [self.stop - self.start, *self.value.shape()[1:]]

    @property
    def place(self) -> tuple[str, int, int, list[int], int]:
        """The arguments of onnxruntime's binding: device, its number, element type, shape, address."""
        value = self.value
        row = value.tensor_size_in_bytes() // value.shape()[0]
        return value.device_name(), 0, value.element_type(), self.shape(), value.data_ptr() + self.start * row


def numpy_of(value: Any) -> Array:
    """An OrtValue as an array, which may share its memory: copy it before the memory is written again."""
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    return in_place(value).copy()


def in_place(value: Any) -> Array:
    """The memory of an OrtValue on the CPU as an array, as long as the OrtValue is kept."""
    shape, kind = tuple(value.shape()), numpy_type(value)
    if 0 in shape:
        return np.empty(shape, kind)
    held = (ctypes.c_uint8 * (math.prod(shape) * kind.itemsize)).from_address(value.data_ptr())
    return np.frombuffer(held, np.uint8).view(kind).reshape(shape)


def numpy_type(value: Any) -> np.dtype[Any]:
    """The element type of an OrtValue."""
    return _TYPES[value.data_type()].numpy
