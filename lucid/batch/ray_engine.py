"""A job on Ray Data: actors that hold the model and compute parts of the job, on one machine or many.

Ray moves the names of parts to the actors, and no rows: an actor reads them from the input and writes them to the
output, so both must be at the same address on every machine. A part of an actor that dies is computed by another one.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import ray
import ray.data

from lucid.batch.job import Computed, Job
from lucid.batch.source import Part


def run(job: Job, parts: Sequence[Part], workers: int | None, cluster: str | None) -> Iterator[Computed]:
    """Compute parts, in any order.

    Raises:
        ValueError: for more workers than the cluster has room for.
        ConnectionError: for a cluster that is not there.
        FolderChangedError, OSError: as `Job.compute`.
    """
    if not parts:
        return
    ours = not ray.is_initialized()
    if ours:
        ray.init(address=cluster, log_to_driver=False, include_dashboard=False if cluster is None else None)
    try:
        yield from _run(job, parts, workers)
    finally:
        if ours:
            ray.shutdown()


def _run(job: Job, parts: Sequence[Part], workers: int | None) -> Iterator[Computed]:
    there, plan = ray.cluster_resources(), job.predictor.plan
    device, share = ("GPU", 1) if any("cuda" in name.lower() for name in plan.providers) else ("CPU", plan.threads)
    room = int(there.get(device, 0)) // share
    if not room or (workers or 1) > room:
        raise ValueError(
            f"{workers or 1} workers take {share * (workers or 1)} of the cluster's {device}s each with {plan.threads} "
            f"threads, and it has {int(there.get(device, 0))}; give at most {room} workers"
        )
    count = min(workers or room, len(parts))
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    items = [{"part": pickle.dumps(part)} for part in parts]
    computed = ray.data.from_items(items, override_num_blocks=len(items)).map_batches(
        _Worker,
        fn_constructor_args=(job,),
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=count),
        **({"num_gpus": share} if device == "GPU" else {"num_cpus": share}),
    )
    try:
        for row in computed.iter_rows():
            yield Computed(int(row["rows"]), int(row["errors"]), float(row["seconds"]))
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error


class _Worker:
    """An actor; the model is opened for its first part."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def __call__(self, columns: dict[str, Any]) -> dict[str, Any]:
        done = [self._job.compute(pickle.loads(part)) for part in columns["part"]]
        return {name: np.array([getattr(one, name) for one in done]) for name in Computed._fields}
