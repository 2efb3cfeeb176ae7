"""The forms of Lucid's ops, by family, and the order in which an op's forms are tried."""

from lucid.export.form import Form
from lucid.export.forms import (
    attention,
    attention_cpu,
    attention_cuda,
    attention_half,
    attention_portable,
    attention_windows,
    buffered_attention,
    buffers,
    channel_norms,
    experts,
    extremes,
    int8,
    integers,
    interpolation,
    loops,
    neural,
    places,
    plain,
    quantized,
    quantized_tables,
    rotary,
    trigonometry,
)

# Best first. A form refuses what the target would not compute exactly; after the last form comes the body.
_BEST_FIRST: tuple[Form, ...] = (
    # attention
    attention_half.in_float32,
    attention_cpu.query_blocks,
    attention_cpu.three_products,
    attention_windows.window_blocks,
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
    integers.reduce_sum,
    integers.products_with_ones,
    integers.reduce_prod,
    integers.halves_multiplied,
    integers.pow_,
    integers.repeated_squares,
    integers.int_floor_div,
    integers.int_mod,
    # weights in few bits
    quantized.matmul_nbits,
    quantized.dequantize_linear,
    quantized.in_float32,
    quantized_tables.gather_block_quantized,
    quantized.unpack_codes,
    int8.dynamic,
    int8.rows,
    int8.static,
    # experts
    experts.moe,
    experts.scan,
    experts.split_products,
    # the rest
    interpolation.resize,
    attention_portable.softmax_apart,
    neural.dropout,
    neural.relu,
    neural.softplus,
    neural.log_softmax,
    neural.gelu,
    rotary.rotary,
    trigonometry.sin,
    trigonometry.cos,
    buffers.tensor_scatter,
    buffers.scatter_elements,
    places.scatter_elements,
    places.scatter_sums,
    places.top_k,
    *plain.FORMS,
)

FORMS: dict[str, tuple[Form, ...]] = {
    op: tuple(form for form in _BEST_FIRST if form.op == op) for op in {form.op: None for form in _BEST_FIRST}
}
