"""nn.RNN, nn.GRU and nn.LSTM exported, without elements too, and their errors; test_torch_nn_goldens.py has torch's
results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.testing import assert_parity

LAYERS: dict[str, nn.Module] = {
    "RNN": nn.RNN(4, 3, nonlinearity="relu", bias=False),
    "GRU": nn.GRU(4, 3, batch_first=True, bidirectional=True),
    "LSTM": nn.LSTM(4, 6, num_layers=2, bidirectional=True, proj_size=2),
}


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("name", LAYERS)
def test_exported_for_any_length_and_batch(name: str, target: str) -> None:
    assert_parity(LAYERS[name], target=target, sizes=[{"L": 0, "N": 2}, {"L": 3, "N": 0}, {"L": 5, "N": 3}])


def test_states_as_inputs_and_half_precision() -> None:
    layer = nn.LSTM(4, 6)
    hx = (lucid.spec(1, "N", 6), lucid.spec(1, "N", 6))
    report = assert_parity(layer, kwargs={"x": lucid.spec("L", "N", 4), "hx": hx})
    assert {"hx.0", "hx.1"} < {value.name for value in lucid.trace(layer, ("L", "N", 4), kwargs={"hx": hx}).inputs}
    assert report.passed
    assert_parity(layer, dtype="float16")


def test_weights_keep_their_names() -> None:
    names = {w.name.removesuffix(".T") for w in to_onnx(LAYERS["LSTM"]).graph.initializer}
    assert names >= set(LAYERS["LSTM"].state_dict())
    assert "weight_hr_l1_reverse" in names


def test_one_sequence_is_a_batch_of_one() -> None:
    layer, x = LAYERS["LSTM"], lucid.randn(5, 4)
    output, (h, c) = layer(x)
    batched, (h_1, c_1) = layer(x.unsqueeze(1))
    assert output.tolist() == batched.squeeze(1).tolist() and output.shape == (5, 4)
    assert (h.tolist(), c.tolist()) == (h_1.squeeze(1).tolist(), c_1.squeeze(1).tolist())
    again, _ = layer(x, (h, c))
    assert again.tolist() == layer(x.unsqueeze(1), (h_1, c_1))[0].squeeze(1).tolist() != output.tolist()


X = lucid.zeros(5, 2, 4)
WRONG: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "width": (lambda: nn.GRU(3, 6)(X), ValueError, r"^GRU: input has shape \[5, 2, 4\], expected \(L, N, 3\), or"),
    "axes": (lambda: nn.RNN(4, 6)(X[0, 0]), ValueError, r"^RNN: input has shape \[4\], expected"),
    "state": (
        lambda: nn.GRU(4, 6)(X, lucid.zeros(1, 3, 6)),
        ValueError,
        r"^GRU: a first state has shape \[1, 3, 6\], expected \[1, 2, 6\]: layers times directions",
    ),
    "pair": (lambda: nn.LSTM(4, 6)(X, X), TypeError, r"^LSTM: hx is a Tensor, expected a pair \(h_0, c_0\)"),
    "no tensor": (lambda: nn.GRU(4, 6)(X, (X, X)), TypeError, "^GRU: hx has type tuple, expected a tensor"),
    "projection": (lambda: nn.LSTM(4, 6, proj_size=6), ValueError, r"^LSTM: proj_size is 6, expected 0 \(none\) to 5"),
    "function": (lambda: nn.RNN(4, 6, nonlinearity="elu"), ValueError, '^RNN: nonlinearity is .elu., expected "tanh"'),
    "layers": (lambda: nn.GRU(4, 6, num_layers=0), ValueError, "^GRU: num_layers is 0, expected a whole number"),
    "dropout": (lambda: nn.GRU(4, 6, dropout=2), ValueError, "^GRU: dropout is 2, expected a probability"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
