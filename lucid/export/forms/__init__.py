"""The forms of Lucid's ops, by family, and the order in which an op's forms are tried.

Only `export` imports from it. The meaning of an op belongs to its body in `lucid.ops`.
"""

from lucid.export.form import Form
from lucid.export.forms import (
    channel_norms,
    convolution,
    experts,
    extremes,
    int8,
    integers,
    loops,
    neural,
    primitives,
    quantized,
    scattering,
    trigonometry,
)
from lucid.export.forms.attention import buffered as buffered_attention
from lucid.export.forms.attention import cpu as attention_cpu
from lucid.export.forms.attention import cuda as attention_cuda
from lucid.export.forms.attention import node_or_op as attention
from lucid.export.forms.attention import portable as attention_portable

# Best first. A form refuses what the target would not compute exactly; after the last form comes the body.
_BEST_FIRST: tuple[Form, ...] = (
    # attention
    attention.in_float32,
    *attention_cpu.FORMS,
    attention_cuda.standard,
    attention_cuda.group_query,
    attention.standard,
    attention.contrib,
    attention_portable.zeros_without_keys,
    buffered_attention.group_query,
    buffered_attention.filled_part,
    # normalisation
    neural.layer_normalization_of_a_sum,
    neural.layer_normalization,
    neural.rms_normalization,
    channel_norms.batch_normalization,
    channel_norms.group_normalization,
    channel_norms.instance_normalization,
    # loops
    loops.scan_of_copies,
    loops.scan_of_any_length,
    loops.scan,
    # reductions, powers and quotients
    extremes.maximum,
    extremes.guarded_maximum,
    extremes.minimum,
    extremes.guarded_minimum,
    extremes.argmax,
    extremes.guarded_argmax,
    extremes.plain_max_pool,
    extremes.guarded_max_pool,
    extremes.larger,
    extremes.smaller,
    extremes.greater,
    extremes.greater_equal,
    extremes.exp,
    integers.reduce_sum,
    integers.products_with_ones,
    integers.reduce_prod,
    integers.halves_multiplied,
    integers.pow_,
    integers.repeated_squares,
    integers.corrected_floor_div,
    integers.int_floor_div,
    integers.corrected_mod,
    integers.int_mod,
    # quantized weights
    quantized.matmul_nbits,
    quantized.dequantize_linear,
    quantized.in_float32,
    quantized.gather_block_quantized,
    quantized.unpack_codes,
    int8.dynamic,
    int8.rows,
    int8.static,
    # experts
    experts.moe,
    experts.scan,
    experts.split_products,
    # the rest
    convolution.over_one_line,
    neural.resize,
    attention_portable.softmax_apart,
    attention_portable.softmax_between_transposes,
    neural.dropout,
    neural.relu,
    neural.softplus,
    neural.log_softmax,
    neural.gelu,
    neural.rotary,
    trigonometry.sin,
    trigonometry.cos,
    scattering.tensor_scatter,
    scattering.write_elements,
    scattering.scatter_elements,
    scattering.scatter_sums,
    scattering.top_k_in_order,
    scattering.top_k,
    primitives.not_greater,
    *primitives.FORMS,
)

FORMS: dict[str, tuple[Form, ...]] = {
    op: tuple(form for form in _BEST_FIRST if form.op == op) for op in {form.op: None for form in _BEST_FIRST}
}
