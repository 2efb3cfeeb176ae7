"""Copies and pickles of graphs and modules keep everything: names, sharing, structure, and the same exported bytes."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import lucid
from lucid import nn
from lucid.core.graph.graph import Graph
from lucid.core.graph.pickling import FlatArray, _pack, _unpacked
from lucid.core.graph.values import Constant, Input, Node
from lucid.export import to_onnx
from tests.test_reliability import ROOT

Copy = Callable[[Any], Any]


def pickled(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickled], ids=["copy", "deepcopy", "pickle"])
Pair = namedtuple("Pair", "first second")  # what a model returns


class Tied(nn.Module):
    """A table used for embedding and, transposed, as the last layer."""

    def __init__(self) -> None:
        self.table = nn.Embedding(50, 16)
        self.again = self.table
        self.cube = nn.Parameter(np.ones((3, 4, 5), np.float32))

    def forward(self, tokens: lucid.Tensor) -> lucid.Tensor:
        x = self.table(tokens) + self.again(tokens)
        y = self.cube.mT.sum() + self.cube.T.sum()
        return x @ self.table.weight.T + y * lucid.tensor(np.arange(50, dtype=np.float32)[::-1])


MODELS: dict[str, tuple[Any, dict[str, Any]]] = {
    "attention": (nn.MultiHeadAttention(16, 4), {}),
    "encoder": (nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 4, 32), 2), {}),
    "tied": (Tied(), {"kwargs": {"tokens": lucid.spec("N", "L", dtype=lucid.int64)}}),
    "bfloat16": (nn.Linear(8, 8).to("bfloat16"), {"kwargs": {"x": lucid.spec("N", 8, dtype="bfloat16")}}),
    "sizes": (
        lambda x: x[:, : x.shape[1] // 2].reshape(-1, 8) * x.shape[0],
        {"kwargs": {"x": lucid.spec("N", "L", 8)}},
    ),
    "no numbers": (lambda x: x + np.zeros((0, 1), np.float32), {"kwargs": {"x": lucid.spec(0, 3)}}),
}


@pytest.fixture(params=MODELS)
def graph(request: pytest.FixtureRequest) -> Graph:
    model, how = MODELS[request.param]
    return lucid.trace(model, **how)


@COPIES
def test_a_copy_prints_and_exports_as_the_graph_does(graph: Graph, copied: Copy, tmp_path: Path) -> None:
    other = copied(graph)
    assert str(other) == str(graph)
    other.verify()
    first, second = to_onnx(graph), to_onnx(other)
    assert first.SerializeToString(deterministic=True) == second.SerializeToString(deterministic=True)
    names = []
    for each in (graph, other):
        to_onnx(each, path=tmp_path / "m.onnx", external_data=True)
        names.append({entry.name: entry.read_bytes() for entry in tmp_path.iterdir()})
    assert names[0] == names[1]


def test_a_copy_of_a_copy_of_a_pickle(graph: Graph) -> None:
    assert str(copy.deepcopy(pickled(copy.copy(graph)))) == str(graph)


@COPIES
def test_a_copy_has_nodes_of_its_own_and_the_same_ops(graph: Graph, copied: Copy) -> None:
    other = copied(graph)
    assert not {id(node) for node in graph.nodes()} & {id(node) for node in other.nodes()}
    assert [node.op for node in other.nodes()] == [node.op for node in graph.nodes()]
    if copied is not copy.copy:
        before = str(graph), to_onnx(graph).SerializeToString()
        for node in other.nodes():
            for value in node.inputs:
                if isinstance(value, Constant):
                    value.array[...] = 0
        assert (str(graph), to_onnx(graph).SerializeToString()) == before


@COPIES
def test_constants_stay_shared(copied: Copy) -> None:
    shared = np.ones((4, 4), np.float32)
    other = copied(lucid.trace(lambda x: (x @ shared) @ shared, ("N", 4)))
    first, second = (node.inputs[1] for node in other.nodes())
    assert first.array is second.array
    assert len(to_onnx(other).graph.initializer) == 1


@COPIES
def test_the_structure_of_the_result_stays(copied: Copy) -> None:
    def model(x: lucid.Tensor) -> dict[str, Any]:
        return {"a": [x, None, (x + 1,)], "b": Pair(x * 2, {"c": x})}

    other = copied(lucid.trace(model, (2,)))
    result = other(np.ones(2, np.float32))
    assert isinstance(result["b"], Pair) and result["a"][1] is None
    np.testing.assert_array_equal(result["a"][2][0], [2, 2])
    np.testing.assert_array_equal(result["b"].first, [2, 2])
    single = copied(Graph(other.inputs, {"only": other.outputs[0]}))
    assert single(np.ones(2, np.float32)).shape == (2,)


@COPIES
def test_a_graph_deeper_than_python_recurses(copied: Copy) -> None:
    depth = 3 * sys.getrecursionlimit()

    def model(x: lucid.Tensor) -> lucid.Tensor:
        for _ in range(depth):
            x = x + 1
        return x

    other = copied(lucid.trace(model, (1,)))
    assert len(other.nodes()) == depth
    assert other(np.zeros(1, np.float32)).item() == depth


def test_a_pickle_holds_what_the_graph_reads_and_no_more() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.used, self.unused = nn.Linear(64, 64), nn.Linear(512, 512)

        def forward(self, x: lucid.Tensor) -> lucid.Tensor:
            return self.used(x)

    assert len(pickle.dumps(lucid.trace(Model(), (1, 64)))) < 64 * 65 * 4 + 4000


ELSEWHERE = """
import pickle, sys
import lucid
graph = pickle.loads(sys.stdin.buffer.read())
from lucid.export import to_onnx
sys.stdout.buffer.write(to_onnx(graph).SerializeToString(deterministic=True))
"""


@pytest.mark.parametrize("name", ["attention", "sizes"])
def test_another_process_reads_it(name: str) -> None:
    """There strings have other hashes, and no op is loaded yet."""
    model, how = MODELS[name]
    graph = lucid.trace(model, **how)
    done = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=pickle.dumps(graph),
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "123"},
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout == to_onnx(graph).SerializeToString(deterministic=True)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled], ids=["deepcopy", "pickle"])
def test_modules_keep_tied_weights_names_and_ops(copied: Copy) -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, activation=nn.functional.gelu)
    for model, how in ((Tied(), MODELS["tied"][1]), (layer, {})):
        other = copied(model)
        assert list(other.state_dict()) == list(model.state_dict())
        before, after = (to_onnx(each, **how).SerializeToString(deterministic=True) for each in (model, other))
        assert before == after


@st.composite
def views(draw: st.DrawFn) -> list[np.ndarray[Any, Any]]:
    base = np.arange(120, dtype=draw(st.sampled_from(["f4", "i8", "u1"])))
    arrays = []
    for _ in range(draw(st.integers(1, 4))):
        array = draw(st.sampled_from([base, base.copy()])).reshape(draw(st.sampled_from([(120,), (4, 30), (2, 3, 20)])))
        array = array.transpose(draw(st.permutations(range(array.ndim))))
        cut = st.slices(4) | st.just(slice(None)) | st.just(slice(None, None, -1))
        array = array[tuple(draw(cut) for _ in range(array.ndim))]
        if draw(st.booleans()):
            array = np.broadcast_to(array, (2, *array.shape))
        arrays.append(
            array if draw(st.booleans()) or not array.size else array[(0,) * (array.ndim - 1)][:1].reshape(())
        )
    return arrays


TABLE = np.arange(120, dtype=np.float32)


@given(views())
@example([TABLE[:1].reshape(()), TABLE])  # the first array of a block has one element and no axes
def test_any_views_lie_in_memory_as_before(arrays: list[np.ndarray[Any, Any]]) -> None:
    blocks, places = _pack(arrays)
    entries = [
        FlatArray(block, offset, array.shape, array.strides, array.dtype, None)
        for array, (block, offset) in zip(arrays, places, strict=True)
    ]
    unpacked = [_unpacked(entry, copy.deepcopy(blocks)) for entry in entries]
    for array, other in zip(arrays, unpacked, strict=True):
        np.testing.assert_array_equal(array, other, strict=True)
    copies = copy.deepcopy(blocks)
    unpacked = [_unpacked(entry, copies) for entry in entries]
    for i, one in enumerate(arrays):
        for j, two in enumerate(arrays):
            assert np.shares_memory(one, two) == np.shares_memory(unpacked[i], unpacked[j])


def test_an_op_is_one_and_unknown_ones_are_named() -> None:
    assert pickled(lucid.tanh) is copy.deepcopy(lucid.tanh) is lucid.tanh
    graph = Graph([x := Input("x", lucid.spec("N"))], {"y": Node(lucid.tanh, (x,), {}, (x.type,), "").results[0]})
    assert str(pickled(graph)) == str(graph)
