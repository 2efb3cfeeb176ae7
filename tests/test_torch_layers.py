"""Containers of parameters, recurrent cells, norms and initial values: `tests/ported_layers.py` has their numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.nn import functional as F


def test_parameters_are_listed_under_their_places() -> None:
    values = nn.ParameterList([lucid.ones(2), np.zeros(3, np.float32)])
    values.append(nn.Parameter(lucid.ones(4)))
    values.insert(0, lucid.ones(1))
    values += [lucid.ones(5)]
    del values[1]
    assert [p.shape for p in values] == [(1,), (3,), (4,), (5,)]
    assert {name: p.shape for name, p in values.named_parameters()} == {"0": (1,), "1": (3,), "2": (4,), "3": (5,)}
    values[0] = lucid.ones(7)
    assert (values[0].shape, len(values), len(values[1:])) == ((7,), 4, 3)


def test_parameters_have_names() -> None:
    values = nn.ParameterDict({"a": lucid.ones(2)})
    values["b"] = lucid.ones(3)
    values.update({"c": lucid.ones(4)})
    assert values.pop("a").shape == (2,)
    assert list(values) == list(values.keys()) == list(values.state_dict()) == ["b", "c"]
    assert ("b" in values, "a" in values, {values}) == (True, False, {values})
    for name in ("_hidden", "keys"):
        with pytest.raises(KeyError, match=f"ParameterDict: '{name}' is a name of its own; choose another one"):
            values[name] = lucid.ones(1)


X = lucid.ones(2, 4, 5)
IDS = lucid.tensor([[0, 1, 2]])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: F.batch_norm(X, lucid.ones(4), lucid.ones(4), training=True), "while training they are None"),
        (lambda: F.batch_norm(X, None, None), "expected running_mean and running_var without training=True"),
        (lambda: F.instance_norm(X, lucid.ones(4), lucid.ones(4)), "while training they are None"),
        (lambda: F.channel_shuffle(X, 3), r"3 groups do not divide the channels of \[2, 4, 5\]"),
        (lambda: F.channel_shuffle(X[0, 0], 1), r"channel_shuffle: got float32\[5\], expected 2 axes or more"),
        (lambda: F.pixel_shuffle(X[0], 2), r"pixel_shuffle: got float32\[4, 5\], expected 3 axes or more"),
        (lambda: F.pixel_unshuffle(X[0], 2), r"pixel_unshuffle: got float32\[4, 5\], expected 3 axes or more"),
        (lambda: F.instance_norm(X[0, 0]), r"instance_norm: got float32\[5\], expected 2 axes or more"),
        (lambda: nn.InstanceNorm1d(3)(X), r"InstanceNorm1d: got shape \[2, 4, 5\], expected \(N, 3, L\) or \(3, L\)"),
        (lambda: nn.GRUCell(5, 3)(X), r"GRUCell: input has shape \[2, 4, 5\], expected \(N, 5\) or without N"),
        (lambda: nn.LSTMCell(5, 3)(X[0], (X[0], X[0])), r"a state has shape \[4, 5\], expected \[4, 3\]"),
        (lambda: F.embedding_bag(IDS, X[0], mode="min"), "mode is 'min', expected mean, sum or max"),
        (lambda: F.embedding_bag(IDS, X[0], per_sample_weights=X[0]), "per_sample_weights need sum"),
        (lambda: F.embedding_bag(IDS[0], X[0]), r"indices are int64\[3\], expected \(bags, length\), or \(length,\)"),
        (lambda: F.fold(X, (3, 3), 2), r"fold: got shape \[2, 4, 5\], expected \(N, C \* 4, 4\) for 3 x 3 images"),
        (lambda: F.adaptive_max_pool1d(X[0, 0], 2), r"adaptive_max_pool1d: got shape \[5\], expected \(N, C\) and 1"),
        (lambda: nn.RNNCell(5, 3, nonlinearity="gelu"), "nonlinearity is 'gelu'"),
        (lambda: nn.init.kaiming_normal_(nn.Parameter(X), mode="fan"), "mode is 'fan', expected fan_in or fan_out"),
        (lambda: nn.init.calculate_gain("gelu"), "nonlinearity is 'gelu', expected linear, sigmoid, tanh, relu"),
        (lambda: nn.init.trunc_normal_(nn.Parameter(X), a=5.0, b=6.0), "got the bounds 5.0 and 6.0 of a mean 0.0"),
    ],
)
def test_wrong_arguments_are_named(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def test_initial_values_have_their_deviations() -> None:
    lucid.manual_seed(3)
    weight = nn.Parameter(lucid.zeros(40, 30, 2))
    assert abs(nn.init.kaiming_normal_(weight, nonlinearity="relu").numpy().std() - (2 / 60) ** 0.5) < 0.01
    uniform = nn.init.kaiming_uniform_(tensor=weight, a=1.0, mode="fan_out").numpy()
    assert 0.9 * (3 / 80) ** 0.5 < abs(uniform).max() <= (3 / 80) ** 0.5
    cut = nn.init.trunc_normal_(weight, std=2.0, a=-1.0, b=3.0).numpy()
    assert (cut.min() >= -1, cut.max() <= 3, cut.max() > 2.5) == (True, True, True)
    within = nn.init.trunc_normal_(weight, std=2.0, a=0.5, b=2.0).numpy()
    assert (within.min() >= 0.5, within.max() <= 2.0) == (True, True)
    assert within.mean() == pytest.approx(1.1926, abs=0.03) and within.std() == pytest.approx(0.4264, abs=0.02)
    assert nn.init.trunc_normal_(weight, a=0.5, b=0.5 + 1e-7).numpy().min() == 0.5  # normal numbers would never be
    rows = nn.init.orthogonal_(weight, gain=2.0).numpy().reshape(40, 60)
    np.testing.assert_allclose(rows @ rows.T, 4 * np.eye(40), atol=1e-5)
    np.testing.assert_array_equal(nn.init.eye_(nn.Parameter(lucid.ones(2, 3))).numpy(), np.eye(2, 3))
    assert nn.init.uniform_(weight, a=-2.0, b=-1.0).numpy().max() < -1
    assert nn.init.constant_(weight, val=3.0).numpy().min() == 3
