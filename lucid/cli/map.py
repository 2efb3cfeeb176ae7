"""`lucid map`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lucid.batch import Predictor, map_rows
from lucid.cli import show
from lucid.cli.errors import OK
from lucid.cli.progress import in_a_log
from lucid.core.process.threads import usable_cores


def run(
    *,
    folder: Path,
    source: list[str],
    output: str,
    columns: list[str],
    output_column: str | None,
    id_column: str | None,
    resume: bool,
    part_rows: int | None,
    task: str | None,
    batch_tokens: int,
    max_length: int | None,
    pooling: str | None,
    prompt: str | None,
    generation: dict[str, Any],
    engine: str,
    address: str | None,
    workers: int | None,
    threads: int | None,
    providers: list[str],
    json: bool,
) -> int:
    """Compute the rows, and say how many there are; returns the exit code."""
    alone = engine == "local"
    predictor = Predictor(
        folder,
        columns,
        output_column,
        batch_tokens=batch_tokens,
        threads=threads or (usable_cores() if alone else 1),
        task=task,
        max_length=max_length,
        pooling=pooling,
        prompt=prompt,
        providers=providers or ["cpu"],
        prepack=True if alone else None,  # a process alone has no use for weights that others can share
        generation=generation,
    )
    try:
        with in_a_log():
            made = map_rows(
                predictor,
                source,
                output,
                engine=engine,
                resume=resume,
                id_column=id_column,
                part_rows=part_rows,
                workers=workers,
                cluster=address,
            )
    except KeyboardInterrupt:
        show.Output(error=True).line(f"what is in {output} is complete; --resume goes on with the rest")
        raise
    if json:
        show.print_json({"folder": output, **made._asdict()})
        return OK
    out = show.console()
    speed = f", {made.computed / made.seconds:,.3g} rows/s" if made.computed else ""
    before = f", {made.rows - made.computed:,} by earlier runs" if made.rows != made.computed else ""
    out.line(f"computed    {made.computed:,} of {made.rows:,} rows{before}, in {made.seconds:.1f} s{speed}")
    if made.errors:
        out.line(f"no result   {made.errors:,} rows; the column error says why")
    out.line(f"written     {output}")
    return OK
