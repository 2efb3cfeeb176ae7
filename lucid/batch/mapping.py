"""`map_rows`: run a model over all rows of files, in this process or on Ray Data."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import PurePath
from typing import Any, NamedTuple

from lucid.batch.image_files import ENDINGS, ImageSource
from lucid.batch.job import Computed, Job, check_output, remaining_parts
from lucid.batch.lines import LineSource
from lucid.batch.parquet import ParquetSource
from lucid.batch.predictor import Predictor
from lucid.batch.rows import Task, result_schema
from lucid.batch.source import Part, Source, check_ids
from lucid.batch.storage import COMPRESSED, address, files_at, names_in
from lucid.core.number_ranges import at_least, check_all
from lucid.core.words.other_libraries import shown_type
from lucid.core.words.progress import Advance, phase
from lucid.core.words.safe_text import listed

_PARTS = 64  # at least about as many, so that workers have equal shares


_READERS: dict[str, Callable[[tuple[str, ...], tuple[str, ...]], Source]] = {
    ".parquet": ParquetSource,
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), partial(LineSource, separator=None)),
    ".csv": partial(LineSource, separator=","),
    ".tsv": partial(LineSource, separator="\t"),
    **dict.fromkeys(ENDINGS, lambda files, inputs: ImageSource(files)),
}
ENGINES = ("local", "ray")


class Summary(NamedTuple):
    """The outcome of a job.

    Args:
        rows: the number of rows of the input.
        computed: the number of rows that this run has computed; earlier runs have computed the others.
        errors: the number of computed rows without a result; the column `error` says why.
        seconds: the duration of this run.
    """

    rows: int
    computed: int
    errors: int
    seconds: float


def map_rows(
    predictor: Predictor,
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    engine: str = "local",
    resume: bool = False,
    id_column: str | None = None,
    part_rows: int | None = None,
    workers: int | None = None,
    cluster: str | None = None,
) -> Summary:
    """Compute the rows of files and write them, with their results, as Parquet files.

    Memory does not grow with the input: rows are read, computed and written some at a time.

    Args:
        predictor: the model and its options. With the engine "local" its `threads` are those of the job.
        source: files, folders or patterns (`in/*.parquet`), as paths or as addresses that fsspec knows (`s3://...`):
            all Parquet, or all JSON lines (.jsonl, .ndjson, .json), CSV (.csv, .tsv) or images.
        output: the folder of the results, which is made; or an address of one.
        engine: "local" is this process; "ray" is Ray Data, which needs the extra `ray`.
        resume: continue an interrupted job: missing part files are computed.
        id_column: a column whose values must be unique ids, which is checked first; that takes 8 bytes a row.
        part_rows: the most rows of a file of results; by default there are 64 files or more. The first files have 64
            rows, so that little is lost if a job is interrupted early.
        workers: processes of "ray"; by default one for each GPU or for as many cores as the predictor has threads.
        cluster: the address of a Ray cluster; by default RAY_ADDRESS of the environment, or one is started here.

    Raises:
        FileNotFoundError: for an input that is not there, or not mounted.
        FileExistsError: for a folder of another job, or of this one without `resume`.
        KeyError: for a column that is not there.
        TypeError, ValueError: for files of several kinds or without rows, ids that are missing or twice, a number out
            of range, and a job that differs from the one that began in the folder.
        FolderChangedError: if the folder of the model changes while the job runs.
        OSError: for a file that cannot be read or written. What is written by then stays, and `resume` goes on; a note
            of this error, and of a KeyboardInterrupt, says how many rows are complete.
    """
    if isinstance(predictor, (str, os.PathLike)):
        raise TypeError(f"map_rows: expected a Predictor, got a path; give Predictor({os.fspath(predictor)!r})")
    opened = open_rows(
        source,
        predictor.inputs,
        output,
        engine=engine,
        resume=resume,
        id_column=id_column,
        part_rows=part_rows,
        workers=workers,
        cluster=cluster,
    )
    return opened.map(predictor)


@dataclass(frozen=True)
class OpenRows:
    """The rows of a job and how it runs, checked before there is a model."""

    rows: Source
    output: str | os.PathLike[str]
    engine: str
    resume: bool
    part_rows: int | None
    workers: int | None
    cluster: str | None
    seconds: float  # that opening the rows took

    def map(self, predictor: Predictor) -> Summary:
        """Compute the rows by a predictor of the inputs that they were opened for; as `map_rows`."""
        start, rows, local = time.monotonic(), self.rows, self.engine == "local"
        with (
            nullcontext(_Here()) if local else ray_engine().engine(predictor.plan, self.workers, self.cluster) as runner
        ):
            # Here the model is opened as it will run, before there is a folder; others may have another device.
            planned: Task | Predictor = predictor.open().task if local else predictor
            job = Job(predictor, rows, address(self.output), result_schema(rows.schema, planned.columns))
            fewest, most = planned.part_rows
            by_default = min(max(rows.total // _PARTS, fewest), most)
            parts = remaining_parts(job, self.part_rows or by_default, self.resume)
            try:
                with phase("computing rows", sum(part.rows for part in parts), "rows") as advance:
                    written = list(runner.run(job, parts, advance))
            except (OSError, KeyboardInterrupt) as error:
                there = names_in(job.output)
                done = rows.total - sum(part.rows for part in parts if part.name not in there)
                error.add_note(
                    f"{done:,} of {rows.total:,} rows are complete in {os.fspath(self.output)}; resume (--resume) goes "
                    "on with the rest"
                )
                raise
        computed, errors = (sum(counts) for counts in zip(Computed(0, 0), *written, strict=True))
        return Summary(rows.total, computed, errors, self.seconds + time.monotonic() - start)


def open_rows(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    inputs: tuple[str, ...],
    output: str | os.PathLike[str],
    *,
    engine: str = "local",
    resume: bool = False,
    id_column: str | None = None,
    part_rows: int | None = None,
    workers: int | None = None,
    cluster: str | None = None,
) -> OpenRows:
    """Check all of a job that needs no model, so that a wrong name is told before a checkpoint is read.

    Args:
        source: as `map_rows`, with all that follows.
        inputs: the columns that the model reads.
        output: the folder of the results.
        engine: "local" or "ray".
        resume: whether the folder may have the results of this job.
        id_column: a column whose values must be unique ids.
        part_rows: the most rows of a file of results.
        workers: processes of "ray".
        cluster: the address of a Ray cluster.

    Raises:
        FileNotFoundError, FileExistsError, KeyError, TypeError, ValueError: as `map_rows`.
        ModuleNotFoundError: for the engine "ray" without Ray.
    """
    if engine not in ENGINES:
        raise ValueError(f"engine {engine!r} does not exist: choose one of {', '.join(ENGINES)}")
    if engine == "local" and (workers is not None or cluster is not None):
        raise ValueError(
            "workers (--workers) and cluster (--address) are for the engine ray (--engine); the engine local has "
            "threads (--threads), in Python those of the predictor"
        )
    sizes = {"part_rows": part_rows, "workers": workers}
    check_all(sizes, dict.fromkeys(sizes, at_least(1)), "map_rows: ")
    if engine == "ray":
        ray_engine()
    start = time.monotonic()
    check_output(address(output), resume)
    rows = open_source(source, inputs)
    if id_column is not None:
        check_ids(rows, id_column)
    return OpenRows(rows, output, engine, resume, part_rows, workers, cluster, time.monotonic() - start)


class _Here:
    """The engine local."""

    def run(self, job: Job, parts: Sequence[Part], advance: Advance) -> Iterator[Computed]:
        """Compute parts, one after the other."""
        return (job.compute(part, advance) for part in parts)


def open_source(place: str | os.PathLike[str] | Sequence[str | os.PathLike[str]], inputs: tuple[str, ...]) -> Source:
    """The rows of files, by the endings of their names.

    Raises:
        FileNotFoundError, KeyError, ValueError: as `map_rows`.
    """
    places = [place] if isinstance(place, (str, os.PathLike)) else list(place)
    if wrong := [each for each in places if not isinstance(each, (str, os.PathLike))]:
        raise TypeError(f"expected paths of files, got {shown_type(wrong[0])}; write the rows to a file")
    files = tuple(dict.fromkeys(file for each in places for file in files_at(address(each))))
    if not files:
        raise ValueError("there are no files; give one or more")
    kinds = {_READERS.get(_ending(file)): file for file in reversed(files)}
    if len(kinds) > 1 or None in kinds:
        known, got = ", ".join(_READERS), [kinds[None]] if None in kinds else list(kinds.values())
        raise ValueError(
            f"expected files of one kind ({known}), got {listed(sorted(got), 4)}; give only "
            "such files, for example by a pattern: 'in/*.csv'"
        )
    source = _READERS[_ending(files[0])](files, inputs)
    if not source.total:
        raise ValueError(f"{files[0]}: has no rows")
    return source


def _ending(file: str) -> str:
    path = PurePath(file.lower())
    return path.with_suffix("").suffix if path.suffix in COMPRESSED else path.suffix


def ray_engine() -> Any:
    """The module that runs a job on Ray Data.

    Raises:
        ModuleNotFoundError: without Ray; the message says what to install.
    """
    if find_spec("ray") is None:
        raise ModuleNotFoundError("the engine ray needs Ray Data: pip install 'lucid-onnx[batch,ray]'")
    return import_module("lucid.batch.ray_engine")
