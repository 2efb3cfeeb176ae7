"""The table: for each operator of an exported torch program, the function of Lucid that computes the same.

Operators have the names of `torch.export`, such as `aten.add.Tensor`; arithmetic on sizes has the names of Python's
functions. Arguments come in ATen's order; those about devices and memory are left out before.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lucid import ops
from lucid.core.graph.types import float32
from lucid.core.sizes.dims import sym_max, sym_min
from lucid.importing import complex_numbers
from lucid.importing import element_functions as elements
from lucid.importing import functions as f
from lucid.importing import layer_functions as layers
from lucid.importing import scatter_functions as scattering
from lucid.nn import functional as F
from lucid.nn.recurrent import GRU, LSTM, RNN
from lucid.nn.utils.parametrizations import weight_of
from lucid.ops import elementwise, sorting
from lucid.ops.creation import eye
from lucid.ops.tensor.tensor import Tensor
from lucid.ops.torch_namespaces import solve_triangular

Function: TypeAlias = Callable[..., Any]


_ROWS: dict[str, Function] = {
    # sizes
    "aten.sym_size.int": lambda x, axis: x.shape[axis],
    "aten.sym_numel.default": lambda x: x.numel(),
    "add": f.of_sizes(operator.add),
    "sub": f.of_sizes(operator.sub),
    "mul": f.size_product,
    "floordiv": f.of_sizes(operator.floordiv),
    "truediv": f.size_quotient,
    "mod": f.of_sizes(operator.mod),
    "neg": f.of_sizes(operator.neg),
    "pow": f.size_power,
    "getitem": operator.getitem,
    "sym_max": sym_max,
    "sym_min": sym_min,
    "sym_float": lambda x: float(x) if isinstance(x, int) else x,
    "ceil": f.size_ceil,
    "floor": f.size_floor,
    "trunc": f.size_trunc,
    "round": f.size_round,
    # operators with bodies
    "cond": f.cond,
    "scan": f.scan,
    "map_impl": f.map_elements,
    "while_loop": f.while_loop,
    "flex_attention": layers.flex_attention,
    # creation
    "aten.arange.default": lambda end, dtype=None: ops.arange(0, end, 1, dtype),
    "aten.arange.start": ops.arange,
    "aten.arange.start_step": f.arange,
    "aten.zeros.default aten.empty.memory_format": lambda size, dtype=None: ops.full(size, 0, dtype or float32),
    "aten.empty_strided.default aten.empty_permuted.default": lambda size, order, dtype=None: ops.full(
        size, 0, dtype or float32
    ),
    "aten.ones.default": lambda size, dtype=None: ops.full(size, 1, dtype or float32),
    "aten.new_zeros.default aten.new_empty.default": Tensor.new_zeros,
    "aten.new_empty_strided.default": lambda x, size, stride, dtype=None: x.new_zeros(size, dtype=dtype),
    "aten.new_ones.default": Tensor.new_ones,
    "aten.new_full.default": Tensor.new_full,
    "aten.full.default": ops.full,
    "aten.zeros_like.default aten.empty_like.default": ops.zeros_like,
    "aten.ones_like.default": ops.ones_like,
    "aten.full_like.default": ops.full_like,
    "aten.scalar_tensor.default": f.scalar_tensor,
    "aten.linspace.default": ops.linspace,
    "aten.eye.default": lambda n, dtype=None: eye(n, None, dtype),
    "aten.eye.m": eye,
    "aten.tril_indices.default": f.triangle_indices(np.tril_indices),
    "aten.triu_indices.default": f.triangle_indices(np.triu_indices),
    "aten.tril.default": Tensor.tril,
    "aten.triu.default": Tensor.triu,
    "aten.one_hot.default": F.one_hot,
    # types and copies
    "aten.clone.default aten.alias.default aten.detach.default aten.detach_.default": f.unchanged,
    "lucid.constant.default": Tensor.detach,
    "aten.contiguous.default aten.lift_fresh_copy.default aten.resolve_conj.default": f.unchanged,
    "aten.lift.default aten.lift_fresh.default": f.unchanged,
    "aten.item.default aten._local_scalar_dense.default": f.item,
    "aten._to_copy.default aten.to.dtype_layout prims.convert_element_type.default": f.to_copy,
    "aten.to.dtype": lambda x, dtype, *ignored, **named: f.to_copy(x, dtype),
    "aten.type_as.default": Tensor.type_as,
    # arithmetic
    "aten.add.Tensor Scalar": f.scaled(operator.add),
    "aten.sub.Tensor Scalar aten.subtract.Tensor": f.scaled(operator.sub),
    "aten.rsub.Scalar Tensor": f.rsub,
    "aten.mul.Tensor Scalar aten.multiply.Tensor Scalar": operator.mul,
    "aten.divide.Tensor aten.div.Tensor Scalar": operator.truediv,
    "aten.div.Tensor_mode Scalar_mode": f.div_mode,
    "aten.floor_divide.default": operator.floordiv,
    "aten.remainder.Scalar Tensor Scalar_Tensor": operator.mod,
    "aten.pow.Tensor_Scalar Tensor_Tensor Scalar": operator.pow,
    "aten.sign.default": elements.sign,
    "aten.expm1.default": elementwise.expm1,
    "aten.log1p.default": elementwise.log1p,
    "aten.erfc.default": elements.erfc,
    "aten.ldexp.Tensor": lambda x, y: x * 2.0**y,
    "aten.dist.default": lambda x, y, p=2: f.vector_norm(x - y, p),
    "aten.round.decimals": elements.round_decimals,
    "aten.signbit.default": elements.signbit,
    "aten.copysign.Tensor Scalar": elements.copysign,
    "aten.angle.default": elements.angle,
    "aten.clamp.Tensor": ops.clamp,
    "aten.clamp_min.default Tensor": lambda x, low: ops.clamp(x, low),
    "aten.clamp_max.default Tensor": lambda x, high: ops.clamp(x, None, high),
    "aten.max.other": ops.maximum,
    "aten.min.other": ops.minimum,
    "aten.fmax.default": elements.past_nan(ops.maximum),
    "aten.fmin.default": elements.past_nan(ops.minimum),
    "aten._cdist_forward.default": ops.cdist,
    "aten._pdist_forward.default": f.distances_of_pairs,
    "aten.lerp.Scalar Tensor": ops.lerp,
    "aten.fmod.Scalar Tensor": f.fmod,
    # comparisons and truth
    "aten.eq.Tensor Scalar": operator.eq,
    "aten.ne.Tensor Scalar": operator.ne,
    "aten.lt.Tensor Scalar": operator.lt,
    "aten.le.Tensor Scalar": operator.le,
    "aten.gt.Tensor Scalar": operator.gt,
    "aten.ge.Tensor Scalar": operator.ge,
    "aten.logical_and.default": Tensor.logical_and,
    "aten.logical_or.default": Tensor.logical_or,
    "aten.logical_xor.default": Tensor.logical_xor,
    "aten.logical_not.default": Tensor.logical_not,
    "aten.bitwise_and.Tensor Scalar Scalar_Tensor aten.__and__.Tensor Scalar": operator.and_,
    "aten.bitwise_or.Tensor Scalar Scalar_Tensor aten.__or__.Tensor": operator.or_,
    "aten.bitwise_xor.Tensor Scalar Scalar_Tensor aten.__xor__.Tensor": operator.xor,
    "aten.bitwise_not.default": operator.invert,
    "aten.bitwise_left_shift.Tensor Tensor_Scalar Scalar_Tensor aten.__lshift__.Scalar Tensor": operator.lshift,
    "aten.bitwise_right_shift.Tensor Tensor_Scalar Scalar_Tensor aten.__rshift__.Scalar Tensor": operator.rshift,
    # shapes
    "aten.view.default aten._unsafe_view.default aten.reshape.default aten.view_copy.default": Tensor.reshape,
    "aten._reshape_copy.default": Tensor.reshape,
    "aten.view_as.default": lambda x, other: x.reshape(other.shape),
    "aten.expand.default": lambda x, size, implicit=False: x.expand(size),
    "aten.expand_as.default": Tensor.expand_as,
    "aten.permute.default aten.permute_copy.default": Tensor.permute,
    "aten.narrow_copy.default aten.narrow.default": Tensor.narrow,
    "aten.unbind_copy.int aten.unbind.int": Tensor.unbind,
    "aten.transpose.int": Tensor.transpose,
    "aten.t.default": Tensor.t,
    "aten.numpy_T.default": lambda x: x.T,
    "aten.movedim.int intlist": Tensor.movedim,
    "aten.unsqueeze.default": Tensor.unsqueeze,
    "aten.squeeze.default dim dims": Tensor.squeeze,
    "aten.flatten.using_ints": Tensor.flatten,
    "aten.unflatten.int": Tensor.unflatten,
    "aten.slice.Tensor": f.slice_axis,
    "aten.select.int": f.select,
    "aten.split.Tensor sizes aten.split_with_sizes.default": f.split,
    "aten.chunk.default": Tensor.chunk,
    "aten.cat.default aten.concat.default": f.cat,
    "aten.meshgrid.default": lambda parts: ops.meshgrid(*parts),
    "aten.meshgrid.indexing": lambda parts, indexing="ij": ops.meshgrid(*parts, indexing=indexing),
    "aten.tile.default": ops.repeat,
    "aten.repeat_interleave.self_int self_Tensor": f.repeat_interleave,
    "aten.flip.default": Tensor.flip,
    "aten.roll.default": lambda x, shifts, axes=None: x.roll(shifts, axes or None),
    "aten.constant_pad_nd.default": lambda x, pad, value=0: F.pad(x, pad, value=float(value)),
    "aten.pad.default": F.pad,
    "aten.reflection_pad1d.default aten.reflection_pad2d.default aten.reflection_pad3d.default": partial(
        F.pad, mode="reflect"
    ),
    "aten.replication_pad1d.default aten.replication_pad2d.default aten.replication_pad3d.default": partial(
        F.pad, mode="replicate"
    ),
    "aten.im2col.default": F.unfold,
    "aten.fill.Scalar": lambda x, value: ops.full_like(x, value),
    "aten.fill.Tensor": lambda x, value: value.astype(x.dtype).expand(x.shape),
    "aten.copy.default": lambda x, source: source.expand(x.shape).astype(x.dtype),
    "aten.slice_scatter.default": f.slice_scatter,
    "aten.select_scatter.default": f.select_scatter,
    # choices
    "aten.index.Tensor": f.index,
    "aten.index_put.default": f.index_put,
    "aten.index_select.default": Tensor.index_select,
    "aten.index_add.default": lambda x, axis, index, source, alpha=1: x.index_add(axis, index, source, alpha=alpha),
    "aten.gather.default": f.gather,
    "aten.take_along_dim.default": ops.take_along_dim,
    "aten.scatter.src value": Tensor.scatter,
    "aten.scatter_add.default": Tensor.scatter_add,
    "aten.masked_fill.Scalar Tensor": Tensor.masked_fill,
    "aten.scatter.reduce value_reduce": scattering.scatter_combined,
    "aten.scatter_reduce.two": ops.scatter_reduce,
    "aten.index_reduce.default": scattering.index_reduce,
    "aten.put.default": scattering.put,
    "aten.diagonal_scatter.default": scattering.diagonal_scatter,
    "aten._embedding_bag.default aten._embedding_bag_forward_only.default": scattering.embedding_bag,
    "aten.masked_scatter.default": Tensor.masked_scatter,
    "aten.where.self ScalarOther ScalarSelf Scalar": ops.where,
    "aten.embedding.default": lambda table, indices, *ignored: F.embedding(indices, table),
    # reductions
    "aten.sum.default dim_IntList": Tensor.sum,
    "aten.mean.default dim": Tensor.mean,
    "aten.prod.default dim_int": Tensor.prod,
    "aten.amax.default aten.max.default": Tensor.amax,
    "aten.amin.default aten.min.default": Tensor.amin,
    "aten.max.dim": Tensor.max,
    "aten.min.dim": Tensor.min,
    "aten.any.default dim dims": Tensor.any,
    "aten.all.default dim": Tensor.all,
    "aten.var.correction": f.var,
    "aten.var.dim": lambda x, axis, unbiased=True, keepdim=False: f.var(x, axis, int(unbiased), keepdim),
    "aten.std.correction": f.std,
    "aten.std.dim": lambda x, axis, unbiased=True, keepdim=False: f.std(x, axis, int(unbiased), keepdim),
    "aten.var_mean.correction": f.var_mean,
    "aten.var_mean.dim": lambda x, axis, unbiased=True, keepdim=False: f.var_mean(x, axis, int(unbiased), keepdim),
    "aten.linalg_norm.default": f.linalg_norm,
    "aten.linalg_inv.default": lambda x: f.inverse(x)[0],
    "aten.linalg_inv_ex.default": f.inverse,
    "aten.linalg_solve_triangular.default": lambda a, b, upper, left=True, unitriangular=False: solve_triangular(
        a, b, upper=upper, left=left, unitriangular=unitriangular
    ),
    "aten._weight_norm.default": weight_of,
    "aten.linalg_vector_norm.default aten.norm.ScalarOpt_dim Scalar": f.vector_norm,
    "aten.softmax.int": lambda x, axis, dtype=None: x.softmax(axis, dtype=dtype),
    "aten._softmax.default": lambda x, axis, half: x.softmax(axis),
    "aten._safe_softmax.default": f.safe_softmax,
    "aten.log_softmax.int": lambda x, axis, dtype=None: x.log_softmax(axis, dtype=dtype),
    "aten._log_softmax.default": lambda x, axis, half: x.log_softmax(axis),
    "aten.cumsum.default": Tensor.cumsum,
    "aten.cummax.default": elements.running_extreme(operator.ge),
    "aten.cummin.default": elements.running_extreme(operator.le),
    "aten.nanmedian.default": lambda x: elements.nanmedian(x.flatten(), 0)[0],
    "aten.nanmedian.dim": elements.nanmedian,
    "aten.median.dim": ops.median,
    "aten.mode.default": elements.mode,
    "aten.bucketize.Tensor Scalar": sorting.bucketize,
    "aten.searchsorted.Tensor Scalar": ops.searchsorted,
    "aten.histc.default": f.histc,
    "aten.argmax.default": Tensor.argmax,
    "aten.argmin.default": Tensor.argmin,
    "aten.sort.default": Tensor.sort,
    "aten.sort.stable": lambda x, stable=True, dim=-1, descending=False: x.sort(dim, descending),
    "aten.argsort.default": Tensor.argsort,
    "aten.topk.default": Tensor.topk,
    # products
    "aten.mm.default aten.bmm.default aten.mv.default aten.dot.default": ops.matmul,
    "aten.addmm.default aten.baddbmm.default aten.addmv.default": f.addmm,
    "aten.addbmm.default": f.addbmm,
    "aten.einsum.default": lambda equation, operands, path=None: ops.einsum(equation, *operands),
    "aten.linear.default": F.linear,
    "aten._trilinear.default": f.trilinear,
    "aten._grouped_mm.default lucid.grouped_mm.default transformers.grouped_mm_fallback.default": ops.grouped_mm,
    # layers
    "aten.layer_norm.default": layers.layer_norm,
    "aten.rms_norm.default": F.rms_norm,
    "aten.group_norm.default": layers.group_norm,
    "aten.batch_norm.default": layers.batch_norm,
    "aten._native_batch_norm_legit_no_training.default": layers.batch_norm_inference,
    "aten._native_batch_norm_legit.no_stats": layers.batch_norm_of_batch,
    "aten.native_layer_norm.default": layers.native_layer_norm,
    "aten.native_group_norm.default": layers.native_group_norm,
    "aten.instance_norm.default": layers.instance_norm,
    "aten.scaled_dot_product_attention.default": layers.attention,
    "aten.conv1d.default padding": F.conv1d,
    "aten.conv2d.default padding": F.conv2d,
    "aten.conv3d.default padding": F.conv3d,
    "aten.conv_transpose1d.default": F.conv_transpose1d,
    "aten.conv_transpose2d.input": F.conv_transpose2d,
    "aten.conv_transpose3d.input": F.conv_transpose3d,
    "aten.avg_pool1d.default": F.avg_pool1d,
    "aten.avg_pool2d.default": F.avg_pool2d,
    "aten.avg_pool3d.default": F.avg_pool3d,
    "aten.max_pool1d.default": F.max_pool1d,
    "aten.max_pool2d.default": F.max_pool2d,
    "aten.max_pool3d.default": F.max_pool3d,
    "aten.adaptive_avg_pool1d.default": F.adaptive_avg_pool1d,
    "aten.adaptive_avg_pool2d.default aten._adaptive_avg_pool2d.default": F.adaptive_avg_pool2d,
    "aten.adaptive_avg_pool3d.default aten._adaptive_avg_pool3d.default": F.adaptive_avg_pool3d,
    "aten.adaptive_max_pool1d.default": partial(F.adaptive_max_pool1d, return_indices=True),
    "aten.adaptive_max_pool2d.default": partial(F.adaptive_max_pool2d, return_indices=True),
    "aten.adaptive_max_pool3d.default": partial(F.adaptive_max_pool3d, return_indices=True),
    "aten.max_pool1d_with_indices.default": partial(F.max_pool1d, return_indices=True),
    "aten.max_pool2d_with_indices.default": partial(F.max_pool2d, return_indices=True),
    "aten.max_pool3d_with_indices.default": partial(F.max_pool3d, return_indices=True),
    "aten.convolution.default": layers.convolution,
    "aten.grid_sampler.default aten.grid_sampler_2d.default aten.grid_sampler_3d.default": layers.grid_sampler,
    "aten.upsample_nearest1d.vec aten.upsample_nearest2d.vec aten.upsample_nearest3d.vec": layers.upsample(
        "nearest", False
    ),
    "aten._upsample_nearest_exact1d.vec aten._upsample_nearest_exact2d.vec aten._upsample_nearest_exact3d.vec": (
        layers.upsample("nearest-exact", False)
    ),
    "aten.upsample_trilinear3d.vec": layers.upsample("trilinear", True),
    "aten.upsample_bilinear2d.vec": layers.upsample("bilinear", True),
    "aten.upsample_bicubic2d.vec": layers.upsample("bicubic", True),
    "aten.upsample_linear1d.vec": layers.upsample("linear", True),
    "aten.upsample_nearest2d.default": layers.upsample_size("nearest", False),
    "aten.upsample_bilinear2d.default": layers.upsample_size("bilinear", True),
    "aten.upsample_bicubic2d.default": layers.upsample_size("bicubic", True),
    "aten._upsample_bilinear2d_aa.vec": layers.upsample("bilinear", True, antialias=True),
    "aten._upsample_bicubic2d_aa.vec": layers.upsample("bicubic", True, antialias=True),
    "aten._upsample_bilinear2d_aa.default": layers.upsample_size("bilinear", True, antialias=True),
    "aten._upsample_bicubic2d_aa.default": layers.upsample_size("bicubic", True, antialias=True),
    "aten.pixel_shuffle.default": F.pixel_shuffle,
    "aten.pixel_unshuffle.default": F.pixel_unshuffle,
    "aten.dropout.default aten.feature_dropout.default": lambda x, p, training: x,
    # recurrent layers; those of Lucid's own are in the place of torch's, with an open length
    "aten.lstm.input lucid.lstm.default": layers.recurrent(LSTM),
    "aten.gru.input lucid.gru.default": layers.recurrent(GRU),
    "aten.rnn_tanh.input lucid.rnn_tanh.default": layers.recurrent(RNN),
    "aten.rnn_relu.input lucid.rnn_relu.default": layers.recurrent(RNN, nonlinearity="relu"),
    "aten.lstm_cell.default": layers.cell(LSTM),
    "aten.gru_cell.default": layers.cell(GRU),
    "aten.rnn_tanh_cell.default": layers.cell(RNN),
    "aten.rnn_relu_cell.default": layers.cell(RNN, nonlinearity="relu"),
    # activations
    "aten.relu6.default": F.relu6,
    "aten.gelu.default": lambda x, approximate="none": F.gelu(x, approximate),
    "aten.mish.default": F.mish,
    "aten.elu.default": elements.elu,
    "aten.leaky_relu.default": F.leaky_relu,
    "aten.selu.default": F.selu,
    "aten.celu.default": F.celu,
    "aten.threshold.default": lambda x, threshold, value: ops.where(x <= threshold, value, x),
    "aten.hardtanh.default": F.hardtanh,
    "aten.hardsigmoid.default": F.hardsigmoid,
    "aten.hardswish.default": F.hardswish,
    "aten.softplus.default": F.softplus,
    "aten.log_sigmoid.default": F.logsigmoid,
    "aten.glu.default": F.glu,
    "aten.prelu.default": F.prelu,
}
"""A row is for one or several operators; a word without a dot is another overload of the operator before it."""

FOR_FLOATS: frozenset[Function] = frozenset(
    (
        *(F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d, layers.convolution),
        *(F.avg_pool1d, F.avg_pool2d, F.avg_pool3d),
        *(F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d),
    )
)
"""Functions without integers, which torch's operators take: ONNX has no such kernels, and sums in floats may round."""

_ALIKE = (
    "neg abs sinh cosh asinh acosh atanh exp exp2 log log2 log10 sqrt rsqrt square reciprocal sin cos tan asin "
    "acos atan atan2 hypot tanh erf sigmoid floor ceil round trunc clamp maximum minimum cdist addcmul addcdiv "
    "nan_to_num isnan isinf isfinite stack repeat unfold diagonal logsumexp cumprod median kthvalue matmul outer "
    "relu silu"
)
"""Operators with the name and the arguments of an op."""

_OF_NUMBERS = (
    "softmax.int _softmax.default _safe_softmax.default log_softmax.int _log_softmax.default sort.default sort.stable "
    "argsort.default topk.default sum.dim_IntList mean.dim prod.dim_int amax.default amin.default argmax.default "
    "argmin.default max.dim min.dim any.dim any.dims all.dim var.correction var.dim std.correction std.dim "
    "var_mean.correction var_mean.dim linalg_vector_norm.default norm.ScalarOpt_dim norm.Scalar cumsum.default "
    "cummax.default cummin.default mode.default nanmedian.dim flip.default roll.default transpose.int movedim.int "
    "movedim.intlist squeeze.dim squeeze.dims gather.default scatter.src scatter.value scatter_add.default"
)
"""Operators along axes that take tensors without one: their functions get an axis of size 1."""


def _table() -> dict[str, Function]:
    """The rows by operator."""
    table: dict[str, Function] = {f"aten.{name}.default": ops.OPS[name] for name in _ALIKE.split()}
    for names, function in _ROWS.items():
        packet = ""  # an operator without its overload
        for word in names.split():
            name = f"{packet}.{word}" if packet and "." not in word else word
            table[name], packet = function, name.rpartition(".")[0]
    table |= {name: f.of_numbers(table[name]) for name in (f"aten.{each}" for each in _OF_NUMBERS.split())}
    return table | complex_numbers.rows(table)


TABLE = _table()

_BY_VALUES = (
    "has results whose number depends on the values of a tensor: keep one shape, as torch.where(condition, a, b) or a "
    "product with the mask does, or compute it before the module; of a mixture compute all experts and weigh them"
)
_OF_MATRICES = (
    "has no operator in ONNX: compute it before the module, whose input its result becomes, write it in products and "
    "sums, or add a function with lucid.importing.register"
)
PACKED = (
    "packs a sequence, whose sizes depend on the values of its lengths: call the layer with the padded batch, and hide "
    "what is padding with a mask"
)
_REMEDIES = {
    r"aten\._pack_padded_sequence\.": PACKED,
    r"aten\.as_strided\w*\.": "counts in the memory of another tensor than its operand, as of a slice: call it for the "
    "whole, contiguous tensor, or index",
    r"aten\.(_?unique\w*|nonzero|masked_select|argwhere|bincount|repeat_interleave)\.": _BY_VALUES,
    r"aten\.(_?linalg_(det|slogdet|solve\w*|lu\w*|ldl\w*|cholesky\w*|eig\w*|svd\w*|qr|pinv|matrix_exp|lstsq|householder\w*)"
    r"|cholesky\w*|lu_\w+|geqrf|ormqr|triangular_solve)\.": _OF_MATRICES,
}


def remedy(name: str) -> str:
    """Advice for an operator that no function can compute; empty for others and for those with a row."""
    if name in TABLE:
        return ""
    return next((text for pattern, text in _REMEDIES.items() if re.match(pattern, name)), "")
