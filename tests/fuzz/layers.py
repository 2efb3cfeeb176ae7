"""The layers that random programs are made of: modules with random options, randomly nested."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

import lucid
from lucid import Tensor, nn, ops
from lucid.core.graph.types import DType, bfloat16, bool_, float16, float32, float64
from lucid.core.sizes.dims import dim, same
from tests.fuzz.programs import Drafting, Maker, Step, Value, among
from tests.fuzz.values import PLAIN, mask_recipe

LAYERS: list[Maker] = []


def has_width(*axes: int) -> Callable[[Value], bool]:
    """Float values with this many axes and a known last size."""

    def fits(v: Value) -> bool:
        known = v.rank in axes and isinstance(v.type.shape[-1], int) and 0 < v.type.shape[-1] <= 32
        return known and v.type.dtype.kind == "float"

    return fits


def filled(module: nn.Module, dtype: DType) -> nn.Module:
    """Set parameters to multiples of 1/16 in [-1, 1], which every element type holds exactly."""
    for index, parameter in enumerate(module.parameters()):
        generator = np.random.default_rng(index)
        parameter.assign((generator.integers(-16, 17, parameter.shape) / 16).astype(np.float32))
    return module.to(dtype).eval()


def nested(draft: Drafting, module: nn.Module) -> nn.Module:
    """The module, alone or inside one or two others."""
    for _ in range(draft.number(0, 2)):
        module = draft.choose([lambda m: nn.Sequential(m, nn.Identity()), lambda m: nn.Sequential(nn.Dropout(0.3), m)])(
            module
        )
    return module


def on(draft: Drafting, x: int | None, make: Callable[[int], nn.Module], text: str) -> Step | None:
    """A step that applies a module of the value's width."""
    if x is None:
        return None
    kind = draft.values[x].type
    width = kind.shape[-1]
    assert isinstance(width, int)
    module = nested(draft, filled(make(width), kind.dtype))
    return Step(text, (x,), module, layer=module)


@among(LAYERS)
def linear(draft: Drafting) -> Step | None:
    out, bias = draft.number(1, 8), draft.flag()
    return on(draft, draft.pick(has_width(1, 2, 3, 4)), lambda e: nn.Linear(e, out, bias=bias), f"Linear {out} {bias}")


@among(LAYERS)
def activation(draft: Drafting) -> Step | None:
    make = draft.choose([nn.ReLU, nn.SiLU, nn.Tanh, nn.Softmax, lambda: nn.GELU("tanh"), lambda: nn.Dropout(0.5)])
    return on(draft, draft.pick(has_width(1, 2, 3, 4)), lambda _: make(), str(make()))


@among(LAYERS)
def norm(draft: Drafting) -> Step | None:
    affine, eps = draft.flag(), draft.choose([0.05, 0.5])
    if draft.flag():
        return on(draft, draft.pick(has_width(1, 2, 3, 4)), lambda e: nn.RMSNorm(e, eps, affine), f"RMSNorm {affine}")
    bias = draft.flag()
    make: Callable[[int], nn.Module] = lambda e: nn.LayerNorm(e, eps, affine, bias)  # noqa: E731
    return on(draft, draft.pick(has_width(1, 2, 3, 4)), make, f"LayerNorm {affine} {bias}")


@among(LAYERS)
def gated(draft: Drafting) -> Step | None:
    make = draft.choose([lambda e: nn.SwiGLU(e, 6), lambda e: nn.GatedMLP(e, 4)])
    # After a tanh: its product of two sums grows quadratically, and a few in a row overflow half precision.
    return on(draft, draft.pick(has_width(2, 3)), lambda e: nn.Sequential(nn.Tanh(), make(e)), "gated")


@among(LAYERS)
def looked_up(draft: Drafting) -> Step | None:
    i = draft.pick(lambda v: v.type.dtype in (lucid.int32, lucid.int64) and v.rank <= 3)
    if i is None:
        return None
    table = filled(nn.Embedding(5, 4), lucid.float32)
    return Step("Embedding", (i,), lambda v: table(v % 5), layer=table)


@among(LAYERS)
def channels(draft: Drafting) -> Step | None:
    """Convolutions, pools and normalisations of (N, C, L) with known C and L."""
    x = draft.pick(lambda v: has_width(3)(v) and isinstance(v.type.shape[1], int) and v.type.shape[1] > 0)
    if x is None or draft.values[x].type.dtype is lucid.float64:  # onnxruntime has no float64 Conv and AveragePool
        return None
    c = int(draft.values[x].type.shape[1])
    table: dict[str, Callable[[int], nn.Module]] = {
        "Conv1d": lambda _: nn.Conv1d(c, 3, 3, padding=1, stride=2),
        "BatchNorm1d": lambda _: nn.BatchNorm1d(c, eps=0.1),
        "GroupNorm": lambda _: nn.GroupNorm(1, c, eps=0.1),
        "AvgPool1d": lambda _: nn.AvgPool1d(1, 2),
        "MaxPool1d": lambda _: nn.MaxPool1d(1),
        "AdaptiveAvgPool1d": lambda _: nn.AdaptiveAvgPool1d(2),
    }
    name = draft.choose(list(table))
    return on(draft, x, table[name], name)


@among(LAYERS)
def rotated(draft: Drafting) -> Step | None:
    x = draft.pick(lambda v: has_width(4)(v) and v.type.shape[-1] in (2, 4, 6, 8))
    if x is None:
        return None
    half, interleaved = int(draft.values[x].type.shape[-1]) // 2, draft.flag()

    def apply(v: Tensor) -> Tensor:
        angles = lucid.arange(v.shape[2]).astype(v.dtype).unsqueeze(1) * np.linspace(1, 0.1, half).astype(v.dtype.numpy)
        return ops.rotary_embedding(v, ops.cos(angles), ops.sin(angles), interleaved=interleaved)

    return Step(f"rotary interleaved={interleaved}", (x,), apply)


def mask_type(draft: Drafting, dtype: DType) -> DType:
    """Booleans, the type of the scores, or any other floating type."""
    return draft.choose([bool_, bool_, dtype, dtype, float32, float16, bfloat16, float64])


@among(LAYERS)
def attention(draft: Drafting) -> Step | None:
    """MultiHeadAttention with every option and mask."""
    x = draft.pick(lambda v: has_width(3)(v) and v.type.shape[-1] in (4, 6, 8))
    if x is None:
        return None
    kind = draft.values[x].type
    width = int(kind.shape[-1])

    def serves(v: Value) -> bool:
        return has_width(3)(v) and v.type.dtype == kind.dtype and same(v.type.shape[0], kind.shape[0])

    key = draft.pick(serves) if draft.flag() else x
    if key is None:
        return None
    heads = draft.choose([h for h in (1, 2, 3, 4) if width % h == 0])
    kv_heads = draft.choose([h for h in range(1, heads + 1) if heads % h == 0])
    options = {
        "bias": draft.flag(),
        "add_bias_kv": draft.flag(),
        "add_zero_attn": draft.flag(),
        "kdim": int(draft.values[key].type.shape[-1]),
        "vdim": int(draft.values[key].type.shape[-1]),
        "num_kv_heads": kv_heads,
    }
    module = filled(nn.MultiHeadAttention(width, heads, **options), kind.dtype)
    n, l = kind.shape[:2]
    s = draft.values[key].type.shape[1]
    masks: dict[str, int] = {}
    causal = draft.flag()
    if not causal and draft.flag():
        shape = draft.choose([(l, s), (1, s), (n * heads, l, s)])
        masks["attn_mask"] = draft.input(mask_type(draft, kind.dtype), shape, mask_recipe)
    if draft.flag():
        masks["key_padding_mask"] = draft.input(mask_type(draft, kind.dtype), (n, s), mask_recipe)
    weights, average = draft.flag(), draft.flag()

    def apply(query: Tensor, keys: Tensor, *tensors: Tensor) -> object:
        named = dict(zip(masks, tensors, strict=True))
        return module(
            query,
            keys,
            need_weights=weights,
            average_attn_weights=average,
            is_causal=causal,
            **named,  # type: ignore[arg-type]
        )

    text = f"MultiHeadAttention {heads} {options} {list(masks)} causal={causal} weights={weights} average={average}"
    return Step(text, (x, key, *masks.values()), apply, layer=module)


@among(LAYERS)
def scaled_dot_product(draft: Drafting) -> Step | None:
    """The op itself, packed or split: groups, window, softcap, scale, masks, a cache."""
    x = draft.pick(lambda v: has_width(3)(v) and v.type.shape[-1] in (4, 8))
    if x is None:
        return None
    kind = draft.values[x].type
    n, l = kind.shape[:2]
    heads = draft.choose([2, 4]) if kind.shape[2] == 8 else 2
    width = int(kind.shape[2]) // heads
    widths = [width * h for h in range(1, heads + 1) if heads % h == 0]

    def serves(v: Value) -> bool:
        wide = has_width(3)(v) and v.type.shape[2] in widths
        return wide and v.type.dtype == kind.dtype and same(v.type.shape[0], n)

    # Keys from another value, usually of another length.
    other = draft.flag()
    k = draft.input(kind.dtype, (n, draft.choose([dim("S"), 3]), draft.choose(widths))) if other else None
    k = draft.pick(serves) if k is None else k
    if k is None:
        return None
    s, kv_heads = draft.values[k].type.shape[1], int(draft.values[k].type.shape[2]) // width
    options = {
        "window": draft.choose([*[None] * 5, 1, 2, 5]),
        "softcap": draft.choose([0.0, 0.0, 0.0, 2.0]),
        "scale": draft.choose([*[None, 0.5, 0.1] * 3, 1e-20, 50.0]),
        "is_causal": draft.flag(),
        "need_weights": not draft.number(0, 3),
    }
    names = [name for name in ("value", "mask", "key_mask", "past") if draft.flag()]
    past = draft.choose([2, dim("P")]) if "past" in names else 0
    shapes = {
        "value": (n, s, kv_heads * width),
        "mask": (l, past + s),
        "key_mask": (n, past + s),
        "past": (n, kv_heads, past, width),
    }
    operands = [
        draft.input(kind.dtype, shapes[name])
        if name in ("value", "past")
        else draft.input(mask_type(draft, kind.dtype), shapes[name], mask_recipe)
        for name in names
    ]
    packed = draft.flag()

    def apply(query: Tensor, key: Tensor, *more: Tensor) -> object:
        named = dict(zip(names, more, strict=True))
        cached, value = named.pop("past", None), named.pop("value", key)
        if not packed:
            query, key, value = _split(query, heads), _split(key, kv_heads), _split(value, kv_heads)
        grouped = {"heads": heads, "kv_heads": kv_heads} if packed else {}
        return ops.attention(
            query, key, value, named.get("mask"), named.get("key_mask"), cached, cached, **options, **grouped
        )  # fmt: skip

    text = f"attention {'packed ' if packed else ''}{heads} heads, {kv_heads} key heads {options} {names}"
    return Step(text, (x, k, *operands), apply)


def _split(x: Tensor, heads: int) -> Tensor:
    n, l, e = x.shape
    return x.reshape(n, l, heads, e // heads).permute(0, 2, 1, 3)


@among(LAYERS)
def transformer(draft: Drafting) -> Step | None:
    first, act = draft.flag(), draft.choose(["relu", "gelu"])
    x = draft.pick(lambda v: has_width(3)(v) and v.type.shape[-1] in (4, 8) and v.type.dtype is not lucid.float64)

    def make(e: int) -> nn.Module:
        return nn.TransformerEncoderLayer(e, 2, 6, activation=act, norm_first=first, layer_norm_eps=0.1)

    return on(draft, x, make, f"TransformerEncoderLayer {act} {first}")


ATTENTION = [attention, scaled_dot_product]


def masked_attention(draft: Drafting) -> Step | None:
    """Self-attention of float32 with boolean masks or none, causality and windows, which target "cpu" computes in
    blocks of queries."""
    n, l = dim("N"), draft.choose([dim("L"), dim("L"), 5, 72])
    x = draft.input(float32, (n, l, 8), lambda *_: PLAIN)  # if scores overflow, the result of a hidden row is open
    causal, both, steep = draft.flag(), draft.number(0, 3), draft.choose([1.0, 1.0, 5.0])
    shape = draft.choose([(l, l), (n, 1, l, l), (1, l), (l, 1), (n, 1, l, 1)]) if both in (0, 2) else None
    mask = None if shape is None else draft.input(bool_, shape, mask_recipe)
    key_mask = draft.input(bool_, (n, l), mask_recipe) if both in (1, 2) else None
    window, after = (
        (draft.choose([1, 2, 5, 100]), draft.choose([0, 1, 3])) if mask is None and draft.flag() else (None, None)
    )
    drawn_masks = [i for i in (mask, key_mask) if i is not None]

    def apply(query: Tensor, *masks: Tensor) -> object:
        rest = iter(masks)
        named = [None if i is None else next(rest) for i in (mask, key_mask)]
        value = query + 5.0  # not 0: hidden keys may change a result by a fraction of the values (docs/attention.md)
        return ops.attention(
            query * steep,
            query * steep,  # so hidden scores may exceed visible ones by more than what hides them where all are small
            value,
            *named,
            heads=2,
            is_causal=causal,
            window=window,
            window_after=None if causal else after,
        )

    what = f"attention in blocks x {steep} causal={causal} window={window} after={after} of {(mask, key_mask)}"
    return Step(what, (x, *drawn_masks), apply)
