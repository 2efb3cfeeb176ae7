"""Convolution over one axis as convolution over images of one line, for which onnxruntime's CPU kernels are faster; and
over channels in multiples of 4, where other numbers are computed wrongly.

For constant float32 weights over two axes onnxruntime keeps channels in blocks as wide as a vector register (Georganas
et al. 2018, "Anatomy of high-performance deep learning convolutions on SIMD architectures"); over one axis it copies
each window into a matrix. The page "Benchmarks" has the figures behind the limits.
"""

from __future__ import annotations

import numpy as np

from lucid.core.graph.types import float32
from lucid.core.graph.values import Constant, Node, Operation, operand
from lucid.core.targets.runtimes import CHANNELS_IN_THREES
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse, refuse_slower
from lucid.ops.convolution import conv

BLOCK = 16  # channels of a block, on processors with AVX-512
DEEP = 384  # numbers of a window: with fewer, ordering the channels takes as long as it saves
LONG = 7  # numbers of a window of one channel

_LINE = np.asarray([2])


@form(
    conv,
    takes="bias strides pads dilations group",
    name="convolution over images of one line",
    kind="images",
    strategy="reshapes",
)
def over_one_line(build: Builder, node: Node) -> Taken:
    x, weight, bias = operand(node), operand(node, 1), node.inputs[2]
    if len(x.type.shape) != 3:
        refuse("it is not a convolution over one axis")
    if x.type.dtype != float32 or not isinstance(weight, Constant):
        refuse("onnxruntime's kernels for images are faster only for constant float32 weights")
    (strides,), (before, after), (dilation,), group = (
        node.attributes[a] for a in ("strides", "pads", "dilations", "group")
    )
    out, channels, kernel = weight.array.shape
    _refuse_shallow(build, node.op, out // group, channels, kernel, group)
    y = build.op(
        "Conv",
        build.op("Unsqueeze", x, _LINE),
        build.op("Unsqueeze", weight, _LINE),
        bias,
        strides=[1, strides],
        pads=[0, before, 0, after],
        dilations=[1, dilation],
        group=group,
    )
    return Taken(build.op("Squeeze", y, _LINE), "onnxruntime has faster kernels for images")


def _refuse_shallow(build: Builder, op: Operation, out: int, channels: int, kernel: int, group: int) -> None:
    if channels == out == 1:
        if kernel < LONG:
            refuse_slower(build.target, op, f"windows of {kernel} are too short for images to be faster")
    elif kernel == 1 or kernel * channels < DEEP or min(channels, out) < BLOCK:
        refuse_slower(
            build.target,
            op,
            f"windows of {kernel} x {channels} numbers for {out} channels are too few for images to be faster",
        )
    elif group > 1 and (channels % BLOCK or out % BLOCK):
        refuse_slower(
            build.target, op, f"onnxruntime's kernels for images take groups of a multiple of {BLOCK} channels"
        )


def _in_threes(node: Node) -> bool:
    """Whether a kernel that reads multiples of 3 channels by threes, and writes multiples of 4 by fours, is wrong."""
    out, channels = operand(node, 1).type.shape[:2]
    known = isinstance(out, int) and isinstance(channels, int) and node.attributes["group"] == 1
    return known and channels > 3 and channels % 3 == 0 and channels % 4 > 0 and out % 4 == 0


@form(
    conv,
    takes="bias strides pads dilations group",
    name="further channels of zeros",
    mends=CHANNELS_IN_THREES,
    applies=_in_threes,
)
def with_further_channels(build: Builder, node: Node) -> str:
    x, weight, bias = operand(node), operand(node, 1), node.inputs[2]
    ends = np.zeros(2 * x.type.rank, np.int64)
    ends[x.type.rank + 1] = -int(weight.type.shape[1]) % 4
    padded = (build.op("Pad", each, ends) for each in (x, weight))
    return build.op("Conv", *padded, bias, **{name: node.attributes[name] for name in ("strides", "pads", "dilations")})


# Best first, of each op.
FORMS = (with_further_channels, over_one_line)
