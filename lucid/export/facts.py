"""What onnxruntime's releases lack or compute wrongly: the facts that targets and rows refuse on, in one place.

Measured by tools/check_onnxruntime_versions.py on the CPU (docs/onnxruntime-versions.md has the tables); what concerns
CUDA was read in the release's source and has not run on a device (docs/gpu.md names the places).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

Release: TypeAlias = tuple[int, ...]
"""An onnxruntime release as numbers: (1, 23) stands for 1.23.0."""

# The newest opset that each release loads.
NEWEST_OPSET: dict[Release, int] = {(1, 20): 21, (1, 21): 22, (1, 23): 23, (1, 24): 25, (1, 25): 26}


@dataclass(frozen=True)
class Fact:
    """Something that an onnxruntime provider does rightly only from a release on."""

    since: Release
    before: str

    def __str__(self) -> str:
        return f"onnxruntime before {'.'.join(map(str, self.since))} {self.before}"


# Kernels of the CPU provider by element type ----------------------------------------------------------------------

SMALL_EXTREMES = Fact((1, 24), "has no int8 and uint8 kernels for Max and Min")
FUSED_FLOAT64 = Fact((1, 26), "fuses a Transpose and a float64 MatMul into an op that it has no kernel for")
QUICK_GELU_FLOAT64 = Fact((1, 31), "fuses a float64 Sigmoid and Mul into an op that it has no kernel for")
COS_FLOAT64 = Fact((1, 29), "has no float64 kernel for Cos")
TRILU_INT32 = Fact((1, 29), "has no int32 kernel for Trilu")
WHERE_INT8 = Fact((1, 31), "has no int8 kernel for Where")

# ai.onnx Attention, CPU provider ----------------------------------------------------------------------------------

GROUPED_HEADS = Fact((1, 23, 1), "reads the wrong keys where heads are grouped")
UNSEEN_KEYS = Fact((1, 28), "gives NaN or the mean of the values to a query that sees no key")
SINGLE_CAUSAL_QUERY = Fact((1, 28), "lets a single query see every key, causal or not")
FILLED_MASKS = Fact((1, 28), "has not been measured with blocks of queries")

# ai.onnx Attention, CUDA provider ---------------------------------------------------------------------------------

CUDA_ATTENTION = Fact((1, 25), "has no CUDA kernel for Attention: it would run on the CPU, with copies both ways")
CUDA_MASKS = Fact((1, 28), "gives the mean of the values to a query that sees no key, on CUDA")
CUDA_SOFTCAP = Fact((1, 28), "refuses softcap on CUDA, or applies it in another order")
CUDA_GROUPED_HEADS = Fact((1, 28), "has no CUDA kernel for grouped heads in every element type and size")
CUDA_CAUSAL_CROSS = Fact((1, 28), "does not align causal queries alike in all its CUDA kernels")
