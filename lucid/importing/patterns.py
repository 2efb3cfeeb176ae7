"""Patterns: torch programs with larger operations, so that the exporter sees norms and rotations.

torch exports what a model's code does step by step: norms from powers and means. A pattern is replaced only where the
result is the same for every input; sizes are compared by the names of the inputs' axes. Attention is found later, when
the module is traced (`lucid.tracing.written_attention`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import Graph, Node

from lucid import ops
from lucid.core.graph.types import int64
from lucid.importing.complex_numbers import each_part
from lucid.importing.functions import END, in_floats, scalar_tensor, slice_axis
from lucid.importing.matching import AND, VIEWS, Sizes, aten, element_type, is_call, is_sum, is_true, number, replace
from lucid.importing.scatter_functions import put
from lucid.ops.operand_conversion import as_tensor
from lucid.ops.tensor.tensor import Tensor


def rms_norm(x: Tensor, weight: Tensor | None, eps: float, offset: float = 0.0) -> Tensor:
    """`ops.rms_norm` over the last axis."""
    return ops.rms_norm(x, weight, eps=eps, offset=offset)


def rotated(x: Tensor, cos: Tensor, sin: Tensor, half: int) -> Tensor:
    """`ops.rotary_embedding` by tables (1 or N, 1, L, 2 * half) whose halves are equal."""
    cos, sin = (table[:, 0, :, :half] for table in (cos, sin))
    if isinstance(cos.shape[0], int) and cos.shape[0] == 1:
        cos, sin = cos[0], sin[0]
    return ops.rotary_embedding(x, cos, sin)


def with_axes(x: Any, axes: tuple[int, ...]) -> Any:
    """`ops.unsqueeze` at several places of the result, also of complex numbers."""
    return each_part(lambda part: ops.unsqueeze(part, axes), x)


def _places(size: Sequence[Any], stride: Sequence[Any], offset: Any) -> Any:
    places: Any = offset or 0
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        places = places + (ops.arange(length) * step).reshape(-1, *(1,) * (len(size) - 1 - axis))
    return places


def strided(x: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = 0) -> Tensor:
    """torch.as_strided of a tensor that has its elements in order."""
    return x.flatten()[_places(size, stride, offset)]


def strided_scatter(x: Tensor, source: Tensor, size: Sequence[Any], stride: Sequence[Any], offset: Any = 0) -> Tensor:
    """torch.as_strided_scatter of a tensor that has its elements in order."""
    places = as_tensor("as_strided_scatter", _places(size, stride, offset))
    return put(x, places, source.expand(places.shape))


def size_as_tensor(size: Any) -> Tensor:
    """A size among the outputs."""
    return scalar_tensor(size, int64)


def fraction_as_tensor(size: Any) -> Tensor:
    """A number in floating point, made of sizes, among the outputs."""
    return scalar_tensor(in_floats(size))


def parts(x: Tensor, size: Any, axis: int, count: int) -> Any:
    """The first `count` parts of a size that depends on the axis."""
    return [slice_axis(x, axis, place * size, (place + 1) * size) for place in range(count)]


def at_mask(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    """x with values of its shape where a mask of its first axes is true."""
    return ops.where(mask.reshape(*mask.shape, *(1,) * (x.ndim - mask.ndim)), values, x)


def grouped(x: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """`ops.grouped_mm` by matrices (G, N, K) for as many rows each as `counts` (G) says."""
    return ops.grouped_mm(x, weight.mT, counts.cumsum(0))


LARGER = (
    *(rms_norm, rotated, with_axes, strided, strided_scatter, size_as_tensor, fraction_as_tensor, in_floats, parts),
    *(at_mask, grouped),
)
_STRIDED: dict[Any, Callable[..., Any]] = {
    aten.as_strided.default: strided,
    aten.as_strided_copy.default: strided,
    aten.as_strided_scatter.default: strided_scatter,
}
CHECKS = ("_assert_tensor_metadata", "_assert_scalar", "_assert_async", "sym_constrain_range", "_linalg_check_errors")


def with_larger_operations(graph: Graph, names: Mapping[str, str]) -> None:
    """Replace what is recognised, in place."""
    sizes = Sizes(names)
    _give_tensors(graph)
    for node in reversed(graph.nodes):
        if node.op == "call_function" and not node.users and any(check in str(node.target) for check in CHECKS):
            graph.erase_node(node)
    rules = (
        *(
            _identity,
            _parts,
            _masked,
            _repeated_operands,
            _gelu,
            _norm,
            _weighted_norm,
            _rotation,
            _axes_of_one,
            _every_place,
        ),
        _groups,
    )
    for rule in rules:
        for node in list(graph.nodes):
            if node.op == "call_function" and node.users:
                rule(graph, node, sizes)
        graph.eliminate_dead_code()


def _give_tensors(graph: Graph) -> None:
    """Sizes among the outputs, and fractions of sizes for outputs and operators, as tensors."""
    for node in list(graph.nodes):
        value = node.meta.get("val")
        for user in list(node.users) if isinstance(value, (torch.SymInt, torch.SymFloat)) else ():
            kind: Callable[[Any], Any] | None = None
            if user.op == "output":
                kind = size_as_tensor if isinstance(value, torch.SymInt) else fraction_as_tensor
            elif isinstance(value, torch.SymFloat) and isinstance(user.target, torch._ops.OpOverload):
                kind = in_floats
            if kind is not None:
                with graph.inserting_before(user):
                    user.replace_input_with(node, graph.call_function(kind, (node,)))


# What changes nothing -------------------------------------------------------------------------------------------------


def _identity(graph: Graph, node: Node, sizes: Sizes) -> None:
    if node.target in _STRIDED and _has_its_memory(node):
        replace(graph, node, _STRIDED[node.target], node.args)
        return
    if is_call(node, aten.permute.default) and list(node.args[1]) == [0, 2, 1, 3]:
        node.target, node.args = aten.transpose.int, (node.args[0], 1, 2)
    if is_call(node, aten.cat.default):  # an empty cache is joined as well
        parts = [part for part in node.args[0] if sizes.of(part) != ("0",)]
        if len(parts) == 1 and element_type(parts[0]) == element_type(node):
            node.replace_all_uses_with(parts[0])
        return
    source = node.args[0] if node.args else None
    if not isinstance(source, Node) or element_type(source) != element_type(node) or sizes.of(source) != sizes.of(node):
        if is_call(node, *AND):
            for one, other in (node.args, node.args[::-1]):
                if is_true(one) and element_type(other) == torch.bool and sizes.of(other) == sizes.of(node):
                    node.replace_all_uses_with(other)
        return
    other = node.args[1] if len(node.args) > 1 else None
    nothing = (
        (is_call(node, aten.add.Tensor, aten.sub.Tensor) and number(other) == 0)
        or (is_call(node, aten.mul.Tensor, aten.div.Tensor) and number(other) == 1)
        or is_call(
            node,
            *VIEWS,
            aten.expand.default,
            aten.slice.Tensor,
            aten._to_copy.default,
            aten.clone.default,
            aten.alias.default,
            aten.type_as.default,
        )
        or (is_call(node, aten.dropout.default) and node.args[2] is False)
        or (is_call(node, *AND) and is_true(other))
    )
    if nothing:
        node.replace_all_uses_with(source)


def _parts(graph: Graph, node: Node, sizes: Sizes) -> None:
    """Parts of a dynamic size, as of `chunk`: torch knows how many there are."""
    if is_call(node, aten.split.Tensor) and isinstance(node.args[1], Node):
        x, size, axis = (*node.args, 0)[:3]
        replace(graph, node, parts, (x, size, axis, len(node.meta["val"])))


def _has_its_memory(node: Node) -> bool:
    """Whether strides count the elements of a tensor in their order, from its first one on, and not of a larger one."""
    value = node.args[0].meta["val"]
    offset = node.kwargs.get("storage_offset", node.args[-1] if isinstance(node.args[-1], (int, Node)) else None)
    return bool(value.is_contiguous() and (offset is None or value.storage_offset() == 0))


_ELEMENTWISE = (
    *(aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.maximum.default, aten.minimum.default),
    *(aten.eq.Tensor, aten.ne.Tensor, aten.lt.Tensor, aten.le.Tensor, aten.gt.Tensor, aten.ge.Tensor),
)


def _repeated_operands(graph: Graph, node: Node, sizes: Sizes) -> None:
    """An operand that is expanded to the shape of the other one: the operation repeats it by itself."""
    if is_call(node, *_ELEMENTWISE):
        for place, operand in enumerate(node.args[:2]):
            other = node.args[1 - place]
            if is_call(operand, aten.expand.default) and sizes.of(other) == sizes.of(operand) and other is not operand:
                node.update_arg(place, operand.args[0])
                return


_OF_ELEMENTS = (
    *(*_ELEMENTWISE, aten.neg.default, aten.abs.default, aten.clamp.default, aten.pow.Tensor_Scalar, aten.exp.default),
    *(aten.log.default, aten.sqrt.default, aten.sigmoid.default, aten.tanh.default, aten.relu.default),
    *(aten.rsub.Scalar, aten.reciprocal.default, aten._to_copy.default),
)


def _masked(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x[mask] = function(y[mask]) of elements: computed for all places, of which the mask chooses."""
    if not is_call(node, aten.index_put.default) or node.args[3:] not in ((), (False,)) or len(node.args[1]) != 1:
        return
    x, (mask,), values = node.args[:3]
    shape, inner = sizes.of(x), len(sizes.of(x)) - len(sizes.of(mask))

    def everywhere(value: Any) -> Any:
        """The values of all places; None if they are not of these places alone."""
        if is_call(value, aten.index.Tensor) and sizes.of(value.args[0]) == shape and _are_same(value.args[1], [mask]):
            return value.args[0]
        if not is_call(value, *_OF_ELEMENTS):
            return None
        operands = [everywhere(operand) for operand in value.args]
        others = [operand for operand, own in zip(value.args, operands, strict=True) if own is None]
        if len(others) == len(operands) or any(len(sizes.of(other)) > inner for other in others):
            return None
        pairs = zip(operands, value.args, strict=True)
        with graph.inserting_before(node):
            new = graph.call_function(value.target, tuple(b if a is None else a for a, b in pairs), value.kwargs)
        new.meta = {key: item for key, item in value.meta.items() if key != "val"}  # which has the size of the mask
        return new

    if element_type(mask) == torch.bool and (new := everywhere(values)) is not None:
        replace(graph, node, at_mask, (x, mask, new))


def _are_same(indices: Sequence[Any], others: Sequence[Any]) -> bool:
    """Whether indices are the same nodes, or the same calls, as x > 0 that is written twice."""
    return len(indices) == len(others) and all(
        a is b or (is_call(a, getattr(b, "target", None)) and (a.args, a.kwargs) == (b.args, b.kwargs))
        for a, b in zip(indices, others, strict=True)
    )


# Axes of size 1 -------------------------------------------------------------------------------------------------------


def _axes_of_one(graph: Graph, node: Node, sizes: Sizes) -> None:
    """One operation for axes that are added one after another, without those that are removed again."""
    inner = node.args[0] if node.args else None
    if not is_call(inner, aten.unsqueeze.default, with_axes) or not isinstance(inner, Node):
        return
    source, option = inner.args
    rank, ones = len(sizes.of(inner)), list(option) if isinstance(option, tuple) else [option % len(sizes.of(inner))]
    if is_call(node, aten.unsqueeze.default):
        new = node.args[1] % (rank + 1)
        axes = sorted([new, *(axis + (axis >= new) for axis in ones)])
    elif is_call(node, aten.squeeze.dim, aten.squeeze.dims):
        removed = node.args[1] if isinstance(node.args[1], (list, tuple)) else [node.args[1]]
        gone = [axis % rank for axis in removed]
        if not set(gone) <= set(ones):
            return
        axes = [axis - sum(other < axis for other in gone) for axis in ones if axis not in gone]
    else:
        return
    if axes:
        replace(graph, node, with_axes, (source, tuple(axes)))
    else:
        node.replace_all_uses_with(source)


def _every_place(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x[i, j] of all places of its first axes in their order, as transformers reads masks: x with axes of size 1."""
    if not is_call(node, aten.index.Tensor) or not all(isinstance(index, Node) for index in node.args[1]):
        return
    x, indices = node.args
    rank = max(len(sizes.of(index)) for index in indices)
    axes = [_axis_of_places(index, size, rank, sizes) for index, size in zip(indices, sizes.of(x), strict=False)]
    if None in axes or axes != sorted({axis for axis in axes if axis is not None}):
        return
    new = tuple(axis for axis in range(rank) if axis not in axes)
    if new:
        replace(graph, node, with_axes, (x, new))
    else:
        node.replace_all_uses_with(x)


def _axis_of_places(index: Node, size: str, rank: int, sizes: Sizes) -> int | None:
    """The axis, of `rank` ones, along which an index has all places of an axis of this size in their order."""
    places, new = index, ()
    if is_call(index, aten.unsqueeze.default, with_axes):
        places, axes = index.args
        new = tuple(axes) if isinstance(axes, (list, tuple)) else (axes % 2,)
    if not is_call(places, aten.arange.default) or sizes.text(places.args[0]) != size:
        return None
    return next(axis for axis in range(len(new) + 1) if axis not in new) + rank - len(new) - 1


# Activations ----------------------------------------------------------------------------------------------------------


def _gelu(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x * 0.5 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x ** 3))), and x * 0.5 * (1 + erf(x / sqrt(2)))."""
    scale, parts = _factors(node)
    if len(parts) != 2 or not math.isclose(scale, 0.5):
        return
    for x, total in (parts, parts[::-1]):
        if is_sum(total) and number(total.args[1]) == 1 and element_type(x) == element_type(node):
            inner = total.args[0]
            if is_call(inner, aten.erf.default) and _is_product(inner.args[0], math.sqrt(0.5), x):
                replace(graph, node, aten.gelu.default, (x,))
                return
            if is_call(inner, aten.tanh.default) and _is_cubic(inner.args[0], x):
                replace(graph, node, aten.gelu.default, (x,), approximate="tanh")
                return


def _is_cubic(node: Any, x: Node) -> bool:
    """Whether a node is sqrt(2 / pi) * (x + 0.044715 * x ** 3), or sqrt(2 / pi) * x * (1 + 0.044715 * x * x)."""
    scale, parts = _factors(node)
    if not math.isclose(scale, math.sqrt(2 / math.pi), rel_tol=1e-6):
        return False
    if len(parts) == 2 and x in parts:
        total = parts[1 - parts.index(x)]
        return is_sum(total) and number(total.args[1]) == 1 and _is_product(total.args[0], 0.044715, x, x)
    if len(parts) != 1 or not is_sum(parts[0]) or x not in parts[0].args:
        return False
    return _is_product(parts[0].args[1 - parts[0].args.index(x)], 0.044715, x, x, x)


def _is_product(node: Any, scale: float, *parts: Node) -> bool:
    own, others = _factors(node)
    return math.isclose(own, scale, rel_tol=1e-6) and others == list(parts)


def _factors(node: Any, depth: int = 4) -> tuple[float, list[Any]]:
    """A product as a number and the tensors that it multiplies."""
    if (own := number(node)) is not None:
        return own, []
    if depth and is_call(node, aten.mul.Tensor):
        (scale, parts), (other, more) = (_factors(part, depth - 1) for part in node.args)
        return scale * other, parts + more
    if depth and is_call(node, aten.div.Tensor) and number(node.args[1]):
        scale, parts = _factors(node.args[0], depth - 1)
        return scale / node.args[1], parts
    if is_call(node, aten.pow.Tensor_Scalar) and node.args[1] in (2, 3):
        return 1.0, [node.args[0]] * int(node.args[1])
    return 1.0, [node]


# Root-mean-square norms -----------------------------------------------------------------------------------------------


def _norm(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x * rsqrt(mean(x ** 2, -1) + eps)."""
    if not is_call(node, aten.mul.Tensor):
        return
    for x, factor in (node.args, node.args[::-1]):
        if not is_call(factor, aten.rsqrt.default) or not isinstance(x, Node):
            continue
        total = factor.args[0]
        if not is_sum(total) or not isinstance(number(total.args[1]), float):
            continue
        mean = total.args[0]
        if not is_call(mean, aten.mean.dim) or list(mean.args[1]) != [-1] or mean.args[2:] != (True,) or mean.kwargs:
            continue
        square = mean.args[0]
        is_square = is_call(square, aten.pow.Tensor_Scalar) and square.args == (x, 2)
        if is_square or (is_call(square, aten.mul.Tensor) and square.args == (x, x)):
            replace(graph, node, rms_norm, (x, None, total.args[1]))
            return


def _weighted_norm(graph: Graph, node: Node, sizes: Sizes) -> None:
    """weight * rms_norm(x), or (1 + weight) * rms_norm(x)."""
    if not is_call(node, aten.mul.Tensor):
        return
    for weight, normed in (node.args, node.args[::-1]):
        if not is_call(normed, rms_norm) or normed.args[1] is not None or len(normed.users) != 1:
            continue
        offset = 0.0
        if is_sum(weight) and number(weight.args[1]) == 1:
            weight, offset = weight.args[0], 1.0
        x, _, eps = normed.args
        if (
            isinstance(weight, Node)
            and sizes.of(weight) == sizes.of(x)[-1:]
            and element_type(weight) == element_type(x)
        ):
            replace(graph, node, rms_norm, (x, weight, eps, offset))
            return


# Rotary positions -----------------------------------------------------------------------------------------------------


def _rotation(graph: Graph, node: Node, sizes: Sizes) -> None:
    """x * cos + cat(-x[half:], x[:half]) * sin, where cos and sin have equal halves."""
    if not is_sum(node) or len(sizes.of(node)) != 4:
        return
    for straight, turned in (node.args, node.args[::-1]):
        if not is_call(straight, aten.mul.Tensor) or not is_call(turned, aten.mul.Tensor):
            continue
        turned_pair = _turned(straight, turned)
        if turned_pair is None:
            continue
        x, cos, sin, half = turned_pair
        batch, _, length, width = sizes.of(x)
        fitting = ((batch, "1", length, width), ("1", "1", length, width))
        same = sizes.of(cos) == sizes.of(sin) and element_type(cos) == element_type(sin) == element_type(x)
        if same and sizes.of(cos) in fitting and _halves_are_equal(cos, half) and _halves_are_equal(sin, half):
            replace(graph, node, rotated, (x, cos, sin, half))
            return


def _turned(straight: Node, turned: Node) -> tuple[Node, Node, Node, int] | None:
    for joined, sin in (turned.args, turned.args[::-1]):
        if not is_call(joined, aten.cat.default):
            continue
        parts, axis = joined.args[0], joined.args[1] if len(joined.args) > 1 else 0
        if len(parts) != 2 or axis not in (-1, 3) or not is_call(parts[0], aten.neg.default):
            continue
        upper, lower = parts[0].args[0], parts[1]
        if not is_call(upper, aten.slice.Tensor) or not is_call(lower, aten.slice.Tensor):
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
        if is_call(node, *_ELEMENTS) or (is_call(node, aten.mul.Tensor) and number(node.args[1]) is not None):
            node = node.args[0]
        elif is_call(node, aten.cat.default):
            parts = node.args[0]
            return len(parts) == 2 and parts[0] is parts[1] and parts[0].meta["val"].shape[-1] == half
        else:
            return False


# Rows of experts ------------------------------------------------------------------------------------------------------


def _groups(graph: Graph, node: Node, sizes: Sizes) -> None:
    """cat([linear(part, weight[i]) for i, part in enumerate(x.split(counts.tolist()))])."""
    if not is_call(node, aten.cat.default) or node.args[1:] not in ((), (0,)):
        return
    products = node.args[0]
    if not all(is_call(product, aten.linear.default) and len(product.args) == 2 for product in products):
        return
    parts, matrices = zip(*(product.args for product in products), strict=True)
    split, weight = _whole(parts, operator.getitem), _whole(matrices, aten.select.int)
    if not is_call(split, aten.split_with_sizes.default) or split.args[2:] not in ((), (0,)) or weight is None:
        return
    x, lengths = split.args[:2]
    if not all(is_call(length, aten.item.default) for length in lengths):
        return
    unbound = _whole([length.args[0] for length in lengths], operator.getitem)
    if is_call(unbound, aten.unbind.int) and unbound.args[1:] in ((), (0,)):
        counts = unbound.args[0]
        whole = len(products) == len(lengths) == weight.meta["val"].shape[0] and len(sizes.of(x)) == 2
        if whole and element_type(x) == element_type(weight):
            replace(graph, node, grouped, (x, weight, counts))


def _whole(parts: Sequence[Any], target: Callable[..., Any]) -> Any:
    """What has these parts along its first axis, each at its place; None if nothing has."""
    if not all(is_call(part, target) for part in parts):
        return None
    whole = parts[0].args[0]
    axis = (0,) if target is aten.select.int else ()
    in_order = all(part.args == (whole, *axis, place) for place, part in enumerate(parts))
    return whole if in_order else None
