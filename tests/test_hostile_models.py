"""Every hostile ONNX file is refused before onnxruntime sees it, within a second and below 100 MB."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from lucid.runtime.model_file import ModelError, check_model_file
from lucid.runtime.skeleton import WireError, skeleton
from tests.cases import case
from tests.combinations import some
from tests.hostile import assert_refused, models

CASES = models.CASES


@pytest.mark.parametrize("name", CASES)
def test_a_hostile_model_ends_in_a_clear_error(name, tmp_path):
    assert_refused(check_model_file, CASES[name][1](tmp_path), ModelError)


def model_of(*tensors: TensorProto) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [output], tensors)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 20)])


TYPES = [kind for kind in TensorProto.DataType.values() if 0 < kind < TensorProto.FLOAT6E2M3]


@pytest.mark.parametrize("kind", TYPES, ids=TensorProto.DataType.Name)
def test_a_tensor_of_every_type_made_by_onnx_is_accepted(tmp_path, kind):
    for shape, raw in itertools.product([(), (0,), (5,), (3, 3)], [False, True]):
        with case(f"{shape}, {'raw' if raw else 'typed'}"):
            _accepted(tmp_path, kind, shape, raw)


def _accepted(tmp_path, kind, shape, raw):
    if kind == TensorProto.STRING:
        values = np.full(shape, "text").astype(object)
    else:
        values = np.ones(shape).astype(helper.tensor_dtype_to_np_dtype(kind))
    if raw and kind != TensorProto.STRING:
        tensor = numpy_helper.from_array(values, "w")
    else:
        tensor = helper.make_tensor("w", kind, shape, values.reshape(-1).tolist())
    onnx.save(model_of(tensor), tmp_path / "model.onnx")
    check_model_file(tmp_path / "model.onnx")


def test_external_data_in_the_folder_and_below_is_accepted(tmp_path):
    weights = numpy_helper.from_array(np.arange(4, dtype=np.float32), "w")
    (tmp_path / "sub").mkdir()
    for location in ("weights.bin", "sub/weights.bin"):
        model = model_of(weights)
        onnx.save(model, tmp_path / "model.onnx", save_as_external_data=True, location=location, size_threshold=0)
        assert (tmp_path / location).stat().st_size == 16
        check_model_file(tmp_path / "model.onnx")


def test_the_check_reads_no_external_data(tmp_path):
    weights = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[1 << 40])
    weights.data_location = TensorProto.EXTERNAL
    weights.external_data.add(key="location", value="weights.bin")
    (tmp_path / "weights.bin").touch()
    with (tmp_path / "weights.bin").open("wb") as file:
        file.truncate(4 << 40)  # sparse: no space on the disk
    (tmp_path / "model.onnx").write_bytes(model_of(weights).SerializeToString())
    check_model_file(tmp_path / "model.onnx")


def test_bulk_is_stepped_over_and_nothing_else(tmp_path):
    rng = np.random.default_rng(0)
    arrays = {"small": rng.random(3), "large": rng.random(5000), "w": rng.random(600), "empty": rng.random(0)}
    whole = model_of(*(numpy_helper.from_array(array, name) for name, array in arrays.items()))
    whole.metadata_props.add(key="behind", value="the graph")
    slim, removed = skeleton(whole.SerializeToString())
    assert list(map(len, removed)) == [0, 40_000, 4800, 0] and len(slim) < 400
    for tensor, gone in zip(whole.graph.initializer, removed, strict=True):
        if gone:
            tensor.ClearField("raw_data")
    assert onnx.ModelProto.FromString(slim) == whole


@settings(derandomize=True, deadline=None, max_examples=some(500))
@given(st.data())
def test_a_damaged_model_is_read_as_protobuf_reads_it(data):
    arrays = {"w": np.zeros(2), "large": np.zeros(600)}
    damaged = bytearray(model_of(*(numpy_helper.from_array(a, n) for n, a in arrays.items())).SerializeToString())
    at = data.draw(st.integers(0, 149) | st.integers(len(damaged) - 50, len(damaged) - 1))
    damaged[at] = data.draw(st.integers(0, 255))
    try:
        whole = onnx.ModelProto.FromString(bytes(damaged))
    except DecodeError:
        return
    try:
        slim, removed = skeleton(bytes(damaged))
    except WireError:
        return  # stricter: no groups, no raw data twice
    for tensor, gone in zip(whole.graph.initializer, removed, strict=True):
        if gone:
            assert len(tensor.raw_data) == len(gone)
            tensor.ClearField("raw_data")
    assert onnx.ModelProto.FromString(slim) == whole


def test_a_missing_model_is_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="check the path"):
        check_model_file(tmp_path / "model.onnx")


def test_a_folder_is_not_a_model(tmp_path):
    with pytest.raises(ModelError, match="expected a regular file, got a folder"):
        check_model_file(tmp_path)
