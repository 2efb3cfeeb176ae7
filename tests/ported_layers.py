"""Lines of torch's that call layers, as functions and as modules, or find elements by rank and place; see `ported`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

Line = Callable[..., Any]  # (t, F, nn, *tensors) to a tensor or several


def _filled(t: Any, nn: Any, layer: str, *sizes: int, **options: Any) -> Any:
    """A module whose parameters are known numbers, and none was drawn."""
    with t.no_grad(), getattr(nn.init, "skip", nullcontext)():
        module = getattr(nn, layer)(*sizes, **options)
        for number, parameter in enumerate(module.parameters()):
            parameter.copy_((t.arange(parameter.numel()).float() + number).sin().reshape(parameter.shape))
    return module.eval()


LAYERS: dict[str, tuple[str, Line]] = {
    "activations that shrink": (
        "x whole",
        lambda t, F, nn, x, i: (
            F.hardtanh(i),
            *(f(3 * x) for f in (F.softsign, F.selu, F.hardtanh, F.tanhshrink)),
            F.hardtanh(x, min_val=-0.5, max_val=0.2),
            F.celu(3 * x, alpha=0.7),
            F.softmin(x, dim=1),
            *(f()(3 * x) for f in (nn.Softsign, nn.SELU, nn.Hardtanh, nn.Tanhshrink, nn.LogSigmoid)),
            nn.CELU(0.7)(x),
            nn.Softmin(dim=2)(x),
        ),
    ),
    "channels": (
        "image",
        lambda t, F, nn, x: (
            F.channel_shuffle(t.cat([x, x + 1], 1), 2),
            F.pixel_unshuffle(x[:, :, :4, :6], 2),
            nn.PixelUnshuffle(2)(x[:, :, :4, :6]),
            nn.ChannelShuffle(2)(t.cat([x, x + 1], 1)),
            nn.Unflatten(1, (2, 1))(x),
            nn.Unflatten(dim=-3, unflattened_size=(1, -1))(x),
        ),
    ),
    "normalised channels": (
        "image sound",
        lambda t, F, nn, x, s: (
            F.batch_norm(x, t.ones(2) / 4, t.ones(2) * 2, bias=t.ones(2), eps=0.1),
            F.batch_norm(s, None, None, t.ones(2) * 3, training=True),
            F.group_norm(t.cat([x, 2 * x], 1), 2, t.arange(4.0)),
            F.instance_norm(x, weight=t.arange(2.0), bias=t.ones(2)),
            F.instance_norm(x, t.ones(2) / 4, t.ones(2) * 2, use_input_stats=False),
            _filled(t, nn, "InstanceNorm1d", 2, affine=True)(s),
            nn.InstanceNorm2d(2, track_running_stats=True).eval()(x),
            nn.InstanceNorm2d(2)(x[0]),
            nn.InstanceNorm3d(1, eps=0.1)(x.unsqueeze(1)),
            nn.BatchNorm3d(2).eval()(x.unsqueeze(-1)),
        ),
    ),
    "recurrent cells": (
        "x",
        lambda t, F, nn, x: (
            _filled(t, nn, "RNNCell", 4, 3, nonlinearity="relu")(x[:, 0]),
            _filled(t, nn, "RNNCell", 4, 3, bias=False)(x[0, 0], x[0, 1, :3]),
            _filled(t, nn, "GRUCell", 4, 3)(x[:, 0], x[:, 1, :3]),
            *_filled(t, nn, "LSTMCell", 4, 3)(x[:, 0]),
            *_filled(t, nn, "LSTMCell", 4, 3)(x[:, 0], (x[:, 1, :3], x[:, 2, :3])),
        ),
    ),
    "ranks": (
        "x whole",
        lambda t, F, nn, x, i: (
            t.median(x),
            *t.median(x, dim=1),
            *x.median(-1, keepdim=True),
            t.median(i),
            i.median(2)[0],
            *t.median((x - x[0, 0, 0]).log(), dim=2),
            *t.kthvalue(x, 2, dim=2),
            *x.kthvalue(3),
            t.quantile(x, 0.3),
            t.quantile(x, t.tensor([0.1, 0.5, 1.0]), dim=1, keepdim=True),
            t.quantile(x, t.tensor([0.1, 0.5]), keepdim=True),
            t.quantile(x.log(), 0.5, dim=2),
            *(x.quantile(0.4, -1, interpolation=way) for way in ("lower", "higher", "midpoint", "nearest")),
            t.searchsorted(t.tensor([-1.0, 0.0, 0.5]), x, right=True),
            t.searchsorted(x.sort(-1)[0], x, side="right", out_int32=True),
            t.searchsorted(x, x, sorter=x.argsort(-1)),
            t.searchsorted(t.tensor([-1.0, 0.0, 0.5]), 0.2),
        ),
    ),
    "ranks of infinities and NaN": (
        "x",
        lambda t, F, nn, x: (
            *(
                t.quantile((x[0] - x[0, 0, 0]).log().abs(), t.tensor([0.0, 0.5, 1.0]), dim, interpolation=way)
                for way in ("lower", "higher", "midpoint", "nearest")
                for dim in (0, 1)
            ),
            t.tensor([1.0, 2.0, float("inf")]).quantile(0.5),
            t.tensor([1.0, 2.0, 3.0]).quantile(0.5, interpolation="midpoint"),
            *(
                t.kthvalue(t.tensor([float("nan"), 2.0, float("inf"), 1.0]), k)[place]
                for k in (2, 3, 4)
                for place in (0, 1)
            ),
            t.kthvalue(x.log(), 3)[0],
            t.median(x[:, :0]),
            t.searchsorted(t.tensor([-1.0, 0.0]), x.log()),
            t.bucketize(x.log(), t.tensor([-1.0, 0.0, 0.5]), right=True),
        ),
    ),
    "running products": (
        "x whole mask",
        lambda t, F, nn, x, i, m: (t.cumprod(x, 1), x.cumprod(dim=-1), t.cumprod(i, 0), m.cumprod(2, dtype=t.float32)),
    ),
    "parts": (
        "x v",
        lambda t, F, nn, x, v: (
            *t.tensor_split(v, 3),
            *x.tensor_split(3, dim=2),
            *x.tensor_split((1, -1), -1),
            *t.vsplit(x, [1]),
            *t.hsplit(x, 3),
            x.unfold(1, 2, 1),
            x.unfold(dimension=-1, size=3, step=2),
            v.unfold(0, 2, 3),
        ),
    ),
    "places": (
        "ids mask",
        lambda t, F, nn, i, m: (
            *t.unravel_index(i, (2, 2)),
            t.triu_indices(3, 4, 1),
            t.tril_indices(3, 3, -1, dtype=t.int32),
            t.nonzero_static(m, size=4),
            t.nonzero_static(m, size=40, fill_value=-9),
            t.nonzero_static(m[:, :0], size=2),
            t.nonzero_static(m[0, 0, 0], size=2),
            *t.unravel_index(i.int(), (2, 2)),
        ),
    ),
    "no axes": (
        "x ids",
        lambda t, F, nn, x, i: (
            t.index_select(x[0, 0, 0], 0, t.tensor([0])),
            x.index_select(1, t.tensor(2)),
            t.index_add(x[0, 0, 0], 0, t.tensor(0), x[0, 0, 1]),
            x.index_add(1, t.tensor(1), x[:, :1]),
            t.logsumexp(x[0, 0, 0], 0),
            t.logsumexp(i, dim=-1, keepdim=True),
            t.logsumexp(x[:, :0], 1),
            x[0, 0, 0].unfold(0, 1, 1),
            *t.median(x[0, 0, 0], 0),
            t.quantile(x[0, 0, 0], 0.5, dim=0),
            t.cumprod(x[0, 0, 0], 0),
            t.hstack([x[0, 0, 0], x[0, 0, 1]]),
            x[:, :1].diff(2, 1),
        ),
    ),
    "maxima and their places": (
        "image sound",
        lambda t, F, nn, x, s: (
            *F.max_pool2d(x, 2, return_indices=True),
            *F.max_pool2d(x, (4, 3), 2, 1, ceil_mode=True, return_indices=True),
            *nn.MaxPool1d(2, dilation=2, return_indices=True)(s),
            *F.adaptive_max_pool2d(x[:, :, :5], (2, 1), return_indices=True),
            *F.max_pool1d(s, 3, padding=1, dilation=2, ceil_mode=True, return_indices=True),
            F.adaptive_max_pool1d(s, 3),
            F.adaptive_max_pool2d(x[:, :, :4, :6], (2, 3)),
            *nn.AdaptiveMaxPool2d(1, return_indices=True)(x),
            nn.AdaptiveMaxPool3d((1, 2, 1))(x.unsqueeze(2)),
            nn.AdaptiveAvgPool3d((None, 2, 2))(x.unsqueeze(2)),
            nn.MaxPool3d((1, 2, 2))(x.unsqueeze(2)),
            nn.AvgPool3d((1, 2, 2))(x.unsqueeze(2)),
        ),
    ),
    "windows added up": (
        "image",
        lambda t, F, nn, x: (
            F.fold(F.unfold(x[:, :, :5, :6], 2), (5, 6), 2),
            F.fold(
                F.unfold(x[:, :, :5, :6], (2, 3), 2, 1, (2, 1)), (5, 6), (2, 3), dilation=2, padding=1, stride=(2, 1)
            ),
            nn.Fold((5, 6), 2)(F.unfold(x[0, :, :5, :6], 2)),
        ),
    ),
    "bags of rows": (
        "x ids v",
        lambda t, F, nn, x, i, v: (
            *(F.embedding_bag(i, x[0], mode=mode) for mode in ("mean", "sum", "max")),
            *(F.embedding_bag(i, x[0], mode=mode, padding_idx=1) for mode in ("mean", "sum", "max")),
            *(
                F.embedding_bag(i.flatten(), x[0], t.tensor([0, 2, 2]), mode=mode, padding_idx=2)
                for mode in ("mean", "sum", "max")
            ),
            F.embedding_bag(i.flatten(), x[0], t.tensor([0, 1, 6]), include_last_offset=True),
            *(F.embedding_bag(i, x[0], mode=mode, padding_idx=-1) for mode in ("mean", "sum", "max")),
            F.embedding_bag(i.flatten()[:0], x[0], t.tensor([0, 0]), mode="max"),
            *(  # one row of NaN, in its bags alone
                F.embedding_bag(
                    t.tensor([0, 1, 2, 1]), x[0].log() * t.tensor([[1.0], [0], [1]]), t.tensor([0, 2]), mode=mode
                )
                for mode in ("mean", "sum")
            ),
            F.embedding_bag(i, x[0], mode="sum", per_sample_weights=x[:, :, 0]),
            _filled(t, nn, "EmbeddingBag", 3, 2, mode="max")(i),
        ),
    ),
}
