"""From which sizes other forms of attention are faster on onnxruntime's CPU provider, and where that was measured.

The page "Benchmarks" describes the measurements ("Which form is fastest" has those that rest on one processor), and
the page "Forms, by processor", here "the forms page", has the times of usual nodes. A test holds what follows from
them to the forms that are best on average over the measured processors. `plan.py` alone decides by these numbers.
"""

from __future__ import annotations

from typing import NamedTuple

# Query blocks of a known length ---------------------------------------------------------------------------------------

# Up to so many queries the plain node is as fast: the forms page, "causal" and "causal, key mask" at 64 and 128.
SHORT, SHORT_IF_MASKED = 64, 128
# The same for products, where scores are capped: "Shapes the tables lack".
SHORT_IF_CAPPED = 96
# The same where masks alone hide keys, for queries and for keys: the forms page, "key mask" at 128 and 200.
SHORT_IF_NOT_CAUSAL = 192
# The rows of a block, up to so many queries: fewer rows compute fewer scores, and more copies of keys. Beyond, memory
# matters more than the few percent that larger blocks gain: "Causal attention: a fixed length".
ROWS = ((512, 64), (1024, 128), (4096, 256))
ROWS_BEYOND = 128
# The same where blocks hand on their keys, above a length: with fewer queries copies are as fast. Beyond the last limit
# memory matters here as well, since two such caches are alive at a time: "Causal attention: a fixed length".
HANDED_ON_ABOVE = 1024
ROWS_HANDED_ON, ROWS_HANDED_ON_IF_GROUPED = ((2048, 128), (4096, 256)), ((2048, 128),)
# Up to so many queries of causal blocks, which leave out most hidden keys, the bound on scores costs what it saves.
# Where the bound does not hold, as in all models with trained weights that were tried, it saves nothing.
UNBOUNDED = 2048

# Query blocks of any length -------------------------------------------------------------------------------------------

# Up to so many queries all scores at once are as fast, on one of the processors much faster: the forms page, "causal,
# any length"; the second one where scores are capped.
WHOLE, WHOLE_IF_CAPPED = 192, 128
# Rows of a block. A step costs as much as some rows do, and a block copies all keys before it: so there are up to 8
# blocks of 64 rows, then 8 larger ones, then as many of 256 as it takes. Beyond a length where memory matters more,
# they have 96: "One model for all lengths".
FEW, FIRST_BLOCKS, MANY = 64, 8, 256
LONG, FEW_IF_LONG = 4096, 96

# Tiles ----------------------------------------------------------------------------------------------------------------

# From so many queries and keys tiles take less time than the node, and than three products where heads are split or
# one: the forms page, "no mask, packed" and "no mask" at 512 and 2048.
TILED, TILED_IF_SPLIT = 512, 1024

# Products -------------------------------------------------------------------------------------------------------------

# Up to so many heads of all texts leave threads idle, one of two or of four: then products are faster, from so many
# queries on; from more, if several heads are packed and have to be split: "Few heads".
FEW_HEADS, SHARED, SHARED_IF_PACKED, SHARED_IF_PACKED_AND_CAUSAL = 3, 128, 512, 1024
# From so many queries capped scores are computed in blocks of so many rows, which stay in the caches through their tanh
# and softmax; with fewer, a block costs more than it saves: the forms page, "causal, softcap".
LONG_IF_CAPPED, ROWS_IF_CAPPED = 2048, 256

# Window blocks --------------------------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """How a text is cut: with fewer rows keys are copied more often, with more rows more scores are hidden."""

    rows: int  # queries of a block
    short: float  # up to so many times the keys of a block, the plain node is as fast


# "Windows"; from so many visible keys besides its own, a query's window is wide.
NARROW, WIDE = Cut(64, 2.0), Cut(128, 1.5)
REACH = 384
