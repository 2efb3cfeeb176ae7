"""The plan of an attention on onnxruntime's CPU provider: which form writes it, and in which parts.

`plan` decides, by the numbers in `thresholds.py`; it writes nothing. Two costs dominate on that provider. A causal
`Attention` node computes all L x L scores and discards half of them; and it masks with the lowest number, for which
the exponential is slow (`fill.py`). The page "Benchmarks" describes how the strategies were measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import NamedTuple

from lucid.core.graph.types import float32
from lucid.core.sizes.dims import Dim, Size, same, sym_min
from lucid.core.targets.record import Strategy
from lucid.core.targets.runtimes import FILLED_MASKS
from lucid.export.form import Refused, refuse, refuse_slower, refuse_wrong
from lucid.export.forms.attention import thresholds as t
from lucid.export.forms.attention.call import (
    Call,
    refuse_common,
    refuse_inexact,
    refuse_scale,
    refuse_unfit_for_multi_head,
)
from lucid.export.target import Target
from lucid.ops import attention

IN_PRODUCTS = "query blocks, in products"
HANDED_ON = "query blocks, keys handed on"
BLOCKS = "query blocks"
TILES, TILES_IF_LONG = "MultiHeadAttention, in tiles", "MultiHeadAttention, in tiles if long"
THREE_PRODUCTS = "three products"
WINDOWS = "window blocks"
SHARED, SHARED_IF_LONG = "products, on all threads", "products if long, on all threads"
CAPPED = "products, for their tanh"
SINKS = "products, with sinks"
GROUPS = "groups as queries"
NODE = "the plain node"


@dataclass(frozen=True)
class Plan:
    """How a form computes a call."""

    form: str  # its name, as `explain` shows it
    why: str  # why it is the best
    limit: int | None = None  # where the number of queries is open: up to so many, `short` computes the call
    short: str = ""  # the form that computes all scores at once; empty where the target expects no such length
    rows: tuple[int, ...] = ()  # the queries of each block where their number is known; of a block of a window
    each: str = ""  # the form of each block of an open number of queries
    fill: bool = False  # whether the number that hides keys is worth choosing; otherwise it is the lowest one

    @property
    def note(self) -> str:
        """The note that `explain` shows."""
        short = f"up to {self.limit} queries it is {self.short}; " if self.short else ""
        return f"{short}{self.why}" + (f"; each block is {self.each}" if self.each not in ("", NODE) else "")


class Candidate(NamedTuple):
    """A form, as declared (see `lucid.export.form.Form`), with what decides whether and how it computes a call."""

    name: str
    decide: Callable[[Call, Target], Plan]
    takes: str  # the optional operands and the options that it computes
    strategy: Strategy
    opset: int = 17
    kind: str = "blocks"
    kernel: str = ""

    def covers(self, call: Call) -> bool:
        """Whether it computes all that a call asks for."""
        return self.takes == "*" or call.asks_for <= set(self.takes.split())


def plan(call: Call, target: Target, among: Sequence[Candidate] | None = None) -> Plan:
    """The plan of the first form, of all or of these, that computes a call exactly and at least as fast as others.

    Raises:
        Refused: if there is none, with the reason of the last one.
    """
    reason = Refused("no form takes what it asks for")
    for candidate in CANDIDATES if among is None else among:
        if candidate.covers(call):
            try:
                return candidate.decide(call, target)
            except Refused as refused:
                reason = refused
    raise reason


# Query blocks ---------------------------------------------------------------------------------------------------------


def _blocks_in_products(call: Call, target: Target) -> Plan:
    """For a known length, blocks as products, which all threads share."""
    _refuse_unfit_for_blocks(call, target)
    _refuse_unfit_for_products(call, target)
    if not isinstance(call.queries, int):
        refuse("only a known number of queries is cut into products")
    rows = _known_rows(call, target)
    return Plan(IN_PRODUCTS, f"{_share(rows)}; all threads share a head's products", rows=rows, fill=_bound_pays(call))


def _blocks_with_a_cache(call: Call, target: Target) -> Plan:
    """For a known length: each block gets the keys of the blocks before it as a cache."""
    _refuse_unfit_for_blocks(call, target)
    length = call.queries
    if not call.options.is_causal or not isinstance(length, int):
        refuse("only a known number of causal blocks hand keys on")
    _refuse_short(target, length, t.SHORT, "blocks")
    by_length = t.ROWS_HANDED_ON_IF_GROUPED if call.grouped else t.ROWS_HANDED_ON
    rows = _cut(length, by_length)
    if not t.HANDED_ON_ABOVE < length <= by_length[-1][0]:
        refuse_slower(target, attention, f"for {length} queries copies of keys are as fast, or take less memory")
    if len(rows) == 1:
        refuse("there is a single block, so no keys are handed on")
    why = f"{_share(rows)}; each block hands its keys on as a cache"
    return Plan(HANDED_ON, why, rows=rows, fill=_bound_pays(call))


def _query_blocks(call: Call, target: Target) -> Plan:
    """Blocks of queries, each with a copy of the keys that it can see; of an open length by a loop."""
    _refuse_unfit_for_blocks(call, target)
    if isinstance(call.queries, int) or not call.options.is_causal:
        rows = _known_rows(call, target)
        return Plan(BLOCKS, _share(rows), rows=rows, fill=_bound_pays(call))
    share = _share([2048 // t.FIRST_BLOCKS] * t.FIRST_BLOCKS)
    chosen = _if_long(BLOCKS, share, t.WHOLE_IF_CAPPED if call.options.softcap else t.WHOLE, call, target)
    shared = has_few_heads(call) and call.split and call.fits_products
    return replace(chosen, each=CAPPED if call.options.softcap else SHARED if shared else NODE)


def _known_rows(call: Call, target: Target) -> tuple[int, ...]:
    """The rows of each block of a known number of queries; all are one where keys are hidden by masks alone."""
    length, is_causal = call.queries, call.options.is_causal
    if not is_causal and not call.masked:
        refuse("nothing is masked, so no scores can be left out")
    if not isinstance(length, int):
        refuse("texts of any length have little padding; filling pays only where a third of the keys is hidden")
    if is_causal:
        short = t.SHORT_IF_CAPPED if call.options.softcap else t.SHORT
        _refuse_short(target, length, t.SHORT_IF_MASKED if call.masked else short, "blocks")
        return _cut(length, t.ROWS)
    _refuse_short(target, length, t.SHORT_IF_NOT_CAUSAL, "filled masks")
    if isinstance(call.new_keys, int) and call.new_keys <= t.SHORT_IF_NOT_CAUSAL:
        refuse_slower(target, attention, f"the scores of {call.new_keys} keys are too few for the bound on them to pay")
    return (length,)


def _cut(length: int, by_length: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Equal blocks of at most as many queries as a table has for a length; the first one has the rest."""
    at_most = next((rows for limit, rows in by_length if length <= limit), t.ROWS_BEYOND)
    blocks = -(-length // at_most)
    size = -(-length // blocks)
    rest = length - (blocks - 1) * size
    return (*((rest,) if rest > 0 else ()), *(size,) * (blocks - 1))


def _share(rows: Sequence[int]) -> str:
    """The gain of blocks, as text: the share of the scores that they compute, if there are several."""
    if len(rows) == 1:
        return "hidden keys get scores for which exp is fast"
    length, ends = sum(rows), accumulate(rows)
    share = sum(count * end for count, end in zip(rows, ends, strict=True)) / length**2
    return f"{len(rows)} blocks of queries compute {share:.0%} of the scores at {length}, the node all of them"


def _bound_pays(call: Call) -> bool:
    return not (call.options.is_causal and isinstance(call.queries, int) and call.queries <= t.UNBOUNDED)


def _refuse_short(target: Target, length: int, limit: int, what: str) -> None:
    if length < 2:
        refuse("a single query cannot be cut into blocks")
    if length <= limit:
        refuse_slower(target, attention, f"{length} queries are too few for {what} to be faster")


def _refuse_unfit_for_blocks(call: Call, target: Target) -> None:
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
    refuse_wrong(target, FILLED_MASKS)


# Tiles ----------------------------------------------------------------------------------------------------------------

_IN_TILES = "nothing is masked, so tiles of scores stay in the caches"


def _tiles(call: Call, target: Target) -> Plan:
    """Tiles alone, where texts are long."""
    for size, what in ((call.queries, "queries"), (call.keys, "keys")):
        _refuse_fewer(target, size, _least_tiled(call), f"{size} {what} are too few for tiles to be faster")
    _refuse_unfit_for_tiles(call)
    return Plan(TILES, _IN_TILES)


def _tiles_if_long(call: Call, target: Target) -> Plan:
    """Tiles where a text turns out to be long."""
    if not isinstance(sym_min(call.queries, call.keys), Dim):
        refuse("the length is known")
    chosen = _if_long(TILES_IF_LONG, _IN_TILES, _least_tiled(call) - 1, call, target)
    refuse_inexact(target, call)
    _refuse_unfit_for_tiles(call)
    return chosen


def _least_tiled(call: Call) -> int:
    return t.TILED_IF_SPLIT if call.split else t.TILED


def _refuse_unfit_for_tiles(call: Call) -> None:
    if call.options.heads is None and not isinstance(call.query.shape[1], int):
        refuse("it takes one known number of heads")
    refuse_unfit_for_multi_head(call)


# Products -------------------------------------------------------------------------------------------------------------

_ON_ALL_THREADS = "all threads work on each head; the node uses one thread per head"


def _three_products(call: Call, target: Target) -> Plan:
    """The node's computation, without its copies."""
    if not call.split:
        refuse("the packed layout of several heads is read faster by the Attention node")
    if call.grouped:
        refuse("grouped heads would need copies of the keys")
    return Plan(THREE_PRODUCTS, "nothing is masked, and heads that are already split are read without a copy")


def _products_of_few_heads(call: Call, target: Target) -> Plan:
    """Products where the Attention node, which computes a head on one thread, would leave others idle."""
    refuse_common(call)
    _refuse_unfit_for_products(call, target)
    return Plan(SHARED, _ON_ALL_THREADS)


def _products_of_few_heads_if_long(call: Call, target: Target) -> Plan:
    """Products of few heads in the branch for long texts, where the length is known only at run time."""
    if isinstance(call.queries, int):
        refuse("the number of queries is known")
    chosen = _if_long(SHARED_IF_LONG, _ON_ALL_THREADS, _least_shared(call) - 1, call, target)
    refuse_inexact(target, call)
    _refuse_many_heads(call, target)
    return chosen


def _capped_scores(call: Call, target: Target) -> Plan:
    """Products where scores are capped: `Tanh` computes eight numbers or more at a time."""
    if not call.options.softcap:
        refuse("no softcap")
    if call.past_key is not None:
        refuse("the node reads a cache without copying it for groups of heads")
    if call.sinks is not None:
        refuse("a sink is one more score, which is not capped")
    return Plan(CAPPED, "onnxruntime's Attention node computes tanh number by number", rows=_capped_rows(call))


def _scores_with_sinks(call: Call, target: Target) -> Plan:
    """Products where each row has one more score, which no operator takes."""
    if call.sinks is None:
        refuse("no sinks")
    refuse_common(call)
    refuse_scale(call.options.scale)
    if not call.fits_products:
        refuse("it computes in float32, and groups of heads over a known number of keys or as many as queries")
    return Plan(SINKS, "the sink is one more score of each row; the heads of a group are rows of one product")


def _capped_rows(call: Call) -> tuple[int, ...]:
    """The blocks of a known number of queries without any mask; empty if one block holds them all."""
    length, options = call.queries, call.options
    many = isinstance(length, int) and length >= t.LONG_IF_CAPPED
    if not many or call.masked or options.ahead is not None or options.holds_weights or not call.fits_products:
        return ()
    assert isinstance(length, int)
    whole, rest = divmod(length, t.ROWS_IF_CAPPED)
    return (*(t.ROWS_IF_CAPPED,) * whole, *((rest,) if rest else ()))


def _refuse_unfit_for_products(call: Call, target: Target) -> None:
    """Refuse calls that products do not compute, and those that the node computes as fast."""
    _refuse_many_heads(call, target)
    _refuse_fewer(
        target, call.queries, _least_shared(call), f"{call.queries} queries are too few to be shared by threads"
    )


def _refuse_many_heads(call: Call, target: Target) -> None:
    refuse_scale(call.options.scale)
    if not call.fits_products:
        refuse("it computes in float32, and groups of heads over a known number of keys")
    if not has_few_heads(call):
        refuse_slower(
            target, attention, f"with more than {t.FEW_HEADS} heads in the batch, the node uses all threads itself"
        )


def _least_shared(call: Call) -> int:
    """The least number of queries for which products of few heads are faster."""
    if call.split:
        return t.SHARED
    return t.SHARED_IF_PACKED_AND_CAUSAL if call.options.is_causal else t.SHARED_IF_PACKED


def has_few_heads(call: Call) -> bool:
    """Whether the heads of all texts may be few. A batch of its own name may be one text; one that is computed, such as
    8*N windows, is none."""
    batch, heads = call.batch, call.options.heads or call.query.shape[1]
    if not isinstance(batch, int):
        batch = 1 if str(batch) in batch.names() else t.FEW_HEADS + 1
    return isinstance(heads, int) and 0 < batch * heads <= t.FEW_HEADS


# Window blocks --------------------------------------------------------------------------------------------------------


def _window_blocks(call: Call, target: Target) -> Plan:
    """Blocks of queries, each with copies of the keys in its window; causal blocks where a window hides nothing."""
    refuse_inexact(target, call)
    window, ahead = call.options.window, call.options.ahead
    if window is None or ahead is None:
        refuse("a query sees all keys on one side")
    if not same(call.queries, call.new_keys):
        refuse("queries and keys may differ in number")
    length, reach = call.queries, window - 1 + ahead
    rows, short = t.NARROW if reach < t.REACH else t.WIDE
    limit = int(short * (rows + reach))
    why = f"{rows} queries at a time get copies of the {rows + reach} keys that they may see"
    if not isinstance(length, int):
        return _if_long(WINDOWS, why, limit, call, target, rows=(rows,))
    if ahead == 0 and t.SHORT < length <= window:
        return Plan(WINDOWS, f"a window of {window} hides none of {length} keys")
    if length <= limit:
        refuse_slower(target, attention, f"{length} queries are too few for windows of {reach + 1} keys to be faster")
    return Plan(WINDOWS, why, rows=(rows,))


# Groups as queries ----------------------------------------------------------------------------------------------------


def _groups_as_queries(call: Call, target: Target) -> Plan:
    """The heads of a group as queries of one head, where there is a single query; the plain node for more."""
    refuse_inexact(target, call)
    if not call.grouped or call.past_key is None:
        refuse("there is no cache that groups of heads read")
    if not same(call.queries, call.new_keys):
        refuse("queries and new keys may differ in number")
    why = "the heads of a group are queries of one head, which reads the cache once"
    if same(call.queries, 1):
        return Plan(GROUPS, why)
    if isinstance(call.queries, int):
        refuse("reading the cache takes most of the time only with a single query")
    return Plan(GROUPS, f"a single query: {why}; more: {NODE}", limit=1)


# Open lengths ---------------------------------------------------------------------------------------------------------


def _if_long(form: str, why: str, limit: int, call: Call, target: Target, rows: tuple[int, ...] = ()) -> Plan:
    """The plan for an open number of queries: a form above a limit, all scores at once up to it."""
    expects = target.expects
    if not expects(limit + 1):
        lengths = target.lengths
        refuse(f"at most {limit} queries are expected (lengths={lengths}), too few for it to be faster")
    return Plan(form, why, limit, at_once(call) if expects(0, limit) else "", rows)


def at_once(call: Call) -> str:
    """The form that computes all scores at once in a branch for short texts."""
    if call.options.softcap:
        return CAPPED
    unmasked = not call.masked and call.options.ahead is None
    return THREE_PRODUCTS if unmasked and call.split and not call.grouped else NODE


def _refuse_fewer(target: Target, size: Size, least: int, what: str) -> None:
    """Refuse a form that is slower for fewer queries or keys, where they are fewer or may be."""
    if isinstance(size, int) and size < least:
        refuse_slower(target, attention, what)
    if not isinstance(size, int) and target.expects(0, least - 1):
        refuse_slower(target, attention, "texts may be short, where it is slower")


_NO_PAST = "mask key_mask heads kv_heads scale is_causal"
CANDIDATES: tuple[Candidate, ...] = (
    Candidate(IN_PRODUCTS, _blocks_in_products, _NO_PAST, "blocks", 23, kernel="FusedMatMul"),
    Candidate(HANDED_ON, _blocks_with_a_cache, _NO_PAST, "blocks", 23),
    Candidate(BLOCKS, _query_blocks, f"{_NO_PAST} softcap", "blocks", 23),
    Candidate(TILES, _tiles, "heads kv_heads scale", "tiles", kind="contrib", kernel="MultiHeadAttention"),
    Candidate(
        TILES_IF_LONG, _tiles_if_long, "heads kv_heads scale", "tiles", 23, kernel="MultiHeadAttention Attention"
    ),
    Candidate(THREE_PRODUCTS, _three_products, "heads kv_heads scale need_weights", "products", kernel="FusedMatMul"),
    Candidate(
        WINDOWS,
        _window_blocks,
        "key_mask heads kv_heads scale is_causal window window_after softcap",
        "blocks",
        23,
        kernel="Attention",
    ),
    Candidate(SHARED, _products_of_few_heads, f"{_NO_PAST} window window_after", "products", kernel="FusedMatMul"),
    Candidate(
        SHARED_IF_LONG,
        _products_of_few_heads_if_long,
        f"{_NO_PAST} window window_after",
        "products",
        23,
        kernel="FusedMatMul Attention",
    ),
    Candidate(
        SINKS,
        _scores_with_sinks,
        f"{_NO_PAST} past_key past_value sinks window window_after softcap",
        "products",
        kernel="FusedMatMul",
    ),
    Candidate(CAPPED, _capped_scores, "*", "products", kind="expanded"),
    Candidate(
        GROUPS,
        _groups_as_queries,
        f"{_NO_PAST} past_key past_value window window_after softcap",
        "groups",
        23,
        kernel="Attention",
    ),
)
"""All of them, best first. After them come the plain node and the body."""
