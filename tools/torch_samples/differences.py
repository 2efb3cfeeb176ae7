"""Deliberate differences from torch, and what Lucid does not support, each with the reason.

A problem that one of these rows explains is counted separately, under the reason; every other problem is a difference.
A row that explains nothing is reported, so that the list stays true.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.torch_calls import Call
from tools.torch_samples.draw import Drawn
from tools.torch_samples.run import Outcome


@dataclass(frozen=True)
class Difference:
    """A row: the problems that it explains, and the reason for them."""

    reason: str
    problem: str  # a pattern that the text of the problem starts with
    lucid: str = ".*"  # a pattern that the whole name of Lucid's function or module matches
    way: str = ".*"  # eager, graph, a target, or error
    arguments: str = ".*"  # a pattern that the arguments as text match

    def explains(self, call: Call, outcome: Outcome) -> bool:
        fits = re.match(self.problem, outcome.problem, re.DOTALL) is not None
        texts = ((self.lucid, call.name), (self.way, outcome.way), (self.arguments, str(call.arguments)))
        return fits and all(re.fullmatch(pattern, text) for pattern, text in texts)


DIFFERENCES = (
    Difference(
        "functions of real numbers take floating-point tensors: integers must be converted explicitly",
        r"TypeError: \S+: got u?int\d+\[.*expected a (tensor of float|floating-point tensor)",
    ),
    Difference(
        "booleans are not numbers: arithmetic and comparison need .astype(...)",
        r"TypeError: \S+: got bool\[.*expected a (tensor of (int|float|int or float)|floating-point tensor)",
    ),
    Difference(
        "&, |, ^ and ~ are for booleans: Lucid has no operations on bits, and no numbers that count as true",
        r"TypeError: logical_\S+: got \w+\[.*expected a tensor of bool",
    ),
    Difference(
        "any and all are for booleans: say what counts as true, as in (x != 0).any()",
        r"TypeError: (any|all): got \w+\[.*expected a tensor of bool",
    ),
    Difference(
        "a tensor without axes has no axis 0 and no axis -1, as in NumPy",
        r"IndexError: .*out of range for a tensor of 0 axes",
    ),
    Difference("dropout is for training, and exports are in evaluation mode", r"refused: dropout has no ONNX form"),
    Difference(
        "a number that its element type cannot hold is an error; torch truncates its bits",
        r"OverflowError: tensor: \S+ does not fit",
    ),
    Difference(
        "a range whose end is before its start is empty, as in Python and NumPy",
        r"torch raises, Lucid does not: arange",
        way="error",
    ),
    Difference(
        "masked_fill is where: the value broadcasts, and the result has the promoted type of tensor and value",
        r"(float\d+|int\d+)\[|torch raises, Lucid does not",
        "masked_fill",
        way="eager|error",
    ),
    Difference(
        "either operand may be a number",
        r"torch raises, Lucid does not: \w+\((\d|Slot\(index=0\), \d)",
        "add|mul|sub|div|mod|pow|matmul|maximum|minimum|equal|not_equal|less|less_equal|greater|greater_equal",
        way="error",
    ),
    Difference(
        "an integer to a negative power is an error, as in NumPy: it is a fraction",
        r"ValueError: Integers to negative integer powers",
        "pow",
    ),
    Difference(
        "gelu(inf) is inf, as torch's float64 kernel has it; its float32 one gives NaN",
        r"inf at .*, expected nan",
        "gelu|GELU",
        way="eager",
    ),
    Difference(
        "a traced boolean mask selects a number of elements that no shape can express",
        r"TypeError: indexing: a traced boolean mask",
        "getitem",
        way="graph",
    ),
    Difference("convolutions are of floating-point numbers", r"TypeError: conv: got u?int"),
    Difference(
        "padding is zeros, and zero times an infinite weight is NaN; torch's half-precision kernel skips it",
        r"nan at ",
        "conv",
        way="eager",
    ),
    Difference(
        "an epsilon below zero is refused: it exists to avoid the root of a negative number",
        r"ValueError: \w+: eps is -",
    ),
    Difference(
        "a centred zero times an infinite weight is NaN; torch's half-precision kernel multiplies before it subtracts",
        r"nan at ",
        "layer_norm",
        way="eager",
    ),
    Difference(
        "the sign of NaN is NaN, as in NumPy and ONNX; torch gives 0", r"nan at .*, expected 0", "sign", way="eager"
    ),
    Difference(
        "NaN and infinity that causality hides give NaN or are ignored: see docs/attention.md",
        r"nan at|.*, expected nan",
        "scaled_dot_product_attention",
        arguments=r".*, 0\.0, True, .*",
    ),
    Difference(
        "onnxruntime's CPU provider has no float64 kernel, and no type is wider: the export refuses",
        r"refused: .* no float64 kernel for (average_pool|conv|erf)",
    ),
    Difference(
        "channels are the second axis: without a batch, unsqueeze first",
        r"TypeError: batch_norm: got \S+, expected a floating-point tensor \(N, C"
        r"|ValueError: (Conv|MaxPool|AvgPool|AdaptiveAvgPool|BatchNorm)\dd: got shape",
    ),
    Difference(
        "query, key and value have the same number of axes; unsqueeze the one with fewer",
        r"ValueError: scaled_dot_product_attention: query .*: expected \(N, H, length, width\) each",
    ),
)


def explained(sample: Drawn, outcome: Outcome) -> Difference | None:
    """The row that explains a problem."""
    return next((row for row in DIFFERENCES if row.explains(sample.made, outcome)), None)
