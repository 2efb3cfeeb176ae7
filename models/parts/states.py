"""What layers other than attention keep of earlier tokens, in states of one size."""

from __future__ import annotations

from lucid import Tensor, nn, ops


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
