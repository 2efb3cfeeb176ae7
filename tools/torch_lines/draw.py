"""Draws lines of torch code: each function, method and operator with tensors and arguments as ported code spells them.

A row of `CALLS` names functions that take the same arguments. An argument is ``name:POOL`` or, if it may be left out,
``name=POOL``; a pool is a list of texts, separated by ``;``, or the name of one in `POOLS`. The lines of one name are
drawn with a generator of their own, so a new row changes no line of another.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

MOST = 56  # lines of one name

POOLS = {
    "ANY": "x;y;v;c;half;bf;x64;i64;i32;i8;u8;mask;x0;i0;b0;e;special",
    "FLOAT": "x;y;v;c;q;half;bf;x64;x0;e",
    "NUMBER": "x;v;c;half;x64;i64;i32;x0;i0",
    "WHOLE": "i64;i32;i8;u8;mask;i0;b0",
    "OTHER": "x;y;v;half;x64;i64;i32;u8;mask;x0;i0;h0;d0;2;2.5;True;-1",
    "DIM": "0;1;-1;-2;2;-3;5",
    "DIMS": "0;1;-1;-2;(0, 1);[0];(-1,);();None;(0, -1);[0, 0];3;True",
    "FLAG": "True;False",
    "DTYPE": "torch.float32;torch.float64;torch.float16;torch.int64;torch.int32;torch.bool;torch.bfloat16;torch.uint8;None",
    "SHAPE": "(3, 2);(6,);(-1,);[2, 3];(2, -1);(1, 6);(2, 3, 1);(4, 2);(-1, -1);(0, 3);();(2, 3)",
    "INDEX": "k;k2;k32;i0;kmask;0",
}


@dataclass(frozen=True)
class Argument:
    """One argument: torch's name of it, what it may be, and whether it may be left out."""

    name: str
    pool: tuple[str, ...]
    optional: bool

    @classmethod
    def read(cls, text: str) -> Argument:
        """From ``name:POOL`` or ``name=POOL``."""
        place = min(i for i in (text.find(":"), text.find("=")) if i > 0)
        pool = text[place + 1 :]
        return cls(text[:place], tuple(POOLS.get(pool, pool).split(";")), text[place] == "=")


PLACES = "abc"  # arguments without a name, such as sizes one by one
METHOD, FUNCTION, BOTH, FUNCTIONAL = ("x.",), ("torch.",), ("x.", "torch."), ("F.",)

CALLS: tuple[tuple[tuple[str, ...], str, tuple[str, ...]], ...] = (
    # Elementwise
    (
        BOTH,
        "abs exp log log2 sqrt rsqrt reciprocal sin cos tanh erf floor ceil round neg sign sigmoid square",
        ("input:ANY",),
    ),
    (BOTH, "isnan isinf isfinite logical_not relu numel", ("input:ANY",)),
    (METHOD, "float double half bfloat16 long int bool detach clone contiguous cpu dim tolist t size", ("input:ANY",)),
    (BOTH, "add sub", ("input:ANY", "other:OTHER", "alpha=2;0.5;-1")),
    (BOTH, "mul eq ne lt le gt ge logical_and logical_or not_equal less greater", ("input:ANY", "other:OTHER")),
    (BOTH, "div", ("input:ANY", "other:OTHER", "rounding_mode='floor';'trunc';None;'up'")),
    (BOTH, "pow", ("input:NUMBER", "exponent:2;0;-1;0.5;3.0;y;i64;x0;i0;v")),
    (FUNCTION, "maximum minimum", ("input:ANY", "other:x;y;v;half;i64;i32;x0;i0;mask;u8")),
    (BOTH, "clamp clip", ("input:NUMBER", "min=0;-0.5;None;x0;v;1;y", "max=0.5;1;None;y;i0;0")),
    (METHOD, "clamp_min clamp_max", ("input:NUMBER", "bound:0;0.5;-1;x0;y")),
    (BOTH, "masked_fill", ("input:ANY", "mask:mask;bigmask;b0;row_mask;i64", "value:0;-1.5;float('-inf');True;x0;i0")),
    (
        FUNCTION,
        "where",
        ("condition:mask;row_mask;b0;i64;x", "input:x;i64;half;0;1.0;x0;v", "other:y;i64;0.0;1;i32;-1;x0"),
    ),
    (METHOD, "where", ("input:ANY", "condition:mask;row_mask;b0;i64", "other:y;0.0;i64;1;-1")),
    (METHOD, "type_as", ("input:ANY", "other:x;half;i64;mask;x64")),
    (METHOD, "to", ("input:ANY", "dtype:DTYPE")),
    # Reductions
    (BOTH, "sum mean", ("input:ANY", "dim=DIMS", "keepdim=FLAG", "dtype=DTYPE")),
    (BOTH, "amax amin all any", ("input:ANY", "dim=DIMS", "keepdim=FLAG")),
    (BOTH, "argmax argmin", ("input:ANY", "dim=0;1;-1;-2;None;2;(0, 1)", "keepdim=FLAG")),
    (BOTH, "max min", ("input:ANY", "dim=0;1;-1;-2;2;y", "keepdim=FLAG")),
    (BOTH, "prod", ("input:ANY", "dim=0;1;-1;2", "keepdim=FLAG", "dtype=DTYPE")),
    (BOTH, "std var", ("input:ANY", "dim=DIMS", "correction=0;1;2", "keepdim=FLAG")),
    (BOTH, "std var", ("input:FLOAT", "dim=0;1;-1;None", "unbiased=FLAG", "keepdim=FLAG")),
    (BOTH, "norm", ("input:FLOAT", "p=2;1;'fro';float('inf')", "dim=0;1;-1;(0, 1);None", "keepdim=FLAG")),
    (BOTH, "cumsum", ("input:ANY", "dim:DIM", "dtype=DTYPE")),
    (BOTH, "sort argsort", ("input:ANY", "dim=DIM", "descending=FLAG")),
    (BOTH, "topk", ("input:NUMBER", "k:1;2;3;0;4", "dim=0;1;-1;2", "largest=FLAG", "sorted=True")),
    (BOTH, "softmax log_softmax", ("input:ANY", "dim:DIM", "dtype=DTYPE")),
    (BOTH, "nonzero", ("input:ANY",)),
    # Shapes
    (BOTH, "reshape", ("input:ANY", "shape:SHAPE")),
    (METHOD, "view", ("input:ANY", "size:SHAPE")),
    (METHOD, "reshape view", ("x:x;i64;c", "a:-1;2;3;6", "b=-1;1;3;2;0", "c=-1;2;1")),
    (BOTH, "flatten", ("input:ANY", "start_dim=0;1;-1;-2;2", "end_dim=-1;1;0;2;-2")),
    (BOTH, "squeeze", ("input:x;q;ones;x0;e;i64", "dim=0;1;-1;-2;(0, 1);[1];2;()")),
    (BOTH, "unsqueeze", ("input:ANY", "dim:0;1;-1;-2;2;3;-4;[0, 1];(0,)")),
    (BOTH, "transpose swapaxes", ("input:x;c;q;i64;v;x0", "dim0:DIM", "dim1:DIM")),
    (BOTH, "permute", ("input:x;c;i64;v", "dims:(1, 0);(0, 1);(2, 0, 1);(-1, 0, 1);[1, 0];(0,);(0, 0);(-1, -2)")),
    (METHOD, "permute", ("input:x;c", "a:1;0;-1", "b:0;1;2", "c=0;1;2")),
    (BOTH, "movedim moveaxis", ("input:x;c;q", "source:0;1;-1;(0, 1);2", "destination:0;-1;1;(1, 0);(-1, 0)")),
    (
        METHOD,
        "expand",
        ("input:v;ones;x0;x;col", "size:(2, 3);(4, 2, 3);(-1, 3);(2, -1, 3);[5, 3];(3,);(2, 4);(-1, -1, -1)"),
    ),
    (METHOD, "expand", ("input:v;ones;x0;col", "a:2;-1;4", "b:3;-1", "c=3;-1")),
    (METHOD, "repeat", ("input:x;v;i64;x0;e", "size:2;(2, 1);(1, 2, 3);[0, 1];(2,)")),
    (BOTH, "tile", ("input:x;v;i64;x0", "dims:(2,);(2, 1);(1, 2, 3);[2, 2];()")),
    (BOTH, "broadcast_to", ("input:v;ones;x0;x;col", "size:(2, 3);(4, 2, 3);(-1, 3);[2, 3];(3,)")),
    (METHOD, "expand_as view_as reshape_as", ("input:v;x;col;i64", "other:x;c;x0;i64")),
    (
        BOTH,
        "unflatten",
        ("input:c;x;flat", "dim:-1;0;1;2", "sizes:(2, 2);(-1, 2);(1, -1);[2, -1];(3, 1);(4,);(-1, -1)"),
    ),
    (BOTH, "narrow", ("input:x;c;i64", "dim:0;1;-1;2", "start:0;1;-1;2;-2", "length:1;2;0;3")),
    (METHOD, "select", ("input:x;c;i64;v", "dim:0;1;-1;2", "index:0;1;-1;-2;3")),
    (BOTH, "split", ("input:x;c;i64;v;flat", "split_size:1;2;[1, 2];[1, 1];4;0;(2, 1)", "dim=0;1;-1;2")),
    (BOTH, "chunk", ("input:x;c;i64;v;flat", "chunks:1;2;3;5;0", "dim=0;1;-1;2")),
    (BOTH, "unbind", ("input:x;c;i64;v;x0", "dim=0;1;-1;2")),
    (BOTH, "flip", ("input:x;c;i64;x0", "dims=0;(0,);[0, 1];(-1,);(0, 0);();2")),
    (BOTH, "roll", ("input:x;c;i64;e", "shifts:1;-1;(1, 2);5;0", "dims=0;1;-1;(0, 1);None")),
    (BOTH, "tril triu", ("input:ANY", "diagonal=0;1;-1;5;-5")),
    (
        FUNCTION,
        "cat concat concatenate hstack",
        (
            "tensors:(x, y);[x, x];(x, half);(x, i64);[i64, i32];(x,);(e, x);(v, v);();(c, c);(x0, x0);[mask, mask]",
            "dim=0;1;-1;2",
        ),
    ),
    (
        FUNCTION,
        "stack",
        ("tensors:(x, y);[x, x];(x, half);[i64, i64];(x,);(v, v);(x0, x0);(x, v);[mask, mask]", "dim=0;1;-1;2;3;-3"),
    ),
    (FUNCTION, "meshgrid", ("a:v;k;x0", "b=v;k", "indexing='ij';'xy'")),
    # Products
    (BOTH, "matmul", ("input:x;v;c;w;q;half;i64;x0;mask;x64", "other:w;v;c;x;y;i64;half;cT;x64")),
    (BOTH, "outer", ("input:v;k;x;x0", "other:v;k;k32;x")),
    (METHOD, "mm", ("input:x;w;c;v;i64", "mat2:w;v;x;c;i64")),
    (BOTH, "bmm", ("input:c;x;q", "mat2:cT;c;x;w")),
    (
        FUNCTION,
        "einsum",
        (
            "equation:'ij,jk->ik';'ij->ji';'ij->i';'ij,j';'ii->i';'ii';'i,i->';'...j->...';'bij,bjk->bik';'ij,ij->ij'",
            "a:x;w;c;i64;v",
            "b=w;v;cT;y",
        ),
    ),
    # Indices
    (BOTH, "gather", ("input:x;c;i64;v", "dim:0;1;-1;2", "index:g;g1;gneg;g32;k;gbig;mask")),
    (BOTH, "scatter", ("input:x;i64;half", "dim:0;1;-1;2", "index:g;g1;g32;k", "src:x;y;1.0;2;i64;half")),
    (BOTH, "scatter_add", ("input:x;i64", "dim:0;1;-1", "index:g;g1;g32", "src:x;y;i64;1.0")),
    (BOTH, "index_select", ("input:x;c;i64;v;x0", "dim:0;1;-1;2", "index:INDEX")),
    (BOTH, "index_add", ("input:x;i64", "dim:0;-1;1", "index:k2;k;k32", "source:x;y;i64")),
    (BOTH, "repeat_interleave", ("input:x;v;i64;x0", "repeats:2;0;k;1;[1, 2]", "dim=0;1;-1;None")),
    (METHOD, "masked_scatter", ("input:x;i64", "mask:mask;row_mask;b0", "source:y;v;c;i64")),
    # New tensors
    (
        FUNCTION,
        "zeros ones",
        ("size:(2, 3);[2];();3;(0,);(2, -1);2.0", "dtype=DTYPE", "device='cpu';None", "requires_grad=False"),
    ),
    (FUNCTION, "full", ("size:(2, 3);[2];();3;(0,)", "fill_value:0;1.5;True;-1;float('inf');x0;i0", "dtype=DTYPE")),
    (FUNCTION, "arange", ("start:5;2;2.5;0;-3;3.0", "end=7;2;6.5;0;-8", "step=1;2;0.5;-1;0", "dtype=DTYPE")),
    (FUNCTION, "arange", ("end:5;2.5;0;-3;True", "dtype=DTYPE")),
    (FUNCTION, "eye", ("n:0;2;3;-1", "m=2;4;0;None", "dtype=DTYPE")),
    (FUNCTION, "linspace", ("start:0;1;-1.5;2", "end:1;5;-2;0.5", "steps:1;2;5;0;-1", "dtype=DTYPE")),
    (
        FUNCTION,
        "tensor",
        (
            "data:1;1.5;True;[1, 2];[1.0, 2];[[1, 2], [3, 4]];[];[True, False];[1, True];[1.5, True];x;[x0, x0];[[1], [2, 3]];None;'a'",
            "dtype=DTYPE",
        ),
    ),
    (FUNCTION, "zeros_like ones_like", ("input:ANY", "dtype=DTYPE")),
    (FUNCTION, "full_like", ("input:ANY", "fill_value:0;1.5;True;-1;x0", "dtype=DTYPE")),
    (METHOD, "new_zeros new_ones", ("input:x;i64;mask;half", "size:(2, 3);[2];();3;(0,)", "dtype=DTYPE")),
    (METHOD, "new_full", ("input:x;i64;mask;half", "size:(2, 3);[2];();(0,)", "fill_value:0;1.5;True", "dtype=DTYPE")),
    (METHOD, "new_tensor", ("input:x;i64;mask;half", "data:1;1.5;[1, 2];[True]", "dtype=DTYPE")),
    (METHOD, "item", ("input:x0;i0;b0;x;one;e;h0",)),
    # torch.nn.functional
    (FUNCTIONAL, "relu relu6 silu sigmoid tanh logsigmoid hardsigmoid hardswish", ("input:ANY", "inplace=False")),
    (FUNCTIONAL, "gelu", ("input:ANY", "approximate='none';'tanh';'exact'")),
    (FUNCTIONAL, "elu", ("input:ANY", "alpha=1.0;0.5;2;-1", "inplace=False")),
    (FUNCTIONAL, "leaky_relu", ("input:ANY", "negative_slope=0.01;0.2;0;2", "inplace=False")),
    (FUNCTIONAL, "softplus", ("input:FLOAT", "beta=1;2;0.5", "threshold=20;1")),
    (FUNCTIONAL, "softmax log_softmax", ("input:ANY", "dim:DIM", "dtype=DTYPE")),
    (FUNCTIONAL, "glu", ("input:c;flat;x;half;e;x0", "dim=-1;0;1;2")),
    (FUNCTIONAL, "dropout", ("input:ANY", "p=0.5;0.0;0;1.5;-1", "training:False", "inplace=False")),
    (FUNCTIONAL, "normalize", ("input:FLOAT", "p=2.0;1;2;3.0", "dim=1;0;-1;(0, 1)", "eps=1e-12;0.1")),
    (FUNCTIONAL, "one_hot", ("tensor:g;k;i64;i0;k32;ei;x;mask", "num_classes=-1;5;2;0;10")),
    (FUNCTIONAL, "linear", ("input:x;v;c4;half;e;i64;x0", "weight:w;w2;w.half();v;iw", "bias=v;b2;None;x0")),
    (
        FUNCTIONAL,
        "embedding",
        ("input:k;g;k32;i0;ei;x;mask", "weight:w;w.half();x;v", "padding_idx=0;None;-1;7", "max_norm=None"),
    ),
    (
        FUNCTIONAL,
        "layer_norm",
        (
            "input:x;c;q;half;v;i64",
            "normalized_shape:(3,);[4];(3, 4);(4,);3;(2, 3);()",
            "weight=v;v4;None;w",
            "bias=v;v4;None",
            "eps=1e-5;0.1",
        ),
    ),
    (
        FUNCTIONAL,
        "rms_norm",
        (
            "input:x;c;q;half;v;x64",
            "normalized_shape:(3,);[4];(3, 4);(4,);3;(2, 3);[3]",
            "weight=v;v4;None;w",
            "eps=1e-5;None;0.1",
        ),
    ),
    (
        FUNCTIONAL,
        "pad",
        (
            "input:x;c;q;i64;mask;half;v",
            "pad:(1, 1);(0, 2);(1, 0, 2, 1);[-1, 0];(0, 0);(1,);(1, 1, 1, 1, 1, 1);()",
            "mode='constant';'reflect';'replicate';'circular'",
            "value=0;1.5;None;-1",
        ),
    ),
    (
        FUNCTIONAL,
        "interpolate",
        (
            "input:q;c;x;half",
            "size=2;(2, 2);(3, 8);5;None",
            "scale_factor=2;0.5;(1.0, 2.0);1.5",
            "mode='nearest';'bilinear';'linear';'bicubic';'area'",
            "align_corners=FLAG",
        ),
    ),
    (
        FUNCTIONAL,
        "conv1d",
        (
            "input:c;cu;half;x;c.half()",
            "weight:k1;k1g;k1.half()",
            "bias=v4;None;v",
            "stride=1;2;(2,);0",
            "padding=0;1;'same';'valid';(1,);-1",
            "dilation=1;2",
            "groups=1;3;2",
        ),
    ),
    (
        FUNCTIONAL,
        "conv2d",
        (
            "input:img;imgu;c;q;img.half()",
            "weight:k2d;k2g;k2d.half()",
            "bias=v4;None;v",
            "stride=1;2;(2, 1);0",
            "padding=0;1;'same';'valid';(1, 0);-1",
            "dilation=1;2;(1, 2)",
            "groups=1;3;2",
        ),
    ),
    (
        FUNCTIONAL,
        "conv_transpose1d",
        (
            "input:c;cu;x",
            "weight:t1;t1.half()",
            "bias=v2;None;v",
            "stride=1;2;(2,)",
            "padding=0;1",
            "output_padding=0;1",
            "groups=1;3",
            "dilation=1;2",
        ),
    ),
    (
        FUNCTIONAL,
        "unfold",
        (
            "input:img;q;imgu;x",
            "kernel_size:2;(2, 1);3;(1, 2)",
            "dilation=1;2;(1, 2)",
            "padding=0;1;(0, 1)",
            "stride=1;2;(2, 1)",
        ),
    ),
    (
        FUNCTIONAL,
        "scaled_dot_product_attention",
        (
            "query:a4;a3;a2;a5;agqa;aone;a4.half();i64",
            "key:b4;b3;b2;b5;bone;b4.half();x",
            "value:b4;b3;b2;b5;bone;b4.half()",
            "attn_mask=None;am;amf;am4;am[0];i64",
            "dropout_p=0.0",
            "is_causal=FLAG",
            "scale=None;0.5;1",
            "enable_gqa=FLAG",
        ),
    ),
)

# Expressions of the operators; A and B stand for tensors or numbers.
OPERATORS = ("A + B", "A - B", "A * B", "A / B", "A // B", "A % B", "A ** B", "A @ B", "A & B", "A | B", "A ^ B")
COMPARISONS = ("A == B", "A != B", "A < B", "A <= B", "A > B", "A >= B")
OPERANDS = (
    "x",
    "v",
    "half",
    "bf",
    "x64",
    "i64",
    "i32",
    "u8",
    "i8",
    "mask",
    "x0",
    "i0",
    "b0",
    "h0",
    "d0",
    "2",
    "2.5",
    "-1",
    "True",
)
SINGLE_OPERANDS = ("-A", "~A", "abs(A)", "+A", "A.T", "A.mT", "len(A)", "A.shape", "A.ndim", "A.dtype", "bool(A)", "float(A)", "int(A)")  # fmt: skip

INDEXED = ("x", "c", "i64", "v", "q")
ITEMS = ("0", "-1", "1:", ":2", "::2", "None", "...", ":", "k", "mask", "[0, 1]", "i0", "True", "5", "slice(1, None)", "1.0", "row_mask", "k2", "::-1", "-2:")  # fmt: skip

# Modules without parameters, or of whose results the shape alone is compared.
MODULES = (
    "nn.ReLU()(A)", "nn.GELU()(A)", "nn.GELU('tanh')(A)", "nn.SiLU()(A)", "nn.Sigmoid()(A)", "nn.Tanh()(A)", "nn.Identity()(A)",
    "nn.Softmax(-1)(A)", "nn.Softmax(dim=0)(A)", "nn.Softmax(1)(A)", "nn.ELU()(A)", "nn.LeakyReLU(0.2)(A)", "nn.Hardswish()(A)",
    "nn.Flatten()(A)", "nn.Flatten(0)(A)", "nn.Flatten(1, -1)(A)", "nn.Dropout(0.5).eval()(A)", "nn.GLU()(A)", "nn.Softplus()(A)",
    "nn.MaxPool1d(2)(A)", "nn.MaxPool2d(2)(A)", "nn.MaxPool2d(2, 1, 1)(A)", "nn.MaxPool2d(kernel_size=(2, 1))(A)", "nn.AvgPool1d(2)(A)",
    "nn.AvgPool2d(2)(A)", "nn.AvgPool2d(2, 1, 1)(A)", "nn.AvgPool2d(2, ceil_mode=True)(A)", "nn.AdaptiveAvgPool2d(1)(A)",
    "nn.AdaptiveAvgPool1d(2)(A)", "nn.AdaptiveAvgPool2d((2, 1))(A)", "nn.AdaptiveAvgPool2d((None, 1))(A)", "nn.MaxPool1d(2, ceil_mode=True)(A)",
    "nn.Conv1d(3, 6, 2)(A).shape", "nn.Conv1d(3, 6, 1, bias=False)(A).shape", "nn.Conv2d(3, 6, 2)(A).shape", "nn.Conv2d(3, 6, 3, padding=1)(A).shape",
    "nn.Conv2d(3, 3, 2, groups=3)(A).shape", "nn.ConvTranspose1d(3, 2, 2)(A).shape", "nn.ConvTranspose2d(3, 2, 2, stride=2)(A).shape",
    "nn.Linear(3, 2)(A).shape", "nn.Linear(4, 2, bias=False)(A).shape", "nn.LayerNorm(3)(A)", "nn.LayerNorm((3, 4))(A)", "nn.LayerNorm([4])(A)",
    "nn.RMSNorm(3)(A)", "nn.RMSNorm([4])(A)", "nn.GroupNorm(3, 3)(A)", "nn.GroupNorm(1, 3)(A)", "nn.BatchNorm1d(3).eval()(A)",
    "nn.BatchNorm2d(3).eval()(A)", "nn.Embedding(5, 2)(A).shape", "nn.Upsample(scale_factor=2)(A)", "nn.PixelShuffle(1)(A)", "nn.ZeroPad2d(1)(A)",
)  # fmt: skip
MODULE_INPUTS = ("x", "c", "cu", "img", "imgu", "half", "i64", "e", "k", "mask", "x0")


def lines() -> Iterator[str]:
    """All lines, each once."""
    seen: set[str] = set()
    for line in itertools.chain(_calls(), _operators(), _indexing(), _modules()):
        if line not in seen:
            seen.add(line)
            yield line


def _calls() -> Iterator[str]:
    for rooms, names, texts in CALLS:
        arguments = [Argument.read(text) for text in texts]
        for name, room in itertools.product(names.split(), rooms):
            draws = random.Random(f"{room}{name} {texts}")
            calls = dict.fromkeys(_call(draws, room, name, arguments) for _ in range(4 * MOST))
            yield from itertools.islice(calls, MOST)


def _call(draws: random.Random, room: str, name: str, arguments: list[Argument]) -> str:
    """One call: a method or a function, with arguments by place up to a drawn one and by name after it."""
    first, *rest = arguments
    receiver = draws.choice(first.pool)
    by_place = draws.choice([0, *range(len(rest) + 1)])
    shown: list[str] = []
    for place, argument in enumerate(rest):
        if argument.optional and draws.random() < 0.55:
            by_place = min(by_place, place)
        elif len(argument.name) == 1 and argument.name in PLACES:
            shown.append(draws.choice(argument.pool))
        else:
            value = draws.choice(argument.pool)
            shown.append(value if place < by_place else f"{argument.name}={value}")
    if room == "x.":
        return f"{receiver}.{name}({', '.join(shown)})"
    named = len(first.name) > 1 and all("=" in text for text in shown) and draws.random() < 0.25
    return f"{room}{name}({', '.join([f'{first.name}={receiver}' if named else receiver, *shown])})"


def _operators() -> Iterator[str]:
    for text in OPERATORS + COMPARISONS:
        draws = random.Random(text)
        pairs = [pair for pair in itertools.product(OPERANDS, OPERANDS) if not all(map(_number, pair))]
        for left, right in draws.sample(pairs, 90 if text in OPERATORS else 45):
            yield text.replace("A", left).replace("B", right)
    for text in SINGLE_OPERANDS:
        for operand in (*OPERANDS[:15], "c", "e", "ones", "special"):
            yield text.replace("A", operand)


def _number(text: str) -> bool:
    return not text.isidentifier() or text == "True"


def _indexing() -> Iterator[str]:
    draws = random.Random("indexing")
    for tensor in INDEXED:
        yield from (f"{tensor}[{item}]" for item in ITEMS)
        for count, most in ((2, 60), (3, 40)):
            for _ in range(most):
                yield f"{tensor}[{', '.join(draws.choice(ITEMS) for _ in range(count))}]"


def _modules() -> Iterator[str]:
    for module in MODULES:
        yield from (module.replace("A", tensor) for tensor in MODULE_INPUTS)
