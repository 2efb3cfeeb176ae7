"""Lines of torch's as models write them, run with torch, which makes the goldens, and with Lucid.

`t` is torch or lucid, `F` its nn.functional, `nn` its modules. Nothing here imports either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from tests.ported_layers import LAYERS
from tests.ported_losses import LOSSES

# The sizes of inputs as Lucid's tests trace them: names are known only at run time.
SPECS: dict[str, tuple[Any, ...]] = {
    "x": ("N", 3, 4),
    "y": ("N", 3, 4),
    "v": ("V",),
    "w": (5,),
    "sound": ("N", 2, "T"),
    "image": ("N", 2, "H", "W"),
    "ids": ("N", 3),
    "whole": ("N", 3, 4),
    "mask": ("N", 3, 4),
    "kernel": (3, 2, 2, 3),
    "back": (2, 3, 3, 2),
    "line": (2, 3, 4),
    "q": ("N", "L", 2, 4),
    "k": ("N", "S", 2, 4),
}
SIZES = {"N": 2, "V": 4, "T": 7, "H": 5, "W": 6, "L": 3, "S": 5}
WHOLE, FLAGS = {"ids": (0, 3), "whole": (-5, 6)}, {"mask"}


def inputs() -> dict[str, np.ndarray[Any, Any]]:
    """Small reproducible inputs."""
    generator = np.random.default_rng(13)
    arrays: dict[str, np.ndarray[Any, Any]] = {}
    for name, spec in SPECS.items():
        shape = tuple(SIZES.get(size, size) for size in spec)
        if name in WHOLE:
            arrays[name] = generator.integers(*WHOLE[name], shape)
        elif name in FLAGS:
            arrays[name] = generator.random(shape) < 0.4
        else:
            arrays[name] = generator.standard_normal(shape).astype(np.float32)
    return arrays


Line = Callable[..., Any]  # (t, F, nn, *tensors) to a tensor or several

LINES: dict[str, tuple[str, Line]] = {
    # element types and sizes
    "to": ("x", lambda t, F, nn, x: (x.to(t.float64), x.to(dtype=t.int64), x.to(x.device), x.to("cpu", t.float16))),
    "to like": ("x whole", lambda t, F, nn, x, i: (i.to(x), i.type_as(x), x.to(device=x.device, dtype=i.dtype))),
    "type": (
        "x whole",
        lambda t, F, nn, x, i: (x.type(t.float64), x.type(t.LongTensor), i.type("torch.HalfTensor"), i.type(x.type())),
    ),
    "casts": ("x", lambda t, F, nn, x: (x.float(), x.double(), x.half(), x.long(), x.int(), x.bool())),
    "sizes": (
        "x",
        lambda t, F, nn, x: (x.view(x.size(0), -1), x.reshape(x.size()[0] * x.size(1), 4), x.new_zeros(x.shape)),
    ),
    "new": ("x", lambda t, F, nn, x: (x.new_zeros(2, 3), x.new_ones((2,), dtype=t.long), x.new_full((2, 2), 1.5))),
    "like": (
        "x whole",
        lambda t, F, nn, x, i: (t.zeros_like(x), t.ones_like(i), t.full_like(x, 2.5), t.zeros_like(x, dtype=t.bool)),
    ),
    "made on the device": (
        "x",
        lambda t, F, nn, x: (
            x + t.arange(4, device=x.device, dtype=t.float32),
            t.ones(2, 3, device=x.device, dtype=x.dtype),
            t.arange(0, 8, 2, dtype=t.int64).float() / 8,
            t.arange(0.5, 2.0, 0.25),
        ),
    ),
    "linspace": (
        "v",
        lambda t, F, nn, v: (t.linspace(-1, 1, 7), t.linspace(0, 1, steps=v.shape[0]), t.linspace(3, 3, 1)),
    ),
    "finfo": ("x mask", lambda t, F, nn, x, m: x.masked_fill(m, t.finfo(x.dtype).min)),
    "nothing to do": ("x", lambda t, F, nn, x: (x.contiguous(), x.clone(), x.detach(), x.cpu())),
    # elementwise
    "functions": (
        "x",
        lambda t, F, nn, x: (
            x.cos(),
            x.sin(),
            x.pow(2),
            t.pow(2.0, x),
            t.rsqrt(x * x + 1),
            x.abs().sqrt(),
            t.square(x),
        ),
    ),
    "logarithms": ("x", lambda t, F, nn, x: (x.abs().log(), t.log2(x.abs()), x.exp(), t.sigmoid(x), x.relu())),
    "clamp": (
        "x whole",
        lambda t, F, nn, x, i: (
            x.clamp(min=0),
            x.clamp(-0.5, 0.5),
            t.clamp(i, max=2),
            x.clamp(max=x.abs()),
            i.clamp(1, 0),
        ),
    ),
    "division": (
        "whole",
        lambda t, F, nn, i: (i / 2, i // 2, i % 3, t.div(i, 2, rounding_mode="floor"), i.div(2, rounding_mode="trunc")),
    ),
    "division of floats": (
        "x",
        lambda t, F, nn, x: (x.div(0.3, rounding_mode="floor"), t.div(x, 0.3, rounding_mode="trunc"), x.reciprocal()),
    ),
    "comparisons": ("x y", lambda t, F, nn, x, y: (x.eq(y), x.ne(y), x.lt(y), t.ge(x, y), x.isnan(), t.isfinite(x))),
    "added": ("x y", lambda t, F, nn, x, y: (x.add(y), t.sub(x, y, alpha=2), x.mul(y), t.add(x, 1))),
    # reductions
    "reductions": (
        "x",
        lambda t, F, nn, x: (
            x.sum(dim=1),
            x.mean(dim=-1, keepdim=True),
            t.sum(x, dim=(0, 2)),
            t.mean(x, -1),
            x.amax(dim=1),
            t.amin(x, dim=(1, 2), keepdim=True),
            t.prod(x, dim=2),
            x.argmax(dim=-1),
            x.argmin(dim=1, keepdim=True),
        ),
    ),
    "sums of whole numbers": (
        "whole mask",
        lambda t, F, nn, i, m: (i.sum(), m.sum(dim=-1), m.sum(-1, dtype=t.int32), m.any(dim=1), t.all(m, dim=-1)),
    ),
    "variance": (
        "x",
        lambda t, F, nn, x: (
            x.var(-1, keepdim=True),
            x.var(dim=(1, 2), unbiased=False),
            t.std(x, dim=1),
            x.std(),
            t.var(x, dim=0, correction=0),
        ),
    ),
    "norm": (
        "x",
        lambda t, F, nn, x: (x.norm(p=2, dim=-1, keepdim=True), x.norm(), t.norm(x, p=1, dim=1), x.norm(3.0, dim=2)),
    ),
    "normalize": (
        "x",
        lambda t, F, nn, x: (F.normalize(x), F.normalize(x, p=2, dim=-1), F.normalize(0 * x, dim=-1, p=1)),
    ),
    "cumsum": ("x mask", lambda t, F, nn, x, m: (t.cumsum(x, dim=-1), m.cumsum(1), m.long().cumsum(dim=0))),
    "softmax": (
        "x",
        lambda t, F, nn, x: (
            F.softmax(x, dim=-1, dtype=t.float32),
            t.softmax(x, dim=1),
            F.log_softmax(x, dim=-1),
            x.softmax(-1),
        ),
    ),
    # order and places
    "topk": (
        "x",
        lambda t, F, nn, x: (*x.topk(2, dim=-1), *t.topk(x, k=3, dim=1, largest=False), t.topk(x, 1).values),
    ),
    "sort": ("x", lambda t, F, nn, x: (*x.sort(dim=1), t.sort(x, descending=True).indices, x.argsort(dim=-1))),
    "gather": (
        "x ids",
        lambda t, F, nn, x, i: (
            x.gather(2, i.unsqueeze(-1)),
            t.gather(x, dim=1, index=i[:, :, None].expand(-1, -1, 4)),
            x.gather(-1, i[:, :2].unsqueeze(-1)),
        ),
    ),
    "index_select": ("x ids", lambda t, F, nn, x, i: (x.index_select(1, i[0]), t.index_select(x, dim=-1, index=i[1]))),
    "scatter": (
        "x ids y",
        lambda t, F, nn, x, i, y: (
            x.scatter(2, i.unsqueeze(-1), 9.0),
            t.scatter_add(x, 1, i[:, :, None].expand(-1, -1, 4), y),
            x.scatter_add(2, i.unsqueeze(-1), y),
            t.zeros_like(x).scatter(dim=2, index=i.unsqueeze(-1), src=y),
        ),
    ),
    "index_add": ("x ids y", lambda t, F, nn, x, i, y: (x.index_add(1, i[0], y), t.index_add(x, 2, i[1], y[:, :, :3]))),
    "masked_scatter": (
        "x mask y",
        lambda t, F, nn, x, m, y: (
            x.masked_scatter(m, y),
            x.masked_scatter(m[:, :, :1], y),
            t.zeros(3) + 0 * x[0, 0, 0],
        ),
    ),
    "unbind": ("x", lambda t, F, nn, x: (*x.unbind(1), *t.unbind(x, dim=-1))),
    "flip": ("x", lambda t, F, nn, x: (x.flip(1), t.flip(x, dims=(0, 2)), x.flip([-1]))),
    "roll": (
        "x",
        lambda t, F, nn, x: (
            x.roll(1, 0),
            t.roll(x, shifts=(-1, 2), dims=(1, 2)),
            x.roll(shifts=-5, dims=2),
            t.roll(x, 2),
        ),
    ),
    "repeats": (
        "x",
        lambda t, F, nn, x: (
            x.repeat_interleave(2, dim=1),
            t.repeat_interleave(x, 3, dim=0),
            x.repeat_interleave(2),
            x.repeat(2, 1, 1, 3),
            x.repeat_interleave(t.tensor([2, 0, 1]), dim=1),
        ),
    ),
    "shapes": (
        "x",
        lambda t, F, nn, x: (
            x.unflatten(2, (2, -1)),
            x.narrow(1, 1, 2),
            x.select(2, -1),
            x.movedim(0, 2),
            t.swapaxes(x, 0, 1),
            x[0].t(),
            x.expand_as(x[None]),
            t.flatten(x, start_dim=1),
            t.broadcast_to(x[:, :1], x.shape),
            x.tile(2),
        ),
    ),
    "joined": (
        "x y",
        lambda t, F, nn, x, y: (
            t.cat([x, y], dim=-1),
            t.cat((x, y)),
            t.stack([x, y], dim=1),
            t.hstack([x, y]),
            *x.split(2, dim=1),
            *t.chunk(x, 2, dim=-1),
            t.concat([x, y], dim=1),
        ),
    ),
    "meshgrid": ("v w", lambda t, F, nn, v, w: (*t.meshgrid(v, w, indexing="ij"), *t.meshgrid(v, w, indexing="xy"))),
    "one_hot": ("ids", lambda t, F, nn, i: F.one_hot(i, num_classes=4)),
    # what torch composes
    "composed elements": (
        "x y whole",
        lambda t, F, nn, x, y, i: (
            t.trunc(x * 3),
            t.trunc(i),
            t.frac(x * 3),
            t.exp2(x),
            t.log10(x.abs() + 0.1),
            t.logaddexp(x, y * 50),
            t.logaddexp(x - np.inf, x - np.inf),
            t.lerp(x, y, 0.3),
            t.lerp(x, end=y, weight=x),
            t.addcmul(x, y, y, value=0.5),
            t.addcmul(i, i, i, value=2.5),
            t.addcmul(x.half() * 0, i, i, value=0.5),
            t.addcdiv(x, y, y.abs() + 1),
        ),
    ),
    "composed logarithms and waves": (
        "x y whole",
        lambda t, F, nn, x, y, i: (
            t.xlogy(x.relu(), y.abs()),
            t.xlogy(i.relu(), i.abs()),
            t.xlogy(x * 0, y * 0 / 0),
            t.logit(x.sigmoid()),
            t.special.logit(x, eps=0.1),
            t.sinc(i / 2),
            t.special.expit(x),
            t.absolute(t.negative(x)),
            t.divide(t.subtract(x, y), 2),
        ),
    ),
    "shifts of bits": (
        "whole ids",
        lambda t, F, nn, i, j: (
            t.bitwise_left_shift(i, 3),
            i.bitwise_right_shift(1),
            i >> j.unsqueeze(-1),
            1 << j,
            (i.int() << 31) >> 31,
            i.to(t.uint8) >> 4 & 15,
            i.to(t.int8) << t.arange(4, dtype=t.int8) * 3,
            i >> t.tensor([0, 1, 63, 64]),
            i << t.tensor([0, 1, 63, 64]),
        ),
    ),
    "running extremes": (
        "x whole",
        lambda t, F, nn, x, i: (
            *t.cummax(x, dim=1),
            *t.cummin(x, -1),
            *i.cummax(dim=0),
            *t.cummin(i, 2),
            *t.cummax(t.where(x > 1, np.nan, x), 2),
        ),
    ),
    "composed comparisons": (
        "x y ids",
        lambda t, F, nn, x, y, i: (
            t.nan_to_num(t.stack([x / 0, x * 0 / 0], 0)),
            t.nan_to_num(x / 0, posinf=3.0, neginf=-2.0),
            t.isclose(x, x + 1e-6),
            t.isclose(x / 0, x.abs() / 0),
            t.isclose(x * 0 / 0, y * 0 / 0, equal_nan=True),
            t.isin(i, t.tensor([0, 2])),
            t.isin(i, t.tensor([0, 2]), invert=True),
            t.count_nonzero(i),
            t.count_nonzero(i, dim=1),
        ),
    ),
    "composed products": (
        "x y v w line",
        lambda t, F, nn, x, y, v, w, line: (
            t.dot(v, v + 1),
            t.mv(line[0], line[1, 0]),
            t.inner(x, y[0]),
            t.tensordot(x, y, dims=([1, 2], [1, 2])),
            t.tensordot(x, line[0].mT, 1),
            t.kron(v, w),
            t.kron(line, line[0, :2, :2]),
            t.cross(x, y, dim=1),
            t.cross(x[:, :, :3], y[:, :, 1:], dim=-1),
            t.cdist(x, y),
            t.cdist(x, y[:, :2], p=1.0),
        ),
    ),
    "composed parts": (
        "x v w",
        lambda t, F, nn, x, v, w: (
            t.block_diag(x[0], v, x[1, :, :2]),
            *t.atleast_1d(v, v.sum()),
            t.atleast_2d(w),
            *t.atleast_2d([v, x]),
            t.mm(x[0], x[1].t()),
            t.cosine_similarity(x, x + 1, dim=-1),
        ),
    ),
    "windows": (
        "w",
        lambda t, F, nn, w: (
            w * t.hann_window(5),
            w * t.hann_window(5, periodic=False),
            w * t.hamming_window(5),
            w * t.hamming_window(5, False, 0.6, 0.3),
            w * t.kaiser_window(5, beta=8.0, periodic=False),
            w[:1] * t.hann_window(1),
        ),
    ),
    "composed places": (
        "x y v ids",
        lambda t, F, nn, x, y, v, i: (
            t.diagonal(x, dim1=1, dim2=2),
            t.diagonal(x, 1, -2, -1),
            t.diagonal(x, -2, 1, 2),
            t.diag(x[0]),
            t.diag(v),
            t.diag(v, -2),
            t.diag_embed(x, offset=1),
            t.diag_embed(x[0], 0, 0, 2),
            t.take_along_dim(x, i[:, :, None], dim=2),
            t.ravel(x),
            t.fliplr(x),
            t.flipud(x),
            t.vstack([x[0], y[1]]),
            t.vstack([v, v]),
            t.column_stack([v, v]),
            t.dstack([x[0], y[0]]),
        ),
    ),
    # products
    "products": (
        "x y v w",
        lambda t, F, nn, x, y, v, w: (
            x.matmul(y.transpose(1, 2)),
            t.bmm(x, y.mT),
            t.outer(v, w),
            t.baddbmm(x[:, :, :3], x, y.mT, beta=0.5, alpha=2),
        ),
    ),
    "einsum": (
        "q k v w",
        lambda t, F, nn, q, k, v, w: (
            t.einsum("bqhd,bkhd->bhqk", q, k),
            t.einsum("b q h d, b k h d -> b q k", q, k),
            t.einsum("i,j->ij", v, w),
            t.einsum("...hd,...hd->...h", q, q),
            t.einsum("bqhd->bhd", q),
            t.einsum("bqhd,bkhd,bkhe->bqhe", q, k, k),
            t.einsum("i,i", v, v),
        ),
    ),
    # images
    **{
        f"interpolate {mode}{', corners' if corners else ''}": (
            "image",
            lambda t, F, nn, x, mode=mode, corners=corners: tuple(
                F.interpolate(x, mode=mode, **({"align_corners": corners} if mode[:2] == "bi" else {}), **options)
                for options in ({"size": (8, 4)}, {"scale_factor": 2}, {"scale_factor": (0.5, 1.5)}, {"size": 7})
            ),
        )
        for mode, corners in (
            ("nearest", False),
            ("nearest-exact", False),
            ("bilinear", False),
            ("bilinear", True),
            ("bicubic", False),
            ("bicubic", True),
        )
    },
    "interpolate a sound": (
        "sound",
        lambda t, F, nn, x: (F.interpolate(x, 11), F.interpolate(x, size=5, mode="linear")),
    ),
    "pad": (
        "image",
        lambda t, F, nn, x: (
            F.pad(x, (1, 2)),
            F.pad(x, (0, 0, 2, 1), value=-1.0),
            F.pad(x, (-1, 1, 0, -2)),
            F.pad(x, (2, 1, 1, 3), mode="reflect"),
            F.pad(x, (2, 1, 1, 3), mode="replicate"),
            F.pad(x, (2, 1, 1, 3), mode="circular"),
        ),
    ),
    "convolutions": (
        "image kernel sound line",
        lambda t, F, nn, x, k, s, w: (
            F.conv2d(x, k, stride=2, padding=(1, 1)),
            F.conv2d(x, k, padding="same"),
            F.conv1d(s, w.transpose(0, 1), dilation=2),
        ),
    ),
    "transposed convolutions": (
        "image back sound line",
        lambda t, F, nn, x, k, s, w: (
            F.conv_transpose2d(x, k),
            F.conv_transpose2d(x, k, stride=(3, 2), padding=1, output_padding=(2, 0), dilation=(1, 2)),
            F.conv_transpose1d(s, w, t.ones(3), stride=2, padding=1),
            F.conv_transpose1d(s, w, stride=2, groups=2),
        ),
    ),
    # activations
    "activations": (
        "x",
        lambda t, F, nn, x: (
            F.relu(x, inplace=False),
            F.leaky_relu(x, 0.2),
            F.elu(x),
            F.relu6(4 * x),
            F.hardswish(x),
            F.softplus(x, beta=2.0),
            F.softplus(30 * x),
            F.logsigmoid(x),
            F.glu(x, dim=-1),
            F.sigmoid(x),
            F.tanh(x),
        ),
    ),
    "modules": (
        "x image",
        lambda t, F, nn, x, image: (
            nn.Softmax(dim=1)(x),
            nn.Flatten()(image),
            nn.Sigmoid()(x),
            nn.LeakyReLU(0.1)(x),
            nn.Upsample(scale_factor=2, mode="nearest")(image),
            nn.GLU(dim=2)(x),
            nn.BatchNorm2d(2).eval()(image),
            nn.ReLU(inplace=True)(x),
        ),
    ),
    "activations as modules": (
        "x image",
        lambda t, F, nn, x, image: (
            *(module(4 * x) for module in (nn.ReLU6(), nn.Hardswish(), nn.Hardsigmoid(), nn.Mish(), nn.ELU(0.5))),
            nn.Softplus(2.0)(x),
            nn.PReLU(2)(image),
            nn.LogSoftmax(dim=1)(x),
            F.mish(x),
            F.prelu(image, t.tensor([0.1, 0.2])),
        ),
    ),
    "images moved and padded": (
        "image",
        lambda t, F, nn, x: (
            nn.PixelShuffle(2)(t.cat([x, x], 1)),
            nn.ZeroPad2d((1, 0, 2, 1))(x),
            nn.ConstantPad2d(1, 2.5)(x),
            nn.ReflectionPad2d(2)(x),
            nn.ReplicationPad2d((0, 1, 2, 0))(x),
            nn.CircularPad1d((2, 1))(x[0]),
            nn.CircularPad2d((2, 1, 0, 1))(x),
            *(getattr(nn, f"{name}Pad3d")((2, 1, 0, 1, 1, 0))(x[None]) for name in ("Zero", "Reflection", "Circular")),
            nn.ReplicationPad3d(1)(x[None]),
            nn.ConstantPad3d(1, 2.5)(x[None]),
        ),
    ),
    "pools of partial windows": (
        "image sound",
        lambda t, F, nn, x, sound: (
            F.max_pool2d(x, 2, stride=1, ceil_mode=True),
            F.max_pool2d(x, (3, 4), stride=2, padding=1, ceil_mode=True),
            F.avg_pool2d(x, 3, stride=2, padding=1, ceil_mode=True),
            F.avg_pool2d(x, 2, stride=2, divisor_override=3),
            nn.MaxPool1d(3, 2, ceil_mode=True)(sound),
            nn.AvgPool1d(3, 2, 1, True, False)(sound),
            F.adaptive_avg_pool2d(x, (1, 1)),
        ),
    ),
    "sums of exponentials and near zero": (
        "x",
        lambda t, F, nn, x: (
            t.logsumexp(x * 100, dim=-1),
            (x - t.inf).logsumexp((0, 2), keepdim=True),
            t.expm1(x * 1e-4),
            t.log1p(x.abs() * 1e-4),
        ),
    ),
    "products and a sum": (
        "x kernel",
        lambda t, F, nn, x, k: (
            t.addmm(x[0, 0], x[1], k.reshape(9, 4).t()[:, :4], beta=0.5, alpha=2),
            x.baddbmm(x @ x.mT, x),
            x[0].addmm(x[0] @ x[0].t(), x[1]),
        ),
    ),
    "differences and places": (
        "x ids mask v",
        lambda t, F, nn, x, i, m, v: (
            t.diff(x),
            t.diff(i, prepend=i[:, :1], dim=1),
            t.diff(m, n=2, dim=-1),
            t.bucketize(v, t.tensor([-1.0, 0.0, 0.5])),
            t.bucketize(i, t.tensor([0, 2]), right=True, out_int32=True),
        ),
    ),
    "norms": (
        "image",
        lambda t, F, nn, x: (
            t.linalg.vector_norm(x, ord=2, dim=(1, 2), keepdim=True),
            t.linalg.norm(x, dim=-1),
            t.linalg.norm(x, ord=1, dim=1),
            t.linalg.norm(x, dim=(2, 3)),
        ),
    ),
    "tensors of an element type": (
        "x",
        lambda t, F, nn, x: (
            t.LongTensor([[1, 2], [3, 4]]),
            t.FloatTensor([1, 2]) + x[0, 0, 0],
            t.scalar_tensor(2, dtype=x.dtype),
            t.as_tensor([1.5], dtype=t.float64),
            t.zeros(2, dtype=t.get_default_dtype()),
        ),
    ),
    "where a model is run": (
        "x",
        lambda t, F, nn, x: (
            x if t.is_tensor(x) and not t.cuda.is_available() and not t.jit.is_scripting() else 2 * x,
            x if not (t.distributed.is_initialized() or t.is_autocast_enabled() or x.is_cuda) else 2 * x,
            x.to(t.device("cpu")),
            x.detach().contiguous(memory_format=t.contiguous_format),
        ),
    ),
    "attention causal by name": (
        "q k",
        lambda t, F, nn, q, k: tuple(
            F.scaled_dot_product_attention(
                q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2), attn_mask=name(q.shape[1], k.shape[1])
            )
            for name in (t.nn.attention.bias.causal_lower_right, t.nn.attention.bias.causal_upper_left)
        ),
    ),
    "places set": (
        "x y mask ids whole",
        lambda t, F, nn, x, y, m, i, whole: (
            changed(x, (slice(None), 1), 2),
            changed(x, (..., slice(None, 2)), y[..., 2:]),
            changed(x, (slice(None), slice(0, None, 2), -1), y[:, 1:, 0]),
            changed(x, m, 0.5),
            changed(x, m, y.reshape(-1)[: m.sum()] if not hasattr(x, "at") else y.reshape(-1)),
            changed(x, m[:, :, 0], y[0, 0]),
            changed(x, (slice(None), i[0]), 7),
            changed(x, 0, x[1] + 1),
            changed(whole, (slice(None), 1, 2), 9.7),
            changed(x > 0, (..., 0), True),
            changed(x, (None, slice(None), 0), y[:, 0]),
        ),
    ),
    "weights in two parts": (
        "sound",
        lambda t, F, nn, x: tuple(module(x) for module in weights_in_two_parts(t)),
    ),
    "a function with its own gradient": ("x", lambda t, F, nn, x: doubled(t).apply(x, 3)),
    **LAYERS,
    **LOSSES,
}


def changed(x: Any, index: Any, value: Any) -> Any:
    """x after x[index] = value: torch changes a copy, Lucid makes one."""
    if hasattr(x, "at"):
        return x.at[index].set(value)
    x = x.clone()
    x[index] = value
    return x


@cache  # modules draw their first weights, so they are made before a trace
def weights_in_two_parts(t: Any) -> list[Any]:
    """Convolutions by both of torch's functions, over two axes, with other weights under torch's state keys."""
    modules = []
    for norm, names in (
        (t.nn.utils.weight_norm, ["weight_g", "weight_v"]),
        (t.nn.utils.parametrizations.weight_norm, [f"parametrizations.weight.original{part}" for part in (0, 1)]),
    ):
        for dim in (0, 2):
            module = norm(t.nn.Conv1d(2, 3, 2), dim=dim)
            state = module.state_dict()
            assert sorted(state) == sorted(["bias", *names])
            numbers = {name: 0.3 + np.arange(state[name].numel()).reshape(state[name].shape) % 7 for name in state}
            module.load_state_dict({name: t.tensor(array) for name, array in numbers.items()})
            modules.append(module)
    return modules


def doubled(t: Any) -> Any:
    """x * n, with a gradient of its own."""

    class Doubled(t.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(ctx: Any, x: Any, n: int) -> Any:
            ctx.save_for_backward(x)
            return x * n

    return Doubled
