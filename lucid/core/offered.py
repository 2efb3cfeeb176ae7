"""The names in `lucid` besides its packages (`lucid.nn`, `lucid.export` and so on); loaded on first use."""

import math as _math

from lucid.core.graph.graph import Graph as Graph
from lucid.core.graph.types import DType as DType
from lucid.core.graph.types import TensorType as TensorType
from lucid.core.graph.types import bfloat16 as bfloat16
from lucid.core.graph.types import bool_ as bool_
from lucid.core.graph.types import float16 as float16
from lucid.core.graph.types import float32 as float32
from lucid.core.graph.types import float64 as float64
from lucid.core.graph.types import int8 as int8
from lucid.core.graph.types import int32 as int32
from lucid.core.graph.types import int64 as int64
from lucid.core.graph.types import spec as spec
from lucid.core.graph.types import uint8 as uint8
from lucid.core.process.random import manual_seed as manual_seed
from lucid.core.process.threads import get_num_threads as get_num_threads
from lucid.core.process.threads import set_num_threads as set_num_threads
from lucid.core.sizes.dims import Dim as Dim
from lucid.core.sizes.dims import Size as Size
from lucid.core.sizes.dims import SymbolicSizeError as SymbolicSizeError
from lucid.core.sizes.dims import sym_max as sym_max
from lucid.core.sizes.dims import sym_min as sym_min
from lucid.core.torch_names.namespaces import accelerator as accelerator
from lucid.core.torch_names.namespaces import autocast as autocast
from lucid.core.torch_names.namespaces import autograd as autograd
from lucid.core.torch_names.namespaces import backends as backends
from lucid.core.torch_names.namespaces import channels_last as channels_last
from lucid.core.torch_names.namespaces import compiler as compiler
from lucid.core.torch_names.namespaces import contiguous_format as contiguous_format
from lucid.core.torch_names.namespaces import cuda as cuda
from lucid.core.torch_names.namespaces import device as device
from lucid.core.torch_names.namespaces import distributed as distributed
from lucid.core.torch_names.namespaces import is_autocast_enabled as is_autocast_enabled
from lucid.core.torch_names.namespaces import is_grad_enabled as is_grad_enabled
from lucid.core.torch_names.namespaces import jit as jit
from lucid.core.torch_names.namespaces import library as library
from lucid.core.torch_names.namespaces import mps as mps
from lucid.core.torch_names.namespaces import onnx as onnx
from lucid.core.torch_names.namespaces import preserve_format as preserve_format
from lucid.core.torch_names.namespaces import strided as strided
from lucid.core.torch_names.namespaces import xpu as xpu
from lucid.core.torch_names.no_grad_and_finfo import finfo as finfo
from lucid.core.torch_names.no_grad_and_finfo import iinfo as iinfo
from lucid.core.torch_names.no_grad_and_finfo import inference_mode as inference_mode
from lucid.core.torch_names.no_grad_and_finfo import no_grad as no_grad
from lucid.files.weights import WeightsError as WeightsError
from lucid.files.weights import load as load
from lucid.files.weights import save as save
from lucid.gradients import grad as grad
from lucid.gradients import value_and_grad as value_and_grad
from lucid.importing.torch_import import from_torch as from_torch
from lucid.nn.functional import cosine_similarity as cosine_similarity
from lucid.nn.quantizing.quantize import quantize as quantize
from lucid.ops import atan2 as atan2
from lucid.ops import baddbmm as baddbmm
from lucid.ops import concat as concat
from lucid.ops import einsum as einsum
from lucid.ops import exp as exp
from lucid.ops import full_like as full_like
from lucid.ops import hstack as hstack
from lucid.ops import hypot as hypot
from lucid.ops import linspace as linspace
from lucid.ops import log as log
from lucid.ops import logsumexp as logsumexp
from lucid.ops import matmul as matmul
from lucid.ops import maximum as maximum
from lucid.ops import meshgrid as meshgrid
from lucid.ops import minimum as minimum
from lucid.ops import ones_like as ones_like
from lucid.ops import pow as _pow
from lucid.ops import sigmoid as sigmoid
from lucid.ops import sqrt as sqrt
from lucid.ops import stack as stack
from lucid.ops import tanh as tanh
from lucid.ops import zeros_like as zeros_like
from lucid.ops.bitwise import bitwise_left_shift as bitwise_left_shift
from lucid.ops.bitwise import bitwise_right_shift as bitwise_right_shift
from lucid.ops.composed import addcdiv as addcdiv
from lucid.ops.composed import addcmul as addcmul
from lucid.ops.composed import allclose as allclose
from lucid.ops.composed import atleast_1d as atleast_1d
from lucid.ops.composed import atleast_2d as atleast_2d
from lucid.ops.composed import block_diag as block_diag
from lucid.ops.composed import cdist as cdist
from lucid.ops.composed import column_stack as column_stack
from lucid.ops.composed import count_nonzero as count_nonzero
from lucid.ops.composed import cross as cross
from lucid.ops.composed import cummax as cummax
from lucid.ops.composed import cummin as cummin
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
from lucid.ops.composed import logit as logit
from lucid.ops.composed import mv as mv
from lucid.ops.composed import nan_to_num as nan_to_num
from lucid.ops.composed import ravel as ravel
from lucid.ops.composed import sinc as sinc
from lucid.ops.composed import take_along_dim as take_along_dim
from lucid.ops.composed import tensor_split as tensor_split
from lucid.ops.composed import tensordot as tensordot
from lucid.ops.composed import trunc as trunc
from lucid.ops.composed import vsplit as vsplit
from lucid.ops.composed import vstack as vstack
from lucid.ops.composed import xlogy as xlogy
from lucid.ops.creation import BoolTensor as BoolTensor
from lucid.ops.creation import DoubleTensor as DoubleTensor
from lucid.ops.creation import FloatTensor as FloatTensor
from lucid.ops.creation import IntTensor as IntTensor
from lucid.ops.creation import LongTensor as LongTensor
from lucid.ops.creation import arange as arange
from lucid.ops.creation import empty as empty
from lucid.ops.creation import empty_like as empty_like
from lucid.ops.creation import eye as eye
from lucid.ops.creation import from_numpy as from_numpy
from lucid.ops.creation import full as full
from lucid.ops.creation import get_default_dtype as get_default_dtype
from lucid.ops.creation import hamming_window as hamming_window
from lucid.ops.creation import hann_window as hann_window
from lucid.ops.creation import is_tensor as is_tensor
from lucid.ops.creation import kaiser_window as kaiser_window
from lucid.ops.creation import normal as normal
from lucid.ops.creation import ones as ones
from lucid.ops.creation import rand as rand
from lucid.ops.creation import rand_like as rand_like
from lucid.ops.creation import randint as randint
from lucid.ops.creation import randint_like as randint_like
from lucid.ops.creation import randn as randn
from lucid.ops.creation import randn_like as randn_like
from lucid.ops.creation import randperm as randperm
from lucid.ops.creation import scalar_tensor as scalar_tensor
from lucid.ops.creation import tensor as tensor
from lucid.ops.creation import zeros as zeros
from lucid.ops.einsum import addmm as addmm
from lucid.ops.elementwise import expm1 as expm1
from lucid.ops.elementwise import log1p as log1p
from lucid.ops.elementwise import stop_gradient as stop_gradient
from lucid.ops.indexing import take_elements as _take_elements
from lucid.ops.operand_conversion import function_of as _function
from lucid.ops.rearranging import diff as diff
from lucid.ops.scattering import scatter_reduce as scatter_reduce
from lucid.ops.scattering import where as where
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
from lucid.ops.sorting import bucketize as bucketize
from lucid.ops.tensor.tensor import Tensor as Tensor
from lucid.ops.tensor.tensor import TracedValueError as TracedValueError
from lucid.ops.torch_namespaces import linalg as linalg
from lucid.ops.torch_namespaces import special as special
from lucid.tracing.trace import trace as trace
from lucid.tracing.written_attention import attention_as_written as attention_as_written

# torch offers these as functions and as methods; here they are the methods, which take the tensor first, or an array.
abs = _function(Tensor.abs)
acos = _function(Tensor.acos)
acosh = _function(Tensor.acosh)
add = _function(Tensor.add)
all = _function(Tensor.all)
amax = _function(Tensor.amax)
amin = _function(Tensor.amin)
any = _function(Tensor.any)
argmax = _function(Tensor.argmax)
argmin = _function(Tensor.argmin)
argsort = _function(Tensor.argsort)
asin = _function(Tensor.asin)
asinh = _function(Tensor.asinh)
atan = _function(Tensor.atan)
atanh = _function(Tensor.atanh)
broadcast_to = _function(Tensor.broadcast_to)
ceil = _function(Tensor.ceil)
chunk = _function(Tensor.chunk)
clamp = _function(Tensor.clamp)
clamp_max = _function(Tensor.clamp_max)
clamp_min = _function(Tensor.clamp_min)
clone = _function(Tensor.clone)
cos = _function(Tensor.cos)
cosh = _function(Tensor.cosh)
cumsum = _function(Tensor.cumsum)
detach = _function(Tensor.detach)
div = _function(Tensor.div)
eq = _function(Tensor.eq)
equal = _function(Tensor.equal)
erf = _function(Tensor.erf)
flatten = _function(Tensor.flatten)
flip = _function(Tensor.flip)
floor = _function(Tensor.floor)
gather = _function(Tensor.gather)
ge = _function(Tensor.ge)
gt = _function(Tensor.gt)
index_add = _function(Tensor.index_add)
index_select = _function(Tensor.index_select)
isfinite = _function(Tensor.isfinite)
isinf = _function(Tensor.isinf)
isnan = _function(Tensor.isnan)
le = _function(Tensor.le)
log2 = _function(Tensor.log2)
log_softmax = _function(Tensor.log_softmax)
logical_and = _function(Tensor.logical_and)
logical_not = _function(Tensor.logical_not)
logical_or = _function(Tensor.logical_or)
lt = _function(Tensor.lt)
masked_fill = _function(Tensor.masked_fill)
max = _function(Tensor.max)
mean = _function(Tensor.mean)
min = _function(Tensor.min)
bitwise_and = _function(Tensor.bitwise_and)
bitwise_not = _function(Tensor.bitwise_not)
bitwise_or = _function(Tensor.bitwise_or)
bitwise_xor = _function(Tensor.bitwise_xor)
logical_xor = _function(Tensor.logical_xor)
movedim = _function(Tensor.movedim)
mul = _function(Tensor.mul)
narrow = _function(Tensor.narrow)
ne = _function(Tensor.ne)
neg = _function(Tensor.neg)
nonzero = _function(Tensor.nonzero)
norm = _function(Tensor.norm)
numel = _function(Tensor.numel)
outer = _function(Tensor.outer)
permute = _function(Tensor.permute)
prod = _function(Tensor.prod)
reciprocal = _function(Tensor.reciprocal)
relu = _function(Tensor.relu)
repeat_interleave = _function(Tensor.repeat_interleave)
reshape = _function(Tensor.reshape)
roll = _function(Tensor.roll)
round = _function(Tensor.round)
rsqrt = _function(Tensor.rsqrt)
is_floating_point = _function(Tensor.is_floating_point)
is_complex = _function(Tensor.is_complex)
scatter = _function(Tensor.scatter)
scatter_add = _function(Tensor.scatter_add)
sign = _function(Tensor.sign)
sin = _function(Tensor.sin)
sinh = _function(Tensor.sinh)
softmax = _function(Tensor.softmax)
sort = _function(Tensor.sort)
split = _function(Tensor.split)
square = _function(Tensor.square)
squeeze = _function(Tensor.squeeze)
std = _function(Tensor.std)
sub = _function(Tensor.sub)
sum = _function(Tensor.sum)
swapaxes = _function(Tensor.swapaxes)
t = _function(Tensor.t)
tan = _function(Tensor.tan)
tile = _function(Tensor.tile)
topk = _function(Tensor.topk)
tril = _function(Tensor.tril)
triu = _function(Tensor.triu)
transpose = _function(Tensor.transpose)
unbind = _function(Tensor.unbind)
unflatten = _function(Tensor.unflatten)
unsqueeze = _function(Tensor.unsqueeze)
var = _function(Tensor.var)
bmm, clip, moveaxis, multiply = _function(Tensor.matmul), clamp, movedim, mul
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
absolute, negative, subtract, divide, mm = abs, neg, sub, div, bmm
cat = concatenate = concat
pow = _pow
take, as_tensor = _take_elements, tensor

inf, nan, pi, e = _math.inf, _math.nan, _math.pi, _math.e

# torch's names of element types.
dtype = DType
double, float, half = float64, float32, float16
long, int, bool = int64, int32, bool_
