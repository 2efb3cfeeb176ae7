"""Weights in few bits: their layout, and the ways to find codes for them. NumPy only."""

from lucid.quantization.blocks import Blocks as Blocks
from lucid.quantization.gptq import Hessian as Hessian
from lucid.quantization.gptq import gptq as gptq
from lucid.quantization.hqq import hqq as hqq
from lucid.quantization.rtn import rtn as rtn
