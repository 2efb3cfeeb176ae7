"""States of one size, in which layers other than attention keep earlier tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lucid import Dim, Tensor, nn, ops

CHUNK = 8  # tokens; results do not depend on it, and hardly does the time: docs/howto/loops.md has figures


def convolved(conv: nn.Conv1d, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """A convolution of each channel over the last k tokens, its own included.

    Args:
        conv: of k tokens, without padding.
        x: (N, C, L), the new tokens.
        state: (N, C, k - 1), those before them.

    Returns:
        (N, C, L), and the state after them.
    """
    window = ops.concat([state, x], 2)
    return conv(window), window[:, :, -state.shape[2] :]


def by_chunks(
    compute: Callable[..., tuple[Tensor, Tensor]], state: Tensor, tensors: Sequence[Tensor], chunk: int
) -> tuple[Tensor, Tensor]:
    """What `compute(size, state, *tensors)` makes of a text (N, L, ...): chunk by chunk, the rest by single tokens.

    Returns:
        Its results (N, L, ...), and the last state.
    """
    whole = tensors[0].shape[1] // chunk * chunk
    results = []
    for size, part in ((chunk, slice(None, whole)), (1, slice(whole, None))):
        y, state = compute(size, state, *(t[:, part] for t in tensors))
        results.append(y)
    return ops.concat(results, 1), state


def in_chunks(t: Tensor, size: int, groups: int | Dim, *shape: int | Dim) -> Tensor:
    """(N, L, ...) to (chunks, N, groups, heads of a group, size, ...); `shape` is that of a group."""
    n, length = t.shape[:2]
    t = t.reshape(n, length // size, size, groups, *shape)
    return t.permute(1, 0, 3, 4, 2, *range(5, t.ndim))
