"""Random numbers: one seeded generator a process, guarded so that threads may share it."""

from __future__ import annotations

import threading

import numpy as np

_local = threading.local()
_lock = threading.Lock()
_seed = 0
_streams = 0  # how many threads have one of this seed
_epoch = 0  # how often a seed was set


def manual_seed(seed: int) -> None:
    """Make the random numbers that follow a function of the seed.

    Each thread has a stream of its own: the thread that seeds gets the first, others the next ones as they first draw.
    """
    global _seed, _streams, _epoch
    np.random.SeedSequence(seed)  # refuses what is no seed, before anything changes
    with _lock:
        _seed, _streams, _epoch = seed, 0, _epoch + 1
    generator()


def generator() -> np.random.Generator:
    """This thread's generator."""
    global _streams
    if _local.__dict__.get("epoch") != _epoch:
        with _lock:
            sequence = np.random.SeedSequence(_seed, spawn_key=(_streams,))
            _streams += 1
            _local.generator = np.random.Generator(np.random.PCG64(sequence))
            _local.epoch = _epoch
    current: np.random.Generator = _local.generator
    return current
