"""Every op at sizes of 0 and 1: onnxruntime computes the same as NumPy, or both refuse."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

import lucid
from lucid import nn
from lucid.core.sizes.dims import names_of
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.runtime import Session
from tests.combinations import pairs
from tests.samples import SAMPLES, Sample
from tests.test_ops import ON_CPU, arrays_of, check, eager, models_of, traced

ORT_ERRORS = (Fail, InvalidArgument, RuntimeException)
EXPORTED = [s for s in SAMPLES if s.exported]

# The errors of onnxruntime at run time; docs/limitations.md names them.
_BEYOND = "exceeds max_sequence_length"  # TensorScatter: of nothing, written beyond the end
REFUSED = {
    "attention": ("greater than 0",),
    "buffered_attention": ("greater than 0", _BEYOND),
    "write_at": (_BEYOND,),
    "matmul": ("cannot broadcast on dim",),
}

# Where NumPy refuses and the exported model cannot: over no elements it gives the identity of the reduction.
NEUTRAL = {"max": {"f": -np.inf, "i": -128}, "min": {"f": np.inf, "i": 127}}


@pytest.mark.parametrize("shape", [(2, 0), (0, 3), ("N", 3)])
def test_reduced_axes_count_from_the_front_where_there_may_be_no_elements(shape: tuple[Any, ...]) -> None:
    """onnxruntime before 1.32 ignores negative axes of tensors without elements."""
    model = to_onnx(lambda x: x.sum(-1), shape)
    (axes,) = (onnx.numpy_helper.to_array(weight).tolist() for weight in model.graph.initializer)
    assert axes == [1]


@pytest.mark.parametrize("s", EXPORTED, ids=[s.name for s in EXPORTED])
def test_an_op_at_empty_sizes_is_exported_as_it_is(s: Sample) -> None:
    for target, model in models_of(traced(s, s.dtypes[0])).items():
        _gives_what_eager_does(s, target, Session(model, threads=1))


def _gives_what_eager_does(s: Sample, target: str, session: Session) -> None:
    dtype = s.dtypes[0]
    names = sorted(set[str]().union(*(names_of(a.shape) for a in (*s.inputs, *s.carriers) if a is not None)))
    for values in pairs(*[(0, 1, 3)] * len(names)):
        sizes = {"N": 2, "L": 3, "S": 4} | dict(zip(names, values, strict=True))
        arrays = arrays_of(s, dtype, sizes)
        feeds = dict(zip(session.inputs, [a for a in arrays if a is not None], strict=True))
        where = f"{s.name} for {target} at {sizes}"
        try:
            expected = eager(s, arrays, sizes)
        except (ValueError, IndexError):
            if s.op.name in NEUTRAL:
                (output,) = session.run(feeds).values()
                assert (output == NEUTRAL[s.op.name][output.dtype.kind]).all(), where
                continue
            with pytest.raises((*ORT_ERRORS, ValueError)):
                session.run(feeds)
            continue
        try:
            outputs = session.run(feeds)
        except (*ORT_ERRORS, ValueError) as error:  # ValueError: that of an empty input
            assert s.op.name in REFUSED, where
            assert any(reason in str(error.__cause__ or error) for reason in REFUSED[s.op.name]), where
            assert 0 in values, where
            continue
        for output, want in zip(outputs.values(), expected, strict=True):
            assert output.shape == want.shape, where
            check(output, want, where)


@pytest.mark.parametrize("target", ON_CPU)
@pytest.mark.parametrize(
    ("model", "spec"),
    [
        (lambda x: x.max(axis=-1), ("N", 4)),
        (lambda x: x.max(axis=-1, keepdims=True), ("N", "L", 4)),
        (lambda x: x.argmax(-1), ("N", "L", 4)),
        (lambda x: x.sum((-1, 0), keepdims=True), ("N", "L", 4)),
        (lambda x: x.mean(1), ("N", "L")),
        (lambda x: x.mean(), ("N", "L")),
        (lambda x: x.mean((0, -1), keepdims=True), ("N", "L", 4)),
        (lambda x: lucid.stack([x, x]).reshape(2 * x.shape[0], x.shape[1]), ("N", "L")),
        (lambda x: lucid.stack([x, x], -1).reshape(x.shape[0], 2 * x.shape[1]), ("N", "L")),
        (lambda x: x.flatten(1), ("N", "L", "S")),
        (lambda x: x.flatten(0, 1), ("N", "L", "S")),
        (lambda x: x.reshape(x.shape[1], x.shape[0], 4), ("N", "L", 4)),
        (lambda x: x.reshape(-1, 4), ("N", "L", 4)),
        (
            lambda x: x.reshape(x.shape[0], x.shape[1], 2, 2).transpose(1, 2).reshape(2 * x.shape[0], x.shape[1], 2),
            ("N", "L", 4),
        ),
        (nn.GroupNorm(2, 4), ("N", 4, 5)),
        (nn.GroupNorm(2, 4), ("N", 4, "L")),
        (nn.GroupNorm(2, 4), ("N", 4, "H", "W")),
        (lambda x: lucid.nn.functional.log_softmax(x), ("N", "L")),
    ],
)
def test_models_at_empty_sizes_are_exported_as_they_are(
    model: object, spec: tuple[int | str, ...], target: str
) -> None:
    session = Session(lucid.export.to_onnx(model, spec, target=target))  # type: ignore[arg-type]
    names = [size for size in spec if isinstance(size, str)]
    for values in itertools.product((0, 1, 3), repeat=len(names)):
        sizes = dict(zip(names, values, strict=True))
        x = lucid.randn(*(sizes[size] if isinstance(size, str) else size for size in spec))
        want = model(x).numpy()  # type: ignore[operator]
        output = session(x.numpy())
        assert output.shape == want.shape, sizes
        np.testing.assert_allclose(output, want, rtol=1e-5, atol=1e-5, err_msg=str(sizes))


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize(
    ("compute", "shape"),
    [
        (lambda x: x.mean(1), (3, 0)),
        (lambda x: x.mean((0, 1), keepdims=True), (0, 3)),
        (lambda x: x.roll(1, 0), ("N", 3)),
    ],
)
def test_what_is_computed_of_nothing(compute: Any, shape: tuple[Any, ...], target: str) -> None:
    x = np.zeros([0 if size == "N" else size for size in shape], np.float32)
    session = Session(to_onnx(compute, shape, target=target), threads=1)
    np.testing.assert_array_equal(session(x).numpy(), compute(lucid.Tensor(x)).numpy())


def test_norms_of_rows_without_numbers_have_none() -> None:
    for shape in ((2, 4, 0), (0, 3)):
        x, weight = lucid.zeros(*shape), lucid.ones(shape[-1])
        for result in (F.layer_norm(x, shape[-1:], weight, weight), F.rms_norm(x, shape[-1:], weight)):
            assert result.shape == shape
    assert F.group_norm(lucid.zeros(2, 4, 0), 2, lucid.ones(4)).shape == (2, 4, 0)
    assert F.group_norm(lucid.zeros(2, 0, 3), 1).shape == (2, 0, 3)
