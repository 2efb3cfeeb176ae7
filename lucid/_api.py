"""The names in `lucid` besides its packages (`lucid.nn`, `lucid.export` and so on); loaded on first use."""

from lucid.dims import Dim as Dim
from lucid.dims import Size as Size
from lucid.dims import SymbolicSizeError as SymbolicSizeError
from lucid.dims import sym_max as sym_max
from lucid.dims import sym_min as sym_min
from lucid.graph import Graph as Graph
from lucid.ops import baddbmm as baddbmm
from lucid.ops import concat as concat
from lucid.ops import einsum as einsum
from lucid.ops import exp as exp
from lucid.ops import full_like as full_like
from lucid.ops import hstack as hstack
from lucid.ops import linspace as linspace
from lucid.ops import log as log
from lucid.ops import matmul as matmul
from lucid.ops import maximum as maximum
from lucid.ops import meshgrid as meshgrid
from lucid.ops import minimum as minimum
from lucid.ops import ones_like as ones_like
from lucid.ops import pow_ as _pow
from lucid.ops import sigmoid as sigmoid
from lucid.ops import sqrt as sqrt
from lucid.ops import stack as stack
from lucid.ops import take as take
from lucid.ops import tanh as tanh
from lucid.ops import where as where
from lucid.ops import zeros_like as zeros_like
from lucid.ops.creation import arange as arange
from lucid.ops.creation import empty as empty
from lucid.ops.creation import eye as eye
from lucid.ops.creation import full as full
from lucid.ops.creation import ones as ones
from lucid.ops.creation import tensor as tensor
from lucid.ops.creation import zeros as zeros
from lucid.ops.drawing import rand as rand
from lucid.ops.drawing import randn as randn
from lucid.ops.tensor import Tensor as Tensor
from lucid.ops.tensor import TracedValueError as TracedValueError
from lucid.quantizing import quantize as quantize
from lucid.random import manual_seed as manual_seed
from lucid.threads import get_num_threads as get_num_threads
from lucid.threads import set_num_threads as set_num_threads
from lucid.torch_habits import finfo as finfo
from lucid.torch_habits import inference_mode as inference_mode
from lucid.torch_habits import no_grad as no_grad
from lucid.tracing import trace as trace
from lucid.types import DType as DType
from lucid.types import TensorType as TensorType
from lucid.types import bfloat16 as bfloat16
from lucid.types import bool_ as bool_
from lucid.types import float16 as float16
from lucid.types import float32 as float32
from lucid.types import float64 as float64
from lucid.types import int8 as int8
from lucid.types import int32 as int32
from lucid.types import int64 as int64
from lucid.types import spec as spec
from lucid.types import uint8 as uint8
from lucid.weights import WeightsError as WeightsError
from lucid.weights import load as load
from lucid.weights import save as save

# torch offers these as functions and as methods; here they are the methods, which take the tensor first.
abs = Tensor.abs
add = Tensor.add
all = Tensor.all
amax = Tensor.amax
amin = Tensor.amin
any = Tensor.any
argmax = Tensor.argmax
argmin = Tensor.argmin
argsort = Tensor.argsort
broadcast_to = Tensor.broadcast_to
ceil = Tensor.ceil
chunk = Tensor.chunk
clamp = Tensor.clamp
cos = Tensor.cos
cumsum = Tensor.cumsum
div = Tensor.div
eq = Tensor.eq
erf = Tensor.erf
flatten = Tensor.flatten
flip = Tensor.flip
floor = Tensor.floor
gather = Tensor.gather
ge = Tensor.ge
gt = Tensor.gt
index_add = Tensor.index_add
index_select = Tensor.index_select
isfinite = Tensor.isfinite
isinf = Tensor.isinf
isnan = Tensor.isnan
le = Tensor.le
log2 = Tensor.log2
log_softmax = Tensor.log_softmax
logical_and = Tensor.logical_and
logical_not = Tensor.logical_not
logical_or = Tensor.logical_or
lt = Tensor.lt
masked_fill = Tensor.masked_fill
max = Tensor.max
mean = Tensor.mean
min = Tensor.min
movedim = Tensor.movedim
mul = Tensor.mul
narrow = Tensor.narrow
ne = Tensor.ne
neg = Tensor.neg
nonzero = Tensor.nonzero
norm = Tensor.norm
numel = Tensor.numel
outer = Tensor.outer
permute = Tensor.permute
prod = Tensor.prod
reciprocal = Tensor.reciprocal
relu = Tensor.relu
repeat_interleave = Tensor.repeat_interleave
reshape = Tensor.reshape
roll = Tensor.roll
round = Tensor.round
rsqrt = Tensor.rsqrt
scatter = Tensor.scatter
scatter_add = Tensor.scatter_add
sign = Tensor.sign
sin = Tensor.sin
softmax = Tensor.softmax
sort = Tensor.sort
split = Tensor.split
square = Tensor.square
squeeze = Tensor.squeeze
std = Tensor.std
sub = Tensor.sub
sum = Tensor.sum
swapaxes = Tensor.swapaxes
tile = Tensor.tile
topk = Tensor.topk
tril = Tensor.tril
triu = Tensor.triu
transpose = Tensor.transpose
unbind = Tensor.unbind
unflatten = Tensor.unflatten
unsqueeze = Tensor.unsqueeze
var = Tensor.var
bmm, clip, moveaxis = Tensor.matmul, clamp, movedim
greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
cat = concatenate = concat
pow = _pow

# torch's names of element types.
double, float, half = float64, float32, float16
long, int, bool = int64, int32, bool_
