"""The folder of a training: what it was begun with, so that the same command goes on after a kill, or has ended."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from lucid.batch.job import difference
from lucid.files.weights import WeightsError
from lucid.models.checkpoints.config import read_json, read_optional_json, write_json
from lucid.runtime import TrainingError

RECORD = "lucid_training.json"
"""The file of a trained folder that says how it was trained."""
RUN, CHECKPOINT = "run.json", "checkpoint.safetensors"
"""The files of a training that has not ended: what it was begun with, and how far it is."""

History: TypeAlias = list[dict[str, float]]
"""For each evaluation its step, epoch, train_loss, the mean of the losses of the steps since the last one, and, with
rows to evaluate, eval_loss and an eval_{metric} for each metric of the task, over each row or learned token once."""


def finished(output: Path, record: Mapping[str, Any]) -> History | None:
    """The history of a folder that was trained exactly so: the run was killed, or called again, at its very end."""
    there = read_optional_json(output / RECORD)
    history: History | None = there.pop("history", None)
    return history if there == record else None


@contextmanager
def working(work: Path, record: Mapping[str, Any]) -> Iterator[None]:
    """Begin a run in its folder, or go on with it; without a checkpoint nothing of it stays after an error.

    Raises:
        FileExistsError: for a folder of something else.
        ValueError: for that of another run.
    """
    if any(work.iterdir()) and not (work / RUN).exists():
        raise FileExistsError(f"{work}: has other files, and checkpoints would be written there; give another output")
    if (work / RUN).exists():
        before = read_json(work / RUN)
        for name, now in record.items():
            if before.get(name) != now:
                raise ValueError(
                    f"{work}: holds a training that was interrupted, whose {name} differed, so this one cannot go on "
                    f"with it; repeat its options, or remove the folder{_difference(name, before.get(name), now)}"
                )
    try:
        write_json(work / RUN, record)
        yield
    except (TrainingError, WeightsError, OSError, KeyboardInterrupt) as error:
        if (work / CHECKPOINT).exists():
            if isinstance(error, WeightsError):
                error.add_note(f"to begin again, remove {work}")
            elif isinstance(error, TrainingError):
                error.add_note(f"to begin again with other options, such as a lower learning rate, remove {work}")
            else:
                error.add_note(f"{work} has its last checkpoint; the same command goes on from there")
        raise
    finally:
        if not (work / CHECKPOINT).exists():
            shutil.rmtree(work, ignore_errors=True)


def _difference(name: str, before: Any, now: Any) -> str:
    if name == "source":
        files = [file for file, digest in now.items() if not isinstance(before, dict) or before.get(file) != digest]
        return f" ({files[0]} is new or has changed)" if files else " (there are fewer files)"
    return difference("input" if name in ("data", "eval_dataset") else name, before, now)
