"""How each of torch's modules is made in Lucid: the constructor's arguments, read from torch's module."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lucid.core.graph.types import as_dtype
from tests.torch_calls import Call
from tools.torch_samples.calls import Tensors, array_of, needs
from tools.torch_samples.neural import per_axis

Options = dict[str, Any]


def _dtype(module: torch.nn.Module) -> Options:
    first = next((t for t in module.state_dict().values() if t.is_floating_point()), None)
    return {} if first is None else {"dtype": as_dtype(str(first.dtype).removeprefix("torch."))}


def _linear(m: Any) -> Options:
    return {"in_features": m.in_features, "out_features": m.out_features, "bias": m.bias is not None}


def _conv(m: Any) -> Options:
    needs(m.padding_mode == "zeros", f"convolution with padding_mode {m.padding_mode!r}")
    return {
        "in_channels": m.in_channels,
        "out_channels": m.out_channels,
        "kernel_size": m.kernel_size,
        "stride": m.stride,
        "padding": m.padding,
        "dilation": m.dilation,
        "groups": m.groups,
        "bias": m.bias is not None,
    }


def _max_pool(m: Any) -> Options:
    needs(not m.ceil_mode, "pooling with ceil_mode")
    needs(not m.return_indices, "pooling that returns indices")
    return {"kernel_size": m.kernel_size, "stride": m.stride, "padding": m.padding, "dilation": m.dilation}


def _average_pool(m: Any) -> Options:
    needs(not m.ceil_mode, "pooling with ceil_mode")
    needs(getattr(m, "divisor_override", None) is None, "pooling with divisor_override")
    # torch holds tuples of one for AvgPool1d, numbers and pairs for AvgPool2d.
    axes = 1 if isinstance(m, torch.nn.AvgPool1d) else 2
    return {
        "kernel_size": per_axis(m.kernel_size, axes),
        "stride": per_axis(m.stride, axes),
        "padding": per_axis(m.padding, axes),
        "count_include_pad": m.count_include_pad,
    }


def _adaptive(m: Any) -> Options:
    needs(isinstance(m.output_size, int) or None not in m.output_size, "adaptive pooling that keeps an axis")
    return {"output_size": m.output_size}


def _batch_norm(m: Any) -> Options:
    needs(m.track_running_stats, "batch normalisation without running statistics")
    needs(m.affine == (m.bias is not None), "normalisation with a weight and no bias")
    needs(m.momentum is not None, "batch normalisation with a cumulative average")
    return {"num_features": m.num_features, "eps": m.eps, "momentum": m.momentum, "affine": m.affine}


def _group_norm(m: Any) -> Options:
    needs(m.affine == (m.bias is not None), "normalisation with a weight and no bias")
    return {"num_groups": m.num_groups, "num_channels": m.num_channels, "eps": m.eps, "affine": m.affine}


def _layer_norm(m: Any) -> Options:
    affine = {"elementwise_affine": m.elementwise_affine, "bias": m.bias is not None}
    return {"normalized_shape": list(m.normalized_shape), "eps": m.eps, **affine}


def _rms_norm(m: Any) -> Options:
    needs(len(m.normalized_shape) == 1, "rms_norm over several axes")
    (size,) = m.normalized_shape
    return {"normalized_shape": size, "eps": m.eps, "elementwise_affine": m.elementwise_affine}


def _attention(m: Any) -> Options:
    return {
        "embed_dim": m.embed_dim,
        "num_heads": m.num_heads,
        "bias": m.in_proj_bias is not None,
        "add_bias_kv": m.bias_k is not None,
        "add_zero_attn": m.add_zero_attn,
        "kdim": m.kdim,
        "vdim": m.vdim,
        "batch_first": m.batch_first,
    }


def _layer(m: Any) -> Options:
    return {
        "d_model": m.self_attn.embed_dim,
        "nhead": m.self_attn.num_heads,
        "dim_feedforward": m.linear1.out_features,
        "activation": {torch.nn.functional.relu: "relu", torch.nn.functional.gelu: "gelu"}[m.activation],
        "layer_norm_eps": m.norm1.eps,
        "batch_first": m.self_attn.batch_first,
        "norm_first": m.norm_first,
        "bias": m.linear1.bias is not None,
    }


def _encoder(m: Any) -> Options:
    needs(m.norm is None, "an encoder's norm")
    return {"num_layers": m.num_layers, **_layer(m.layers[0])}


def _transformer(m: Any) -> Options:
    layers = {"num_encoder_layers": m.encoder.num_layers, "num_decoder_layers": m.decoder.num_layers}
    return {**_layer(m.encoder.layers[0]), **layers}


MODULES: dict[str, Callable[[Any], Options]] = {
    "AdaptiveAvgPool1d": _adaptive,
    "AdaptiveAvgPool2d": _adaptive,
    "AvgPool1d": _average_pool,
    "AvgPool2d": _average_pool,
    "BatchNorm1d": _batch_norm,
    "Conv1d": _conv,
    "Conv2d": _conv,
    "Embedding": lambda m: {"num_embeddings": m.num_embeddings, "embedding_dim": m.embedding_dim},
    "GELU": lambda m: {"approximate": m.approximate},
    "GLU": lambda m: {"axis": m.dim},
    "GroupNorm": _group_norm,
    "LayerNorm": _layer_norm,
    "Linear": _linear,
    "MaxPool1d": _max_pool,
    "MaxPool2d": _max_pool,
    "MultiheadAttention": _attention,
    "RMSNorm": _rms_norm,
    "ReLU": lambda m: {},
    "SiLU": lambda m: {},
    "Softmax": lambda m: {"axis": m.dim},
    "Tanh": lambda m: {},
    "Transformer": _transformer,
    "TransformerDecoderLayer": _layer,
    "TransformerEncoder": _encoder,
    "TransformerEncoderLayer": _layer,
}


def module_call(name: str, module: torch.nn.Module, arguments: Any, options: Any) -> Call:
    """The call of Lucid's module with torch's weights."""
    constructor = {**MODULES[name](module), **_dtype(module)}
    state = {key: array_of(value) for key, value in module.state_dict().items()}
    tensors = Tensors()
    by_name = dict(options)
    by_place = (*arguments, *([by_name.pop("input")] if "input" in by_name else []))  # Lucid calls it x
    placed, named = tensors.slotted(by_place), tensors.slotted(by_name)
    if name == "MultiheadAttention":  # torch's default; Lucid's is only the output
        named["need_weights"] = True
    return Call(name, tuple(tensors.arrays), placed, named, constructor, state)
