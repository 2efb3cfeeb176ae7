"""Writing weights: transposed quickly, and never held twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lucid
from lucid import nn
from lucid.core.graph.types import bfloat16, float16, float32
from lucid.export import WeightWarning, to_onnx
from lucid.export.onnx_file import writer
from lucid.export.onnx_file.array_bytes import byte_blocks, fingerprint, in_order
from lucid.export.onnx_file.check import warn_of_weights

Array = np.ndarray[Any, Any]


@st.composite
def views(draw: st.DrawFn) -> Array:
    """A view of some array: with axes in any order, steps and slices."""
    shape = draw(st.lists(st.integers(1, 5), max_size=3))
    if draw(st.booleans()):
        shape = [draw(st.integers(1, 300)), draw(st.integers(1, 40))]  # more than a tile
    array = np.arange(np.prod(shape, dtype=int)).astype(draw(st.sampled_from(["f4", "i8", "u1"]))).reshape(shape)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    return array[tuple(slice(None, None, draw(st.sampled_from([1, 1, 2, -1]))) for _ in shape)]


@given(views())
def test_the_bytes_are_those_of_the_array_in_order(array: Array) -> None:
    assert b"".join(byte_blocks(array)) == array.tobytes() == in_order(array).tobytes()


def test_a_copy_is_made_a_piece_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lucid.export.onnx_file.array_bytes._CHUNK", 4096)
    for array in (np.ones((100, 1000), np.float32).T, np.ones((4, 50, 40), np.float32).transpose(0, 2, 1)):
        sizes = [len(piece) for piece in byte_blocks(array)]
        assert max(sizes) <= 4096
        assert sum(sizes) == array.nbytes
    (whole,) = byte_blocks(np.ones((100, 1000), np.float32))  # nothing to copy or split
    assert len(whole) == 400_000


def test_fingerprints_differ_where_names_numbers_or_shapes_do() -> None:
    a = np.arange(600.0).reshape(20, 30)
    variants = [{"a": a}, {"b": a}, {"a": a.T}, {"a": a + 1}, {"a": a.reshape(30, 20)}, {"a": a[:, ::-1]}, {}]
    assert len({fingerprint(variant) for variant in variants}) == len(variants)
    assert fingerprint({"a": a}) == fingerprint({"a": a.copy()})


def test_an_interrupt_between_the_two_files_leaves_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*arguments: object) -> onnx.ModelProto:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "_with_initializers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        to_onnx(nn.Linear(64, 64), (1, 64), path=tmp_path / "model.onnx", external_data=True)
    assert list(tmp_path.iterdir()) == []


def test_beyond_64_mib_the_returned_model_refers_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = nn.Linear(32, 16), lucid.randn(2, 32)
    whole = to_onnx(model, path=tmp_path / "model.onnx")
    assert writer.HELD == 64 << 20
    monkeypatch.setattr(writer, "HELD", 1000)
    returned = to_onnx(model, path=tmp_path / "model.onnx")
    assert not any(tensor.raw_data for tensor in returned.graph.initializer if tensor.name == "weight.T")
    assert onnx.load(tmp_path / "model.onnx") == whole, "the file is the same"
    onnx.load_external_data_for_model(returned, str(tmp_path))
    loaded = {t.name: onnx.numpy_helper.to_array(t) for t in returned.graph.initializer}
    np.testing.assert_array_equal(loaded["weight.T"], model.weight.numpy().T)
    assert lucid.runtime.Session(tmp_path / "model.onnx")(x).shape == (2, 16)


@pytest.mark.parametrize("dtype", [float32, float16, bfloat16], ids=str)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_one_number_that_is_none_is_noticed_in_every_layout(dtype: lucid.DType, value: float) -> None:
    array = np.ones((70, 30), dtype.numpy)
    layouts = (array, array.T, array[:, 2:].T, array[None])
    for layout in layouts:
        warn_of_weights({"w": layout}, {"w"})
    array[50, 20] = value
    for layout in layouts:
        with pytest.warns(WeightWarning, match="weights with NaN or infinity: w;"):
            warn_of_weights({"w": layout}, {"w"})
