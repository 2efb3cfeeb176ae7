"""The command that runs a model over many rows, `lucid map`, and its options."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lucid.cli import options as o
from lucid.cli.dispatch import run_command

_ROWS, _MODEL, _ENGINE = "The rows", "The model", "The engine"


class EngineName(StrEnum):
    """What `lucid.batch.map_rows` runs on."""

    local = "local"
    ray = "ray"


def map_rows(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="What lucid export --for wrote, not for triton.", show_default=False),
    ],
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="Files, folders or patterns, also s3://... and its kin: Parquet, JSON lines, CSV or images.",
            show_default=False,
        ),
    ],
    output: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            metavar="FOLDER",
            callback=o.folder,
            help="Where to write Parquet files.",
            show_default=False,
        ),
    ],
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--column",
            "-c",
            metavar="NAME",
            rich_help_panel=_ROWS,
            help="The column of texts or images, by default text; two for a cross-encoder.",
        ),
    ] = None,
    output_column: Annotated[
        str | None,
        typer.Option(
            "--output-column",
            metavar="NAME",
            rich_help_panel=_ROWS,
            help="The column of results; by default embedding, label, score or answer.",
        ),
    ] = None,
    id_column: Annotated[
        str | None,
        typer.Option(
            "--id", metavar="NAME", rich_help_panel=_ROWS, help="Check first that no id is missing or twice in it."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", rich_help_panel=_ROWS, help="Go on with a job that was interrupted.")
    ] = False,
    part_rows: Annotated[
        int | None,
        typer.Option("--part-rows", min=1, rich_help_panel=_ROWS, help="Rows of a file; by default by their number."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", metavar="NAME", rich_help_panel=_MODEL, help="An error unless the folder is for it."),
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=1, rich_help_panel=_MODEL, help="Tokens of a batch, padding included.")
    ] = 4096,
    max_length: Annotated[
        int | None,
        typer.Option(
            "--max-length", min=1, rich_help_panel=_MODEL, help="Tokens of a row; by default what the checkpoint says."
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(
            "--pooling",
            metavar="NAME",
            rich_help_panel=_MODEL,
            help="cls or mean, where the model gives a vector for each token.",
        ),
    ] = None,
    prompt: o.Prompt = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-new-tokens", "-n", min=1, rich_help_panel=_MODEL, help="Tokens of an answer; by default 128."
        ),
    ] = None,
    chat: Annotated[
        bool, typer.Option("--chat", rich_help_panel=_MODEL, help="Each prompt is a message, as for lucid chat.")
    ] = False,
    engine: Annotated[
        EngineName,
        typer.Option("--engine", rich_help_panel=_ENGINE, help="This process, or actors of Ray Data on many machines."),
    ] = EngineName.local,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            metavar="ADDRESS",
            rich_help_panel=_ENGINE,
            help="Of a Ray cluster, such as ray://HOST:10001 or auto; by default one is started here.",
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", min=1, rich_help_panel=_ENGINE, help="Actors; by default one per core or GPU."),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, rich_help_panel=_ENGINE, help="Batches at a time in a process; by default one per core."
        ),
    ] = None,
    providers: o.Provider = None,
    json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Run an exported model over the rows of files, and write them with the results.

    A row without a result (null, empty, of another type) has null there, and the reason in the column error.

    Examples:

    \b
      lucid map minilm-onnxruntime texts.parquet -o embeddings
      lucid map minilm-onnxruntime "in/*.jsonl" -o out --column body --id id
      lucid map vit-onnxruntime photos -o labels
      lucid map minilm-onnxruntime texts.parquet -o out --engine ray --resume
    """
    run_command(
        "map",
        folder=folder,
        source=source,
        output=output,
        columns=columns or ["text"],
        output_column=output_column,
        id_column=id_column,
        resume=resume,
        part_rows=part_rows,
        task=task,
        batch_tokens=batch_tokens,
        max_length=max_length,
        pooling=pooling,
        prompt=prompt,
        generation={
            **({} if max_new_tokens is None else {"max_new_tokens": max_new_tokens}),
            **({"chat": True} if chat else {}),
        },
        engine=engine.value,
        address=address,
        workers=workers,
        threads=threads,
        providers=providers or [],
        json=json,
    )
