"""The runtimes that `lucid inspect` reports on: those of the targets, and others.

The facts were found by tests, which also check them (`make test-consumers`, test_portable). A runtime that was never
run has `run=False`. The page "Other runtimes" shows the table.
"""

from __future__ import annotations

from lucid.core.targets.record import Fault, KnownFault, Missing, Runtime, Trial
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
        trial=Trial(
            "onnxruntime-node and -web 1.30", 26, OWN_OPS, release=(1, 30), verdict="they have the kernels of the CPU"
        ),
    ),
    *(runtime for runtime in RUNTIMES.values() if runtime.trial is not None),
    Runtime(
        "tensorrt",
        "NVIDIA's runtime for its devices",
        engine="TensorRT",
        lacks=(Missing("RMSNormalization", "*", reason="is not known to its parser (TensorRT#4639)", outcome="fails"),),
        faults={ATTENTION_CACHE: KnownFault("takes none (TensorRT#4738)", outcome="fails")},
        trial=Trial("TensorRT", 23, run=False, verdict="was not run; no op of the model is known not to work"),
    ),
    Runtime(
        "tract",
        "a runtime in Rust",
        engine="tract",
        lacks=(
            Missing("FusedMatMul", "*", reason="is not known", outcome="fails"),
            Missing("*", "bfloat16", reason="has no bfloat16", outcome="fails"),
        ),
        faults={
            MASK_BESIDE_CAUSAL: KnownFault("takes none", outcome="fails"),
            BOOLEAN_MASK: KnownFault("takes none", outcome="fails"),
            **TRACT_FAULTS,
            PLACE_OF_BOOLEAN: KnownFault("does not load it as int64", outcome="fails"),
            COMPUTED_SIZES: KnownFault("takes only constants", outcome="fails"),
            COMPUTED_WEIGHTS: KnownFault("takes only constants", outcome="fails"),
            EIGHT_BITS: KnownFault("has no kernel for them", outcome="fails"),
            FOUR_BITS: KnownFault("has none", outcome="fails"),
            OPEN_SIZES: KnownFault("may not take them", outcome="may fail"),
            STRIDES: KnownFault("may not take symbolic sizes with them", outcome="may fail"),
            BRANCHES: KnownFault("may not load them: they must agree in their sizes", outcome="may fail"),
        },
        trial=Trial("tract 0.23", 23, ("MatMulNBits", "MultiHeadAttention"), COMPARED | {"InstanceNormalization"}),
    ),
    Runtime(
        "reference",
        "the evaluator of the package onnx",
        engine="ONNX's ReferenceEvaluator",
        faults={OWN_DOMAIN: KnownFault("has none", outcome="fails")},
        trial=Trial("ONNX's ReferenceEvaluator", 26, OWN_OPS, verdict="it has all ops of ONNX, and is slow"),
    ),
)
