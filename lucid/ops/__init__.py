"""The ops, by family. `OPS` holds all of them by name, and the convenience functions that wrap some of them.

`sum_`, `max_` and so on are older names of `sum`, `max`; `arange_between` is an older name of `arange_op`.
"""

from lucid.ops.attention import attention as attention
from lucid.ops.buffers import buffered_attention as buffered_attention
from lucid.ops.buffers import write_at as write_at
from lucid.ops.channel_norms import batch_norm as batch_norm
from lucid.ops.channel_norms import group_norm as group_norm
from lucid.ops.convolution import adaptive_average_pool as adaptive_average_pool
from lucid.ops.convolution import average_pool as average_pool
from lucid.ops.convolution import conv as conv
from lucid.ops.convolution import max_pool as max_pool
from lucid.ops.creation import arange as arange
from lucid.ops.creation import arange_op as arange_op
from lucid.ops.creation import full as full
from lucid.ops.creation import one_hot as one_hot
from lucid.ops.creation import tril as tril
from lucid.ops.creation import triu as triu
from lucid.ops.elementwise import abs_ as abs_
from lucid.ops.elementwise import add as add
from lucid.ops.elementwise import ceil as ceil
from lucid.ops.elementwise import clip as clip
from lucid.ops.elementwise import cos as cos
from lucid.ops.elementwise import div as div
from lucid.ops.elementwise import equal as equal
from lucid.ops.elementwise import erf as erf
from lucid.ops.elementwise import exp as exp
from lucid.ops.elementwise import floor as floor
from lucid.ops.elementwise import isnan as isnan
from lucid.ops.elementwise import log as log
from lucid.ops.elementwise import logical_and as logical_and
from lucid.ops.elementwise import logical_not as logical_not
from lucid.ops.elementwise import logical_or as logical_or
from lucid.ops.elementwise import maximum as maximum
from lucid.ops.elementwise import minimum as minimum
from lucid.ops.elementwise import mul as mul
from lucid.ops.elementwise import neg as neg
from lucid.ops.elementwise import not_equal as not_equal
from lucid.ops.elementwise import pow_ as pow_
from lucid.ops.elementwise import reciprocal as reciprocal
from lucid.ops.elementwise import round_ as round_
from lucid.ops.elementwise import sigmoid as sigmoid
from lucid.ops.elementwise import sign as sign
from lucid.ops.elementwise import sin as sin
from lucid.ops.elementwise import sqrt as sqrt
from lucid.ops.elementwise import sub as sub
from lucid.ops.elementwise import tanh as tanh
from lucid.ops.elementwise import where as where
from lucid.ops.indexing import gather_nd as gather_nd
from lucid.ops.indexing import take as take
from lucid.ops.indexing import take_along as take_along
from lucid.ops.linalg import linear as linear
from lucid.ops.linalg import matmul as matmul
from lucid.ops.neural import dropout as dropout
from lucid.ops.neural import embedding as embedding
from lucid.ops.neural import gelu as gelu
from lucid.ops.neural import layer_norm as layer_norm
from lucid.ops.neural import log_softmax as log_softmax
from lucid.ops.neural import relu as relu
from lucid.ops.neural import rms_norm as rms_norm
from lucid.ops.neural import silu as silu
from lucid.ops.neural import softmax as softmax
from lucid.ops.neural import softplus as softplus
from lucid.ops.op import REGISTERED as REGISTERED
from lucid.ops.op import Op as Op
from lucid.ops.op import composite as composite
from lucid.ops.reduction import all_ as all_
from lucid.ops.reduction import any_ as any_
from lucid.ops.reduction import argmax as argmax
from lucid.ops.reduction import cumsum as cumsum
from lucid.ops.reduction import max_ as max_
from lucid.ops.reduction import mean as mean
from lucid.ops.reduction import min_ as min_
from lucid.ops.reduction import prod as prod
from lucid.ops.reduction import sum_ as sum_
from lucid.ops.reduction import variance as variance
from lucid.ops.rotary import rotary_embedding as rotary_embedding
from lucid.ops.shaping import concat as concat
from lucid.ops.shaping import expand as expand
from lucid.ops.shaping import flatten as flatten
from lucid.ops.shaping import flip as flip
from lucid.ops.shaping import pad as pad
from lucid.ops.shaping import permute as permute
from lucid.ops.shaping import repeat as repeat
from lucid.ops.shaping import reshape as reshape
from lucid.ops.shaping import split as split
from lucid.ops.shaping import squeeze as squeeze
from lucid.ops.shaping import stack as stack
from lucid.ops.shaping import transpose as transpose
from lucid.ops.shaping import unsqueeze as unsqueeze
from lucid.ops.tensor import OPS as OPS

abs, pow, round = abs_, pow_, round_
all, any, max, min, sum = all_, any_, max_, min_, sum_
arange_between = arange_op
