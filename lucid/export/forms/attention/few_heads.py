"""Attention of few heads in products, for onnxruntime's CPU provider.

The Attention node computes a head on one thread, which leaves the others idle where heads are few. All threads share a
product.
"""

from __future__ import annotations

from lucid.core.graph.values import Node
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse, refuse_slower
from lucid.export.forms.attention.by_length import by_length, refuse_short, refuse_unexpected, said_up_to
from lucid.export.forms.attention.call import Call, emit_node, refuse_common, refuse_scale
from lucid.export.forms.attention.node_or_op import refuse_inexact
from lucid.export.forms.attention.products import are_split, bias_of, fit_products, in_products, masked_up_to
from lucid.ops import attention

# Up to so many heads of all texts leave threads idle, one of two or of four: then products are faster, from so many
# queries on; from more, if several heads are packed and have to be split.
FEW_HEADS, SHARED, SHARED_IF_PACKED, SHARED_IF_PACKED_AND_CAUSAL = 3, 128, 512, 1024
SHARED_BY_THREADS = "all threads share a head, of which the node has one do all"


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal window window_after",
    name="products, on all threads",
    kind="blocks",
    domain="com.microsoft",
    kernel="FusedMatMul",
    strategy="products",
)
def products_of_few_heads(build: Builder, node: Node) -> Taken:
    """Products where the Attention node, which computes a head on one thread, would leave others idle."""
    call = Call.of(node)
    refuse_common(call)
    refuse_unfit_for_products(build, call)
    return Taken(in_products(build, call, *bias_of(call)), SHARED_BY_THREADS)


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal window window_after",
    name="products if long, on all threads",
    opset=23,
    kind="blocks",
    domain="com.microsoft",
    kernel="FusedMatMul Attention",
    strategy="products",
)
def products_of_few_heads_if_long(build: Builder, node: Node) -> Taken:
    """The same where a text turns out to be long, chosen when the model runs."""
    call = Call.of(node)
    limit = least_shared(call) - 1
    if isinstance(call.queries, int):
        refuse("the number of queries is known")
    refuse_unexpected(build, limit)
    refuse_inexact(build, call)
    _refuse_many_heads(build, call)
    # Masks are emitted outside of the branches, where all layers share them.
    bias, seeing = bias_of(call)
    build.names_of([x for x in (bias, seeing) if x is not None])
    short = masked_up_to(build, call, limit)
    chosen = by_length(
        build,
        call.queries,
        limit,
        lambda: emit_node(build, short)[0],
        lambda: in_products(build, call, bias, seeing),
        node.types[0],
    )
    return Taken(chosen, f"{said_up_to(build, limit, 'the plain node')}{SHARED_BY_THREADS}")


def refuse_unfit_for_products(build: Builder, call: Call) -> None:
    """Refuse what `in_products` does not compute, and what the node computes as fast."""
    _refuse_many_heads(build, call)
    refuse_short(build, call.queries, least_shared(call), f"{call.queries} queries are too few to be shared by threads")


def _refuse_many_heads(build: Builder, call: Call) -> None:
    refuse_scale(call.options.scale)
    if not fit_products(call):
        refuse("it computes in float32, and groups of heads over a known number of keys")
    if not has_few_heads(call):
        refuse_slower(build, attention, f"threads share more than {FEW_HEADS} heads of all texts in the node, too")


def least_shared(call: Call) -> int:
    """From how many queries on the products of few heads are faster."""
    if are_split(call):
        return SHARED
    return SHARED_IF_PACKED_AND_CAUSAL if call.options.is_causal else SHARED_IF_PACKED


def has_few_heads(call: Call) -> bool:
    """Whether the heads of all texts may be few. A batch of its own name may be one text; one that is computed, such as
    8*N windows, is none."""
    batch, heads = call.batch, call.options.heads or call.query.shape[1]
    if not isinstance(batch, int):
        batch = 1 if str(batch) in batch.names() else FEW_HEADS + 1
    return isinstance(heads, int) and 0 < batch * heads <= FEW_HEADS
