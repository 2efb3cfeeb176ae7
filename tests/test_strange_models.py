"""Unusual models that occur in practice: each is exported, runs and agrees with eager."""

from __future__ import annotations

import traceback
from typing import Any

import numpy as np
import onnx
import pytest

import lucid
from lucid import Tensor, nn
from lucid.core.graph.scope import is_tracing
from lucid.core.graph.types import DTYPES
from lucid.export import ExportError, to_onnx
from lucid.runtime import Session
from lucid.testing import assert_parity

X = ("N", 4)


def initializers(model: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in model.graph.initializer]


class Model(nn.Module):
    """A module around a function, with the given attributes."""

    def __init__(self, function: Any, **attributes: Any) -> None:
        vars(self).update(attributes)
        self._function = function

    def forward(self, *inputs: Any) -> Any:
        return self._function(self, *inputs)


# Parameters -------------------------------------------------------------------------------------------------------


def test_no_parameters() -> None:
    assert_parity(lambda x: x.tanh(), X)
    assert initializers(to_onnx(lambda x: x.tanh(), X)) == []


def test_a_parameter_used_twice_is_stored_once() -> None:
    model = Model(lambda self, x: x @ self.w + (x * 2) @ self.w, w=nn.Parameter(np.eye(4, dtype=np.float32)))
    assert_parity(model, X)
    assert initializers(to_onnx(model, X)).count("w") == 1


def test_two_views_of_one_weight_are_two_weights() -> None:
    """Reversing all axes and exchanging the last two are both called .T, but differ for three axes."""
    cube = np.arange(27, dtype=np.float32).reshape(3, 3, 3)
    model = Model(lambda self, x: x + self.w.mT + self.w.T, w=nn.Parameter(cube))
    assert_parity(model, ("N", 3, 3, 3))


def test_a_tied_weight_is_stored_once_under_its_first_name() -> None:
    table = nn.Embedding(7, 4)
    head = nn.Linear(4, 7, bias=False)
    head.weight = table.weight
    model = Model(lambda self, i: self.head(self.table(i)), table=table, head=head)
    exported = to_onnx(model, lucid.spec("N", "L", dtype=lucid.int64))
    assert_parity(model, lucid.spec("N", "L", dtype=lucid.int64))
    sizes = sum(int(np.prod(t.dims)) for t in exported.graph.initializer if t.data_type == onnx.TensorProto.FLOAT)
    assert sizes <= 2 * 28, "the table, and at most one transpose of it"
    assert "table.weight" in initializers(exported)


def test_tied_arrays_load_and_export_once() -> None:
    """Two parameters that hold the same array are one weight in the file."""
    model = Model(lambda self, x: (x @ self.a) @ self.b, a=nn.Parameter(np.eye(4)), b=nn.Parameter(np.eye(4)))
    shared = np.full((4, 4), 0.5, np.float64)
    model.load_state_dict({"a": shared, "b": shared})
    names = initializers(to_onnx(model, lucid.spec("N", 4, dtype=lucid.float64)))
    assert names == ["a"]


def test_modules_that_share_a_child_name_it_after_its_first_place() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(nn.Sequential(shared, nn.ReLU()), nn.Sequential(shared, nn.Tanh()))
    assert_parity(model, X)
    names = initializers(to_onnx(model, X))
    assert sorted(name for name in names if "weight" in name) == ["0.0.weight.T"]


def test_a_module_inside_itself_is_walked_once() -> None:
    model = Model(lambda self, x: self.inner(x), inner=nn.Linear(4, 4))
    model.me = model
    assert [path for path, _ in model.named_modules()] == ["", "inner"]


def test_an_empty_parameter() -> None:
    model = Model(lambda self, x: x @ self.w, w=nn.Parameter(np.zeros((4, 0), np.float32)))
    (output,) = Session(to_onnx(model, X)).run({"inputs.0": np.ones((2, 4), np.float32)}).values()
    assert output.shape == (2, 0)


# Inputs and outputs -----------------------------------------------------------------------------------------------


def test_an_output_that_is_an_input() -> None:
    assert_parity(lambda x: x, X)
    assert_parity(lambda x, y: (y, x + y, x), X, X)


def test_an_output_that_is_a_constant() -> None:
    constant = Tensor(np.arange(3.0))
    assert_parity(lambda x: (x + 1, constant), X)
    assert_parity(lambda x: constant, X)


def test_an_output_that_is_a_parameter() -> None:
    model = Model(lambda self, x: (x @ self.w, self.w), w=nn.Parameter(np.eye(4, dtype=np.float32)))
    assert_parity(model, X)
    assert initializers(to_onnx(model, X)) == ["w"]


def test_an_input_that_nothing_reads_stays_an_input() -> None:
    session = Session(to_onnx(lambda x, unused: x + 1, X, ("M", 3)))
    assert list(session.inputs) == ["x", "unused"]
    assert_parity(lambda x, unused: x + 1, X, ("M", 3))


def test_two_outputs_that_are_the_same() -> None:
    def twice(x: Tensor) -> Any:
        y = x.exp()
        return y, y, {"again": y}

    report = assert_parity(twice, X)
    assert len({c.output for c in report.comparisons}) == 3


def test_a_nest_of_outputs_keeps_its_structure() -> None:
    graph = lucid.trace(lambda x: {"a": [x, (x + 1,)], "b": None}, X)
    result = graph(np.ones((2, 4), np.float32))
    assert result["b"] is None
    np.testing.assert_array_equal(result["a"][1][0], np.full((2, 4), 2, np.float32))


def test_outputs_whose_names_would_meet_are_an_error() -> None:
    with pytest.raises(ValueError, match="both be called a_0"):
        lucid.trace(lambda x: {"a": (x, x + 1), "a_0": x + 2}, X)


@pytest.mark.parametrize("nothing", [None, [], (), {}, [[], None]])
def test_no_output_at_all_is_an_error(nothing: Any) -> None:
    with pytest.raises(TypeError, match="expected a tensor or a structure of tensors"):
        lucid.trace(lambda x: nothing, X)


def test_empty_lists() -> None:
    assert_parity(lambda xs, y: sum(xs, start=y), [], X)
    assert_parity(nn.Sequential(), X)
    assert_parity(nn.Sequential(nn.Linear(4, 2), nn.Sequential()), X)


def test_lists_and_dicts_of_inputs() -> None:
    assert_parity(lambda xs: xs[0] + xs[1]["b"], [lucid.spec("N", 4), {"b": lucid.spec("N", 1)}])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_an_input_of_every_dtype(dtype: lucid.DType) -> None:
    kind = lucid.spec("N", 3, dtype=dtype)
    assert_parity(lambda x: (x, x.reshape(3, -1), lucid.ops.stack([x, x])), kind)
    assert_parity(lambda x: x == x[:1], kind)
    if dtype.kind != "bool":
        assert_parity(lambda x: (x + 1, x * x, x.sum(), x.max(axis=1)), kind)


def test_a_scalar_input() -> None:
    assert_parity(lambda x, scale: x * scale, X, lucid.spec())
    assert_parity(lambda step: step + 1, lucid.spec(dtype=lucid.int64))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_scalar_of_every_dtype_stays_a_scalar(dtype: lucid.DType) -> None:
    report = assert_parity(lambda x: x, lucid.spec(dtype=dtype))
    assert report.comparisons[0].elements == 1


def test_sizes_only() -> None:
    """The values of the input do not matter, its shape does."""
    assert_parity(lambda x: lucid.zeros(x.shape[0], 2) + lucid.arange(x.shape[0]).unsqueeze(1), X)


def test_one_axis_of_size_zero_in_the_signature() -> None:
    session = Session(to_onnx(lambda x: x.sum(axis=1), ("N", 0)))
    np.testing.assert_array_equal(session(np.ones((3, 0), np.float32)).numpy(), np.zeros(3))


# Size -------------------------------------------------------------------------------------------------------------


def test_a_thousand_layers() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            self.layers = [nn.Linear(4, 4) for _ in range(1000)]

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = x + 0.01 * layer(x).tanh()
            return x

    model = Deep()
    graph = lucid.trace(model, X)
    assert len(graph.nodes()) == 4000
    assert len(str(graph)) > 4000
    assert_parity(model, X, sizes=[{"N": 2}])


def test_a_value_that_a_thousand_nodes_read() -> None:
    def wide(x: Tensor) -> Any:
        return [x * float(i) for i in range(1000)]

    report = assert_parity(wide, X, sizes=[{"N": 2}])
    assert len(report.comparisons) == 1000


def test_a_sum_of_powers_of_two_stays_small() -> None:
    """This graph has 2**200 paths; each node is visited once."""

    def doubling(x: Tensor) -> Tensor:
        for _ in range(200):
            x = (x + x) * 0.5
        return x

    assert len(lucid.trace(doubling, X).nodes()) == 400
    assert_parity(doubling, X)


# Names ------------------------------------------------------------------------------------------------------------


def test_names_that_clash_with_those_of_the_graph() -> None:
    class Clash(nn.Module):
        def __init__(self) -> None:
            self.output = nn.Parameter(np.full(4, 2.0, np.float32))
            self.x = nn.Parameter(np.full(4, 3.0, np.float32))
            self.Add = nn.Parameter(np.full(4, 5.0, np.float32))
            self.constant = nn.Parameter(np.full(4, 7.0, np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return (x + self.output) * self.x + self.Add - self.constant * np.arange(4, dtype=np.float32)

    assert_parity(Clash(), X)


def test_an_input_may_be_called_output() -> None:
    assert_parity(lambda output: output + 1, X)
    assert_parity(lambda output, output_out: output + output_out, X, X)


def test_an_input_may_have_the_name_of_a_parameter_or_a_node() -> None:
    model = Model(lambda self, x: (x + self.w) * 2, w=nn.Parameter(np.ones(4, np.float32)))
    for name in ("w", "Add", "Mul", "constant"):
        exported = to_onnx(model, X, input_names=[name])
        (output,) = Session(exported).run({name: np.ones((2, 4), np.float32)}).values()
        np.testing.assert_array_equal(output, np.full((2, 4), 4))


def test_unicode_dots_slashes_and_spaces_in_names() -> None:
    names = ["größe", "注意", "a.b", "a/b", "with space", "", "🙂", 'quo"te', "line\nbreak"]
    model = nn.Sequential(nn.ModuleDict({name: nn.Linear(4, 4) for name in names}))
    module = Model(lambda self, x: sum((m(x) for m in self.parts.values()), start=x), parts=model[0])
    assert_parity(module, X)
    exported = to_onnx(module, X, input_names=["größe"], output_names=["出力"])
    assert [value.name for value in exported.graph.input] == ["größe"]
    outputs = Session(exported).run({"größe": np.ones((1, 4), np.float32)})
    assert list(outputs) == ["出力"]


def test_keys_that_come_out_the_same_keep_both_weights() -> None:
    """The module "a" holds "b.weight", and a dict holds a module under "a.b": one key, two weights."""

    class Doubled(nn.Module):
        def __init__(self) -> None:
            self.a = nn.ModuleDict(
                {"b.c": nn.Linear(4, 4, bias=False), "b": nn.ModuleDict({"c": nn.Linear(4, 4, bias=False)})}
            )

        def forward(self, x: Tensor) -> Tensor:
            return self.a["b.c"](x) + 2 * self.a["b"]["c"](x)

    assert_parity(Doubled(), X)


@pytest.mark.parametrize("names", [["x", "x"], ["", "y"], ["x"], ["x", 3]])
def test_names_that_cannot_be_used_are_errors(names: Any) -> None:
    with pytest.raises(ExportError, match="input_names"):
        to_onnx(lambda a, b: a + b, X, X, input_names=names)


def test_an_input_and_an_output_of_one_name_are_an_error() -> None:
    with pytest.raises(ExportError, match="y are names of inputs too"):
        to_onnx(lambda x: x + 1, X, input_names=["y"], output_names=["y"])


# A forward that fails ---------------------------------------------------------------------------------------------


class Failing(nn.Module):
    def __init__(self, error: Exception) -> None:
        self._error = error
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        self.inner(x)
        raise self._error  # the line that the traceback must show


@pytest.mark.parametrize("error", [RuntimeError("no"), KeyboardInterrupt(), ValueError("bad")], ids=repr)
def test_an_error_in_forward_comes_through_and_leaves_nothing_behind(error: Exception) -> None:
    model = nn.Sequential(nn.Linear(4, 4), Failing(error))
    for call in (lucid.trace, to_onnx, assert_parity):
        with pytest.raises(type(error)) as caught:
            call(model, X)
        assert caught.value is error
        lines = [frame.line for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert any(line and "the line that the traceback must show" in line for line in lines)
        assert not is_tracing()
        error.__traceback__ = None
    assert_parity(nn.Linear(4, 4), X)


def test_a_branch_on_a_traced_value_names_the_way_out() -> None:
    with pytest.raises(TypeError, match=r"lucid\.where"):
        to_onnx(lambda x: x if x.sum() > 0 else -x, X)
    assert not is_tracing()


def test_a_model_that_keeps_a_traced_tensor_says_so_later() -> None:
    """A tensor kept from one trace is not a value of another graph, nor of eager code."""
    kept: list[Tensor] = []

    def leaky(x: Tensor) -> Tensor:
        kept.append(x)
        return x + kept[0]

    lucid.trace(leaky, X)
    with pytest.raises(ValueError, match="kept from another trace"):
        to_onnx(leaky, X)
    with pytest.raises(TypeError, match="traced"):
        kept[0].numpy()


def test_the_model_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).train()
    before = {key: value.numpy().copy() for key, value in model.state_dict().items()}
    to_onnx(model, X)
    assert_parity(model, X)
    assert all(module.training for module in model.modules())
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), before[key])
