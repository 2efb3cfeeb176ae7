"""Operators that `torch.export` would unroll over the length of the examples, kept whole with an open length.

While torch exports a module, its calls of `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu` become
operators of Lucid's own. The table says what computes them. torch's Transformers take their masks as they are given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_ARGUMENTS = (
    "Tensor input, Tensor[] states, Tensor[] weights, bool bias, int layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)
_LIBRARY = torch.library.Library("lucid", "DEF")
for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    _LIBRARY.define(f"{_name}({_ARGUMENTS}) -> ({', '.join(['Tensor'] * (3 if _name == 'lstm' else 2))})")


def _shapes(x: torch.Tensor, states: Sequence[torch.Tensor], *options: Any) -> tuple[torch.Tensor, ...]:
    """The outputs of the last layer, and the states after the last step."""
    *_, bidirectional, _ = options
    width = states[0].shape[-1] * (1 + bidirectional)
    return x.new_empty(*x.shape[:-1], width), *map(torch.empty_like, states)


def _kernel(name: str) -> Any:
    """The implementation of an operator for programs that torch runs."""

    def run(x: torch.Tensor, states: list[torch.Tensor], *others: Any) -> tuple[torch.Tensor, ...]:
        return tuple(getattr(torch, name)(x, states if name == "lstm" else states[0], *others))

    return run


_WHOLE = {}
for _name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
    torch.library.register_fake(f"lucid::{_name}", _shapes, lib=_LIBRARY)
    _LIBRARY.impl(_name, _kernel(_name), "CompositeExplicitAutograd")
    _WHOLE[getattr(torch, _name)] = getattr(torch.ops.lucid, _name).default


class Whole(TorchFunctionMode):  # type: ignore[misc]  # torch is not there when types are checked
    """A context in which these operators are kept whole."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operator = _WHOLE.get(function)
        if operator is None or isinstance(args[3], (list, tuple)):  # packed sequences have their sizes second
            return function(*args, **(kwargs or {}))
        x, states, *others = args
        return operator(x, [states] if isinstance(states, torch.Tensor) else states, *others)


class _Encoder(torch.nn.TransformerEncoder):  # type: ignore[misc]  # as above
    """An encoder that does not read its mask to see whether it is causal: it is, if the call says so."""

    def forward(
        self,
        src: torch.Tensor,
        mask: torch.Tensor | None = None,
        src_key_padding_mask: torch.Tensor | None = None,
        is_causal: bool | None = None,
    ) -> torch.Tensor:
        return super().forward(src, mask, src_key_padding_mask, bool(is_causal))


class _Decoder(torch.nn.TransformerDecoder):  # type: ignore[misc]
    """The same for a decoder."""

    def forward(
        self,
        tgt: torch.Tensor,
        memory: torch.Tensor,
        tgt_mask: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
        tgt_key_padding_mask: torch.Tensor | None = None,
        memory_key_padding_mask: torch.Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> torch.Tensor:
        padding = tgt_key_padding_mask, memory_key_padding_mask
        return super().forward(tgt, memory, tgt_mask, memory_mask, *padding, bool(tgt_is_causal), memory_is_causal)


_AS_GIVEN = {torch.nn.TransformerEncoder: _Encoder, torch.nn.TransformerDecoder: _Decoder}


@contextmanager
def masks_as_given(module: torch.nn.Module) -> Iterator[None]:
    """A context in which torch's Transformers in a module do not read a mask to see whether it is causal.

    Each is of a class with `_Encoder` or `_Decoder` before torch's own class, so that `super().forward()` of a subclass
    leads there.
    """
    parts = [
        (part, type(part), own)
        for part in module.modules()
        for base, own in _AS_GIVEN.items()
        if isinstance(part, base)
    ]
    for part, kind, own in parts:
        bases = (own,) if issubclass(own, kind) else (kind, own)
        part.__class__ = type(kind.__name__, bases, {})
    try:
        yield
    finally:
        for part, kind, _ in parts:
            part.__class__ = kind
