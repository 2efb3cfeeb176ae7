"""The ops, by family. `OPS` holds all of them by name, and the convenience functions that wrap some of them.

`nn`, `export` and every room above import from it. Modules and parameters belong to `lucid.nn`.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from lucid.core.words import package_names as _public
from lucid.ops.attention.buffers import buffered_attention as buffered_attention
from lucid.ops.attention.buffers import write_at as write_at
from lucid.ops.attention.op import attention as attention
from lucid.ops.bitwise import bitwise_and as bitwise_and
from lucid.ops.bitwise import bitwise_not as bitwise_not
from lucid.ops.bitwise import bitwise_or as bitwise_or
from lucid.ops.bitwise import bitwise_xor as bitwise_xor
from lucid.ops.composed import addcdiv as addcdiv
from lucid.ops.composed import addcmul as addcmul
from lucid.ops.composed import allclose as allclose
from lucid.ops.composed import cdist as cdist
from lucid.ops.composed import column_stack as column_stack
from lucid.ops.composed import count_nonzero as count_nonzero
from lucid.ops.composed import cross as cross
from lucid.ops.composed import cumprod as cumprod
from lucid.ops.composed import diag as diag
from lucid.ops.composed import diag_embed as diag_embed
from lucid.ops.composed import diagonal as diagonal
from lucid.ops.composed import dot as dot
from lucid.ops.composed import dstack as dstack
from lucid.ops.composed import exp2 as exp2
from lucid.ops.composed import fliplr as fliplr
from lucid.ops.composed import flipud as flipud
from lucid.ops.composed import frac as frac
from lucid.ops.composed import hsplit as hsplit
from lucid.ops.composed import inner as inner
from lucid.ops.composed import isclose as isclose
from lucid.ops.composed import isin as isin
from lucid.ops.composed import kron as kron
from lucid.ops.composed import lerp as lerp
from lucid.ops.composed import log10 as log10
from lucid.ops.composed import logaddexp as logaddexp
from lucid.ops.composed import mv as mv
from lucid.ops.composed import nan_to_num as nan_to_num
from lucid.ops.composed import ravel as ravel
from lucid.ops.composed import take_along_dim as take_along_dim
from lucid.ops.composed import tensor_split as tensor_split
from lucid.ops.composed import tensordot as tensordot
from lucid.ops.composed import trunc as trunc
from lucid.ops.composed import unfold as unfold
from lucid.ops.composed import vsplit as vsplit
from lucid.ops.composed import vstack as vstack
from lucid.ops.convolution import adaptive_average_pool as adaptive_average_pool
from lucid.ops.convolution import average_pool as average_pool
from lucid.ops.convolution import conv as conv
from lucid.ops.convolution import conv_transpose as conv_transpose
from lucid.ops.convolution import max_pool as max_pool
from lucid.ops.creation import arange as arange
from lucid.ops.creation import arange_op as arange_op
from lucid.ops.creation import full as full
from lucid.ops.creation import full_like as full_like
from lucid.ops.creation import linspace as linspace
from lucid.ops.creation import one_hot as one_hot
from lucid.ops.creation import ones_like as ones_like
from lucid.ops.creation import tril as tril
from lucid.ops.creation import triu as triu
from lucid.ops.creation import zeros_like as zeros_like
from lucid.ops.einops_backend import define_backend as _define_backend
from lucid.ops.einsum import baddbmm as baddbmm
from lucid.ops.einsum import einsum as einsum
from lucid.ops.einsum import outer as outer
from lucid.ops.elementwise import abs_ as _abs
from lucid.ops.elementwise import acos as acos
from lucid.ops.elementwise import add as add
from lucid.ops.elementwise import asin as asin
from lucid.ops.elementwise import atan as atan
from lucid.ops.elementwise import ceil as ceil
from lucid.ops.elementwise import clamp as clamp
from lucid.ops.elementwise import clip as clip
from lucid.ops.elementwise import cos as cos
from lucid.ops.elementwise import div as div
from lucid.ops.elementwise import equal as equal
from lucid.ops.elementwise import erf as erf
from lucid.ops.elementwise import exp as exp
from lucid.ops.elementwise import floor as floor
from lucid.ops.elementwise import isfinite as isfinite
from lucid.ops.elementwise import isinf as isinf
from lucid.ops.elementwise import isnan as isnan
from lucid.ops.elementwise import log as log
from lucid.ops.elementwise import log2 as log2
from lucid.ops.elementwise import logical_and as logical_and
from lucid.ops.elementwise import logical_not as logical_not
from lucid.ops.elementwise import logical_or as logical_or
from lucid.ops.elementwise import maximum as maximum
from lucid.ops.elementwise import minimum as minimum
from lucid.ops.elementwise import mul as mul
from lucid.ops.elementwise import neg as neg
from lucid.ops.elementwise import not_equal as not_equal
from lucid.ops.elementwise import pow_ as _pow
from lucid.ops.elementwise import reciprocal as reciprocal
from lucid.ops.elementwise import round_ as _round
from lucid.ops.elementwise import rsqrt as rsqrt
from lucid.ops.elementwise import sigmoid as sigmoid
from lucid.ops.elementwise import sign as sign
from lucid.ops.elementwise import sin as sin
from lucid.ops.elementwise import sqrt as sqrt
from lucid.ops.elementwise import square as square
from lucid.ops.elementwise import stop_gradient as stop_gradient
from lucid.ops.elementwise import sub as sub
from lucid.ops.elementwise import tan as tan
from lucid.ops.elementwise import tanh as tanh
from lucid.ops.elementwise import where as where
from lucid.ops.experts import gated_experts as gated_experts
from lucid.ops.experts import grouped_mm as grouped_mm
from lucid.ops.experts import mixture_of_experts as mixture_of_experts
from lucid.ops.indexing import gather_nd as gather_nd
from lucid.ops.indexing import take as take
from lucid.ops.indexing import take_along as take_along
from lucid.ops.int8 import int8_embedding as int8_embedding
from lucid.ops.int8 import int8_linear_dynamic as int8_linear_dynamic
from lucid.ops.int8 import int8_linear_rows as int8_linear_rows
from lucid.ops.int8 import int8_linear_static as int8_linear_static
from lucid.ops.interpolation import interpolate as interpolate
from lucid.ops.interpolation import resize as resize
from lucid.ops.linalg import linear as linear
from lucid.ops.linalg import matmul as matmul
from lucid.ops.loops import scan as scan
from lucid.ops.neural import batch_norm as batch_norm
from lucid.ops.neural import dropout as dropout
from lucid.ops.neural import elu as elu
from lucid.ops.neural import embedding as embedding
from lucid.ops.neural import gelu as gelu
from lucid.ops.neural import group_norm as group_norm
from lucid.ops.neural import hardsigmoid as hardsigmoid
from lucid.ops.neural import hardswish as hardswish
from lucid.ops.neural import hardtanh as hardtanh
from lucid.ops.neural import layer_norm as layer_norm
from lucid.ops.neural import log_softmax as log_softmax
from lucid.ops.neural import relu as relu
from lucid.ops.neural import rms_norm as rms_norm
from lucid.ops.neural import silu as silu
from lucid.ops.neural import softmax as softmax
from lucid.ops.neural import softplus as softplus
from lucid.ops.op import Op as Op
from lucid.ops.op import composite as composite
from lucid.ops.quantized import quantized_embedding as quantized_embedding
from lucid.ops.quantized import quantized_linear as quantized_linear
from lucid.ops.quantized import unpack_codes as unpack_codes
from lucid.ops.rearranging import flip as flip
from lucid.ops.rearranging import hstack as hstack
from lucid.ops.rearranging import meshgrid as meshgrid
from lucid.ops.rearranging import movedim as movedim
from lucid.ops.rearranging import narrow as narrow
from lucid.ops.rearranging import repeat_interleave as repeat_interleave
from lucid.ops.rearranging import roll as roll
from lucid.ops.rearranging import unbind as unbind
from lucid.ops.rearranging import unflatten as unflatten
from lucid.ops.reduction import all_ as _all
from lucid.ops.reduction import any_ as _any
from lucid.ops.reduction import argmax as argmax
from lucid.ops.reduction import cumsum as cumsum
from lucid.ops.reduction import logsumexp as logsumexp
from lucid.ops.reduction import max_ as _max
from lucid.ops.reduction import mean as mean
from lucid.ops.reduction import min_ as _min
from lucid.ops.reduction import norm as norm
from lucid.ops.reduction import prod as prod
from lucid.ops.reduction import sum_ as _sum
from lucid.ops.reduction import var as var
from lucid.ops.reduction import variance as variance
from lucid.ops.rotary import rotary_embedding as rotary_embedding
from lucid.ops.scattering import gather as gather
from lucid.ops.scattering import index_add as index_add
from lucid.ops.scattering import masked_scatter as masked_scatter
from lucid.ops.scattering import nonzero as nonzero
from lucid.ops.scattering import scatter as scatter
from lucid.ops.scattering import scatter_add as scatter_add
from lucid.ops.scattering import scatter_reduce as scatter_reduce
from lucid.ops.selecting import argwhere as argwhere
from lucid.ops.selecting import kthvalue as kthvalue
from lucid.ops.selecting import masked_select as masked_select
from lucid.ops.selecting import median as median
from lucid.ops.selecting import nonzero_static as nonzero_static
from lucid.ops.selecting import quantile as quantile
from lucid.ops.selecting import searchsorted as searchsorted
from lucid.ops.selecting import tril_indices as tril_indices
from lucid.ops.selecting import triu_indices as triu_indices
from lucid.ops.selecting import unravel_index as unravel_index
from lucid.ops.shaping import concat as concat
from lucid.ops.shaping import expand as expand
from lucid.ops.shaping import flatten as flatten
from lucid.ops.shaping import pad as pad
from lucid.ops.shaping import permute as permute
from lucid.ops.shaping import repeat as repeat
from lucid.ops.shaping import reshape as reshape
from lucid.ops.shaping import split as split
from lucid.ops.shaping import squeeze as squeeze
from lucid.ops.shaping import stack as stack
from lucid.ops.shaping import transpose as transpose
from lucid.ops.shaping import unsqueeze as unsqueeze
from lucid.ops.sorting import argmin as argmin
from lucid.ops.sorting import sort as sort
from lucid.ops.sorting import topk as topk
from lucid.ops.tensor.tensor import OPS as OPS
from lucid.ops.trigonometry import acosh as acosh
from lucid.ops.trigonometry import asinh as asinh
from lucid.ops.trigonometry import atan2 as atan2
from lucid.ops.trigonometry import atanh as atanh
from lucid.ops.trigonometry import cosh as cosh
from lucid.ops.trigonometry import hypot as hypot
from lucid.ops.trigonometry import sinh as sinh

abs, pow, round = _abs, _pow, _round
all, any, max, min, sum = _all, _any, _max, _min, _sum
_define_backend()

__all__ = _public.offered(globals())


def __dir__() -> list[str]:
    return __all__


if not _TYPE_CHECKING:  # type checkers know the names

    def __getattr__(name: str) -> object:
        raise _public.unknown(f"module {__name__!r}", name, __all__)
