"""Operators that `torch.export` would unroll over the length of the examples, kept whole with an open length.

While torch exports a module, its calls of `torch.lstm`, `torch.gru`, `torch.rnn_tanh` and `torch.rnn_relu` become
operators of Lucid's own. The table says what computes them.
"""

from __future__ import annotations

import inspect
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


def _as_given(module: torch.nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a call that leaves open whether its mask is causal, in which it is a mask like others."""
    bound = inspect.signature(type(module).forward).bind(module, *args, **kwargs)
    for name in ("is_causal", "tgt_is_causal"):
        if name in bound.signature.parameters and bound.arguments.get(name) is None:
            bound.arguments[name] = False
    return bound.args[1:], bound.kwargs


@contextmanager
def masks_as_given(module: torch.nn.Module) -> Iterator[None]:
    """A context in which torch's Transformers in a module do not read a mask to see whether it is causal."""
    kinds = (torch.nn.TransformerEncoder, torch.nn.TransformerDecoder)
    parts = [part for part in module.modules() if isinstance(part, kinds)]
    hooks = [part.register_forward_pre_hook(_as_given, with_kwargs=True) for part in parts]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
