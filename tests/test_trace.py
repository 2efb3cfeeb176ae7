"""Tracing: the specs of inputs, the outputs, and errors that say what to do."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import pytest

import lucid
from lucid import Tensor, TracedValueError, nn
from lucid.core.graph.graph import Graph
from lucid.core.graph.scope import is_tracing
from lucid.core.process.context import is_evaluating
from lucid.core.sizes.dims import SymbolicSizeError
from lucid.nn import functional as F


def inputs(graph: Graph) -> dict[str, str]:
    return {value.name: str(value.type) for value in graph.inputs}


# What stands for an input ---------------------------------------------------------------------------------------------


def add(x: Tensor, y: Tensor) -> Tensor:
    return x + y


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((lucid.spec("N", 3), lucid.spec("N", 1)), {"x": "float32[N, 3]", "y": "float32[N, 1]"}),
        ((("N", 3), ()), {"x": "float32[N, 3]", "y": "float32[]"}),
        ((("2*N", 3), ("N", 1, 1)), {"x": "float32[2*N, 3]", "y": "float32[N, 1, 1]"}),
        ((lucid.zeros(2, 3), np.zeros(3, np.int32)), {"x": "float32[2, 3]", "y": "int32[3]"}),
        ((lucid.spec("N", 3, dtype="float16"), 2.0), {"x": "float16[N, 3]"}),
    ],
    ids=["specs", "shorthand", "sums", "examples", "a number"],
)
def test_specs_shorthand_and_examples(arguments: tuple[Any, ...], expected: dict[str, str]) -> None:
    assert inputs(lucid.trace(add, *arguments)) == expected


def test_an_example_fixes_its_shape_but_not_its_values() -> None:
    graph = lucid.trace(add, lucid.ones(2), lucid.ones(2))
    assert graph(np.full(2, 5, "f"), np.full(2, 7, "f")).tolist() == [12, 12]


def test_lists_tuples_and_dicts_of_inputs() -> None:
    def attend(layers: list[Tensor], cache: dict[str, Any]) -> Tensor:
        assert isinstance(layers, list)
        return layers[0] + layers[1] + cache["keys"] + cache["more"][0]

    graph = lucid.trace(attend, [("N", 3), lucid.spec("N", 3)], {"keys": ("N", 1), "more": [lucid.zeros(3)]})
    assert inputs(graph) == {
        "layers.0": "float32[N, 3]",
        "layers.1": "float32[N, 3]",
        "cache.keys": "float32[N, 1]",
        "cache.more.0": "float32[3]",
    }


class Pair(NamedTuple):
    left: Any
    right: Any


def test_a_named_tuple_stays_one() -> None:
    graph = lucid.trace(lambda p: Pair(p.left + p.right, p.left), Pair(lucid.spec("N"), lucid.spec("N")))
    assert inputs(graph) == {"p.left": "float32[N]", "p.right": "float32[N]"}
    ran = graph(np.ones(2, "f"), np.ones(2, "f"))
    assert isinstance(ran, Pair)
    assert ran.left.tolist() == [2, 2]


def test_inputs_by_name_and_plain_values() -> None:
    def scale(x: Tensor, *, by: Tensor, power: int = 1, flag: bool = False) -> Tensor:
        return (x * by) ** power if flag else x

    graph = lucid.trace(scale, ("N",), kwargs={"by": lucid.spec("N"), "power": 2, "flag": True})
    assert inputs(graph) == {"x": "float32[N]", "by": "float32[N]"}
    assert graph(np.array([3], "f"), np.array([2], "f")).tolist() == [36]


def test_variadic_inputs_are_numbered() -> None:
    assert inputs(lucid.trace(lambda *xs: xs[0] + xs[1], ("N",), ("N",))) == {
        "xs.0": "float32[N]",
        "xs.1": "float32[N]",
    }


def test_modules_that_know_their_inputs_need_no_specs() -> None:
    graph = lucid.trace(nn.MultiHeadAttention(8, 2, kdim=3, vdim=5))
    assert inputs(graph) == {"query": "float32[N, L, 8]", "key": "float32[N, S, 3]", "value": "float32[N, S, 5]"}


def test_what_is_given_by_name_joins_the_inputs_a_module_knows() -> None:
    mask = lucid.spec("N", "S", dtype=lucid.bool_)
    graph = lucid.trace(nn.MultiHeadAttention(8, 2), kwargs={"key_padding_mask": mask, "need_weights": True})
    assert list(inputs(graph)) == ["query", "key", "value", "key_padding_mask"]
    assert graph.output_names == ("output_0", "output_1")


# What comes out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "names"),
    [
        (lambda x: x + 1, ["output"]),
        (lambda x: (x + 1, x + 2), ["output_0", "output_1"]),
        (lambda x: [x + 1, None, (x + 2,)], ["output_0", "output_2_0"]),
        (lambda x: {"logits": x + 1, "past": [x + 2, x + 3]}, ["logits", "past_0", "past_1"]),
        (lambda x: (x, x), ["output_0", "output_1"]),
        (lambda x: lucid.ones(2), ["output"]),
    ],
    ids=["tensor", "tuple", "nested", "dict", "the input itself", "a constant"],
)
def test_outputs_are_named_after_their_place(model: Any, names: list[str]) -> None:
    assert list(lucid.trace(model, ("N",)).output_names) == names


class Named(nn.Module):
    """Two outputs, which have names in a graph."""

    output_names = ("first", "second")

    def forward(self, x: Tensor, more: bool = False) -> tuple[Tensor, ...]:
        return (x + 1, x + 2, x + 3) if more else (x + 1, x + 2)


def test_a_module_may_name_its_outputs() -> None:
    assert lucid.trace(Named(), ("N",)).output_names == ("first", "second")
    assert lucid.trace(Named().forward, ("N",)).output_names == ("output_0", "output_1")  # a method has its own
    report = lucid.testing.assert_parity(Named(), ("N",))
    assert {comparison.output for comparison in report.comparisons} == {"first", "second"}


def test_as_many_names_as_outputs_are_needed() -> None:
    with pytest.raises(ValueError, match="Named returned 3 outputs, but its output_names are first, second"):
        lucid.trace(Named(), ("N",), kwargs={"more": True})


def test_running_a_graph_returns_the_structure_of_the_function() -> None:
    graph = lucid.trace(lambda x: {"a": (x + 1, None), "b": [x]}, ("N",))
    ran = graph(np.zeros(1, "f"))
    assert ran["a"][0].tolist() == [1]
    assert ran["a"][1] is None
    assert ran["b"][0].tolist() == [0]


def test_a_module_is_traced_in_evaluation_mode_and_keeps_its_own() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)).train()
    graph = lucid.trace(model, ("N", 3))
    assert [node.op.name for node in graph.nodes()] == ["linear"]
    assert model.training


# Errors that show the way ---------------------------------------------------------------------------------------------


class Model(nn.Module):
    def forward(self, tokens: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
        return tokens * mask * scale


def test_without_inputs_the_error_shows_the_line_to_write() -> None:
    with pytest.raises(TypeError) as caught:
        lucid.trace(Model())
    line = 'lucid.export.to_onnx(model, kwargs=dict(tokens=lucid.spec("N", ...), mask=lucid.spec("N", ...)))'
    assert f"Model takes (tokens, mask, scale=1.0): write {line}" in str(caught.value)


def test_the_line_that_the_error_shows_works() -> None:
    kwargs = {"tokens": lucid.spec("N", 3), "mask": lucid.spec("N", 3)}
    assert list(inputs(lucid.trace(Model(), kwargs=kwargs))) == ["tokens", "mask"]


@pytest.mark.parametrize(
    ("model", "arguments", "error", "message"),
    [
        (Model(), [("N",)], TypeError, "missing a required argument: 'mask'"),
        (Model(), [("N",)] * 4, TypeError, "too many positional arguments"),
        (add, [("N",)], TypeError, r"missing a required argument: 'y'; add takes \(x, y\)"),
        (lambda x=None: lucid.ones(1), [], TypeError, "no inputs given"),
        ("model", [("N",)], TypeError, "the model has type str, expected a Module or a function"),
        (lambda x: None, [("N",)], TypeError, "the model returned NoneType, expected a tensor"),
        (lambda x: 3, [("N",)], TypeError, "the model returned int as output"),
        (lambda x: {"a": [x, "b"]}, [("N",)], TypeError, "the model returned str as a_1"),
        (lambda x: {"a": [x], "a_0": x}, [("N",)], ValueError, "two outputs would both be called a_0"),
        (lambda x: x, [("N*L",)], ValueError, "size L, N cannot be computed from the sizes of the inputs"),
        (lambda x: x, [("N/2",)], ValueError, 'size "N/2": expected a name'),
        (lambda x: x, [(-1, 3)], ValueError, "size -1 is negative"),
        (lambda x: x, [np.zeros(2, complex)], TypeError, "is not one of float32"),
    ],
)
def test_wrong_calls_are_errors(model: Any, arguments: list[Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        lucid.trace(model, *arguments)


def test_an_unknown_keyword_is_an_error() -> None:
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'maks'; Model takes"):
        lucid.trace(Model(), ("N",), ("N",), kwargs={"maks": 1})


def test_branching_on_a_traced_value_is_an_error() -> None:
    def branch(x: Tensor) -> Tensor:
        return x if x.sum() > 0 else -x

    with pytest.raises(TracedValueError, match=r"lucid.where\(condition, a, b\) instead of Python's if"):
        lucid.trace(branch, ("N",))


class Noisy(nn.Module):
    """Noise that is drawn when the model is made."""

    def __init__(self) -> None:
        self.noise = lucid.randn(3)

    def forward(self, x: Tensor) -> Tensor:
        """(N, 3) to (N, 3)."""
        return x + self.noise


@pytest.mark.parametrize(
    ("draw", "what"),
    [
        (lambda x: x + lucid.randn(3), "randn"),
        (lambda x: x + lucid.rand(3), "rand"),
        (lambda x: x + lucid.randint(5, (3,)), "randint"),
        (lambda x: x + lucid.randperm(3), "randperm"),
        (lambda x: x + x.randn(3), "randn"),
        (lambda x: x + nn.init.normal_(nn.Parameter(np.zeros(3, np.float32))), "nn.init"),
        (lambda x: nn.Linear(3, 3)(x), "nn.init"),
        (lambda x: lucid.ops.scan(lambda c, e: (c, e + lucid.randn(3)), lucid.zeros(3), x)[1], "randn"),
    ],
)
def test_random_numbers_drawn_while_tracing_are_an_error_that_names_the_line(draw: Any, what: str) -> None:
    """They would be constants of the exported model."""
    with pytest.raises(TracedValueError, match=f"^{what}: random numbers .* make them an input") as error:
        lucid.trace(draw, ("N", 3))
    assert "test_trace.py" in error.value.__notes__[0]
    assert draw(lucid.ones(2, 3)).shape == (2, 3)  # eagerly they are drawn


def test_dropout_of_a_constant_is_drawn_in_each_run_and_has_no_exported_form() -> None:
    graph = lucid.trace(lambda x: x + F.dropout(lucid.ones(64), 0.5, training=True), (64,))
    assert (graph(np.zeros(64, np.float32)) != graph(np.zeros(64, np.float32))).any()
    with pytest.raises(lucid.export.ExportError, match="dropout is for training"):
        lucid.export.to_onnx(graph)


@pytest.mark.parametrize("name", ["bernoulli", "poisson"])
def test_random_numbers_that_lucid_does_not_draw_say_what_to_do(name: str) -> None:
    with pytest.raises(AttributeError, match="make them outside, with NumPy, and give them as an input"):
        getattr(lucid, name)


def test_random_numbers_drawn_before_are_constants() -> None:
    outside = lucid.randn(3)
    lucid.testing.assert_parity(Noisy(), ("N", 3))
    lucid.testing.assert_parity(lambda x: x * outside, ("N", 3))


@pytest.mark.parametrize(
    "forward",
    [
        lambda x: x.reshape(int(x.shape[0]), -1),
        lambda x: lucid.tensor(np.arange(x.shape[0])),
        lambda x: sum(x[i] for i in range(x.shape[0])),
        lambda x: x if x.shape[0] > 4 else x * 2,
        lambda x: x if x.shape[0] == 4 else x * 2,
        lambda x: x / len(x),
        lambda x: x.split(2),
    ],
    ids=["int", "numpy", "range", "compare", "equal", "len", "pieces"],
)
def test_a_symbolic_size_never_turns_into_a_number(forward: Any) -> None:
    with pytest.raises(SymbolicSizeError, match=r"\bN\b.*run time"):
        lucid.trace(forward, ("N", 3))


def test_two_sizes_of_different_names_do_not_meet() -> None:
    with pytest.raises(ValueError, match=r"add: shapes \[N\] and \[M\] do not broadcast"):
        lucid.trace(add, ("N",), ("M",))


# State ----------------------------------------------------------------------------------------------------------------


def test_a_forward_that_raises_leaves_nothing_behind() -> None:
    class Broken(nn.Module):
        def __init__(self) -> None:
            self.inner = nn.Dropout(1.0)

        def forward(self, x: Tensor) -> Tensor:
            self.inner(x)
            raise RuntimeError("no")

    model = Broken().train()
    with pytest.raises(RuntimeError, match="no"):
        lucid.trace(model, ("N",))
    assert not is_tracing() and not is_evaluating()
    assert model.training
    assert model.inner(lucid.ones(2)).tolist() == [0, 0]  # dropout is active again
    lucid.trace(lambda x: x + 1, ("N",)).verify()


def test_traces_in_threads_do_not_meet() -> None:
    def run(width: int) -> None:
        model = nn.Sequential(*[nn.Linear(width, width) for _ in range(20)])
        barrier.wait()
        graphs[width] = str(lucid.trace(model, ("N", width)))

    graphs: dict[int, str] = {}
    barrier = threading.Barrier(4)
    threads = [threading.Thread(target=run, args=(width,)) for width in (2, 3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for width, shown in graphs.items():
        assert shown.count("= linear(") == 20
        assert f"float32[N, {width}]" in shown
        assert "# 19" in shown


def test_modules_called_inside_a_trace_of_a_function_work() -> None:
    layer = nn.Linear(3, 2)
    graph = lucid.trace(lambda x: layer(x).tanh(), ("N", 3))
    x = lucid.randn(4, 3)
    np.testing.assert_allclose(graph(x), layer(x).tanh().numpy(), rtol=1e-6)


def test_an_input_given_by_name_takes_the_place_of_those_the_module_knows() -> None:
    """If the others were kept, self-attention could not be requested by name, as on the command line."""
    attention = lucid.nn.MultiHeadAttention(8, 2)
    query = lucid.spec("N", "L", 8)
    assert [value.name for value in lucid.trace(attention, kwargs={"query": query}).inputs] == ["query"]
    mask = lucid.trace(attention, kwargs={"key_padding_mask": lucid.spec("N", "S", dtype=bool)})
    assert [value.name for value in mask.inputs] == ["query", "key", "value", "key_padding_mask"]
