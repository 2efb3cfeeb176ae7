"""The rows, by family of ops. Importing this registers them, in the order in which they are tried."""

# ruff: noqa: I001
from lucid.export.lowerings import attention_half as attention_half
from lucid.export.lowerings import attention_cpu as attention_cpu
from lucid.export.lowerings import attention_cuda as attention_cuda
from lucid.export.lowerings import attention as attention
from lucid.export.lowerings import attention_portable as attention_portable
from lucid.export.lowerings import channel_norms as channel_norms
from lucid.export.lowerings import extremes as extremes
from lucid.export.lowerings import integers as integers
from lucid.export.lowerings import neural as neural
from lucid.export.lowerings import plain as plain
from lucid.export.lowerings import rotary as rotary
