"""What is exported of a model that is exported in parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

CacheKind: TypeAlias = Literal["growing", "fixed"]
CACHE_KINDS: tuple[str, ...] = get_args(CacheKind)
PartName: TypeAlias = Literal["encoder", "decoder", "decoder_merged"]
PART_NAMES: tuple[str, ...] = get_args(PartName)


class ModelPart(NamedTuple):
    """A part of a model: a function of it, such as one of its methods, with its inputs and names for its outputs.

    With a `condition`, the name of a boolean input, the function returns two results of the same structure; where it is
    true only the first is computed, elsewhere only the second.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    outputs: Sequence[str] | None = None
    condition: str | None = None
