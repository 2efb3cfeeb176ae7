"""The traced graph: printed, checked, run."""

from __future__ import annotations

import textwrap
import weakref
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.graph import Graph
from lucid.core.graph.values import Input, Node, Result

Array = np.ndarray[Any, Any]


def text(block: str) -> str:
    return textwrap.dedent(block).strip()


class Block(nn.Module):
    """A transformer block with two outputs, to have something to print."""

    def __init__(self) -> None:
        self.norm = nn.LayerNorm(8)
        self.attn = nn.MultiHeadAttention(8, 2)
        self.mlp = nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU("tanh"))

    def forward(self, x: Tensor, mask: Tensor) -> dict[str, Tensor]:
        x = x + self.attn(self.norm(x), key_padding_mask=mask)
        return {"states": self.mlp(x) * 0.5, "pooled": x.mean(1)}


def traced_block() -> Graph:
    return lucid.trace(Block(), ("N", "L", 8), lucid.spec("N", "L", dtype=lucid.bool_))


# Printing -------------------------------------------------------------------------------------------------------------


def test_the_repr_of_a_value_does_not_hold_all_that_it_is_computed_from() -> None:
    """It once did, twice for each `x + x`: 2 ** 100 nodes here."""

    def doubled(x: Tensor) -> Tensor:
        for _ in range(100):
            x = x + x
        return x

    (output,) = lucid.trace(doubled, ("N",)).outputs
    assert "add" in repr(output)
    assert len(repr(output)) < 500


def test_a_printed_module_reads_like_a_program() -> None:
    assert str(lucid.trace(nn.MultiHeadAttention(8, 2), lucid.spec("N", "L", 8))) == text(
        """
        graph(query: float32[N, L, 8]) -> float32[N, L, 8]
          linear = linear(query, in_proj_weight[q], in_proj_bias[q])              float32[N, L, 8]
          linear_2 = linear(query, in_proj_weight[k], in_proj_bias[k])            float32[N, L, 8]
          linear_3 = linear(query, in_proj_weight[v], in_proj_bias[v])            float32[N, L, 8]
          attention = attention(linear, linear_2, linear_3, heads=2, kv_heads=2)  float32[N, L, 8]
          linear_4 = linear(attention, out_proj.weight, out_proj.bias)            float32[N, L, 8]
          return linear_4
        """
    )


def test_a_printed_model_shows_modules_absent_arguments_and_attributes() -> None:
    assert str(traced_block()) == text(
        """
        graph(x: float32[N, L, 8], mask: bool[N, L]) -> float32[N, L, 16], float32[N, 8]
          # norm
          layer_norm = layer_norm(x, norm.weight, norm.bias)                                         float32[N, L, 8]
          # attn
          linear = linear(layer_norm, attn.in_proj_weight[q], attn.in_proj_bias[q])                  float32[N, L, 8]
          linear_2 = linear(layer_norm, attn.in_proj_weight[k], attn.in_proj_bias[k])                float32[N, L, 8]
          linear_3 = linear(layer_norm, attn.in_proj_weight[v], attn.in_proj_bias[v])                float32[N, L, 8]
          logical_not = logical_not(mask)                                                            bool[N, L]
          attention = attention(linear, linear_2, linear_3, None, logical_not, heads=2, kv_heads=2)  float32[N, L, 8]
          linear_4 = linear(attention, attn.out_proj.weight, attn.out_proj.bias)                     float32[N, L, 8]
          # top level
          add = add(x, linear_4)                                                                     float32[N, L, 8]
          # mlp.0
          linear_5 = linear(add, mlp.0.weight)                                                       float32[N, L, 16]
          # mlp.1
          gelu = gelu(linear_5, approximate=tanh)                                                    float32[N, L, 16]
          # top level
          mul = mul(gelu, 0.5)                                                                       float32[N, L, 16]
          mean = mean(add, axis=(1,))                                                                float32[N, 8]
          return mul, mean
        """
    )


def test_several_results_of_a_node_and_nameless_constants() -> None:
    table = lucid.zeros(4, 2)
    graph = lucid.trace(lambda x: (*x.split([1, 3], 1), x @ table, x.reshape(-1)), ("N", 4))
    assert str(graph) == text(
        """
        graph(x: float32[N, 4]) -> float32[N, 1], float32[N, 3], float32[N, 2], float32[4*N]
          split, split_2 = split(x, sizes=(1, 3), axis=1)  float32[N, 1], float32[N, 3]
          matmul = matmul(x, <float32[4, 2]>)              float32[N, 2]
          reshape = reshape(x, shape=(4*N,))               float32[4*N]
          return split, split_2, matmul, reshape
        """
    )


def test_what_the_outputs_do_not_reach_is_not_in_the_graph() -> None:
    def wasteful(x: Tensor) -> Tensor:
        _ = (x * 2).softmax()
        return x + 1

    assert [node.op.name for node in lucid.trace(wasteful, ("N",)).nodes()] == ["add"]


def test_what_does_not_depend_on_inputs_is_computed_while_tracing() -> None:
    graph = lucid.trace(lambda x: x + lucid.ones(3).exp().sum() * 2, (3,))
    assert [node.op.name for node in graph.nodes()] == ["add"]


# Names of parameters --------------------------------------------------------------------------------------------------


def constants(graph: Graph) -> list[str | None]:
    return [graph.name_of(v) for node in graph.nodes() for v in node.inputs if v is not None and hasattr(v, "array")]


def test_parts_of_a_parameter_are_named_after_it() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(np.ones((6, 3), np.float32))
            self.inner = nn.Linear(3, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            part = self.weight[:3].named_after(self.weight, "[q]")
            return x @ part.mT + x @ self.inner.weight.T + x @ self.inner.weight

    assert constants(lucid.trace(Model(), ("N", 3))) == ["weight[q].T", "inner.weight.T", "inner.weight"]


def test_a_shared_parameter_has_its_first_name() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.embed = nn.Embedding(4, 3)
            self.head = nn.Linear(3, 4, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, indices: Tensor) -> Tensor:
            return self.head(self.embed(indices))

    graph = lucid.trace(Tied(), lucid.spec("N", dtype=lucid.int64))
    assert constants(graph) == ["embed.weight", "embed.weight"]


def test_other_constants_have_no_name() -> None:
    assert constants(lucid.trace(lambda x: x * 2.0, ("N",))) == [None]


# Running --------------------------------------------------------------------------------------------------------------


def test_a_graph_runs_with_numpy() -> None:
    model = Block()
    graph = lucid.trace(model, ("N", "L", 8), lucid.spec("N", "L", dtype=lucid.bool_))
    for n, l in ((1, 1), (2, 5), (3, 2)):
        x, mask = lucid.randn(n, l, 8), lucid.rand(n, l) > 0.7
        eager, ran = model(x, mask), graph(x, mask)
        assert list(ran) == ["states", "pooled"]
        for name in ran:
            np.testing.assert_allclose(ran[name], eager[name].numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("arrays", "error", "message"),
    [
        ([], ValueError, r"graph: got 0 arrays, expected 2 \(x: float32\[N, 3\], y: int64\[N\]\)"),
        ([np.zeros((2, 3)), np.zeros(2, np.int64)], TypeError, "input x: dtype float64, expected float32"),
        ([np.zeros((2, 4), "f"), np.zeros(2, np.int64)], ValueError, "input x: size 4 at axis 1, expected 3"),
        ([np.zeros((2, 3), "f"), np.zeros(5, np.int64)], ValueError, r"input y: size 5 at axis 0, expected 2 \(N = 2"),
        ([np.zeros(3, "f"), np.zeros(5, np.int64)], ValueError, r"input x: shape \[3\], expected \[N, 3\]"),
    ],
)
def test_running_checks_the_arrays(arrays: list[Array], error: type[Exception], message: str) -> None:
    graph = lucid.trace(lambda x, y: x + y.unsqueeze(1), ("N", 3), lucid.spec("N", dtype=lucid.int64))
    with pytest.raises(error, match=message):
        graph(*arrays)


def test_running_drops_values_after_their_last_use() -> None:
    alive: list[weakref.ref[Array]] = []
    peak = 0

    class Watch:
        """A stand-in for an op: counts how many of its results are still held."""

        def __init__(self, op: Any) -> None:
            self.op = op
            self.name, self.defaults, self.infer = op.name, op.defaults, op.infer

        def evaluate(self, inputs: Any, attributes: Any) -> tuple[Array, ...]:
            nonlocal peak
            results: tuple[Array, ...] = self.op.evaluate(inputs, attributes)
            alive.append(weakref.ref(results[0]))
            peak = max(peak, sum(ref() is not None for ref in alive))
            return results

    def chain(x: Tensor) -> Tensor:
        for _ in range(20):
            x = x + 1
        return x

    graph = lucid.trace(chain, ("N",))
    for node in graph.nodes():
        node.op = Watch(node.op)
    assert graph(np.zeros(2, "f")).tolist() == [20, 20]
    assert peak == 2


def test_a_look_at_values_inside() -> None:
    graph = lucid.trace(lambda x: (x * 2).exp(), ("N",))
    inside = graph.with_outputs({"doubled": graph.nodes()[0].results[0]})
    assert inside.output_names == ("doubled",)
    assert inside(np.array([1, 2], "f")).tolist() == [2, 4]


# Verifying ------------------------------------------------------------------------------------------------------------


def test_verify_accepts_what_tracing_made() -> None:
    traced_block().verify()


def test_verify_names_a_node_whose_type_is_wrong() -> None:
    graph = traced_block()
    node = next(node for node in graph.nodes() if node.op.name == "gelu")
    node.types = (lucid.spec("N", "L", 17),)
    with pytest.raises(ValueError, match=r"graph: gelu is recorded as float32\[N, L, 17\], .* float32\[N, L, 16\]"):
        graph.verify()


def test_verify_notices_a_wrong_element_type() -> None:
    graph = lucid.trace(lambda x: x + 1, ("N",))
    graph.nodes()[0].types = (lucid.spec("N", dtype=lucid.int64),)
    with pytest.raises(ValueError, match="add is recorded as int64"):
        graph.verify()


def test_verify_notices_a_foreign_input() -> None:
    stranger = Input("stranger", lucid.spec("N"))
    node = Node(ops.exp, (stranger,), {}, (stranger.type,), "")
    graph = Graph([Input("x", lucid.spec("N"))], {"output": node.results[0]})
    with pytest.raises(ValueError, match="exp reads stranger, which is not an input of this graph"):
        graph.verify()


def test_a_node_cannot_be_made_of_wrong_types() -> None:
    with pytest.raises(ValueError, match="matmul"):
        lucid.trace(lambda a, b: a @ b, ("N", 3), (4, "M"))


# Depth ----------------------------------------------------------------------------------------------------------------


def test_a_very_deep_graph_prints_verifies_and_runs() -> None:
    def deep(x: Tensor) -> Tensor:
        for _ in range(3000):
            x = x + 1
        return x

    graph = lucid.trace(deep, ("N",))
    assert len(graph.nodes()) == 3000
    assert len(str(graph).splitlines()) == 3002
    graph.verify()
    assert graph(np.zeros(1, "f")).tolist() == [3000]


def test_the_order_is_a_function_of_the_graph() -> None:
    def diamond(x: Tensor) -> Tensor:
        left, right = x.exp(), x.tanh()
        return (right * 2) + left

    assert [node.op.name for node in lucid.trace(diamond, ("N",)).nodes()] == ["tanh", "mul", "exp", "add"]
    assert isinstance(lucid.trace(diamond, ("N",)).outputs[0], Result)
