"""Random numbers: one seed per process, and a generator for each thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from lucid.core.number_ranges import at_least, check

_local = threading.local()
_lock = threading.Lock()
_seed = 0
_streams = 0  # the number of threads that have a generator of this seed
_epoch = 0  # how many times a seed was set


def manual_seed(seed: int) -> None:
    """Seed the random numbers.

    Each thread has its own stream: the thread that seeds gets the first one, other threads the next ones when they
    first draw a number.

    Raises:
        ValueError: for a negative seed.
        TypeError: for one that is no whole number.
    """
    global _seed, _streams, _epoch
    check("manual_seed: seed", seed, at_least(0))
    with _lock:
        _seed, _streams, _epoch = int(seed), 0, _epoch + 1
    generator()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Inside, this thread draws from a generator of this seed; afterwards its own generator continues."""
    own = generator()
    _local.generator = np.random.Generator(np.random.PCG64(seed))
    try:
        yield
    finally:
        _local.generator = own


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
