"""Random numbers: one seeded generator a process, guarded so that threads may share it."""

from __future__ import annotations

import threading

import numpy as np

_local = threading.local()
_lock = threading.Lock()
_root = np.random.SeedSequence(0)
_epoch = 0


def manual_seed(seed: int) -> None:
    """Make the random numbers that follow a function of the seed.

    Each thread has a stream of its own: the thread that seeds gets the first, others the next ones as they first draw.
    """
    global _root, _epoch
    with _lock:
        _root = np.random.SeedSequence(seed)
        _epoch += 1
    generator()


def generator() -> np.random.Generator:
    """This thread's generator."""
    if _local.__dict__.get("epoch") != _epoch:
        with _lock:
            _local.generator = np.random.Generator(np.random.PCG64(_root.spawn(1)[0]))
            _local.epoch = _epoch
    current: np.random.Generator = _local.generator
    return current
