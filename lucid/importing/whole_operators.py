"""Calls of torch that `torch.export` would lose, refuse or fix to the examples, replaced while it exports a module.

`torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu`, which it would unroll over the length, `detach`, which
it drops, and `grouped_mm`, which it exports in bfloat16 alone, become operators of Lucid's own: the table says what
computes them. `flex_attention` is written in plain operators. torch's Transformers take their masks as they are given.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.attention import flex_attention as flex
from torch.overrides import TorchFunctionMode

_LIBRARY = torch.library.Library("lucid", "DEF")


def _operator(schema: str, shapes: Any, kernel: Any) -> Any:
    """An operator of Lucid's own: the types of its outputs, and what computes it in programs that torch runs."""
    name = schema.partition("(")[0]
    _LIBRARY.define(schema)
    torch.library.register_fake(f"lucid::{name}", shapes, lib=_LIBRARY)
    _LIBRARY.impl(name, kernel, "CompositeExplicitAutograd")
    return getattr(torch.ops.lucid, name).default


# Recurrent layers -----------------------------------------------------------------------------------------------------

_ARGUMENTS = (
    "Tensor input, Tensor[] states, Tensor[] weights, bool bias, int layers, float dropout, bool train, "
    "bool bidirectional, bool batch_first"
)


def _shapes(x: torch.Tensor, states: Sequence[torch.Tensor], *options: Any) -> tuple[torch.Tensor, ...]:
    """The outputs of the last layer, and the states after the last step."""
    *_, bidirectional, _ = options
    width = states[0].shape[-1] * (1 + bidirectional)
    return x.new_empty(*x.shape[:-1], width), *map(torch.empty_like, states)


def _recurrent(name: str) -> Any:
    function = getattr(torch, name)

    def run(x: torch.Tensor, states: list[torch.Tensor], *others: Any) -> tuple[torch.Tensor, ...]:
        return tuple(function(x, states if name == "lstm" else states[0], *others))

    outputs = ", ".join(["Tensor"] * (3 if name == "lstm" else 2))
    operator = _operator(f"{name}({_ARGUMENTS}) -> ({outputs})", _shapes, run)

    def call(*args: Any) -> Any:
        if isinstance(args[3], (list, tuple)):  # packed sequences have their sizes second
            return function(*args)
        x, states, *others = args
        return operator(x, [states] if isinstance(states, torch.Tensor) else states, *others)

    return call


# Constants of gradients, and products of groups -----------------------------------------------------------------------

_CONSTANT = _operator("constant(Tensor x) -> Tensor", torch.empty_like, torch.clone)
torch.library.register_vmap("lucid::constant", lambda info, axes, x: (_CONSTANT(x), axes[0]), lib=_LIBRARY)
_GROUPED = _operator(
    "grouped_mm(Tensor x, Tensor weight, Tensor ends) -> Tensor",
    lambda x, weight, ends: x.new_empty(x.shape[0], weight.shape[-1]),
    lambda x, weight, ends: torch._grouped_mm(x, weight, offs=ends),
)


def _grouped(x: torch.Tensor, weight: torch.Tensor, offs: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    if (x.ndim, weight.ndim) != (2, 3) or bias is not None or out_dtype is not None:
        return torch._grouped_mm(x, weight, offs=offs, bias=bias, out_dtype=out_dtype)
    return _GROUPED(x, weight, offs)


# Attention by functions -----------------------------------------------------------------------------------------------


def _places(sizes: Sequence[int]) -> list[torch.Tensor]:
    """The numbers of rows, heads, queries and keys, each along its axis."""
    return [torch.arange(size).view([-1 if a == axis else 1 for a in range(4)]) for axis, size in enumerate(sizes)]


def _create_mask(function: Any, rows: int | None, heads: int | None, queries: int, keys: int, *device: Any) -> Any:
    """The mask of a function, of all places at once: torch calls it with one place, by `vmap`."""
    sizes = rows or 1, heads or 1, queries, keys
    return function(*_places(sizes)).expand(sizes)


def _flex_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    score: Any,
    block_mask: Sequence[Any],
    scale: float,
    options: Mapping[str, Any],
    score_tensors: Sequence[torch.Tensor] = (),
    mask_tensors: Sequence[torch.Tensor] = (),
) -> tuple[torch.Tensor, ...]:
    """Attention whose scores and mask are functions of numbers, and with it logarithms and maxima in base 2, if asked.

    torch would compile the functions, and keep the sizes of one export for the next ones.
    """
    key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], 1) for x in (key, value))
    scores = query @ key.mT * scale
    scores = score(scores, *_places(scores.shape), *score_tensors)
    if block_mask[-1] is not flex.noop_mask:
        scores = torch.where(block_mask[-1](*_places(scores.shape), *mask_tensors), scores, -math.inf)
    output = torch.ops.aten._safe_softmax.default(scores, -1) @ value
    none = query.new_empty(0)
    total = scores.logsumexp(-1) / math.log(2) if options.get("OUTPUT_LOGSUMEXP") else none
    most = scores.amax(-1) / math.log(2) if options.get("OUTPUT_MAX") else none
    return output, total, most


@contextmanager
def _flex_attention_in_steps() -> Iterator[None]:
    """A context in which `flex_attention` is not compiled and one operator, but written in others."""
    own = {
        "flex_attention_hop": _flex_attention,
        "create_mask": _create_mask,
        "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG": True,
    }
    before = {name: getattr(flex, name) for name in own}
    vars(flex).update(own)
    try:
        yield
    finally:
        vars(flex).update(before)


_REPLACED = {
    **{getattr(torch, name): _recurrent(name) for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    torch.Tensor.detach: _CONSTANT,
    torch.detach: _CONSTANT,
    torch._grouped_mm: _grouped,
    torch.Tensor.data.__get__: _CONSTANT,
}


class _Replaced(TorchFunctionMode):  # type: ignore[misc]  # torch is not there when types are checked
    """A context in which these calls are replaced."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _REPLACED.get(function, function)(*args, **(kwargs or {}))


# Masks of torch's Transformers ----------------------------------------------------------------------------------------


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


@contextmanager
def calls_replaced() -> Iterator[None]:
    """The context in which `torch.export` reads a module."""
    with _Replaced(), _flex_attention_in_steps():
        yield
