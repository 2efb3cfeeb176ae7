"""Positions: sinusoidal, learned, rotary with every scaling, ALiBi, T5's buckets."""

from __future__ import annotations

import math

import numpy as np
import pytest

import lucid
from lucid import nn, ops
from lucid.export import to_onnx
from lucid.nn.positions import alibi_slopes
from lucid.nn.rope_scaling import RopeScaling, inverse_frequencies
from lucid.runtime import Session
from lucid.testing import assert_parity
from tests.combinations import in_pairs
from tests.models import goldens

# sinusoidal and learned -------------------------------------------------------------------------------------------


def test_sinusoidal_positions_are_those_of_the_paper() -> None:
    encoded = nn.SinusoidalPositionalEncoding(6, max_length=50)(lucid.zeros(1, 40, 6))[0]
    for position in (0, 1, 39):
        for i in range(3):
            angle = position / 10000 ** (2 * i / 6)
            assert encoded[position, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-6)
            assert encoded[position, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-6)


@pytest.mark.parametrize("batch_first", [True, False])
def test_sinusoidal_positions_that_are_given(batch_first: bool) -> None:
    module = nn.SinusoidalPositionalEncoding(8, 20, batch_first)
    x, axis = lucid.randn(7, 7, 8), 1 if batch_first else 0
    whole, last = module(x), x.split([4, 3], axis)[1]
    np.testing.assert_array_equal(module(last, lucid.arange(4, 7)), whole.split([4, 3], axis)[1])
    of_each_row = module(x, lucid.tensor([[*range(row, row + 7)] for row in range(7)]))
    for row in range(7):
        alone = module(x, lucid.arange(row, row + 7))
        np.testing.assert_array_equal(of_each_row.split(1, 1 - axis)[row], alone.split(1, 1 - axis)[row])
    with pytest.raises(IndexError, match="the table has 20 rows"):
        module(x, lucid.arange(14, 21))


def test_sinusoidal_positions_sequence_first() -> None:
    x = lucid.randn(4, 2, 6)
    first = nn.SinusoidalPositionalEncoding(6, batch_first=False)(x)
    np.testing.assert_array_equal(first, nn.SinusoidalPositionalEncoding(6)(x.transpose(0, 1)).transpose(0, 1))


def test_a_computed_table_is_no_part_of_the_state() -> None:
    assert not nn.SinusoidalPositionalEncoding(6).state_dict()
    assert not nn.RotaryEmbedding(8).state_dict()
    assert not nn.ALiBi(4).state_dict()


def test_learned_positions_leave_out_the_offset() -> None:
    table = nn.LearnedPositions(5, 3, offset=2)
    np.testing.assert_array_equal(table(4), table.weight.numpy()[2:6])


@pytest.mark.parametrize("length", [6, 100])
def test_positions_beyond_the_table_are_refused(length: int) -> None:
    with pytest.raises(ValueError, match=f"{length} positions, the table 5"):
        nn.LearnedPositions(5, 3, offset=2)(length)
    with pytest.raises(ValueError, match=f"{length} positions, the table 5"):
        nn.SinusoidalPositionalEncoding(4, max_length=5)(lucid.zeros(1, length, 4))


# rotary -----------------------------------------------------------------------------------------------------------


def turn(x: np.ndarray, position: int, rotary_dim: int, base: float, interleaved: bool) -> np.ndarray:
    """One head at one position, pair by pair, in complex numbers."""
    turned, half = x.astype(np.float64), rotary_dim // 2
    for i in range(half):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + half)
        z = complex(x[first], x[second]) * np.exp(1j * position * base ** (-2 * i / rotary_dim))
        turned[first], turned[second] = z.real, z.imag
    return turned


@in_pairs(interleaved=[False, True], rotary_dim=[2, 6, 8], packed=[False, True])
def test_pairs_of_features_are_turned_by_their_position(interleaved: bool, rotary_dim: int, packed: bool) -> None:
    n, heads, length, width = 2, 3, 5, 8
    rope = nn.RotaryEmbedding(width, base=100.0, rotary_dim=rotary_dim, interleaved=interleaved)
    positions = lucid.tensor([[0, 1, 2, 3, 4], [7, 6, 5, 90, 0]])
    cos, sin = rope(positions)
    assert cos.shape == sin.shape == (n, length, rotary_dim // 2)
    x = lucid.randn(n, heads, length, width)
    if packed:
        flat = x.permute(0, 2, 1, 3).reshape(n, length, heads * width)
        turned = rope.rotate(flat, cos, sin, heads=heads)
        turned = turned.reshape(n, length, heads, width).permute(0, 2, 1, 3)
    else:
        turned = rope.rotate(x, cos, sin)
    for index in np.ndindex(n, heads, length):
        row, _, place = index
        expected = turn(x.numpy()[index], int(positions[row, place].item()), rotary_dim, 100.0, interleaved)
        np.testing.assert_allclose(turned.numpy()[index], expected, atol=1e-5)


def test_a_score_depends_on_the_distance_alone() -> None:
    rope = nn.RotaryEmbedding(16)
    q, k = lucid.randn(1, 1, 1, 16), lucid.randn(1, 1, 1, 16)

    def score(i: int, j: int) -> float:
        turned_q = rope.rotate(q, *rope(lucid.tensor([[i]])))
        turned_k = rope.rotate(k, *rope(lucid.tensor([[j]])))
        return float((turned_q * turned_k).sum().item())

    assert score(3, 1) == pytest.approx(score(103, 101), abs=1e-4)
    assert score(3, 1) != pytest.approx(score(3, 2), abs=1e-2)


def test_tables_by_position_and_angles_in_place_say_the_same() -> None:
    rope, x = nn.RotaryEmbedding(8), lucid.randn(2, 5, 24)
    table = rope(lucid.arange(10))
    positions = lucid.tensor([[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])
    by_table = ops.rotary_embedding(x, *table, positions, heads=3)
    np.testing.assert_array_equal(by_table, ops.rotary_embedding(x, *rope(positions), heads=3))
    shared = ops.rotary_embedding(x, *rope(lucid.arange(5)), heads=3)
    np.testing.assert_array_equal(shared[0], by_table[0])


def test_a_text_may_be_longer_than_the_tables_if_its_positions_are_in_them() -> None:
    """As where documents are packed into one row, and the positions of each begin at 0."""
    cos, sin = nn.RotaryEmbedding(8)(lucid.arange(4))

    def turn(x: lucid.Tensor, positions: lucid.Tensor) -> lucid.Tensor:
        return ops.rotary_embedding(x, cos, sin, positions, heads=3)

    x, positions = lucid.randn(1, 6, 24), lucid.tensor([[0, 1, 2, 3, 0, 1]])
    for length, nodes in (("L", ["Gather", "Gather", "RotaryEmbedding"]), (4, ["RotaryEmbedding"])):
        model = to_onnx(turn, lucid.spec(1, length, 24), lucid.spec(1, length, dtype=lucid.int64))
        assert [node.op_type for node in model.graph.node] == nodes
        inputs = (x, positions) if length == "L" else (x[:, :4], positions[:, :4])
        np.testing.assert_allclose(Session(model)(*inputs), turn(*inputs), atol=1e-6)


SCALINGS: dict[str, tuple[float, RopeScaling | None]] = {
    "llama/llama2": (10000.0, None),
    "llama/bfloat16_sharded": (500000.0, None),
    "llama/linear": (10000.0, nn.LinearScaling(4.0)),
    "llama/dynamic": (10000.0, nn.DynamicNTKScaling(2.0, max_position_embeddings=8)),
    "llama/llama3": (10000.0, nn.Llama3Scaling(8.0, 1.0, 4.0, original_max_position_embeddings=100)),
    "llama/yarn": (100.0, nn.YarnScaling(4.0, 64, beta_fast=8.0, beta_slow=1.0)),
    "qwen3/yarn": (1e6, nn.YarnScaling(4.0, 16)),
}


@pytest.mark.parametrize("variant", SCALINGS)
def test_scaled_cosines_are_those_of_transformers(variant: str) -> None:
    base, scaling = SCALINGS[variant]
    for case in goldens.cases(variant):
        expected = case.outputs["rotary_cos"]
        half = expected.shape[-1] // 2
        cos, _ = nn.RotaryEmbedding(2 * half, base, scaling=scaling)(lucid.Tensor(case.outputs["position_ids"]))
        np.testing.assert_allclose(cos, expected[..., :half], rtol=1e-6, atol=2e-7)


def test_ntk_stretches_the_lowest_frequency_by_the_factor_and_keeps_the_highest() -> None:
    plain = inverse_frequencies(16, 10000.0)
    scaled = nn.NTKScaling(4.0).scale(plain, 10000.0)
    assert scaled[0] == plain[0]
    assert scaled[-1] == pytest.approx(plain[-1] / 4, rel=1e-5)


def test_dynamic_scaling_changes_nothing_up_to_the_trained_length() -> None:
    plain, dynamic = nn.RotaryEmbedding(8), nn.RotaryEmbedding(8, scaling=nn.DynamicNTKScaling(2.0, 16))
    np.testing.assert_array_equal(dynamic(lucid.arange(16))[0], plain(lucid.arange(16))[0])
    assert not np.allclose(dynamic(lucid.arange(17))[0][:16], plain(lucid.arange(16))[0])


def test_yarn_s_magnitudes() -> None:
    assert nn.YarnScaling(4.0).magnitude == pytest.approx(0.1 * math.log(4) + 1)
    assert nn.YarnScaling(4.0, attention_factor=1.5).magnitude == 1.5
    quotient = (0.1 * 0.7 * math.log(40) + 1) / (0.1 * math.log(40) + 1)
    assert nn.YarnScaling(40.0, mscale=0.7, mscale_all_dim=1.0).magnitude == pytest.approx(quotient)


def test_wrong_rotary_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="rotary_dim is 5, expected an even number up to head_dim 8"):
        nn.RotaryEmbedding(8, rotary_dim=5)
    with pytest.raises(ValueError, match=r"factor is 0\.5, expected a finite number of 1 or more"):
        nn.LinearScaling(0.5)
    rope, x = nn.RotaryEmbedding(8), lucid.zeros(2, 5, 24)
    cos, sin = rope(lucid.arange(5))
    with pytest.raises(ValueError, match=r"expected \(N, L, 5 \* d\)"):
        ops.rotary_embedding(x, cos, sin, heads=5)
    with pytest.raises(TypeError, match="input float16, cos float32"):
        ops.rotary_embedding(x.astype("float16"), cos, sin, heads=3)
    with pytest.raises(ValueError, match="tables by position need `positions`"):
        ops.rotary_embedding(x, *rope(lucid.arange(6)), heads=3)
    with pytest.raises(IndexError, match="positions range from 5 to 5, expected 0 or more; the cos table has 5 rows"):
        ops.rotary_embedding(x, cos, sin, lucid.full((2, 5), 5, dtype=lucid.int64), heads=3)
    with pytest.raises(ValueError, match="cos rotates 2 \\* 4 features, expected at most the heads' 6"):
        ops.rotary_embedding(x, cos, sin, heads=4)


# biases -----------------------------------------------------------------------------------------------------------


def test_alibi_slopes_are_those_of_the_paper() -> None:
    np.testing.assert_allclose(alibi_slopes(8), [2.0**-i for i in range(1, 9)])
    np.testing.assert_allclose(alibi_slopes(16)[:3], [2**-0.5, 2**-1.0, 2**-1.5], rtol=1e-6)
    # 12 heads: those of 8, then the 1st, 3rd, 5th and 7th of 16.
    np.testing.assert_allclose(alibi_slopes(12)[8:], [2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5], rtol=1e-6)


def test_alibi_takes_slope_times_distance() -> None:
    causal, symmetric = nn.ALiBi(2)(3, 5, past=2).numpy(), nn.ALiBi(2, symmetric=True)(3, 5, past=2).numpy()
    for head, query, key in np.ndindex(2, 3, 5):
        distance = key - (query + 2)
        assert causal[0, head, query, key] == alibi_slopes(2)[head] * distance
        assert symmetric[0, head, query, key] == -alibi_slopes(2)[head] * abs(distance)


def bucket(relative: int, buckets: int, reach: int, bidirectional: bool) -> int:
    """The bucket of a distance, as described in Raffel et al. 2020, in float64."""
    offset, distance = 0, -relative if not bidirectional else abs(relative)
    if bidirectional:
        buckets //= 2
        offset = buckets if relative > 0 else 0
    distance, near = max(distance, 0), buckets // 2
    if distance < near:
        return offset + distance
    far = near + int(math.log(distance / near) / math.log(reach / near) * (buckets - near) + 1e-9)
    return offset + min(far, buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "reach"), [(32, 128), (8, 12), (6, 20)])
def test_relative_positions_share_buckets(bidirectional: bool, buckets: int, reach: int) -> None:
    module = nn.RelativePositionBias(2, buckets, reach, bidirectional)
    bias, weight = module(150, 170, past=10).numpy(), module.weight.numpy()
    assert bias.shape == (1, 2, 150, 170)
    for query in (0, 1, 70, 149):
        for key in range(170):
            expected = weight[bucket(key - query - 10, buckets, reach, bidirectional)]
            np.testing.assert_array_equal(bias[0, :, query, key], expected)


@pytest.mark.parametrize("bias", [nn.ALiBi(2), nn.ALiBi(2, symmetric=True), nn.RelativePositionBias(2, 8, 12)], ids=str)
def test_biases_for_rows_that_begin_at_different_positions(bias: nn.Module) -> None:
    each = bias(3, 9, lucid.tensor([4, 0]))
    assert each.shape == (2, 2, 3, 9)
    for row, past in enumerate((4, 0)):
        np.testing.assert_array_equal(each[row], bias(3, 9, past)[0])


def test_too_few_buckets_are_refused() -> None:
    with pytest.raises(ValueError, match="got 2 buckets up to distance 128, expected at least 4"):
        nn.RelativePositionBias(2, 2)
    with pytest.raises(ValueError, match="a distance above 16"):
        nn.RelativePositionBias(2, 64, max_distance=16)


# exported ---------------------------------------------------------------------------------------------------------


class Biased(nn.Module):
    """Self-attention with a position bias."""

    def __init__(self, bias: nn.Module) -> None:
        self.bias = bias

    def forward(self, x: lucid.Tensor) -> lucid.Tensor:
        mask = self.bias(x.shape[1], x.shape[1])
        y: lucid.Tensor = ops.attention(x, x, x, mask, heads=2, is_causal=True)
        return y


@pytest.mark.parametrize("opset", [18, 23])
@pytest.mark.parametrize("bias", [nn.ALiBi(2), nn.RelativePositionBias(2, 8, 12)], ids=["alibi", "t5"])
def test_biases_export_with_any_sizes(bias: nn.Module, opset: int) -> None:
    assert_parity(Biased(bias), ("N", "L", 8), opset=opset)


@pytest.mark.parametrize("module", [nn.SinusoidalPositionalEncoding(8), nn.SinusoidalPositionalEncoding(8, 50, False)])
def test_sinusoidal_positions_export_with_any_sizes(module: nn.Module) -> None:
    assert_parity(module, *(() if module.batch_first else [("L", "N", 8)]))


class Rotated(nn.Module):
    """Queries rotated by given positions."""

    def __init__(self, rope: nn.RotaryEmbedding, heads: int | None) -> None:
        self.rope, self.heads = rope, heads

    def forward(self, x: lucid.Tensor, positions: lucid.Tensor) -> lucid.Tensor:
        return self.rope.rotate(x, *self.rope(positions), heads=self.heads)


@in_pairs(interleaved=[False, True], rotary_dim=[4, 8], opset=[18, 23])
def test_rotary_positions_export_with_any_sizes(interleaved: bool, rotary_dim: int, opset: int) -> None:
    rope = nn.RotaryEmbedding(8, rotary_dim=rotary_dim, interleaved=interleaved)
    positions = lucid.spec("N", "L", dtype=lucid.int64)
    assert_parity(Rotated(rope, 3), ("N", "L", 24), positions, opset=opset)
    assert_parity(Rotated(rope, None), ("N", 3, "L", 8), positions, opset=opset)


@pytest.mark.parametrize("variant", [v for v, (_, scaling) in SCALINGS.items() if scaling])
def test_scaled_cosines_export_with_any_sizes(variant: str) -> None:
    base, scaling = SCALINGS[variant]
    assert_parity(nn.RotaryEmbedding(8, base, scaling=scaling))


@pytest.mark.parametrize("scaling", [nn.NTKScaling(2.0), nn.DynamicNTKScaling(2.0, max_position_embeddings=4)])
def test_one_frequency_is_the_same_with_any_base(scaling: nn.RopeScaling) -> None:
    cos, sin = nn.RotaryEmbedding(2, scaling=scaling)(lucid.arange(9).unsqueeze(0))
    np.testing.assert_allclose(cos.numpy().reshape(-1)[:9], np.cos(np.arange(9)), atol=1e-6)
    np.testing.assert_allclose(sin.numpy().reshape(-1)[:9], np.sin(np.arange(9)), atol=1e-6)
