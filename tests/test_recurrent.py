"""nn.RNN, nn.GRU and nn.LSTM exported, without elements too, and their errors; test_torch_nn_goldens.py has torch's
results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.export import to_onnx
from lucid.nn.utils import rnn
from lucid.runtime import Session
from lucid.testing import assert_parity

LAYERS: dict[str, nn.Module] = {
    "RNN": nn.RNN(4, 3, nonlinearity="relu", bias=False),
    "GRU": nn.GRU(4, 3, batch_first=True, bidirectional=True),
    "LSTM": nn.LSTM(4, 6, num_layers=2, bidirectional=True, proj_size=2),
    "GRU as in the paper, backwards": nn.GRU(4, 3, num_layers=2, reset_after=False, reverse=True),
}


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("name", LAYERS)
def test_exported_for_any_length_and_batch(name: str, target: str) -> None:
    assert_parity(LAYERS[name], target=target, sizes=[{"L": 0, "N": 2}, {"L": 3, "N": 0}, {"L": 5, "N": 3}])


@pytest.mark.parametrize("target", ["any", "cpu", "portable"])
@pytest.mark.parametrize("name", LAYERS)
def test_lengths_are_an_input_of_the_exported_model(name: str, target: str) -> None:
    layer = LAYERS[name]

    def model(x: lucid.Tensor, lengths: lucid.Tensor) -> Any:
        return layer(x, lengths=lengths)

    exported = Session(to_onnx(model, layer.input_specs()["x"], lucid.spec("N", dtype=lucid.int64), target=target))
    for lengths in ([5, 2, 0], [1, 5, 4]):
        x = lucid.randn(3, 5, 4) if layer.batch_first else lucid.randn(5, 3, 4)
        results = iter(exported.run({"x": x.numpy(), "lengths": np.array(lengths)}).values())
        for want in flat(layer(x, lengths=lengths)):
            np.testing.assert_allclose(next(results), want.numpy(), rtol=1e-5, atol=2e-6)


def flat(results: Any) -> list[lucid.Tensor]:
    return [results] if isinstance(results, lucid.Tensor) else [each for part in results for each in flat(part)]


@pytest.mark.parametrize("name", LAYERS)
def test_a_sequence_with_a_length_is_the_sequence_alone(name: str) -> None:
    layer, x = LAYERS[name], lucid.randn(5, 2, 4)
    batch = x.transpose(0, 1) if layer.batch_first else x
    padded = lucid.where(lucid.arange(5).reshape(5, 1, 1) < lucid.tensor([[3], [5]]), x, lucid.nan)
    outputs, last = layer(padded.transpose(0, 1) if layer.batch_first else padded, lengths=[3, 5])
    outputs = outputs.transpose(0, 1) if layer.batch_first else outputs
    alone, alone_last = layer(batch[:1, :3] if layer.batch_first else batch[:3, :1])
    np.testing.assert_array_equal(outputs[3:, 0].numpy(), 0)
    alone = alone.transpose(0, 1) if layer.batch_first else alone
    np.testing.assert_allclose(outputs[:3, :1].numpy(), alone.numpy(), rtol=1e-6, atol=1e-6)
    for mine, theirs in zip(flat(last), flat(alone_last), strict=True):
        np.testing.assert_allclose(mine[:, :1].numpy(), theirs.numpy(), rtol=1e-6, atol=1e-6)


def test_packed_sequences_are_spelled_as_in_torch() -> None:
    lstm = nn.LSTM(4, 6, batch_first=True, bidirectional=True)
    lstm.flatten_parameters()
    x, lengths = lucid.randn(3, 5, 4), lucid.tensor([2, 5, 3])
    packed, (h, c) = lstm(rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    output, read_lengths = rnn.pad_packed_sequence(packed, batch_first=True, padding_value=-1.0)
    expected, (h_n, c_n) = lstm(x, lengths=lengths)
    assert read_lengths.tolist() == [2, 5, 3] and isinstance(packed, rnn.PackedSequence)
    assert (output[0, :2].tolist(), h.tolist(), c.tolist()) == (expected[0, :2].tolist(), h_n.tolist(), c_n.tolist())
    assert set(output[0, 2:].numpy().flat) == {-1.0}
    rows = [x[0, :2], x[1], x[2, :3]]
    again, _ = rnn.pad_packed_sequence(lstm(rnn.pack_sequence(rows, enforce_sorted=False))[0], batch_first=True)
    assert again.tolist() == expected.tolist()
    left = rnn.pad_sequence([lucid.ones(1), lucid.ones(2)], True, 3.0, "left")
    assert left.tolist() == [[3, 1], [1, 1]]
    with pytest.raises(
        AttributeError, match=r"no attribute 'data'; write packed\.padded, \(L, N, \.\.\.\) with padding"
    ):
        packed.data  # noqa: B018


def test_backwards_is_the_second_half_of_both_ways() -> None:
    both, back = nn.GRU(4, 3, bidirectional=True), nn.GRU(4, 3, reverse=True)
    back.load_state_dict({k.removesuffix("_reverse"): v for k, v in both.state_dict().items() if "_reverse" in k})
    x = lucid.randn(5, 2, 4)
    for lengths in (None, [3, 5]):
        (outputs, last), (expected, expected_last) = back(x, lengths=lengths), both(x, lengths=lengths)
        assert outputs.tolist() == expected[..., 3:].tolist() and last.tolist() == expected_last[1:].tolist()
    assert repr(back) == "GRU(4, 3, reverse=True)"


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
    "both ways": (
        lambda: nn.GRU(4, 6, bidirectional=True, reverse=True),
        ValueError,
        "^GRU: got reverse and bidirectional, expected one of them",
    ),
    "kind of lengths": (
        lambda: nn.RNN(4, 6)(X, lengths=[5.0, 1.0]),
        TypeError,
        r"^RNN: lengths are float32\[2\], expected integers",
    ),
    "number of lengths": (
        lambda: nn.RNN(4, 6)(X, lengths=[5, 1, 1]),
        ValueError,
        r"^RNN: lengths have shape \[3\], expected \[2\], one for each row",
    ),
    "long": (
        lambda: rnn.pack_padded_sequence(X, [6, 1]),
        ValueError,
        "^pack_padded_sequence: lengths have 6, expected 0 to 5, the length of the input",
    ),
    "lengths twice": (
        lambda: nn.LSTM(4, 6)(rnn.pack_padded_sequence(X, [5, 1]), lengths=[5, 1]),
        ValueError,
        "^LSTM: got a PackedSequence and lengths",
    ),
    "longest": (
        lambda: rnn.pad_packed_sequence(rnn.pack_padded_sequence(X, [3, 1])),
        ValueError,
        r"^pad_packed_sequence: the longest sequence has 3 of 5 elements; .* pack x\[:3\] .* or give total_length=5",
    ),
    "total length": (
        lambda: rnn.pad_packed_sequence(rnn.pack_padded_sequence(X, [5, 1]), total_length=7),
        ValueError,
        "^pad_packed_sequence: total_length is 7, expected 5",
    ),
    "side": (lambda: rnn.pad_sequence([X], padding_side="top"), ValueError, "^pad_sequence: padding_side is 'top'"),
    "dropout": (lambda: nn.GRU(4, 6, dropout=2), ValueError, "^GRU: dropout is 2, expected a probability"),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str) -> None:
    call, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        call()
