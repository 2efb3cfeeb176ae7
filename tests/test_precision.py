"""`lucid.testing.precision_report`: its figures are those computed by hand; the layer that costs most comes first."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import lucid
from lucid import nn
from lucid.core.graph.types import Array
from lucid.models.gpt2 import GPT2, GPT2Config
from lucid.models.llama import Llama, LlamaConfig
from lucid.nn import functional as F
from lucid.testing import precision_report
from lucid.testing.precision import PrecisionReport
from lucid.testing.precision.outputs import OutputSums


class Network(nn.Module):
    """A table that is also the output layer, two layers between."""

    def __init__(self) -> None:
        self.table = nn.Embedding(4096, 32)
        self.up, self.down = nn.Linear(32, 48), nn.Linear(48, 32, bias=False)
        self.head = nn.Linear(32, 4096, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: lucid.Tensor) -> lucid.Tensor:
        x = self.table(ids)
        return self.head(x + self.down(F.relu(self.up(x))))

    def input_specs(self) -> dict[str, lucid.TensorType]:
        return {"ids": lucid.spec("N", "L", dtype=lucid.int64)}


CALLS = [np.array([[3, 1, 29], [0, 7, 7]]), np.array([[11, 12]])]


@pytest.fixture
def network() -> Network:
    lucid.manual_seed(0)
    return Network()


def dequantized(weight: Any) -> Array:
    """The weight (N, K) that codes stand for, by their definition."""
    packed, scales = weight.packed.numpy(), weight.scales.numpy()
    codes = np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1).astype(np.float64)
    zeros = weight.zero_points.numpy()
    zeros = np.stack([zeros & 15, zeros >> 4], -1).reshape(len(packed), -1)[:, : scales.shape[1]]
    wide = (codes.reshape(*scales.shape, -1) - zeros[:, :, None]) * scales[:, :, None]
    return np.asarray(wide.reshape(len(packed), -1)[:, : weight.shape[1]])


def noise(outputs: list[Array], expected: list[Array]) -> float:
    return float(
        sum(np.square(f - w).sum() for f, w in zip(outputs, expected, strict=True))
        / sum(np.square(w).sum() for w in expected)
    )


def by_hand(table: Array, up: Array, bias: Array, down: Array, ids: Array) -> dict[str, Array]:
    x = table[ids]
    hidden = np.maximum(x @ up.T + bias, 0)
    sums = x + hidden @ down.T
    return {
        "table": x,
        "up": x @ up.T + bias,
        "down": hidden @ down.T,
        "inner": hidden,
        "sums": sums,
        "head": sums @ table.T,
    }


def test_a_call_of_an_empty_batch_adds_nothing() -> None:
    model, rows = nn.Linear(40, 16), np.ones((3, 40), np.float32)
    small = lucid.quantize(model)
    alone, both = (precision_report(model, small, calls) for calls in ([rows], [rows[:0], rows]))
    assert [each.error for each in alone.outputs] == [each.error for each in both.outputs]


def test_infinities_of_a_mask_add_nothing_and_others_are_an_infinite_error() -> None:
    expected = np.array([[3, -np.inf, 4], [-np.inf, 5, 0]], np.float32)
    sums = OutputSums()
    sums.add(0, expected, expected + np.float32([0, 0, 1]))
    assert sums.relative == pytest.approx((2 / 50) ** 0.5)
    sums.add(1, expected, np.zeros_like(expected))
    assert sums.relative == np.inf


def test_the_figures_are_those_computed_by_hand(network: Network) -> None:
    small = lucid.quantize(network, block=16)
    report = precision_report(network, small, CALLS)
    bias = network.up.bias.numpy().astype(np.float64)
    own = [layer.weight.numpy().astype(np.float64) for layer in (network.table, network.up, network.down)]
    few = [dequantized(layer.weight) for layer in (small.table, small.up, small.down)]
    before = [by_hand(own[0], own[1], bias, own[2], ids) for ids in CALLS]
    after = [by_hand(few[0], few[1], bias, few[2], ids) for ids in CALLS]

    def collected(runs: list[dict[str, Array]], name: str) -> list[Array]:
        return [run[name] for run in runs]

    alone = {  # each on the float model's inputs; products, without the bias
        "table": noise([few[0][ids] for ids in CALLS], collected(before, "table")),
        "up": noise([run["table"] @ few[1].T for run in before], [run["table"] @ own[1].T for run in before]),
        "down": noise([run["inner"] @ few[2].T for run in before], collected(before, "down")),
        "head": noise([run["sums"] @ few[0].T for run in before], collected(before, "head")),
    }
    in_model = {
        "table": noise(collected(after, "table"), collected(before, "table")),
        "up": noise([run["table"] @ few[1].T for run in after], [run["table"] @ own[1].T for run in before]),
        "down": noise(collected(after, "down"), collected(before, "down")),
        "head": noise(collected(after, "head"), collected(before, "head")),
    }
    assert [layer.path for layer in report.layers] == ["table", "up", "down", "head"]
    for layer in report.layers:
        assert layer.noise_alone == pytest.approx(alone[layer.path], rel=1e-4)
        assert layer.noise_in_model == pytest.approx(in_model[layer.path], rel=1e-4)
        assert layer.alone == pytest.approx(-10 * math.log10(alone[layer.path]), abs=1e-3)
    (output,) = report.outputs
    assert output.name == "output" and output.error == report.error
    assert output.error == pytest.approx(math.sqrt(in_model["head"]), rel=1e-4)
    rows = [
        (f.reshape(-1), w.reshape(-1))
        for a, b in zip(after, before, strict=True)
        for f, w in zip(a["head"], b["head"], strict=True)
    ]
    cosines = [float(f @ w / np.linalg.norm(f) / np.linalg.norm(w)) for f, w in rows]
    assert output.cosine_mean == pytest.approx(np.mean(cosines), abs=1e-6)
    assert output.cosine_worst == pytest.approx(min(cosines), abs=1e-6)
    assert output.worst == [(0, 0), (0, 1), (1, 0)][int(np.argmin(cosines))]


def test_sizes(network: Network) -> None:
    table, up, down, head = precision_report(
        network, lucid.quantize(network, {"up": 8, "*": 4}, block=16), CALLS
    ).layers
    assert (table.bits, up.bits, down.bits) == (4, 8, 4)
    assert (up.parameters, up.bytes_before) == (48 * 32, 48 * 32 * 4)
    assert up.bytes_after == 48 * 32 + 48 * 2 * 4 + 48 * 2  # codes, scales, zero points
    assert down.bytes_after == 32 * 48 // 2 + 32 * 3 * 4 + 32 * 2
    assert head.shares == "table" and table.shares == "table"
    report = precision_report(network, lucid.quantize(network, block=16), CALLS)
    assert report.bytes_before == 4 * (4096 * 32 + 2 * 48 * 32 + 48)
    assert report.bytes_after == sum({each.shares: each.bytes_after for each in report.layers}.values()) + 48 * 4


def test_a_bad_layer_comes_first(network: Network) -> None:
    """One large weight in each block leaves no codes for the others."""
    weight = network.down.weight.numpy().copy()
    weight[:, ::16] = 50 * np.sign(weight[:, ::16])
    weight[:, 0] = 0
    network.down.weight.assign(weight)
    network.up.bias.assign(np.where(np.arange(48) % 16 == 0, -100, network.up.bias.numpy()))  # so those add nothing
    report = precision_report(network, lucid.quantize(network, block=16), CALLS)
    assert report.ranking[0].paths == ("down",)
    assert report.skip == ["down"]
    assert 'skip=["down"] leaves out ' in str(report)
    better = precision_report(network, lucid.quantize(network, block=16, skip=report.skip), CALLS)
    assert better.error < 0.8 * report.error


def test_layers_that_share_a_weight_are_ranked_together(network: Network) -> None:
    report = precision_report(network, lucid.quantize(network, block=16), CALLS)
    ranked = {each.paths: each for each in report.ranking}
    assert set(ranked) == {("table", "head"), ("up",), ("down",)}
    table, up, _, head = report.layers
    assert table.noise_alone is not None and head.noise_alone is not None
    assert ranked["table", "head"].noise == table.noise_alone + head.noise_alone
    assert ranked[("up",)].bytes_more == up.bytes_before - up.bytes_after
    assert ranked[("up",)].bytes_more_in_8 == 48 * 32 // 2
    assert [each.gain for each in report.ranking] == sorted((each.gain for each in report.ranking), reverse=True)


def test_joined_projections_are_one_layer_and_transposed_weights_are_measured_too() -> None:
    lucid.manual_seed(0)
    attention = nn.MultiHeadAttention(32, 2)
    x = np.random.default_rng(0).standard_normal((2, 5, 32)).astype(np.float32)
    small = lucid.quantize(attention, block=16)
    joined, output = precision_report(attention, small, [x]).layers
    assert (joined.path, joined.parameters, output.path) == ("in_proj_weight", 96 * 32, "out_proj")
    weight: Any = small.in_proj_weight
    own = attention.in_proj_weight
    assert own is not None
    assert joined.noise_alone == pytest.approx(noise([x @ dequantized(weight).T], [x @ own.numpy().T]), rel=1e-4)

    gpt2 = GPT2(GPT2Config(60, 32, 1, 2))
    layer = gpt2.transformer.h[0].mlp.c_fc
    few: Any = lucid.quantize(gpt2, block=16)
    layers = {each.path: each for each in precision_report(gpt2, few, [np.array([[5, 9, 3]])]).layers}
    assert layers["transformer.h.0.mlp.c_fc"].parameters == layer.weight.numpy().size
    assert 15 < (layers["transformer.h.0.mlp.c_fc"].alone or 0) < 35


def test_a_report_is_text_a_mapping_and_html(network: Network) -> None:
    network.spare = nn.Linear(32, 16)  # type: ignore[attr-defined]  # nothing calls it
    report = precision_report(network, lucid.quantize(network, block=16), CALLS)
    lines = str(report).splitlines()
    assert lines[0].split() == [
        "layer",
        "bits",
        "weights",
        "bytes",
        "before",
        "alone,",
        "dB",
        "in",
        "the",
        "model,",
        "dB",
    ]
    assert lines[1].split()[:5] == ["table", "4", "131,072", "102,400", "524,288"]
    assert lines[4].startswith("head (shares table)")
    assert lines[5].split()[-2:] == ["not", "run"]
    assert any(line.startswith("output: relative error 0.") for line in lines)
    assert "size: 0.54 MB, quantized 0.11 MB (20%)" in lines
    plain = json.loads(json.dumps(report.as_dict()))
    assert plain["layers"][1]["path"] == "up" and plain["layers"][1]["alone"] == report.layers[1].alone
    assert plain["skip"] == report.skip and plain["error"] == report.error
    assert "<table" in report._repr_html_() and "head (shares table)" in report._repr_html_()


# Decoders -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def llama() -> Llama:
    lucid.manual_seed(0)
    return Llama(LlamaConfig(60, 32, 48, num_heads=2, num_kv_heads=1, head_dim=16, windows=(None,)))


def log_probabilities(logits: Array) -> Array:
    wide = logits.astype(np.float64)
    return np.asarray(wide - np.log(np.exp(wide).sum(-1, keepdims=True)))


def test_a_decoder_tells_the_perplexity_of_texts(llama: Llama) -> None:
    small = lucid.quantize(llama, block=16)
    ids, mask = np.array([[5, 9, 3, 7], [8, 2, 6, 0]]), np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
    texts = precision_report(llama, small, [{"input_ids": ids, "attention_mask": mask}]).texts
    assert texts is not None and texts.tokens == 5
    p, q = (log_probabilities(model(*map(lucid.tensor, (ids, mask))).numpy()) for model in (llama, small))
    at = [(0, 0, 9), (0, 1, 3), (0, 2, 7), (1, 0, 2), (1, 1, 6)]
    assert texts.perplexity_before == pytest.approx(np.exp(-np.mean([p[i] for i in at])))
    assert texts.perplexity_after == pytest.approx(np.exp(-np.mean([q[i] for i in at])))
    divergences = [(np.exp(p[i, j]) * (p[i, j] - q[i, j])).sum() for i, j, _ in at]
    assert texts.divergence == pytest.approx(np.mean(divergences), rel=1e-6)
    assert texts.same_token == pytest.approx(np.mean([p[i, j].argmax() == q[i, j].argmax() for i, j, _ in at]))
    assert f"perplexity of 5 tokens: {texts.perplexity_before:.4g}" in str(
        precision_report(llama, small, [(ids, mask)])
    )


def test_a_text_of_one_token_predicts_nothing(llama: Llama) -> None:
    assert precision_report(llama, lucid.quantize(llama, block=16), [np.array([[5]])]).texts is None


def test_times_are_of_the_exported_models_in_turns(network: Network) -> None:
    report = precision_report(network, lucid.quantize(network, block=16), CALLS, seconds=0.01)
    assert report.times is not None and report.times.runs >= 5
    assert report.times.before > 0 and report.times.after > 0
    assert "time of a call: " in str(report)


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pair", "data", "message"),
    [
        (lambda n: (n, n), CALLS, "the second model, a Network, has no quantized weights; lucid.quantize makes such"),
        (lambda n: (n.up, lucid.quantize(n)), CALLS, r"table has a quantized weight \[4096, 32\], .* no weight"),
        (lambda n: (nn.Linear(32, 8), lucid.quantize(n.up)), CALLS, r"\[48, 32\], .* has one of \[8, 32\]"),
        (lambda n: (n, lucid.quantize(n)), [], "the data are empty, expected at least one call of the model"),
        (lambda n: (n, lucid.quantize(n)), [{"x": CALLS[0]}], "call 0 of the data has x, and the model takes ids"),
        (lambda n: (n.up, lucid.quantize(n.up)), [np.full((1, 32), np.nan)], r"call 0 .*: x has nan at \[0, 0\]"),
    ],
)  # fmt: skip
def test_what_cannot_be_measured(pair: Any, data: Any, message: str, network: Network) -> None:
    with pytest.raises(ValueError, match=message):
        precision_report(*pair(network), data)


def test_without_errors_there_is_nothing_to_skip(network: Network) -> None:
    """Weights that lie on the grid already."""
    codes = np.random.default_rng(0).integers(0, 16, (48, 32))
    codes[:, ::16], codes[:, 1::16] = 0, 15
    network.up.weight.assign((codes - 8).astype(np.float32))
    small = lucid.quantize(network.up, block=16)
    report: PrecisionReport = precision_report(network.up, small, [np.ones((1, 32), np.float32)])
    assert report.error == 0 and report.skip == [] and "exact" in str(report)
