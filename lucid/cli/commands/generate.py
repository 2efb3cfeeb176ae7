"""`lucid generate`, and what it shares with `lucid chat`: the model, how tokens are chosen, showing an answer."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lucid.cli import terminal
from lucid.cli.errors import OK, usage
from lucid.cli.exported_source import exported_source
from lucid.cli.option_files import text_of
from lucid.cli.options.commands import (
    AnswerCommand,
    AnswerOptions,
    ConstraintOptions,
    Generate,
    RepetitionOptions,
    SamplingOptions,
)
from lucid.cli.options.groups import values_of
from lucid.cli.quantizing import check_quantization, quantize_arguments
from lucid.cli.source import adapters_of
from lucid.core.words.safe_text import harmless
from lucid.files.untrusted import json_value
from lucid.generation.chat import Answer, LanguageModel, load_language_model
from lucid.generation.constraints import LONGEST
from lucid.generation.defaults import over, shown
from lucid.generation.options import Options


def run(options: Generate) -> int:
    """Continue a text and show what follows; returns the exit code."""
    model, choice = prepared(options)
    answer = model.answer(
        model.tokenizer.encode(sys.stdin.read() if options.prompt == "-" else options.prompt), **choice
    )
    if not options.json:
        write(answer, model)
        print_speed(answer)
        return OK
    for _ in pieces(answer, model):
        pass
    terminal.print_json(
        {
            "text": answer.text,
            "ids": answer.ids,
            "prompt_tokens": answer.prompt_tokens,
            "ended_by": answer.ended_by,
            "seconds_to_first_token": answer.seconds_to_first,
            "tokens_per_second": answer.tokens_per_second,
        }
    )
    return OK


def prepared(options: AnswerCommand) -> tuple[LanguageModel, dict[str, Any]]:
    """The model, and the arguments of `LanguageModel.answer`: options of the command override the checkpoint's.

    Without a seed, the draws differ from run to run.
    """
    chosen = chosen_options(options)
    structure = structure_of(options)
    model = load(options)
    if model.tokenizer.defaults:
        notes = terminal.Output(error=True)
        notes.line(f"options of the checkpoint: {shown(model.tokenizer.defaults)}", style="dim")
    choice = {"stop": options.stop, **over(model.tokenizer.defaults, chosen)}
    if choice.get("do_sample"):
        choice = {"seed": secrets.randbits(32), **choice}
    return model, {**choice, "constraint": model.tokenizer.constraint(**structure)}


def chosen_options(options: AnswerOptions) -> dict[str, Any]:
    """The options of answers that the command has, by their names in Python, without the constraint.

    Raises:
        CommandError: for a value out of range.
    """
    groups = (SamplingOptions, RepetitionOptions)
    chosen = {name: value for group in groups for name, value in values_of(options, group).items() if value is not None}
    if options.seed is not None and options.temperature != 0:
        chosen["do_sample"] = True
    chosen |= {"max_new_tokens": options.max_new_tokens, "stop": options.stop}
    chosen |= {"prompt_lookup_num_tokens": options.prompt_lookup_num_tokens}
    try:
        Options(**{**over({}, chosen), "max_new_tokens": options.max_new_tokens or max(1, options.min_new_tokens or 0)})
    except ValueError as error:
        raise usage(str(error).removeprefix("generate: ")) from error
    return chosen


def structure_of(options: ConstraintOptions) -> dict[str, Any]:
    """The arguments of `Tokenizer.constraint`: a schema as an object, a grammar as text."""
    structure: dict[str, Any] = values_of(options, ConstraintOptions)
    for name in ("json_schema", "grammar"):
        if structure[name] is not None:
            structure[name] = text_of(structure[name], f"--{name.replace('_', '-')}", 4 * LONGEST)
    if structure["json_schema"] is not None:
        try:
            structure["json_schema"] = json_value(structure["json_schema"], standard=True, unique=True)
        except ValueError as error:
            raise usage(f"--json-schema: {str(options.json_schema)!r} is not valid JSON: {error}") from None
    return structure


def load(options: AnswerCommand) -> LanguageModel:
    """The model, ready to run."""
    if not options.eager:
        source = exported_source(options, None, options.providers or ["cpu"], decoder=True)
        return load_language_model(
            source.folder, adapters=source.adapter, providers=options.providers or None, threads=options.threads
        )
    if options.providers or options.threads:
        raise usage("--eager runs NumPy: leave out --provider and --threads")
    check_quantization(options)
    quantization = quantize_arguments(options, options.folder, decoder=True)
    return load_language_model(
        options.folder, eager=True, ignore=options.ignore_option, adapters=adapters_of(options), **(quantization or {})
    )


def pieces(answer: Answer, model: LanguageModel) -> Iterator[str]:
    """The pieces of an answer, each computed in another thread, so that Ctrl-C is heard while onnxruntime computes."""
    rest = iter(answer)
    with ThreadPoolExecutor(1) as worker:
        try:
            while (piece := worker.submit(next, rest, None).result()) is not None:
                yield piece
        except KeyboardInterrupt:
            model.cancel()
            raise


def write(answer: Answer, model: LanguageModel) -> None:
    """Write an answer to the standard output as it comes, and a line end after it, also if it is interrupted."""
    try:
        for piece in pieces(answer, model):
            sys.stdout.write(harmless(piece))
            sys.stdout.flush()
    finally:
        sys.stdout.write("\n")
        sys.stdout.flush()


def print_speed(answer: Answer) -> None:
    """Print one line to stderr."""
    first, speed = answer.seconds_to_first, answer.tokens_per_second
    parts = [f"{len(answer.ids)} tokens"]
    parts += [] if first is None else [f"the first after {first:.2f} s"]
    parts += [] if speed is None else [f"then {speed:.1f} tokens/s"]
    notes = terminal.Output(error=True)
    notes.line(", ".join(parts), style="dim")
    if answer.constrained and answer.ended_by == "length":
        notes.line("the answer is not complete: --max-new-tokens ended it", style="yellow")
