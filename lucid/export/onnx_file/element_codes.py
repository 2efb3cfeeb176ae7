"""ONNX codes of the element types (onnx.proto, TensorProto.DataType), and the names of these in messages."""

from __future__ import annotations

import onnx

from lucid.core.graph.types import DTypeLike, as_dtype

_CODES = {
    "float32": onnx.TensorProto.FLOAT,
    "float64": onnx.TensorProto.DOUBLE,
    "float16": onnx.TensorProto.FLOAT16,
    "bfloat16": onnx.TensorProto.BFLOAT16,
    "int8": onnx.TensorProto.INT8,
    "uint8": onnx.TensorProto.UINT8,
    "int32": onnx.TensorProto.INT32,
    "int64": onnx.TensorProto.INT64,
    "bool": onnx.TensorProto.BOOL,
}


def onnx_code(dtype: DTypeLike) -> int:
    """The code of an element type."""
    return int(_CODES[as_dtype(dtype).name])


def element_name(code: int) -> str:
    """The name of an element type of any file: as NumPy calls it, or ``type 99`` for a code that ONNX does not have."""
    if code not in onnx.TensorProto.DataType.values():
        return f"type {code}"
    name: str = onnx.TensorProto.DataType.Name(code).lower()
    return {"float": "float32", "double": "float64"}.get(name, name)
