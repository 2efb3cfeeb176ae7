"""Prompt lookup: a draft of the next tokens, copied from where the last ones stood before (Saxena 2023)."""

from __future__ import annotations

import numpy as np

from lucid.generation.prompts import Ids

VERIFIED = 7
"""How many tokens of a draft a decoder verifies that is exported to generate text; more are rarely right."""
_SIZES = (3, 2)  # of n-grams; a single token says too little


def draft(ids: Ids, count: int) -> Ids:
    """Up to `count` tokens that may follow ids (total,): those after the latest place with the same last tokens."""
    for size in _SIZES if count > 0 else ():
        if len(ids) > size:
            windows = np.lib.stride_tricks.sliding_window_view(ids[:-1], size)
            ends = np.flatnonzero((windows == ids[-size:]).all(axis=1)) + size
            if len(ends):
                long = ends[ends + count <= len(ids)]  # a text that repeats itself has few tokens after the latest
                start = long[-1] if len(long) else ends[0]
                return ids[start : start + count]
    return ids[:0]
