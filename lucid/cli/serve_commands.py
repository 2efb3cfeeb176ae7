"""The command that serves a model over HTTP, `lucid serve`, and its options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lucid.cli import options as o
from lucid.cli.dispatch import run_command

_ADDRESS, _MODEL, _LIMITS = "The address", "The model", "The limits"


def serve(
    folder: Annotated[
        Path,
        typer.Argument(metavar="FOLDER", help="What lucid export --for onnxruntime wrote.", show_default=False),
    ],
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="HOST", rich_help_panel=_ADDRESS, help="Where to listen; 0.0.0.0 is for everyone."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, max=65535, rich_help_panel=_ADDRESS, help="The port.")] = 8000,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--key-file",
            metavar="FILE",
            rich_help_panel=_ADDRESS,
            help="The key that clients must send, in a file; or the variable LUCID_API_KEY.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(
            "--name", metavar="NAME", rich_help_panel=_MODEL, help="What clients call the model; by default the folder."
        ),
    ] = None,
    workers: Annotated[
        int, typer.Option("--workers", min=1, rich_help_panel=_MODEL, help="Processes; one that ends is started again.")
    ] = 1,
    threads: Annotated[
        int | None,
        typer.Option(
            "--threads", min=1, rich_help_panel=_MODEL, help="Of each process; by default the cores are shared out."
        ),
    ] = None,
    batch_tokens: Annotated[
        int, typer.Option("--batch-tokens", min=1, rich_help_panel=_MODEL, help="Tokens that are computed together.")
    ] = 4096,
    prompt: o.Prompt = None,
    max_body: Annotated[
        int | None,
        typer.Option("--max-body", min=1, rich_help_panel=_LIMITS, help="Bytes of a request; by default 4 MiB."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, rich_help_panel=_LIMITS, help="Tokens of a request; by default 32768."),
    ] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", min=0.001, rich_help_panel=_LIMITS, help="Of a request; by default 60."),
    ] = None,
    max_requests: Annotated[
        int | None,
        typer.Option("--max-requests", min=1, rich_help_panel=_LIMITS, help="At a time, in a process; by default 256."),
    ] = None,
    providers: o.Provider = None,
    debug: o.Debug = False,
) -> None:
    """Serve an exported model over HTTP, by the routes of OpenAI's API and of the Open Inference Protocol.

    It listens on this machine alone unless --host says otherwise. Nothing of a request is written to a log.

    Examples:

    \b
      lucid serve minilm-onnxruntime
      lucid serve smollm2-onnxruntime --port 8080 --name smollm2
      lucid serve minilm-onnxruntime --host 0.0.0.0 --key-file key.txt --workers 4
    """
    run_command(
        "serve",
        folder=str(folder),
        host=host,
        port=port,
        key_file=key_file,
        name=name,
        workers=workers,
        threads=threads,
        batch_tokens=batch_tokens,
        prompt=prompt,
        providers=tuple(providers or ["cpu"]),
        limits={"body": max_body, "tokens": max_tokens, "seconds": max_seconds, "requests": max_requests},
    )
