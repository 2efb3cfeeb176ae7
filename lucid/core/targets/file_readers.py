"""The runtimes of which `lucid inspect` tells whether they run a file: those of targets, and others.

Found with `make test-consumers` and tests/test_portable.py, which keep it true; what was not run says so.
docs/portable.md has the table.
"""

from __future__ import annotations

from lucid.core.targets.record import Fault, Known, Missing, Runtime, Tried
from lucid.core.targets.runtimes import BRANCHES, COMPARED, OWN_OPS, RUNTIMES, TRACT_FAULTS

# Faults that no form asks about ----------------------------------------------------------------------------------

ATTENTION_CACHE = Fault("Attention with a cache")
MASK_BESIDE_CAUSAL = Fault("a mask beside is_causal")
BOOLEAN_MASK = Fault("a boolean mask")
PLACE_OF_BOOLEAN = Fault("ArgMax of a condition")
COMPUTED_SIZES = Fault("sizes that are computed")
COMPUTED_WEIGHTS = Fault("weights and scales that are computed")
EIGHT_BITS = Fault("weights in 8 bits")
FOUR_BITS = Fault("types of 2 and 4 bits")
OPEN_SIZES = Fault("symbolic sizes")
STRIDES = Fault("steps other than 1")
OWN_DOMAIN = Fault("an operator of onnxruntime's own")

# The records -----------------------------------------------------------------------------------------------------

READERS = (
    Runtime(
        "node",
        "onnxruntime for JavaScript, in Node and in browsers",
        engine="onnxruntime",
        tried=Tried(
            "onnxruntime-node and -web 1.30", 26, OWN_OPS, release=(1, 30), says="they have the kernels of the CPU"
        ),
    ),
    *(runtime for runtime in RUNTIMES.values() if runtime.tried is not None),
    Runtime(
        "tensorrt",
        "NVIDIA's runtime for its devices",
        engine="TensorRT",
        lacks=(Missing("RMSNormalization", "*", said="is not known to its parser (TensorRT#4639)", told="fails"),),
        faults={ATTENTION_CACHE: Known("takes none (TensorRT#4738)", told="fails")},
        tried=Tried("TensorRT", 23, run=False, says="was not run; no op of the model is known not to work"),
    ),
    Runtime(
        "tract",
        "a runtime in Rust",
        engine="tract",
        lacks=(
            Missing("FusedMatMul", "*", said="is not known", told="fails"),
            Missing("*", "bfloat16", said="has no bfloat16", told="fails"),
        ),
        faults={
            MASK_BESIDE_CAUSAL: Known("takes none", told="fails"),
            BOOLEAN_MASK: Known("takes none", told="fails"),
            **TRACT_FAULTS,
            PLACE_OF_BOOLEAN: Known("does not load it as int64", told="fails"),
            COMPUTED_SIZES: Known("takes only constants", told="fails"),
            COMPUTED_WEIGHTS: Known("takes only constants", told="fails"),
            EIGHT_BITS: Known("has no kernel for them", told="fails"),
            FOUR_BITS: Known("has none", told="fails"),
            OPEN_SIZES: Known("may not take them", told="may fail"),
            STRIDES: Known("may not take symbolic sizes with them", told="may fail"),
            BRANCHES: Known("may not load them: they must agree in their sizes", told="may fail"),
        },
        tried=Tried("tract 0.23", 23, ("MatMulNBits", "MultiHeadAttention"), COMPARED | {"InstanceNormalization"}),
    ),
    Runtime(
        "reference",
        "the evaluator of the package onnx",
        engine="ONNX's ReferenceEvaluator",
        faults={OWN_DOMAIN: Known("has none", told="fails")},
        tried=Tried("ONNX's ReferenceEvaluator", 26, OWN_OPS, says="it has all ops of ONNX, and is slow"),
    ),
)
