"""Tests of what `forward` assigns to attributes of its module, to be looked at later."""

import warnings
from pathlib import Path

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.nn import functional as F
from lucid.nn import init


class Attention(nn.Module):
    shift: lucid.Tensor

    def __init__(self) -> None:
        self.query = nn.Linear(4, 4)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        self.weights = F.softmax(self.query(x) @ x.mT, -1)
        self._first = self.weights[0]
        return self.weights @ x


class Averaged(nn.Module):
    def __init__(self) -> None:
        self.weight, self.mean = nn.Parameter(np.ones(3)), lucid.zeros(3)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        self.mean = self.mean * 0.5 + x.mean(0) * 0.5
        return x * self.weight


def test_a_value_that_forward_keeps_does_not_outlive_a_trace(tmp_path: Path) -> None:
    model, x = Attention(), lucid.ones(2, 3, 4)
    step = lucid.value_and_grad(lambda x: model(x).sum(), wrt=model)
    value, _ = step(x)
    assert "weights" not in vars(model) and "_first" not in vars(model)
    assert step(x)[0].item() == value.item()
    assert lucid.trace(model, ("N", 3, 4)).nodes() and to_onnx(model, ("N", 3, 4))
    np.testing.assert_allclose(lucid.compile(model)(x).numpy(), model(x).numpy(), rtol=1e-5)
    lucid.save(tmp_path / "weights.safetensors", model.state_dict())


def test_the_error_about_a_value_that_a_trace_took_out_says_so() -> None:
    model, x = Attention(), lucid.ones(2, 3, 4)
    lucid.value_and_grad(lambda x: model(x).sum(), wrt=model)(x)
    why = ": forward assigned it .*; return it .*has_aux=True.*, or call the module eagerly before you read it"
    for owner, name, end in ((model, "weights", why), (model, "weight", ""), (Attention(), "weights", "")):
        with pytest.raises(AttributeError, match=f"^'Attention' object has no attribute '{name}'{end}$"):
            getattr(owner, name)
    assert not hasattr(model, "_first")
    model(x)
    assert model.weights.shape == (2, 3, 3)


def test_a_value_kept_eagerly_is_there_again_after_a_trace() -> None:
    model, x = Attention(), lucid.ones(2, 3, 4)
    model(x)
    eager = model.weights.numpy()
    lucid.value_and_grad(lambda x: lucid.grad(lambda y: model(y).sum())(x).sum(), wrt=model)(x)
    assert model.weights.numpy() is eager


def test_a_value_kept_eagerly_is_no_state() -> None:
    model = Attention()
    model(lucid.ones(2, 3, 4))
    assert list(model.state_dict()) == ["query.weight", "query.bias"]
    Attention().load_state_dict(model.state_dict())
    model.shift = lucid.zeros(4)
    assert "shift" in model.state_dict()


def test_traced_values_that_the_state_cannot_take_are_reported() -> None:
    model = Averaged()
    with pytest.warns(UserWarning, match="Averaged: forward assigns to mean, a part of the state, which keeps its"):
        lucid.trace(model, ("N", 3))
    assert model.mean.tolist() == [0, 0, 0]
    model(lucid.ones(2, 3))
    assert model.state_dict()["mean"].tolist() == [0.5, 0.5, 0.5]


def test_all_values_are_taken_out_where_warnings_are_errors() -> None:
    model = nn.Sequential(Averaged(), Averaged())
    with warnings.catch_warnings(), pytest.raises(UserWarning, match="forward assigns to mean"):
        warnings.simplefilter("error")
        lucid.trace(model, ("N", 3))
    assert [layer.mean.tolist() for layer in model] == [[0, 0, 0], [0, 0, 0]]


def test_a_layer_that_forward_makes_for_itself_takes_traced_weights() -> None:
    weights = lucid.ones(2, 3)

    def f(weights: lucid.Tensor, x: lucid.Tensor) -> lucid.Tensor:
        with init.skip():
            layer = nn.Linear(3, 2, bias=False)
        layer.weight = weights
        return layer(x).sum()

    gradient, _ = lucid.grad(f)(weights, lucid.tensor([[1.0, 2.0, 3.0]]))
    assert gradient.tolist() == [[1, 2, 3], [1, 2, 3]]
