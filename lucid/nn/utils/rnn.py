"""Sequences of several lengths under torch's names: padded to one length, with their lengths next to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from lucid import ops
from lucid.core.graph.types import show_shape
from lucid.core.sizes.dims import Size, same, sym_max
from lucid.core.words.package_names import unknown
from lucid.ops.creation import arange, tensor
from lucid.ops.rearranging import pad
from lucid.ops.tensor.tensor import Tensor

__all__ = ["PackedSequence", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence"]


@dataclass(frozen=True, eq=False)
class PackedSequence:
    """A batch of sequences of several lengths, for `nn.RNN`, `nn.GRU` and `nn.LSTM`, which return one.

    Attributes:
        padded: (L, N, *), the sequences from their first element on, then padding.
        lengths: (N,) integers.
    """

    padded: Tensor
    lengths: Tensor

    def __getattr__(self, name: str) -> NoReturn:
        why = "; write packed.padded, (L, N, ...) with padding, and packed.lengths"
        raise unknown("'PackedSequence' object", name, (), why if name in ("data", "batch_sizes") else "")


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Give padded sequences (L, N, *), or (N, L, *) with `batch_first`, their lengths (N,), in any order of rows.

    Raises:
        TypeError, ValueError: for lengths that are not N integers from 0 to L.
    """
    padded = input.transpose(0, 1) if batch_first else input
    return PackedSequence(padded, lengths_of("pack_padded_sequence", lengths, *padded.shape[:2]))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The sequences (L, N, *), or (N, L, *) with `batch_first`, and their lengths (N,).

    L is what it was before `pack_padded_sequence`. torch cuts it to the longest length, which is known only when an
    exported model runs.

    Args:
        padding_value: the number after the last element of each sequence.
        total_length: L, if it is to be checked.

    Raises:
        ValueError: for another `total_length`, and where L is known to be more than the longest length without it.
    """
    x, lengths = sequence.padded, sequence.lengths
    length = x.shape[0]
    if total_length is not None and not same(length, total_length):
        raise ValueError(f"pad_packed_sequence: total_length is {total_length}, expected {length}, that of the input")
    if total_length is None and isinstance(length, int) and not lengths.is_traced and lengths.shape[0]:
        longest = int(lengths.numpy().max())
        if longest < length:
            raise ValueError(
                f"pad_packed_sequence: the longest sequence has {longest} of {length} elements; torch would cut the "
                f"padding off: pack x[:{longest}] (batch first: x[:, :{longest}]), or give total_length={length}"
            )
    seen = element_mask(length, lengths)
    x = ops.where(seen.reshape((*seen.shape, *[1] * (x.ndim - 2))), x, padding_value)
    return (x.transpose(0, 1) if batch_first else x), lengths


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (L_i, *) with padding, as one tensor (L, N, *), or (N, L, *) with `batch_first`.

    Raises:
        ValueError: for another side than "right" and "left".
    """
    if padding_side not in ("left", "right"):
        raise ValueError(f'pad_sequence: padding_side is {padding_side!r}, expected "right" or "left"')
    longest: Size = sequences[0].shape[0]
    for x in sequences[1:]:
        longest = sym_max(longest, x.shape[0])
    rows = []
    for x in sequences:
        padding = (longest - x.shape[0], 0) if padding_side == "left" else (0, longest - x.shape[0])
        rows.append(pad(x, (*[0] * (2 * x.ndim - 2), *padding), value=padding_value))
    return ops.stack(rows, 0 if batch_first else 1)


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences (L_i, *) in any order."""
    return PackedSequence(pad_sequence(sequences), tensor([x.shape[0] for x in sequences]))


def lengths_of(where: str, lengths: Any, length: Size, batch: Size) -> Tensor:
    """The lengths (N,) of sequences of up to `length` elements, checked as far as they are known."""
    counts = lengths if isinstance(lengths, Tensor) else tensor(lengths)
    if counts.dtype.kind != "int":
        raise TypeError(f"{where}: lengths are {counts.spec}, expected integers")
    if counts.ndim != 1 or not same(counts.shape[0], batch):
        raise ValueError(
            f"{where}: lengths have shape {show_shape(counts.shape)}, expected [{batch}], one for each row"
        )
    if isinstance(length, int) and not counts.is_traced:
        wrong = [number for number in counts.numpy().tolist() if not 0 <= number <= length]
        if wrong:
            raise ValueError(f"{where}: lengths have {wrong[0]}, expected 0 to {length}, the length of the input")
    return counts


def element_mask(length: Size, lengths: Tensor) -> Tensor:
    """(L, N) booleans, true for the elements of each sequence and false for padding."""
    return arange(length).unsqueeze(1) < lengths
