"""Constants while tracing: their names, and what is never folded."""

from __future__ import annotations

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.export import to_onnx
from lucid.ops.op import composite_with
from lucid.runtime import Session


class Scaled(nn.Module):
    """Norms that store their weight as a difference from 1, as Gemma's do."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(lucid.randn(4))
        self.table = nn.Parameter(lucid.randn(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        return ops.rms_norm(x, self.weight + 1) + self.table[2:3] * (
            x @ self.table.astype("float16").astype("float32").T
        )


def initializers(model: nn.Module, **options: object) -> set[str]:
    return {tensor.name for tensor in to_onnx(model, ("N", 4), **options).graph.initializer}


def test_what_is_computed_from_one_parameter_keeps_its_name() -> None:
    assert initializers(Scaled()) == {"weight.add(1)", "table.slice", "table.cast.cast.T"}


def test_a_parameter_that_is_computed_with_in_an_inlined_body_keeps_its_name() -> None:
    names = initializers(nn.Sequential(nn.Linear(4, 4)), target="portable")
    assert names == {"0.weight.T", "0.bias"}


def test_what_is_computed_from_two_parameters_or_from_none_has_no_story() -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            self.a, self.b = nn.Parameter(lucid.randn(4)), nn.Parameter(lucid.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return x * (self.a * self.b) + lucid.ones(4)

    assert all(name.startswith("constant") for name in initializers(Both()))


def test_the_same_part_twice_is_one_initializer() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.weight = nn.Parameter(lucid.randn(4))

        def forward(self, x: Tensor) -> Tensor:
            return (x * (self.weight + 1)) * (self.weight + 1)

    assert initializers(Twice()) == {"weight.add(1)"}


def test_eager_results_remember_nothing() -> None:
    assert (lucid.randn(3) + 1).origin is None


def test_an_op_that_is_not_folded_stays_a_node() -> None:

    @composite_with(folded=False)
    def unpacked(packed: Tensor, scale: Tensor) -> Tensor:
        return packed.astype("float32") * scale

    class Packed(nn.Module):
        def __init__(self) -> None:
            self.packed = nn.Parameter(np.arange(-4, 4, dtype=np.int8).reshape(2, 4))
            self.scale = nn.Parameter(np.full((2, 1), 0.5, np.float32))

        def forward(self, x: Tensor) -> Tensor:
            return x @ unpacked(self.packed, self.scale)

    model, x = Packed(), lucid.randn(3, 2)
    graph = lucid.trace(model, ("N", 2))
    assert [node.op.name for node in graph.nodes()] == ["unpacked", "matmul"]
    exported = to_onnx(graph)
    assert {t.name: t.data_type for t in exported.graph.initializer}["packed"] == 3  # int8, not widened
    np.testing.assert_allclose(Session(exported).run({"x": x.numpy()})["output"], model(x), rtol=1e-6)
