"""Patterns: torch programs with larger operations, so that the exporter sees attention, norms and rotations.

torch exports what a model's code does step by step: masks from positions, heads split, repeated and joined, norms from
powers and means. A pattern is replaced only where the result is the same for every input; sizes are compared by the
names of the inputs' axes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, Node

from lucid import ops
from lucid.importing.functions import END
from lucid.ops.tensor.tensor import Tensor

aten = torch.ops.aten


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


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, offset: float = 0.0) -> Tensor:
    """`ops.rms_norm` over the last axis."""
    return ops.rms_norm(x, weight, eps=eps, offset=offset)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, half: int, heads: int | None = None) -> Tensor:
    """`ops.rotary_embedding` by tables (1 or N, 1, L, 2 * half) whose halves are equal."""
    cos, sin = (table[:, 0, :, :half] for table in (cos, sin))
    if isinstance(cos.shape[0], int) and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    return ops.rotary_embedding(x, cos, sin, heads=heads)


LARGER = (attention, packed_attention, rms_norm, rotated)
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range")


_VIEWS = (aten.view.default, aten.reshape.default, aten._unsafe_view.default)


class Sizes:
    """Sizes of torch's placeholders by the names of the inputs' axes, so that equal names are equal sizes."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = names

    def of(self, node: Any) -> tuple[str, ...]:
        """The shape of a node's value as texts; empty if it is no tensor."""
        value = node.meta.get("val") if isinstance(node, Node) else None
        return tuple(self.text(size) for size in value.shape) if isinstance(value, torch.Tensor) else ()

    def text(self, size: Any) -> str:
        """A size as a text, by names."""
        if isinstance(size, Node):
            size = size.meta.get("val")
        expression = str(size.node.expr) if isinstance(size, torch.SymInt) else str(size)
        for symbol, name in self.names.items():
            expression = expression.replace(symbol, name) if symbol == expression else expression
        return expression


def with_larger_operations(graph: Graph, names: Mapping[str, str]) -> None:
    """Replace what is recognised, in place."""
    sizes = Sizes(names)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and any(check in str(node.target) for check in CHECKS):
            graph.erase_node(node)
    for rule in (_identity, _norm, _weighted_norm, _rotation, _attention, _packing):
        for node in list(graph.nodes):
            if node.op == "call_function" and node.users:
                rule(graph, node, sizes)
        graph.eliminate_dead_code()


def _is(node: Any, *targets: Any) -> bool:
    return isinstance(node, Node) and node.op == "call_function" and node.target in targets


def _is_sum(node: Any) -> bool:
    """Whether a node is x + y; `alpha` would multiply y."""
    return _is(node, aten.add.Tensor) and not node.kwargs


def _replace(graph: Graph, node: Node, target: Callable[..., Any], arguments: tuple[Any, ...], **options: Any) -> Node:
    with graph.inserting_before(node):
        new = graph.call_function(target, arguments, options)
    new.meta = dict(node.meta)
    node.replace_all_uses_with(new)
    return new


def _dtype(node: Any) -> Any:
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value.dtype if isinstance(value, torch.Tensor) else None


def _number(value: Any) -> Any:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


# What changes nothing -------------------------------------------------------------------------------------------------


def _identity(graph: Graph, node: Node, sizes: Sizes) -> None:
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or _dtype(source) != _dtype(node) or sizes.of(source) != sizes.of(node):
        if _is(node, *_AND):
            for one, other in (node.args, node.args[::-1]):
                if _is_true(one) and _dtype(other) == torch.bool and sizes.of(other) == sizes.of(node):
                    node.replace_all_uses_with(other)
        return
    other = node.args[1] if len(node.args) > 1 else None
    nothing = (
        (_is(node, aten.add.Tensor, aten.sub.Tensor) and _number(other) == 0)
        or (_is(node, aten.mul.Tensor, aten.div.Tensor) and _number(other) == 1)
        or _is(
            node,
            *_VIEWS,
            aten.expand.default,
            aten.slice.Tensor,
            aten._to_copy.default,
            aten.clone.default,
            aten.alias.default,
        )
        or (_is(node, *_AND) and _is_true(other))
    )
    if nothing:
        node.replace_all_uses_with(source)


_AND = (aten.__and__.Tensor, aten.bitwise_and.Tensor, aten.logical_and.default)


def _is_true(node: Any) -> bool:
    """Whether a condition holds everywhere."""
    if _is(node, aten.new_ones.default, aten.ones.default, aten.ones_like.default):
        return bool(_dtype(node) == torch.bool)
    if _is(node, aten.full.default, aten.scalar_tensor.default):
        return bool(node.args[-1] is True)
    if _is(node, aten.expand.default):
        return _is_true(node.args[0])
    if _is(node, aten.ge.Scalar):
        place = _range(node.args[0])
        return place is not None and bool(place.start >= node.args[1])
    return False


# Root-mean-square norms -----------------------------------------------------------------------------------------------


def _norm(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x * rsqrt(mean(x ** 2, -1) + eps)."""
    if not _is(node, aten.mul.Tensor):
        return
    for x, factor in (node.args, node.args[::-1]):
        if not _is(factor, aten.rsqrt.default) or not isinstance(x, Node):
            continue
        total = factor.args[0]
        if not _is_sum(total) or not isinstance(_number(total.args[1]), float):
            continue
        mean = total.args[0]
        if not _is(mean, aten.mean.dim) or list(mean.args[1]) != [-1] or mean.args[2:] != (True,) or mean.kwargs:
            continue
        square = mean.args[0]
        is_square = _is(square, aten.pow.Tensor_Scalar) and square.args == (x, 2)
        if is_square or (_is(square, aten.mul.Tensor) and square.args == (x, x)):
            _replace(graph, node, rms_norm, (x, None, total.args[1]))
            return


def _weighted_norm(graph: Graph, node: Node, sizes: Sizes) -> None:
    """weight * rms_norm(x), or (1 + weight) * rms_norm(x)."""
    if not _is(node, aten.mul.Tensor):
        return
    for weight, normed in (node.args, node.args[::-1]):
        if not _is(normed, rms_norm) or normed.args[1] is not None or len(normed.users) != 1:
            continue
        offset = 0.0
        if _is_sum(weight) and _number(weight.args[1]) == 1:
            weight, offset = weight.args[0], 1.0
        x, _, eps = normed.args
        if isinstance(weight, Node) and sizes.of(weight) == sizes.of(x)[-1:] and _dtype(weight) == _dtype(x):
            _replace(graph, node, rms_norm, (x, weight, eps, offset))
            return


# Rotary positions -----------------------------------------------------------------------------------------------------


def _rotation(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x * cos + cat(-x[half:], x[:half]) * sin, where cos and sin have equal halves."""
    if not _is_sum(node) or len(sizes.of(node)) != 4:
        return
    for straight, turned in (node.args, node.args[::-1]):
        if not _is(straight, aten.mul.Tensor) or not _is(turned, aten.mul.Tensor):
            continue
        found = _turned(straight, turned)
        if found is None:
            continue
        x, cos, sin, half = found
        batch, _, length, width = sizes.of(x)
        fitting = ((batch, "1", length, width), ("1", "1", length, width))
        same = sizes.of(cos) == sizes.of(sin) and _dtype(cos) == _dtype(sin) == _dtype(x)
        if same and sizes.of(cos) in fitting and _halves_are_equal(cos, half) and _halves_are_equal(sin, half):
            _replace(graph, node, rotated, (x, cos, sin, half))
            return


def _turned(straight: Node, turned: Node) -> tuple[Node, Node, Node, int] | None:
    for joined, sin in (turned.args, turned.args[::-1]):
        if not _is(joined, aten.cat.default):
            continue
        parts, axis = joined.args[0], joined.args[1] if len(joined.args) > 1 else 0
        if len(parts) != 2 or axis not in (-1, 3) or not _is(parts[0], aten.neg.default):
            continue
        upper, lower = parts[0].args[0], parts[1]
        if not _is(upper, aten.slice.Tensor) or not _is(lower, aten.slice.Tensor):
            continue
        x, half = lower.args[0], lower.args[3]
        if lower.args[:3] != (x, 3, 0) or upper.args[:4] != (x, 3, half, END) or x.meta["val"].shape[3] != 2 * half:
            continue
        if x in straight.args and isinstance(sin, Node):
            cos = straight.args[1 - straight.args.index(x)]
            return (x, cos, sin, half) if isinstance(cos, Node) else None
    return None


_ELEMENTS = (
    aten.cos.default,
    aten.sin.default,
    aten.unsqueeze.default,
    aten._to_copy.default,
    aten.expand.default,
)


def _halves_are_equal(node: Any, half: int) -> bool:
    """Whether the last axis is the same half twice."""
    while True:
        if _is(node, *_ELEMENTS) or (_is(node, aten.mul.Tensor) and _number(node.args[1]) is not None):
            node = node.args[0]
        elif _is(node, aten.cat.default):
            parts = node.args[0]
            return len(parts) == 2 and parts[0] is parts[1] and parts[0].meta["val"].shape[-1] == half
        else:
            return False


# Attention ------------------------------------------------------------------------------------------------------------


class Range(NamedTuple):
    """Numbers that rise by one along one axis: the first, and where the axis is, from the end."""

    start: int
    axis: int
    length: Any


def _range(node: Any) -> Range | None:
    """What a value is if it holds positions along one axis and is the same along all others."""
    if _is(node, aten.arange.default):
        return Range(0, -1, node.args[0])
    if _is(node, aten.arange.start) and isinstance(node.args[0], int):
        return Range(node.args[0], -1, None) if node.args[0] else Range(0, -1, node.args[1])
    if _is(node, aten.unsqueeze.default):
        inner = _range(node.args[0])
        if inner is None:
            return None
        rank = len(node.meta["val"].shape)
        axis = node.args[1] - rank if node.args[1] >= 0 else node.args[1]
        return inner if axis < inner.axis else inner._replace(axis=inner.axis - 1)
    if _is(node, aten.expand.default):
        return _range(node.args[0])
    if _is_sum(node) and isinstance(node.args[1], int):
        inner = _range(node.args[0])
        return None if inner is None else inner._replace(start=inner.start + node.args[1])
    return None


def _attention(graph: Graph, node: Node, sizes: Sizes) -> None:
    """scaled_dot_product_attention, with its mask taken apart and repeated heads as grouped ones."""
    if not _is(node, aten.scaled_dot_product_attention.default):
        return
    query, key, value = node.args[:3]
    options = dict(zip(("attn_mask", "dropout_p", "is_causal"), node.args[3:], strict=False)) | dict(node.kwargs)
    if options.get("dropout_p"):
        return
    mask = options.get("attn_mask")
    shapes = [sizes.of(x) for x in (query, key, value)]
    if any(len(shape) != 4 for shape in shapes) or any(shape[0] != shapes[0][0] for shape in shapes):
        return
    key_heads, value_heads = _grouped(key, sizes), _grouped(value, sizes)
    if key_heads is not None and value_heads is not None and sizes.of(key_heads)[1] == sizes.of(value_heads)[1]:
        key, value = key_heads, value_heads
    elif not options.get("enable_gqa") and sizes.of(key)[1] != shapes[0][1]:
        return
    causal, key_mask, rest = bool(options.get("is_causal")), None, None
    if mask is not None:
        if _dtype(mask) != torch.bool or len(sizes.of(mask)) != 4:
            rest = mask
        else:
            with graph.inserting_before(node):
                found = _terms(graph, mask, sizes, shapes[0], shapes[1])
            causal, key_mask, rest = found if not causal else (True, *found[1:])
    _replace(graph, node, attention, (query, key, value, rest, key_mask), is_causal=causal, scale=options.get("scale"))


def _packing(graph: Graph, node: Node, sizes: Sizes) -> None:
    """Attention of heads that are only split for it, and joined after it: of heads side by side."""
    if not _is(node, attention) or len(node.users) != 1:
        return
    (back,) = node.users
    if not _is(back, aten.transpose.int) or set(back.args[1:]) != {1, 2} or len(back.users) != 1:
        return
    (joined,) = back.users
    while _is(joined, aten.clone.default) and len(joined.users) == 1:
        (joined,) = joined.users
    n, heads, length, width = node.meta["val"].shape
    wanted = (*(sizes.text(size) for size in (n, length)), str(heads * width) if isinstance(heads * width, int) else "")
    if not _is(joined, *_VIEWS) or sizes.of(joined) != wanted:
        return
    packed = [_side_by_side(graph, x, sizes) for x in node.args[:3]]
    if any(each is None for each in packed):
        return
    kv_heads = {x.meta["val"].shape[1] for x in node.args[1:3]}
    if len(kv_heads) == 1:
        _replace(
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
    if _is(node, rotated) and len(node.args) == 4:
        inner = _side_by_side(graph, node.args[0], sizes)
        if inner is None:
            return None
        with graph.inserting_before(node):
            new = graph.call_function(rotated, (inner, *node.args[1:], node.meta["val"].shape[1]))
        new.meta = {**node.meta, "val": inner.meta["val"]}
        return new
    if not _is(node, aten.transpose.int) or set(node.args[1:]) != {1, 2}:
        return None
    split = node.args[0]
    if not _is(split, *_VIEWS):
        return None
    x = split.args[0]
    n, length, heads, width = split.meta["val"].shape
    if not isinstance(heads, int) or not isinstance(width, int):
        return None
    return x if sizes.of(x) == (sizes.text(n), sizes.text(length), str(heads * width)) else None


def _grouped(node: Any, sizes: Sizes) -> Node | None:
    """Heads (N, H_kv, S, d) that are each repeated: reshape(expand(unsqueeze(x, 2)))."""
    if not _is(node, *_VIEWS):
        return None
    inner = node.args[0]
    while _is(inner, aten.clone.default):
        inner = inner.args[0]
    if not _is(inner, aten.expand.default) or len(sizes.of(inner)) != 5:
        return None
    lifted = inner.args[0]
    while _is(lifted, aten.slice.Tensor) and sizes.of(lifted) == sizes.of(lifted.args[0]):
        lifted = lifted.args[0]
    if not _is(lifted, aten.unsqueeze.default) or lifted.args[1] not in (2, -3):
        return None
    n, groups, _, s, d = sizes.of(inner)
    x = lifted.args[0]
    return x if sizes.of(x) == (n, groups, s, d) and sizes.of(node)[2:] == (s, d) else None


def _terms(
    graph: Graph, mask: Node, sizes: Sizes, query: tuple[str, ...], key: tuple[str, ...]
) -> tuple[bool, Any, Any]:
    """A boolean mask (N, H, L, S) as causality, a mask of keys (N, S), and what is left."""
    causal, keys, rest = False, [], []
    for term in _conditions(mask):
        if _is_true(term):
            continue
        if query[2] == key[2] and _is_causal(term, sizes, key[2]):
            causal = True
            continue
        if _dtype(term) != torch.bool:
            term = _not_zero(graph, term)
        own = _key_term(graph, term, sizes, query[0], key[2])
        if own is not None:
            keys.append(own)
        else:
            rest.append(term)
    return causal, _joined(graph, keys), _joined(graph, rest)


def _conditions(node: Any) -> Iterator[Node]:
    """The conditions that hold together, without expansions, which attention does by itself."""
    if _is(node, *_AND):
        for part in node.args:
            yield from _conditions(part)
    elif _is(node, aten.expand.default) and len(node.args[0].meta["val"].shape) == 4:
        yield from _conditions(node.args[0])
    else:
        yield node


def _is_causal(node: Any, sizes: Sizes, length: str) -> bool:
    """Whether a condition is: the key's position is not after the query's, both from 0 to a length."""
    if _is(node, aten.le.Tensor):
        key, query = node.args
    elif _is(node, aten.ge.Tensor):
        query, key = node.args
    else:
        return False
    return all(
        found is not None and found[:2] == (0, axis) and sizes.text(found.length) == length
        for found, axis in ((_range(query), -2), (_range(key), -1))
    )


def _not_zero(graph: Graph, node: Node) -> Node:
    """A part of `logical_and` that is no condition, as one."""
    new = graph.call_function(aten.ne.Scalar, (node, 0))
    new.meta = {**node.meta, "val": node.meta["val"] != 0}
    return new


def _key_term(graph: Graph, node: Node, sizes: Sizes, batch: str, length: str) -> Node | None:
    """A condition (N, 1, 1, S) as a mask of keys (N, S), added to the graph."""
    if sizes.of(node) not in ((batch, "1", "1", length), ("1", "1", "1", length)) or sizes.of(node)[0] != batch:
        return None
    if _is(node, aten.index.Tensor) and len(node.args[1]) == 2:
        source, (row, column) = node.args
        rows, columns = _range(row), _range(column)
        whole = sizes.of(source) == (batch, length)
        if whole and rows is not None and columns is not None and (rows[:2], columns[:2]) == ((0, -4), (0, -1)):
            lengths = (sizes.text(rows.length), sizes.text(columns.length))
            if lengths == (batch, length) and _dtype(source) == torch.bool:
                return source
    new = graph.call_function(aten.squeeze.dims, (node, [1, 2]))
    new.meta = {**node.meta, "val": node.meta["val"].squeeze((1, 2))}
    return new


def _joined(graph: Graph, terms: Sequence[Node]) -> Node | None:
    if not terms:
        return None
    joined = terms[0]
    for term in terms[1:]:
        new = graph.call_function(aten.logical_and.default, (joined, term))
        new.meta = {**term.meta, "val": torch.logical_and(joined.meta["val"], term.meta["val"])}
        joined = new
    return joined
