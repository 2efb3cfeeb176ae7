"""The runtimes that models are exported for, with one record for each: missing kernels and faults, by release.

Forms ask the record of their target and never check its name, so a new runtime is one more record. The facts about
onnxruntime's CPU provider are measured by the repository's check_onnxruntime_versions (the page "onnxruntime releases"
has the tables), those about OpenVINO and WebGPU by its tests; those about CUDA are measured with 1.31.1 or read in its
source (the page "GPUs with CUDA" says which).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from lucid.core.targets.record import Difference, Fault, KnownFault, Missing, Release, Runtime, Trial

# The newest opset and IR version that each release of onnxruntime loads, measured with one Identity node; a release
# that is missing here loads the same as the one before it.
RELEASES: Mapping[Release, tuple[int, int]] = MappingProxyType(
    {
        (1, 15): (18, 9),
        (1, 16): (19, 9),
        (1, 17): (20, 9),
        (1, 18): (21, 10),
        (1, 21): (22, 10),
        (1, 23): (23, 11),
        (1, 24): (25, 13),
        (1, 25): (26, 13),
        (1, 32): (28, 14),
    }
)
OLDEST: Release = (1, 20)  # the oldest that models are exported for
SIZE_LIMITS = "lucid.limits"  # the metadata key for the largest values of symbolic sizes, as JSON
SIZE_BOUNDS = "lucid.bounds"  # the metadata key for bounds of sizes and their sums, which a session enforces, as JSON
OLDEST_RELEASE = "lucid.onnxruntime"  # the metadata key for the oldest release that a file was exported for
ROWS_APART = "lucid.rows_apart"  # the metadata key of files that take several new tokens in one row alone
ACCURACY_LEVEL = "lucid.accuracy_level"  # the metadata key for a target's level that is not the default
DEFAULT_LEVEL = 4  # onnxruntime's own
OWN = "com.microsoft"  # the domain of onnxruntime's own operators
EXTENSIONS = "ai.onnx.contrib"  # the domain of the operators of onnxruntime-extensions, a library of its own

# onnxruntime's providers by which readers of models differ.
CPU, CUDA, WEBGPU = "CPUExecutionProvider", "CUDAExecutionProvider", "WebGpuExecutionProvider"

# The names of the targets that are taken where none is asked for.
GENERAL = "any"  # for a model that may run anywhere
PROCESSOR = "cpu"  # for one that runs on this machine's processor, in onnxruntime

# Faults that forms ask about -------------------------------------------------------------------------------------

PASSES_OVER_NAN = Fault("maxima and minima of numbers with NaN")
INFINITE_EXTREMES = Fault("maxima of -inf alone and minima of infinity alone")
NAN_BETWEEN_TWO = Fault("the larger or smaller of NaN and a number")
EXP_OF_NAN = Fault("Exp of NaN")
SOFTMAX_OF_NAN = Fault("Softmax and LogSoftmax of rows with NaN")
GELU_OF_INFINITY = Fault("Gelu of infinity")
GELU_OF_ODD_HALVES = Fault("Gelu by tanh of an odd number of float16 elements")
NAN_IS_GREATER = Fault("Greater and GreaterOrEqual of NaN")
ORDER_OF_TIES = Fault("TopK of equal elements")
DIVIDED_AS_FLOAT32 = Fault("quotients and remainders of integers")
INTEGERS_AS_FLOAT32 = Fault("comparisons, choices, extremes and sums of integers")
THREE_AXES = Fault("reductions of integers of three axes")
WIDE_INTEGERS = Fault("integers beyond 32 bits")
INTEGERS_AS_FLOAT64 = Fault("sums, products and powers of integers")
LOWEST_OVER_MINUS_ONE = Fault("quotients and remainders of the lowest integer by -1")
HALF_TRANSPOSED = Fault("a half-precision product after a transpose of the first axis")
FLOAT64_TRANSPOSED = Fault("a float64 product after a transpose")
FLOAT64_COS = Fault("Cos of float64")
FLOAT64_QUICK_GELU = Fault("a float64 product with a sigmoid")
NUMBER_BEFORE_VARIANCE = Fault("a number plus a variance, in this order")
GROUP_NORMALIZATION = Fault("GroupNormalization")
ATTENTION_OF_HALVES = Fault("Attention in half precision")
ATTENTION_OF_GROUPS = Fault("Attention of grouped heads", "Attention")
ATTENTION_UNSEEN = Fault("Attention of a query that may see no key", "Attention")
ATTENTION_SINGLE = Fault("causal Attention of a single query", "Attention")
ATTENTION_CROSS = Fault("causal Attention of another number of keys")
ATTENTION_SOFTCAP = Fault("Attention with softcap")
ATTENTION_WEIGHTS = Fault("Attention that returns weights")
ATTENTION_OPEN_WEIGHTS = Fault("Attention that returns weights of a symbolic number of keys")
ATTENTION_JOINED_WIDTHS = Fault("Attention over past keys whose heads are not a multiple of 8 bytes wide")
ATTENTION_OF_BUFFERS = Fault("GroupQueryAttention that writes no keys")
WRITTEN_BUFFERS = Fault("GroupQueryAttention that writes buffers")
TENSOR_SCATTER = Fault("TensorScatter", "TensorScatter")
FILLED_MASKS = Fault("blocks of queries with filled masks")
FUSED_SOFTMAX = Fault("a softmax between two products, over a symbolic number of keys")
ATTENTION_OPEN_KEYS = Fault("a symbolic number of keys")
PRODUCT_OF_NOTHING = Fault("a product over no keys")
NARROW_PRODUCTS = Fault("a product with weights in 8 bits, computed in float32")
ZEROS_OF_ROWS = Fault("zero points of 4 bits in rows of an odd number of blocks")
PADDED_BLOCKS = Fault("a padded last block")
COARSE_SINE = Fault("sine, cosine, tangent and arc cosine")
SCAN_OF_NOTHING = Fault("a Scan of length 0")
EXPERTS = Fault("MoE")
OUTER_VALUES = Fault("a Scan that reads values around it")
ELEMENTS_IN_PLACE = Fault("a Scan whose steps compute in place of their elements, or read none")
RESHAPED_TO_NUMBER = Fault("a product that becomes a number")
EMPTY_CONSTANTS = Fault("constants without elements")
HEADS_LIKE_POSITIONS = Fault("float64 attention of fixed sizes with as many heads as positions")
REGIONS_OF_POSITIONS = Fault("comparisons of positions of a symbolic length")
OUTER_VALUES_OF_LOOP = Fault("a Loop that reads values around it")
LOOP_WITHIN = Fault("a loop within a loop")
BRANCHES = Fault("branches")
LONG_INTEGERS = Fault("64-bit integers")
NO_EXTREMES = Fault("Max and Min of two tensors")
RANKS_APART = Fault("elementwise ops of tensors with different numbers of axes")
CHANNELS_IN_THREES = Fault("a convolution from 6, 9, 18, ... channels to a multiple of 4")
NO_AXES = Fault("Unsqueeze that adds no axis")
VECTOR_PRODUCTS = Fault("a product with a vector")

# onnxruntime -----------------------------------------------------------------------------------------------------

# Types that ONNX does not have for these ops.
_NOT_IN_ONNX = (
    Missing("MatMul Pow", "int8 uint8"),
    Missing("Neg", "uint8"),
    Missing("TopK", "bfloat16"),
    Missing("ArgMax", "bool"),
    Missing("RotaryEmbedding DequantizeLinear", "float64"),
)
# For every provider that was tried.
_EVERYWHERE = (
    *_NOT_IN_ONNX,
    Missing("Where", "bool"),
    Missing("Trilu", "int8 uint8"),
    Missing("Where", "int8", until=(1, 31)),
    Missing("Trilu", "int32", until=(1, 29)),
    Missing("Max Min", "int8 uint8", until=(1, 24)),
    Missing("TopK", "int8 uint8", until=(1, 26)),
    Missing("Resize", "int64 bool"),
    Missing("Relu", "bool uint8 int64"),
    Missing("Softplus RotaryEmbedding MultiHeadAttention MatMulNBits GatherBlockQuantized", "float64 bfloat16"),
    Missing("Attention", "float64", "falls back to a form that gives NaN on fully masked rows"),
    Missing("Attention", "*", reason="onnxruntime 1.32 has no kernel for Attention of opset 25 and newer", opset=25),
)
_NO_BYTES = Missing(
    "MatMulInteger",
    "*",
    reason="the provider has no kernel for products of bytes: inputs are rounded and multiplied in float32, which "
    "takes longer than without rounding",
    outcome="runs",
)
_INTEGERS = {INTEGERS_AS_FLOAT64: KnownFault("computes it as float64, which loses the digits of integers beyond 2^53")}
_SLOW_GROUPS = {
    GROUP_NORMALIZATION: KnownFault("has no kernel, and its own expansion is 1.6 to 4 times slower than the body")
}

_INEXACT_GROUPS = {
    GROUP_NORMALIZATION: KnownFault(
        "has no kernel and computes its definition, whose variance, the mean of squares less the square of the mean, "
        "loses its digits where the mean is large"
    )
}

_CPU_LACKS = (
    *_EVERYWHERE,
    Missing(
        "*",
        "bfloat16",
        but="Cast Concat Gather GatherElements GatherND LayerNormalization Reshape Scan ScatterElements Slice Split "
        "Squeeze Transpose Unsqueeze",
    ),
    # It casts these to float32 by itself; they are listed so that the guards against NaN are computed in float32, too.
    Missing("ArgMax Clip MaxPool ReduceMax ReduceMin Sign", "float16"),
    Missing("AveragePool Conv Erf", "float64"),
    Missing("ConvTranspose", "float16 float64"),
    Missing("CumSum", "float32", "adds up in float32, but eager code in float64"),
    Missing("LogSoftmax", "float64", "ignores NaN"),
    Missing("Gelu FusedMatMul HardSigmoid HardSwish Resize", "float16 float64"),
    Missing("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh Tan", "float16 float64"),
    Missing(
        "MoE", "float16 float64", "has no kernel for float64, and is wrong in float16 unless weights are normalised"
    ),
    Missing("Softplus", "float16", "computes log(1 + exp(x)) in float16, which overflows"),
    Missing("Attention", "float16", "rounds scores to float16"),
    # Without optimisation it may cast the scales when it runs, after it has packed the weight, and gives 0.
    Missing("MatMulNBits", "float16", "computes it in float32, and gives 0 where its optimisation is turned off"),
)
_FUSED_NORM = {NUMBER_BEFORE_VARIANCE: KnownFault("fuses a norm around it, with an eps of 1e-5", (1, 32))}
_CPU_FAULTS = {
    **_INTEGERS,
    **_FUSED_NORM,
    EXPERTS: KnownFault("has not been compared", (1, 28)),
    NARROW_PRODUCTS: KnownFault(
        "unpacks the weight at each call, which takes 2 to 11 times as long as a float32 product"
    ),
    TENSOR_SCATTER: KnownFault("has no kernel for TensorScatter", (1, 28)),
    ZEROS_OF_ROWS: KnownFault("reads them of another row in GatherBlockQuantized", (1, 27)),
    SCAN_OF_NOTHING: KnownFault("stops with an error"),
    PASSES_OVER_NAN: KnownFault("ignores NaN"),
    LOWEST_OVER_MINUS_ONE: KnownFault("ends the process (1.31)"),
    HALF_TRANSPOSED: KnownFault("crashes when it loads one (1.23 to 1.31)"),
    FLOAT64_TRANSPOSED: KnownFault("fuses a Transpose and a float64 MatMul into an op without a kernel", (1, 26)),
    FLOAT64_COS: KnownFault("has no float64 kernel for Cos", (1, 29)),
    FLOAT64_QUICK_GELU: KnownFault("fuses a float64 Sigmoid and Mul into an op without a kernel", (1, 31)),
}
_CPU_ATTENTION = {
    ATTENTION_OF_HALVES: KnownFault("rounds scores to float16, and has no bfloat16 kernel"),
    ATTENTION_OF_GROUPS: KnownFault("reads the wrong keys for grouped heads", (1, 23, 1)),
    ATTENTION_UNSEEN: KnownFault("gives NaN or the mean of the values to a query that sees no key", (1, 28)),
    ATTENTION_SINGLE: KnownFault("lets a single query see every key, causal or not", (1, 28)),
    ATTENTION_OF_BUFFERS: KnownFault(
        "ends the process where GroupQueryAttention has keys only in its buffers", (1, 31)
    ),
    WRITTEN_BUFFERS: KnownFault("has not been compared", (1, 28)),
    ATTENTION_OPEN_WEIGHTS: KnownFault(
        "treats the returned weights as empty if the number of keys is symbolic, and may write them to a buffer "
        "that is too small"
    ),
    FILLED_MASKS: KnownFault("has not been measured with blocks of queries", (1, 28)),
}
_CUDA_LACKS = (
    *_EVERYWHERE,
    _NO_BYTES,
    Missing("GroupQueryAttention", "float32 float64"),
    Missing("Attention", "*", "would run on the CPU, with copies both ways", (1, 25)),
    # The CPU has none either, so that onnxruntime does not load the file. Measured with 1.31.1.
    Missing("Acos Acosh Asin Asinh Atan Atanh ConvTranspose Cosh ScatterND Sinh Tan", "float64"),
    Missing("Gelu HardSigmoid HardSwish LogSoftmax", "float64", "computes a part of it in float32"),
    Missing(
        "Acos Acosh ArgMax Asin Asinh Atan Atanh BatchNormalization Ceil Clip ConvTranspose Cosh CumSum Equal Floor "
        "Greater GreaterOrEqual Less LessOrEqual Log LogSoftmax MaxPool Pad Reciprocal ReduceMax ReduceMin ReduceProd "
        "Resize Round Sinh Tan",
        "bfloat16",
    ),
)
_CUDA_FAULTS = {
    TENSOR_SCATTER: KnownFault("has no kernel for TensorScatter", (1, 28)),
    **_INTEGERS,
    **_FUSED_NORM,
    **_SLOW_GROUPS,
    SCAN_OF_NOTHING: KnownFault("stops with an error"),
    ATTENTION_UNSEEN: KnownFault("gives the mean of the values to a query that sees no key", (1, 28)),
    ATTENTION_SOFTCAP: KnownFault("refuses softcap, or applies it in another order", (1, 28)),
    ATTENTION_OF_GROUPS: KnownFault("has no kernel for grouped heads in every element type and size", (1, 28)),
    ATTENTION_CROSS: KnownFault("does not align causal queries in the same way in all its kernels", (1, 28)),
    ATTENTION_WEIGHTS: KnownFault("has no kernel for Attention that returns weights"),
    GELU_OF_ODD_HALVES: KnownFault("computes pairs, and leaves out the last element (1.31)"),
    ATTENTION_JOINED_WIDTHS: KnownFault("joins past and new keys 8 bytes at a time, and reads others (1.31)"),
}
_OPENVINO_FAULTS = {
    SCAN_OF_NOTHING: KnownFault("stops with an error"),
    PRODUCT_OF_NOTHING: KnownFault("gives uninitialised memory"),
    HEADS_LIKE_POSITIONS: KnownFault("fuses it, and confuses the two axes"),
    OUTER_VALUES: KnownFault("does not load one", outcome="fails"),
    OUTER_VALUES_OF_LOOP: KnownFault("does not load one in some models", outcome="may fail"),
    EMPTY_CONSTANTS: KnownFault("reads them as a number, and may end the process", outcome="fails"),
    RESHAPED_TO_NUMBER: KnownFault("ends the process", outcome="may fail"),
    ELEMENTS_IN_PLACE: KnownFault(
        "gives later steps what earlier ones wrote there, or does a single step", outcome="may fail"
    ),
    BRANCHES: KnownFault("may be wrong in the first run after loading", outcome="may fail"),
    NAN_IS_GREATER: KnownFault("gives true", outcome="runs"),
    THREE_AXES: KnownFault("is wrong where something is added to them or multiplied", outcome="may fail"),
    DIVIDED_AS_FLOAT32: KnownFault("computes them in float32, which loses digits beyond 2^24", outcome="runs"),
    ATTENTION_OPEN_KEYS: KnownFault("is wrong after a first call with a single key", outcome="may fail"),
    FUSED_SOFTMAX: KnownFault("fuses them, and is wrong after a first call with a single key", outcome="may fail"),
}
TRACT_FAULTS = {REGIONS_OF_POSITIONS: KnownFault("computes them region by region, of wrong sizes", outcome="fails")}

_FLOATS = "float32 float64 float16 bfloat16"
_OPENVINO_LACKS = (
    Missing("Abs Add Div Mul Neg Sub", "int8 uint8", "saturates instead of wrapping around", outcome="may fail"),
)
# For target "openvino" alone: other runtimes keep NaN, and fuse a Relu.
_NAN_IN_OPENVINO = {
    PASSES_OVER_NAN: KnownFault("ignores NaN", outcome="runs"),
    INFINITE_EXTREMES: KnownFault("gives the lowest or largest number"),
    NAN_BETWEEN_TWO: KnownFault("gives the number, or its second operand", outcome="runs"),
    EXP_OF_NAN: KnownFault("gives infinity", outcome="runs"),
    SOFTMAX_OF_NAN: KnownFault("keeps NaN in its place alone, instead of in the row", outcome="runs"),
    GELU_OF_INFINITY: KnownFault("gives NaN", outcome="runs"),
}
_OPENVINO_DIFFERS = (
    Difference(
        "MatMul",
        "int32 int64",
        "computes float32, which loses digits beyond 2^24",
        "exact sums would need memory for all products",
    ),
    Difference("*", "int64", "computes 32 bits", "it has no wider integers; a constant that needs them is refused"),
)

# Below 24 a write copies the whole buffer.
_NEWER = {"write_at": 24, "buffered_attention": 24}

# The ops of onnxruntime's own domain that Lucid writes.
OWN_OPS = ("FusedMatMul", "GatherBlockQuantized", "GroupQueryAttention", "MatMulNBits", "MoE", "MultiHeadAttention")

# Each of them in every way that Lucid writes it: tests/test_openvino.py, tests/consumers/test_tract.py.
_COMPARED = """
    Abs Acos Acosh Add And ArgMax Asin Asinh Atan Atanh Attention AveragePool BatchNormalization Cast Ceil Clip Concat
    Constant ConstantOfShape Conv ConvTranspose Cos Cosh CumSum DequantizeLinear Div DynamicQuantizeLinear Equal Erf
    Exp Expand Floor Gather GatherElements GatherND Gelu Greater GreaterOrEqual GroupNormalization HardSigmoid
    HardSwish Identity If IsNaN LayerNormalization Less LessOrEqual Log LogSoftmax MatMul MatMulInteger Max MaxPool
    Min Mod Mul Neg Not Or Pad Pow QuantizeLinear RMSNormalization Range Reciprocal ReduceL1 ReduceMax ReduceMean
    ReduceMin ReduceProd ReduceSum Relu Reshape Resize RotaryEmbedding Round Scan ScatterElements Shape Sigmoid Sign
    Sin Sinh Slice Softmax Softplus Split Sqrt Squeeze Sub Tan Tanh Tile TopK Transpose Trilu Unsqueeze Where Xor
"""
COMPARED = frozenset(_COMPARED.split())

# The records -----------------------------------------------------------------------------------------------------

RUNTIMES: Mapping[str, Runtime] = MappingProxyType(
    {
        runtime.name: runtime
        for runtime in (
            Runtime(
                "any",
                "only standard ops",
                engine="onnxruntime's CPU provider",
                asked_for=(OWN,),
                newer=_NEWER,
                lacks=_CPU_LACKS,
                faults={**_CPU_FAULTS, **_CPU_ATTENTION, **_SLOW_GROUPS},
            ),
            Runtime(
                "cpu",
                "tuned for onnxruntime's CPU provider",
                engine="onnxruntime's CPU provider",
                domains=(OWN,),
                strategies=frozenset({"blocks", "tiles", "products", "groups", "partial reads", "reshapes"}),
                newer=_NEWER,
                lacks=_CPU_LACKS,
                faults={**_CPU_FAULTS, **_CPU_ATTENTION, **_SLOW_GROUPS},
            ),
            Runtime(
                "cuda",
                "tuned for onnxruntime's CUDA provider",
                engine="onnxruntime's CUDA provider",
                provider=CUDA,
                device=True,
                memory="cuda",
                domains=(OWN,),
                newer=_NEWER,
                strategies=frozenset({"flash"}),
                half_arithmetic=True,
                lacks=_CUDA_LACKS,
                faults=_CUDA_FAULTS,
            ),
            Runtime(
                "portable",
                "primitive ops of opset 18, for runtimes without Attention",
                opset=18,
                engine="onnxruntime's CPU provider",
                lacks=(
                    *_CPU_LACKS,
                    *(replace(lack, engine="OpenVINO") for lack in _OPENVINO_LACKS),
                    Missing("Attention", "*", reason="the target is for runtimes without this op"),
                ),
                faults={
                    **_CPU_FAULTS,
                    **{fault: replace(known, engine="OpenVINO") for fault, known in _OPENVINO_FAULTS.items()},
                    **{fault: replace(known, engine="tract") for fault, known in TRACT_FAULTS.items()},
                    **_INEXACT_GROUPS,
                },
            ),
            # Runs on OpenVINO 2026.4 in tests/test_openvino.py. It computes int64 as int32.
            Runtime(
                "openvino",
                "tuned for OpenVINO 2026.4 and newer",
                engine="OpenVINO",
                provider="OpenVINOExecutionProvider",
                lacks=(
                    *_NOT_IN_ONNX,
                    *_OPENVINO_LACKS,
                    Missing("*", "float64", "computes float32", but="Cast", outcome="runs"),
                    Missing("Relu", _FLOATS, "loses NaN", outcome="runs"),
                    Missing("Relu", "int32 int64", "computes float32"),
                    Missing("Softplus", _FLOATS, "is off by up to 2e-6, much of a small result", outcome="runs"),
                    Missing(
                        "Attention", "*", reason="OpenVINO's Attention is wrong after a first call with a single key"
                    ),
                ),
                faults={
                    **_OPENVINO_FAULTS,
                    **_NAN_IN_OPENVINO,
                    ORDER_OF_TIES: KnownFault("orders them as it likes", outcome="runs"),
                    INTEGERS_AS_FLOAT32: KnownFault("computes them in float32, which loses digits beyond 2^24"),
                    WIDE_INTEGERS: KnownFault("computes integers in 32 bits"),
                    LOOP_WITHIN: KnownFault("does not load one", outcome="fails"),
                    INTEGERS_AS_FLOAT64: KnownFault("computes them in 32 bits"),
                    PADDED_BLOCKS: KnownFault(
                        "does not load one where the block does not divide the rows", outcome="fails"
                    ),
                },
                differs=_OPENVINO_DIFFERS,
                trial=Trial("OpenVINO 2026.4", 23, ("FusedMatMul", "MatMulNBits", "MultiHeadAttention"), COMPARED),
            ),
            # Measured with onnxruntime 1.27 on SwiftShader (tests/devices, docs/portable.md). Ops without a kernel run
            # on the CPU, with copies.
            Runtime(
                "webgpu",
                "tuned for onnxruntime's WebGPU provider",
                engine="onnxruntime's WebGPU provider",
                opset=20,
                provider=WEBGPU,
                device=True,
                memory="webgpu",
                domains=(OWN,),
                lacks=(
                    *_CPU_LACKS,
                    _NO_BYTES,
                    Missing("LayerNormalization", "bfloat16"),
                    Missing("Attention RMSNormalization RotaryEmbedding", "*", outcome="runs"),
                    Missing(
                        "MultiHeadAttention",
                        "*",
                        reason="it is wrong where a device's subgroups are narrow",
                        outcome="runs",
                    ),
                ),
                # Its products with quantized weights read 4 and 8 bits as they are stored.
                faults={
                    **{fault: known for fault, known in _CPU_FAULTS.items() if fault is not NARROW_PRODUCTS},
                    **_SLOW_GROUPS,
                    COARSE_SINE: KnownFault("computes them to 6e-5 to 4e-4"),
                    LONG_INTEGERS: KnownFault("computes them on the processor"),
                    NO_EXTREMES: KnownFault("computes them on the processor"),
                    RANKS_APART: KnownFault("stops for some sizes"),
                    CHANNELS_IN_THREES: KnownFault("computes it wrongly"),
                    NO_AXES: KnownFault("stops"),
                    VECTOR_PRODUCTS: KnownFault("computes it wrongly, or stops"),
                },
                trial=Trial("onnxruntime on WebGPU", 26, OWN_OPS, verdict="no op is known to be left to the CPU"),
            ),
        )
    }
)


def targets_of(*providers: str, domain: str = "") -> tuple[str, ...]:
    """The targets whose models run with one of these providers of onnxruntime, and may have operators of a domain."""
    return tuple(r.name for r in RUNTIMES.values() if r.provider in providers and r.allows(domain))


def tuned_for(provider: str) -> Runtime:
    """The record that gains most from a provider of onnxruntime; the general one for a provider that has none."""
    own = [runtime for runtime in RUNTIMES.values() if runtime.provider == provider]
    return max(own, key=lambda runtime: len(runtime.strategies), default=RUNTIMES[GENERAL])
