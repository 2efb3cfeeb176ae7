"""Weights in few bits: their layout, and the ways to find codes for them. NumPy only."""

from lucid.quantization.blocks import Blocks as Blocks
from lucid.quantization.rtn import rtn as rtn
