"""The forms of Lucid's ops, by family, and the order in which an op's forms are tried.

Only `export` imports from it. The meaning of an op belongs to its body in `lucid.ops`.
"""

from lucid.export.form import Form
from lucid.export.forms import (
    broadcasting,
    channel_norms,
    convolution,
    experts,
    extremes,
    int8,
    integers,
    loops,
    neural,
    positions,
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

# Best first, as in each `FORMS`. A form refuses what the target would not compute exactly; the body comes last.
_BEST_FIRST: tuple[Form, ...] = (
    # attention
    attention.in_float32,
    *attention_cpu.FORMS,
    attention_cuda.standard,
    attention_cuda.group_query,
    attention.standard,
    attention.contrib,
    attention_portable.zeros_without_keys,
    buffered_attention.group_query_writing,
    buffered_attention.group_query,
    buffered_attention.filled_part,
    buffered_attention.narrow_positions,
    *(*broadcasting.FORMS, *positions.FORMS),
    *integers.FORMS,
    *extremes.FORMS,
    attention_portable.softmax_apart,
    attention_portable.softmax_between_transposes,
    # the other ops, by family; trigonometry replaces a primitive
    *(*neural.FORMS, *channel_norms.FORMS, *loops.FORMS, *quantized.FORMS),
    *(*int8.FORMS, *experts.FORMS, *convolution.FORMS, *trigonometry.FORMS, *scattering.FORMS, *primitives.FORMS),
)

FORMS: dict[str, tuple[Form, ...]] = {
    op: tuple(form for form in _BEST_FIRST if form.op == op) for op in {form.op: None for form in _BEST_FIRST}
}
