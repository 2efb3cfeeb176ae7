"""DelightfulTTS (Liu et al. 2021, "DelightfulTTS: The Microsoft Speech Synthesis System for Blizzard Challenge 2021").

Its kinds of attention, and the block that encoder and decoder consist of:

- `MultiHeadAttention`: from queries of one width to keys of another;
- `StyleTokens` (Wang et al. 2018): the style of a sentence as a mixture of learned vectors, found by that attention;
- `RelativeAttention` (Dai et al. 2019): self-attention with relative positions;
- `ConformerBlock`: the improved Conformer (Gulati et al. 2020).

There is no published checkpoint; `load_state_dict` loads weights.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import lucid
from lucid import Dim, Tensor, TensorType, nn, ops
from lucid.models.parts.demonstration import SideBySide
from lucid.nn import functional as F


class MultiHeadAttention(nn.Module):
    """Attention from queries (N, T_q, query_dim) to keys (N, T_k, key_dim), also the values: (N, T_q, num_units).

    There is no bias and no output projection. Scores are divided by sqrt(key_dim): the width of the keys, not of a
    head.

    State: ``W_query.weight`` (num_units, query_dim), ``W_key.weight`` and ``W_value.weight`` (num_units, key_dim).

    Raises:
        ValueError: for a size below 1, or num_units that the heads do not divide.
    """

    def __init__(self, query_dim: int, key_dim: int, num_units: int, num_heads: int) -> None:
        _check_sizes(
            "MultiHeadAttention", query_dim=query_dim, key_dim=key_dim, num_units=num_units, num_heads=num_heads
        )
        if num_units % num_heads:
            raise ValueError(f"MultiHeadAttention: num_units {num_units} is not divisible by num_heads {num_heads}")
        self.query_dim, self.key_dim, self.num_units, self.num_heads = query_dim, key_dim, num_units, num_heads
        self.W_query = nn.Linear(query_dim, num_units, bias=False)
        self.W_key = nn.Linear(key_dim, num_units, bias=False)
        self.W_value = nn.Linear(key_dim, num_units, bias=False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        _check_input("MultiHeadAttention", "query", query, self.query_dim)
        _check_input("MultiHeadAttention", "key", key, self.key_dim)
        q, k, v = self.W_query(query), self.W_key(key), self.W_value(key)
        y: Tensor = ops.attention(q, k, v, heads=self.num_heads, scale=1 / math.sqrt(self.key_dim))
        return y

    def input_specs(self) -> Mapping[str, TensorType]:
        dtype = self.W_query.weight.dtype
        query = lucid.spec("N", "T_q", self.query_dim, dtype=dtype)
        return {"query": query, "key": lucid.spec("N", "T_k", self.key_dim, dtype=dtype)}


class StyleTokens(nn.Module):
    """A description of a reference (N, query_dim) as a mixture of learned tokens: (N, num_units).

    State: ``tokens`` (num_tokens, num_units / num_heads), and that of the attention.
    """

    def __init__(self, query_dim: int, num_units: int = 256, num_heads: int = 4, num_tokens: int = 10) -> None:
        _check_sizes("StyleTokens", num_units=num_units, num_heads=num_heads, num_tokens=num_tokens)
        self.attention = MultiHeadAttention(query_dim, num_units // num_heads, num_units, num_heads)
        self.tokens = nn.Parameter(lucid.randn(num_tokens, num_units // num_heads))

    def forward(self, reference: Tensor) -> Tensor:
        keys = self.tokens.tanh().expand(reference.shape[0], -1, -1)
        return self.attention(reference.unsqueeze(1), keys).squeeze(1)

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"reference": lucid.spec("N", self.attention.query_dim, dtype=self.tokens.dtype)}


class RelativeAttention(nn.Module):
    """Self-attention by distance: scores are ((q_i + u) k_j + (q_i + v) W r_(i-j)) / sqrt(d), r sinusoids.

    (N, L, dim) to (N, L, dim), for any length: positions have no table.

    State: ``query``, ``key``, ``value``, ``output`` and ``position`` (W), each a `Linear`; ``content_bias`` (u) and
    ``position_bias`` (v) of all heads, (dim).
    """

    def __init__(self, dim: int, num_heads: int) -> None:
        _check_sizes("RelativeAttention", dim=dim, num_heads=num_heads)
        if dim % num_heads or dim % 2:
            raise ValueError(f"RelativeAttention: dim is {dim}, expected an even multiple of num_heads {num_heads}")
        self.dim, self.num_heads = dim, num_heads
        self.query, self.key, self.value, self.output = (nn.Linear(dim, dim) for _ in range(4))
        self.position = nn.Linear(dim, dim, bias=False)
        self.content_bias, self.position_bias = nn.Parameter(lucid.zeros(dim)), nn.Parameter(lucid.zeros(dim))

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Attend; `key_padding_mask` (N, L) is true where a position is to be ignored."""
        _check_input("RelativeAttention", "x", x, self.dim)
        q, k, v = self.query(x), self.key(x), self.value(x)
        bias = self.distance_scores(q + self.position_bias) / math.sqrt(self.dim // self.num_heads)
        key_mask = None if key_padding_mask is None else ~key_padding_mask
        return self.output(ops.attention(q + self.content_bias, k, v, bias, key_mask, heads=self.num_heads))

    def distance_scores(self, q: Tensor) -> Tensor:
        """(N, L, dim) queries to (N, H, L, L): the product of each with the vector of each distance."""
        n, length, dim = q.shape
        heads, width = self.num_heads, dim // self.num_heads
        vectors = self.position(sinusoids(length, self.dim).astype(q.dtype))
        turned = q.reshape(n, length, heads, width).transpose(1, 2)
        scores = turned @ vectors.reshape(1, 2 * length - 1, heads, width).permute(0, 2, 3, 1)  # (N, H, L, 2L - 1)
        # Row i must begin at distance i, which is in column L - 1 - i: each row starts one column earlier than the one
        # before. So prepend a column, drop the first L numbers, and reshape the rest into rows of 2L - 1.
        padded = ops.concat([lucid.zeros(n, heads, length, 1, dtype=q.dtype), scores], 3)
        shifted = padded.reshape(n, heads, 2 * length, length)[:, :, 1:]
        return shifted.reshape(n, heads, length, 2 * length - 1)[..., :length]

    def input_specs(self) -> Mapping[str, TensorType]:
        return {"x": lucid.spec("N", "L", self.dim, dtype=self.content_bias.dtype)}


def sinusoids(length: int | Dim, dim: int) -> Tensor:
    """Vectors of the distances length - 1 down to 1 - length, (2 * length - 1, dim): sines, then cosines."""
    distances = -lucid.arange(1 - length, length)
    frequencies = (lucid.arange(0, dim, 2, dtype=lucid.float32) * (-math.log(10000.0) / dim)).exp()
    angles = distances.astype(lucid.float32).unsqueeze(1) * frequencies
    return ops.concat([ops.sin(angles), ops.cos(angles)], 1)


class ConvolutionalFeedForward(nn.Module):
    """The feed-forward layer, its first linear layer replaced by a convolution: (N, L, dim) to (N, L, dim)."""

    def __init__(self, dim: int, hidden_dim: int, kernel_size: int) -> None:
        self.norm = nn.LayerNorm(dim)
        self.widen = nn.Conv1d(dim, hidden_dim, kernel_size, padding=kernel_size // 2)
        self.narrow = nn.Conv1d(hidden_dim, dim, 1)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        return self.narrow(F.relu(self.widen(_silent(self.norm(x).mT, key_padding_mask)))).mT


class ConvolutionModule(nn.Module):
    """A gate, then a depthwise convolution: (N, L, dim) to (N, L, dim)."""

    def __init__(self, dim: int, kernel_size: int) -> None:
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Sequential(nn.Conv1d(dim, 2 * dim, 1), nn.GLU(axis=1))
        self.depthwise = nn.Conv1d(dim, dim, kernel_size, padding=kernel_size // 2, groups=dim)
        self.rest = nn.Sequential(nn.BatchNorm1d(dim), nn.ReLU(), nn.Conv1d(dim, dim, 1))

    def forward(self, x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
        gated: Tensor = self.gate(self.norm(x).mT)
        rest: Tensor = self.rest(self.depthwise(_silent(gated, key_padding_mask)))
        return rest.mT


class ConformerBlock(nn.Module):
    """Feed-forward, convolution, attention, feed-forward, each with a residual connection: (N, L, dim) to (N, L, dim).

    It differs from the Conformer in its order (the convolution comes before the attention), in ReLU instead of swish,
    and in the convolutions of its feed-forward layers. As in the Conformer these are added with weight one half.

    Args:
        dim: the width of inputs and outputs.
        num_heads: of the attention.
        kernel_size: of the convolution module, odd.
        hidden_dim: inside the feed-forward layers, 4 * dim by default.
        feed_forward_kernel_size: of their convolutions, odd.
    """

    def __init__(
        self,
        dim: int,
        num_heads: int,
        kernel_size: int = 7,
        hidden_dim: int | None = None,
        feed_forward_kernel_size: int = 3,
    ) -> None:
        _check_sizes("ConformerBlock", dim=dim, num_heads=num_heads)
        for name, size in (("kernel_size", kernel_size), ("feed_forward_kernel_size", feed_forward_kernel_size)):
            if size < 1 or size % 2 == 0:
                raise ValueError(f"ConformerBlock: {name} is {size}, expected an odd number, so that lengths stay")
        hidden = 4 * dim if hidden_dim is None else hidden_dim
        self.feed_forward1 = ConvolutionalFeedForward(dim, hidden, feed_forward_kernel_size)
        self.convolution = ConvolutionModule(dim, kernel_size)
        self.attention_norm, self.attention = nn.LayerNorm(dim), RelativeAttention(dim, num_heads)
        self.feed_forward2 = ConvolutionalFeedForward(dim, hidden, feed_forward_kernel_size)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor, key_padding_mask: Tensor | None = None) -> Tensor:
        """Run the block; `key_padding_mask` (N, L) is true for padding, which then affects no other position."""
        x = x + 0.5 * self.feed_forward1(x, key_padding_mask)
        x = x + self.convolution(x, key_padding_mask)
        x = x + self.attention(self.attention_norm(x), key_padding_mask)
        return self.norm(x + 0.5 * self.feed_forward2(x, key_padding_mask))

    def input_specs(self) -> Mapping[str, TensorType]:
        return self.attention.input_specs()


def _silent(x: Tensor, key_padding_mask: Tensor | None) -> Tensor:
    """(N, dim, L) with zeros in the padding, as convolutions pad beyond the ends."""
    return x if key_padding_mask is None else x.masked_fill(key_padding_mask.unsqueeze(1), 0.0)


def _check_sizes(where: str, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ValueError(f"{where}: {name} is {size}, expected 1 or more")


def _check_input(where: str, name: str, x: Tensor, width: int) -> None:
    if x.ndim != 3 or x.shape[2] != width:
        raise ValueError(f"{where}: {name} has shape [{', '.join(map(str, x.shape))}], expected (N, length, {width})")


def main() -> None:
    """Run a random block, exported once, on sentences of three lengths, and compare it with eager."""
    lucid.manual_seed(0)
    both = SideBySide(ConformerBlock(dim=64, num_heads=4))
    for length in (1, 20, 173):
        both(lucid.randn(2, length, 64))
        print(f"length {length}: largest difference between exported and eager {both.differences[-1]:.1e}")


if __name__ == "__main__":
    main()
