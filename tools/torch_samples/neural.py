"""How each function of torch.nn.functional is called in Lucid; see `operators`."""

from __future__ import annotations

from typing import Any

import torch

from tools.torch_samples.calls import call, needs
from tools.torch_samples.operators import Mapped, maps


def per_axis(value: Any, axes: int) -> tuple[int, ...]:
    """One number for each spatial axis; torch takes one for all, or a tuple of one."""
    values = (value,) if isinstance(value, int) else tuple(value)
    return values * axes if len(values) == 1 else values


def _softmax(lucid: str) -> Any:
    def mapping(x: Any, dim: int, dtype: Any = None) -> Mapped:
        needs(dtype is None or dtype == x.dtype, "dtype of softmax: x.astype(dtype) before it")
        return call(lucid, x, dim)

    return mapping


for _name in ("softmax", "log_softmax"):
    maps(_name, f"{_name}.with_dtype")(_softmax(_name))


@maps("nn.functional.gelu")
def gelu(x: Any, approximate: str = "none") -> Mapped:
    return call("gelu", x, approximate)


@maps("nn.functional.softplus")
def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Mapped:
    needs(beta == 1 and threshold >= 20, "softplus: beta and threshold")
    return call("softplus", x)


@maps("nn.functional.dropout")
def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Mapped:
    needs(not training or p in (0, 1), "dropout while training: other random numbers")
    return call("dropout", x, p, training)


@maps("nn.functional.embedding")
def embedding(
    weight: Any,
    indices: Any,
    padding_idx: Any = None,
    max_norm: Any = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Mapped:
    needs(max_norm is None, "embedding: max_norm")
    return call("embedding", indices, weight)


@maps("nn.functional.layer_norm")
def layer_norm(x: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Mapped:
    return call("layer_norm", x, tuple(normalized_shape), weight, bias, eps)


@maps("nn.functional.rms_norm")
def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Mapped:
    needs(len(normalized_shape) == 1, "rms_norm over several axes")
    return call("rms_norm", x, weight, torch.finfo(x.dtype).eps if eps is None else eps)


@maps("nn.functional.group_norm")
def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Mapped:
    return call("group_norm", x, weight, bias, groups=num_groups, eps=eps)


@maps("nn.functional.batch_norm")
def batch_norm(
    x: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Mapped:
    needs(not training, "batch_norm while training")
    return call("batch_norm", x, running_mean, running_var, weight, bias, eps=eps)


def _conv(axes: int) -> Any:
    def mapping(
        x: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
    ) -> Mapped:
        needs(x.ndim == axes + 2, "conv without a batch: unsqueeze first")
        strides, dilations = per_axis(stride, axes), per_axis(dilation, axes)
        if isinstance(padding, str):
            spans = [d * (k - 1) * (padding == "same") for k, d in zip(weight.shape[2:], dilations, strict=True)]
            pads = (*(span // 2 for span in spans), *(span - span // 2 for span in spans))
        else:
            pads = per_axis(padding, axes) * 2
        return call("conv", x, weight, bias, strides=strides, pads=pads, dilations=dilations, group=groups)

    return mapping


def _max_pool(axes: int) -> Any:
    def mapping(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Mapped:
        needs(x.ndim == axes + 2, "pooling without a batch: unsqueeze first")
        needs(not ceil_mode, "pooling with ceil_mode")
        kernel = per_axis(kernel_size, axes)
        strides = per_axis(stride, axes) if stride or isinstance(stride, int) else kernel
        pooled = call(
            "max_pool",
            x,
            kernel_shape=kernel,
            strides=strides,
            pads=per_axis(padding, axes) * 2,
            dilations=per_axis(dilation, axes),
        )
        return pooled.taking(0) if return_indices else pooled

    return mapping


def _average_pool(axes: int) -> Any:
    def mapping(
        x: Any,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: Any = None,
    ) -> Mapped:
        needs(x.ndim == axes + 2, "pooling without a batch: unsqueeze first")
        needs(not ceil_mode, "pooling with ceil_mode")
        needs(divisor_override is None, "pooling with divisor_override")
        kernel = per_axis(kernel_size, axes)
        strides = per_axis(stride, axes) if stride else kernel
        pads = per_axis(padding, axes) * 2
        included = int(count_include_pad)
        return call("average_pool", x, kernel_shape=kernel, strides=strides, pads=pads, count_include_pad=included)

    return mapping


def _adaptive_average_pool(axes: int) -> Any:
    def mapping(x: Any, output_size: Any) -> Mapped:
        needs(x.ndim == axes + 2, "pooling without a batch: unsqueeze first")
        sizes = per_axis(output_size, axes) if isinstance(output_size, int) else tuple(output_size)
        needs(None not in sizes, "adaptive pooling that keeps an axis")
        return call("adaptive_average_pool", x, output_size=per_axis(sizes, axes))

    return mapping


for _axes in (1, 2):
    maps(f"nn.functional.conv{_axes}d")(_conv(_axes))
    maps(f"nn.functional.max_pool{_axes}d")(_max_pool(_axes))
    maps(f"nn.functional.avg_pool{_axes}d")(_average_pool(_axes))
    maps(f"nn.functional.adaptive_avg_pool{_axes}d")(_adaptive_average_pool(_axes))


@maps("nn.functional.scaled_dot_product_attention")
def scaled_dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Mapped:
    needs(dropout_p == 0, "dropout of attention: other random numbers")
    needs(query.ndim <= 4, "attention of more than four axes")
    return call(
        "scaled_dot_product_attention", query, key, value, attn_mask, 0.0, is_causal, scale, enable_gqa=enable_gqa
    )


@maps("nn.functional.multi_head_attention_forward")
def multi_head_attention_forward(*arguments: Any, **options: Any) -> Mapped:
    # The samples' dropout is 0 or 1 with training left at True; a probability of 1 gives zeros, others random numbers.
    names = ("in_proj_weight", "in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p")
    dropout = dict(zip(names, arguments[5:], strict=False))["dropout_p"]
    needs(dropout == 0 or options.get("training") is False, "dropout of attention: other random numbers")
    options["training"] = False
    return call("multi_head_attention_forward", *arguments, **options)
