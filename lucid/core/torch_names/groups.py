"""Names of torch that Lucid lacks for one reason each, by patterns: factors of matrices, sparse tensors and so on."""

from __future__ import annotations

import re

NO_COMPLEX = (
    "there are no complex numbers; keep real and imaginary parts in two tensors: for rotary embeddings "
    "write ops.rotary_embedding(x, cos, sin, interleaved=True), or (a * cos - b * sin, a * sin + b * cos)"
)
NO_DEVICES = "tensors have no device; leave it out. A session chooses what an exported model runs on: provider=..."

_NUMPY = "of known tensors write np.{0}(x.numpy(), ...), outside of the model"
_FUNCTIONAL = (
    r"adaptive_avg_pool1d|avg_pool1d|(?:native_)?channel_shuffle|conv[123]d|conv_transpose[123]d|pairwise_distance|"
    r"pixel_(un)?shuffle|prelu|celu|selu"
)

# A pattern of whole names, and what is said of them: {0} is the name, {1} the name without its last part.
GROUPS: tuple[tuple[str, str], ...] = (
    (_FUNCTIONAL, "write lucid.nn.functional.{0}"),
    (
        r"(solve|inv|det|eig|eigh|eigvals|eigvalsh|pinv|qr|svd|svdvals|cholesky|slogdet|lstsq|cond|matrix_(rank|power)|"
        r"multi_dot|tensorinv|tensorsolve)(_ex)?",
        "factors of a matrix are not computed by ONNX; of known tensors write "
        "lucid.tensor(np.linalg.{1}(x.numpy())), once, outside of the model",
    ),
    (
        r"inverse|pinverse|logdet|(lu|ldl|cholesky|triangular)_\w+|lu|geqrf|orgqr|ormqr|householder_product|lobpcg|\w+_lowrank|"
        r"matrix_(exp|power)|chain_matmul",
        "factors of a matrix are not computed by ONNX; compute them once, with np.linalg or scipy.linalg, of "
        "x.numpy(), outside of the model",
    ),
    (
        r"airy_ai|bessel_\w+|\w+_bessel_\w+|\w+_polynomial_\w+|(multi|mv)?(di|poly|l)gamma|gamma(inc|incc|ln)|igammac?|"
        r"multigammaln|psi|zeta|i[01]e?|erfinv|erfcx|log_ndtr|ndtri",
        "ONNX has no such function; of known tensors write lucid.tensor(f(x.numpy())), with f of scipy.special",
    ),
    (
        r"\w*(sparse|coalesce)\w*|(to|values|col_indices|row_indices|crow_indices|ccol_indices|indices)_(dense|copy)|c?(col|row)_indices|"
        r"(c|r)?crow_indices|smm|hspmm|sspaddmm|dense_dim|to_padded_tensor|to_mkldnn",
        "tensors are dense; write x itself, or lucid.where(mask, x, 0)",
    ),
    (
        r"is_quantized|q_(scale|zero_point|per_channel_\w+)|int_repr|qscheme|q?u?int[1-7](x\d)?|q(u?int8|int32)|quint\dx\d|\w*quantize_per_\w+|quantized_\w+|dequantize|"
        r"choose_qparams_\w+",
        "tensors hold numbers; lucid.quantize(model) makes quantized weights, and to_onnx writes them",
    ),
    (
        r"(u?int16|short|uint(32|64))",
        "the types of integers are int8, uint8, int32 and int64; write lucid.int32 or lucid.int64",
    ),
    (
        r"float[48]_\w+|bits?(\d+(x\d)?)?|complex32",
        "the types of numbers with fractions are float16, bfloat16, float32 and float64",
    ),
    (
        r"adjoint|angle|c(double|float|half)|chalf|conj(_physical)?|is_conj|is_neg|resolve_(conj|neg)|imag|real|mH|H|i?stft|sgn|"
        r"view_as_(real|complex)_copy|(i|ir|r|h|ih)?fft[2n]?(freq|shift)?|(i|r)fftshift|rfftfreq",
        NO_COMPLEX,
    ),
    (
        r"get_default_device|set_default_device|get_device_module|is_(cpu|mps|xla|xpu|ipu|meta|pinned|shared)|xpu|ipu|mtia|record_stream",
        NO_DEVICES,
    ),
    (
        r"data_ptr|is_storage|set_|const_data_ptr|storage\w*|untyped_storage|is_set_to|dim_order|empty_strided|empty_permuted|new_empty_strided|"
        r"as_strided\w*|from_file",
        "tensors have no strides and no storage of their own; write x.reshape(...), x.permute(...), or slices",
    ),
    (
        r"(frombuffer|asarray|from_dlpack|to_dlpack)",
        "write lucid.tensor(array) of a NumPy array, such as np.{0}(...), and x.numpy()",
    ),
    (r"Lazy\w+|Uninitialized\w+", "sizes are given when a layer is made: write nn.Linear(in_features, out_features)"),
    (
        r"(Fractional)?Max(Un)?[pP]ool\w*|(fractional_)?max_unpool\w*|fractional_max_pool\w*",
        "it is not offered; compute it in torch, or write nn.MaxPool2d and nn.Upsample",
    ),
    (r"(\w+)_with_indices", "write F.{1}(x, ..., return_indices=True)"),
    (r"LPPool\dd|lp_pool\dd", "write (F.avg_pool2d(x**p, size) * count) ** (1 / p), count being size * size"),
    (
        r"Alpha[dD]ropout|alpha_dropout|FeatureAlphaDropout|feature_\w*dropout|RReLU|rrelu|Dropout[13]d|dropout[123]d",
        "while training only; nn.Dropout is here, which does nothing in an exported model",
    ),
    (
        r"(Multi[lL]abel|Triplet)Margin\w*|multilabel_margin_loss|triplet_margin_with_distance_loss|"
        r"AdaptiveLogSoftmaxWithLoss|[lL]inear_?[cC]ross_?[eE]ntropy\w*",
        "write the loss in ops, as F.triplet_margin_loss and F.cross_entropy are",
    ),
    (r"[hH]ardshrink", "write lucid.where(x.abs() <= bound, 0, x)"),
    (r"[tT]hreshold", "write lucid.where(x <= bound, value, x)"),
    (r"[sS]oftshrink", "write x - x.clamp(-bound, bound)"),
    (r"Softmax2d", "write nn.Softmax(dim=-3)"),
    (r"Upsampling(Bilinear|Nearest)2d|upsample_(bilinear|nearest)", "write F.interpolate(x, size, mode=...)"),
    (
        r"LocalResponseNorm|local_response_norm",
        "write x / (k + alpha * mean) ** beta, mean being F.avg_pool3d of x * x",
    ),
    (r"[bB]ilinear", 'write lucid.einsum("...i,oij,...j->...o", a, weight, b) + bias'),
    (r"(scaled_)?grouped_mm|scaled_mm", "write x @ weight; nn.Experts multiplies the rows of several experts"),
    (r"SyncBatchNorm", "write nn.BatchNorm2d"),
    (r"(bartlett|blackman)_window", "write lucid.tensor(np.{1}(n + 1)[:-1], dtype=lucid.float32)"),
    (r"(sym_)(int|float|not|ite|sum)", "sizes are Python numbers or lucid.Dim; write them as they are"),
    (r"((?:leaky_|r)?relu|[cs]?elu|threshold|hardtanh)_", "tensors are never changed in place; write x = F.{1}(x)"),
    (r"arc(\w+)", "write x.a{1}(...)"),
    (r"mode", "write F.one_hot(x, n).sum(-2).argmax(-1) of whole numbers below n"),
    (r"nan(?:median|quantile)|gcd|lcm|frexp|nextafter|gradient|broadcast_shapes", _NUMPY),
    (
        r"ASGD|Ada(delta|grad|max)|LBFGS|Muon|NAdam|RAdam|RMSprop|Rprop|SparseAdam",
        "write lucid.optim.AdamW(rate) or SGD(rate, momentum=0.9); an optimizer of your own is a dataclass like them",
    ),
    (
        r"unique_consecutive|segment_reduce|histogram(dd)?",
        "how many elements it finds is known only when the model runs; choose by a mask",
    ),
    (
        r"(?:is|are)_(deterministic\w+|warn\w+|inference\w*|storage)|(set|get|use)_(deterministic|float32_matmul|flush_denormal|warn)\w*|"
        r"[sg]et_default_(tensor_type|dtype)|[sg]et_rng_state|[sg]et_num_interop_threads|seed|initial_seed|use_deterministic_algorithms",
        "leave it out: results are the same in each run, and lucid.manual_seed(0) starts the random numbers",
    ),
    (r"set_printoptions", "write np.set_printoptions(...)"),
    (
        r"(?:has|handle)_torch_function\w*|boolean_dispatch|fork|wait|(parse|unify_type|import_ir|merge_type)_\w+|thread_safe_generator|init_num_threads|compiled_with_cxx11_abi|hash_tensor|module_load|RNNBase|factory_kwargs|swap_in_\w+",
        "it is torch's own machinery; leave it out",
    ),
    (r"(?:convert|fuse)_\w+|remove_spectral_norm", "to_onnx fuses normalisations; leave it out"),
    (
        r"clip_grads_with_norm_|get_total_norm|vector_to_parameters",
        "gradients are dicts of tensors: lucid.optim.clip_by_global_norm clips them",
    ),
    (r"(\w+)_copy", "tensors are never changed in place, so there are no copies; write x.{1}(...)"),
    (r"unsafe_(\w+)", "write x.{1}(...)"),
    (r"\w+_scatter|index_put", "write x.at[index].set(values)"),
)
_COMPILED = tuple((re.compile(pattern), reason) for pattern, reason in GROUPS)


def reason_of_group(name: str) -> str | None:
    """The advice of the first group that has a name."""
    for pattern, reason in _COMPILED:
        if match := pattern.fullmatch(name):
            return reason.format(name, match[1] if pattern.groups and match[1] else name)
    return None
