"""The search for the fewest bits that stay below an error."""

from __future__ import annotations

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.testing.precision.search import Found, TargetError, fewest_bits


class Network(nn.Module):
    """Three layers, of which the middle one is planted to lose much in 4 bits, and little in 8."""

    def __init__(self) -> None:
        self.first, self.bad, self.last = nn.Linear(32, 32), nn.Linear(32, 32), nn.Linear(32, 8)
        weight = self.bad.weight.numpy().copy()
        weight[:, ::16] = 4  # leaves few codes for the others, although its inputs are 0
        self.bad.weight.assign(weight)
        for parameter in (self.first.weight, self.first.bias):
            assert parameter is not None
            array = parameter.numpy().copy()
            array[::16] = 0
            parameter.assign(array)

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        return self.last(self.bad(self.first(x)))


CALLS = [np.random.default_rng(number).standard_normal((6, 32)).astype(np.float32) for number in range(2)]


@pytest.fixture(scope="module")
def network() -> Network:
    lucid.manual_seed(0)
    return Network()


def error(model: nn.Module, network: Network) -> float:
    """By hand: the size of the differences relative to that of the outputs."""
    outputs, expected = ([one(lucid.tensor(x)).numpy() for x in CALLS] for one in (model, network))
    noise = sum(float(np.square(f - w, dtype=np.float64).sum()) for f, w in zip(outputs, expected, strict=True))
    return float(np.sqrt(noise / sum(float(np.square(w, dtype=np.float64).sum()) for w in expected)))


def search(network: Network, target: float) -> Found[Network]:
    return fewest_bits(network, lambda bits: lucid.quantize(network, bits, block=16), CALLS, target)


def test_four_bits_are_enough_for_a_large_error(network: Network) -> None:
    result = search(network, 0.9)
    assert result.bits == {"*": 4}
    assert result.error == pytest.approx(error(lucid.quantize(network, 4, block=16), network), rel=1e-5)


def test_the_layer_that_gains_most_is_raised_first(network: Network) -> None:
    whole = error(lucid.quantize(network, 4, block=16), network)
    result = search(network, 0.9 * whole)
    assert next(iter(result.bits)) == "bad" and result.bits["bad"] == 8 and result.bits["*"] == 4
    assert result.error == pytest.approx(error(result.model, network), rel=1e-5) and result.error <= 0.9 * whole


@pytest.mark.parametrize("target", [0.1, 0.03, 0.006, 0.004])
def test_the_bits_are_those_of_the_model_and_no_fewer_steps_do(target: float, network: Network) -> None:
    result = search(network, target)
    assert result.error <= target
    again = lucid.quantize(network, result.bits, block=16)
    x = lucid.tensor(CALLS[0])
    np.testing.assert_array_equal(again(x).numpy(), result.model(x).numpy())
    assert search(network, target).bits == result.bits
    for path, bits in result.bits.items():  # with any step taken back it is too large
        if path != "*":
            fewer = {**result.bits, path: 4 if bits == 8 else 8}
            assert error(lucid.quantize(network, fewer, block=16), network) > target


def test_smaller_errors_keep_layers_as_they_are(network: Network) -> None:
    in_8 = error(lucid.quantize(network, 8, block=16), network)
    assert None in search(network, 0.9 * in_8).bits.values()


def test_a_target_that_is_not_reached_says_what_is(network: Network) -> None:
    in_8 = error(lucid.quantize(network, 8, block=16), network)
    with pytest.raises(TargetError, match=f"an error of 1e-09 or less: all weights in 8 bits reach {in_8:.2g}"):
        search(network, 1e-9)


@pytest.mark.parametrize("target", [0.0, -1.0, float("nan")])
def test_a_target_that_is_none(target: float, network: Network) -> None:
    with pytest.raises(ValueError, match="expected a number above 0, such as 0.02"):
        search(network, target)


def test_a_large_weight_that_has_to_be_raised_does_not_raise_all_others() -> None:
    """The table gains least for each byte, so it is the last to be raised; the layer before it is not needed then."""

    class Wide(nn.Module):
        def __init__(self) -> None:
            self.table, self.up = nn.Embedding(4096, 32), nn.Linear(32, 32, bias=False)

        def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
            x = self.table(ids)
            return x + 0.5 * self.up(x)

    lucid.manual_seed(0)
    model, ids = Wide(), np.arange(4096)[None]
    result = fewest_bits(model, lambda bits: lucid.quantize(model, bits, block=16), [ids], 0.03)
    assert result.bits == {"table": 8, "*": 4} and result.error <= 0.03


def test_shared_weights_are_raised_together() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.table, self.head = nn.Embedding(64, 32), nn.Linear(32, 64, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
            return self.head(self.table(ids))

    model, ids = Tied(), np.arange(10)[None]
    result = fewest_bits(model, lambda bits: lucid.quantize(model, bits, block=16), [ids], 0.03)
    assert result.bits == {"table": 8, "*": 4} and result.model.table.weight is result.model.head.weight


class Undefined(Network):
    """A second output that is NaN."""

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        y = super().forward(x)
        return y, (y * 0 - 1).log()  # type: ignore[return-value]


def test_an_output_without_numbers_reaches_no_error() -> None:
    with pytest.raises(TargetError, match="all weights in 8 bits reach nan"):
        search(Undefined(), 0.9)
