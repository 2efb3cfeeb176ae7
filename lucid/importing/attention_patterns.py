"""Patterns of attention: the operator and what is written out, masks by their meaning, grouped and packed heads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from lucid import ops
from lucid.importing.matching import (
    AND,
    VIEWS,
    Sizes,
    added,
    aten,
    element_type,
    is_call,
    is_sum,
    is_true,
    positions,
    replace,
)
from lucid.ops.tensor.tensor import Tensor


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    key_mask: Tensor | None,
    *,
    is_causal: bool,
    scale: float | None = None,
) -> Tensor:
    """`ops.attention` of heads (N, H, L, d), with the parts that a mask was made of."""
    result: Tensor = ops.attention(query, key, value, mask, key_mask, is_causal=is_causal, scale=scale)
    return result


def packed_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    key_mask: Tensor | None,
    *,
    heads: int,
    kv_heads: int,
    is_causal: bool,
    scale: float | None = None,
) -> Tensor:
    """`ops.attention` of heads side by side, (N, L, H * d)."""
    result: Tensor = ops.attention(
        query, key, value, mask, key_mask, heads=heads, kv_heads=kv_heads, is_causal=is_causal, scale=scale
    )
    return result


def rotated(x: Tensor, cos: Tensor, sin: Tensor, half: int, heads: int | None = None) -> Tensor:
    """`ops.rotary_embedding` by tables (1 or N, 1, L, 2 * half) whose halves are equal."""
    cos, sin = (table[:, 0, :, :half] for table in (cos, sin))
    if isinstance(cos.shape[0], int) and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    return ops.rotary_embedding(x, cos, sin, heads=heads)


def written_attention_rule(graph: Graph, node: Node, sizes: Sizes) -> None:
    """softmax(scale * query @ key.T + masks) @ value, written out."""
    if not is_call(node, aten.matmul.default) or not is_call(node.args[0], aten.softmax.int):
        return
    weights, value = node.args
    scores, axis, *dtype = weights.args
    if len(weights.users) != 1 or axis not in (-1, 3) or dtype not in ([], [None], [element_type(scores)]):
        return
    with graph.inserting_before(node):
        found = _scores(graph, scores, sizes)
        if found is not None and all(_leaves_keys(term, sizes) for term in found.terms):
            operands = (found.query, found.key, value)
            _to_attention(graph, node, sizes, operands, found.terms, is_causal=False, scale=found.scale)


class Scores(NamedTuple):
    """Scores of attention taken apart."""

    query: Node
    key: Node
    scale: float
    terms: list[Node]
    """Numbers that are added, and conditions outside of which a key is not seen."""


def _scores(graph: Graph, node: Any, sizes: Sizes) -> Scores | None:
    """What scores (N, H, L, S) are made of: a product, a scale, then sums and masks."""
    if not isinstance(node, Node) or len(node.users) != 1 or len(sizes.of(node)) != 4:
        return None
    if is_call(node, aten.matmul.default):
        query, transposed = node.args
        fits = len(sizes.of(query)) == len(sizes.of(transposed)) == 4
        return Scores(query, _transposed(graph, transposed), 1.0, []) if fits else None
    if is_call(node, aten.mul.Tensor, aten.div.Tensor):
        factor, inner = sizes.constant(node.args[1]), _scores(graph, node.args[0], sizes)
        if inner is None or inner.terms or not factor:
            return None
        return inner._replace(scale=inner.scale * (factor if node.target is aten.mul.Tensor else 1 / factor))
    ways = [node.args, node.args[::-1]] if is_sum(node) else [_masked(graph, node, sizes)]
    for scores, term in ways:
        inner = _scores(graph, scores, sizes) if isinstance(term, Node) else None
        if inner is not None and _broadcasts(sizes.of(term), sizes.of(node)):
            return inner._replace(terms=[*inner.terms, *_parts(graph, term, sizes)])
    return None


def _transposed(graph: Graph, node: Node) -> Node:
    """Keys (N, H, S, d) of (N, H, d, S)."""
    if is_call(node, aten.transpose.int) and {axis % 4 for axis in node.args[1:]} == {2, 3}:
        inner: Node = node.args[0]
        return inner
    split = is_call(node, aten.permute.default) and list(node.args[1]) == [0, 2, 3, 1]
    arguments = (node.args[0], 1, 2) if split else (node, 2, 3)
    return added(graph, node, aten.transpose.int, *arguments)


def _masked(graph: Graph, node: Node, sizes: Sizes) -> tuple[Any, Any]:
    """x and a condition, if a node is x where the condition holds and the lowest number elsewhere."""
    low = sizes.constant(node.args[2]) if len(node.args) == 3 else None
    lowest = low is not None and element_type(node).is_floating_point and low <= torch.finfo(element_type(node)).min
    if lowest and is_call(node, aten.where.self, aten.where.ScalarOther, aten.where.Scalar):
        return node.args[1], node.args[0]
    if lowest and is_call(node, aten.masked_fill.Scalar, aten.masked_fill.Tensor):
        hidden = node.args[1]
        while is_call(hidden, aten.expand.default, aten.expand_as.default) and len(sizes.of(hidden.args[0])) == 4:
            hidden = hidden.args[0]
        if is_call(hidden, aten.logical_not.default, aten.bitwise_not.default):
            return node.args[0], hidden.args[0]
        return node.args[0], added(graph, hidden, aten.logical_not.default, hidden)
    return None, None


def _parts(graph: Graph, mask: Node, sizes: Sizes) -> list[Node]:
    """Numbers that are added to scores as other such numbers and conditions, if there are conditions in them."""
    if element_type(mask) == torch.bool:
        return [mask]
    if is_call(mask, aten.expand.default) and len(sizes.of(mask.args[0])) == 4:
        return _parts(graph, mask.args[0], sizes)
    zero, condition = _masked(graph, mask, sizes)
    if condition is not None and sizes.constant(zero) == 0:
        return [condition]
    if is_sum(mask) and all(isinstance(part, Node) for part in mask.args):
        parts = [part for argument in mask.args for part in _parts(graph, argument, sizes)]
        if any(element_type(part) == torch.bool for part in parts):
            return parts
    return [mask]


def _leaves_keys(term: Node, sizes: Sizes) -> bool:
    """Whether a condition hides keys of a text or later keys, so that queries that see nothing are padding at most."""
    if element_type(term) != torch.bool:
        return True
    for part in _conditions(term):
        table = _table(part, sizes)
        own_key = table is not None and bool(table.diagonal(dim1=-2, dim2=-1).all())
        if not (own_key or is_true(part) or sizes.of(part)[-2] == "1" or _is_causal(part, sizes, sizes.of(part)[-1])):
            return False
    return True


def _table(term: Any, sizes: Sizes) -> torch.Tensor | None:
    """The square of a buffer of which a condition (1, 1, L, L) is the first rows and columns."""
    shape = sizes.of(term)
    while is_call(term, aten.slice.Tensor) and term.args[1] in (2, 3) and not term.args[2] and len(term.args) == 4:
        term = term.args[0]
    table = sizes.constants.get(term.target) if isinstance(term, Node) and term.op == "placeholder" else None
    return table if table is not None and shape[:2] == ("1", "1") and shape[2] == shape[3] else None


def _broadcasts(shape: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    pairs = zip(shape[::-1], wanted[::-1], strict=False)
    return 1 < len(shape) <= len(wanted) and all(size in ("1", other) for size, other in pairs)


def attention_rule(graph: Graph, node: Node, sizes: Sizes) -> None:
    """scaled_dot_product_attention."""
    if not is_call(node, aten.scaled_dot_product_attention.default):
        return
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), node.args[3:], strict=False)) | dict(node.kwargs)
    if options.get("dropout_p"):
        return
    mask = options.get("attn_mask")
    with graph.inserting_before(node):
        terms = [] if mask is None else _parts(graph, mask, sizes) if len(sizes.of(mask)) == 4 else [mask]
        _to_attention(
            graph,
            node,
            sizes,
            node.args[:3],
            terms,
            is_causal=bool(options.get("is_causal")),
            scale=options.get("scale"),
            grouped=bool(options.get("enable_gqa")),
        )


def _to_attention(
    graph: Graph,
    node: Node,
    sizes: Sizes,
    operands: Sequence[Any],
    terms: Sequence[Node],
    *,
    is_causal: bool,
    scale: float | None,
    grouped: bool = False,
) -> None:
    """Replace a node by attention, with its masks taken apart and repeated heads as grouped ones."""
    query, key, value = operands
    shapes = [sizes.of(x) for x in operands]
    if any(len(shape) != 4 for shape in shapes) or any(shape[0] != shapes[0][0] for shape in shapes):
        return
    key_heads, value_heads = _grouped(key, sizes), _grouped(value, sizes)
    if key_heads is not None and value_heads is not None and sizes.of(key_heads)[1] == sizes.of(value_heads)[1]:
        key, value = key_heads, value_heads
    elif not grouped and any(shape[1] != shapes[0][1] for shape in shapes):
        return
    conditions = [term for term in terms if element_type(term) == torch.bool]
    causal, key_mask, rest = _terms(graph, conditions, sizes, shapes[0], shapes[1])
    mask = _joined(graph, [term for term in terms if term not in conditions], aten.add.Tensor)
    if mask is None or rest is None:
        mask = mask or rest
    else:
        mask = added(graph, mask, aten.where.ScalarOther, rest, mask, torch.finfo(element_type(mask)).min)
    replace(graph, node, attention, (query, key, value, mask, key_mask), is_causal=is_causal or causal, scale=scale)


def packing_rule(graph: Graph, node: Node, sizes: Sizes) -> None:
    """Attention of heads that are only split for it, and joined after it: of heads side by side."""
    if not is_call(node, attention) or len(node.users) != 1:
        return
    (back,) = node.users
    if not is_call(back, aten.transpose.int) or set(back.args[1:]) != {1, 2} or len(back.users) != 1:
        return
    (joined,) = back.users
    while is_call(joined, aten.clone.default) and len(joined.users) == 1:
        (joined,) = joined.users
    n, heads, length, width = node.meta["val"].shape
    wanted = (*(sizes.text(size) for size in (n, length)), str(heads * width) if isinstance(heads * width, int) else "")
    if not is_call(joined, *VIEWS) or sizes.of(joined) != wanted:
        return
    packed = [_side_by_side(graph, x, sizes) for x in node.args[:3]]
    if any(each is None for each in packed):
        return
    kv_heads = {x.meta["val"].shape[1] for x in node.args[1:3]}
    if len(kv_heads) == 1:
        replace(
            graph,
            joined,
            packed_attention,
            (*packed, *node.args[3:]),
            heads=heads,
            kv_heads=kv_heads.pop(),
            **node.kwargs,
        )


def _side_by_side(graph: Graph, node: Any, sizes: Sizes) -> Node | None:
    """What (N, H, L, d) was split from, (N, L, H * d)."""
    if is_call(node, rotated) and len(node.args) == 4:
        inner = _side_by_side(graph, node.args[0], sizes)
        if inner is None:
            return None
        with graph.inserting_before(node):
            new = graph.call_function(rotated, (inner, *node.args[1:], node.meta["val"].shape[1]))
        new.meta = {**node.meta, "val": inner.meta["val"]}
        return new
    if not is_call(node, aten.transpose.int) or set(node.args[1:]) != {1, 2}:
        return None
    split = node.args[0]
    if not is_call(split, *VIEWS):
        return None
    x = split.args[0]
    n, length, heads, width = split.meta["val"].shape
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    return x if sizes.of(x) == (sizes.text(n), sizes.text(length), str(heads * width)) else None


def _grouped(node: Any, sizes: Sizes) -> Node | None:
    """Heads (N, H_kv, S, d) that are each repeated: reshape(expand(unsqueeze(x, 2)))."""
    if not is_call(node, *VIEWS):
        return None
    inner = node.args[0]
    while is_call(inner, aten.clone.default):
        inner = inner.args[0]
    if not is_call(inner, aten.expand.default) or len(sizes.of(inner)) != 5:
        return None
    lifted = inner.args[0]
    while is_call(lifted, aten.slice.Tensor) and sizes.of(lifted) == sizes.of(lifted.args[0]):
        lifted = lifted.args[0]
    if not is_call(lifted, aten.unsqueeze.default) or lifted.args[1] not in (2, -3):
        return None
    n, groups, _, s, d = sizes.of(inner)
    x = lifted.args[0]
    return x if sizes.of(x) == (n, groups, s, d) and sizes.of(node)[2:] == (s, d) else None


def _terms(
    graph: Graph, masks: Sequence[Node], sizes: Sizes, query: tuple[str, ...], key: tuple[str, ...]
) -> tuple[bool, Any, Any]:
    """Boolean masks (N, H, L, S) as causality, a mask of keys (N, S), and what is left."""
    causal, keys, rest = False, [], []
    for term in (term for mask in masks for term in _conditions(mask)):
        if is_true(term):
            continue
        if query[2] == key[2] and _is_causal(term, sizes, key[2]):
            causal = True
            continue
        if element_type(term) != torch.bool:
            term = added(graph, term, aten.ne.Scalar, term, 0)  # a part of `logical_and` that is no condition
        own = _key_term(graph, term, sizes, query[0], key[2])
        if own is not None:
            keys.append(own)
        else:
            rest.append(term)
    both = aten.logical_and.default
    return causal, _joined(graph, keys, both), _joined(graph, rest, both)


def _conditions(node: Any) -> Iterator[Node]:
    """The conditions that hold together, without expansions, which attention does by itself."""
    if is_call(node, *AND):
        for part in node.args:
            yield from _conditions(part)
    elif is_call(node, aten.expand.default) and len(node.args[0].meta["val"].shape) == 4:
        yield from _conditions(node.args[0])
    else:
        yield node


def _is_causal(node: Any, sizes: Sizes, length: str) -> bool:
    """Whether a condition is: the key's position is not after the query's, both from 0 to a length."""
    table = _table(node, sizes)
    if table is not None and sizes.of(node)[-1] == length:
        return bool(table.dtype == torch.bool and torch.equal(table[0, 0], torch.ones_like(table[0, 0]).tril()))
    if is_call(node, aten.le.Tensor):
        key, query = node.args
    elif is_call(node, aten.ge.Tensor):
        query, key = node.args
    else:
        return False
    return all(
        found is not None and found[:2] == (0, axis) and sizes.text(found.length) == length
        for found, axis in ((positions(query), -2), (positions(key), -1))
    )


def _key_term(graph: Graph, node: Node, sizes: Sizes, batch: str, length: str) -> Node | None:
    """A condition (N, 1, 1, S) as a mask of keys (N, S), added to the graph."""
    if sizes.of(node) not in ((batch, "1", "1", length), ("1", "1", "1", length)) or sizes.of(node)[0] != batch:
        return None
    if is_call(node, aten.index.Tensor) and len(node.args[1]) == 2:
        source, (row, column) = node.args
        rows, columns = positions(row), positions(column)
        whole = sizes.of(source) == (batch, length)
        if whole and rows is not None and columns is not None and (rows[:2], columns[:2]) == ((0, -4), (0, -1)):
            lengths = (sizes.text(rows.length), sizes.text(columns.length))
            if lengths == (batch, length) and element_type(source) == torch.bool:
                return source
    return added(graph, node, aten.squeeze.dims, node, [1, 2])


def _joined(graph: Graph, terms: Sequence[Node], target: Any) -> Node | None:
    """What an operator of two makes of all terms."""
    joined: Node | None = None
    for term in terms:
        joined = term if joined is None else added(graph, term, target, joined, term)
    return joined
