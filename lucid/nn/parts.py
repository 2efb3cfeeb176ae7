"""What is exported of a model that is exported in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from lucid.dims import Size
from lucid.types import Array

CacheKind: TypeAlias = Literal["growing", "fixed"]
CACHE_KINDS: tuple[str, ...] = get_args(CacheKind)
PartName: TypeAlias = Literal["encoder", "decoder", "decoder_merged"]
PART_NAMES: tuple[str, ...] = get_args(PartName)
Draw: TypeAlias = Callable[[Mapping[str, int]], Mapping[str, Array]]
"""From the values of symbolic sizes to arrays for inputs, by name."""


def buffer_sizes(batch: str, lengths: Sequence[str], slots: str, capacity: Size | None) -> list[dict[str, int]]:
    """Values of the sizes of a step over buffers with which it runs on random inputs: there is room after position 1.

    Args:
        batch, lengths, slots: the names of the sizes; the first length is that of what is new.
        capacity: of the buffers; None where it is the size `slots`.
    """
    most = capacity if isinstance(capacity, int) else 7
    longest = max(1, min(3, most - 1))
    named = {} if isinstance(capacity, int) else {slots: most}
    return [{**dict.fromkeys(lengths, length), batch: rows, **named} for rows, length in ((1, 1), (2, longest), (3, 1))]


class ModelPart(NamedTuple):
    """A part of a model: a function of it, such as one of its methods, with its inputs and names for its outputs.

    With a `condition`, the name of a boolean input, the function returns two results of the same structure; where it is
    true only the first is computed, elsewhere only the second.

    `sizes` are values of the symbolic sizes with which it can be compared on random inputs, where positions are 0 or 1;
    None where any will do. `draw` gives values of inputs for such a comparison; what it does not give is random.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    outputs: Sequence[str] | None = None
    condition: str | None = None
    sizes: Sequence[Mapping[str, int]] | None = None
    draw: Draw | None = None
