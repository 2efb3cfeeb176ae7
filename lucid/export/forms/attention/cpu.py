"""Forms of attention tuned for onnxruntime's CPU provider (docs/benchmarks.md describes how they were measured).

Two costs dominate there. A causal `Attention` node computes all L x L scores and discards half of them; and it masks
with the lowest number, for which the exponential is slow (`fill.py`).

So queries are computed in blocks, each with the keys it can see; and where masks alone hide keys, or queries are many,
hidden keys get a score that is low enough to vanish in the sums but high enough for the exponential's fast path. Both
are written in Lucid's own ops, as another body of attention.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lucid.core.graph.types import float32
from lucid.core.graph.values import Node
from lucid.core.sizes.dims import same
from lucid.core.targets.runtimes import FILLED_MASKS
from lucid.export.builder import Builder
from lucid.export.form import Taken, form, refuse, refuse_slower, refuse_wrong
from lucid.export.forms.attention.blocks import copied, filled, handed_on, multiplied
from lucid.export.forms.attention.by_length import refuse_unexpected, said_up_to
from lucid.export.forms.attention.call import Call, refuse_scale
from lucid.export.forms.attention.few_heads import refuse_unfit_for_products
from lucid.export.forms.attention.products import as_given, said_at_once, split
from lucid.export.forms.attention.scan import FIRST_BLOCKS, WHOLE, WHOLE_IF_CAPPED, of_any_length
from lucid.ops import attention

# Up to so many queries the plain node, or products where scores are capped, are as fast; more where masks hide keys.
SHORT, SHORT_IF_CAPPED, SHORT_IF_MASKED, SHORT_IF_NOT_CAUSAL = 64, 96, 128, 192
# The rows of a block, up to so many queries: fewer rows compute fewer scores, and more copies of keys. Beyond, memory
# matters more than the few percent that larger blocks gain.
ROWS = ((512, 64), (1024, 128), (4096, 256))
ROWS_BEYOND = 128
# The same where blocks hand on their keys, above a length: with fewer queries copies are as fast. Beyond the last limit
# memory matters here too, since two such caches are alive at a time.
HANDED_ON_ABOVE = 1024
ROWS_HANDED_ON, ROWS_HANDED_ON_IF_GROUPED = ((2048, 128), (4096, 256)), ((2048, 128),)


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal softcap",
    name="query blocks",
    opset=23,
    kind="blocks",
    strategy="blocks",
)
def query_blocks(build: Builder, node: Node) -> Taken:
    call = Call.of(node)
    _refuse_unfit_for_blocks(build, call)
    length = call.queries
    if isinstance(length, int) or not call.options.is_causal:
        rows = _known_rows(build, call)
        return Taken(filled(build, call, rows, copied), _share(rows))

    whole = WHOLE_IF_CAPPED if call.options.softcap else WHOLE
    refuse_unexpected(build, whole)
    return Taken(
        of_any_length(build, node, call, length, whole),
        f"{said_up_to(build, whole, said_at_once(call))}{_share([2048 // FIRST_BLOCKS] * FIRST_BLOCKS)}",
    )


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal",
    name="query blocks, in products",
    opset=23,
    kind="blocks",
    domain="com.microsoft",
    kernel="FusedMatMul",
    strategy="blocks",
)
def blocks_in_products(build: Builder, node: Node) -> Taken:
    """The same for known lengths, in products, which all threads share."""
    call = Call.of(node)
    _refuse_unfit_for_blocks(build, call)
    refuse_unfit_for_products(build, call)
    if not isinstance(call.queries, int):
        refuse("only a known number of queries is cut into products")
    rows = _known_rows(build, call)
    output = as_given(call, filled(build, split(call), rows, multiplied))
    return Taken(output, f"{_share(rows)}; all threads share a head's products")


@form(
    attention,
    takes="mask key_mask heads kv_heads scale is_causal",
    name="query blocks, keys handed on",
    opset=23,
    kind="blocks",
    strategy="blocks",
)
def blocks_with_a_cache(build: Builder, node: Node) -> Taken:
    """The same for known lengths, where each block gets the keys of those before it as a cache."""
    call = Call.of(node)
    _refuse_unfit_for_blocks(build, call)
    length = call.queries
    if not call.options.is_causal or not isinstance(length, int):
        refuse("only a known number of causal blocks hand keys on")
    _refuse_short(build, length, SHORT, "blocks")
    limits = ROWS_HANDED_ON_IF_GROUPED if call.grouped else ROWS_HANDED_ON
    rows = _sizes(length, _rows(length, limits))
    if not HANDED_ON_ABOVE < length <= limits[-1][0]:
        refuse_slower(build, attention, f"for {length} queries copies of keys are as fast, or take less memory")
    if len(rows) == 1:
        refuse("a single block has no other to hand keys on to")
    return Taken(filled(build, call, rows, handed_on), f"{_share(rows)}; each block hands its keys on as a cache")


def _known_rows(build: Builder, call: Call) -> list[int]:
    """The rows of each block of a known number of queries; all are one where keys are hidden by masks alone."""
    length = call.queries
    if not call.options.is_causal and not call.masked:
        refuse("nothing is masked, so no scores can be left out")
    if not isinstance(length, int):
        refuse("texts of any length are padded little, and filling pays where a third of the keys is hidden")
    if call.options.is_causal:
        short = SHORT_IF_CAPPED if call.options.softcap else SHORT
        _refuse_short(build, length, SHORT_IF_MASKED if call.masked else short, "blocks")
        return _sizes(length, _rows(length, ROWS))
    _refuse_short(build, length, SHORT_IF_NOT_CAUSAL, "filled masks")
    if isinstance(call.new_keys, int) and call.new_keys <= SHORT_IF_NOT_CAUSAL:
        refuse_slower(build, attention, f"the scores of {call.new_keys} keys are too few for the bound on them to pay")
    return [length]


def _refuse_short(build: Builder, length: int, limit: int, what: str) -> None:
    if length < 2:
        refuse("at most one query has nothing to be cut into blocks")
    if length <= limit:
        refuse_slower(build, attention, f"{length} queries are too few for {what} to be faster")


def _rows(length: int, limits: Sequence[tuple[int, int]]) -> int:
    """How many queries of a text of known length are a block."""
    return next((rows for limit, rows in limits if length <= limit), ROWS_BEYOND)


def _share(rows: Sequence[int]) -> str:
    """What blocks gain, as text: the share of the scores that they compute, if there are several."""
    if len(rows) == 1:
        return "hidden keys get scores for which exp is fast"
    length, ends = sum(rows), accumulate(rows)
    share = sum(count * end for count, end in zip(rows, ends, strict=True)) / length**2
    return f"{len(rows)} blocks of queries compute {share:.0%} of the scores at {length}, the node all of them"


def _refuse_unfit_for_blocks(build: Builder, call: Call) -> None:
    if call.dtype != float32:
        refuse(f"the bound on hidden weights is proven for float32, not {call.dtype}")
    refuse_scale(call.options.scale)
    if call.options.is_causal and not same(call.queries, call.new_keys):
        refuse("queries and keys may differ in number")
    for mask in (call.mask, call.key_mask):
        if mask is not None and mask.dtype.kind == "float":
            refuse("a floating mask may hold any number; only keys that are certainly hidden can be filled")
    if call.mask is not None and call.mask.ndim >= 3 and not same(call.mask.shape[-3], 1):
        refuse("a mask for each head costs as much as the scores")
    refuse_wrong(build, FILLED_MASKS)


def _sizes(length: int, at_most: int) -> list[int]:
    """Equal blocks of at most so many queries, but for the first one, which has the rest."""
    blocks = -(-length // at_most)
    size = -(-length // blocks)
    rest = length - (blocks - 1) * size
    return [*([rest] if rest > 0 else []), *[size] * (blocks - 1)]
