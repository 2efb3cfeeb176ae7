"""Checks of a model about to be exported."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence

import numpy as np
import onnx

from lucid.core.graph.types import Array, as_dtype
from lucid.core.words.safe_text import listed
from lucid.core.words.user_code import warn
from lucid.export.builder import SMALL
from lucid.export.onnx_file.array_bytes import in_order
from lucid.export.onnx_file.assemble import Assembled

_BLOCK = 1 << 16  # numbers that fit into the caches
_SAMPLED = 1 << 14  # numbers of a weight that are examined for denormals
_MANY_DENORMAL = 0.01  # the share of denormals that slows a matrix product down by an order of magnitude


class WeightWarning(UserWarning):
    """A weight holds numbers that are probably a mistake."""


def check_model(model: Assembled) -> None:
    """Run ONNX's checker with strict shape inference.

    Large weights are replaced by inputs of their type: the checker reads only their shapes, and copying them would take
    longer than the rest of the export.
    """
    checked = onnx.ModelProto()
    checked.CopyFrom(model.skeleton)
    typed = {value.name for value in model.skeleton.graph.input}  # which have their type already
    for name, array in model.initializers.items():
        if name in typed:
            continue
        if array.nbytes <= SMALL:
            small = model.header(name)
            small.raw_data = in_order(array).tobytes()
            checked.graph.initializer.append(small)
        else:
            header = model.header(name)
            kind = onnx.helper.make_tensor_value_info(name, header.data_type, header.dims)
            checked.graph.input.append(kind)
    onnx.checker.check_model(checked, full_check=True)


def warn_of_weights(initializers: Mapping[str, Array], named: Container[str]) -> None:
    """Warn of weights with NaN or infinity, of matrices that are all zero, and of weights with many denormal numbers.

    `named` holds the names of those that are parameters or buffers: a constant that is all zero, or infinite in places,
    is a mask that the model computes, not a mistake.
    """
    floats = {name: array for name, array in initializers.items() if as_dtype(array.dtype).kind == "float"}
    infinite = [
        name for name, array in floats.items() if not _finite(array) and (name in named or np.isnan(array).any())
    ]
    zero = [name for name, array in floats.items() if name in named and _all_zero(array)]
    denormal = [name for name, array in floats.items() if _denormal(array)]
    for what, names, consequence in (
        ("with NaN or infinity", infinite, "the exported model computes with them"),
        ("that are all zero", zero, "they were probably not trained or loaded"),
        ("with many denormal numbers", denormal, "they slow a CPU down by an order of magnitude; set them to zero"),
    ):
        warn_of(what, names, f"; {consequence}")


def warn_of(what: str, names: Sequence[str], consequence: str = "") -> None:
    """Warn of weights, if there are any."""
    if names:
        warn(f"weights {what}: {listed(names)}{consequence}", WeightWarning)


def _all_zero(array: Array) -> bool:
    """Whether an array of 2 or more axes is all zero. (A vector may be: biases are initialised to zero.)"""
    is_matrix = sum(size > 1 for size in array.shape) > 1
    return is_matrix and not any(row.any() for row in array)  # the first row mostly decides


def _denormal(array: Array) -> bool:
    """Whether more than a hundredth of the numbers, evenly sampled, are denormal."""
    if array.dtype.itemsize == 2 or not array.size:
        return False  # half precision is computed in float32, where its denormals are normal numbers
    step = max(1, array.size // _SAMPLED)
    if array.flags.c_contiguous or array.flags.f_contiguous:
        sample = np.abs(array.reshape(-1, order="A")[::step])
    else:
        sample = np.abs(array[np.unravel_index(np.arange(0, array.size, step), array.shape)])
    small = (sample > 0) & (sample < np.finfo(array.dtype).tiny)
    return bool(np.count_nonzero(small) > _MANY_DENORMAL * sample.size)


def _finite(array: Array) -> bool:
    if array.ndim == 0:
        return True  # masks are built from infinite scalars on purpose
    if array.dtype.itemsize == 2:
        return _finite_halves(array)
    with np.errstate(all="ignore"):
        # One fast pass: a sum is finite only if all terms are.
        return bool(np.isfinite(np.sum(array))) or bool(np.isfinite(array).all())


def _finite_halves(array: Array) -> bool:
    """`_finite` by the bits, because NumPy's arithmetic in half precision is slow and a sum would overflow."""
    limit = np.uint16(0x7C00 if array.dtype == np.float16 else 0x7F80)  # the exponent of infinity and NaN
    array = array.T if array.strides[0] < array.strides[-1] else array  # in the order in which it is stored
    rows = max(1, _BLOCK // max(1, array[0].size)) if len(array) else 1
    parts = (array[start : start + rows].view(np.uint16) & 0x7FFF for start in range(0, len(array), rows))
    return all(part.size == 0 or part.max() < limit for part in parts)
