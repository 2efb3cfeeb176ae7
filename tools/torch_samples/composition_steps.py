"""The steps of random compositions: texts of torch's calls, each of two tensors and a number that varies it.

Every tensor has the shape (2, 3, 4), in which some sizes may be 1. Steps avoid places where torch takes one of several
equal elements (`topk`, `kthvalue`, `median`), or where its second derivatives are not those of its first ones: `prelu` at 0, and
`grid_sample` at whole pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np


class Api(NamedTuple):
    """torch or Lucid: its functions, those of `nn.functional`, a tensor of an array, and a loop."""

    t: Any
    F: Any
    tensor: Callable[[Any], Any]
    scan: Callable[..., Any]


Call: TypeAlias = Callable[[Api, Any, Any, int], Any]

STEPS: dict[str, Call] = {}


def _whole(x: Any) -> Any:
    return x.expand(2, 3, 4)


def _ids(a: Api, shape: tuple[int, ...], below: int, k: int) -> Any:
    return a.tensor(np.random.default_rng(k).integers(0, below, shape))


def _mask(a: Api, shape: tuple[int, ...], k: int) -> Any:
    """A mask of which one row in three variants is wholly false."""
    mask = np.random.default_rng(k).random(shape) < 0.6
    if k % 3 == 0:
        mask[..., -1, :] = False
    return a.tensor(mask)


def _weight(x: Any, *shape: int) -> Any:
    """Some numbers of a tensor as a weight of another shape."""
    count = math.prod(shape)
    flat = _whole(x).reshape(-1)
    return flat.repeat(-(-count // 24))[:count].reshape(*shape)


def _untied(a: Api, x: Any) -> Any:
    """A tensor without equal elements, of which torch takes any; the rounded mean of some would differ from them."""
    return _whole(x) + a.tensor(np.arange(24.0).reshape(2, 3, 4) * 1e-3)


# Functions of elements -----------------------------------------------------------------------------------------------

_FUNCTIONS = [
    "relu",
    "relu6",
    "elu",
    "selu",
    "celu",
    "gelu",
    "silu",
    "mish",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "softplus",
    "softsign",
    "tanhshrink",
    "logsigmoid",
    "leaky_relu",
]
_METHODS = [
    "abs",
    "sin",
    "cos",
    "atan",
    "sinh",
    "cosh",
    "asinh",
    "tanh",
    "sigmoid",
    "erf",
    "expm1",
    "exp2",
    "square",
    "frac",
    "sinc",
    "floor",
    "round",
    "trunc",
    "sign",
    "neg",
    "exp",
]


def _function(name: str) -> Call:
    return lambda a, x, y, k: getattr(a.F, name)(x)


def _method(name: str) -> Call:
    return lambda a, x, y, k: getattr(x, name)()


STEPS |= {name: _function(name) for name in _FUNCTIONS}
STEPS |= {name: _method(name) for name in _METHODS}
STEPS |= {
    "gelu tanh": lambda a, x, y, k: a.F.gelu(x, approximate="tanh"),
    "elu alpha": lambda a, x, y, k: a.F.elu(x, 0.5 * k),
    "celu alpha": lambda a, x, y, k: a.F.celu(x, 0.5 + k),
    "leaky": lambda a, x, y, k: a.F.leaky_relu(x, k - 3.0),
    "prelu": lambda a, x, y, k: a.F.prelu(_whole(x) + 0.03, _weight(y, 3)),
    "asin": lambda a, x, y, k: (0.9 * x.tanh()).asin() + (0.9 * x.sin()).acos(),
    "acosh": lambda a, x, y, k: (x.abs() + 1.5).acosh() + (0.9 * x.tanh()).atanh(),
    "log": lambda a, x, y, k: (x.abs() + 0.5).log() + (x * x + 1).log2(),
    "log1p": lambda a, x, y, k: x.abs().log1p(),
    "logit": lambda a, x, y, k: x.sigmoid().logit(1e-3),
    "reciprocal": lambda a, x, y, k: (x * x + 0.5).reciprocal() + (x.abs() + 0.25).rsqrt(),
    "chosen sqrt": lambda a, x, y, k: a.t.where(x > 0, x.sqrt(), y),
    "chosen log": lambda a, x, y, k: a.t.where(x > 0, x.abs().log(), y),
    "chosen quotient": lambda a, x, y, k: a.t.where(x != 0, y / x, x),
    "safe sqrt": lambda a, x, y, k: a.t.where(x > 0, a.t.where(x > 0, x, 1.0).sqrt(), 0.0),
    "sqrt": lambda a, x, y, k: (x * x + 0.5).sqrt(),
    "bounded sqrt": lambda a, x, y, k: x.clamp(min=0.25 * (k % 3)).sqrt(),
    "clamp": lambda a, x, y, k: x.clamp((None, -1.0, -0.5, 0.0)[k % 4], (None, 1.0, 2.0)[k % 3] if k % 4 else 0.5),
    "clamp between": lambda a, x, y, k: x.clamp(y - 0.5, y + 0.5 * k) if k % 2 else x.clamp(min=y),
    "whole power": lambda a, x, y, k: x ** (0, 1, 2, 3, 4, 2.0)[k % 6],
    "power": lambda a, x, y, k: (x.abs() + 0.1) ** ((0.5, -1, 1.5, -0.5)[k % 4] if k < 8 else y.tanh()),
    "power of zero": lambda a, x, y, k: x.abs() ** (2 + y.abs()),
    "base": lambda a, x, y, k: 2.0 ** x.tanh(),
    "nan_to_num": lambda a, x, y, k: x.nan_to_num(),
    "detach": lambda a, x, y, k: x * x.detach() + y,
}


# Functions of two tensors --------------------------------------------------------------------------------------------

STEPS |= {
    "add": lambda a, x, y, k: x + y,
    "sub": lambda a, x, y, k: x - k * y,
    "mul": lambda a, x, y, k: x * y,
    "div": lambda a, x, y, k: x / (y * y + 0.5),
    "rdiv": lambda a, x, y, k: 1.0 / (1 + x.abs()),
    "maximum": lambda a, x, y, k: a.t.maximum(x, y),
    "minimum": lambda a, x, y, k: a.t.minimum(x, y),
    "maximum number": lambda a, x, y, k: a.t.maximum(x, a.tensor(np.array((k % 3) * 0.5))),
    "atan2": lambda a, x, y, k: a.t.atan2(x, y),
    "hypot": lambda a, x, y, k: a.t.hypot(x, y + 3),
    "logaddexp": lambda a, x, y, k: a.t.logaddexp(x, y),
    "xlogy": lambda a, x, y, k: a.t.xlogy(x, y.abs() + 0.5),
    "lerp": lambda a, x, y, k: a.t.lerp(x, y, 0.25 * k),
    "lerp weight": lambda a, x, y, k: a.t.lerp(x, y, x.sigmoid()),
    "addcmul": lambda a, x, y, k: a.t.addcmul(x, x, y, value=0.5),
    "addcdiv": lambda a, x, y, k: a.t.addcdiv(x, y, y.abs() + 1, value=0.5),
    "remainder": lambda a, x, y, k: (x + 0.1) % 0.7 + (x + 0.05) % (y.abs() + 0.7),
    "where": lambda a, x, y, k: a.t.where(_mask(a, (2, 3, 4), k), x, y),
    "where greater": lambda a, x, y, k: a.t.where(x > y, x * y, x - y),
    "masked_fill": lambda a, x, y, k: x.masked_fill(y > 0.25, 0.5),
    "dist": lambda a, x, y, k: (x - y).abs() * (x - y),
}


# Moving --------------------------------------------------------------------------------------------------------------


def _pad(a: Api, x: Any, y: Any, k: int) -> Any:
    mode = ("constant", "reflect", "replicate", "circular")[k % 4]
    return a.F.pad(_whole(x), (2, 1), mode)[..., k % 3 : k % 3 + 4]


def _scatter(a: Api, x: Any, y: Any, k: int) -> Any:
    axis = k % 3
    size = (2, 3, 4)[axis]
    ids = a.tensor(np.argsort(np.random.default_rng(k).random((2, 3, 4)), axis)[:, :2] % size)
    return _whole(x).scatter(axis, ids, _whole(y)[:, :2])


def _scatter_add(a: Api, x: Any, y: Any, k: int) -> Any:
    axis = k % 3
    return _whole(x).scatter_add(axis, _ids(a, (2, 3, 4), (2, 3, 4)[axis], k), _whole(y))


def _scatter_reduce(a: Api, x: Any, y: Any, k: int) -> Any:
    ids = _ids(a, (2, 3, 4), 3, k)
    return _whole(x).scatter_reduce(1, ids, _whole(y), ("sum", "mean")[k % 2], include_self=k > 5)


STEPS |= {
    "view": lambda a, x, y, k: _whole(x).reshape(-1).view(4, 6).reshape(2, 3, 4),
    "transpose": lambda a, x, y, k: _whole(x).transpose(k % 3, (k + 1) % 3).reshape(2, 3, 4),
    "permute": lambda a, x, y, k: _whole(x).permute(2, 0, 1).reshape(2, 3, 4) * y,
    "flip": lambda a, x, y, k: _whole(x).flip(k % 3),
    "roll": lambda a, x, y, k: _whole(x).roll(k, k % 3),
    "expand": lambda a, x, y, k: _whole(x)[:1].expand(2, 3, 4) + y,
    "slice": lambda a, x, y, k: a.t.cat([_whole(x)[..., ::2], _whole(y)[..., 1::2]], -1),
    "slice one": lambda a, x, y, k: _whole(x)[:, k % 3 : k % 3 + 1] - y,
    "select": lambda a, x, y, k: _whole(x)[k % 2, None, 1:2] + _whole(y).select(2, k % 4).unsqueeze(-1),
    "index": lambda a, x, y, k: _whole(x)[:, _ids(a, (3,), 3, k)],
    "negative index": lambda a, x, y, k: _whole(x)[:, a.tensor(np.array([-1, 0, -1]))],
    "index pairs": lambda a, x, y, k: _whole(x)[_ids(a, (3,), 2, k), _ids(a, (3,), 3, k)].unsqueeze(0),
    "index apart": lambda a, x, y, k: _whole(x)[_ids(a, (2,), 2, k), :, _ids(a, (2,), 4, k)].unsqueeze(-1),
    "index_select": lambda a, x, y, k: _whole(x).index_select(2, _ids(a, (4,), 4, k)),
    "gather": lambda a, x, y, k: _whole(x).gather(k % 3, _ids(a, (2, 3, 4), (2, 3, 4)[k % 3], k)),
    "take_along_dim": lambda a, x, y, k: a.t.take_along_dim(_whole(x), _ids(a, (2, 3, 1), 4, k), 2),
    "scatter": _scatter,
    "scatter_add": _scatter_add,
    "scatter_reduce": _scatter_reduce,
    "index_add": lambda a, x, y, k: _whole(x).index_add(1, _ids(a, (3,), 3, k), _whole(y)),
    "pad": _pad,
    "repeat": lambda a, x, y, k: _whole(x).repeat(1, 2, 1).reshape(2, 2, 3, 4).mean(1) * y,
    "repeat_interleave": lambda a, x, y, k: _whole(x).repeat_interleave(2, 1)[:, k % 4 : k % 4 + 3],
    "unfold": lambda a, x, y, k: _whole(x).unfold(2, 2, 2).sum(-1, keepdim=True)[:, :, k % 2],
    "diagonal": lambda a, x, y, k: _whole(x)[..., :3].diagonal(0, 1, 2).unsqueeze(-1),
    "diag_embed": lambda a, x, y, k: a.t.diag_embed(_whole(x)[:, 0, :3])[..., :1],
    "tril": lambda a, x, y, k: _whole(x).tril(k % 3 - 1) + _whole(y).triu(k % 3),
    "split": lambda a, x, y, k: a.t.cat(_whole(x).split([1, 3], -1)[::-1], -1),
    "chunk": lambda a, x, y, k: _whole(x).chunk(2, -1)[k % 2].mean(-1, keepdim=True),
    "unbind": lambda a, x, y, k: _whole(x).unbind(1)[k % 3].unsqueeze(1),
    "stack": lambda a, x, y, k: a.t.stack([_whole(x), _whole(y)], k % 4).amax(k % 4),
    "glu": lambda a, x, y, k: a.F.glu(a.t.cat([_whole(x), _whole(y)], -1), -1),
    "diff": lambda a, x, y, k: _whole(x).diff(dim=1)[:, :1],
    "cross": lambda a, x, y, k: a.t.cross(_whole(x), _whole(y), dim=1),
}


# Order, sums and cumulative ones ------------------------------------------------------------------------------------

_DIMS: tuple[Any, ...] = (0, 1, 2, (0, 1), (1, 2), (0, 1, 2), -1)


def _reduced(name: str) -> Call:
    return lambda a, x, y, k: getattr(x, name)(dim=_DIMS[k % 7], keepdim=True)


def _by_one(name: str, field: int | None) -> Call:
    def call(a: Api, x: Any, y: Any, k: int) -> Any:
        result = getattr(_whole(x), name)(dim=k % 3, keepdim=True)
        return result if field is None else result[field]

    return call


STEPS |= {name: _reduced(name) for name in ("sum", "mean", "amax", "amin", "logsumexp")}
STEPS |= {f"{name} of one": _by_one(name, 0) for name in ("max", "min")}
STEPS |= {
    "var": lambda a, x, y, k: _whole(x).var(dim=_DIMS[k % 7], correction=k % 2, keepdim=True),
    "std": lambda a, x, y, k: _untied(a, x).std(dim=_DIMS[k % 7], correction=k % 2, keepdim=True),
    "std of four": lambda a, x, y, k: _whole(x).std(dim=-1, correction=k % 2, keepdim=True),
    "prod": _by_one("prod", None),
    "prod of all": lambda a, x, y, k: x.prod().reshape(1, 1, 1),
    "max of all": lambda a, x, y, k: (x.max() - x.min()).reshape(1, 1, 1),
    "median of one": lambda a, x, y, k: _untied(a, x).median(dim=k % 3, keepdim=True)[0],
    "median of all": lambda a, x, y, k: x.median().reshape(1, 1, 1),
    "quantile": lambda a, x, y, k: _whole(x).quantile((0.0, 0.3, 0.5, 1.0)[k % 4], dim=k % 3, keepdim=True),
    "kthvalue": lambda a, x, y, k: _untied(a, x).kthvalue(2, dim=k % 3, keepdim=True)[0],
    "topk": lambda a, x, y, k: _untied(a, x).topk(2, -1)[0].flip(-1).sum(-1, keepdim=True) * y,
    "topk values": lambda a, x, y, k: _untied(a, x).topk(1, k % 3)[0],
    "sort": lambda a, x, y, k: _whole(x).sort(dim=k % 3, descending=k > 5)[0] * y,
    "cumsum": lambda a, x, y, k: _whole(x).cumsum(k % 3),
    "cumprod": lambda a, x, y, k: _whole(x).cumprod(k % 3),
    "cummax": lambda a, x, y, k: _whole(x).cummax(k % 3)[0],
    "cummin": lambda a, x, y, k: _whole(x).cummin(k % 3)[0],
    "norm": lambda a, x, y, k: _whole(x).norm((1, 2, 3, math.inf, 1.5, 2)[k % 6], dim=k % 3, keepdim=True),
    "norm of all": lambda a, x, y, k: x.norm().reshape(1, 1, 1),
    "norm of two": lambda a, x, y, k: _whole(x).norm(2, dim=(1, 2), keepdim=True),
    "normalize": lambda a, x, y, k: a.F.normalize(_whole(x), (2.0, 1.0, 3.0, math.inf)[k % 4], dim=k % 3, eps=1e-3),
    "cosine_similarity": lambda a, x, y, k: (
        a.F.cosine_similarity(_whole(x), _whole(y), k % 3, 1e-3).mean().reshape(1, 1, 1)
    ),
    "pairwise_distance": lambda a, x, y, k: a.F.pairwise_distance(_whole(x), _whole(y), keepdim=True),
}


# Layers --------------------------------------------------------------------------------------------------------------


def _hidden_softmax(a: Api, x: Any, y: Any, k: int) -> Any:
    """Softmax of scores of which some, or all of a row, are hidden."""
    mask = _mask(a, (2, 3, 4), k)
    scores = _whole(x).masked_fill(~mask, -math.inf)
    return a.F.softmax(scores, -1).masked_fill(~mask.any(-1, keepdim=True), 0.0)


def _hidden_log_softmax(a: Api, x: Any, y: Any, k: int) -> Any:
    mask = a.tensor(np.random.default_rng(k).random((2, 3, 4)) < 0.6) | (a.tensor(np.arange(4)) == k % 4)
    return a.F.log_softmax(_whole(x).masked_fill(~mask, -math.inf), -1).masked_fill(~mask, 0.0)


def _attention(a: Api, x: Any, y: Any, k: int) -> Any:
    q, key, value = _whole(x).unsqueeze(1), _whole(y).unsqueeze(1), _whole(x * y).flip(1).unsqueeze(1)
    mask = (None, "causal", "hidden", "added")[k % 4]
    if mask == "hidden":
        return a.F.scaled_dot_product_attention(q, key, value, _mask(a, (2, 1, 3, 3), k))[:, 0]
    if mask == "added":
        added = a.t.where(_mask(a, (2, 1, 3, 3), k), 0.0, -math.inf) + 0 * a.tensor(np.zeros(1))
        return a.F.scaled_dot_product_attention(q, key, value, added)[:, 0]
    return a.F.scaled_dot_product_attention(q, key, value, is_causal=mask == "causal", scale=0.1 * k + 0.2)[:, 0]


def _learned_bias(a: Api, x: Any, y: Any, k: int) -> Any:
    """Attention with added scores that have gradients."""
    q = _whole(x).unsqueeze(1)
    return a.F.scaled_dot_product_attention(q, q, q, (_whole(y)[..., :3] * k).unsqueeze(1))[:, 0]


def _conv1d(a: Api, x: Any, y: Any, k: int) -> Any:
    group = 3 if k % 2 else 1
    return a.F.conv1d(
        _whole(x), _weight(y, 3, 3 // group, 3), _weight(y, 3), padding=1 + k % 2, dilation=1 + k % 2, groups=group
    )


def _conv2d(a: Api, x: Any, y: Any, k: int) -> Any:
    image = _whole(x).unsqueeze(1)
    result = a.F.conv2d(image, _weight(y, 2, 1, 2, 2), stride=1 + k % 2, padding=k % 3 % 2)
    return result.amax((1, 2, 3), keepdim=True)[:, 0]


def _conv_transpose(a: Api, x: Any, y: Any, k: int) -> Any:
    return a.F.conv_transpose1d(_whole(x), _weight(y, 3, 3, 3), stride=1 + k % 2, padding=1)[..., :4]


def _pool(a: Api, x: Any, y: Any, k: int) -> Any:
    w = _whole(x)
    pools = (
        lambda: a.F.max_pool1d(w, 2, 1, padding=1)[..., :4],
        lambda: a.F.avg_pool1d(w, 3, 1, padding=1, count_include_pad=k > 5),
        lambda: a.F.max_pool2d(w, 2, 1).mean((1, 2), keepdim=True),
        lambda: a.F.avg_pool2d(w, 2, 2).sum(-1, keepdim=True),
        lambda: a.F.adaptive_avg_pool1d(w, 1),
        lambda: a.F.adaptive_max_pool1d(w, 1),
    )
    return pools[k % 6]()


def _resized(a: Api, x: Any, y: Any, k: int) -> Any:
    if k % 3 == 0:
        return a.F.interpolate(_whole(x), scale_factor=2, mode="nearest")[..., k % 4 : k % 4 + 4]
    if k % 3 == 1:
        return a.F.interpolate(_whole(x), size=7, mode="linear", align_corners=k > 5)[..., 1:5]
    return a.F.interpolate(_whole(x).unsqueeze(0), size=(5, 4), mode="bilinear")[0, :, :3]


def _grid_sample(a: Api, x: Any, y: Any, k: int) -> Any:
    mode, padding = ("bilinear", "nearest", "bicubic")[k % 3], ("zeros", "border", "reflection")[k // 4]
    grid = (_whole(y) * 0.9 + 0.03).reshape(2, 3, 2, 2)
    return a.F.grid_sample(_whole(x).unsqueeze(1), grid, mode, padding, k % 2 == 0).mean((1, 3)).unsqueeze(-1)


def _grouped(a: Api, x: Any, y: Any, k: int) -> Any:
    w = _untied(a, x)
    if k % 2:
        return a.F.group_norm(w.transpose(1, 2), 2, _weight(y, 4), _weight(y, 4)).transpose(1, 2)
    return a.F.instance_norm(w) + a.F.batch_norm(w, a.tensor(np.zeros(3)), a.tensor(np.ones(3)), _weight(y, 3))


STEPS |= {
    "softmax": lambda a, x, y, k: a.F.softmax(_whole(x), k % 3),
    "log_softmax": lambda a, x, y, k: a.F.log_softmax(_whole(x), k % 3),
    "softmin": lambda a, x, y, k: a.F.softmin(_whole(x), k % 3) * y,
    "hidden softmax": _hidden_softmax,
    "hidden log_softmax": _hidden_log_softmax,
    "layer_norm": lambda a, x, y, k: a.F.layer_norm(_whole(x), (4,), _weight(y, 4), _weight(y, 4)),
    "layer_norm of two": lambda a, x, y, k: a.F.layer_norm(_untied(a, x), (3, 4), eps=1e-3),
    "rms_norm": lambda a, x, y, k: a.F.rms_norm(_whole(x), (4,), _weight(y, 4), 1e-3),
    "group_norm": _grouped,
    "attention": _attention,
    "learned bias": _learned_bias,
    "matmul": lambda a, x, y, k: _whole(x) @ _whole(y).mT @ _whole(x),
    "matrix": lambda a, x, y, k: _whole(x) @ _weight(y, 4, 4),
    "vector": lambda a, x, y, k: (_whole(x) @ _weight(y, 4)).unsqueeze(-1),
    "linear": lambda a, x, y, k: a.F.linear(_whole(x), _weight(y, 4, 4), _weight(y, 4)),
    "einsum": lambda a, x, y, k: a.t.einsum("abc,abd->acd", _whole(x), _whole(y))[:, :1],
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "conv_transpose": _conv_transpose,
    "pool": _pool,
    "interpolate": _resized,
    "grid_sample": _grid_sample,
    "embedding": lambda a, x, y, k: a.F.embedding(_ids(a, (2, 3), 6, k), _whole(x).reshape(6, 4), (None, 0, -1)[k % 3]),
    "loop": lambda a, x, y, k: a.scan(
        lambda h, v: ((h * v + y[0, 0]).tanh(), h * v), _whole(x)[0, 0] * 1.0, _whole(x).reshape(6, 4)
    )[1].reshape(2, 3, 4),
    "extreme loop": lambda a, x, y, k: a.scan(
        lambda h, v: (a.t.maximum(h, v), h - v), _whole(y)[0, 0] * 1.0, _whole(x).reshape(6, 4)
    )[0].reshape(1, 1, 4),
}


# Losses --------------------------------------------------------------------------------------------------------------


def _loss(name: str, target: Callable[[Api, Any, int], Any] = lambda a, y, k: _whole(y), **options: Any) -> Call:
    return lambda a, x, y, k: getattr(a.F, name)(_whole(x), target(a, y, k), **options).reshape(1, 1, 1)


def _signs(a: Api, y: Any, k: int) -> Any:
    return a.tensor(np.random.default_rng(k).choice([-1.0, 1.0], (2, 3, 4)))


def _cross_entropy(a: Api, x: Any, y: Any, k: int) -> Any:
    labels = np.where(np.arange(6) == k, -100, np.random.default_rng(k).integers(0, 4, 6))
    smoothing = 0.1 * (k % 3)
    return a.F.cross_entropy(_whole(x).reshape(6, 4), a.tensor(labels), label_smoothing=smoothing).reshape(1, 1, 1)


STEPS |= {
    "cross_entropy": _cross_entropy,
    "mse_loss": _loss("mse_loss"),
    "l1_loss": _loss("l1_loss"),
    "smooth_l1_loss": _loss("smooth_l1_loss", beta=0.5),
    "huber_loss": _loss("huber_loss", delta=0.5),
    "bce": _loss("binary_cross_entropy_with_logits", lambda a, y, k: _whole(y).sigmoid()),
    "soft_margin_loss": _loss("soft_margin_loss", _signs),
    "hinge_embedding_loss": _loss("hinge_embedding_loss", _signs),
    "kl_div": _loss("kl_div", lambda a, y, k: _whole(y).softmax(-1), reduction="sum"),
    "poisson_nll_loss": _loss("poisson_nll_loss", lambda a, y, k: _whole(y).abs()),
    "triplet_margin_loss": lambda a, x, y, k: a.F.triplet_margin_loss(_whole(x), _whole(y), _whole(x * y)).reshape(
        1, 1, 1
    ),
    "margin_ranking_loss": lambda a, x, y, k: a.F.margin_ranking_loss(
        _whole(x), _whole(y), _signs(a, y, k), 0.5
    ).reshape(1, 1, 1),
    "cosine_embedding_loss": lambda a, x, y, k: a.F.cosine_embedding_loss(
        _untied(a, x).reshape(6, 4), _untied(a, y).reshape(6, 4), _signs(a, y, k)[0, :2, :3].reshape(6), 0.1
    ).reshape(1, 1, 1),
    "multi_margin_loss": lambda a, x, y, k: a.F.multi_margin_loss(_whole(x).reshape(6, 4), _ids(a, (6,), 4, k)).reshape(
        1, 1, 1
    ),
}
