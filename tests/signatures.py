"""Lucid's signatures compared with those of torch's functions and classes of the same names.

A port is silently wrong where a positional argument means something else here, or where a default differs. An argument
that only one of the two has is an error that Python raises by itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lucid import Tensor, nn
from lucid.core import offered as public
from lucid.core.torch_names.argument_names import OURS
from lucid.nn import functional
from lucid.ops.tensor.value import OPS as FUNCTIONS


class Parameter(NamedTuple):
    """One parameter: whether it can be given by position, and its default as text (None: it has none)."""

    name: str
    positional: bool
    default: str | None


# How torch's documentation calls further parameters that are meant by position.
BY_PLACE = {
    **OURS,
    "args": ("modules", "equation", "target", "input_size"),
    "tensor": ("self", "x", "source", "other"),
    "value": ("other", "y"),
    "other": (*OURS["other"], "tensor"),
    "elements": ("test_elements",),  # of the method, whose documentation is that of the function
    "split_size_or_sections": (*OURS["split_size_or_sections"], "indices_or_sections"),
    "dims": ("axes", "axis", "repeats"),
    "dimension": ("axis",),
    "exponent": ("y",),
    "obj": ("x",),
    "from": ("low",),
    "to": ("high",),
    **dict.fromkeys(("batch2", "tensor2", "mat2", "vec2"), ("other",)),
}

CLASSES = {"MultiHeadAttention": "MultiheadAttention"}  # of another name in torch
OTHER_THINGS = {"Size", "load", "save", "trace"}  # functions of lucid that only share a name with one of torch

_DEVICE = "there are no devices; torch's device in this place is refused as no element type"
_AXIS = "the last axis, where torch warns and guesses one"
_CAUSAL = "a flag, where torch's None looks into the mask"
_BATCH_FIRST = "batches come first unless one asks otherwise"

# Differences that stay, and why; docs/howto/coming-from.md says the same.
DELIBERATE: dict[str, dict[str, str]] = {
    **{
        f"nn.{name}": {"dtype for device": _DEVICE}
        for name in (
            *("Linear", "LayerNorm", "RMSNorm", "GroupNorm", "PReLU", "InstanceNorm1d", "InstanceNorm2d"),
            *("InstanceNorm3d", "RNNCell", "GRUCell", "LSTMCell"),
        )
    },
    **{
        f"nn.{name}": {"dtype for device": _DEVICE, "batch_first=True for False": _BATCH_FIRST}
        for name in ("Transformer", "TransformerEncoderLayer", "TransformerDecoderLayer")
    },
    "nn.MultiHeadAttention": {"batch_first=True for False": _BATCH_FIRST},
    "nn.MultiHeadAttention.forward": {
        "need_weights=False for True": "weights cost time, and take the fast forms away",
    },
    **{
        f"nn.BatchNorm{axes}d": {"dtype for track_running_stats": "they always are; a flag there is refused"}
        for axes in (1, 2, 3)
    },
    **{f"nn.{name}": {"axis=-1 for None": _AXIS} for name in ("Softmax", "LogSoftmax", "Softmin")},
    "functional.softmax": {"axis=-1 for None": _AXIS},
    "functional.log_softmax": {"axis=-1 for None": _AXIS},
    "functional.softmin": {"axis=-1 for None": _AXIS},
    **{
        name: {"keepdim=None for False": "the same: it tells that none is given"}
        for name in ("Tensor.max", "Tensor.min")
    },
    **{name: {"stable=True for False": "always"} for name in ("lucid.sort", "lucid.argsort")},
    "lucid.norm": {"dtype for out": "there is no out; a tensor there is refused as no element type"},
    "lucid.topk": {"axis=-1 for None": "the same: the last"},
    "Tensor.topk": {"axis=-1 for None": "the same: the last"},
    **{f"{place}.kthvalue": {"axis=-1 for None": "the same: the last"} for place in ("lucid", "Tensor")},
    "lucid.meshgrid": {"indexing=ij for None": "the same, without torch's warning"},
    "nn.ModuleList": {"modules=() for None": "the same: none"},
    "nn.ParameterList": {"values=() for None": "the same: none"},
    "nn.Transformer.forward": {
        "src_is_causal=False for None": _CAUSAL,
        "tgt_is_causal=False for None": _CAUSAL,
    },
    "nn.TransformerEncoder.forward": {"is_causal=False for None": _CAUSAL},
    "nn.TransformerDecoder.forward": {"tgt_is_causal=False for None": _CAUSAL},
}


_DOCUMENTATION = "a name of the documentation only"
_MEMORY = "it only says how torch uses memory: leave it out"
_UNCHANGED = "tensors are never changed in place"
_PLACE = "the input of a module is given by place"

# Arguments that are not taken by torch's name, and why; "*" is any function.
NOT_TAKEN: dict[str, dict[str, str]] = {
    "*": {
        **dict.fromkeys(("size_average", "reduce"), "torch's former spellings of reduction="),
        "out": _UNCHANGED,
        "generator": "there is one generator",
        "memory_format": _MEMORY,
        "device": _DEVICE,
    },
    "*.forward": {"input": _PLACE},
    "Tensor.arange": {"dtype": "lucid.arange takes it"},
    "Tensor.bmm": {"batch2": _DOCUMENTATION},
    "Tensor.div": {"value": _DOCUMENTATION},
    "Tensor.masked_scatter": {"tensor": _DOCUMENTATION},
    "Tensor.matmul": {"tensor2": _DOCUMENTATION},
    "Tensor.mul": {"value": _DOCUMENTATION},
    "Tensor.numpy": {"force": _MEMORY},
    "Tensor.type_as": {"tensor": _DOCUMENTATION},
    "Tensor.where": {"y": _DOCUMENTATION},
    "Tensor.uniform_": dict.fromkeys(("from", "to"), "low and high, as `from` is a word of Python's"),
    "lucid.is_tensor": {"obj": _DOCUMENTATION},
    "lucid.einsum": {"args": _DOCUMENTATION},
    "functional.one_hot": {"tensor": _DOCUMENTATION},
    **{f"nn.{name}": {"args": _DOCUMENTATION} for name in ("Sequential", "GRU", "LSTM", "RNN")},
    **{name: {"decimals": "round(x * 100) / 100"} for name in ("Tensor.round", "lucid.round")},
    **{
        name: dict.fromkeys(("max_norm", "norm_type"), "it changes the table")
        for name in ("nn.Embedding", "nn.EmbeddingBag", "functional.embedding_bag")
    },
    **{f"nn.BatchNorm{axes}d": {"bias": "torch's name for affine=False"} for axes in (1, 2, 3)},
    **{f"nn.InstanceNorm{axes}d": {"bias": "torch's name for affine=False"} for axes in (1, 2, 3)},
    "nn.Hardtanh": dict.fromkeys(("min_value", "max_value"), "torch's former names"),
    "nn.GroupNorm": {"bias": "there is a weight and a bias, or none"},
    **{f"nn.ConvTranspose{axes}d": {"padding_mode": "padding is zeros"} for axes in (1, 2, 3)},
}


def taken(name: str, parameter: str) -> bool:
    """Whether a function is to take an argument by torch's name."""
    rows = (name, "*", "*.forward" if name.endswith(".forward") else "*")
    return not any(parameter in NOT_TAKEN.get(row, {}) for row in rows)


def namesakes() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Lucid's public names that torch may have too."""
    for name, thing in vars(nn).items():
        if inspect.isclass(thing) and issubclass(thing, nn.Module) and thing is not nn.Module:
            yield f"nn.{name}", thing
            if "forward" in vars(thing):
                yield f"nn.{name}.forward", thing.forward
    for name, thing in vars(functional).items():
        if inspect.isfunction(thing) and not name.startswith("_"):
            yield f"functional.{name}", thing
    for name in dir(Tensor):
        if callable(getattr(Tensor, name)) and not name.startswith("_"):
            yield f"Tensor.{name}", getattr(Tensor, name)
    for name, thing in vars(public).items():
        if callable(thing) and not name.startswith("_") and not inspect.isclass(thing):
            yield f"lucid.{name}", thing


def signature(thing: Callable[..., Any], function: bool = False) -> list[Parameter]:
    """The parameters of a function, or of a class as it is called; the tensor is one if a method is a function.

    A method that passes all on to the function of its name has those of the function after the tensor.
    """
    parameters = []
    own = [*inspect.signature(thing).parameters.values()]
    if [p.name for p in own] == ["self", "arguments", "named"]:
        own = [*inspect.signature(FUNCTIONS[thing.__name__]).parameters.values()][1:]
    for p in own:
        if (function or p.name != "self") and p.kind is not p.VAR_KEYWORD:
            default = None if p.default is p.empty else getattr(p.default, "__name__", None) or str(p.default)
            parameters.append(Parameter(p.name, p.kind is not p.KEYWORD_ONLY, default))
    return parameters


def differences(ours: list[Parameter], theirs: list[Parameter]) -> list[str]:
    """The differences that would make a port silently wrong."""
    reasons = []
    known = {name: p for p in theirs for name in (p.name, *BY_PLACE.get(p.name, ()))}
    places = [p for p in theirs if p.positional]
    for mine, other in zip([p for p in ours if p.positional], places, strict=False):
        if mine.name not in (other.name, *BY_PLACE.get(other.name, ())):
            reasons.append(f"{mine.name} for {other.name}")
    for mine in ours:
        other_default = known[mine.name].default if mine.name in known else None
        if mine.default is not None and other_default is not None and not _alike(mine, other_default):
            reasons.append(f"{mine.name}={mine.default} for {other_default}")
    return reasons


def _alike(mine: Parameter, default: str) -> bool:
    """Whether a default is torch's, whose element type is float32 (int64 for whole numbers) where none is given."""
    default = default.replace("torch.long", "int64").removeprefix("torch.")
    return _number(mine.default) == _number(default) or (mine.name == "dtype" and default == "None")


def _number(default: str | None) -> object:
    """A default as a number, if it is one: 1e-8 is 1e-08."""
    try:
        return float(default or "")
    except ValueError:
        return default
