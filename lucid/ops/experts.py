"""Mixture of experts (Shazeer et al. 2017): each token goes through a few of many feed-forward layers.

No path computes all experts for all tokens. The rows of the tokens are sorted by expert, and each expert is multiplied
with its own rows: a product of groups, `grouped_mm`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

from lucid.core.graph.types import Array, DType, TensorType, float32, int64, promote, same_shape, show_shape
from lucid.core.process.threads import share
from lucid.core.sizes.dims import product
from lucid.ops.creation import arange
from lucid.ops.elementwise import less_equal, sigmoid
from lucid.ops.indexing import take
from lucid.ops.neural import gelu, relu, silu, softmax
from lucid.ops.op import composite, composite_with, primitive
from lucid.ops.reduction import sum_
from lucid.ops.shaping import reshape, unsqueeze
from lucid.ops.sorting import sort, topk
from lucid.ops.tensor.tensor import Tensor

ALPHA, LIMIT = 1.702, 7.0
"""The factor in the sigmoid of "clamped_swiglu", and the limit of what it multiplies, as in gpt-oss."""


def _clamped_swiglu(both: Tensor) -> Tensor:
    gate, up = both[..., ::2].clamp(max=LIMIT), both[..., 1::2].clamp(-LIMIT, LIMIT)
    return (up + 1) * (gate * sigmoid(gate * ALPHA))


def _scaled_by(activation: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    def gated(both: Tensor) -> Tensor:
        gate, up = both.chunk(2, -1)
        return activation(gate) * up

    return gated


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": _scaled_by(silu),
    "gelu": _scaled_by(gelu),
    "gelu_tanh": _scaled_by(lambda x: gelu(x, approximate="tanh")),
    "relu": _scaled_by(relu),
    "clamped_swiglu": _clamped_swiglu,
}
"""What `gated_experts` makes of gate and projection (..., 2 I), by activation: (..., I)."""

_ROWS = 256  # that a worker multiplies at once


def _grouped_rule(x: TensorType, weight: TensorType, ends: TensorType) -> TensorType:
    if x.rank != 2 or weight.rank != 3 or not same_shape(x.shape[1:], weight.shape[1:2]):
        raise ValueError(
            f"grouped_mm: got {show_shape(x.shape)} and {show_shape(weight.shape)}, expected (M, K) and (G, K, N)"
        )
    if x.dtype.kind != "float" or x.dtype != weight.dtype:
        raise TypeError(f"grouped_mm: got {x} and {weight}, expected floating-point numbers of one type")
    if ends.dtype.kind != "int" or not same_shape(ends.shape, weight.shape[:1]):
        raise ValueError(f"grouped_mm: ends are {ends}, expected {weight.shape[0]} integers, one for each group")
    return x.with_shape((x.shape[0], weight.shape[2]))


def _grouped_kernel(x: Array, weight: Array, ends: Array) -> Array:
    stops = ends.astype(np.int64)
    starts = np.concatenate([[0], stops[:-1]])
    if (stops < starts).any() or (stops[-1] if len(stops) else 0) != len(x):
        raise ValueError(f"grouped_mm: ends are {ends}, expected numbers that do not fall, up to the {len(x)} rows")
    wide = np.dtype(np.float32 if x.dtype.itemsize == 2 else x.dtype)
    result = np.empty((len(x), weight.shape[2]), wide)

    def work(pieces: Iterator[tuple[int, slice]]) -> None:
        for group, rows in pieces:
            np.matmul(x[rows].astype(wide, copy=False), weight[group].astype(wide, copy=False), out=result[rows])

    share(_pieces(starts, stops), work)
    return result.astype(x.dtype, copy=False)


def _pieces(starts: Array, stops: Array) -> list[tuple[int, slice]]:
    """The rows of each group in pieces, so that several workers share a large group."""
    return [
        (group, slice(row, min(row + _ROWS, stop)))
        for group, (start, stop) in enumerate(zip(starts.tolist(), stops.tolist(), strict=True))
        for row in range(start, stop, _ROWS)
    ]


@primitive(kernel=_grouped_kernel, rule=_grouped_rule)
def grouped_mm(x: Tensor, weight: Tensor, ends: Tensor) -> Tensor:  # type: ignore[empty-body]
    """Groups of rows, each multiplied with a matrix of its own, as torch's ``grouped_mm`` and JAX's ``ragged_dot``.

    Args:
        x: (M, K), the rows of the first group, then those of the second, ...
        weight: (G, K, N), a matrix for each group.
        ends: (G) integers that do not fall: where the rows of each group end. The last one is M.

    Returns:
        (M, N).

    Raises:
        TypeError: for operands of different element types.
        ValueError: for shapes that do not fit; eagerly, for ends that are not ends of groups.
    """


def compute_dtype(x: Tensor, gate_up: Tensor, down: Tensor) -> DType:
    """The element type of the computation: at least float32."""
    return promote(promote(promote(x.dtype, gate_up.dtype), down.dtype), float32)


def _check(
    x: Tensor,
    indices: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None,
    down_bias: Tensor | None,
    activation: str,
) -> None:
    what = "gated_experts"
    if activation not in GATES:
        raise ValueError(f"{what}: activation is {activation!r}, expected one of {', '.join(GATES)}")
    if any(t.dtype.kind != "float" for t in (x, weights, gate_up, down)) or indices.dtype.kind != "int":
        raise TypeError(
            f"{what}: got x {x.spec}, indices {indices.spec}, weights {weights.spec}, gate_up {gate_up.spec} and down "
            f"{down.spec}, expected floating-point numbers, and integers for the indices"
        )
    sizes = (*gate_up.shape, *down.shape)
    if gate_up.ndim != 3 or down.ndim != 3 or not all(isinstance(size, int) for size in sizes):
        fits = False
    else:
        experts, inner, width = down.shape[0], down.shape[2], x.shape[-1] if x.ndim else 0
        fits = same_shape(gate_up.shape, (experts, 2 * inner, width)) and same_shape(down.shape[1:2], (width,))
    if not fits:
        raise ValueError(
            f"{what}: x is {show_shape(x.shape)}, gate_up {show_shape(gate_up.shape)}, down {show_shape(down.shape)}; "
            "expected (..., H), (E, 2 I, H) and (E, H, I)"
        )
    for name, bias, weight in (("gate_up_bias", gate_up_bias, gate_up), ("down_bias", down_bias, down)):
        if bias is not None and (bias.dtype.kind != "float" or not same_shape(bias.shape, weight.shape[:2])):
            raise ValueError(
                f"{what}: {name} is {bias.spec}, expected floating-point numbers {show_shape(weight.shape[:2])}"
            )
    if indices.ndim != x.ndim or not same_shape(indices.shape[:-1], x.shape[:-1]):
        raise ValueError(
            f"{what}: indices are {show_shape(indices.shape)} for x {show_shape(x.shape)}, expected (..., k)"
        )
    if not same_shape(weights.shape, indices.shape) or not isinstance(indices.shape[-1], int):
        raise ValueError(
            f"{what}: weights are {show_shape(weights.shape)} and indices {show_shape(indices.shape)}, expected one "
            "shape, with a fixed number of experts for each token"
        )


def _experts_kernel(
    x: Array,
    indices: Array,
    weights: Array,
    gate_up: Array,
    down: Array,
    gate_up_bias: Array | None,
    down_bias: Array | None,
    *,
    activation: str,
) -> Array:
    """Compute the rows of one expert after the other, so that intermediate results stay in a core's cache."""
    if indices.size and not 0 <= indices.min() <= indices.max() < len(down):
        raise IndexError(
            f"gated_experts: indices range from {indices.min()} to {indices.max()}, expected 0 to {len(down) - 1}"
        )
    wide = np.dtype(np.float64 if np.float64 in (x.dtype, gate_up.dtype, down.dtype) else np.float32)
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).astype(wide, copy=False)
    chosen = indices.reshape(-1)
    order = np.argsort(chosen, kind="stable")
    ends = np.cumsum(np.bincount(chosen, minlength=len(down)))
    outputs = np.empty((len(chosen), x.shape[-1]), wide)

    def work(pieces: Iterator[tuple[int, slice]]) -> None:
        for expert, rows_ in pieces:
            places = order[rows_]
            both = rows[places // indices.shape[-1]] @ gate_up[expert].T.astype(wide, copy=False)
            if gate_up_bias is not None:
                both += gate_up_bias[expert]
            inner = GATES[activation](Tensor.from_array(both)).numpy()
            result = inner @ down[expert].T.astype(wide, copy=False)
            outputs[places] = result if down_bias is None else result + down_bias[expert].astype(wide, copy=False)

    share(_pieces(np.concatenate([[0], ends[:-1]]), ends), work)
    factors = weights.reshape(len(rows), 1, indices.shape[-1]).astype(wide)
    total = factors @ outputs.reshape(len(rows), indices.shape[-1], x.shape[-1])
    return total.reshape(x.shape).astype(x.dtype)


@composite_with(kernel=_experts_kernel)
def gated_experts(
    x: Tensor,
    indices: Tensor,
    weights: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    activation: str = "silu",
) -> Tensor:
    """The sum, over the experts chosen for a token, of weight * down(activation(gate(x)) * up(x)).

    Half precision is computed in float32.

    Args:
        x: (..., H), the tokens.
        indices: (..., k) integers, the experts of each token.
        weights: (..., k), their weights.
        gate_up: (E, 2 I, H): for each of E experts the gate and the projection it scales, as `linear` takes them.
        down: (E, H, I).
        gate_up_bias, down_bias: (E, 2 I) and (E, H), added to these products.
        activation: "silu" (SwiGLU), "gelu", "gelu_tanh" or "relu"; or "clamped_swiglu" of gpt-oss (OpenAI 2025): gates
            and projections alternate, both are limited to 7, and it is gate * sigmoid(1.702 gate) * (up + 1).

    Returns:
        (..., H).

    Raises:
        IndexError: eagerly, for an expert that does not exist.
        TypeError: for operands that are not floating-point, or indices that are not integers.
        ValueError: for shapes that do not fit, or another activation.
    """
    _check(x, indices, weights, gate_up, down, gate_up_bias, down_bias, activation)
    dtype = compute_dtype(x, gate_up, down)
    tokens, k = product(x.shape[:-1]), indices.shape[-1]
    chosen = reshape(indices.astype(int64), (tokens * k,))
    order = sort(chosen).indices
    ends = sum_(less_equal(unsqueeze(chosen, 0), unsqueeze(arange(down.shape[0]), 1)).astype(int64), axis=(1,))
    rows = take(reshape(x.astype(dtype), (tokens, x.shape[-1])), order // k)

    def biased(products: Tensor, bias: Tensor | None) -> Tensor:
        return products if bias is None else products + take(bias.astype(dtype), take(chosen, order))

    inner = GATES[activation](biased(grouped_mm(rows, gate_up.astype(dtype).mT, ends), gate_up_bias))
    outputs = biased(grouped_mm(inner, down.astype(dtype).mT, ends), down_bias)
    placed = reshape(take(outputs, sort(order).indices), (tokens, k, x.shape[-1]))
    factors = reshape(weights.astype(dtype), (tokens, k, 1))
    return reshape(sum_(placed * factors, axis=(1,)), x.shape).astype(x.dtype)


@composite
def mixture_of_experts(
    x: Tensor,
    router_logits: Tensor,
    gate_up: Tensor,
    down: Tensor,
    gate_up_bias: Tensor | None = None,
    down_bias: Tensor | None = None,
    *,
    k: int,
    normalized: bool = True,
    activation: str = "silu",
) -> Tensor:
    """`gated_experts` with the k most probable experts of each token, weighted with their probabilities.

    The probabilities are the softmax of the logits, in float32. Of equal ones the first expert is taken.

    Args:
        x: (..., H), the tokens.
        router_logits: (..., E).
        gate_up, down, gate_up_bias, down_bias, activation: as for `gated_experts`.
        k: how many experts a token has.
        normalized: whether the weights of a token's experts are divided by their sum.

    Raises:
        TypeError, ValueError: as for `gated_experts`; for logits of another shape, or more experts than there are.
    """
    if router_logits.ndim != x.ndim or not same_shape(router_logits.shape, (*x.shape[:-1], *down.shape[:1])):
        raise ValueError(
            f"mixture_of_experts: router_logits are {show_shape(router_logits.shape)}, expected (..., E) for x "
            f"{show_shape(x.shape)} and {down.shape[0] if down.ndim else 0} experts"
        )
    if not isinstance(down.shape[0], int) or not 1 <= k <= down.shape[0]:
        raise ValueError(f"mixture_of_experts: k is {k}, expected 1 to {down.shape[0]}, the number of experts")
    probabilities = softmax(router_logits.astype(promote(router_logits.dtype, float32)), axis=-1)
    weights, indices = topk(probabilities, k)
    if normalized:
        weights = weights / sum_(weights, axis=(-1,), keepdims=True)
    return gated_experts(x, indices, weights, gate_up, down, gate_up_bias, down_bias, activation=activation)
