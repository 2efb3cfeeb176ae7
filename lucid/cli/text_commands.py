"""The commands that write text, `lucid generate` and `lucid chat`, and their options."""

from __future__ import annotations

from typing import Annotated

import typer

from lucid.cli import bits_options as b
from lucid.cli import options as o
from lucid.cli.dispatch import run_command


def generate(
    source: o.LanguageSource,
    text: Annotated[
        str,
        typer.Argument(metavar="TEXT", help="The text to continue; - reads the standard input.", show_default=False),
    ],
    max_new_tokens: o.NewTokens = None,
    stop: o.Stop = None,
    repetition_penalty: o.RepetitionPenalty = None,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    seed: o.DrawSeed = None,
    bits: b.Bits = None,
    block: b.Block = None,
    symmetric: b.Symmetric = False,
    method: b.Method = None,
    search: b.Search = False,
    skip: b.Skip = None,
    calibration_text: b.Text = None,
    ignore_option: o.IgnoreOption = None,
    eager: o.Eager = False,
    providers: o.Provider = None,
    threads: o.Threads = None,
    json: o.Json = False,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Continue a text with a decoder, and show it as it comes; then, on stderr, the speed.

    Examples:

    \b
      lucid generate SmolLM2-135M "The capital of France is" --max-new-tokens 20
      lucid generate model.gguf "Once upon a time" --temperature 0.8 --seed 1
    """
    writing = o.Writing(max_new_tokens, stop or [], repetition_penalty, temperature, top_k, top_p, min_p, seed)
    run_command(
        "generate",
        source=source,
        text=text,
        writing=writing,
        few_bits=b.FewBits(bits, block, symmetric, method, search, skip, calibration_text),
        ignore=ignore_option or [],
        eager=eager,
        providers=providers or [],
        threads=threads,
        json=json,
    )


def chat(
    source: o.LanguageSource,
    system: Annotated[
        str | None, typer.Option("--system", metavar="TEXT", help="What the model is told before the conversation.")
    ] = None,
    max_new_tokens: o.NewTokens = None,
    stop: o.Stop = None,
    repetition_penalty: o.RepetitionPenalty = None,
    temperature: o.Temperature = None,
    top_k: o.TopK = None,
    top_p: o.TopP = None,
    min_p: o.MinP = None,
    seed: o.DrawSeed = None,
    bits: b.Bits = None,
    block: b.Block = None,
    symmetric: b.Symmetric = False,
    method: b.Method = None,
    search: b.Search = False,
    skip: b.Skip = None,
    calibration_text: b.Text = None,
    ignore_option: o.IgnoreOption = None,
    eager: o.Eager = False,
    providers: o.Provider = None,
    threads: o.Threads = None,
    verbose: o.Verbose = False,
    debug: o.Debug = False,
) -> None:
    """Talk with a model that was trained on conversations. Each line of the standard input is a message.

    Ctrl-C stops an answer, Ctrl-D ends the conversation. When it has no room among the positions of the model any more,
    its oldest messages are forgotten, which is said.

    Examples:

    \b
      lucid chat SmolLM2-135M-Instruct
      lucid chat model.gguf --system "Answer in one sentence." --temperature 0.7
      lucid chat SmolLM2-135M-Instruct --bits 4
      echo "What is the capital of Japan?" | lucid chat model.gguf
    """
    writing = o.Writing(max_new_tokens, stop or [], repetition_penalty, temperature, top_k, top_p, min_p, seed)
    run_command(
        "chat",
        source=source,
        system=system,
        writing=writing,
        few_bits=b.FewBits(bits, block, symmetric, method, search, skip, calibration_text),
        ignore=ignore_option or [],
        eager=eager,
        providers=providers or [],
        threads=threads,
    )
