"""A job: what it computes, where it writes, and which parts are complete.

The rows are divided into parts, each of which becomes a Parquet file. A file appears when it is complete, so the folder
can be read at any time, and missing part files are the to-do list of an interrupted job. No row is lost or written
twice: a part is named after its first row, and its contents do not depend on who computes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lucid.batch.predictor import Predictor
from lucid.batch.rows import ERROR, with_results
from lucid.batch.source import Part, Source
from lucid.batch.storage import make_folder, names_in, read_file, size_and_version, writing
from lucid.core.version import __version__
from lucid.core.words.progress import Advance, unheard

JOB_FILE = "_lucid_map.json"
"""The file that describes the job in its folder; readers of Parquet skip names that begin with an underscore."""

_MANY = 1000  # above so many input files, only their names are compared


class Computed(NamedTuple):
    """A part that has been written."""

    rows: int  # the number of its rows
    errors: int  # the number of rows without a result


@dataclass(frozen=True, eq=False)
class Job:
    """The predictor, the rows and the output folder of a job. It can be pickled."""

    predictor: Predictor  # computes the results
    source: Source  # reads the rows
    output: str  # the address of the folder of the parts
    schema: pa.Schema  # the schema of the part files

    def compute(self, part: Part, advance: Advance = unheard) -> Computed:
        """Compute a part and write it.

        Args:
            part: a part of this job.
            advance: called with the number of rows that each batch adds.

        Raises:
            FolderChangedError: if the model has changed since the job began.
            OSError: for a file that cannot be read or written, as on a full disk; nothing of the part is left then.
        """
        errors, repeating = 0, [field.name for field in self.schema if not pa.types.is_list(field.type)]
        with (
            writing(f"{self.output}/{part.name}") as file,
            pq.ParquetWriter(file, self.schema, use_dictionary=repeating) as writer,
        ):
            for rows in self.source.read(part):
                results = self.predictor.predict(rows.values, advance)
                errors += sum(reason is not None for reason in results[ERROR])
                writer.write_batch(with_results(rows.passed, self.schema, results))
        return Computed(part.rows, errors)


def remaining_parts(job: Job, rows: int, resume: bool) -> list[Part]:
    """The parts of a job that are still to be computed.

    Args:
        job: the job.
        rows: the most rows of a part; a resumed job keeps the number that it began with.
        resume: whether to continue the job in the folder.

    Raises:
        FileExistsError: if the folder is not empty and `resume` is false.
        ValueError: if `resume` is true and the folder has another job; the message says what differs.
    """
    there = check_output(job.output, resume)
    record = {
        "made_by": f"lucid {__version__}",
        "model": job.predictor.plan.digest,
        "options": _options(job.predictor),
        "input": input_files(job.source.files),
        "rows": job.source.total,
        "rows_of_a_part": rows,
    }
    if JOB_FILE not in there:
        make_folder(job.output)
        with writing(f"{job.output}/{JOB_FILE}") as file:
            file.write(json.dumps(record, indent=1).encode())
    else:
        rows = _went_on(job, record)
    return [part for part in job.source.parts(rows) if part.name not in there]


def input_files(files: Sequence[str]) -> list[list[Any]]:
    """The identity of an input: sizes and versions of its files, or only the names of very many."""
    if len(files) <= _MANY:
        return [[file, *size_and_version(file)] for file in files]
    return [[f"{len(files)} files", hashlib.sha256("\n".join(files).encode()).hexdigest()]]


def check_output(output: str, resume: bool) -> set[str]:
    """The names in the folder of a job, which is empty or missing before it, and has its results where it goes on.

    Raises:
        FileExistsError: if the folder has other files, or the results of a job and `resume` is false.
    """
    there = names_in(output)
    if there and JOB_FILE not in there:
        raise FileExistsError(f"{output}: has other files, such as {min(there)}; give the name of a new folder")
    if there and not resume:
        raise FileExistsError(
            f"{output}: has the results of an earlier job; resume (--resume) goes on with it, or give the name of "
            "a new folder"
        )
    return there


def _went_on(job: Job, record: dict[str, Any]) -> int:
    try:
        before = json.loads(read_file(f"{job.output}/{JOB_FILE}"))
        rows = int(before["rows_of_a_part"])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{job.output}/{JOB_FILE}: is not as lucid map wrote it; give a new folder") from error
    for name, what in (("model", "model"), ("options", "options"), ("input", "input"), ("rows", "input")):
        if before.get(name) != json.loads(json.dumps(record[name])):
            raise ValueError(
                f"{job.output}: holds results of a job whose {what} differed, which this one cannot continue; give the "
                f"name of a new folder{difference(name, before.get(name), record[name])}"
            )
    return rows


def difference(name: str, before: Any, now: Any) -> str:
    """The difference between two records of a job's "input" or "options", in parentheses."""
    if name == "input" and isinstance(before, list):
        files = [one[0] for one in now if list(one) not in before]
        return f" ({files[0]} is new or has changed)" if files else " (there are fewer files)"
    if name == "options" and isinstance(before, dict):
        names = [each for each in now if before.get(each) != json.loads(json.dumps(now[each]))]
        return f" ({', '.join(f'{each}: {before.get(each)!r}, now {now[each]!r}' for each in names)})"
    return ""


def _options(predictor: Predictor) -> dict[str, Any]:
    """The options that change results. Threads and providers are not among them, and batches only change rounding."""
    choices = predictor.plan.choices
    return {
        "input": predictor.inputs,
        "output": choices.output,
        "max_length": choices.max_length,
        "max_characters": choices.max_characters,
        "pooling": choices.pooling,
        "prompt": choices.prompt,
        "generation": sorted(choices.generation.items()),
        "adapter": predictor.plan.adapter and predictor.plan.adapter[1],
    }
