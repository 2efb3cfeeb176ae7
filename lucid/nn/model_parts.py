"""The parts of a model that are exported by themselves, such as a decoder's step, and how to compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from lucid.core.graph.types import Array
from lucid.core.sizes.dims import Size

CacheKind: TypeAlias = Literal["growing", "fixed"]
CACHE_KINDS: tuple[str, ...] = get_args(CacheKind)
PartName: TypeAlias = Literal["encoder", "decoder", "decoder_merged"]
PART_NAMES: tuple[str, ...] = get_args(PartName)
Draw: TypeAlias = Callable[[Mapping[str, int]], Mapping[str, Array]]
"""From the values of symbolic sizes to arrays for inputs, by name."""


def buffer_sizes(batch: str, lengths: Sequence[str], slots: str, capacity: Size | None) -> list[dict[str, int]]:
    """Sizes for running a step over buffers on random inputs: there is room after position 1.

    Args:
        batch, lengths, slots: the names of the sizes; the first length is that of the new tokens.
        capacity: of the buffers; None if it is the size `slots`.
    """
    most = capacity if isinstance(capacity, int) else 7
    longest = max(1, min(3, most - 1))
    named = {} if isinstance(capacity, int) else {slots: most}
    return [{**dict.fromkeys(lengths, length), batch: rows, **named} for rows, length in ((1, 1), (2, longest), (3, 1))]


class Step(NamedTuple):
    """A run that continues from the previous one: the sizes, and arrays for some inputs by name."""

    sizes: Mapping[str, int]
    inputs: Mapping[str, Array]


class Steps(NamedTuple):
    """Consecutive runs; before the first one, the carried values are zero."""

    carried: Mapping[str, int]  # the index of the output that each carried input of the next step takes, by input name
    runs: Sequence[Step]


_AFTER_PROMPT = 4  # tokens, one at a time


def consecutive(prompt: int, capacity: Size | None = None) -> list[tuple[int, int]]:
    """The steps of a prompt and of single tokens after it: the number of earlier positions and of new ones.

    If the capacity is a number, the steps stay within it.
    """
    most = capacity if isinstance(capacity, int) else prompt + _AFTER_PROMPT
    prompt = max(1, min(prompt, most - _AFTER_PROMPT))
    steps = [(0, prompt), *((prompt + step, 1) for step in range(_AFTER_PROMPT))]
    return [(before, new) for before, new in steps if before + new <= most]


def carried_outputs(outputs: Sequence[str]) -> dict[str, int]:
    """The indices of outputs of a step that are inputs of the next one, by input name."""
    present, past = "present.", "past_key_values."
    return {past + name.removeprefix(present): i for i, name in enumerate(outputs) if name.startswith(present)}


class Alternative(NamedTuple):
    """The function that replaces a part, on the same inputs, where a boolean input is false."""

    condition: str
    function: Callable[..., Any]


class ModelPart(NamedTuple):
    """A part of a model: a function of it, such as one of its methods, with its inputs and names for its outputs.

    With `otherwise` an input chooses between two functions, whose results have the same structure.

    `sizes` are values of the symbolic sizes with which it can be compared on random inputs, where positions are 0 or 1;
    None where any will do. `draw` gives values of inputs for such a comparison; inputs that it does not give are
    random. For a part with a cache, `steps` gives runs that follow each other, from the length of the first one.
    """

    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    outputs: Sequence[str] | None = None
    otherwise: Alternative | None = None
    sizes: Sequence[Mapping[str, int]] | None = None
    draw: Draw | None = None
    steps: Callable[[int], Steps] | None = None
