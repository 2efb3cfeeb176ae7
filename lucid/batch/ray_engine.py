"""A job on Ray Data: actors that hold the model and compute parts of the job, on one machine or many.

Ray moves the names of parts to the actors, and no rows: an actor reads them from the input and writes them to the
output, so both must be at the same address on every machine. A part of an actor that dies is computed by another one.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray
import ray.data

from lucid.batch.folder import FolderChangedError
from lucid.batch.job import Computed, Job
from lucid.batch.open_models import Plan
from lucid.batch.source import Part
from lucid.core.words.progress import Advance, phase

_FAILURE = "failure"


@contextmanager
def engine(plan: Plan, workers: int | None, cluster: str | None) -> Iterator[RayEngine]:
    """A cluster with room for the workers. A cluster started here ends with the block.

    Raises:
        ValueError: for more workers than the cluster has room for.
        ConnectionError: if the cluster does not answer.
    """
    ours = not ray.is_initialized()
    if ours:
        place = cluster or os.environ.get("RAY_ADDRESS", "local")  # by itself Ray takes any that is on this machine
        dashboard = False if place == "local" else None
        with phase("starting Ray"):
            ray.init(place, log_to_driver=False, logging_level=logging.ERROR, include_dashboard=dashboard)
    try:
        yield RayEngine(plan, workers)
    finally:
        if ours:
            ray.shutdown()


class RayEngine:
    """Actors of the cluster that this process is connected to.

    Args:
        plan: of the predictor; an actor takes a GPU, or as many cores as it has threads.
        workers: the number of actors; by default as many as the cluster has room for.

    Raises:
        ValueError: as `engine`.
    """

    def __init__(self, plan: Plan, workers: int | None) -> None:
        there = ray.cluster_resources()
        on_gpu = any("cuda" in name.lower() for name in plan.providers)
        device, share = ("GPU", 1) if on_gpu else ("CPU", plan.threads)
        count = int(there.get(device, 0))
        room = count // share
        if room < (workers or 1):
            raise ValueError(
                f"{workers or 1} workers of {share} {device} each do not fit: the cluster has {count}; "
                + (f"give at most {room} workers" if room else "give fewer threads, or a cluster with more")
            )
        self._workers = workers or room
        self._share = {"num_gpus": share} if on_gpu else {"num_cpus": share}

    def run(self, job: Job, parts: Sequence[Part], advance: Advance) -> Iterator[Computed]:
        """Compute parts, in any order.

        Raises:
            FolderChangedError, OSError: as `Job.compute`.
        """
        if not parts:
            return
        ray.data.DataContext.get_current().enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        # Each part is a block, and an actor takes one block at a time. No task reads these blocks, so the actors may
        # take all cores.
        items = [{"part": pickle.dumps(part)} for part in parts]
        computed = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
            _Worker,
            fn_constructor_args=(job,),
            batch_size=1,
            compute=ray.data.ActorPoolStrategy(size=min(self._workers, len(parts))),
            **self._share,
        )
        for row in computed.iter_rows():
            if row[_FAILURE]:
                raise pickle.loads(row[_FAILURE])
            done = Computed(*(int(row[name]) for name in Computed._fields))
            advance(done.rows)
            yield done


class _Worker:
    """An actor; the model is opened for its first part."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        done, failure = Computed(0, 0), b""
        try:
            (part,) = columns["part"]
            done = self._job.compute(pickle.loads(part))
        except (FolderChangedError, OSError, ValueError) as error:  # as data: Ray's own errors lose the cause
            failure = pickle.dumps(error)
        return {**{name: np.array([value]) for name, value in done._asdict().items()}, _FAILURE: [failure]}
