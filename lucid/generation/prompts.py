"""Prompts: token ids, and which of them are padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from lucid.ops.tensor.tensor import Tensor

Ids = npt.NDArray[np.int64]
IdsLike = Tensor | npt.ArrayLike
"""Token ids as a tensor, an array or lists of integers."""


class Prompt(NamedTuple):
    """Prompts of one length, padded on the left."""

    ids: Ids  # (N, L)
    mask: Ids  # (N, L), 1 = a token, 0 = padding


def pad_left(prompts: Sequence[Sequence[int]], pad_id: int) -> tuple[Ids, Ids]:
    """A batch of prompts of different lengths.

    Args:
        prompts: the token ids of each.
        pad_id: the id to pad with; the model does not attend to it.

    Returns:
        The ids and the attention_mask, (N, L) int64 each, where L is the longest length.

    Raises:
        TypeError: for tokens that are not integers.
        ValueError: for no prompts, or an empty one.
    """
    tokens = [_whole_numbers("a prompt", prompt).reshape(-1) for prompt in prompts]
    if not tokens or not all(row.size for row in tokens):
        shown = f"lengths {[row.size for row in tokens]}" if tokens else "no prompts"
        raise ValueError(f"pad_left: got {shown}, expected at least one token in each; give a start token")
    longest = max(row.size for row in tokens)
    ids = np.full((len(tokens), longest), int(_whole_numbers("pad_id", [pad_id])[0]), np.int64)
    mask = np.zeros((len(tokens), longest), np.int64)
    for place, row in enumerate(tokens):
        ids[place, longest - row.size :] = row
        mask[place, longest - row.size :] = 1
    return ids, mask


def read_prompt(prompt_ids: IdsLike, attention_mask: IdsLike | None = None) -> Prompt:
    """Check prompts: (L,) is one prompt, (N, L) a batch.

    Raises:
        TypeError: for ids or a mask that are not integers.
        ValueError: for an empty prompt, negative ids, a mask that does not fit the ids, or padding on the right.
    """
    ids = _whole_numbers("prompt_ids", prompt_ids)
    if ids.size == 0:
        raise ValueError(
            f"generate: prompt_ids has shape {list(ids.shape)}, expected at least one token; give a start token"
        )
    if ids.ndim not in (1, 2):
        raise ValueError(f"generate: prompt_ids has shape {list(ids.shape)}, expected (L,) or (N, L)")
    if ids.min() < 0:
        raise ValueError(f"generate: prompt_ids has the id {ids.min()}, expected 0 or more")
    if attention_mask is None:
        return Prompt(np.atleast_2d(ids), np.ones_like(np.atleast_2d(ids)))
    mask = read_mask(attention_mask, "prompt_ids", ids.shape)
    prompt = Prompt(np.atleast_2d(ids), np.atleast_2d(mask))
    if empty := np.flatnonzero(~prompt.mask.any(axis=1)).tolist():
        raise ValueError(f"generate: prompt {empty[0]} is padding alone, expected at least one token")
    if padded := np.flatnonzero(prompt.mask[:, -1] == 0).tolist():
        raise ValueError(
            f"generate: prompt {padded[0]} ends with padding, expected it on the left; use lucid.generation.pad_left"
        )
    return prompt


def check_positions(prompt: int, new: int, positions: int | None) -> None:
    """Check that a prompt of so many tokens and so many new ones have room.

    Raises:
        ValueError: if they have not.
    """
    if positions is not None and prompt + new > positions:
        raise ValueError(
            f"generate: a prompt of {prompt} tokens and max_new_tokens={new} take {prompt + new} positions, the model "
            f"has {positions}; shorten one of them"
        )


def read_mask(attention_mask: IdsLike, of: str, shape: tuple[int, ...]) -> Ids:
    """Check the mask of ids of a shape: 1 = keep, 0 = padding; `of` names them in messages.

    Raises:
        TypeError, ValueError: for other numbers, or another shape.
    """
    mask = _whole_numbers("attention_mask", attention_mask)
    if mask.shape != shape:
        raise ValueError(f"generate: attention_mask has shape {list(mask.shape)}, expected {list(shape)} as {of} has")
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(
            f"generate: attention_mask has values from {mask.min()} to {mask.max()}, expected 1 = keep, 0 = padding"
        )
    return mask


def _whole_numbers(name: str, values: IdsLike) -> Ids:
    array = array_of(name, values)
    if array.size and array.dtype.kind not in "iub":
        raise TypeError(f"generate: {name} has dtype {array.dtype}, expected integers; use .astype(np.int64)")
    return array.astype(np.int64)


def array_of(name: str, values: IdsLike) -> npt.NDArray[Any]:
    """Values as an array.

    Raises:
        ValueError: for lists of different lengths.
    """
    try:
        return values.numpy() if isinstance(values, Tensor) else np.asarray(values)
    except ValueError as error:  # NumPy's, for lists of different lengths
        raise ValueError(
            f"generate: {name} has rows of different lengths, expected one; use lucid.generation.pad_left"
        ) from error
